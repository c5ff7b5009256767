package controller

import (
	"context"
	"sync"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// gate lets pod writes of all nodes through, as fleet.Pace says.
type gate struct {
	mu   sync.Mutex // guards what follows
	pace fleet.Pace
	let  map[*fleet.Turn]chan struct{} // those that wait; closed when they are let through
}

// enter blocks until the turn is given; false when ctx ended first.
func (g *gate) enter(ctx context.Context, t *fleet.Turn) bool {
	given := make(chan struct{})
	g.mu.Lock()
	g.pace.Wait(t)
	g.let[t] = given
	g.open()
	g.mu.Unlock()
	select {
	case <-given:
		if ctx.Err() == nil {
			return true
		}
		g.leave(t, false)
		return false
	case <-ctx.Done():
	}
	g.mu.Lock()
	waited := g.pace.Leave(t)
	delete(g.let, t)
	g.mu.Unlock()
	if !waited { // it was given at the same moment
		g.leave(t, false)
	}
	return false
}

// leave gives a turn back. crowded tells that the API server had no room for its write.
func (g *gate) leave(t *fleet.Turn, crowded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.Done(t, crowded)
	g.open()
}

// open lets through who may go. The caller holds mu.
func (g *gate) open() {
	for t := g.pace.Next(); t != nil; t = g.pace.Next() {
		close(g.let[t])
		delete(g.let, t)
	}
}
