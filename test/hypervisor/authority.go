package hypervisor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// Authority signs certificates for daemons and their clients.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Credentials are a certificate and its key, in PEM.
type Credentials struct{ Cert, Key []byte }

// NewAuthority makes an authority of its own.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "hypervisors' CA"},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              time.Now().Add(30 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert: cert, key: key}, err
}

// WriteCA writes the authority's certificate to a file.
func (a *Authority) WriteCA(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o644)
}

// Server makes credentials for a daemon at these names and addresses.
func (a *Authority) Server(hosts ...string) (Credentials, error) {
	return a.sign(hosts, x509.ExtKeyUsageServerAuth, time.Now().Add(24*time.Hour))
}

// Client makes credentials for a client until that time.
func (a *Authority) Client(until time.Time) (Credentials, error) {
	return a.sign(nil, x509.ExtKeyUsageClientAuth, until)
}

func (a *Authority) sign(hosts []string, use x509.ExtKeyUsage, until time.Time) (Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Credentials{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return Credentials{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "forcefence"},
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, // libvirtd refuses a certificate without the second
		ExtKeyUsage:  []x509.ExtKeyUsage{use},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Credentials{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// Write writes both to files.
func (c Credentials) Write(cert, key string) error {
	if err := errors.Join(os.WriteFile(cert, c.Cert, 0o644), os.WriteFile(key, c.Key, 0o600)); err != nil {
		return fmt.Errorf("writing credentials: %w", err)
	}
	return nil
}
