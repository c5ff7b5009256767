package drills

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/kit"
)

// While the node is healthy, the Event and the log say why a device cannot be asked: the error's class and its cause,
// cleaned.
func TestDrillReportsTheCause(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{providers.WithClass(providers.ErrUntrusted,
			errors.New("x509: certificate signed by unknown authority (caFile)")),
			"(untrusted: x509: certificate signed by unknown authority (caFile))"},
		{providers.WithClass(providers.ErrDenied, errors.New("401 Unauthorized (IDRAC.2.1.RAC0218)")),
			"(denied: 401 Unauthorized (IDRAC.2.1.RAC0218))"},
		{providers.WithClass(providers.ErrUnreachable,
			errors.New("dial tcp 192.0.2.1:443: connect: no route to host\x1b[2J")),
			"(unreachable: dial tcp 192.0.2.1:443: connect: no route to host"},
	} {
		log, recorder := &bytes.Buffer{}, events.NewFakeRecorder(5)
		config := &controller.Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
			return machine.Machine{Provider: broken{tc.err}, Name: "racks", Device: "racks/bmc1"}, nil
		}}}
		p := New(Options{
			Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil)), Events: recorder,
			Leading: func() error { return nil },
		})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		f := drill.FindingOf(AskDevices(t.Context(), config, node, nobodyLies, providers.Now))
		p.reportFinding(node, "", f)
		if f.Result != providers.ErrorClass(tc.err) || strings.Contains(f.Detail+f.Message, "\x1b") {
			t.Errorf("got %+v", f)
		}
		if e := <-recorder.Events; !strings.Contains(e, tc.want) || !strings.Contains(log.String(), tc.want) {
			t.Errorf("got Event %q\nand log %q\nwant %q in both", e, log, tc.want)
		}
	}
}

// reads counts what is read live.
type reads struct {
	client.Reader
	n atomic.Int32
}

func (r *reads) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	r.n.Add(1)
	return r.Reader.Get(ctx, k, o, opts...)
}

