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

// transport is the provider's own: nothing here is process-wide.
func transport(c *Config) *http.Transport {
	t := c.Transport(c.ciphers)
	dial := t.DialTLSContext
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return conn, explain(err)
	}
	t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = connIdle, maxIdle, maxRequests
	return t
}

// ciphers adds RSA key exchange where the configuration allows it.
func (c *Config) ciphers(cfg *tls.Config) {
	if !c.AllowRSAKeyExchange {
		return
	}
	for _, s := range tls.CipherSuites() {
		cfg.CipherSuites = append(cfg.CipherSuites, s.ID)
	}
	cfg.CipherSuites = append(cfg.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
}

// explain names the setting that a handshake asks for which ended before there was a certificate. A connection that broke or timed out
// is no matter of trust.
func explain(err error) error {
	var op *net.OpError
	switch {
	case err == nil, errors.Is(err, providers.ErrUntrusted):
		return err
	case errors.As(err, &op) && op.Op == "remote error", strings.HasPrefix(err.Error(), "tls: "):
		return providers.WithClass(providers.ErrUntrusted, fmt.Errorf("no TLS 1.2 with it (allowRSAKeyExchange, if it knows nothing newer): %w", err))
	}
	return err
}
