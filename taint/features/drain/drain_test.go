package drain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/reason"
)

// memory is a storage system that tells what it is given.
type memory struct {
	missing  string
	replicas []storage.Replica
}

func (m *memory) Name() string                                 { return "memory" }
func (m *memory) Drivers() []string                            { return []string{"memory.example.com"} }
func (m *memory) MissingReason() string                        { return m.missing }
func (m *memory) NodeHealth(string) action.Health              { return action.Health{} }
func (m *memory) VolumeHealth(action.VolumeName) action.Health { return action.Health{} }
func (m *memory) ReplicasOn(node string) []storage.Replica {
	return m.where(func(r storage.Replica) bool { return r.Node == node })
}
func (m *memory) ReplicasOf(volume string) []storage.Replica {
	return m.where(func(r storage.Replica) bool { return r.Volume == volume })
}
func (m *memory) NodesWithRequests() (nodes []string) {
	for _, r := range m.replicas {
		if r.Ours {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}
func (m *memory) Version() uint64                        { return 0 }
func (m *memory) PodSelector() (string, labels.Selector) { return "", nil }
func (m *memory) EvictionPatch(storage.Replica, bool) (storage.Patch, bool) {
	return storage.Patch{}, false
}
func (m *memory) where(is func(storage.Replica) bool) (out []storage.Replica) {
	for _, r := range m.replicas {
		if is(r) {
			out = append(out, r)
		}
	}
	return out
}

const identity = "example.com/node"

func guardWith(p Policy) Guard {
	return Guard{
		Name: "disks", Policy: p, Namespace: "storage", Identity: Identity{identity},
		Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}},
	}
}

func pod(node string) Pod {
	return Pod{Namespace: "storage", Name: "engine-" + node, UID: "uid-" + node, Node: node, Ready: true,
		Labels: map[string]string{"app": "engine", identity: node}}
}

// budget is ours before a pod, as the API server would have it.
func budget(p Pod) Budget { return seen(guardWith(BlockIfLast).BudgetFor(p)) }

func seen(b *policyv1.PodDisruptionBudget) Budget {
	b.ResourceVersion = "1"
	out := SeeBudget(b)
	out.UID = "b-" + b.Name
	return out
}

func replica(volume, node string, edit ...func(*storage.Replica)) storage.Replica {
	r := storage.Replica{Namespace: "storage", Name: volume + "-" + node, UID: volume + "-" + node, Node: node,
		Volume: volume, Healthy: true, Running: true, Started: true}
	for _, e := range edit {
		e(&r)
	}
	return r
}

// scene is three nodes with a guarded storage pod each, n1 cordoned.
func scene(p Policy, replicas ...storage.Replica) View {
	v := View{Guard: guardWith(p), Nodes: map[string]Node{"n1": {Cordoned: true}, "n2": {}, "n3": {}},
		Storage: &memory{replicas: replicas}}
	for _, n := range []string{"n1", "n2", "n3"} {
		v.Pods = append(v.Pods, pod(n))
		v.Budgets = append(v.Budgets, budget(pod(n)))
	}
	return v
}

// told is a decision in words.
func told(d Decision) (out []string) {
	for _, a := range d.Acts {
		what := a.Replica.Name
		if a.Do <= DeleteBudget {
			what = a.Pod.Node
		}
		out = append(out, a.Do.String()+" "+what)
	}
	for _, b := range d.Blockers {
		out = append(out, "blocked by "+b.Replica.Name+": "+b.Why)
	}
	if d.Unknown != "" {
		out = append(out, "unknown: "+d.Unknown)
	}
	for _, o := range d.Oddities {
		out = append(out, string(o.Reason)+": "+o.Detail)
	}
	return out
}

func stopped(r *storage.Replica)  { r.Running = false }
func failed(r *storage.Replica)   { r.Healthy = false }
func unused(r *storage.Replica)   { r.Started, r.Healthy, r.Running = false, false, false }
func building(r *storage.Replica) { r.Started, r.Healthy = false, false }
func ours(r *storage.Replica)     { r.Ours, r.Evicting = true, true }
func refused(r *storage.Replica)  { r.Ours, r.Evicting = true, false }
func theirs(r *storage.Replica)   { r.Evicting = true }
func unknown(r *storage.Replica)  { r.Unknown = "no spec" }
func wanted(r *storage.Replica)   { r.Wanted = true }

