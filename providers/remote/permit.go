package remote

import (
	"context"
	"errors"
	"net/http"

	"github.com/forcefence/forcefence/providers"
)

type permitKey struct{}

// WithStill returns the context of one power action. Code that sends for that action calls MaySend first.
func WithStill(ctx context.Context, still func() error) context.Context {
	return context.WithValue(ctx, permitKey{}, providers.PermitSends(still))
}

// MaySend asks the still of the power action that ctx belongs to. A type calls it right before each request that acts,
// on every attempt. After an error the request must not be sent. A context that WithStill did not make is ErrPermanent.
func MaySend(ctx context.Context) error {
	permit, ok := ctx.Value(permitKey{}).(func() error)
	if !ok {
		return providers.WithClass(providers.ErrPermanent,
			errors.New("the request acts, and its context has no permission to send"))
	}
	return permit()
}

// Permitted is a transport that asks MaySend right before each request of a power action, except GET and HEAD. Requests
// whose context WithStill did not make pass: log-ins and subscriptions.
type Permitted struct{ Next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p Permitted) RoundTrip(r *http.Request) (*http.Response, error) {
	acts := r.Method != http.MethodGet && r.Method != http.MethodHead && r.Context().Value(permitKey{}) != nil
	if acts {
		if err := MaySend(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	return p.Next.RoundTrip(r)
}

// CloseIdleConnections closes those of Next, for http.Client.CloseIdleConnections.
func (p Permitted) CloseIdleConnections() {
	if c, ok := p.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
