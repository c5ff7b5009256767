package integration

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/drainguard/storage"
	storagewatch "github.com/forcefence/forcefence/taint/drainguard/storage/watch"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const lhNamespace = "longhorn-system"

// lake is a cluster with storage systems that are watched.
type lake struct {
	t       *testing.T
	ctx     context.Context
	c       *cluster.Cluster
	client  dynamic.Interface
	watcher *storagewatch.Watcher
	metrics *prometheus.Registry
	log     *kit.Log

	mu      sync.Mutex // guards what follows
	changed map[string]int
	lists   int // of Longhorn's resources
}

// roundTripper counts the lists that the watcher sends.
func (l *lake) roundTripper(next http.RoundTripper) http.RoundTripper {
	return counting(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		if strings.Contains(r.URL.Path, "/"+lhNamespace+"/") &&
			(query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") {
			l.mu.Lock()
			l.lists++
			l.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type counting func(*http.Request) (*http.Response, error)

func (f counting) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *lake) listed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists
}

func newLake(t *testing.T) *lake {
	t.Helper()
	if binary == "" {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	l := &lake{t: t, ctx: ctx, log: &kit.Log{}, changed: map[string]int{}, metrics: prometheus.NewRegistry()}
	l.c = cluster.ForTest(t,
		cluster.Options{NodeGrace: cluster.FastNodeGrace,
			APIServerArgs: []string{"--feature-gates=CSIVolumeHealth=true"}})
	var err error
	l.client, err = dynamic.NewForConfig(l.c.RESTConfig())
	kit.Must(t, err)
	d, err := discovery.NewDiscoveryClientForConfig(l.c.RESTConfig())
	kit.Must(t, err)
	counted := l.c.RESTConfig()
	counted.Wrap(l.roundTripper)
	watched, err := dynamic.NewForConfig(counted)
	kit.Must(t, err)
	l.watcher, err = storagewatch.New(storagewatch.Options{
		Client: watched, Discovery: d, Log: slog.New(slog.NewTextHandler(l.log, nil)), Registry: l.metrics,
		Retry: 50 * time.Millisecond, Absent: 100 * time.Millisecond,
	})
	kit.Must(t, err)
	var done sync.WaitGroup
	done.Go(func() { kit.Must(t, l.watcher.Run(ctx)) })
	done.Go(func() {
		l.watcher.NotifyChanged(ctx, func(node string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed[node]++
		})
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if t.Failed() {
			t.Log(l.log.String())
		}
	})
	_, err = l.c.Client().CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lhNamespace}}, metav1.CreateOptions{})
	kit.Must(t, err)
	return l
}

func (l *lake) until(what string, check func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	if err := poll(ctx, func() (bool, error) { return check(), nil }); err != nil {
		l.t.Fatalf("waiting for %s: %v\n%s", what, err, l.log)
	}
}

// tellings counts the reported changes of the node's storage so far.
func (l *lake) tellings(node string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed[node]
}