// What each policy makes of a cordoned node.
func TestPolicies(t *testing.T) {
	const (
		letGo = "delete budget n1"
		last  = "blocked by v-n1: no other replica of the volume is healthy"
	)
	const dark = "blocked by v-n1: some of its state is unknown: no spec"
	there := "blocked by v-n1: it has not left yet"
	ask := "request eviction v-n1"
	for _, tt := range []struct {
		name string
		has  []storage.Replica
		edit func(*View)
		// Of block-if-last, allow-if-stopped, always-allow, block-for-eviction, block-for-eviction-if-last.
		want [5][]string
	}{
		{"no replicas", nil, nil, [5][]string{{letGo}, {letGo}, {letGo}, {letGo}, {letGo}}},
		{"the last replica", []storage.Replica{replica("v", "n1")}, nil,
			[5][]string{{last}, {last}, {letGo}, {ask, there}, {ask, last}}},
		{"the last replica, stopped", []storage.Replica{replica("v", "n1", stopped)}, nil,
			[5][]string{{last}, {letGo}, {letGo}, {ask, there}, {ask, last}}},
		{"a healthy one elsewhere", []storage.Replica{replica("v", "n1"), replica("v", "n2")}, nil,
			[5][]string{{letGo}, {letGo}, {letGo}, {ask, there}, {letGo}}},
		{"a failed one elsewhere", []storage.Replica{replica("v", "n1"), replica("v", "n2", failed)}, nil,
			[5][]string{{last}, {last}, {letGo}, {ask, there}, {ask, last}}},
		{"one elsewhere that was never started",
			[]storage.Replica{replica("v", "n1"),
				replica("v", "n2", unused, func(r *storage.Replica) { r.Healthy = true })}, nil,
			[5][]string{{last}, {last}, {letGo}, {ask, there}, {ask, last}}},
		{"a second one on the same node",
			[]storage.Replica{replica("v", "n1"),
				replica("v", "n1", func(r *storage.Replica) { r.Name, r.UID = "w", "w" })}, nil,
			[5][]string{
				{last, "blocked by w: no other replica of the volume is healthy"},
				{last, "blocked by w: no other replica of the volume is healthy"}, {letGo},
				{ask, "request eviction w", there, "blocked by w: it has not left yet"},
				{ask, "request eviction w", last, "blocked by w: no other replica of the volume is healthy"},
			}},
		{"a volume that was never started", []storage.Replica{replica("v", "n1", unused)}, nil,
			[5][]string{{letGo}, {letGo}, {letGo}, {ask, there}, {letGo}}},
		{"being built from the last one", []storage.Replica{replica("v", "n1", building), replica("v", "n2")},
			func(v *View) { v.Nodes["n2"] = Node{Cordoned: true} },
			[5][]string{
				{"blocked by v-n1: the volume's replica on node n2 is not safe either: the node is cordoned, too"},
				{"blocked by v-n1: the volume's replica on node n2 is not safe either: the node is cordoned, too"},
				{letGo},
				{ask, there}, {ask, "blocked by v-n1: the volume's replica on node n2 is not safe either: the node " +
					"is cordoned, too"},
			}},
		{"the node's mode begins nothing", []storage.Replica{replica("v", "n1", ours)},
			func(v *View) { v.Nodes["n1"] = Node{Cordoned: true, Withdrawn: true} },
			[5][]string{{"cancel eviction v-n1", letGo}, {"cancel eviction v-n1", letGo},
				{"cancel eviction v-n1", letGo},
				{"cancel eviction v-n1", letGo}, {"cancel eviction v-n1", letGo}}},
		{"its mode begins nothing, and nothing is known", []storage.Replica{replica("v", "n1")}, func(v *View) {
			v.Nodes["n1"], v.Storage.(*memory).missing = Node{Cordoned: true, Withdrawn: true}, "not listed yet"
		}, [5][]string{{letGo}, {letGo}, {letGo}, {letGo}, {letGo}}},
		{"asked already", []storage.Replica{replica("v", "n1", ours)}, nil,
			[5][]string{{"cancel eviction v-n1", last}, {"cancel eviction v-n1", last}, {"cancel eviction v-n1", letGo},
				{there},
				{last}}},
		{"asked, and its copy elsewhere is healthy: the request stands",
			[]storage.Replica{replica("v", "n1", ours), replica("v", "n2")}, nil,
			[5][]string{{"cancel eviction v-n1", letGo}, {"cancel eviction v-n1", letGo},
				{"cancel eviction v-n1", letGo}, {there},
				{letGo}}},
		{"asked by somebody else", []storage.Replica{replica("v", "n1", theirs)}, nil,
			[5][]string{{last}, {last}, {letGo}, {there}, {last}}},
		{"asked, and taken back by somebody else", []storage.Replica{replica("v", "n1", refused)}, nil,
			[5][]string{{"cancel eviction v-n1", last}, {"cancel eviction v-n1", last}, {"cancel eviction v-n1", letGo},
				{"blocked by v-n1: another client canceled its eviction"}, {last}}},
		{"the node is down", []storage.Replica{replica("v", "n1", ours)},
			func(v *View) { v.Nodes["n1"] = Node{Cordoned: true, Down: true} },
			[5][]string{
				{"cancel eviction v-n1", last}, {"cancel eviction v-n1", last}, {"cancel eviction v-n1", letGo},
				{"cancel eviction v-n1", "blocked by v-n1: its node is down, so nothing can be copied from it"},
				{"cancel eviction v-n1", last},
			}},
		{"nothing is known", []storage.Replica{replica("v", "n1", ours)},
			func(v *View) { v.Storage.(*memory).missing = "not listed yet" },
			[5][]string{{"unknown: not listed yet"}, {"unknown: not listed yet"}, {letGo}, {"unknown: not listed yet"},
				{"unknown: not listed yet"}}},
		{"there is no storage", nil, func(v *View) { v.Storage = nil },
			[5][]string{{"unknown: the state of the storage system is unknown"},
				{"unknown: the state of the storage system is unknown"}, {letGo},
				{"unknown: the state of the storage system is unknown"},
				{"unknown: the state of the storage system is unknown"}}},
		{"a replica of which not all is known",
			[]storage.Replica{replica("v", "n1", ours, unknown, unused), replica("v", "n2")}, nil,
			[5][]string{{dark}, {dark}, {letGo}, {dark}, {dark}}},
		{"one elsewhere of which not all is known", []storage.Replica{replica("v", "n1"), replica("v", "n2", unknown)},
			nil,
			[5][]string{{last}, {last}, {letGo}, {ask, there}, {ask, last}}},
		{"a replica of nobody knows what", []storage.Replica{replica("", "n1"), replica("", "n2")}, nil,
			[5][]string{
				{"blocked by -n1: its volume is unknown"},
				{"blocked by -n1: its volume is unknown"}, {letGo},
				{"request eviction -n1", "blocked by -n1: it has not left yet"},
				{"request eviction -n1", "blocked by -n1: its volume is unknown"},
			}},
	} {
		for i, p := range []Policy{BlockIfLast, AllowIfStopped, AlwaysAllow, BlockForEviction, BlockForEvictionIfLast} {
			t.Run(tt.name+"/"+string(p), func(t *testing.T) {
				v := scene(p, tt.has...)
				if tt.edit != nil {
					tt.edit(&v)
				}
				d := DecideNode(v, "n1")
				if diff := cmp.Diff(tt.want[i], told(d)); diff != "" {
					t.Errorf("Step (-want +got):\n%s", diff)
				}
				if held := d.IsBlocked() == d.Held; !held {
					t.Errorf("held by a budget: got %t, want %t", d.Held, d.IsBlocked())
				}
			})
		}
	}
	if d := DecideNode(scene("", replica("v", "n1"), replica("v", "n2")), "n1"); !d.IsBlocked() || len(d.Acts) > 0 {
		t.Errorf("an unknown policy: got %q, want it to hold up everything", told(d))
	}
}

