package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// newTransport returns the provider's own transport; nothing of it is process-wide.
func newTransport(c *Config) *http.Transport {
	t := c.NewTransport(c.allowCiphers)
	dial := t.DialTLSContext
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return conn, c.explainHandshake(err)
	}
	t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = connIdle, maxIdle, maxRequests
	return t
}

// allowCiphers adds old versions and RSA key exchange if the configuration allows them.
func (c *Config) allowCiphers(cfg *tls.Config) {
	if c.AllowOldTLS {
		cfg.MinVersion = tls.VersionTLS10
	}
	if !c.AllowRSAKeyExchange {
		return
	}
	for _, s := range tls.CipherSuites() {
		cfg.CipherSuites = append(cfg.CipherSuites, s.ID)
	}
	cfg.CipherSuites = append(cfg.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
}

// explainHandshake adds the setting that would help to the error of a handshake that ended before there was a
// certificate.
func (c *Config) explainHandshake(err error) error {
	var op *net.OpError
	switch {
	case err == nil, errors.Is(err, providers.ErrUntrusted):
		return err
	case errors.As(err, &op) && op.Op == "remote error", strings.HasPrefix(err.Error(), "tls: "):
		return providers.WithClass(providers.ErrUntrusted, fmt.Errorf("%s: %w", c.tlsAdvice(err), err))
	}
	return err
}

// tlsAdvice returns what helps if a BMC and Go have no cipher in common. Go has no DHE.
func (c *Config) tlsAdvice(err error) string {
	old := strings.Contains(err.Error(), "protocol version")
	switch {
	case old && c.AllowOldTLS:
		return "the BMC has no TLS 1.0 to 1.3"
	case old:
		return "the BMC has no TLS 1.2 (allowOldTLS, if new firmware does not help)"
	case c.AllowRSAKeyExchange:
		return "no key exchange in common: if the BMC has DHE only, enable ECDHE there, or put a TLS proxy before it " +
			"(README)"
	}
	return "no key exchange in common (allowRSAKeyExchange, if the BMC has no ECDHE and new firmware does not help)"
}
