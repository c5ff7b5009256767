package remote

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Trust decides which certificates devices may have: those that an authority signed, or those with a fingerprint.
type Trust struct {
	// PEM; default the system's authorities; read again for each connection
	CAFile       string        `yaml:"caFile"`
	Fingerprints []Fingerprint `yaml:"fingerprints"` // of certificates that no trusted authority signed
	// true: check no certificate; any host that answers gets the credentials and may report Off
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Fingerprint trusts one certificate regardless of its names, dates and signatures.
type Fingerprint struct {
	// host or host:port of the only device that may have this certificate; "": any device of this provider
	Host   string `yaml:"host"`
	SHA256 SHA256 `yaml:"sha256"` // of the certificate (DER)
}

// SHA256 is a hash. It is written as OpenSSL prints it, or without colons; the zero value is none.
type SHA256 [sha256.Size]byte

// UnmarshalText reads 64 hexadecimal digits, with or without colons.
func (s *SHA256) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), ":", ""))
	if err != nil || len(b) != len(s) {
		return errors.New("is no SHA-256: write 64 hexadecimal digits, with or without colons")
	}
	*s = SHA256(b)
	return nil
}

// HasTrustSettings reports whether any setting is set.
func (t *Trust) HasTrustSettings() bool {
	return t.CAFile != "" || len(t.Fingerprints) > 0 || t.InsecureSkipVerify
}

// Validate returns every fault. It reads the CA file.
func (t *Trust) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	if _, err := t.loadRoots(); err != nil {
		problem("caFile", "%v", err)
	}
	for i, f := range t.Fingerprints {
		if f.SHA256 == (SHA256{}) {
			problem(fmt.Sprintf("fingerprints[%d].sha256", i), "missing")
		}
		if strings.ContainsAny(f.Host, "/@ ") {
			problem(fmt.Sprintf("fingerprints[%d].host", i),
				"is no host: write the host of the device's address, without https://")
		}
	}
	if t.InsecureSkipVerify && (t.CAFile != "" || len(t.Fingerprints) > 0) {
		problem("insecureSkipVerify", "turns verification off, so caFile and fingerprints have no effect: remove it "+
			"or them")
	}
	return out
}

// Cautions implements providers.Cautious for the settings that embed a Trust.
func (t *Trust) Cautions() (out []providers.Problem) {
	if t.InsecureSkipVerify {
		out = append(out, providers.Problemf("insecureSkipVerify", "any host that answers gets the credentials and "+
			"may report Off. Use caFile, or fingerprints, instead"))
	}
	return out
}

// loadRoots returns the authorities of caFile, or nil, which means the system's, without a caFile.
func (t *Trust) loadRoots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading CA: %w", err)
	}
	sum := sha256.Sum256(b)
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if kept := pools.of[t.CAFile]; kept.sum == sum {
		return kept.roots, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("reading CA: no certificate in %s", t.CAFile)
	}
	pools.of[t.CAFile] = parsedPool{sum, pool}
	return pool, nil
}

// pools holds the last content of each caFile, so that open connections share it.
var pools = struct {
	mu sync.Mutex // guards of
	of map[string]parsedPool
}{of: map[string]parsedPool{}}

// parsedPool is a caFile's content.
type parsedPool struct {
	sum   [sha256.Size]byte
	roots *x509.CertPool
}

// ClientConfig returns the TLS settings for a connection to addr, a host or host:port: at least TLS 1.2, with a trusted
// certificate. A caFile that cannot be read is an ErrUntrusted. Pass a handshake's error to ExplainHandshake.
func (t *Trust) ClientConfig(addr string) (*tls.Config, error) {
	roots, err := t.loadRoots()
	if err != nil {
		return nil, providers.WithClass(providers.ErrUntrusted, err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            roots,
		ServerName:         host,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	var own, any []SHA256
	for _, f := range t.Fingerprints {
		switch key := hostKey(f.Host); key {
		case "":
			any = append(any, f.SHA256)
		case hostKey(host), hostKey(addr):
			own = append(own, f.SHA256)
		}
	}
	if t.InsecureSkipVerify || len(own) == 0 && len(any) == 0 {
		return c, nil
	}
	c.InsecureSkipVerify = true // verified here instead
	c.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0] // a server always sends one
		sum := SHA256(sha256.Sum256(leaf.Raw))
		var err error
		switch {
		case slices.Contains(own, sum), len(own) == 0 && slices.Contains(any, sum):
			return nil
		case len(own) > 0:
			err = errors.New("the certificate is not the one in fingerprints")
		default:
			o := x509.VerifyOptions{Roots: roots, DNSName: host, Intermediates: x509.NewCertPool()}
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
	return c, nil
}

// NewTransport returns an HTTP transport that accepts only trusted devices and uses no proxy. edit, unless nil, changes
// the TLS settings of each connection. It speaks HTTP/1.1: net/http offers HTTP/2 only if it dials by itself.
func (t *Trust) NewTransport(edit func(*tls.Config)) *http.Transport {
	return &http.Transport{
		DialContext: dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return t.dialTLS(ctx, network, addr, edit)
		},
		ResponseHeaderTimeout:  30 * time.Second,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: MaxHeader,
		// Each open connection keeps both buffers. Longer data bypasses them.
		ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
	}
}

var dialer = &net.Dialer{Timeout: 10 * time.Second}

// dialTLS connects to a device and verifies its certificate. An untrusted device gets nothing but the handshake.
func (t *Trust) dialTLS(ctx context.Context, network, addr string, edit func(*tls.Config)) (net.Conn, error) {
	cfg, err := t.ClientConfig(addr)
	if err != nil {
		return nil, err
	}
	if edit != nil {
		edit(cfg)
	}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, ExplainHandshake(err)
	}
	return secure, nil
}

// ExplainHandshake turns the error of an untrusted certificate into an ErrUntrusted that names the settings which would
// trust it. It returns any other error unchanged, because an alert or a broken connection may have other reasons.
func ExplainHandshake(err error) error {
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) && len(cert.UnverifiedCertificates) > 0 {
		return providers.WithClass(providers.ErrUntrusted,
			fmt.Errorf("certificate not trusted (caFile, fingerprints; its SHA-256 is %x): %w",
				sha256.Sum256(cert.UnverifiedCertificates[0].Raw), cert.Err))
	}
	return err
}

// LoadClientCertificate reads a client's certificate and its key. One that has expired, or is not valid yet, is an
// error here, because a device would only close the connection. No error repeats a key.
func LoadClientCertificate(certFile, keyFile string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return pair, fmt.Errorf("reading client certificate: %w", err)
	}
	since, until := pair.Leaf.NotBefore.UTC(), pair.Leaf.NotAfter.UTC()
	switch now := time.Now(); {
	case now.After(until):
		err = fmt.Errorf("the client certificate in %s expired at %s", certFile, until.Format(time.RFC3339))
	case now.Before(since):
		err = fmt.Errorf("the client certificate in %s is not valid before %s", certFile, since.Format(time.RFC3339))
	}
	return pair, err
}