// The condition says whether the node could be fenced now. It is written when that changes, and at no other time is the
// API server asked; a device that is not reached for once is not yet False. The metrics count each node, and each
// device, once.
func TestDrillWritesTheCondition(t *testing.T) {
	w := newWorld(t)
	p := w.drills(0)
	live := &reads{Reader: p.Live}
	p.Live = live
	steps := []struct {
		name   string
		change func()
		status corev1.ConditionStatus
		reason string
		writes int
		told   string // an Event that came
		metric string // of forcefence_drill_devices: its result is 1
	}{
		{"all is well", func() {}, corev1.ConditionTrue, "MachineAnswers", 2, "", "ok"}, // its device named it, too
		{"still", func() {}, corev1.ConditionTrue, "MachineAnswers", 0, "", "ok"},
		{"off is an answer", func() { w.machines["n4"].on = false }, corev1.ConditionTrue, "MachineAnswers", 1, "",
			"ok"},
		{"fenced since", func() {
			w.change("n4", func(n *corev1.Node) {
				n.Annotations = map[string]string{
					taint.RecordAnnotation: taint.Record{ID: "f-1", NodeUID: string(n.UID),
						By: "test"}.EnterPhase(taint.PhaseDone, taint.ResultEvicted, w.Now().Add(time.Second)).Encode()}
			})
			w.pass(2 * time.Second)
		}, corev1.ConditionTrue, "MachineAnswers", 1, "", "ok"},
		{"said since", func() {}, corev1.ConditionTrue, "MachineAnswers", 0, "", "ok"},
		{"not reached", func() { w.machines["n4"].deaf = true }, corev1.ConditionUnknown, "MachineNotAnswering", 1,
			"MachineNotAnswering n4", "unreachable"},
		{"not reached again", func() {}, corev1.ConditionFalse, "MachineNotAnswering", 1, "", "unreachable"},
		{"nor a third time", func() {}, corev1.ConditionFalse, "MachineNotAnswering", 0, "", "unreachable"},
		{"back", func() { w.machines["n4"].deaf = false }, corev1.ConditionTrue, "MachineAnswers", 1,
			"MachineAnswers n4", "ok"},
		{"another machine", func() { w.machines["n4"].uuid = "99999999-7742-3448-3784-823347823834" },
			corev1.ConditionFalse, "MachineNotAnswering", 1, "", "identity"},
	}
	for _, tt := range steps {
		tt.change()
		w.told.said = nil
		live.n.Store(0)
		before := w.version()
		c := w.drilled(p, "n4")
		if c.Status != tt.status || c.Reason != tt.reason || w.version()-before != tt.writes ||
			strings.ContainsAny(c.Message, "0") {
			t.Errorf("%s: got %s, %s, %q, %d writes, want %s, %s, %d", tt.name, c.Status, c.Reason, c.Message,
				w.version()-before, tt.status, tt.reason, tt.writes)
		}
		if (live.n.Load() > 0) != (tt.writes > 0) {
			t.Errorf("%s: the API server was read %d times for %d writes", tt.name, live.n.Load(), tt.writes)
		}
		if tt.told != "" && !w.told.has(tt.told) || tt.told == "" && tt.writes == 0 && len(w.told.said) > 0 {
			t.Errorf("%s: got Events %q, want %q", tt.name, w.told.said, tt.told)
		}
		m := p.Metrics
		if n := testutil.ToFloat64(m.devices.WithLabelValues("racks", tt.metric)); n != 1 {
			t.Errorf("%s: got %v devices that are %s, want 1", tt.name, n, tt.metric)
		}
		if ok, want := testutil.ToFloat64(m.machines.WithLabelValues("ok")), map[bool]float64{
			true: 1}[tt.metric == "ok"]; ok != want {
			t.Errorf("%s: got %v nodes that are ok, want %v", tt.name, ok, want)
		}
	}
}

// silence makes a node not Ready.
func silence(w *world, name string) {
	w.t.Helper()
	n := w.node(name)
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(w.Now())
		}
	}
	must(w.t, w.fake.Status().Update(w.t.Context(), n))
}

// A drill writes the devices' answers as data, in the same write as the condition. An answer that stays the same is
// written again once in an outage: what it was before says nothing about now.
func TestDrillWritesAnswers(t *testing.T) {
	w := newWorld(t)
	d := w.drills(0)
	first := w.drilled(d, "n4").LastHeartbeatTime
	got := drill.AnswersIn(w.node("n4"))
	want := []drill.DeviceAnswer{{Device: "racks/bmc-9", Power: "On"}}
	if got.Power != providers.PowerOn || !slices.Equal(got.Devices, want) ||
		!got.At.Equal(first.Truncate(time.Second)) {
		t.Errorf("got %+v, want On of racks/bmc-9 at %s", got, first)
	}
	w.pass(time.Hour)
	silence(w, "n4")
	w.pass(time.Minute)
	before := w.version()
	w.drilled(d, "n4")
	again := drill.AnswersIn(w.node("n4"))
	if w.version() != before+1 || again.At.Sub(got.At) < time.Hour || !again.IsSame(got) {
		t.Errorf("in the outage: got %+v after %d writes, want the same answer at another time", again,
			w.version()-before)
	}
	w.pass(5 * time.Minute)
	if w.drilled(d, "n4"); w.version() != before+1 {
		t.Errorf("later in the outage: got %d writes, want none", w.version()-before-1)
	}
	w.change("n4", func(n *corev1.Node) { n.Annotations[taint.DrillAnnotation] = "{half a" })
	if w.drilled(d, "n4"); drill.AnswersIn(w.node("n4")).Power != providers.PowerOn {
		t.Error("answers that cannot be read are not written again")
	}
}

