package limiter

import (
	"errors"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// permit is the still of one power action, for as long as the action lasts.
type permit struct {
	still func() error

	mu    sync.Mutex // guards what follows, and each call of still: none is under way once endAction has returned
	over  bool
	given bool // still has allowed a request
}

// askStill asks still. After endAction it refuses without asking.
func (p *permit) askStill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errors.New("the call has returned")
	}
	err := p.still()
	p.given = p.given || err == nil
	return err
}

// endAction ends the permission for a late provider. It blocks until a running call of still has returned.
func (p *permit) endAction() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// dropNotSent replaces ErrNotSent by ErrUnreachable if still has allowed a request.
func (p *permit) dropNotSent(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given && errors.Is(err, providers.ErrNotSent) {
		return providers.WithClass(providers.ErrUnreachable, errors.New(err.Error()))
	}
	return err
}
