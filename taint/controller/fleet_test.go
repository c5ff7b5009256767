package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// clock is time as data.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// What records tell across nodes is known by the watch, of those nodes, too, that nobody looked at: who is being
// powered off (invariant 6), and whose device lied. One that cannot be read tells nothing, and an older one nothing any
// more.
func TestRecordsOfTheWatch(t *testing.T) {
	r := New(Options{Now: time.Now, Key: taint.DefaultKey})
	bmc := taint.MachineRef{Provider: "bmc", ID: "2"}
	node := func(rv string, rec *taint.Record) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", ResourceVersion: rv}}
		if rec != nil {
			n.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
		}
		return n
	}
	is := func(what, busy, liar string) {
		t.Helper()
		r.WithFleet(func(f *fleet.Fleet) {
			if v, l := f.View("n1", providers.InstantOf(r.Now())), f.DistrustingNode(bmc, "", "n1"); v.Busy != busy ||
				l != liar || v.Others != 1 {
				t.Errorf("%s: got busy %q, liar %q, others %d, want %q, %q, 1", what, v.Busy, l, v.Others, busy, liar)
			}
		})
	}
	off := taint.Record{ID: "f", NodeUID: "u", By: "the leader before", Machine: &bmc,
		PowerOff: true}.EnterPhase(taint.PhasePoweringOff, "", time.Now())
	lied := off.EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, time.Now())
	first, second, third := node("1", nil), node("2", &off), node("3", &lied)
	r.onNodeAdded(event.TypedCreateEvent[*corev1.Node]{Object: first})
	is("no record", "", "")
	r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: first, ObjectNew: second})
	is("a power-off", "n2", "")
	r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: second, ObjectNew: third})
	is("a lie", "", "n2")
	r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: first, ObjectNew: second})
	is("the watch is behind", "", "n2")
	bad := node("4", nil)
	bad.Annotations = map[string]string{taint.RecordAnnotation: "{"}
	r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: third, ObjectNew: bad})
	is("one that cannot be read", "", "n2")
}

// cached is an informer's cache of Nodes.
type cached struct {
	client.Reader
	nodes []corev1.Node
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.NodeList).Items = c.nodes
	return nil
}

func (c cached) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	i := slices.IndexFunc(c.nodes, func(n corev1.Node) bool { return n.Name == k.Name })
	c.nodes[i].DeepCopyInto(o.(*corev1.Node))
	return nil
}

// The cache may be ahead of the watch's handlers: the fleet knows what a check saw. An idle node costs no memory.
func TestCheckOfAnIdleNode(t *testing.T) {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "7"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	sinks, _ := sinksTo(nil)
	r := New(Options{Cache: cached{nodes: []corev1.Node{n}}, Now: time.Now, Key: taint.DefaultKey, Config: noMachines,
		Sinks: sinks, Leading: func() error { return nil }})
	st := r.stateOf("n1")
	st.node, st.objects = &n, []corev1.Pod{{}}
	if idle, _, err := r.checkIdle(t.Context(), "n1", st); !idle || err != nil {
		t.Fatalf("idle: got %t, %v", idle, err)
	}
	if st.node != nil || st.objects != nil {
		t.Errorf("kept: got node %v and %d pods, want none", st.node, len(st.objects))
	}
	r.WithFleet(func(f *fleet.Fleet) {
		if v := f.View("n2", providers.InstantOf(r.Now())); v.Others != 1 {
			t.Errorf("nodes that the fleet knows: got %d, want n1", v.Others)
		}
	})
}

// A process that begins to lead knows what records tell of all nodes before it decides on the first.
func TestMeetingTheNodes(t *testing.T) {
	off := taint.Record{ID: "f", NodeUID: "u", By: "the leader before",
		PowerOff: true}.EnterPhase(taint.PhasePoweringOff, "", time.Now())
	nodes := []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n2", ResourceVersion: "2",
			Annotations: map[string]string{taint.RecordAnnotation: off.Encode()}}},
	}
	r := New(Options{Now: time.Now, Key: taint.DefaultKey, Cache: cached{nodes: nodes},
		Config: func() *Config { return &Config{} }})
	must(t, r.loadFleet(t.Context()))
	if v := r.fleetView("n1"); v.Busy != "n2" || v.Others != 1 {
		t.Errorf("got busy %q of %d others, want n2 of one", v.Busy, v.Others)
	}
}
