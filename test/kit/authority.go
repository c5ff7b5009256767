package kit

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// Authority signs certificates: of the devices' servers, the daemons and the control planes that tests start. Nothing
// but this process has its key, so a server with a certificate of it is one that we started.
type Authority struct {
	Credentials
	cert *x509.Certificate
	key  crypto.Signer
}

// Credentials are a certificate and its key, in PEM.
type Credentials struct{ Cert, Key []byte }

// NewAuthority makes an authority for a year. It panics where the system has no randomness, as signing does.
func NewAuthority(name string) *Authority {
	a := &Authority{key: NewKey()}
	a.cert = &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              time.Now().Add(365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.Credentials = a.Sign(*a.cert, a.key)
	block, _ := pem.Decode(a.Cert)
	a.cert = must(x509.ParseCertificate(block.Bytes))
	return a
}

// NewKey makes a key for Sign, of the kind that it makes itself.
func NewKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// Sign makes a certificate of a template, and a key where it is nil. Of the template, the serial number is ours; zero
// times are the authority's, a day later at the beginning; zero usage is that of a server or client, whose key may
// encrypt a key as well: libvirtd wants that.
func (a *Authority) Sign(t x509.Certificate, key crypto.Signer) Credentials {
	if key == nil {
		key = NewKey()
	}
	t.SerialNumber = must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
	if t.NotBefore.IsZero() {
		t.NotBefore = a.cert.NotBefore.Add(24 * time.Hour)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = a.cert.NotAfter
	}
	t.KeyUsage = cmp.Or(t.KeyUsage, x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment)
	return Credentials{
		Cert: encode("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, &t, a.cert, key.Public(), a.key))),
		Key:  encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))),
	}
}

// Server makes credentials for a server at these names and addresses.
func (a *Authority) Server(hosts ...string) Credentials {
	t := x509.Certificate{Subject: pkix.Name{CommonName: "forcefence"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return a.Sign(t, nil)
}

// Client makes credentials for a client until that time.
func (a *Authority) Client(until time.Time) Credentials {
	return a.Sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "forcefence"}, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil)
}

// Pool trusts only the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// WriteCA writes the authority's certificate to a file.
func (a *Authority) WriteCA(path string) error {
	if err := os.WriteFile(path, a.Cert, 0o644); err != nil {
		return fmt.Errorf("writing CA: %w", err)
	}
	return nil
}

// Write writes both to files.
func (c Credentials) Write(cert, key string) error {
	if err := errors.Join(os.WriteFile(cert, c.Cert, 0o644), os.WriteFile(key, c.Key, 0o600)); err != nil {
		return fmt.Errorf("writing credentials: %w", err)
	}
	return nil
}

// TLS is what a server or a client in this process takes.
func (c Credentials) TLS() tls.Certificate { return must(tls.X509KeyPair(c.Cert, c.Key)) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// must is for what fails only if the system has no randomness or a template is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("kit: %v", err))
	}
	return v
}
