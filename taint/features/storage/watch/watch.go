// Package watch feeds storage systems (taint/features/storage) from the API server, or from an API of the system's
// own. It lists and watches the resources of the adapters in use, and of no others. It polls an adapter's Source. It
// decides nothing.
//
// It promises: what could not be read is unknown, and the System says why (MissingReason). So is what a Source read too
// long ago. It waits for a resource that the cluster does not have. It reads a list of resources again only when the
// watch breaks. Objects are not kept here: a State keeps what it needs of them.
package watch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/follow"
)

// Watcher follows storage systems while Run runs. It is safe for concurrent use.
type Watcher struct {
	Options
	follow.ChangedNodes // whose storage changed

	mu      sync.Mutex         // guards what follows
	ctx     context.Context    // of Run; nil: it does not run yet
	systems map[string]*system // in use, by name
	running sync.WaitGroup
}

// New makes a Watcher that follows nothing yet.
func New(o Options) (*Watcher, error) {
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.Absent <= 0 {
		o.Absent = 10 * time.Second
	}
	w := &Watcher{Options: o, systems: map[string]*system{}, ChangedNodes: follow.NewChangedNodes()}
	if o.Registry != nil {
		if err := o.Registry.Register(collector{w.inUse}); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return w, nil
}

// UseAdapters follows these adapters' systems, each by its name, and stops following all others. A system whose adapter
// did not change goes on; the others begin as missing (MissingReason says why). It does not block.
func (w *Watcher) UseAdapters(adapters []*storage.Adapter) []storage.System {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []storage.System
	next := map[string]*system{}
	for _, a := range adapters {
		s := w.systems[a.Name]
		if s == nil || !reflect.DeepEqual(s.adapter.Spec, a.Spec) || !sameSource(s.adapter.Source, a.Source) {
			s = &system{
				Options: w.Options, onChanged: w.addChanged, adapter: a, state: storage.NewState(a),
				schemas: map[storage.Kind]*storage.Schema{}, logged: map[string]string{}, failing: map[string]bool{},
			}
			if w.ctx != nil {
				w.startSystem(s)
			}
		}
		next[a.Name] = s
		out = append(out, s)
	}
	for name, s := range w.systems {
		if next[name] != s {
			s.stop()
		}
	}
	w.systems = next
	return out
}

// sameSource reports whether two adapters have the same Source, or none.
func sameSource(a, b storage.Source) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equals(b)
}

// Run follows the systems in use until ctx ends, and returns once everything that it started has ended.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for _, s := range w.systems {
		w.startSystem(s)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

func (w *Watcher) addChanged(nodes []string) {
	for _, n := range nodes {
		w.Add(n)
	}
}

// inUse returns the systems that are followed now.
func (w *Watcher) inUse() []*system {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.systems))
}

// startSystem starts to follow a system; the caller holds mu.
func (w *Watcher) startSystem(s *system) {
	ctx, cancel := context.WithCancel(w.ctx)
	s.cancel = cancel
	if s.adapter.Source != nil {
		w.running.Go(func() { s.pollSource(ctx) })
		return
	}
	for _, k := range storage.Kinds {
		if gvr, has := s.adapter.ResourceOf(k); has {
			w.running.Go(func() { s.followKind(ctx, k, gvr) })
		}
	}
}
