package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/taint"
)

// providerSet holds the providers of the configuration in force. One goroutine at a time uses it.
//
// A reload makes new providers for the changed entries. Unchanged providers stay, with their sessions and with their
// knowledge of refused passwords. Otherwise each edit of the file would send such a password once more, until the
// account is locked.
type providerSet struct {
	log     *slog.Logger
	live    client.Reader // reads from the API server, not from a cache; nil: no provider reads Nodes
	metrics *limiter.Metrics

	open    map[string]openProvider // by name
	closing sync.WaitGroup
	done    chan struct{}
}

// openProvider is a provider with the configuration that it was made from.
type openProvider struct {
	from    config.Provider
	inner   providers.Provider
	limited *limiter.Provider
}

// closeDelay is how long what a reload replaced stays usable. A question takes at most the limiter's greatest deadline,
// 5 s. A question to a slow device of the same node begins at most 4 s later.
const closeDelay = 10 * time.Second

// closeTimeout bounds the closing of one provider's sessions.
const closeTimeout = 5 * time.Second

// prepare returns the providers of a configuration by name: those that are open, and new ones for the entries that
// changed. If it cannot make one it returns an error, and closes the new ones.
func (s *providerSet) prepare(all []config.Provider) (map[string]openProvider, error) {
	next := map[string]openProvider{}
	for _, pc := range all {
		m, had := s.open[pc.Name]
		if !had || !reflect.DeepEqual(m.from, pc) {
			inner, err := pc.Config.New(providers.Options{
				Name:  pc.Name,
				Agent: version.UserAgent("forcefence"),
				Log:   s.log.With("provider", pc.Name),
				Now:   time.Now,
				Node:  NodeReader(s.live),
			})
			if err != nil {
				return nil, errors.Join(fmt.Errorf("making provider %s: %w", pc.Name, err), closeMissing(next, s.open))
			}
			m = openProvider{pc, inner, limiter.New(inner, limiter.Options{
				Name:        pc.Name,
				Type:        pc.Type,
				Timeout:     pc.Timeout,
				Rate:        rate.Limit(pc.RatePerSecond),
				Burst:       max(1, int(pc.RatePerSecond)),
				Concurrency: pc.Concurrency,
				Metrics:     s.metrics,
				Log:         s.log,
			})}
		}
		next[pc.Name] = m
	}
	return next, nil
}

// commit replaces the open providers. Those that next lacks are closed after closeDelay, and then it calls end.
func (s *providerSet) commit(next map[string]openProvider, end func()) {
	before := s.open
	s.open = next
	s.closing.Go(func() {
		select {
		case <-time.After(closeDelay):
		case <-s.done:
		}
		if err := closeMissing(before, next); err != nil {
			s.log.Warn("Could not close a replaced provider", "error", err)
		}
		end()
	})
}

// closeAll closes every provider that is still open, and blocks until they are closed.
func (s *providerSet) closeAll() {
	close(s.done)
	s.closing.Wait()
	if err := closeMissing(s.open, nil); err != nil {
		s.log.Warn("Could not close a provider", "error", err)
	}
	s.open = nil
}

// closeMissing closes the providers that next lacks.
func closeMissing(open, next map[string]openProvider) error {
	var errs []error
	for name, m := range open {
		if next[name].limited == m.limited {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		errs = append(errs, m.limited.Close(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// NodeReader returns a function that reads Nodes for providers (providers.Options.Node), through a client that asks the
// API server and no cache; nil for nil.
func NodeReader(live client.Reader) func(context.Context, string) (providers.Node, error) {
	if live == nil {
		return nil
	}
	return func(ctx context.Context, name string) (providers.Node, error) {
		var n corev1.Node
		if err := live.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			class := providers.ErrUnreachable
			switch {
			case apierrors.IsNotFound(err):
				class = providers.ErrNotFound
			case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
				class = providers.ErrDenied
			}
			return providers.Node{}, providers.WithClass(class, fmt.Errorf("reading node: %w", err))
		}
		out := providers.Node{UID: string(n.UID), BootID: n.Status.NodeInfo.BootID}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				out.Ready = string(c.Status)
			}
		}
		for _, t := range n.Spec.Taints {
			out.Taints = append(out.Taints, providers.NodeTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
		switch c, err := taint.ConfirmationOf(&n); {
		case err != nil:
			out.Confirmed.Refused = strings.TrimPrefix(err.Error(), taint.ErrConfirmation.Error()+": ")
		case c != nil:
			out.Confirmed = providers.Confirmed{By: c.By, Reason: c.Reason, At: c.At}
		}
		return out, nil
	}
}