// What keeps a healthy replica elsewhere from counting.
func TestElsewhere(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*View)
		why  string // "": it counts
	}{
		{"all is well", func(*View) {}, ""},
		{"its node is cordoned", func(v *View) { v.Nodes["n2"] = Node{Cordoned: true} }, "the node is cordoned, too"},
		{"its node is down", func(v *View) { v.Nodes["n2"] = Node{Down: true} }, "the node is down"},
		{"its node does not exist", func(v *View) { delete(v.Nodes, "n2") }, "the node does not exist"},
		{"no storage pod", func(v *View) { v.Pods = slices.Delete(v.Pods, 1, 2) },
			"no pod of the storage system is on it"},
		{"the storage pod has finished", func(v *View) { v.Pods[1].Finished = true },
			"no pod of the storage system is on it"},
		{"the storage pod does not run", func(v *View) { v.Pods[1].Ready = false },
			"its pod storage/engine-n2 is not ready"},
		{"a second storage pod does not run", func(v *View) {
			p := pod("n2")
			p.Name, p.UID, p.Ready, p.Labels = "more", "more", false,
				map[string]string{"app": "engine", identity: "n2-more"}
			v.Pods = append(v.Pods, p)
			v.Budgets = append(v.Budgets, budget(p))
		}, "its pod storage/more is not ready"},
		{"no budget", func(v *View) { v.Budgets = slices.Delete(v.Budgets, 1, 2) },
			"its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
		{"its budget goes", func(v *View) { v.Budgets[1].Deleting = true },
			"its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
		{"its budget was changed", func(v *View) { v.Budgets[1].Whole = false },
			"its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
		{"its budget is another guard's", func(v *View) { v.Budgets[1].Guard = "other" },
			"its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
		{"it is being evicted", func(v *View) { v.Storage.(*memory).replicas[1].Evicting = true },
			"it is being evicted"},
		{"a second budget", func(v *View) {
			b := v.Budgets[1]
			b.Guard, b.UID = "", "b-theirs"
			v.Budgets = append(v.Budgets, b)
		}, "its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
		{"its budget selects another pod, too", func(v *View) { v.Pods[2].Labels[identity] = "n2" },
			"its pod storage/engine-n2 has no PodDisruptionBudget of ours"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := scene(BlockIfLast, replica("v", "n1"), replica("v", "n2"))
			tt.edit(&v)
			var want []string
			if want = []string{"delete budget n1"}; tt.why != "" {
				want = []string{"blocked by v-n1: the volume's replica on node n2 is not safe either: " + tt.why}
			}
			if diff := cmp.Diff(want, told(DecideNode(v, "n1"))); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
		})
	}
}

// The budgets before the pods of nodes, cordoned or not.
func TestBudgets(t *testing.T) {
	foreign := func(v *View, match map[string]string) {
		b := SeeBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "theirs", UID: "theirs"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: match},
				MaxUnavailable: &intstr.IntOrString{IntVal: 1}},
		})
		v.Budgets = append(v.Budgets, b)
	}
	aside := func(v *View, guard string) { // n1's budget is before no pod
		b := v.Guard.BudgetFor(pod("n1"))
		b.Labels[taint.DrainGuardLabel], b.Spec.Selector.MatchLabels[identity] = guard, "n9"
		v.Budgets[0] = seen(b)
	}
	one := map[string]string{identity: "n1"}
	const notOurs = "DrainGuardedByOther: storage/engine-n1 (PodDisruptionBudget theirs)"
	const last = "blocked by v-n1: no other replica of the volume is healthy"
	for _, tt := range []struct {
		name string
		edit func(*View)
		want []string
	}{
		{"one is there", func(*View) {}, nil},
		{"none is there", func(v *View) { v.Budgets = v.Budgets[1:] }, []string{"create budget n1"}},
		{"none is there, and the node was cordoned already",
			func(v *View) { v.Budgets, v.Nodes["n1"] = v.Budgets[1:], Node{Cordoned: true} }, []string{
				"create budget n1", last}},
		{"none is there, and nothing is known", func(v *View) { v.Budgets, v.Storage = v.Budgets[1:], nil },
			[]string{"create budget n1"}},
		{"the pod does not run yet", func(v *View) { v.Budgets, v.Pods[0].Ready = v.Budgets[1:], false },
			[]string{"create budget n1"}},
		{"the pod has finished", func(v *View) { v.Budgets, v.Pods[0].Finished = v.Budgets[1:], true }, nil},
		{"it was changed", func(v *View) { v.Budgets[0].Whole = false }, []string{"restore budget n1"}},
		{"it was made one for other pods", func(v *View) { aside(v, "disks") }, []string{"restore budget n1"}},
		{"the same, and it is going away", func(v *View) { aside(v, "disks"); v.Budgets[0].Deleting = true }, nil},
		{"somebody else has its name", func(v *View) { aside(v, "") }, []string{
			"DrainNotGuarded: storage/engine-n1 needs a PodDisruptionBudget named " +
				guardWith(BlockIfLast).BudgetFor(pod("n1")).Name + ", and another client has one",
		}},
		{"somebody has its name in another namespace", func(v *View) { aside(v, ""); v.Budgets[0].Namespace = "other" },
			[]string{"create budget n1"}},
		{"it was made one for another pod", func(v *View) {
			b := v.Guard.BudgetFor(pod("n2"))
			b.Name = v.Guard.BudgetFor(pod("n1")).Name
			v.Budgets[0] = seen(b)
		}, []string{"restore budget n1"}},
		{"it is going away", func(v *View) { v.Budgets[0].Deleting = true }, nil},
		{"there are two of ours", func(v *View) {
			b := v.Budgets[0]
			b.UID = "again"
			v.Budgets = append(v.Budgets, b)
		}, []string{"delete budget n1"}},
		{"somebody else's alone", func(v *View) { v.Budgets = v.Budgets[1:]; foreign(v, one) }, []string{notOurs}},
		{"somebody else's for all pods", func(v *View) { v.Budgets = v.Budgets[1:]; foreign(v, nil) },
			[]string{notOurs}},
		{"somebody else's beside ours", func(v *View) { foreign(v, one) }, []string{"delete budget n1", notOurs}},
		{"somebody else's beside ours, and the data would be lost",
			func(v *View) { foreign(v, one); v.Nodes["n1"] = Node{Cordoned: true} }, []string{last, notOurs}},
		{"somebody else's for other pods", func(v *View) { foreign(v, map[string]string{identity: "n9"}) }, nil},
		{"somebody else's in another namespace", func(v *View) { foreign(v, one); v.Budgets[3].Namespace = "other" },
			nil},
		{"a selector that nobody can read", func(v *View) {
			v.Budgets[0] = SeeBudget(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "theirs", UID: "theirs"},
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nearly"}}}},
			})
		}, []string{notOurs}},
		{"a DaemonSet's pod", func(v *View) { v.Budgets, v.Pods[0].Daemon = v.Budgets[1:], true },
			[]string{"DrainNotGuarded: storage/engine-n1 belongs to a DaemonSet, and no drain evicts it"}},
		{"the labels do not tell it from others",
			func(v *View) { v.Budgets, v.Pods[0].Labels = v.Budgets[1:], map[string]string{"app": "engine"} },
			[]string{"DrainNotGuarded: storage/engine-n1 lacks a label that identifies it (" +
				identity + ")"}},
		{"another pod has the same labels",
			func(v *View) { v.Budgets, v.Pods[1].Labels = v.Budgets[1:], v.Pods[0].Labels },
			[]string{"DrainNotGuarded: storage/engine-n1 has the same labels as storage/engine-n2"}},
		{"another pod has the same labels for a while", func(v *View) { v.Pods[1].Labels = v.Pods[0].Labels },
			[]string{"DrainNotGuarded: storage/engine-n1 has the same labels as storage/engine-n2"}},
		{"a request of ours on a node that was uncordoned",
			func(v *View) { v.Storage = &memory{replicas: []storage.Replica{replica("v", "n1", ours)}} }, []string{
				"cancel eviction v-n1"}},
		{"the same, and somebody else wants it, too",
			func(v *View) { v.Storage = &memory{replicas: []storage.Replica{replica("v", "n1", ours, wanted)}} }, nil},
		{"the same, where our request does not stand",
			func(v *View) {
				v.Storage = &memory{replicas: []storage.Replica{replica("v", "n1", refused, wanted)}}
			}, []string{"cancel eviction v-n1"}},
		{"a request of somebody else's",
			func(v *View) { v.Storage = &memory{replicas: []storage.Replica{replica("v", "n1", theirs)}} }, nil},
		{"a Node that was deleted", func(v *View) {
			delete(v.Nodes, "n1")
			v.Storage = &memory{replicas: []storage.Replica{replica("v", "n1", ours)}}
		}, []string{"cancel eviction v-n1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := scene(BlockForEvictionIfLast, replica("v", "n1", theirs))
			v.Nodes["n1"] = Node{}
			tt.edit(&v)
			if diff := cmp.Diff(tt.want, told(DecideNode(v, "n1"))); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
		})
	}
	for _, cordoned := range []bool{false, true} {
		v := scene(AlwaysAllow, replica("v", "n1"))
		v.Nodes["n1"] = Node{Cordoned: cordoned}
		if diff := cmp.Diff([]string{"delete budget n1"}, told(DecideNode(v, "n1"))); diff != "" {
			t.Errorf("always-allow, cordoned %t (-want +got):\n%s", cordoned, diff)
		}
	}
}

