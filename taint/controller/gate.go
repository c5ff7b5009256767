package controller

import (
	"context"
	"sync"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// gate lets pod writes of all nodes through, in the order and number of fleet.Pace.
type gate struct {
	mu   sync.Mutex // guards what follows
	pace fleet.Pace
	let  map[*fleet.Turn]chan struct{} // those that wait; closed when they are let through
}

// takeTurn blocks until the turn is given. It returns false if ctx ended first.
func (g *gate) takeTurn(ctx context.Context, t *fleet.Turn) bool {
	given := make(chan struct{})
	g.mu.Lock()
	g.pace.AddTurn(t)
	g.let[t] = given
	g.grantTurns()
	g.mu.Unlock()
	select {
	case <-given:
		if ctx.Err() == nil {
			return true
		}
		g.returnTurn(t, false)
		return false
	case <-ctx.Done():
	}
	g.mu.Lock()
	waited := g.pace.RemoveTurn(t)
	delete(g.let, t)
	g.mu.Unlock()
	if !waited { // it was given at the same moment
		g.returnTurn(t, false)
	}
	return false
}

// returnTurn gives a turn back. crowded means that the API server was overloaded by its write.
func (g *gate) returnTurn(t *fleet.Turn, crowded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.FinishTurn(t, crowded)
	g.grantTurns()
}

// grantTurns lets through the turns that may go. The caller holds mu.
func (g *gate) grantTurns() {
	for t := g.pace.NextTurn(); t != nil; t = g.pace.NextTurn() {
		close(g.let[t])
		delete(g.let, t)
	}
}
