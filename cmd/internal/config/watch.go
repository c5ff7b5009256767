package config

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/forcefence/forcefence/providers"
)

// Watch reads the file at once, and again after each change. It calls onGood with a checked Config, or onBad with
// Errors or the error of the read. It is silent while the outcome stays the same, for example after a touch. A good
// file after a bad one is another outcome, even if its content is the old one. The first call reports the file at the
// start, so no change between Load and Watch is lost: compare Config.Digest.
//
// Watch watches the file's folders, so it detects editors that rename, and a ConfigMap's swapped ..data link. It also
// reads the file every 30 s, for the files that settings name, and in case the system cannot watch. A burst of changes
// counts once.
//
// Watch blocks until ctx ends, and then returns nil. Its callbacks run one at a time, and none runs after it returned.
// Another error means that it never began.
func Watch(ctx context.Context, file string, reg providers.Registry, onGood func(*Config), onBad func(error)) error {
	w := watcher{file: file, reg: reg, onGood: onGood, onBad: onBad, quiet: 200 * time.Millisecond,
		poll: 30 * time.Second}
	return w.run(ctx)
}

type watcher struct {
	file   string
	reg    providers.Registry
	onGood func(*Config)
	onBad  func(error)
	quiet  time.Duration // how long nothing may change before the file is read
	poll   time.Duration // the longest time between two reads

	last string // the last reported outcome: a digest, or an error's text
}

// longestBurst is how many quiet times changes can delay a read. Another file in the folder may change all the time.
const longestBurst = 10

func (w *watcher) run(ctx context.Context) error {
	file, err := filepath.Abs(w.file)
	if err != nil {
		return fmt.Errorf("watching configuration: %w", err)
	}
	var events chan fsnotify.Event
	var faults chan error
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		defer notify.Close()
		events, faults = notify.Events, notify.Errors
	}
	// Before each read it watches the folders again, because they may be new. So each later change is an event.
	look := func() {
		if notify != nil {
			_ = notify.Add(filepath.Dir(file))
			if target, err := filepath.EvalSymlinks(file); err == nil {
				_ = notify.Add(filepath.Dir(target))
			}
		}
		w.read()
	}
	look()
	timer := time.NewTimer(w.poll)
	defer timer.Stop()
	var first time.Time // the time of the first change since the last read
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-faults: //nolint:errcheck // after any fault events may be lost: read the file
		case <-timer.C:
			look()
			first = time.Time{}
			timer.Reset(w.poll)
			continue
		}
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		timer.Reset(min(w.quiet, max(0, longestBurst*w.quiet-now.Sub(first))))
	}
}

// read reads the file, and reports the outcome if it changed.
func (w *watcher) read() {
	cfg, err := Load(w.file, w.reg)
	if err != nil {
		if outcome := "bad: " + err.Error(); outcome != w.last {
			w.last = outcome
			w.onBad(err)
		}
		return
	}
	if outcome := "good: " + cfg.Digest(); outcome != w.last {
		w.last = outcome
		w.onGood(cfg)
	}
}
