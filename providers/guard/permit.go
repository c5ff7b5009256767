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

var errOver = errors.New("the call has returned")

// check asks still. After end it asks nothing and refuses.
func (p *permit) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errOver
	}
	return p.still()
}

// ask is check for the inner provider.
func (p *permit) ask() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errOver
	}
	err := p.still()
	p.given = p.given || err == nil
	return err
}

// end makes a provider that comes late send nothing any more. It waits for a call of still that is under way.
func (p *permit) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// judge takes ErrNotSent from an error of the inner provider that was allowed to send.
func (p *permit) judge(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given && errors.Is(err, providers.ErrNotSent) {
		return providers.WithClass(providers.ErrUnreachable, errors.New(err.Error()))
	}
	return err
}
