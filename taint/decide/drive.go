package decide

import (
	"context"
	"errors"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// errNotLeading is the error of a power action that was not sent because the process may have lost leadership.
var errNotLeading = errors.New("checking leadership")

// StepDone is one finished step of a node: a decision, and its outcome.
type StepDone struct {
	Look         taint.Look // the look of the decision
	Decision     action.Decision
	Outcome      Observation // nil: the decision was to wait, or to leave the node
	Began, Ended providers.Instant
}

// Err returns why the step failed; nil: it did not. A device that did not accept a power action is no failure of the
// step: the kernel decides what follows.
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

// Decider is what Drive drives: a Node, or one whose steps are recorded.
type Decider interface {
	Look() taint.Look
	Next(now providers.Instant, f Fleet) action.Decision
	Apply(now providers.Instant, f Fleet, o Observation)
}

// Driver is what Drive needs besides a Decider.
type Driver struct {
	World     World
	WithFleet func(func(Fleet))        // calls the function with the fleet, one call at a time
	Now       func() providers.Instant // by the clocks that the Decider counts by
	OnStep    func(StepDone)           // receives each step; must not block for long
}

// maxSteps limits one Drive. driveAgainAfter is when to continue with a node that needs more steps.
const (
	maxSteps        = 250
	driveAgainAfter = 100 * time.Millisecond
)

// Drive takes a node as far as it goes without waiting. It returns when to drive it again; 0: once something changes.
// The error is that of a failed step; the node may be driven again at once. It blocks for the World.
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

// Step carries out the next decision, applies the outcome, and reports the step to OnStep.
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
