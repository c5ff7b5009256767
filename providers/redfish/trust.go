package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// dial connects to a BMC and makes sure that it is the one. Nothing but the handshake is said to one that is not: ErrUntrusted.
func (c *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg, err := c.Client(addr)
	if err != nil {
		return nil, err
	}
	if c.AllowRSAKeyExchange {
		for _, s := range tls.CipherSuites() {
			cfg.CipherSuites = append(cfg.CipherSuites, s.ID)
		}
		cfg.CipherSuites = append(cfg.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
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
		return nil, explain(err)
	}
	return secure, nil
}

// explain names the setting that a failed handshake asks for. A connection that broke or timed out is no matter of trust.
func explain(err error) error {
	explained := remote.Explain(err)
	var op *net.OpError
	switch {
	case errors.Is(explained, providers.ErrUntrusted):
		return explained
	case errors.As(err, &op) && op.Op == "remote error", strings.HasPrefix(err.Error(), "tls: "):
		return providers.WithClass(providers.ErrUntrusted, fmt.Errorf("no TLS 1.2 with it (allowRSAKeyExchange, if it knows nothing newer): %w", err))
	}
	return err
}
