package storage_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/test/kit"
)

var v1 = action.VolumeName{Driver: "driver.longhorn.io", Handle: "v1"}

// A kind is unknown before it was listed, and after it was lost.
func TestMissing(t *testing.T) {
	p, _ := storage.PresetOf("longhorn")
	a, _ := storage.CompileAdapter("longhorn", p.Spec)
	s := storage.NewState(a)
	const notRead = "nodes.longhorn.io: not read yet"
	if got := s.MissingReason(); !strings.HasPrefix(got, notRead+"; volumes.longhorn.io: not read yet; replicas") {
		t.Errorf("Missing of a new state: got %q", got)
	}
	// Objects that a watch brings before the list is whole say nothing yet.
	s.Put(storage.Nodes, lhNode(t, "n1", ""))
	s.Put(storage.Volumes, lhVolume(t, "v1", "healthy"))
	s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1"))
	nothing := func(when, why string) {
		t.Helper()
		want := action.Health{Why: "nodes.longhorn.io: " + why}
		if diff := cmp.Diff(want, s.NodeHealth("n1")); diff != "" {
			t.Errorf("node, %s: -want +got:\n%s", when, diff)
		}
		if h := s.VolumeHealth(v1); h.Known || !strings.HasSuffix(h.Why, why) {
			t.Errorf("volume, %s: got %+v", when, h)
		}
		if on, of := s.ReplicasOn("n1"), s.ReplicasOf("v1"); len(on)+len(of) > 0 {
			t.Errorf("replicas, %s: got %v and %v", when, on, of)
		}
	}
	nothing("before the lists", "not read yet")
	s.Replace(storage.Nodes, []*unstructured.Unstructured{lhNode(t, "n1", "")})
	s.Replace(storage.Volumes, []*unstructured.Unstructured{lhVolume(t, "v1", "healthy")})
	if h := s.VolumeHealth(v1); h.Known || h.Why != "replicas.longhorn.io: not read yet" {
		t.Errorf("a volume whose replicas are not known: got %+v", h)
	}
	changed := s.Replace(storage.Replicas, []*unstructured.Unstructured{lhReplica(t, "r1", "v1", "n1")})
	if !slices.Contains(changed, "n1") || s.MissingReason() != "" || !s.NodeHealth("n1").Healthy ||
		!s.VolumeHealth(v1).Healthy || len(s.ReplicasOn("n1")) != 1 {
		t.Errorf("all read: changed %v, missing %q, node %+v, volume %+v, on %v", changed, s.MissingReason(),
			s.NodeHealth("n1"), s.VolumeHealth(v1), s.ReplicasOn("n1"))
	}
	s.SetMissing(storage.Volumes, "forbidden")
	if h := s.VolumeHealth(v1); h.Known || h.Why != "volumes.longhorn.io: forbidden" || !s.NodeHealth("n1").Healthy {
		t.Errorf("volumes alone were lost: got %+v, and the node %+v", h, s.NodeHealth("n1"))
	}
	for _, k := range storage.Kinds {
		s.SetMissing(k, "the cluster has no such resource")
	}
	nothing("after they were lost", "the cluster has no such resource")
}

// Objects elsewhere are somebody else's: whoever may make them in a namespace of theirs speaks for no storage.
func TestNamespace(t *testing.T) {
	s := longhorn(t)
	s.Put(storage.Nodes, lhNode(t, "n1", ""))
	theirs := lhNode(t, "n2", "")
	theirs.SetNamespace("mallory")
	s.Put(storage.Nodes, theirs)
	volume, replica := lhVolume(t, "v1", "healthy"), lhReplica(t, "r1", "v1", "n1")
	for _, o := range []*unstructured.Unstructured{volume, replica} {
		o.SetNamespace("mallory")
	}
	s.Put(storage.Volumes, volume)
	s.Replace(storage.Replicas, []*unstructured.Unstructured{replica})
	if h := s.NodeHealth("n2"); h.Known {
		t.Errorf("a node of another namespace: got %+v", h)
	}
	if h, on := s.VolumeHealth(v1), s.ReplicasOn("n1"); h.Known || len(on) > 0 {
		t.Errorf("a volume and a replica of another namespace: got %+v, %v", h, on)
	}
}

