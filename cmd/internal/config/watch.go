package config

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/forcefence/forcefence/providers"
)

// Watch reads the file at once and then whenever it may have changed, and calls onGood with a checked Config or onBad
// with why there is none: Errors, or an error of reading where the file is gone. It calls only when that outcome
// differs from the one before, so a file that is touched, or bad in the same way again, is silent; a good file after a
// bad one is always told, even if it is the old one. The first call tells what is there at the start, so that nothing
// is lost between a Load and Watch: compare Config.Digest. After onBad the Config before stays in force; that is the
// caller's part.
//
// A change is seen through the folder, so editors that rename and the ..data link that a ConfigMap swaps are seen too;
// where the system cannot watch, and for files beside it that settings name, the file is read every 30 s. Bursts of
// changes count once.
//
// Watch blocks until ctx ends, then returns nil; its callbacks run one at a time and none runs after it returned.
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
	poll   time.Duration // the longest time between two readings

	last string // the outcome told last: a digest, or an error's text
}

// longestBurst is how many quiet times in a row changes can put off the reading: another file in the folder may never
// rest.
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
	// The folders are added before each reading: what changes after it is an event then. A folder may be gone or new.
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
	var first time.Time // of the changes that were not read yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-faults: //nolint:errcheck // events were lost: look, whatever the fault
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

// read tells the outcome of reading the file if it is another than before.
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
