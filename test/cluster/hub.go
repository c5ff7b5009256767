package cluster

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// retry is how long a watch waits to begin again after a fault. It is short and constant, so that the simulated
// machines notice at once that the API server is back: client-go's own back-off took 34 s.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1}

type object interface {
	runtime.Object
	metav1.Object
}

// mirror is a local copy of all objects of one type, which a reflector keeps. It calls on and the watchers for every
// change, from one goroutine, in order.
type mirror[T object] struct {
	from   cache.ListerWatcher
	on     func(obj T, deleted bool)
	listed chan struct{} // closed after the first list

	telling  sync.Mutex // held while a change is stored and told; guards watchers
	watchers map[*watcher]bool
	relists  atomic.Int64 // after the first

	mu    sync.RWMutex // guards items
	items map[string]T // by namespace/name
}

// watcher is who called Cluster.Watch.
type watcher struct {
	see func(obj metav1.Object, deleted bool)
}

func newMirror[T object](from cache.Getter, resource string) *mirror[T] {
	return &mirror[T]{
		from: cache.NewListWatchFromClient(from, resource, metav1.NamespaceAll, fields.Everything()),
		on:   func(T, bool) {}, listed: make(chan struct{}), watchers: map[*watcher]bool{}, items: map[string]T{},
	}
}

func (m *mirror[T]) watch(w *watcher) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.watchers[w] = true
	for _, obj := range m.all() {
		w.see(obj, false)
	}
}

func (m *mirror[T]) unwatch(w *watcher) {
	m.telling.Lock()
	defer m.telling.Unlock()
	delete(m.watchers, w)
}

func (m *mirror[T]) tell(obj T, deleted bool) { // with telling held
	m.on(obj, deleted)
	for w := range m.watchers {
		w.see(obj, deleted)
	}
}

func key(obj metav1.Object) string {
	if ns := obj.GetNamespace(); ns != "" {
		return ns + "/" + obj.GetName()
	}
	return obj.GetName()
}

// rv is the object's version as a number: those of one type can be compared.
func rv(obj metav1.Object) uint64 {
	n, _ := strconv.ParseUint(obj.GetResourceVersion(), 10, 64) // the API server writes nothing else
	return n
}

func (m *mirror[T]) get(key string) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	obj, ok := m.items[key]
	return obj, ok
}

func (m *mirror[T]) all() []T {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]T, 0, len(m.items))
	for _, obj := range m.items {
		out = append(out, obj)
	}
	return out
}

// follow lists and watches until ctx ends.
func (m *mirror[T]) follow(ctx context.Context) {
	var kind T
	backoff, quiet := retry, logr.Discard()
	cache.NewReflectorWithOptions(m.from, kind, m, cache.ReflectorOptions{Backoff: &backoff, Logger: &quiet}).
		RunWithContext(ctx)
}

// Add, Update, Delete, Replace and Resync make the mirror a reflector's store.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update stores an object.
func (m *mirror[T]) Update(obj any) error {
	o := obj.(T)
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	m.items[key(o)] = o
	m.mu.Unlock()
	m.tell(o, false)
	return nil
}

// Delete removes an object.
func (m *mirror[T]) Delete(obj any) error {
	o := obj.(T)
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	delete(m.items, key(o))
	m.mu.Unlock()
	m.tell(o, true)
	return nil
}

// Replace stores a list, and reports what differs from before.
func (m *mirror[T]) Replace(list []any, _ string) error {
	fresh := make(map[string]T, len(list))
	for _, obj := range list {
		fresh[key(obj.(T))] = obj.(T)
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	old := m.items
	m.items = fresh
	m.mu.Unlock()
	for k, o := range old {
		if f, ok := fresh[k]; !ok || f.GetUID() != o.GetUID() {
			m.tell(o, true)
		}
	}
	for k, f := range fresh {
		if o, ok := old[k]; !ok || o.GetResourceVersion() != f.GetResourceVersion() {
			m.tell(f, false)
		}
	}
	select {
	case <-m.listed:
		m.relists.Add(1)
	default:
		close(m.listed)
	}
	return nil
}

func (m *mirror[T]) firstList() <-chan struct{} { return m.listed }

func (m *mirror[T]) relistCount() int64 { return m.relists.Load() }

// Resync does nothing: no object is reported without a change.
func (m *mirror[T]) Resync() error { return nil }

// hub is one watch of each type for all simulated machines: a thousand nodes would be a thousand watches otherwise. A
// node gets what concerns it, and nothing while it is off or cut off.
type hub struct {
	pods        *mirror[*corev1.Pod]
	nodes       *mirror[*corev1.Node]
	claims      *mirror[*corev1.PersistentVolumeClaim]
	volumes     *mirror[*corev1.PersistentVolume]
	attachments *mirror[*storagev1.VolumeAttachment]
}

func newHub(k kubernetes.Interface) *hub {
	core, storage := k.CoreV1().RESTClient(), k.StorageV1().RESTClient()
	return &hub{
		pods: newMirror[*corev1.Pod](core, "pods"), nodes: newMirror[*corev1.Node](core, "nodes"),
		claims:      newMirror[*corev1.PersistentVolumeClaim](core, "persistentvolumeclaims"),
		volumes:     newMirror[*corev1.PersistentVolume](core, "persistentvolumes"),
		attachments: newMirror[*storagev1.VolumeAttachment](storage, "volumeattachments"),
	}
}

// follower is a mirror of any type.
type follower interface {
	follow(ctx context.Context)
	firstList() <-chan struct{}
	relistCount() int64
	watch(w *watcher)
	unwatch(w *watcher)
}

func (h *hub) all() []follower {
	return []follower{h.pods, h.nodes, h.claims, h.volumes, h.attachments}
}

// start follows everything and returns once each type was listed.
func (h *hub) start(ctx, run context.Context, wg *sync.WaitGroup) error {
	for _, m := range h.all() {
		wg.Go(func() { m.follow(run) })
	}
	for _, m := range h.all() {
		select {
		case <-m.firstList():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Watch has see called with every pod, Node, claim, volume and VolumeAttachment that there is, and with each that
// changes from then on, until stop. Calls for one type come in order. While the API server is away, several
// changes may become one: see Relists. see must return soon: the simulated kubelets wait for it. It must not change
// what it gets, nor call stop.
func (c *Cluster) Watch(see func(obj metav1.Object, deleted bool)) (stop func()) {
	w := &watcher{see: see}
	for _, m := range c.hub.all() {
		m.watch(w)
	}
	return func() {
		for _, m := range c.hub.all() {
			m.unwatch(w)
		}
	}
}

// Relists counts how often a watch had to list again. As long as it is 0, Watch has seen every change.
func (c *Cluster) Relists() (relists int64) {
	for _, m := range c.hub.all() {
		relists += m.relistCount()
	}
	return relists
}

// Sleep waits, or returns false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
