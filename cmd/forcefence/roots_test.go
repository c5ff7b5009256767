package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	program "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Where the system has no authorities, as in the image, those that the program brings are trusted, and no other. A list
// that is named takes their place.
func TestAuthorities(t *testing.T) {
	var amazon *x509.Certificate
	for root := range bundle.Roots() {
		if c, err := x509.ParseCertificate(root.Certificate); err == nil && c.Subject.CommonName == "Amazon Root CA 1" {
			amazon = c
		}
	}
	if amazon == nil {
		t.Fatal("the authority of Amazon's certificates is not among them")
	}
	if os.Getenv("AUTHORITIES_OF_THE_CHILD") != "" { // a process reads the system's list once
		stranger := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"},
			IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, stranger, stranger, key.Public(), key)
		if err == nil {
			stranger, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]*x509.Certificate{"amazon": amazon, "stranger": stranger} {
			_, err := c.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			t.Logf("%s trusted: %t", name, err == nil)
		}
		return
	}
	empty := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, file, want string }{
		{"no list", filepath.Join(t.TempDir(), "missing.pem"), "amazon trusted: true"},
		{"an empty list", empty, "amazon trusted: true"},
	} {
		cmd := program.Command(os.Args[0], "-test.run=^TestAuthorities$", "-test.v")
		cmd.Env = append(os.Environ(), "AUTHORITIES_OF_THE_CHILD=1", "SSL_CERT_FILE="+tt.file,
			"SSL_CERT_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) ||
			!strings.Contains(string(out), "stranger trusted: false") {
			t.Errorf("%s: got %v\n%s", tt.name, err, out)
		}
	}
}
