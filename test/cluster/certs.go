package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const certLife = 365 * 24 * time.Hour

// pki is the cluster's own certificate authority. That a server's certificate is from it proves that we started the server:
// another process that took the port could not speak to us.
type pki struct {
	dir  string
	ca   *x509.Certificate
	key  crypto.Signer
	caPE []byte
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := template(pkix.Name{CommonName: "forcefence-test-ca"})
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, ca: ca, key: key, caPE: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := p.write("ca.crt", p.caPE); err != nil {
		return nil, err
	}
	return p, p.write("ca.key", keyPEM)
}

func template(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife)}
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// issue makes a certificate for a user and its groups; with serving, for a server on loopback as well.
func (p *pki) issue(serving bool, user string, groups ...string) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	tmpl := template(pkix.Name{CommonName: user, Organization: groups})
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if serving {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
		tmpl.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.ca, key.Public(), p.key)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

// issueFiles writes name.crt and name.key.
func (p *pki) issueFiles(name string, serving bool, user string, groups ...string) (keyPair, error) {
	kp, err := p.issue(serving, user, groups...)
	if err != nil {
		return keyPair{}, err
	}
	if err := p.write(name+".crt", kp.cert); err != nil {
		return keyPair{}, err
	}
	return kp, p.write(name+".key", kp.key)
}

// serviceAccountKey writes sa.key and sa.pub.
func (p *pki) serviceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := p.write("sa.key", keyPEM); err != nil {
		return err
	}
	return p.write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(name string, data []byte) error { return os.WriteFile(p.path(name), data, 0o600) }

// restConfig has no client-side throttle: client-go's default of 5 QPS hides what is measured (F6).
func (p *pki) restConfig(host string, kp keyPair) *rest.Config {
	return &rest.Config{
		Host: host, QPS: -1, UserAgent: "forcefence-test",
		TLSClientConfig: rest.TLSClientConfig{CAData: p.caPE, CertData: kp.cert, KeyData: kp.key},
	}
}

func (p *pki) kubeconfig(file, host string, kp keyPair) error {
	const name = "test"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: p.caPE}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: kp.cert, ClientKeyData: kp.key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}