// Auto is true for our requests that stand, and for no others.
func TestAuto(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*storage.Replica)
		want bool
	}{"ours": {ours, true}, "theirs": {theirs, false}, "ours, taken back": {refused, false}} {
		if d := DecideNode(scene(BlockForEviction, replica("v", "n1", tt.edit)), "n1"); d.Auto != tt.want || !d.Seen {
			t.Errorf("%s: got %t, want %t", name, d.Auto, tt.want)
		}
	}
	v := scene(BlockForEviction, replica("v", "n1", ours))
	v.Storage.(*memory).missing = "away"
	if d := DecideNode(v, "n1"); d.Seen {
		t.Error("nothing is known: got it seen")
	}
}

// Of two budgets of ours before a pod the one with its name stays: the other was made for another pod, which gets it
// back.
func TestTwoBudgets(t *testing.T) {
	v := scene(BlockIfLast)
	b := v.Guard.BudgetFor(pod("n1"))
	b.Name = v.Guard.BudgetFor(pod("n2")).Name
	v.Budgets[1] = seen(b)
	slices.Reverse(v.Budgets)
	v.Nodes["n1"] = Node{}
	d := DecideNode(v, "n1")
	if len(d.Acts) != 1 || d.Acts[0].Do != DeleteBudget || d.Acts[0].Budget.Name != b.Name {
		t.Errorf("before n1: got %v %v, want the other's let go", told(d), d.Acts)
	}
	if diff := cmp.Diff([]string{"restore budget n2"}, told(DecideNode(v, "n2"))); diff != "" {
		t.Errorf("before n2 (-want +got):\n%s", diff)
	}
}