// Two objects that tell of one thing tell nothing.
func TestTwice(t *testing.T) {
	p, _ := storage.PresetOf("longhorn")
	p.Spec.Node.Name, p.Spec.Volume.Key = "object.who", "object.who"
	s := empty(t, p.Spec)
	s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1"))
	for _, name := range []string{"a", "b"} {
		n, v := lhNode(t, name, ""), lhVolume(t, name, "healthy")
		n.Object["who"], v.Object["who"] = "n1", "v1"
		s.Put(storage.Nodes, n)
		s.Put(storage.Volumes, v)
	}
	if h := s.NodeHealth("n1"); h.Known || !strings.Contains(h.Why, "several objects describe this node: "+
		"longhorn-system/a, longhorn-system/b") {
		t.Errorf("node: got %+v", h)
	}
	if h := s.VolumeHealth(v1); h.Known || !strings.Contains(h.Why, "several objects describe this volume") {
		t.Errorf("volume: got %+v", h)
	}
	if r := s.ReplicasOn("n1")[0]; !r.Wanted || r.Unknown == "" {
		t.Errorf("replica on a node of which two objects tell: got %+v", r)
	}
	s.Delete(storage.Nodes, lhNode(t, "b", ""))
	if r := s.ReplicasOn("n1")[0]; !s.NodeHealth("n1").Healthy || r.Wanted || r.Unknown != "" {
		t.Errorf("once one has gone: got %+v, %+v", s.NodeHealth("n1"), r)
	}
}

