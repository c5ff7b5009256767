package remote

import (
	"context"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

const (
	// askEvery is at least between two questions about one machine, and between two words that are told of it at once.
	askEvery = time.Second
	// askAgain is until the next question, and asks how many there are: a device may tell of a power cut before its own answer says so.
	askAgain, askCount = 2 * time.Second, 3
	// askTime bounds one question.
	askTime = 10 * time.Second
	// maxAsking is how many questions are under way at the same time.
	maxAsking = 128
)

// Asker is the part of a Watch that stands between what devices push and who is told of it. What is known to say that a machine does not
// run is told at once (Said); of anything else the device is asked, and an answer other than On is told (Heard). Both happen at most once
// a second for each machine, however much is pushed, and by whom: a device that sends without end, or somebody who sends in its name, gains
// one cheap question a second, and loses no event of another machine.
type Asker struct {
	ask      func(context.Context, providers.Target) (providers.Observation, error)
	report   func(providers.Target, providers.Observation)
	targets  []providers.Target
	throttle *Throttle

	mu    sync.Mutex // guards what follows
	about []askState // by the target's index
}

// askState is what was heard about one machine.
type askState struct {
	questionsLeft int       // questions that follow while the machine is said to run
	reportedAt    time.Time // when something was told at once
	reportedDown  bool      // the last thing that was told is that it does not run
}

// NewAsker makes an Asker for a Watch's targets, which are known by their indices from now on; it asks until ctx ends. ask is the provider's
// State. tell is the Watch's function, which is called by several goroutines.
func NewAsker(ctx context.Context, targets []providers.Target, ask func(context.Context, providers.Target) (providers.Observation, error), report func(providers.Target, providers.Observation)) *Asker {
	a := &Asker{ask: ask, report: report, targets: targets, about: make([]askState, len(targets))}
	a.throttle = NewThrottle(ctx, len(targets), maxAsking, askEvery, a.askAndReport)
	return a
}

// AskSoon says that something happened to these machines, or may have: they are asked about soon. It does not block.
func (a *Asker) AskSoon(which ...int) {
	for _, i := range which {
		a.mu.Lock()
		a.about[i].questionsLeft = askCount - 1
		a.mu.Unlock()
		a.throttle.RunSoon(i)
	}
}

// ReportState tells at once what a device said of a machine's power, or asks, where something was told less than a second ago. It does not block.
func (a *Asker) ReportState(i int, o providers.Observation) {
	now := time.Now()
	a.mu.Lock()
	r := &a.about[i]
	if early := now.Sub(r.reportedAt) < askEvery; early {
		a.mu.Unlock()
		a.AskSoon(i)
		return
	}
	r.reportedAt, r.reportedDown = now, o.State != providers.PowerOn
	a.mu.Unlock()
	a.report(a.targets[i], o)
}

// Wait returns once ctx has ended and no question is under way.
func (a *Asker) Wait() { a.throttle.Wait() }

// askAndReport asks about one machine, and tells what came of it.
func (a *Asker) askAndReport(ctx context.Context, i int) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	obs, err := a.ask(asking, a.targets[i])
	cancel()
	runs := obs.State == providers.PowerOn
	a.mu.Lock()
	r := &a.about[i]
	if (err != nil || runs) && r.questionsLeft > 0 {
		r.questionsLeft--
		time.AfterFunc(askAgain, func() { a.throttle.RunSoon(i) }) // which nobody does after ctx's end
	}
	changed := err == nil && ctx.Err() == nil && (!runs || r.reportedDown)
	if err == nil {
		r.reportedDown = !runs
	}
	a.mu.Unlock()
	if changed {
		a.report(a.targets[i], obs)
	}
}
