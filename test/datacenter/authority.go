package datacenter

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"sync"
)

// rsaKey is made once: it takes its time.
var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(fmt.Sprintf("datacenter: %v", err)) // no randomness
	}
	return key
})

// certificate is a BMC's, for 127.0.0.1 and localhost, or one that names them in its CommonName only.
func (dc *DataCenter) certificate() tls.Certificate {
	t := x509.Certificate{
		Subject:     pkix.Name{CommonName: "BMC"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range dc.opts.Addresses {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(a))
	}
	if dc.opts.CommonNameOnly {
		t.Subject.CommonName, t.DNSNames, t.IPAddresses = "127.0.0.1", nil, nil
	}
	var key crypto.Signer
	if dc.opts.RSAKeyExchangeOnly {
		key, t.KeyUsage = rsaKey(), x509.KeyUsageKeyEncipherment
	}
	return dc.ca.Sign(t, key).TLS()
}

// CA returns the certificate, in PEM, of the authority that signs the BMCs' certificates.
func (dc *DataCenter) CA() []byte { return dc.ca.Cert }

// WriteCA writes CA to a file, for a provider's caFile.
func (dc *DataCenter) WriteCA(path string) error { return dc.ca.WriteCA(path) }