// A change names the nodes that it concerns, and no others.
func TestChanged(t *testing.T) {
	s := longhorn(t)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.Put(storage.Nodes, lhNode(t, n, ""))
	}
	s.Put(storage.Volumes, lhVolume(t, "v1", "healthy"))
	s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1"))
	s.Put(storage.Replicas, lhReplica(t, "r2", "v1", "n2"))
	s.Put(storage.Replicas, lhReplica(t, "r3", "v3", "n3"))
	sick := lhNode(t, "n1", "")
	kit.Must(t, unstructured.SetNestedSlice(sick.Object, []any{map[string]any{"type": "Ready", "status": "False"}},
		"status", "conditions"))
	emptied := lhNode(t, "n3", "")
	kit.Must(t, unstructured.SetNestedField(emptied.Object, true, "spec", "evictionRequested"))
	newer := lhReplica(t, "r1", "v1", "n1")
	newer.SetResourceVersion("8")
	for _, c := range []struct {
		name string
		do   func() []string
		want []string
	}{
		{"the same node again", func() []string { return s.Put(storage.Nodes, lhNode(t, "n1", "")) }, nil},
		{"a node that fell", func() []string { return s.Put(storage.Nodes, sick) }, []string{"n1"}},
		{"a node that a person empties", func() []string { return s.Put(storage.Nodes, emptied) }, []string{"n3"}},
		{"the same again", func() []string { return s.Put(storage.Nodes, emptied) }, nil},
		{"the same replica at another version", func() []string { return s.Put(storage.Replicas, newer) }, nil},
		{"a volume that failed", func() []string { return s.Put(storage.Volumes, lhVolume(t, "v1", "faulted")) },
			[]string{"n1", "n2"}},
		{"a replica that failed",
			func() []string {
				return s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1", "spec.failedAt=x"))
			}, []string{"n1", "n2"}},
		{"a replica that moved", func() []string { return s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n3")) },
			[]string{"n1", "n2", "n3"}},
		{"a replica that went", func() []string { return s.Delete(storage.Replicas, lhReplica(t, "r1", "v1", "n3")) },
			[]string{"n2", "n3"}},
		{"one that was never there",
			func() []string { return s.Delete(storage.Replicas, lhReplica(t, "r9", "v1", "n3")) }, nil},
		{"a replica that may be on any",
			func() []string {
				return s.Put(storage.Replicas, lhReplica(t, "r4", "v4", "n1", "spec.nodeID=5"))
			}, []string{"n1", "n2", "n3"}},
		{"a list without it", func() []string {
			return s.Replace(storage.Replicas, []*unstructured.Unstructured{lhReplica(t, "r2", "v1", "n2")})
		}, []string{"n1", "n2", "n3"}},
	} {
		if got := c.do(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if r := s.ReplicasOf("v1"); len(r) != 1 || r[0].Name != "r2" {
		t.Errorf("at the end: got %v, want r2", r)
	}
}

// Faults are counted, and uncounted.
func TestFaults(t *testing.T) {
	s := longhorn(t)
	s.Put(storage.Volumes, lhVolume(t, "v1", "odd"))
	s.Put(storage.Volumes, lhVolume(t, "v2", "odd"))
	s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1", "spec.volumeName=1", "spec.nodeID=1"))
	want := map[string]int{"volume.healthy": 2, "replica.node": 1, "replica.volume": 1}
	if diff := cmp.Diff(want, s.Faults()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.Put(storage.Volumes, lhVolume(t, "v1", "healthy"))
	s.Delete(storage.Volumes, lhVolume(t, "v2", ""))
	s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1"))
	if diff := cmp.Diff(map[string]int{}, s.Faults()); diff != "" {
		t.Errorf("once all is well: -want +got:\n%s", diff)
	}
}

func TestEviction(t *testing.T) {
	s := longhorn(t)
	r := storage.Replica{Namespace: lh, Name: "r1", UID: "u", ResourceVersion: "7"}
	for ask, want := range map[bool]string{
		true: `{"metadata":{"annotations":{"forcefence.io/evicting":"true"},"resourceVersion":"7","uid":"u"},` +
			`"spec":{"evictionRequested":true}}`,
		false: `{"metadata":{"annotations":{"forcefence.io/evicting":null},"resourceVersion":"7","uid":"u"},` +
			`"spec":{"evictionRequested":false}}`,
	} {
		p, ok := s.EvictionPatch(r, ask)
		if !ok || string(p.Data) != want || p.Resource.String() != "longhorn.io/v1beta2, Resource=replicas" ||
			p.Namespace+"/"+p.Name != lh+"/r1" {
			t.Errorf("EvictionPatch(%v): got %s of %s, %v", ask, p.Data, p.Resource, ok)
		}
	}
	if ns, pods := s.PodSelector(); ns != lh || pods.String() != "longhorn.io/component=instance-manager" {
		t.Errorf("Pods: got %s, %v", ns, pods)
	}
	p, _ := storage.PresetOf("longhorn")
	p.Spec.Replica.Evict, p.Spec.Replica.Keep, p.Spec.Pods = "", "", ""
	s = empty(t, p.Spec)
	if _, ok := s.EvictionPatch(r, true); ok {
		t.Error("an adapter that does not say how asks for eviction")
	}
	if _, pods := s.PodSelector(); pods != nil {
		t.Errorf("Pods of an adapter that does not say which: got %v", pods)
	}
}

func TestCSIVolumeHealth(t *testing.T) {
	p, _ := storage.PresetOf("csi-volume-health")
	p.Spec.Drivers = []string{"a.csi", "b.csi"}
	s := empty(t, p.Spec)
	for _, c := range []struct {
		status string
		want   action.Health
	}{
		{`{}`, action.Health{Why: "volume.healthy: no such key: healthStatus"}},
		{`{healthStatus: null}`, action.Health{Known: true, Why: "its object reports it as not healthy"}},
		{`{healthStatus: {}}`, action.Health{Known: true, Healthy: true}},
		{`{healthStatus: {healthConditions: []}}`, action.Health{Known: true, Healthy: true}},
		{`{healthStatus: {healthConditions: [{status: Degraded, reason: Slow}]}}`,
			action.Health{Known: true, Healthy: true}},
		{`{healthStatus: {healthConditions: [{status: Degraded, reason: Slow}, {status: DataLoss, reason: Disk}]}}`,
			action.Health{Known: true, Why: "DataLoss: Disk"}},
		{`{healthStatus: {healthConditions: [{status: Inaccessible, reason: Path}]}}`,
			action.Health{Known: true, Why: "Inaccessible: Path"}},
		{`{healthStatus: {healthConditions: [{status: Haunted, reason: X}]}}`,
			action.Health{Why: "volume.healthy: no such key: Haunted"}},
		{`{healthStatus: {healthConditions: [{reason: X}]}}`,
			action.Health{Why: "volume.healthy: no such key: status"}},
		{`{healthStatus: {healthConditions: text}}`,
			action.Health{Why: "volume.healthy: got 'types.String', expected iterable type"}},
	} {
		s.Put(storage.Volumes, object(t, "app", "data", "{status: "+c.status+"}"))
		for claim, want := range map[string]action.Health{
			"data": c.want, "other": {Why: `no object describes volume "app/other"`}} {
			if diff := cmp.Diff(want,
				s.VolumeHealth(
					action.VolumeName{Driver: "b.csi", Handle: "h", PV: "pv", Namespace: "app",
						Claim: claim})); diff != "" {
				t.Errorf("%s, claim %s: -want +got:\n%s", c.status, claim, diff)
			}
		}
	}
	for _, c := range []struct {
		status string
		want   action.Health
	}{
		{`{storageHealth: [{name: a.csi}, {name: b.csi, healthConditions: []}]}`,
			action.Health{Known: true, Healthy: true}},
		{`{storageHealth: [{name: a.csi}, {name: b.csi, healthConditions: [{status: StorageDegraded, reason: X}]}]}`,
			action.Health{Known: true, Healthy: true}},
		{`{storageHealth: [{name: a.csi}, {name: b.csi, healthConditions: [{status: StorageUnreachable, reason: X}]}]}`,
			action.Health{Known: true, Why: "b.csi: X"}},
		{`{storageHealth: [{name: b.csi, healthConditions: [{status: StorageUnreachable, reason: X}]}]}`,
			action.Health{Known: true, Why: "b.csi: X"}},
		{`{storageHealth: [{name: a.csi}]}`, action.Health{Why: "node.healthy: index out of bounds: 0"}},
		{`{storageHealth: [{name: a.csi}, {name: c.csi}]}`,
			action.Health{Why: "node.healthy: index out of bounds: 0"}},
		{`{}`, action.Health{Why: "node.healthy: no such key: storageHealth"}},
	} {
		s.Put(storage.Nodes, object(t, "", "n1", "{status: "+c.status+"}"))
		if diff := cmp.Diff(c.want, s.NodeHealth("n1")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.status, diff)
		}
	}
}

// A state that saw every change says what one says that saw the end alone.
func TestIncremental(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := longhorn(t)
		objects := map[storage.Kind]map[string]*unstructured.Unstructured{storage.Nodes: {}, storage.Volumes: {},
			storage.Replicas: {}}
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		for range 60 {
			k := storage.Kinds[r.IntN(3)]
			var o *unstructured.Unstructured
			switch k {
			case storage.Nodes:
				o = lhNode(t, pick("n1", "n2", "n3"), "")
				kit.Must(t, unstructured.SetNestedField(o.Object, r.IntN(2) == 0, "spec", "evictionRequested"))
				kit.Must(t, unstructured.SetNestedSlice(o.Object,
					[]any{map[string]any{"type": "Ready", "status": pick("True", "False", "Odd")}}, "status",
					"conditions"))
			case storage.Volumes:
				o = lhVolume(t, pick("v1", "v2"), pick("healthy", "faulted", "odd"))
			default:
				o = lhReplica(t, pick("r1", "r2", "r3", "r4"), pick("v1", "v2", "5"), pick("n1", "n2", "n3", "7", `""`),
					"spec.failedAt="+pick(`""`, "x", "5"))
				if r.IntN(3) == 0 {
					o.SetAnnotations(map[string]string{storage.EvictionAnnotation: "true"})
				}
			}
			before, version := said(s), s.Version()
			var changed []string
			if r.IntN(4) == 0 {
				delete(objects[k], o.GetName())
				changed = s.Delete(k, o)
			} else {
				objects[k][o.GetName()] = o
				changed = s.Put(k, o)
			}
			after := said(s)
			if !maps.Equal(before, after) && s.Version() == version {
				t.Fatalf("seed %d: the result changed, but the version did not:\n%s\n%s", seed, before, after)
			}
			for n := range after {
				nobody := func(said string) bool { return strings.Contains(said, "no object describes this node") }
				if strings.HasPrefix(n, "n") && before[n] != after[n] && !slices.Contains(changed, n) &&
					!(nobody(before[n]) && nobody(after[n])) {
					t.Fatalf("seed %d: node %s changed without being named:\n%s\n%s", seed, n, before[n], after[n])
				}
			}
		}
		fresh := longhorn(t)
		for _, k := range storage.Kinds {
			fresh.Replace(k, slices.Collect(maps.Values(objects[k])))
		}
		if diff := cmp.Diff(said(fresh), said(s)); diff != "" {
			t.Fatalf("seed %d: -whole +incremental:\n%s", seed, diff)
		}
		if diff := cmp.Diff(fresh.Faults(), s.Faults()); diff != "" {
			t.Fatalf("seed %d: faults: -whole +incremental:\n%s", seed, diff)
		}
	}
}

// said is all that a state says of the names that the test uses.
func said(s *storage.State) map[string]string {
	out := map[string]string{}
	for _, n := range []string{"n1", "n2", "n3"} {
		on, _ := json.Marshal(s.ReplicasOn(n))
		out[n] = fmt.Sprintf("%+v %s", s.NodeHealth(n), on)
	}
	out["all"] = fmt.Sprintf("%q %q", s.MissingReason(), s.NodesWithRequests())
	for _, v := range []string{"v1", "v2", ""} {
		of, _ := json.Marshal(s.ReplicasOf(v))
		out[v] = fmt.Sprintf("%+v %s", s.VolumeHealth(action.VolumeName{Driver: "driver.longhorn.io", Handle: v}), of)
	}
	return out
}

// The version tells apart what is known from what is not, and stays while nothing is said that is new.
func TestVersion(t *testing.T) {
	s := storage.NewState(longhorn(t).Adapter)
	last := s.Version()
	for _, c := range []struct {
		name string
		do   func()
		news bool
	}{
		{"a list without objects", func() { s.Replace(storage.Nodes, nil) }, true},
		{"the others", func() { s.Replace(storage.Volumes, nil); s.Replace(storage.Replicas, nil) }, true},
		{"once more", func() { s.Replace(storage.Replicas, nil) }, false},
		{"a node", func() { s.Put(storage.Nodes, lhNode(t, "n1", "")) }, true},
		{"a replica", func() { s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1")) }, true},
		{"the same, of another resourceVersion", func() {
			o := lhReplica(t, "r1", "v1", "n1")
			o.SetResourceVersion("another")
			s.Put(storage.Replicas, o)
		}, false},
		{"the node again", func() { s.Put(storage.Nodes, lhNode(t, "n1", "")) }, false},
		{"a list that is lost", func() { s.SetMissing(storage.Replicas, "gone") }, true},
		{"for the same reason", func() { s.SetMissing(storage.Replicas, "gone") }, false},
		{"for another", func() { s.SetMissing(storage.Replicas, "forbidden") }, true},
		{"and read again",
			func() { s.Replace(storage.Replicas, []*unstructured.Unstructured{lhReplica(t, "r1", "v1", "n1")}) }, true},
	} {
		c.do()
		if now := s.Version(); (now != last) != c.news {
			t.Errorf("%s: version was %d and is %d", c.name, last, now)
		}
		last = s.Version()
	}
}
