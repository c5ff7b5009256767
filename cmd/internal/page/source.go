package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/view"
)

// Source holds what the page shows: the Nodes of the controller's own informer, Fencings and Node Events, which it
// watches itself, and what concerns the whole cluster, which it reads every few seconds.
type Source struct {
	SourceOptions

	mu      sync.Mutex // guards what follows
	fences  map[string]view.ParsedFencing
	why     string // why fences may be missing
	events  events
	cluster view.Cluster

	fleetMu sync.Mutex // held while a fleet is made; guards made
	made    *view.Fleet
}

// SourceOptions is what a Source is made of. All are required.
type SourceOptions struct {
	Cache   client.Reader // of Nodes
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// NodeConfig returns what the configuration in force says about a node. It must not block.
	NodeConfig func(*corev1.Node) view.NodeConfig
	// Cluster reads what concerns all nodes. It may block until ctx ends.
	Cluster func(ctx context.Context) (view.Cluster, error)
	Key     string // the mark's
	Log     *slog.Logger
	Now     func() time.Time
}

const (
	maxFleetAge = time.Second // of a fleet that is shown

	watchRetry = 5 * time.Second // after a resource could not be watched

	clusterInterval = 5 * time.Second // between two reads of what concerns the whole cluster
	clusterTimeout  = 5 * time.Second // of one such read
)

// NewSource makes a Source. It holds only Nodes until Run.
func NewSource(o SourceOptions) *Source {
	return &Source{
		SourceOptions: o,
		fences:        map[string]view.ParsedFencing{},
		why:           "they have not been read yet",
		events:        events{},
	}
}

// Fleet returns what the page shows, at most a second old. It blocks until the informer has all Nodes, for at most two
// seconds. The caller must not change it.
func (s *Source) Fleet() (*view.Fleet, error) {
	s.fleetMu.Lock()
	defer s.fleetMu.Unlock()
	now := s.Now()
	if s.made != nil && now.Sub(s.made.At) >= 0 && now.Sub(s.made.At) < maxFleetAge {
		return s.made, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	nodes, err := kube.CachedNodes(ctx, s.Cache)
	if err != nil {
		return nil, err
	}
	snap := view.Snapshot{At: now, Key: s.Key, Nodes: nodes, NodeConfig: s.NodeConfig}
	s.mu.Lock()
	snap.Missing, snap.Events, snap.Cluster = s.why, s.events.listEvents(), s.cluster
	for _, r := range s.fences {
		snap.Fences = append(snap.Fences, r)
	}
	s.mu.Unlock()
	s.made = view.FleetOf(snap)
	return s.made, nil
}

// Run watches until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	var work sync.WaitGroup
	fencings := s.Dynamic.Resource(api.Resource)
	work.Go(func() {
		s.followResource(ctx, "fencings.forcefence.io", &unstructured.Unstructured{}, fencingStore{s},
			&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return fencings.List(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					return fencings.Watch(ctx, o)
				},
			}, func(why string) { s.why = why })
	})
	about := s.Client.EventsV1().Events(metav1.NamespaceDefault) // the namespace of Events about Nodes
	work.Go(func() {
		s.followResource(ctx, "events", &eventsv1.Event{}, eventStore{s}, &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = aboutNodes
				return about.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = aboutNodes
				return about.Watch(ctx, o)
			},
		}, func(string) {})
	})
	work.Go(func() { s.readCluster(ctx) })
	work.Wait()
	return nil
}

// readCluster keeps what concerns the whole cluster up to date until ctx ends. While it cannot be read, the page claims
// nothing about it.
func (s *Source) readCluster(ctx context.Context) {
	tick := time.NewTicker(clusterInterval)
	defer tick.Stop()
	before := ""
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, clusterTimeout)
		now, err := s.Cluster(once)
		cancel()
		why := ""
		if err != nil {
			now, why = view.Cluster{}, view.OneLine(err.Error(), 200)
		}
		if why != "" && why != before && ctx.Err() == nil {
			s.Log.Info("The status page is incomplete", "why", why)
		}
		before = why
		s.mu.Lock()
		s.cluster = now
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

const aboutNodes = "regarding.kind=Node"

// followResource keeps a store up to date until ctx ends. If it cannot, it calls lost with the reason, and holds mu
// meanwhile.
func (s *Source) followResource(
	ctx context.Context,
	name string,
	kind runtime.Object,
	into toolscache.ReflectorStore,
	lw *toolscache.ListWatch,
	lost func(why string),
) {
	r := toolscache.NewReflectorWithOptions(lw, kind, into, toolscache.ReflectorOptions{Name: "status page " + name})
	before := ""
	for ctx.Err() == nil {
		err := r.ListAndWatchWithContext(ctx)
		why := ""
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err): // it is listed again
		case apierrors.IsNotFound(err):
			why = "the API server does not know " + name + " of version " + api.GroupVersion.Version
		case apierrors.IsForbidden(err):
			why = "the controller may not watch " + name + " (the chart grants it by config.listen.status)"
		default:
			why = name + " cannot be read: " + view.OneLine(err.Error(), 200)
		}
		if why != "" {
			s.mu.Lock()
			lost(why)
			s.mu.Unlock()
		}
		if why != "" && why != before {
			s.Log.Info("The status page is incomplete", "why", why)
		}
		before = why
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

