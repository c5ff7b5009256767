package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
func (p *Provider) Watch(
	ctx context.Context,
	targets []providers.Target,
	f func(providers.Target, providers.Observation),
) error {
	log := p.opts.Log.With("provider", p.opts.Name)
	pause := p.first
	for {
		subscribed, err := p.watchOnce(ctx, targets, f)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, providers.ErrPermanent):
			return fmt.Errorf("watch (container %s): %w", p.opts.Name, err)
		case subscribed:
			log.Warn("Lost the events of a container engine", "err", err)
			pause = p.first
		default:
			log.Debug("Cannot reach a container engine for its events", "err", err, "again", pause)
		}
		if !remote.SleepContext(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, lastPause)
	}
}

// watchOnce subscribes, reports what was missed, and then reports events, until the stream or ctx ends.
func (p *Provider) watchOnce(
	ctx context.Context,
	targets []providers.Target,
	f func(providers.Target, providers.Observation),
) (subscribed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := p.sendRequest(ctx, http.MethodGet, "/events?filters="+url.QueryEscape(`{"type":["container"]}`))
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
	for _, t := range targets {
		byName[t.ID] = t
	}
	over := make(chan struct{})
	go func() { // waited for below
		defer close(over)
		p.lookOver(ctx, targets, f)
	}()
	defer func() { cancel(); <-over }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return true, fmt.Errorf("reading events: %w", err)
		}
		t, ours := byName[e.Actor.Attributes["name"]]
		if state, raw, power := e.powerState(); ours && power && ctx.Err() == nil {
			f(t, providers.Observation{State: state, Raw: raw, At: providers.InstantOf(p.opts.Now())})
		}
	}
	if err = lines.Err(); err == nil {
		err = errors.New("the engine ended the stream")
	}
	return true, err
}

// lookOver reports the targets that do not run, and looks once more a while later: an engine opens the stream before it
// listens for events.
func (p *Provider) lookOver(
	ctx context.Context,
	targets []providers.Target,
	f func(providers.Target, providers.Observation),
) {
	down := make([]bool, len(targets))
	for range 2 {
		for i, t := range targets {
			at := p.opts.Now()
			asking, cancel := context.WithTimeout(ctx, 5*time.Second)
			c, err := p.inspectContainer(asking, t)
			cancel()
			was := down[i]
			if down[i] = false; err != nil || ctx.Err() != nil {
				continue
			}
			obs := c.toObservation(at)
			if down[i] = obs.State != providers.PowerOn; down[i] && !was {
				f(t, obs)
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
