package wake

import (
	"context"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// checkConfig is how often to check whether the configuration, or Nodes, changed.
const checkConfig = time.Second

// devices watches the devices of all nodes, polls them, and decides which nodes get lines.
type devices struct {
	Options
	lines  *lines
	pushes map[providers.Watcher]*push
	polls  map[providers.Provider]*poller
}

func newDevices(o Options, l *lines) *devices {
	return &devices{Options: o, lines: l, pushes: map[providers.Watcher]*push{},
		polls: map[providers.Provider]*poller{}}
}

// runWatches runs one Watch for each provider whose devices push, over the machines of all nodes, and one poller for
// each provider whose devices are polled. It wakes all nodes when the configuration changed: one may have been waiting
// for just that. It blocks until ctx ends and all of its Watches and pollers have returned.
func (d *devices) runWatches(ctx context.Context) {
	defer func() {
		for _, p := range d.pushes {
			p.stop()
		}
		for _, p := range d.polls {
			p.stop()
		}
	}()
	tick := time.NewTicker(checkConfig)
	defer tick.Stop()
	var config *Config
	var looked time.Time
	again := false
	for {
		if c, now := d.Config(), d.Now(); c != config || d.Moves.ShouldList(looked, now) ||
			again && now.Sub(looked) >= checkMoved {
			if config != nil && c != config {
				d.wakeAll(ctx, d.KnownNodes())
			}
			config, looked, again = c, now, true
			if want, err := d.findTargets(ctx, config); err != nil {
				d.Log.Warn("Cannot list nodes", "error", err) // the present watches continue
			} else {
				d.updateWatches(ctx, want.pushes)
				d.updatePollers(ctx, want.polls)
				d.lines.kept.SetNodes(config.LinePort, want.lines)
				// a node that was silent for a while is polled again, though its Node did not change
				again = len(want.polls) > 0
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// updateWatches ends the Watches whose targets changed, and begins those that are missing.
func (d *devices) updateWatches(ctx context.Context, want map[providers.Watcher][]providers.Target) {
	for w, old := range d.pushes {
		if !slices.Equal(old.targets, want[w]) {
			old.stop()
			delete(d.pushes, w)
		}
	}
	for w, of := range want {
		if d.pushes[w] == nil {
			d.pushes[w] = newPush(ctx, d.Options, w, of)
		}
	}
}

// updatePollers ends the pollers of providers that are no longer polled, begins those that are missing, and passes all
// of them their machines.
func (d *devices) updatePollers(ctx context.Context, want map[providers.Provider]*polled) {
	for provider, p := range d.polls {
		if want[provider] == nil {
			p.stop()
			delete(d.polls, provider)
		}
	}
	for provider, w := range want {
		p := d.polls[provider]
		if p == nil {
			p = newPoller(ctx, d.Options, w.name)
			d.polls[provider] = p
		}
		p.setTargets(w)
	}
}
