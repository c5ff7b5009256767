package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// maxParallel is the maximum number of targets in flight of a provider without batches, over all its devices.
const maxParallel = 64

// MaxStates implements providers.BatchStater. It only shows whether one call asks for more than one target.
func (l *Provider) MaxStates() int {
	if _, ok := l.inner.(providers.BatchStater); ok {
		return math.MaxInt
	}
	return 1
}

// States asks for all targets. A provider with batches gets calls of at most MaxStates targets, each of one unit of
// limits. Other providers are asked target by target. A target without an answer has its error in Unanswered; it fails
// no other. Calls run concurrently within the limits. The calls for one batch, halves included, share one deadline.
func (l *Provider) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	c := batchResult{answers: map[string]providers.Observation{}, errs: providers.Unanswered{}}
	targets = slices.Clone(targets)
	slices.SortStableFunc(targets, func(a, b providers.Target) int { return cmp.Compare(a.Key(), b.Key()) })
	targets = slices.CompactFunc(targets, func(a, b providers.Target) bool { return a.Key() == b.Key() })
	inner, ok := l.inner.(providers.BatchStater)
	if !ok {
		l.askEach(ctx, targets, &c)
		return c.result()
	}
	most, err := catchPanic(l, callStates.verb, func() (int, error) { return max(1, inner.MaxStates()), nil })
	units := map[string][]providers.Target{}
	for _, t := range targets {
		unit := ""
		if err == nil {
			unit, err = catchPanic(l, callStates.verb, func() (string, error) { return l.LimitGroup(t), nil })
		}
		units[unit] = append(units[unit], t)
	}
	if err != nil {
		c.addErrors(targets, l.wrapError(callStates, describeCount(targets), err))
		return c.result()
	}
	var wait sync.WaitGroup
	for unit, of := range units {
		for part := range slices.Chunk(of, most) {
			wait.Go(func() {
				ctx, cancel := l.withDeadline(ctx)
				defer cancel()
				l.askBatch(ctx, inner, unit, part, &c)
			})
		}
	}
	wait.Wait()
	return c.result()
}

// askEach asks for each target on its own.
func (l *Provider) askEach(ctx context.Context, targets []providers.Target, c *batchResult) {
	var wait sync.WaitGroup
	turns := make(chan struct{}, maxParallel)
	for _, t := range targets {
		turns <- struct{}{} // comes free by the calls' deadlines
		wait.Go(func() {
			defer func() { <-turns }()
			obs, err := l.State(ctx, t)
			if err != nil {
				c.addErrors([]providers.Target{t}, err)
				return
			}
			c.addAnswers(map[string]providers.Observation{t.Key(): obs}, []providers.Target{t})
		})
	}
	wait.Wait()
}

// askBatch asks for targets of one unit of limits in one call. If the whole call failed for a reason that may concern a
// single target, it asks again in halves: 1000 ids of which one does not exist cost some 20 calls.
func (l *Provider) askBatch(ctx context.Context, inner providers.BatchStater, unit string,
	targets []providers.Target, c *batchResult) {
	all, err := callUnit(ctx, l, callStates, describeCount(targets), func() string { return unit },
		func(ctx context.Context) (map[string]providers.Observation, error) {
			sent := providers.Now()
			all, err := inner.States(ctx, targets)
			answers, refused := maps.Clone(all), providers.Unanswered{}
			for _, t := range targets {
				obs, answered := all[t.Key()]
				if !answered {
					continue
				}
				wrong := l.identities.learnIdentity(t, sent, obs, nil)
				if wrong != nil && providers.StateBeside(obs.State, wrong) == providers.PowerUnknown {
					delete(answers, t.Key())
					refused[t.Key()] = wrong
				}
			}
			return answers, joinRefused(err, refused)
		})
	left := c.addAnswers(all, targets)
	switch {
	case len(left) == 0:
	case err != nil && len(left) == len(targets) && len(left) > 1 && mayBeOneTarget(err):
		l.askBatch(ctx, inner, unit, left[:len(left)/2], c)
		l.askBatch(ctx, inner, unit, left[len(left)/2:], c)
	default:
		c.addErrors(left, err)
	}
}

// joinRefused adds the refused answers of a batch to its error. The error of a whole call remains: it is every missing
// target's.
func joinRefused(err error, refused providers.Unanswered) error {
	var each providers.Unanswered
	switch {
	case len(refused) == 0:
		return err
	case errors.As(err, &each):
		maps.Copy(refused, each)
	case err != nil:
		return err
	}
	return refused
}

// mayBeOneTarget reports whether an error of a whole batch may concern a single target. A device that is silent or
// denies access would fail for any target, and twenty more calls would harm it.
func mayBeOneTarget(err error) bool {
	var each providers.Unanswered
	if errors.As(err, &each) {
		return false
	}
	switch providers.ErrorClass(err) {
	case "unreachable", "denied", "untrusted", "canceled":
		return false
	}
	return true
}

func describeCount(targets []providers.Target) string {
	return fmt.Sprintf("%d machines", len(targets))
}

// batchResult collects the results of the calls of one States.
type batchResult struct {
	mu      sync.Mutex // guards what follows
	answers map[string]providers.Observation
	errs    providers.Unanswered
}

// addAnswers stores the answers for targets and ignores any other. It returns the targets without an answer.
func (c *batchResult) addAnswers(all map[string]providers.Observation,
	targets []providers.Target) (left []providers.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range targets {
		if obs, ok := all[t.Key()]; ok {
			c.answers[t.Key()] = obs
		} else {
			left = append(left, t)
		}
	}
	return left
}

// addErrors stores why targets have no answer. For a nil error it stores none, and AskAll names the reason.
func (c *batchResult) addErrors(targets []providers.Target, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var each providers.Unanswered
	differ := errors.As(err, &each)
	for _, t := range targets {
		if differ {
			err = each[t.Key()]
		}
		if err != nil {
			c.errs[t.Key()] = err
		}
	}
}

func (c *batchResult) result() (map[string]providers.Observation, error) {
	if len(c.errs) == 0 {
		return c.answers, nil
	}
	return c.answers, c.errs
}
