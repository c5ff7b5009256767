package remote

import (
	"context"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

const (
	// askEvery is the minimum time between two questions about one machine, and between two immediate reports of it.
	askEvery = time.Second
	// askAgain is the time until the next question, and askCount their number: an event may precede the device's own
	// answers.
	askAgain, askCount = 2 * time.Second, 3
	// askTime is the timeout of one question.
	askTime = 10 * time.Second
	// maxAsking is the maximum number of questions in flight.
	maxAsking = 128
)

// Asker is the part of a Watch between the devices' events and the Watch's function. It reports an event that is known
// to mean that a machine does not run at once (ReportState). For any other event it asks the device, and reports an
// answer other than On (AskSoon). It does each at most once a second for each machine, so a flood of events, also from
// an attacker, causes one cheap question a second, and no event of another machine is lost.
type Asker struct {
	ask      AskFunc
	report   providers.ReportFunc
	targets  []providers.Target
	throttle *throttle

	mu    sync.Mutex // guards what follows
	about []askState // by the target's index
}

// AskFunc is a provider's State.
type AskFunc = func(context.Context, providers.Target) (providers.Observation, error)

// askState is the state of one machine's questions and reports.
type askState struct {
	questionsLeft int       // questions that follow while the machine is reported on
	reportedAt    time.Time // when a report was last made at once
	reportedDown  bool      // the last report was that it does not run
}

// NewAsker returns an Asker for a Watch's targets, which it identifies by their indices. It asks until ctx ends.
// report is the Watch's function; several goroutines call it.
func NewAsker(ctx context.Context, targets []providers.Target, ask AskFunc, report providers.ReportFunc) *Asker {
	a := &Asker{ask: ask, report: report, targets: targets, about: make([]askState, len(targets))}
	a.throttle = newThrottle(ctx, len(targets), maxAsking, askEvery, a.askAndReport)
	return a
}

// AskSoon schedules questions about these machines, because something happened to them or may have. It does not block.
func (a *Asker) AskSoon(which ...int) {
	for _, i := range which {
		a.mu.Lock()
		a.about[i].questionsLeft = askCount - 1
		a.mu.Unlock()
		a.throttle.runSoon(i)
	}
}

// ReportState reports at once what a device sent about a machine's power, or asks if the last report is less than a
// second old. It does not block.
func (a *Asker) ReportState(i int, o providers.Observation) {
	now := time.Now()
	a.mu.Lock()
	r := &a.about[i]
	if now.Sub(r.reportedAt) < askEvery {
		a.mu.Unlock()
		a.AskSoon(i)
		return
	}
	r.reportedAt, r.reportedDown = now, o.State != providers.PowerOn
	a.mu.Unlock()
	a.report(a.targets[i], o)
}

// Wait returns once ctx has ended and no question is under way.
func (a *Asker) Wait() { a.throttle.wait() }

// askAndReport asks about one machine and reports a change.
func (a *Asker) askAndReport(ctx context.Context, i int) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	obs, err := a.ask(asking, a.targets[i])
	cancel()
	runs := obs.State == providers.PowerOn
	a.mu.Lock()
	r := &a.about[i]
	if (err != nil || runs) && r.questionsLeft > 0 {
		r.questionsLeft--
		time.AfterFunc(askAgain, func() { a.throttle.runSoon(i) }) // has no effect after ctx has ended
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
