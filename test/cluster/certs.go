package cluster

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/forcefence/forcefence/test/kit"
)

// pki is the cluster's own certificate authority, and its folder. That a server's certificate is from it proves that we
// started the server: another process that took the port could not speak to us.
type pki struct {
	*kit.Authority
	dir string
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{Authority: kit.NewAuthority("forcefence-test-ca"), dir: dir}
	return p, p.Write(p.path("ca.crt"), p.path("ca.key"))
}

// issue makes a certificate for a user and its groups; with serving, for a server on loopback as well.
func (p *pki) issue(serving bool, user string, groups ...string) kit.Credentials {
	t := x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if serving {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
		t.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	}
	return p.Sign(t, nil)
}

// issueFiles writes name.crt and name.key.
func (p *pki) issueFiles(name string, serving bool, user string, groups ...string) (kit.Credentials, error) {
	c := p.issue(serving, user, groups...)
	return c, c.Write(p.path(name+".crt"), p.path(name+".key"))
}

// serviceAccountKey writes sa.key and sa.pub.
func (p *pki) serviceAccountKey() error {
	key := kit.NewKey()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(p.path("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(p.path("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// restConfig has no client-side throttle: client-go's default of 5 QPS hides what is measured (F6).
func (p *pki) restConfig(host string, c kit.Credentials) *rest.Config {
	return &rest.Config{
		Host: host, QPS: -1, UserAgent: "forcefence-test",
		TLSClientConfig: rest.TLSClientConfig{CAData: p.Cert, CertData: c.Cert, KeyData: c.Key},
	}
}

func (p *pki) kubeconfig(file, host string, c kit.Credentials) error {
	const name = "test"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: p.Cert}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.Cert, ClientKeyData: c.Key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}