// A budget that is before no pod goes with its node, or once the node has another; it outlives a pod that is only being
// replaced.
func TestLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*View)
		want []string
	}{
		"its pod is there":                 {func(*View) {}, nil},
		"its pod is away":                  {func(v *View) { v.Pods = v.Pods[1:] }, nil},
		"its pod has finished":             {func(v *View) { v.Pods[0].Finished = true }, nil},
		"its node is gone, its pod is not": {func(v *View) { delete(v.Nodes, "n1") }, nil},
		"pod and node are gone": {func(v *View) { v.Pods = v.Pods[1:]; delete(v.Nodes, "n1") },
			[]string{v1name}},
		"going already": {func(v *View) {
			v.Pods = v.Pods[1:]
			delete(v.Nodes, "n1")
			v.Budgets[0].Deleting = true
		}, nil},
		"somebody else's": {func(v *View) {
			v.Pods = v.Pods[1:]
			delete(v.Nodes, "n1")
			v.Budgets[0].Guard = ""
		}, nil},
		"its pod is away, and nobody is asked": {func(v *View) { v.Pods = v.Pods[1:]; v.Guard.Policy = AlwaysAllow },
			[]string{v1name}},
		"a pod of another name took its place": {func(v *View) {
			v.Pods[0].Labels = map[string]string{"app": "engine", identity: "n1-new"}
			v.Budgets = append(v.Budgets, budget(v.Pods[0]))
		}, []string{v1name}},
		"a pod of another name is not guarded yet": {func(v *View) {
			v.Pods[0].Labels = map[string]string{"app": "engine", identity: "n1-new"}
		}, nil},
	} {
		v := scene(BlockIfLast)
		tt.edit(&v)
		var got []string
		for _, a := range DecideLeftovers(v) {
			if a.Do != DeleteBudget {
				t.Errorf("%s: got %s", name, a.Do)
			}
			got = append(got, a.Budget.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

var v1name = budget(pod("n1")).Name

// What is made is seen as ours, before its pod and no other, and is the same each time.
func TestFor(t *testing.T) {
	g := guardWith(BlockIfLast)
	g.Pods.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}
	p := pod("n1")
	p.Labels["tier"] = "disk"
	made := g.BudgetFor(p)
	b := SeeBudget(made)
	stranger := p
	stranger.Labels = map[string]string{identity: "n1"}
	switch {
	case b.Guard != "disks" || b.Node != "n1" || !b.Whole || b.Deleting || b.Namespace != "storage":
		t.Errorf("seen again: got %+v", b)
	case !b.selectsPod(p) || b.selectsPod(pod("n2")) || b.selectsPod(stranger):
		t.Error("selects: want the storage pod, neither another nor a pod of another kind with its label")
	case made.Spec.MinAvailable.IntValue() != 1 || !strings.HasPrefix(made.Name, "forcefence-disks-"):
		t.Errorf("made: got %+v", made)
	case len(g.Pods.MatchLabels) != 1:
		t.Errorf("the guard's selector was changed: %v", g.Pods)
	}
	if diff := cmp.Diff(made, g.BudgetFor(p)); diff != "" {
		t.Errorf("made again:\n%s", diff)
	}
	for name, edit := range map[string]func(*policyv1.PodDisruptionBudget){
		"no minimum":  func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = nil },
		"none at all": func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &intstr.IntOrString{} },
		"unready pods": func(b *policyv1.PodDisruptionBudget) {
			a := policyv1.AlwaysAllow
			b.Spec.UnhealthyPodEvictionPolicy = &a
		},
	} {
		changed := g.BudgetFor(p)
		edit(changed)
		if SeeBudget(changed).Whole {
			t.Errorf("%s: got it whole", name)
		}
	}
	other := g
	other.Policy = AlwaysAllow
	if !g.HasSamePods(other) {
		t.Error("guards that differ in their policy: want them the same")
	}
	for name, edit := range map[string]func(*Guard){
		"name": func(g *Guard) { g.Name = "x" }, "namespace": func(g *Guard) { g.Namespace = "x" },
		"identity":    func(g *Guard) { g.Identity = Identity{"x"} },
		"labels":      func(g *Guard) { g.Pods = &metav1.LabelSelector{} },
		"expressions": func(g *Guard) { g.Pods = &metav1.LabelSelector{MatchLabels: g.Pods.MatchLabels} },
	} {
		other := g
		edit(&other)
		if g.HasSamePods(other) {
			t.Errorf("guards that differ in their %s: got them the same", name)
		}
	}
}

