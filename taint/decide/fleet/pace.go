package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// Pace decides which of many nodes may write its next pod, and how many pod writes may be in flight. Each run of writes
// on a node waits for one Turn at a time. Pods that evictFirst selects go before others, on any node: storage must be
// back before its users. Among the others, the fence that began first goes first. So the first nodes finish soon, and
// the last finishes no later than with equal shares. Every turnsShared-th turn goes to the turn that has waited
// longest. So no node, however many pods it has or gets, keeps another from its end (invariant 16).
//
// While the API server throttles (it answers 429, or not in time), fewer writes are in flight. The limit is halved with
// each refusal of a write that began after the previous refusal, but not below paceLeast. It grows by one each time
// that as many writes as the limit have succeeded. The zero value allows DefaultPace writes in flight. Its methods must
// not be called concurrently.
type Pace struct {
	Most int // writes in flight; 0: DefaultPace

	window   float64 // how many may be in flight; 0: Most
	under    int     // how many are in flight
	waiting  []*Turn // in the order of AddTurn
	given    int     // turns given
	narrowed int     // the value of given when the window was last narrowed
}

// DefaultPace is how many pod writes may be in flight by default: more are no faster (F6).
const DefaultPace = 64

const (
	paceLeast   = 8
	turnsShared = 8
)

// Turn is one write that waits or is in flight.
type Turn struct {
	Node  string
	First bool              // of a pod that evictFirst selects
	Since providers.Instant // when the node's fence began

	number int // its place among the turns given
}

// AddTurn puts a turn in line. A turn may be in line only once.
func (p *Pace) AddTurn(t *Turn) { p.waiting = append(p.waiting, t) }

// RemoveTurn removes a turn from the line, and reports whether it waited: if not, it was given.
func (p *Pace) RemoveTurn(t *Turn) bool {
	i := slices.Index(p.waiting, t)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// NextTurn gives the next turn; nil if none waits, or if as many writes are in flight as the limit.
func (p *Pace) NextTurn() *Turn {
	if len(p.waiting) == 0 || p.under >= p.CurrentLimit() {
		return nil
	}
	t := p.waiting[0] // the one that has waited longest
	if p.given++; p.given%turnsShared != 0 {
		t = slices.MinFunc(p.waiting, compareTurns)
	}
	p.RemoveTurn(t)
	p.under++
	t.number = p.given
	return t
}

// compareTurns orders turns.
func compareTurns(a, b *Turn) int {
	return cmp.Or(compareFirst(a.First, b.First), a.Since.Compare(b.Since), strings.Compare(a.Node, b.Node))
}

// compareFirst sorts true before false.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// FinishTurn ends a turn. crowded reports that the API server throttled its write.
func (p *Pace) FinishTurn(t *Turn, crowded bool) {
	p.under--
	most := float64(p.upperLimit())
	if p.window == 0 {
		p.window = most
	}
	switch {
	case !crowded:
		p.window = min(p.window+1/p.window, most)
	// A burst counts once: its writes were in flight together.
	case t.number > p.narrowed:
		p.window, p.narrowed = max(p.window/2, min(paceLeast, most)), p.given
	}
}

// CurrentLimit returns how many writes may be in flight.
func (p *Pace) CurrentLimit() int {
	if p.window == 0 {
		return p.upperLimit()
	}
	return int(p.window)
}

func (p *Pace) upperLimit() int { return cmp.Or(p.Most, DefaultPace) }
