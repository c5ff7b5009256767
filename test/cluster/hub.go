package cluster

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// followPause is between two tries to list or watch. Short and constant, so that the simulated machines notice a
// returned API server at once: client-go's back-off took 34 s.
const followPause = 200 * time.Millisecond

type object interface {
	runtime.Object
	metav1.Object
}

// mirror is a local copy of all objects of one type. It calls on for every change, from one goroutine, in order.
type mirror[T object] struct {
	kind  string
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	on    func(obj T, deleted bool)
	log   *slog.Logger

	mu    sync.RWMutex // guards items
	items map[string]T // by namespace/name
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

// follow lists and watches until ctx ends. It closes synced after the first list.
func (m *mirror[T]) follow(ctx context.Context, synced chan<- struct{}) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			v, err := m.relist(ctx)
			if err != nil {
				m.log.Debug("Cannot list", "kind", m.kind, "err", err)
				pause(ctx, followPause)
				continue
			}
			version = v
			if synced != nil {
				close(synced)
				synced = nil
			}
		}
		var err error
		if version, err = m.stream(ctx, version); err != nil {
			m.log.Debug("Watch ended", "kind", m.kind, "err", err)
			pause(ctx, followPause)
		}
	}
}

func (m *mirror[T]) relist(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := m.list(ctx, everything)
	if err != nil {
		return "", err
	}
	acc, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	objs, err := meta.ExtractList(list)
	if err != nil {
		return "", err
	}
	fresh := make(map[string]T, len(objs))
	for _, o := range objs {
		if obj, ok := o.(T); ok {
			fresh[key(obj)] = obj
		}
	}
	m.mu.Lock()
	old := m.items
	m.items = fresh
	m.mu.Unlock()
	for k, o := range old {
		if f, ok := fresh[k]; !ok || f.GetUID() != o.GetUID() {
			m.on(o, true)
		}
	}
	for k, f := range fresh {
		if o, ok := old[k]; !ok || o.GetResourceVersion() != f.GetResourceVersion() {
			m.on(f, false)
		}
	}
	return acc.GetResourceVersion(), nil
}

// stream watches from version and returns where to go on: "" is with a new list.
func (m *mirror[T]) stream(ctx context.Context, version string) (string, error) {
	w, err := m.watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		if gone(err) {
			return "", nil
		}
		return version, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case ev, ok := <-w.ResultChan():
			if !ok {
				return version, nil
			}
			if ev.Type == watch.Error {
				return "", statusError(ev.Object)
			}
			obj, ok := ev.Object.(T)
			if !ok {
				continue
			}
			version = obj.GetResourceVersion()
			switch ev.Type {
			case watch.Added, watch.Modified:
				m.mu.Lock()
				m.items[key(obj)] = obj
				m.mu.Unlock()
				m.on(obj, false)
			case watch.Deleted:
				m.mu.Lock()
				delete(m.items, key(obj))
				m.mu.Unlock()
				m.on(obj, true)
			}
		}
	}
}

// hub is one watch of each type for all simulated machines: a thousand nodes would be a thousand watches otherwise. A
// node gets what concerns it, and nothing while it is off or cut off.
type hub struct {
	pods        *mirror[*corev1.Pod]
	nodes       *mirror[*corev1.Node]
	claims      *mirror[*corev1.PersistentVolumeClaim]
	volumes     *mirror[*corev1.PersistentVolume]
	attachments *mirror[*storagev1.VolumeAttachment]
}

func newHub(k kubernetes.Interface, log *slog.Logger) *hub {
	core, storage := k.CoreV1(), k.StorageV1()
	return &hub{
		pods: newMirror[*corev1.Pod]("pods", log,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Pods("").List(ctx, o)
			}, core.Pods("").Watch),
		nodes: newMirror[*corev1.Node]("nodes", log,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Nodes().List(ctx, o)
			}, core.Nodes().Watch),
		claims: newMirror[*corev1.PersistentVolumeClaim]("claims", log,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumeClaims("").List(ctx, o)
			}, core.PersistentVolumeClaims("").Watch),
		volumes: newMirror[*corev1.PersistentVolume]("volumes", log,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumes().List(ctx, o)
			}, core.PersistentVolumes().Watch),
		attachments: newMirror[*storagev1.VolumeAttachment]("attachments", log,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return storage.VolumeAttachments().List(ctx, o)
			}, storage.VolumeAttachments().Watch),
	}
}

func newMirror[T object](kind string, log *slog.Logger,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *mirror[T] {
	return &mirror[T]{kind: kind, log: log, list: list, watch: watch, on: func(T, bool) {}, items: map[string]T{}}
}

// start follows everything and returns once each type was listed.
func (h *hub) start(ctx, run context.Context, wg *sync.WaitGroup) error {
	var waits []chan struct{}
	for _, follow := range []func(context.Context, chan<- struct{}){
		h.pods.follow, h.nodes.follow, h.claims.follow, h.volumes.follow, h.attachments.follow,
	} {
		synced := make(chan struct{})
		waits = append(waits, synced)
		wg.Go(func() { follow(run, synced) })
	}
	for _, synced := range waits {
		select {
		case <-synced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause waits, or returns false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
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
