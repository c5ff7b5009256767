package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Edit gives one draw of a history another value than its seed did.
type Edit struct {
	At int // the draw's place among all draws of the history
	To int // which of the other values, from 1 on
}

// Edits are the edits of one history, in the order of their places.
type Edits []Edit

// String is what -sim.edits takes.
func (e Edits) String() string {
	var out []string
	for _, x := range e {
		out = append(out, fmt.Sprintf("%d:%d", x.At, x.To))
	}
	return strings.Join(out, ",")
}

// Set reads what String writes.
func (e *Edits) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		var x Edit
		if _, err := fmt.Sscanf(part, "%d:%d", &x.At, &x.To); err != nil {
			return fmt.Errorf("reading edit %q, want PLACE:VALUE: %w", part, err)
		}
		*e = append(*e, x)
	}
	slices.SortStableFunc(*e, func(a, b Edit) int { return a.At - b.At })
	return nil
}

// draw is one thing that a plain history left to chance.
type draw struct {
	values int  // how many it could have had
	step   bool // a message or a moment: exploration follows it with another edit
}

// script has all draws of a history in their order, whichever generator they come from.
type script struct {
	plain bool  // nothing is random: messages are quick, and nothing fails
	over  bool  // no draw is edited any more
	edits Edits // that are left
	made  int
	draws []draw // of a plain history, until it is over
}

// edit returns which other value the next draw has; 0: none.
func (s *script) edit(values int, step bool) int {
	if s.over {
		return 0
	}
	at := s.made
	s.made++
	if s.plain {
		s.draws = append(s.draws, draw{values, step})
	}
	if len(s.edits) == 0 || s.edits[0].At != at || values < 2 {
		return 0
	}
	to := s.edits[0].To
	s.edits = s.edits[1:]
	return 1 + (to-1)%(values-1)
}

// dice is one generator of a history. In a plain history it is not asked: each draw has its plain value.
type dice struct {
	rng *rand.Rand
	*script
}

func newDice(s *script, seed, stream uint64) dice {
	return dice{rand.New(rand.NewPCG(seed, stream)), s}
}

// plainShare is where a plain draw from a span lies: more often near its beginning.
const plainShare = 0.25

// Float64 draws from [0, 1). The other value is far from the first.
func (d dice) Float64() float64 {
	v := plainShare
	if !d.plain {
		v = d.rng.Float64()
	}
	switch {
	case d.edit(2, false) == 0:
		return v
	case v < 0.5:
		return 0.999
	default:
		return 0
	}
}

// chance is true with that probability. What is rare does not happen in a plain history, and its other value is true.
func (d dice) chance(p float64) bool {
	happens := !d.plain && d.rng.Float64() < p
	return happens != (d.edit(2, false) > 0)
}

func (d dice) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.Float64()*float64(hi-lo))
}

// IntN draws from [0, n).
func (d dice) IntN(n int) int {
	v := 0
	if !d.plain {
		v = d.rng.IntN(n)
	}
	return (v + d.edit(n, false)) % n
}

// Perm draws an order. It has no other value, and a plain history asks for none.
func (d dice) Perm(n int) []int { return d.rng.Perm(n) }

// usual is chance for what happens in a plain history.
func (d dice) usual(p float64) bool {
	if d.plain {
		return d.edit(2, false) == 0
	}
	return d.chance(p)
}

// rare is chance for what exploration follows with another edit.
func (d dice) rare(p float64) bool {
	if d.plain {
		return d.step(2) > 0
	}
	return d.chance(p)
}

// oneOf is -1, or with that chance one of n faults: one draw of a plain history.
func (d dice) oneOf(p float64, n int) int {
	switch {
	case d.plain:
		return d.step(1+n) - 1
	case !d.chance(p):
		return -1
	default:
		return d.IntN(n)
	}
}

// share is 0, or with that chance a share of the longest time that something may take.
func (d dice) share(p float64) float64 {
	switch {
	case d.plain:
		return 0.499 * float64(d.step(3))
	case !d.chance(p):
		return 0
	default:
		return d.Float64()
	}
}

// step draws from [0, n) where a plain history goes on with 0, and exploration tries each other value.
func (d dice) step(n int) int { return d.edit(n, true) }
