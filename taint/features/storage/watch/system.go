package watch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// system is one storage system. It implements storage.System.
type system struct {
	Options
	onChanged func(nodes []string) // called with the nodes whose storage changed; it must not block
	adapter   *storage.Adapter
	cancel    context.CancelFunc // guarded by Watcher.mu; nil: not started

	mu      sync.RWMutex // guards what follows
	state   *storage.State
	schemas map[storage.Kind]*storage.Schema
	logged  map[string]string // what was logged last, by subject
	failing map[string]bool   // expressions whose failure was logged
	stopped bool
	staleAt time.Time // when the Source's objects are too old; zero: never
}

// stop stops following the system; the caller holds Watcher.mu. From then on the system reports that it is unknown.
func (s *system) stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, k := range storage.Kinds {
		s.state.SetMissing(k, "the configuration does not use it any more")
	}
}

// followKind keeps the state of one kind up to date until ctx ends.
func (s *system) followKind(ctx context.Context, k storage.Kind, gvr schema.GroupVersionResource) {
	for ctx.Err() == nil {
		resource, err := s.findResource(gvr)
		switch {
		case err != nil:
			s.reportLost(k, err.Error())
			waitJittered(ctx, s.Retry)
		case resource == nil:
			s.reportLost(k, "the cluster has no such resource of version "+gvr.Version)
			waitJittered(ctx, s.Absent)
		default:
			s.watchResource(ctx, k, gvr, resource)
		}
	}
}

// findResource asks the API server for the resource. It returns nil if the API server has none.
func (s *system) findResource(gvr schema.GroupVersionResource) (*metav1.APIResource, error) {
	list, err := s.Discovery.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for the resource: %w", err)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource })
	if i < 0 {
		return nil, nil
	}
	return &list.APIResources[i], nil
}

// watchResource lists and watches a resource until it goes or ctx ends.
func (s *system) watchResource(
	ctx context.Context,
	k storage.Kind,
	gvr schema.GroupVersionResource,
	resource *metav1.APIResource,
) {
	client := dynamic.ResourceInterface(s.Client.Resource(gvr))
	if resource.Namespaced {
		client = s.Client.Resource(gvr).Namespace(s.adapter.Spec.Namespace)
	}
	r := toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, store{s, k},
		toolscache.ReflectorOptions{Name: "storage " + s.adapter.Name + " " + gvr.Resource})
	ctx, cancel := context.WithCancel(ctx)
	var checking sync.WaitGroup
	checking.Go(func() { s.checkSchema(ctx, k, gvr, resource.Kind) })
	defer checking.Wait()
	defer cancel()
	for ctx.Err() == nil {
		err := r.ListAndWatchWithContext(ctx)
		switch {
		case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err): // it is listed again at once
		case apierrors.IsNotFound(err):
			return // followKind reports it
		default:
			s.reportLost(k, "it cannot be read: "+err.Error())
		}
		waitJittered(ctx, s.Retry)
		if found, err := s.findResource(gvr); err == nil && found == nil {
			return // the resource goes with its definition, and the watch just ends
		}
	}
}

// schemaTries is how often the API server is asked for the schema of a resource. It publishes the schema some time
// after it serves the resource.
const schemaTries = 30

// checkSchema checks the adapter's expressions against the schema that the cluster has, and logs what does not fit:
// such an expression makes everything Unknown. It ends if the API server has no schema: the objects are evaluated in
// any case.
func (s *system) checkSchema(ctx context.Context, k storage.Kind, gvr schema.GroupVersionResource, kind string) {
	for range schemaTries {
		found, err := kindSchema(s.Discovery, gvr, kind)
		if err == nil && found != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.schemas[k] = found
			for _, p := range s.adapter.CheckSchemas(s.schemas) {
				if s.isNews(p.Path, p.Text) {
					s.Log.Warn("An expression does not fit the cluster's resource",
						"storage", s.adapter.Name, "expression", p.Path, "why", p.Text)
				}
			}
			return
		}
		if waitJittered(ctx, s.Retry); ctx.Err() != nil {
			return
		}
	}
}

// kindSchema asks the API server for the schema of a kind. It returns nil if the API server does not publish one.
func kindSchema(d discovery.DiscoveryInterface, gvr schema.GroupVersionResource, kind string) (*storage.Schema, error) {
	paths, err := d.OpenAPIV3().Paths()
	if err != nil {
		return nil, fmt.Errorf("reading OpenAPI paths: %w", err)
	}
	path := "apis/" + gvr.GroupVersion().String()
	if gvr.Group == "" {
		path = "api/" + gvr.Version
	}
	if paths[path] == nil {
		return nil, nil
	}
	doc, err := paths[path].Schema("application/json")
	if err != nil {
		return nil, fmt.Errorf("reading OpenAPI document: %w", err)
	}
	return storage.FindSchema(doc, gvr.Group, gvr.Version, kind)
}

