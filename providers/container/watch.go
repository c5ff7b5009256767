package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Watch reads the engine's stream of events and subscribes again when the stream ends. An engine that exits also ends
// the stream; one that is stopped loses no event. So, other than over a network, it needs no questions in between.
func (p *Provider) Watch(ctx context.Context, targets []providers.Target, report providers.ReportFunc) error {
	w := watch{p, targets, report}
	log := p.opts.Log.With("provider", p.opts.Name)
	err := remote.Resubscribe(ctx, log, p.first, lastPause, providers.ErrPermanent, w.watchOnce)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch (container %s): %w", p.opts.Name, err)
}

type watch struct {
	*Provider
	targets []providers.Target
	report  providers.ReportFunc
}

// watchOnce subscribes, reports what was missed, and then reports events, until the stream or ctx ends.
func (w watch) watchOnce(ctx context.Context) (subscribed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := w.sendRequest(ctx, http.MethodGet, "/events?filters="+url.QueryEscape(`{"type":["container"]}`))
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		err := refusalError(resp.StatusCode, resp.Body)
		if !errors.Is(err, providers.ErrUnreachable) { // a filter in front of the socket does not let events through
			err = providers.WithClass(providers.ErrPermanent, err)
		}
		return false, err
	}
	byName := map[string]providers.Target{}
	for _, t := range w.targets {
		byName[t.ID] = t
	}
	var wait sync.WaitGroup
	wait.Go(func() { w.lookOver(ctx) })
	defer wait.Wait()
	defer cancel()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return true, fmt.Errorf("reading events: %w", err)
		}
		t, ours := byName[e.Actor.Attributes["name"]]
		if state, raw, power := e.powerState(); ours && power && ctx.Err() == nil {
			w.report(t, providers.Observation{State: state, Raw: raw, At: providers.InstantOf(w.opts.Now())})
		}
	}
	if err = lines.Err(); err == nil {
		err = errors.New("the engine ended the stream")
	}
	return true, err
}

// lookOver reports the targets that do not run, and looks once more a while later: an engine opens the stream before it
// listens for events.
func (w watch) lookOver(ctx context.Context) {
	down := make([]bool, len(w.targets))
	for range 2 {
		for i, t := range w.targets {
			at := w.opts.Now()
			asking, cancel := context.WithTimeout(ctx, 5*time.Second)
			c, err := w.inspectContainer(asking, t)
			cancel()
			was := down[i]
			if down[i] = false; err != nil || ctx.Err() != nil {
				continue
			}
			obs := c.toObservation(at)
			if down[i] = obs.State != providers.PowerOn; down[i] && !was {
				w.report(t, obs)
			}
		}
		if !remote.SleepContext(ctx, time.Second) {
			return
		}
	}
}

// event is the part of one event of the stream that matters.
type event struct {
	Type, Action string
	Actor        struct {
		Attributes map[string]string // the container's labels are among them, so "Name" is not "name"
	}
}

// powerState maps an event; power is false for events that are not about power.
func (e event) powerState() (state providers.PowerState, raw string, power bool) {
	if e.Type != "container" {
		return providers.PowerUnknown, "", false
	}
	raw = "event: " + e.Action
	switch e.Action {
	case "start", "unpause", "pause":
		return providers.PowerOn, raw, true
	case "die", "died":
		return providers.PowerOff, raw, true
	case "destroy", "remove":
		return providers.PowerUnknown, raw, true
	}
	return providers.PowerUnknown, "", false
}
