package decide

import (
	"context"
	"errors"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// errNotLeading is why a process that may not be the leader any more sends no power action.
var errNotLeading = errors.New("checking leadership")

// StepDone is one step of a node's course, once it is over: a decision, and what became of it.
type StepDone struct {
	Look         taint.Look // that was decided on
	Decision     action.Decision
	Outcome      Observation // nil: the decision was to wait, or to leave the node
	Began, Ended providers.Instant
}

// Err is why the step failed; nil: it did not. A device that did not accept a power action is no failure of the step:
// the course knows what follows.
func (s StepDone) Err() error {
	switch o := s.Outcome.(type) {
	case ReadFailed:
		return o.Err
	case ActionDone:
		power := action.Is[action.PowerOff](s.Decision) || action.Is[action.PowerOn](s.Decision)
		if !power || errors.Is(o.Err, errNotLeading) {
			return o.Err
		}
	}
	return nil
}

// Decider is a Node, or one that is recorded as it goes.
type Decider interface {
	Look() taint.Look
	Next(now providers.Instant, f Fleet) action.Decision
	Apply(now providers.Instant, f Fleet, o Observation)
}

// Driver is what Drive needs beside a node's course.
type Driver struct {
	World     World
	WithFleet func(func(Fleet))        // calls with what is known across nodes, one at a time
	Now       func() providers.Instant // by the clocks that the course counts by
	OnStep    func(StepDone)           // is told of each step; must not block for long
}

// maxSteps bounds one Drive, and soon is when a node that needs more is driven on.
const (
	maxSteps        = 250
	driveAgainAfter = 100 * time.Millisecond
)

// Drive takes a node as far as it goes without waiting. It returns when to drive it again, 0: once something changes.
// The error is that of a step that failed; the node may be driven again at once. It blocks for the World.
func Drive(ctx context.Context, c Decider, by Driver) (requeueAfter time.Duration, err error) {
	for range maxSteps {
		s := Step(ctx, c, by)
		if s.Outcome == nil {
			return s.Decision.RequeueAfter, nil
		}
		if err := s.Err(); err != nil {
			return 0, err
		}
	}
	return driveAgainAfter, nil
}

// Step carries out the next decision, applies what became of it, and tells of it.
func Step(ctx context.Context, c Decider, by Driver) StepDone {
	s := StepDone{Began: by.Now()}
	by.WithFleet(func(f Fleet) { s.Decision = c.Next(by.Now(), f) })
	s.Look = c.Look()
	if s.Outcome = Do(ctx, s.Decision.Action, by.World); s.Outcome != nil {
		by.WithFleet(func(f Fleet) { c.Apply(by.Now(), f, s.Outcome) })
	}
	s.Ended = by.Now()
	by.OnStep(s)
	return s
}