// waitJittered waits for d to twice d, or until ctx ends.
func waitJittered(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// reportLost marks a kind as unknown, and logs why.
func (s *system) reportLost(k storage.Kind, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLost(k, why)
}

// setLost is reportLost for a caller that holds mu.
func (s *system) setLost(k storage.Kind, why string) {
	if s.stopped {
		return
	}
	s.state.SetMissing(k, why)
	if s.isNews(k.String(), why) {
		s.Log.Warn("The state of a storage system is unknown: nothing depends on it",
			"storage", s.adapter.Name, "about", k.String(), "why", why)
	}
}

// isNews reports whether to log something: once, until it changes. The caller holds mu.
func (s *system) isNews(about, why string) bool {
	was := s.logged[about]
	s.logged[about] = why
	return why != "" && was != why
}

// changeState lets f change the state, and reports the nodes that f returns to onChanged.
func (s *system) changeState(f func(*storage.State) []string) {
	s.mu.Lock()
	var nodes []string
	if !s.stopped {
		nodes = f(s.state)
		faults := s.state.Faults()
		maps.DeleteFunc(s.failing, func(path string, _ bool) bool { return faults[path] == 0 })
		for _, path := range slices.Sorted(maps.Keys(faults)) {
			if !s.failing[path] {
				s.failing[path] = true
				s.Log.Warn("An expression fails on objects of a storage system: their state is unknown",
					"storage", s.adapter.Name, "expression", path)
			}
		}
	}
	s.mu.Unlock()
	s.onChanged(nodes)
}

// store receives what a reflector reads.
type store struct {
	*system
	k storage.Kind
}

func (s store) Add(o any) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	s.changeState(func(state *storage.State) []string { return state.Put(s.k, u) })
	return nil
}

func (s store) Update(o any) error { return s.Add(o) }

func (s store) Delete(o any) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	s.changeState(func(state *storage.State) []string { return state.Delete(s.k, u) })
	return nil
}

func (s store) Replace(list []any, _ string) error {
	var all []*unstructured.Unstructured
	for _, o := range list {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("%T is no object", o)
		}
		all = append(all, u)
	}
	s.changeState(func(state *storage.State) []string { return state.Replace(s.k, all) })
	s.reportRead(s.k)
	return nil
}

// reportRead logs that a kind was read that was unknown before.
func (s *system) reportRead(k storage.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged[k.String()] != "" {
		s.Log.Info("Read a storage system's resource", "storage", s.adapter.Name, "about", k.String())
	}
	s.isNews(k.String(), "")
}

// Resync does nothing: the store keeps nothing that could differ.
func (store) Resync() error { return nil }

// Name implements storage.System, as do the methods below.
func (s *system) Name() string { return s.adapter.Name }

func (s *system) Drivers() []string { return slices.Clone(s.adapter.Spec.Drivers) }

func (s *system) MissingReason() string { return read(s, (*storage.State).MissingReason) }

func (s *system) NodeHealth(name string) action.Health {
	return read(s, func(state *storage.State) action.Health { return state.NodeHealth(name) })
}

func (s *system) VolumeHealth(v action.VolumeName) action.Health {
	return read(s, func(state *storage.State) action.Health { return state.VolumeHealth(v) })
}

func (s *system) ReplicasOn(node string) []storage.Replica {
	return read(s, func(state *storage.State) []storage.Replica { return state.ReplicasOn(node) })
}

func (s *system) ReplicasOf(volume string) []storage.Replica {
	return read(s, func(state *storage.State) []storage.Replica { return state.ReplicasOf(volume) })
}

func (s *system) NodesWithRequests() []string { return read(s, (*storage.State).NodesWithRequests) }

func (s *system) Version() uint64 { return read(s, (*storage.State).Version) }

func (s *system) EvictionPatch(r storage.Replica, ask bool) (storage.Patch, bool) {
	return s.adapter.EvictionPatch(r, ask)
}

func (s *system) PodSelector() (string, labels.Selector) { return s.adapter.PodSelector() }

// read returns what f reads of the state, while nothing changes it.
func read[T any](s *system, f func(*storage.State) T) T {
	s.dropStale()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return f(s.state)
}
