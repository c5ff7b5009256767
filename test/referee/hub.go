package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// hub is the referee's own view of the cluster, by watches that are never perturbed: what there is now, and every
// version of every pod and Node since the last cut. Safe for concurrent use. What it hands out is not to be changed.
type hub struct {
	client kubernetes.Interface

	mu       sync.Mutex // guards the rest
	pods     map[string]*corev1.Pod
	nodes    map[string]*corev1.Node
	attach   map[string]*storagev1.VolumeAttachment
	versions []version
	heard    chan struct{} // closed and replaced when something changes
	broken   error         // a watch ended: versions are missing
}

// version is one state of an object.
type version struct {
	Resource string // pods, nodes
	Key      string // namespace/name or name
	UID      string
	RV       string
	Gone     bool // deleted; the object is its last state
	Pod      *corev1.Pod
	Node     *corev1.Node
}

func newHub(client kubernetes.Interface) *hub {
	return &hub{client: client, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		attach: map[string]*storagev1.VolumeAttachment{}, heard: make(chan struct{})}
}

// start lists, and follows until ctx ends.
func (h *hub) start(ctx context.Context, wg *sync.WaitGroup) error {
	lists := map[string]func(context.Context) (runtime.Object, error){
		"pods": func(ctx context.Context) (runtime.Object, error) {
			return h.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		},
		"nodes": func(ctx context.Context) (runtime.Object, error) {
			return h.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		},
		"volumeattachments": func(ctx context.Context) (runtime.Object, error) {
			return h.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		},
	}
	watches := map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"pods": func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.CoreV1().Pods("").Watch(ctx, o)
		},
		"nodes": func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.CoreV1().Nodes().Watch(ctx, o)
		},
		"volumeattachments": func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.StorageV1().VolumeAttachments().Watch(ctx, o)
		},
	}
	for name, list := range lists {
		l, err := list(ctx) // a cluster that was just begun has only its version
		if err != nil {
			return err
		}
		m, ok := l.(metav1.ListInterface)
		if !ok {
			return fmt.Errorf("listing %s: got a %T", name, l)
		}
		rw, err := toolswatch.NewRetryWatcherWithContext(ctx, m.GetResourceVersion(),
			&cache.ListWatch{WatchFuncWithContext: watches[name]})
		if err != nil {
			return err
		}
		wg.Go(func() {
			for e := range rw.ResultChan() {
				h.see(e)
			}
			if ctx.Err() == nil {
				h.mu.Lock()
				h.broken = fmt.Errorf("the referee's own watch of %s ended", name)
				h.mu.Unlock()
			}
		})
	}
	return nil
}

func (h *hub) see(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := e.Type == watch.Deleted
	switch o := e.Object.(type) {
	case *corev1.Pod:
		o.ManagedFields = nil
		put(h.pods, o.Namespace+"/"+o.Name, o, gone)
		h.versions = append(h.versions,
			version{Resource: "pods", Key: o.Namespace + "/" + o.Name, UID: string(o.UID), RV: o.ResourceVersion,
				Gone: gone, Pod: o})
	case *corev1.Node:
		o.ManagedFields = nil
		put(h.nodes, o.Name, o, gone)
		h.versions = append(h.versions,
			version{Resource: "nodes", Key: o.Name, UID: string(o.UID), RV: o.ResourceVersion, Gone: gone, Node: o})
	case *storagev1.VolumeAttachment:
		put(h.attach, o.Name, o, gone)
	default:
		text, _ := json.Marshal(o)
		h.broken = fmt.Errorf("the referee's own watch: %s %s", e.Type, text)
	}
	close(h.heard)
	h.heard = make(chan struct{})
}

func put[T any](m map[string]*T, key string, o *T, gone bool) {
	if gone {
		delete(m, key)
		return
	}
	m[key] = o
}

// changed is closed at the next change.
func (h *hub) changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard
}

func (h *hub) node(name string) *corev1.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[name]
}

func (h *hub) podsWhere(where func(*corev1.Pod) bool) (list []*corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pods {
		if where(p) {
			list = append(list, p)
		}
	}
	return list
}

func (h *hub) podsOf(node string) []*corev1.Pod {
	return h.podsWhere(func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// attachments are a node's, by volume.
func (h *hub) attachments(where func(*storagev1.VolumeAttachment) bool) (list []*storagev1.VolumeAttachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.attach {
		if where(a) {
			list = append(list, a)
		}
	}
	return list
}

// cut hands over all versions since the last time, after one of each object that is there.
func (h *hub) cut() ([]version, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.versions
	h.versions = nil
	for key, p := range h.pods {
		h.versions = append(h.versions,
			version{Resource: "pods", Key: key, UID: string(p.UID), RV: p.ResourceVersion, Pod: p})
	}
	for key, n := range h.nodes {
		h.versions = append(h.versions,
			version{Resource: "nodes", Key: key, UID: string(n.UID), RV: n.ResourceVersion, Node: n})
	}
	return list, h.broken
}

// saw reports whether the version that a write made, or found, has come by.
func (h *hub) saw(w write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.versions) - 1; i >= 0; i-- {
		if v := h.versions[i]; v.Resource == w.Resource && v.Key == w.Key && v.RV == w.RV {
			return true
		}
	}
	return false
}
