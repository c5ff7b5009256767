package guard

import (
	"errors"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// permit lets the inner provider call the still of one power action, for as long as the action lasts.
type permit struct {
	still func() error

	mu    sync.Mutex // guards what follows, and each call of still: none is under way once endAction has returned
	over  bool
	given bool // the inner provider was allowed to send
}

var errCallReturned = errors.New("the call has returned")

// checkStill asks still. After endAction it refuses without asking.
func (p *permit) checkStill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errCallReturned
	}
	return p.still()
}

// askForProvider is checkStill for the inner provider. It also records that the provider was allowed to send.
func (p *permit) askForProvider() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errCallReturned
	}
	err := p.still()
	p.given = p.given || err == nil
	return err
}

// endAction ends the permission: a provider that is late sends nothing any more. It blocks until a running call of
// still has returned.
func (p *permit) endAction() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// dropNotSent replaces ErrNotSent by ErrUnreachable if the inner provider was allowed to send.
func (p *permit) dropNotSent(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given && errors.Is(err, providers.ErrNotSent) {
		return providers.WithClass(providers.ErrUnreachable, errors.New(err.Error()))
	}
	return err
}
