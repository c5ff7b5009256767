package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
	storagewatch "github.com/forcefence/forcefence/taint/features/storage/watch"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const lhNamespace = "longhorn-system"

// lake is a cluster with storage systems that are watched.
type lake struct {
	*world
	watcher *storagewatch.Watcher
	metrics *prometheus.Registry
	log     *kit.Log

	mu      sync.Mutex // guards what follows
	changed map[string]int
}

func newLake(t *testing.T) *lake {
	t.Helper()
	l := &lake{world: newWorld(t, plan{own: &cluster.Options{NodeGrace: cluster.FastNodeGrace,
		APIServerArgs: []string{"--feature-gates=CSIVolumeHealth=true"}}}),
		log: &kit.Log{}, changed: map[string]int{}, metrics: prometheus.NewRegistry()}
	client, err := dynamic.NewForConfig(l.RESTConfig())
	kit.Must(t, err)
	d, err := discovery.NewDiscoveryClientForConfig(l.RESTConfig())
	kit.Must(t, err)
	l.watcher, err = storagewatch.New(storagewatch.Options{
		Client: client, Discovery: d, Log: slog.New(slog.NewTextHandler(l.log, nil)), Registry: l.metrics,
		Retry: 50 * time.Millisecond, Absent: 100 * time.Millisecond,
	})
	kit.Must(t, err)
	ctx, cancel := context.WithCancel(l.ctx)
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
	l.kubectl("create", "namespace", lhNamespace)
	return l
}

// tellings counts the reported changes of the node's storage so far.
func (l *lake) tellings(node string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed[node]
}

// put creates an object of Longhorn's, once its resource is served.
func (l *lake) put(kind, name, rest string) {
	l.t.Helper()
	file := filepath.Join(l.t.TempDir(), "object.yaml")
	kit.Must(l.t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: longhorn.io/v1beta2\nkind: %s\n"+
		"metadata: {name: %s, namespace: %s}\n%s\n", kind, name, lhNamespace, rest), 0o600))
	l.until(kind+" "+name+" to be created", func() bool {
		_, err := l.Kubectl(l.ctx, "create", "-f", file)
		return err == nil
	})
}

// patch merges into an object of Longhorn's.
func (l *lake) patch(plural, name, patch string, more ...string) {
	l.t.Helper()
	l.kubectl(append([]string{"patch", plural + ".longhorn.io", name, "-n", lhNamespace, "--type=merge", "-p", patch},
		more...)...)
}

func (l *lake) status(plural, name, patch string) {
	l.t.Helper()
	l.patch(plural, name, patch, "--subresource=status")
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
	l := newLake(t)
	reduced := filepath.Join("..", "..", "taint", "features", "storage", "testdata", "longhorn.yaml")
	v1 := action.VolumeName{Driver: "driver.longhorn.io", Handle: "v1"}
	systems := l.watcher.UseAdapters([]*storage.Adapter{adapterOf(t, "longhorn", nil)})
	s := systems[0]

	// populate makes a node, a volume and a replica.
	populate := func() {
		l.put("Node", "n1",
			`spec: {evictionRequested: false, disks: {d1: {evictionRequested: false}}}`)
		l.status("nodes", "n1",
			`{"status": {"conditions": [{"type": "Ready", "status": "True"}], `+
				`"diskStatus": {"d1": {"diskUUID": "u1"}}}}`)
		l.put("Volume", "v1", "")
		l.status("volumes", "v1", `{"status": {"robustness": "healthy"}}`)
		l.put("Replica", "r1",
			`spec: {nodeID: n1, volumeName: v1, diskID: u1, desireState: running, evictionRequested: false, `+
				`healthyAt: "x", failedAt: ""}`)
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
		l.kubectl("create", "-f", reduced)
		populate()
		l.until("the nodes that changed to be told", func() bool { return l.tellings("n1") > 0 })
	})

	t.Run("objects that change", func(t *testing.T) {
		l.until("quiet", func() bool { return l.tellings("n1") > 0 })
		before := l.tellings("n1")
		l.status("nodes", "n1",
			`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Down", "message": "gone"}]}}`)
		l.until("the node not to be healthy",
			func() bool { return s.NodeHealth("n1") == action.Health{Known: true, Why: "Down: gone"} })
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
		l.kubectl("delete", "replicas.longhorn.io", "r1", "-n", lhNamespace)
		l.until("the volume to have no replica",
			func() bool { return s.VolumeHealth(v1) == action.Health{Why: "it has no replica"} })
		l.kubectl("delete", "-f", reduced)
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
		claims := l.Client().CoreV1().PersistentVolumeClaims("default")
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
		want := action.Health{Why: "volume.healthy: no such key: healthStatus"}
		if got.Status.HealthStatus != nil {
			want = action.Health{Known: true, Healthy: true}
		} else {
			l.until("the log to say so",
				func() bool { return strings.Contains(l.log.String(), "undefined field 'healthStatus'") })
		}
		at := action.VolumeName{Driver: cluster.CSIDriver, Namespace: "default", Claim: "data"}
		l.until("the claim to be "+want.Why, func() bool { return csi.VolumeHealth(at) == want })
	})
}