func TestSee(t *testing.T) {
	yes := true
	p := &corev1.Pod{
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	if s := SeePod(p); !s.Ready || s.Finished || s.Daemon {
		t.Errorf("a pod that runs: got %+v", s)
	}
	for name, edit := range map[string]func(*corev1.Pod){
		"not ready":     func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
		"no condition":  func(p *corev1.Pod) { p.Status.Conditions = nil },
		"pending":       func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
		"being deleted": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
	} {
		q := p.DeepCopy()
		edit(q)
		if SeePod(q).Ready {
			t.Errorf("%s: got it up", name)
		}
	}
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		if q := (&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); !SeePod(q).Finished {
			t.Errorf("%s: got it not over", phase)
		}
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
	if !SeePod(p).Daemon {
		t.Error("a DaemonSet's pod: got another's")
	}
	n := &corev1.Node{}
	if s := SeeNode(n); !s.Down || s.Cordoned {
		t.Errorf("a Node that says nothing: got %+v", s)
	}
	n.Spec.Unschedulable = true
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if s := SeeNode(n); s.Down || !s.Cordoned {
		t.Errorf("a Node that is ready and cordoned: got %+v", s)
	}
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	if !SeeNode(n).Down {
		t.Error("a Node whose Ready is Unknown: got it up")
	}
}

func TestProgress(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(1000, 0).UTC().Add(time.Duration(minutes) * time.Minute) }
	const g = "disks"
	with := func(n int) Decision {
		d := Decision{Policy: BlockForEviction, Held: true}
		for i := range n {
			d.Blockers = append(d.Blockers, Blocker{replica(fmt.Sprint("v", i), "n1"), "it has not left yet"})
		}
		return d
	}
	p := NextProgress(nil, g, with(30), at(0))
	if p.Total != 30 || p.Left != 30 || len(p.Volumes) != maxNamed || !p.Since.Equal(at(0)) || p.NoBudget {
		t.Fatalf("begun: got %+v", p)
	}
	if _, _, known := p.Rate(at(5)); known {
		t.Error("nothing has left: got a rate")
	}
	if again := NextProgress(p, g, with(30), at(1)); again != p {
		t.Errorf("nothing changed: got %+v", again)
	}
	p = NextProgress(p, g, with(20), at(5))
	if rate, rest, known := p.Rate(at(5)); !known || rate != 2 || rest != 10*time.Minute {
		t.Errorf("ten in five minutes: got %v, %v, %t", rate, rest, known)
	}
	if p = NextProgress(p, g, with(22), at(6)); p.Total != 32 || !p.Since.Equal(at(0)) {
		t.Errorf("two came: got %+v", p)
	}
	if o := NextProgress(p, "another", with(22), at(7)); o == p || o.Guard != "another" {
		t.Errorf("another guard of the same policy: got %+v", o)
	}
	blind := Decision{Policy: BlockForEviction, Unknown: "not listed", Held: true}
	if u := NextProgress(p, g, blind, at(7)); u.Left != 22 || u.Total != 32 || u.Unknown != "not listed" ||
		u.Summary() != "the state of the storage is unknown: not listed" {
		t.Errorf("nothing is known: got %+v", u)
	}
	if text, want := p.Summary(), "volume v0, replica v0-n1: it has not left yet; and 21 more"; text != want {
		t.Errorf("Summary: got %q, want %q", text, want)
	}
	one := NextProgress(p, g, with(1), at(8))
	if text, want := one.Summary(), "volume v0, replica v0-n1: it has not left yet"; text != want {
		t.Errorf("Summary of the last one: got %q, want %q", text, want)
	}
	bare := with(22)
	bare.Held = false
	if b := NextProgress(p, g, bare, at(8)); !b.NoBudget {
		t.Error("no budget: got it held")
	}
	if over := NextProgress(p, g, Decision{}, at(8)); over != nil {
		t.Errorf("over: got %+v", over)
	}
	other := with(2)
	other.Policy = BlockIfLast
	if o := NextProgress(p, g, other, at(8)); o.Total != 2 || !o.Since.Equal(at(8)) {
		t.Errorf("another policy: got %+v, want a new one", o)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{
				taint.DrainAnnotation: EncodeProgress(map[string]*Progress{"disks": p, "gone": nil})}}}
	if diff := cmp.Diff(map[string]*Progress{"disks": p}, ProgressOf(node)); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	node.Annotations[taint.DrainAnnotation] = "[null, 3]"
	if got := ProgressOf(node); got != nil {
		t.Errorf("nonsense: got %v", got)
	}
	if EncodeProgress(map[string]*Progress{"gone": nil}) != "" {
		t.Error("nothing: got an annotation")
	}
	for _, odd := range []Progress{
		{Guard: "disks\x1b[2J"}, {Policy: "p\n"}, {Unknown: "\u202e"}, {Volumes: []Held{{Volume: "\u009b"}}},
		{Volumes: []Held{{}, {Replica: "\t"}}}, {Volumes: []Held{{Why: "\x07"}}},
	} {
		node.Annotations[taint.DrainAnnotation] = EncodeProgress(map[string]*Progress{"odd": &odd, "disks": p})
		if got := ProgressOf(node); len(got) != 1 || got["disks"] == nil {
			t.Errorf("texts that move a terminal's cursor: got %+v", got)
		}
	}
}