// A drill notes on the Node which device named its machine. From then on an answer of that device without the name is
// no answer. A person who removes the label lets the device answer without it.
func TestDrillNotesWhoNamedTheMachine(t *testing.T) {
	w := newWorld(t)
	d := w.drills(0)
	label := func() string { return w.node("n4").Labels[taint.NamedLabel] }
	uuid := w.machines["n4"].uuid
	for _, tt := range []struct {
		name   string
		change func()
		named  bool
		status corev1.ConditionStatus
	}{
		{"names none", func() { w.machines["n4"].uuid = "" }, false, corev1.ConditionTrue},
		{"names another machine", func() { w.machines["n4"].uuid = "99999999-7742-3448-3784-823347823834" }, false,
			corev1.ConditionFalse},
		{"does not answer", func() { w.machines["n4"].uuid, w.machines["n4"].deaf = uuid, true }, false,
			corev1.ConditionFalse},
		{"names it", func() { w.machines["n4"].deaf = false }, true, corev1.ConditionTrue},
		{"names none any more", func() { w.machines["n4"].uuid = "" }, true, corev1.ConditionFalse},
		{"nor when it is off", func() { w.machines["n4"].on = false }, true, corev1.ConditionFalse},
		{"a person removed the label", func() {
			w.change("n4", func(n *corev1.Node) { delete(n.Labels, taint.NamedLabel) })
		}, false, corev1.ConditionTrue},
	} {
		tt.change()
		c := w.drilled(d, "n4")
		m := taint.MachineRef{Provider: "racks", ID: "bmc-9/n4"}
		if m.IsNamed(label()) != tt.named || (label() != "") != tt.named || c.Status != tt.status {
			t.Errorf("%s: got label %q, condition %+v; want %s, named: %t", tt.name, label(), c, tt.status, tt.named)
		}
	}
}

// What a drill heard of a machine is not written to a Node that was created again meanwhile, nor to one that is fenced.
func TestDrillNotesNothingOfAnotherLife(t *testing.T) {
	for name, change := range map[string]func(*world){
		"created again": func(w *world) {
			n := w.node("n4")
			must(w.t, w.api.Delete(w.t.Context(), n))
			n.UID, n.ResourceVersion = "uid-of-a-later-n4", ""
			must(w.t, w.api.Create(w.t.Context(), n))
		},
		"marked": func(w *world) {
			w.change("n4", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "f-1",
					Effect: corev1.TaintEffectNoSchedule}}
			})
		},
		"": func(*world) {},
	} {
		w := newWorld(t)
		d, cached := w.drills(0), w.node("n4")
		seen := AskDevices(t.Context(), d.Config(), cached, nobodyLies, d.Now.Instant)
		change(w)
		err := d.writeNamed(t.Context(), cached, seen)
		if label := w.node("n4").Labels[taint.NamedLabel]; err != nil || (label != "") != (name == "") {
			t.Errorf("%q: got label %q, error %v", name, label, err)
		}
	}
}

// A Node that others write at the same moment is read and written again.
func TestDrillWritesAfterConflicts(t *testing.T) {
	for _, tt := range []struct {
		conflicts int
		want      corev1.ConditionStatus
	}{{0, corev1.ConditionTrue}, {2, corev1.ConditionTrue}, {1000, ""}} {
		w := newWorld(t)
		p, left := w.drills(0), tt.conflicts
		p.writer.Client = interceptor.NewClient(w.api.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
				opts ...client.SubResourcePatchOption,
			) error {
				if left--; left >= 0 {
					return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, o.GetName(),
						errors.New("changed"))
				}
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		})
		if got := w.drilled(p, "n4").Status; got != tt.want {
			t.Errorf("%d conflicts: got %q, want %q", tt.conflicts, got, tt.want)
		}
	}
}