var errWrongType = errors.New("unexpected type")

// fencingStore is the Source as the store of Fencings.
type fencingStore struct{ s *Source }

func (r fencingStore) Add(o any) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errWrongType, o)
	}
	rec, err := view.ParseFencing(u.Object)
	if err != nil {
		r.s.Log.Debug("Could not read a Fencing", "fencing", u.GetName(), "error", err)
		rec = view.ParsedFencing{Unrecognized: []string{"nothing that this version can read"}}
		rec.Fencing.Name = u.GetName()
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	rec.Fencing.ManagedFields = nil
	r.s.fences[u.GetName()] = rec
	return nil
}

func (r fencingStore) Update(o any) error { return r.Add(o) }

func (r fencingStore) Delete(o any) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errWrongType, o)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	delete(r.s.fences, u.GetName())
	return nil
}

func (r fencingStore) Replace(list []any, _ string) error {
	r.s.mu.Lock()
	r.s.fences, r.s.why = map[string]view.ParsedFencing{}, ""
	r.s.mu.Unlock()
	var errs []error
	for _, o := range list {
		errs = append(errs, r.Add(o))
	}
	return errors.Join(errs...)
}

// Resync does nothing: the store keeps nothing that could differ.
func (fencingStore) Resync() error { return nil }

// eventStore is the Source as the store of Events.
type eventStore struct{ s *Source }

func (t eventStore) Add(o any) error {
	e, ok := o.(*eventsv1.Event)
	if !ok {
		return fmt.Errorf("%w: %T", errWrongType, o)
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.events.putEvent(e)
	return nil
}

func (t eventStore) Update(o any) error { return t.Add(o) }

func (t eventStore) Delete(o any) error {
	e, ok := o.(*eventsv1.Event)
	if !ok {
		return fmt.Errorf("%w: %T", errWrongType, o)
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	delete(t.s.events[e.Regarding.Name], e.Name)
	if len(t.s.events[e.Regarding.Name]) == 0 {
		delete(t.s.events, e.Regarding.Name)
	}
	return nil
}

func (t eventStore) Replace(list []any, _ string) error {
	t.s.mu.Lock()
	t.s.events = events{}
	t.s.mu.Unlock()
	var errs []error
	for _, o := range list {
		errs = append(errs, t.Add(o))
	}
	return errors.Join(errs...)
}

// Resync does nothing, as that of fencingStore.
func (eventStore) Resync() error { return nil }

// events holds the newest Events of each node, by their names. A user who may write Events in the namespace default may
// write many, about any name. They take no more room than this: 100 MB at worst, and 5 MB for a healthy fleet.
type events map[string]map[string]view.Event

const (
	maxEvents = 20   // of a node
	maxNodes  = 6000 // with Events
)

func (e events) putEvent(o *eventsv1.Event) {
	node := o.Regarding.Name
	of := e[node]
	if of == nil {
		if len(e) >= maxNodes {
			for other := range e { // any
				delete(e, other)
				break
			}
		}
		of = map[string]view.Event{}
		e[node] = of
	}
	at, count := o.EventTime.Time, cmp.Or(int(o.DeprecatedCount), 1)
	if at.IsZero() {
		at = cmp.Or(o.DeprecatedLastTimestamp.Time, o.CreationTimestamp.Time)
	}
	if o.Series != nil {
		at, count = o.Series.LastObservedTime.Time, int(o.Series.Count)
	}
	of[o.Name] = view.Event{
		At:      at,
		From:    view.OneLine(cmp.Or(o.ReportingController, o.DeprecatedSource.Component), 60),
		Reason:  view.OneLine(o.Reason, 80),
		Text:    view.OneLine(o.Note, 400),
		Warning: o.Type == corev1.EventTypeWarning,
		Count:   count,
	}
	if len(of) > maxEvents {
		oldest := ""
		for name, v := range of {
			if oldest == "" || v.At.Before(of[oldest].At) {
				oldest = name
			}
		}
		delete(of, oldest)
	}
}

func (e events) listEvents() map[string][]view.Event {
	out := make(map[string][]view.Event, len(e))
	for node, of := range e {
		for _, v := range of {
			out[node] = append(out[node], v)
		}
	}
	return out
}