func TestDelegate(t *testing.T) {
	const want, usual = BlockForEviction, BlockIfLast
	for name, tt := range map[string]struct {
		s        Setting
		write    bool
		conflict string
	}{
		"no setting":           {Setting{}, false, "the setting does not exist"},
		"the system's default": {Setting{Exists: true, Value: string(usual)}, true, ""},
		"empty":                {Setting{Exists: true}, true, ""},
		"already so":           {Setting{Exists: true, Value: string(want)}, false, ""},
		"ours of before": {Setting{Exists: true, Value: string(AlwaysAllow), Ours: string(AlwaysAllow)}, true,
			""},
		"somebody chose": {Setting{Exists: true, Value: string(AlwaysAllow)}, false,
			"another client set it to always-allow"},
		"somebody changed ours": {Setting{Exists: true, Value: string(AlwaysAllow), Ours: string(want)}, false,
			"another client changed it to always-allow; forcefence had written block-for-eviction"},
		"somebody took ours back": {Setting{Exists: true, Value: string(usual), Ours: string(want)}, false,
			"another client changed it to block-if-contains-last-replica; forcefence had written block-for-eviction"},
		"per engine": {Setting{Exists: true, Value: `{"v1":"always-allow"}`}, false,
			`another client set it to {"v1":"always-allow"}`},
	} {
		if got := DecideDelegation(want, tt.s, usual); got.Write != tt.write || got.Conflict != tt.conflict {
			t.Errorf("%s: got %+v, want %t, %q", name, got, tt.write, tt.conflict)
		}
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[Do]bool{
		Nothing: false, Protect: false, Restore: false, DeleteBudget: true, RequestEviction: true,
		CancelEviction: true} {
		if begins := d == Protect || d == Restore || d == RequestEviction; d.CanBePaused() != begins {
			t.Errorf("%s begins something: got %t", d, d.CanBePaused())
		}
		if d.NeedsLiveLook() != want || d.String() == "" {
			t.Errorf("%s is careful: got %t, want %t", d, d.NeedsLiveLook(), want)
		}
	}
	a := Act{Do: RequestEviction, Replica: replica("v", "n1")}
	b := Act{Do: RequestEviction, Replica: replica("v", "n1", func(r *storage.Replica) { r.ResourceVersion = "2" })}
	if !a.IsSameAs(b) || a.IsSameAs(Act{Do: CancelEviction, Replica: a.Replica}) ||
		a.IsSameAs(Act{Do: RequestEviction, Replica: replica("v", "n2")}) {
		t.Error("Same: want the same act on the same object in any version")
	}
	if o := reason.RowOf(reason.DrainNotOurs); o.Text == "" {
		t.Error("no text")
	}
}
