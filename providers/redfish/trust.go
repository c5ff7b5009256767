package redfish

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Fingerprint vouches for one certificate, whatever names, dates and signatures it has. It is written as OpenSSL prints it, or
// without colons.
type Fingerprint struct {
	// Host is the BMC's host, or host:port, that has this certificate and no other; "": any BMC of this provider may have it.
	Host   string `yaml:"host"`
	SHA256 string `yaml:"sha256"` // of the certificate (DER)
}

// sum returns the fingerprint's bytes.
func (f Fingerprint) sum() (sum [sha256.Size]byte, ok bool) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(f.SHA256), ":", ""))
	return [sha256.Size]byte(append(b, sum[:]...)), err == nil && len(b) == len(sum)
}

// hostKey is the one way to write a host, or host:port, as the origin of a BMC's address has it; "" stays "".
func hostKey(host string) string {
	host = strings.TrimSpace(host)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	if u, err := url.Parse("https://" + host); err == nil {
		if key, err := canonicalHost(u); err == nil {
			return key
		}
	}
	return strings.ToLower(host)
}

// trust decides which BMC may speak: one whose certificate an authority vouches for, or a fingerprint.
type trust struct {
	roots    *x509.CertPool // nil: the system's
	insecure bool
	rsa      bool // RSA key exchange, too
	any      [][sha256.Size]byte
	of       map[string][][sha256.Size]byte // by host or host:port
}

func (c *Config) trust() (*trust, error) {
	roots, err := c.roots()
	if err != nil {
		return nil, err
	}
	t := &trust{roots: roots, insecure: c.InsecureSkipVerify, rsa: c.AllowRSAKeyExchange, of: map[string][][sha256.Size]byte{}}
	for i, f := range c.Fingerprints {
		sum, ok := f.sum()
		switch host := hostKey(f.Host); {
		case !ok:
			return nil, fmt.Errorf("fingerprints[%d]: is no SHA-256", i)
		case host == "":
			t.any = append(t.any, sum)
		default:
			t.of[host] = append(t.of[host], sum)
		}
	}
	return t, nil
}

// dial connects to a BMC and makes sure that it is the one. Nothing but the handshake is said to one that is not: ErrUntrusted.
func (t *trust) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := tls.Client(conn, t.config(addr))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, t.explain(err)
	}
	return c, nil
}

func (t *trust) config(addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.roots, ServerName: host, InsecureSkipVerify: t.insecure}
	if t.rsa {
		for _, s := range tls.CipherSuites() {
			c.CipherSuites = append(c.CipherSuites, s.ID)
		}
		c.CipherSuites = append(c.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
	}
	own := slices.Concat(t.of[hostKey(host)], t.of[hostKey(addr)])
	if t.insecure || len(own) == 0 && len(t.any) == 0 {
		return c
	}
	c.InsecureSkipVerify = true // verified here instead
	c.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0] // a server always sends one
		sum := sha256.Sum256(leaf.Raw)
		var err error
		switch {
		case slices.Contains(own, sum), len(own) == 0 && slices.Contains(t.any, sum):
			return nil
		case len(own) > 0:
			err = errors.New("the certificate is not the one in fingerprints")
		default:
			o := x509.VerifyOptions{Roots: t.roots, DNSName: host, Intermediates: x509.NewCertPool()}
			for _, cert := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(cert)
			}
			_, err = leaf.Verify(o)
		}
		if err == nil {
			return nil
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return c
}

// explain names the setting that a failed handshake asks for. A connection that broke or timed out is no matter of trust.
func (t *trust) explain(err error) error {
	var cert *tls.CertificateVerificationError
	var remote *net.OpError
	switch {
	case errors.As(err, &cert) && len(cert.UnverifiedCertificates) > 0:
		return providers.WithClass(providers.ErrUntrusted, fmt.Errorf("certificate not trusted (caFile, fingerprints; its SHA-256 is %x): %w",
			sha256.Sum256(cert.UnverifiedCertificates[0].Raw), cert.Err))
	case errors.As(err, &remote) && remote.Op == "remote error", strings.HasPrefix(err.Error(), "tls: "):
		return providers.WithClass(providers.ErrUntrusted, fmt.Errorf("no TLS 1.2 with it (allowRSAKeyExchange, if it knows nothing newer): %w", err))
	}
	return err
}
