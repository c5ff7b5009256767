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
	askAgain, asks = 2 * time.Second, 3
	// askTime bounds one question.
	askTime = 10 * time.Second
	// askers is how many questions are under way at the same time.
	askers = 128
)

// Asker is the part of a Watch that stands between what devices push and who is told of it. What is known to say that a machine does not
// run is told at once (Said); of anything else the device is asked, and an answer other than On is told (Heard). Both happen at most once
// a second for each machine, however much is pushed, and by whom: a device that sends without end, or somebody who sends in its name, gains
// one cheap question a second, and loses no event of another machine.
type Asker struct {
	ask     func(context.Context, providers.Target) (providers.Observation, error)
	tell    func(providers.Target, providers.Observation)
	targets []providers.Target
	pace    *Pace

	mu    sync.Mutex // guards what follows
	about []rumour   // by the target's index
}

// rumour is what was heard about one machine.
type rumour struct {
	left int       // questions that follow while the machine is said to run
	said time.Time // when something was told at once
	down bool      // the last thing that was told is that it does not run
}

// NewAsker makes an Asker for a Watch's targets, which are known by their indices from now on; it asks until ctx ends. ask is the provider's
// State. tell is the Watch's function, which is called by several goroutines.
func NewAsker(ctx context.Context, targets []providers.Target, ask func(context.Context, providers.Target) (providers.Observation, error), tell func(providers.Target, providers.Observation)) *Asker {
	a := &Asker{ask: ask, tell: tell, targets: targets, about: make([]rumour, len(targets))}
	a.pace = NewPace(ctx, len(targets), askers, askEvery, a.put)
	return a
}

// Heard says that something happened to these machines, or may have: they are asked about soon. It does not block.
func (a *Asker) Heard(which ...int) {
	for _, i := range which {
		a.mu.Lock()
		a.about[i].left = asks - 1
		a.mu.Unlock()
		a.pace.Want(i)
	}
}

// Said tells at once what a device said of a machine's power, or asks, where something was told less than a second ago. It does not block.
func (a *Asker) Said(i int, o providers.Observation) {
	now := time.Now()
	a.mu.Lock()
	r := &a.about[i]
	if early := now.Sub(r.said) < askEvery; early {
		a.mu.Unlock()
		a.Heard(i)
		return
	}
	r.said, r.down = now, o.State != providers.PowerOn
	a.mu.Unlock()
	a.tell(a.targets[i], o)
}

// Wait returns once ctx has ended and no question is under way.
func (a *Asker) Wait() { a.pace.Wait() }

// put asks about one machine, and tells what came of it.
func (a *Asker) put(ctx context.Context, i int) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	obs, err := a.ask(asking, a.targets[i])
	cancel()
	runs := obs.State == providers.PowerOn
	a.mu.Lock()
	r := &a.about[i]
	if (err != nil || runs) && r.left > 0 {
		r.left--
		time.AfterFunc(askAgain, func() { a.pace.Want(i) }) // which nobody does after ctx's end
	}
	tell := err == nil && ctx.Err() == nil && (!runs || r.down)
	if err == nil {
		r.down = !runs
	}
	a.mu.Unlock()
	if tell {
		a.tell(a.targets[i], obs)
	}
}
