package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// Pace says which of many nodes may write its next pod, and how many pod writes may be under way. Each run of writes on a node waits for one
// Turn at a time. Pods that evictFirst names go before others, of whichever nodes: storage must be back before what uses it. Among others the
// fence that began first goes first: so the first nodes are whole soon, and the last one is no later than if all shared alike. But every
// turnsShared-th turn is given to whoever has waited longest, so that no node, however many pods it has or gets, keeps another
// from its end (invariant 16).
//
// While the API server has no room (it says 429, or does not answer in time) fewer writes are under way: half as many with each
// refusal of a write that was begun after the one before, but not below paceLeast; and one more for each time that as many as may be have
// succeeded. The zero value lets DefaultPace writes be under way. Its methods must not be called at the same time.
type Pace struct {
	Most int // writes under way; 0: DefaultPace

	window   float64 // how many may be under way; 0: Most
	under    int     // how many are
	waiting  []*Turn // in the order in which they came
	given    int     // turns
	narrowed int     // given, when the window was narrowed last
}

// DefaultPace is how many pod writes may be under way at the same time, where nothing is said: more are no faster (F6).
const DefaultPace = 64

const (
	paceLeast   = 8
	turnsShared = 8
)

// Turn is one write that waits or is under way.
type Turn struct {
	Node  string
	First bool              // of a pod that evictFirst names
	Since providers.Instant // when the node's fence began

	number int // of those that were given
}

// AddTurn puts a turn in line. It is to be there once.
func (p *Pace) AddTurn(t *Turn) { p.waiting = append(p.waiting, t) }

// RemoveTurn takes a turn out of the line, and reports whether it waited: if not, it was given.
func (p *Pace) RemoveTurn(t *Turn) bool {
	i := slices.Index(p.waiting, t)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// NextTurn gives the next turn; nil: none waits, or as many writes are under way as may be.
func (p *Pace) NextTurn() *Turn {
	if len(p.waiting) == 0 || p.under >= p.CurrentLimit() {
		return nil
	}
	t := p.waiting[0] // who has waited longest
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

// compareFirst sorts what is set before what is not.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// FinishTurn takes a turn back. crowded tells that the API server had no room for its write.
func (p *Pace) FinishTurn(t *Turn, crowded bool) {
	p.under--
	most := float64(p.upperLimit())
	if p.window == 0 {
		p.window = most
	}
	switch {
	case !crowded:
		p.window = min(p.window+1/p.window, most)
	case t.number > p.narrowed: // one crowd is one: its writes were on their way together
		p.window, p.narrowed = max(p.window/2, min(paceLeast, most)), p.given
	}
}

// CurrentLimit is how many writes may be under way.
func (p *Pace) CurrentLimit() int {
	if p.window == 0 {
		return p.upperLimit()
	}
	return int(p.window)
}

func (p *Pace) upperLimit() int { return cmp.Or(p.Most, DefaultPace) }
