package datacenter

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// authority signs the BMCs' certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() *authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "data centre CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(30 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key))
	return &authority{cert: must(x509.ParseCertificate(der)), key: key}
}

// rsaKey is made once: it takes its time.
var rsaKey = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })

// server returns a certificate for 127.0.0.1 and localhost, or one that names them in its CommonName only.
func (a *authority) server(commonName, rsa bool) tls.Certificate {
	var key crypto.Signer = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	if rsa {
		key = rsaKey()
	}
	tmpl := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))),
		Subject:      pkix.Name{CommonName: "BMC"},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if rsa {
		tmpl.KeyUsage = x509.KeyUsageKeyEncipherment
	}
	if commonName {
		tmpl.Subject.CommonName, tmpl.DNSNames, tmpl.IPAddresses = "127.0.0.1", nil, nil
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// CA returns the certificate, in PEM, of the authority that signs the BMCs' certificates.
func (dc *DataCenter) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: dc.ca.cert.Raw})
}

// WriteCA writes CA to a file, for a provider's caFile.
func (dc *DataCenter) WriteCA(path string) error {
	if err := os.WriteFile(path, dc.CA(), 0o644); err != nil {
		return fmt.Errorf("writing the data centre's CA: %w", err)
	}
	return nil
}

// must is for key generation and signing, which fail only if the system has no randomness or this file is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("datacenter: %v", err))
	}
	return v
}