// definitions creates the CustomResourceDefinitions of a file, or deletes them.
func (l *lake) definitions(file string, create bool) {
	l.t.Helper()
	raw, err := os.ReadFile(file)
	kit.Must(l.t, err)
	// a Helm chart's
	lines := slices.DeleteFunc(strings.Split(string(raw), "\n"),
		func(s string) bool { return strings.Contains(s, "{{") })
	crds := l.client.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"})
	for _, doc := range strings.Split(strings.Join(lines, "\n"), "\n---\n") {
		o := &unstructured.Unstructured{}
		kit.Must(l.t, yaml.Unmarshal([]byte(doc), &o.Object))
		if o.Object == nil {
			continue
		}
		if create {
			_, err = crds.Create(l.ctx, o, metav1.CreateOptions{})
		} else {
			err = crds.Delete(l.ctx, o.GetName(), metav1.DeleteOptions{})
		}
		kit.Must(l.t, err)
	}
	if create {
		return
	}
	l.until("the definitions to go", func() bool {
		list, err := crds.List(l.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

func lhResource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: plural}
}

// put creates an object, once its resource is served.
func (l *lake) put(gvr schema.GroupVersionResource, namespace, kind, name, content string) {
	l.t.Helper()
	o := &unstructured.Unstructured{}
	kit.Must(l.t, yaml.Unmarshal([]byte(content), &o.Object))
	o.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	o.SetName(name)
	o.SetNamespace(namespace)
	var last error
	if err := poll(l.ctx, func() (bool, error) {
		_, last = l.client.Resource(gvr).Namespace(namespace).Create(l.ctx, o, metav1.CreateOptions{})
		return last == nil || apierrors.IsInvalid(last), last
	}); err != nil || last != nil {
		l.t.Fatalf("creating %s %s: %v, %v", kind, name, err, last)
	}
}

// patch merges into an object of Longhorn's.
func (l *lake) patch(plural, name, patch string) {
	l.t.Helper()
	_, err := l.client.Resource(lhResource(plural)).Namespace(lhNamespace).
		Patch(l.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	kit.Must(l.t, err)
}

func (l *lake) status(plural, name, patch string) {
	l.t.Helper()
	_, err := l.client.Resource(lhResource(plural)).Namespace(lhNamespace).
		Patch(l.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	kit.Must(l.t, err)
}

func adapterOf(t *testing.T, preset string, change func(*storage.Spec)) *storage.Adapter {
	t.Helper()
	p, ok := storage.PresetOf(preset)
	if !ok {
		t.Fatalf("no preset %s", preset)
	}
	if change != nil {
		change(&p.Spec)
	}
	a, bad := storage.CompileAdapter(preset, p.Spec)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	return a
}

// Storage systems on a real API server: definitions that come and go, objects that change, and reported nodes.
func TestStorage(t *testing.T) {
	t.Parallel()
	l := newLake(t)
	reduced := filepath.Join("..", "..", "taint", "drainguard", "storage", "testdata", "longhorn.yaml")
	v1 := storage.Volume{Driver: "driver.longhorn.io", Handle: "v1"}
	systems := l.watcher.UseAdapters([]*storage.Adapter{adapterOf(t, "longhorn", nil)})
	s := systems[0]

	// populate makes a node, a volume and a replica.
	populate := func(t *testing.T) {
		l.put(lhResource("nodes"), lhNamespace, "Node", "n1",
			`{spec: {evictionRequested: false, disks: {d1: {evictionRequested: false}}}}`)
		l.status("nodes", "n1",
			`{"status": {"conditions": [{"type": "Ready", "status": "True"}], `+
				`"diskStatus": {"d1": {"diskUUID": "u1"}}}}`)
		l.put(lhResource("volumes"), lhNamespace, "Volume", "v1", `{}`)
		l.status("volumes", "v1", `{"status": {"robustness": "healthy"}}`)
		l.put(lhResource("replicas"), lhNamespace, "Replica", "r1",
			`{spec: {nodeID: n1, volumeName: v1, diskID: u1, desireState: running, evictionRequested: false, `+
				`healthyAt: "x", failedAt: ""}}`)
		l.status("replicas", "r1", `{"status": {"currentState": "running"}}`)
		l.until("all to be known", func() bool {
			on := s.ReplicasOn("n1")
			return s.MissingReason() == "" && s.NodeHealth("n1").Healthy && s.VolumeHealth(v1).Healthy &&
				len(on) == 1 && on[0].Healthy && on[0].Running && on[0].Unknown == ""
		})
	}

	t.Run("a definition that appears later", func(t *testing.T) {
		const none = "nodes.longhorn.io: the cluster has no such resource of version v1beta2"
		l.until("it to be missed", func() bool {
			return strings.HasPrefix(s.MissingReason(), none) &&
				strings.Count(s.MissingReason(), "no such resource") == 3
		})
		if h := s.VolumeHealth(v1); h.Known || !strings.Contains(h.Why, "no such resource") {
			t.Errorf("a volume whose resource is missing: got %+v", h)
		}
		if n := strings.Count(l.log.String(), "about=volume"); n != 1 {
			t.Errorf("the log reports %d times that volumes are missing, want once:\n%s", n, l.log)
		}
		l.definitions(reduced, true)
		populate(t)
		l.until("the nodes that changed to be told", func() bool { return l.tellings("n1") > 0 })
	})

	t.Run("objects that change", func(t *testing.T) {
		l.until("quiet", func() bool { return l.tellings("n1") > 0 })
		before, lists := l.tellings("n1"), l.listed()
		if lists < 3 {
			t.Errorf("got %d lists of three resources", lists)
		}
		l.status("nodes", "n1",
			`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Down", "message": "gone"}]}}`)
		l.until("the node not to be healthy",
			func() bool { return s.NodeHealth("n1") == storage.Health{Known: true, Why: "Down: gone"} })
		l.until("the change to be told", func() bool { return l.tellings("n1") > before })
		l.status("volumes", "v1", `{"status": {"robustness": "unknown"}}`)
		l.until("the volume not to be known", func() bool { return !s.VolumeHealth(v1).Known })
		l.until("the metric to count it", func() bool {
			return testutil.CollectAndCount(l.metrics, "forcefence_storage_unevaluated") == 1
		})
		want := "# HELP forcefence_storage_known 1 if all resources of a storage system were read, 0 if not: " +
			`nothing depends on it then.
# TYPE forcefence_storage_known gauge
forcefence_storage_known{storage="longhorn"} 1
`
		if err := testutil.GatherAndCompare(l.metrics, strings.NewReader(want),
			"forcefence_storage_known"); err != nil {
			t.Error(err)
		}
		l.status("volumes", "v1", `{"status": {"robustness": "healthy"}}`)
		l.patch("nodes", "n1", `{"spec": {"disks": {"d1": {"evictionRequested": true}}}}`)
		l.until("a person's request on the disk to be seen", func() bool { return s.ReplicasOn("n1")[0].Wanted })
		if n := l.listed() - lists; n > 0 {
			t.Errorf("changes were followed by %d lists, want none", n)
		}
	})

	t.Run("an eviction asked for and taken back", func(t *testing.T) {
		send := func(r storage.Replica, ask bool) error {
			p, ok := s.EvictionPatch(r, ask)
			if !ok {
				t.Fatal("the preset does not say how")
			}
			_, err := l.client.Resource(p.Resource).Namespace(p.Namespace).
				Patch(l.ctx, p.Name, types.MergePatchType, p.Data, metav1.PatchOptions{})
			return err
		}
		first := s.ReplicasOn("n1")[0]
		kit.Must(t, send(first, true))
		l.until("it to be seen", func() bool { r := s.ReplicasOn("n1")[0]; return r.Evicting && r.Ours })
		if err := send(first, false); !apierrors.IsConflict(err) {
			t.Errorf("taken back on an old state: got %v, want a conflict", err)
		}
		kit.Must(t, send(s.ReplicasOn("n1")[0], false))
		l.until("it to be gone", func() bool { r := s.ReplicasOn("n1")[0]; return !r.Evicting && !r.Ours })
	})

	t.Run("an expression that does not fit the definition", func(t *testing.T) {
		odd := adapterOf(t, "longhorn",
			func(s *storage.Spec) { s.Volume.Healthy = `object.status.robustnes == "healthy"` })
		now := l.watcher.UseAdapters([]*storage.Adapter{odd})[0]
		l.until("the log to say so",
			func() bool { return strings.Contains(l.log.String(), "undefined field 'robustnes'") })
		l.until("the state to be read", func() bool { return now.MissingReason() == "" })
		if h := now.VolumeHealth(v1); h.Known || h.Why != "volume.healthy: no such key: robustnes" {
			t.Errorf("got %+v", h)
		}
		if h := s.VolumeHealth(v1); h.Known || !strings.Contains(h.Why, "the configuration does not use it any more") {
			t.Errorf("the system that was in use before: got %+v", h)
		}
		s = l.watcher.UseAdapters([]*storage.Adapter{adapterOf(t, "longhorn", nil)})[0]
		l.until("the old one to be back", func() bool { return s.VolumeHealth(v1).Healthy })
		if again := l.watcher.UseAdapters([]*storage.Adapter{adapterOf(t, "longhorn", nil)})[0]; again != s {
			t.Error("an adapter that did not change was read again")
		}
	})

	t.Run("objects that go, and then their definitions", func(t *testing.T) {
		kit.Must(t, l.client.Resource(lhResource("replicas")).Namespace(lhNamespace).
			Delete(l.ctx, "r1", metav1.DeleteOptions{}))
		l.until("the volume to have no replica",
			func() bool { return s.VolumeHealth(v1) == storage.Health{Why: "it has no replica"} })
		l.definitions(reduced, false)
		l.until("all to be missed", func() bool { return strings.Count(s.MissingReason(), "no such resource") == 3 })
		if h := s.NodeHealth("n1"); h.Known {
			t.Errorf("a node whose resource has gone: got %+v", h)
		}
	})

	t.Run("CSIVolumeHealth", func(t *testing.T) {
		csi := l.watcher.UseAdapters(
			[]*storage.Adapter{
				adapterOf(t, "csi-volume-health",
					func(s *storage.Spec) { s.Drivers = []string{cluster.CSIDriver} })})[0]
		claims := l.c.Client().CoreV1().PersistentVolumeClaims("default")
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			}}
		kit.Must(t, yaml.Unmarshal([]byte(`{resources: {requests: {storage: 1Mi}}}`), &pvc.Spec))
		_, err := claims.Create(l.ctx, pvc, metav1.CreateOptions{})
		kit.Must(t, err)
		// Kubernetes 1.36 has a feature of that name, but not the field, with or without it: 1.37's API brings it. So
		// it drops what a CSI driver's controller writes, and everything is Unknown. Where a later version keeps it,
		// the claim is healthy.
		got, err := claims.Patch(l.ctx, "data", types.MergePatchType,
			[]byte(`{"status": {"healthStatus": {"healthConditions": []}}}`), metav1.PatchOptions{}, "status")
		kit.Must(t, err)
		want := storage.Health{Why: "volume.healthy: no such key: healthStatus"}
		if got.Status.HealthStatus != nil {
			want = storage.Health{Known: true, Healthy: true}
		} else {
			l.until("the log to say so",
				func() bool { return strings.Contains(l.log.String(), "undefined field 'healthStatus'") })
		}
		at := storage.Volume{Driver: cluster.CSIDriver, Namespace: "default", Claim: "data"}
		l.until("the claim to be "+want.Why, func() bool { return csi.VolumeHealth(at) == want })
	})
}
