package guard

import (
	"errors"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// permit hands the still of one power action to the inner provider, for as long as the action lasts.
type permit struct {
	still func() error

	mu    sync.Mutex // guards what follows, and each call of still: none is under way once end has returned
	over  bool
	given bool // the inner provider was allowed to send
}

var errCallReturned = errors.New("the call has returned")

// checkStill asks still. After end it asks nothing and refuses.
func (p *permit) checkStill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errCallReturned
	}
	return p.still()
}

// askForProvider is check for the inner provider.
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

// endAction makes a provider that comes late send nothing any more. It waits for a call of still that is under way.
func (p *permit) endAction() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// dropNotSent takes ErrNotSent from an error of the inner provider that was allowed to send.
func (p *permit) dropNotSent(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given && errors.Is(err, providers.ErrNotSent) {
		return providers.WithClass(providers.ErrUnreachable, errors.New(err.Error()))
	}
	return err
}