// A node that is marked, or whose fence is open, is left to its fence: it is not asked, nor written.
func TestDrillLeavesFencedNodesAlone(t *testing.T) {
	w := newWorld(t)
	p := w.drills(0)
	w.change("n4", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "manual", Effect: corev1.TaintEffectNoSchedule}}
	})
	if c := w.drilled(p, "n4"); c.Status != "" || len(p.found) > 0 {
		t.Errorf("marked: got %+v, %v", c, p.found)
	}
	w.change("n4", func(n *corev1.Node) {
		n.Spec.Taints = nil
		n.Annotations = map[string]string{taint.RecordAnnotation: "no record"}
	})
	if c := w.drilled(p, "n4"); c.Status != "" || len(p.found) > 0 {
		t.Errorf("a record that cannot be read: got %+v, %v", c, p.found)
	}
	// The fence began after the cache was read.
	w.change("n4", func(n *corev1.Node) { n.Annotations = nil })
	cached := w.node("n4")
	w.change("n4", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "f-1", Effect: corev1.TaintEffectNoSchedule}}
	})
	before := w.version()
	if err := p.writeCondition(t.Context(), cached, drill.Finding{Fenceable: corev1.ConditionTrue},
		drill.Answers{}); err != nil || w.version() != before {
		t.Errorf("marked just now: got error %v, %d writes", err, w.version()-before)
	}
}

// A node is drilled at once when it is Ready again and its fence is over, whichever of the two comes last.
func TestDrillOnceReady(t *testing.T) {
	ready := func(s corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[1].Status = s }
	}
	mark := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "f-1", Effect: corev1.TaintEffectNoSchedule}}
	}
	unmark := func(n *corev1.Node) { n.Spec.Taints = nil }
	heartbeat := func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime = metav1.Now() }
	for _, tt := range []struct {
		name    string
		changes []func(*corev1.Node)
		want    bool
	}{
		{"a heartbeat", []func(*corev1.Node){heartbeat}, false},
		{"not Ready", []func(*corev1.Node){ready(corev1.ConditionUnknown)}, false},
		{"Ready again", []func(*corev1.Node){ready(corev1.ConditionUnknown), ready(corev1.ConditionTrue)}, true},
		{"Ready, and still marked",
			[]func(*corev1.Node){ready(corev1.ConditionUnknown), mark, ready(corev1.ConditionTrue)}, false},
		{"Ready, then the mark goes",
			[]func(*corev1.Node){ready(corev1.ConditionUnknown), mark, ready(corev1.ConditionTrue), unmark}, true},
		{"the mark goes, then Ready",
			[]func(*corev1.Node){ready(corev1.ConditionUnknown), mark, unmark, ready(corev1.ConditionTrue)}, true},
	} {
		w := newWorld(t)
		d := w.drills(time.Hour)
		d.plan.SetNodes([]string{"n1"})
		for range 2 { // the second comes at a moment of the node's own, the third an hour later
			if name, _ := d.plan.Next(w.Now()); name != "n1" {
				t.Fatalf("%s: got %q to drill, want n1", tt.name, name)
			}
			d.plan.FinishDrill("n1", true, w.Now())
			w.pass(time.Hour)
		}
		w.pass(8*time.Minute - time.Hour) // a drill may be repeated after 6 minutes
		if name, _ := d.plan.Next(w.Now()); name != "" {
			t.Fatalf("%s: %s is due before anything happened", tt.name, name)
		}
		now := w.node("n1")
		for _, change := range tt.changes {
			before := now.DeepCopy()
			change(now)
			d.ObserveUpdate(before, now)
		}
		w.pass(time.Second)
		if name, _ := d.plan.Next(w.Now()); (name == "n1") != tt.want {
			t.Errorf("%s: got %q to drill, want n1: %t", tt.name, name, tt.want)
		}
	}
}

