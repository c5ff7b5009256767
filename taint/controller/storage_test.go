package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// system is a storage system that says what a test wants, and notes by what it was asked for volumes.
type system struct {
	StorageSystem
	driver string
	nodes  map[string]action.Health
	sick   map[string]bool // volumes, by PersistentVolume
	asked  []action.VolumeName
}

func (s *system) Name() string                         { return "of " + s.driver }
func (s *system) Drivers() []string                    { return []string{s.driver} }
func (s *system) NodeHealth(name string) action.Health { return s.nodes[name] }
func (s *system) VolumeHealth(v action.VolumeName) action.Health {
	s.asked = append(s.asked, v)
	return action.Health{Known: true, Healthy: !s.sick[v.PV]}
}

var healthy, unhealthy = action.Health{Known: true, Healthy: true}, action.Health{Known: true}

// stored is a world with two storage systems, and a policy for one of them.
func stored(t *testing.T) (w *world, asked, other *system) {
	w = newWorld(t)
	asked = &system{driver: "sim.example.com", nodes: map[string]action.Health{"n1": healthy, "n2": healthy},
		sick: map[string]bool{}}
	other = &system{driver: "other.example.com", nodes: map[string]action.Health{"n2": unhealthy},
		sick: map[string]bool{}}
	rule := policy.Policy{
		Name: "p", When: policy.StorageUnhealthy, Storage: asked.Name(), Drivers: asked.Drivers(),
		Intervals: policy.StorageOSIntervals, Detach: true,
		WithoutProof: policy.StorageFences,
	}
	config := *w.r.Config()
	config.Policies, config.Storage = []policy.Policy{rule}, []StorageSystem{other, asked}
	w.r.Options.Config = func() *Config { return &config }
	return w, asked, other
}

// A Ready node is looked at within the poll interval after its storage became unhealthy, although nothing else changed;
// only its pods with a volume there are ended, and what says nothing, and what another system says, ends none.
func TestStorageWakes(t *testing.T) {
	w, asked, other := stored(t)
	w.run(time.Minute)
	pods := w.pods("n1")
	asked.nodes["n1"] = action.Health{}
	w.run(time.Minute)
	if got := w.pods("n1"); !slices.Equal(got, pods) {
		t.Errorf("nobody knows: got pods %v, want %v", got, pods)
	}
	begun := w.Now()
	asked.nodes["n1"] = unhealthy
	left := slices.DeleteFunc(slices.Clone(pods), func(name string) bool { return name == "db-n1" })
	if !w.until(time.Minute, func() bool { return slices.Equal(w.pods("n1"), left) }) {
		t.Fatalf("pods: got %v, want all of %v but the one with a volume", w.pods("n1"), pods)
	}
	if took := w.Now().Sub(begun); took > policy.StorageOSIntervals.Poll+time.Second {
		t.Errorf("took %s, want at most the poll interval and a second", took)
	}
	if !w.told.has("PolicyEndingPods n1") || !w.told.has("PolicyEndedPod db-n1") {
		t.Errorf("told: got %q, want that pods are ended by a policy", w.told.said)
	}
	for _, s := range []*system{asked, other} {
		for _, v := range s.asked {
			if v.Driver != s.driver || !strings.HasPrefix(v.Handle, "lun-") || !strings.HasPrefix(v.PV, "pv-") ||
				v.Namespace != worldNS || v.Claim == "" {
				t.Errorf("storage of %s: asked for %+v", s.driver, v)
			}
		}
	}
	w.run(time.Minute)
	if got := w.pods("n2"); !slices.Contains(got, "db-n2") {
		t.Errorf("a node that is unhealthy for another storage: got pods %v", got)
	}
}

// What a volume's own system says counts.
func TestStorageVolumes(t *testing.T) {
	w, asked, other := stored(t)
	for _, pv := range w.uses["db-n1"] {
		other.sick[pv] = true // it is not asked about its neighbour's
		if strings.HasPrefix(w.unique[pv], "kubernetes.io/csi/sim.example.com^") {
			asked.sick[pv] = true
		}
	}
	w.run(15 * time.Second)
	asked.nodes["n1"] = unhealthy
	if !w.until(time.Minute, func() bool { return w.told.has("PolicySkippedPods n1") }) {
		t.Fatalf("told: got %q, want that pods stay", w.told.said)
	}
	if got := w.pods("n1"); !slices.Contains(got, "db-n1") {
		t.Errorf("got pods %v, want the one whose volume is not healthy to stay", got)
	}
	clear(asked.sick)
	asked.nodes["n1"] = healthy
	w.run(10 * time.Second)
	asked.nodes["n1"] = unhealthy
	if !w.until(time.Minute, func() bool { return !slices.Contains(w.pods("n1"), "db-n1") }) {
		t.Errorf("healthy again: got pods %v", w.pods("n1"))
	}
}

// A Node that is gone is looked at no more.
func TestStoragePollEnds(t *testing.T) {
	w, _, _ := stored(t)
	w.run(15 * time.Second)
	if got := w.r.pollInterval("n1"); got != policy.StorageOSIntervals.Poll {
		t.Errorf("a node: got %s, want the policy's", got)
	}
	if got := w.r.pollInterval("n99"); got != 0 {
		t.Errorf("no node: got %s, want never", got)
	}
}

// Without a system for its driver nobody knows a volume's health.
func TestJudge(t *testing.T) {
	of := map[string][]action.Volume{
		"u": {{PV: "a", Driver: "sim.example.com"}, {PV: "b", Driver: "none.example.com"}, {PV: "c"}}}
	c := &Config{Storage: []StorageSystem{&system{driver: "sim.example.com"}}}
	pod := corev1.Pod{}
	pod.UID = "u"
	c.fillVolumeHealth([]corev1.Pod{pod}, of)
	for i, want := range []action.Health{healthy, {}, {}} {
		if got := of["u"][i].Health; got != want {
			t.Errorf("volume %s: got %+v, want %+v", of["u"][i].PV, got, want)
		}
	}
}
