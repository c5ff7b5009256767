package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

var (
	loopbackIP = net.IPv4(127, 0, 0, 1)
	programsMu sync.Mutex // guards a control's list while two start at once
)

// until asks every 50 ms until check says true, and at its limit returns an error that says what was waited for and
// check's last one.
func until(ctx context.Context, limit time.Duration, what string, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		ok, err := check()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w (%v)", what, ctx.Err(), err)
		case <-t.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// stalls is how long this machine ran no process: a ticker that came late. Judged and referee share the machine, so
// what held one up probably held the other.
type stalls struct {
	mu   sync.Mutex
	list []span
}

func (s *stalls) watch(ctx context.Context) {
	const every = 20 * time.Millisecond
	last := time.Now()
	for pause(ctx, every) {
		now := time.Now()
		if now.Sub(last) > 5*every {
			s.mu.Lock()
			s.list = append(s.list, span{From: last, To: now})
			s.mu.Unlock()
		}
		last = now
	}
}

func (s *stalls) cut() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}