// The leader asks all nodes, forgets deleted ones, and returns when its context ends.
func TestDrills(t *testing.T) {
	w := newWorld(t)
	p := w.drills(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	m := p.Metrics
	kit.Until(t, "every node's devices were asked", func() bool {
		return testutil.ToFloat64(m.machines.WithLabelValues("ok")) == float64(len(worldDevices))
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(m.machines.WithLabelValues("ok")); n != float64(len(worldDevices)) {
		t.Errorf("got %v nodes that were asked, want %d", n, len(worldDevices))
	}
	must(t, w.api.Delete(context.Background(), w.node("n4")))
	p.listed = p.listed.Add(-time.Hour) // it is listed again
	if name, _ := p.nextNode(ctx); name != "" {
		t.Errorf("after the end: got node %s to ask", name)
	}
	if n := testutil.ToFloat64(m.machines.WithLabelValues("ok")); n != float64(len(worldDevices)-1) {
		t.Errorf("a node is gone: got %v, want %d", n, len(worldDevices)-1)
	}
}

// Drills share the memory across nodes with fences: what a record says of a device they believe, and an On they tell.
func TestDrillSharesTheFleet(t *testing.T) {
	w := newWorld(t)
	p := w.drills(0)
	onAt := func() (at providers.Instant) {
		w.r.WithFleet(func(f *fleet.Fleet) { at = f.View("n4", p.Now.Instant()).OnAt })
		return at
	}
	w.r.WithFleet(func(f *fleet.Fleet) {
		f.ApplyLook(taint.NewLook(w.node("n4"), nil, taint.DefaultKey, p.Now.Instant(), p.Now.Instant()),
			p.Now.Instant())
	})
	if !onAt().IsZero() {
		t.Fatal("the fleet knows an On that no device reported")
	}
	if c := w.drilled(p, "n4"); c.Status != corev1.ConditionTrue || onAt().IsZero() {
		t.Errorf("got %+v, and an On of %v, want both", c, onAt())
	}
	w.machines["n4"].on = false
	w.r.WithFleet(func(f *fleet.Fleet) {
		f.ApplyRecord("n2", "9", &taint.Record{ID: "f-2", FalseOffs: []taint.DeviceRef{{Device: "racks/bmc-9"}}},
			p.Now.Instant())
	})
	if c := w.drilled(p, "n4"); c.Status != corev1.ConditionFalse || c.Reason != string(reason.Distrusted) {
		t.Errorf("the record of n2 says that its device lied: got %+v", c)
	}
	if n := testutil.ToFloat64(p.Metrics.devices.WithLabelValues("racks", "distrusted")); n != 1 {
		t.Errorf("got %v distrusted devices, want 1", n)
	}
}

// After a change of the configuration every node is asked again, and its condition is written again even if the answer
// is the same. An answer of the former configuration's devices is not written.
func TestDrillsAfterConfigChange(t *testing.T) {
	w := newWorld(t)
	d := w.drills(0)
	first := w.drilled(d, "n4").LastHeartbeatTime
	must(t, d.listNodes(t.Context()))
	asked := func() (names []string) {
		for {
			name, _ := d.plan.Next(d.Now())
			if name == "" {
				return names
			}
			d.plan.FinishDrill(name, true, d.Now())
			names = append(names, name)
		}
	}
	if got := asked(); len(got) != len(worldDevices) {
		t.Fatalf("at first: asked %q, want all", got)
	}
	w.pass(d.every) // each has had its own moment since
	asked()
	w.pass(time.Minute)
	if got := asked(); len(got) > 0 {
		t.Fatalf("a minute later: asked %q, want none", got)
	}
	w.mu.Lock()
	w.since = w.now
	w.mu.Unlock()
	d.ObserveConfig()
	if got := asked(); len(got) != len(worldDevices) {
		t.Errorf("after the change: asked %q, want all", got)
	}
	if got := w.drilled(d, "n4"); !got.LastHeartbeatTime.After(first.Time) || got.Status != corev1.ConditionTrue {
		t.Errorf("after the change: got a condition of %s, want one after %s", got.LastHeartbeatTime, first)
	}
	before := w.version()
	if w.drilled(d, "n4"); w.version() != before {
		t.Errorf("another drill: got %d writes, want none", w.version()-before)
	}
	w.machines["n4"].on = false
	calls, config := 0, d.Config()
	d.Config = func() *controller.Config { // it changes while the devices are asked
		if calls++; calls > 1 {
			return &controller.Config{}
		}
		return config
	}
	if w.drilled(d, "n4"); calls < 2 || w.version() != before {
		t.Errorf("changed meanwhile: got %d writes after %d looks at the configuration, want none", w.version()-before,
			calls)
	}
}

// A drill of a node that is not Ready sends no Event, which would hide the fence's own. What is still wrong once the
// node is Ready again is reported then.
func TestDrillOfSilentNodeSendsNoEvent(t *testing.T) {
	w := newWorld(t)
	d := w.drills(0)
	w.drilled(d, "n4")
	silence(w, "n4")
	w.machines["n4"].deaf = true
	for range 3 {
		w.drilled(d, "n4")
	}
	if len(w.told.said) > 0 {
		t.Errorf("got Events %q of a silent node, want none", w.told.said)
	}
	n := w.node("n4")
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status = corev1.ConditionTrue
		}
	}
	must(t, w.fake.Status().Update(t.Context(), n))
	if w.drilled(d, "n4"); !slices.Equal(w.told.said, []string{"MachineNotAnswering n4"}) {
		t.Errorf("Ready again: got Events %q, want that its device does not answer", w.told.said)
	}
}

// finishAll ends the drills of all nodes that are due.
func finishAll(d *Drills) (names []string) {
	for {
		name, _ := d.plan.Next(d.Now())
		if name == "" {
			return names
		}
		d.plan.FinishDrill(name, true, d.Now())
		names = append(names, name)
	}
}

// A node whose machine is another one now is asked at once, before all others: after a change of the configuration, and
// after a change of the Node. A change that leads to the same machine asks nothing, and changes in a row ask once.
func TestDrillOfAnotherMachineComesFirst(t *testing.T) {
	w := newWorld(t)
	d := w.drills(0)
	must(t, d.listNodes(t.Context()))
	for name := range worldDevices {
		d.drillNode(t.Context(), name)
	}
	finishAll(d)
	w.pass(d.every)
	finishAll(d)
	w.pass(time.Minute)

	w.moved = map[string]string{"n4": "bmc-10"}
	d.ObserveConfig()
	if got := finishAll(d); len(got) != len(worldDevices) || got[0] != "n4" {
		t.Errorf("the configuration names another BMC for n4: asked %q, want all, n4 first", got)
	}
	d.drillNode(t.Context(), "n4")
	w.pass(d.every) // each has had its own moment since
	finishAll(d)
	w.pass(time.Minute)

	before := w.node("n2")
	for _, tt := range []struct {
		name   string
		change func(*corev1.Node)
		moved  string
		want   []string
	}{
		{"a label that leads nowhere", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, "", nil},
		{"an annotation that leads to another BMC", func(n *corev1.Node) {
			n.Annotations = map[string]string{"example.net/bmc": "bmc-11"}
		}, "bmc-11", []string{"n2"}},
		{"the same a moment later", func(n *corev1.Node) {
			n.Annotations = map[string]string{"example.net/bmc": "bmc-12"}
		}, "bmc-12", nil},
	} {
		now := before.DeepCopy()
		if tt.change(now); tt.moved != "" {
			w.moved["n2"] = tt.moved
		}
		d.ObserveUpdate(before, now)
		if got := finishAll(d); !slices.Equal(got, tt.want) {
			t.Errorf("%s: asked %q, want %q", tt.name, got, tt.want)
		}
		w.pass(time.Second)
	}
	w.pass(d.every / 10)
	if got := finishAll(d); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("half a minute later: asked %q, want n2", got)
	}
}
