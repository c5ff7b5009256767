package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

func nobodyLies(machine.Machine) string { return "" }

// broken is a provider whose device fails in one way.
type broken struct{ err error }

func (b broken) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{}, b.err
}
func (b broken) PowerOff(context.Context, providers.Target, func() error) error { return b.err }
func (b broken) PowerOn(context.Context, providers.Target, func() error) error  { return b.err }

// Why a device cannot be asked stands in the Event and in the log, while the node is healthy: its class and the cause, cleaned.
func TestDrillTellsTheCause(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{providers.WithClass(providers.ErrUntrusted, errors.New("x509: certificate signed by unknown authority (caFile)")), "(untrusted: x509: certificate signed by unknown authority (caFile))"},
		{providers.WithClass(providers.ErrDenied, errors.New("401 Unauthorized (IDRAC.2.1.RAC0218)")), "(denied: 401 Unauthorized (IDRAC.2.1.RAC0218))"},
		{providers.WithClass(providers.ErrUnreachable, errors.New("dial tcp 192.0.2.1:443: connect: no route to host\x1b[2J")), "(unreachable: dial tcp 192.0.2.1:443: connect: no route to host"},
	} {
		log, recorder := &bytes.Buffer{}, events.NewFakeRecorder(5)
		config := &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
			return machine.Machine{Provider: broken{tc.err}, Name: "racks", Device: "racks/bmc1"}, nil
		}}}
		p := NewDrills(DrillOptions{
			Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil)), Events: recorder, Leading: func() error { return nil },
		})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		f := drill.Judge(AskDevices(t.Context(), config, node, nobodyLies, providers.Now))
		p.report(node, "", f)
		if f.Result != providers.Class(tc.err) || strings.Contains(f.Detail+f.Message, "\x1b") {
			t.Errorf("got %+v", f)
		}
		if e := <-recorder.Events; !strings.Contains(e, tc.want) || !strings.Contains(log.String(), tc.want) {
			t.Errorf("got Event %q\nand log %q\nwant %q in both", e, log, tc.want)
		}
	}
}

// The same holds for a node that looks dead, and for a power-off that is refused.
func TestCauseOfAnUnknownAnswer(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerUnknown}, taint.PhaseEvicting)
	x.live.pods = podsOf("n1", "a")
	x.upTo("Wait")
	x.st.machine.Provider = broken{providers.WithClass(providers.ErrDenied, errors.New("403 Forbidden (no licence)"))}
	x.apply(x.st, decide.DevicesAnswered{Answers: x.ask(t.Context(), x.st)})
	if got := x.st.course.Said(); got != "denied: 403 Forbidden (no licence)" {
		t.Errorf("got %q", got)
	}
	x.tell(x.st, action.Decision{Action: action.Wait{}, Reason: reason.Unknown})
	if got := told(x.events); len(got) != 1 || !strings.Contains(got[0], "403 Forbidden (no licence)") {
		t.Errorf("got Events %q", got)
	}
}

// Of a node with several devices each is told that does not answer, and all of them when they contradict each other.
func TestDrillOfTwoDevices(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	device := func(name string, s providers.PowerState) machine.Machine {
		return machine.Machine{Provider: &oneMachine{now: time.Now, state: s}, Name: name, Device: name + "/1"}
	}
	outlet := device("pdus", on)
	outlet.Feeds = true
	for _, tc := range []struct {
		name          string
		first, second machine.Machine
		class, says   string
	}{
		{"both answer", device("racks", on), device("pdus", on), "ok", "Device racks/1 answers: On. Device pdus/1 answers: On."},
		{"the second is down", device("racks", on), machine.Machine{Provider: broken{providers.ErrDenied}, Name: "pdus", Device: "pdus/1"}, "denied", "Device pdus/1 cannot say whether the machine is on (denied: access denied). Another device of this node answers."},
		{"the first says what nobody knows", device("racks", unknown), device("pdus", on), "unknown", "Device racks/1 answers with an unknown word"},
		{"both are down", machine.Machine{Provider: broken{providers.ErrDenied}, Device: "racks/1"}, machine.Machine{Provider: broken{providers.ErrDenied}, Device: "pdus/1"}, "denied", "This node could not be fenced at present."},
		{"the second gives it its power, and the first is down", machine.Machine{Provider: broken{providers.ErrDenied}, Device: "racks/1"}, outlet,
			"only_outlets", "Only outlets answer. They stay On when the machine dies, and mode observe does not switch them off."},
		{"they disagree", device("racks", on), device("pdus", off), "disagree", "The devices of this node contradict each other (racks/1: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.first
			m.Further = []machine.Machine{tc.second}
			m.Further[0].Level = 1
			config := &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
			f := drill.Judge(AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
				nobodyLies, providers.Now))
			if f.Result != tc.class || !strings.Contains(f.Detail, tc.says) {
				t.Errorf("got %s, %q, want %s, %q", f.Result, f.Detail, tc.class, tc.says)
			}
		})
	}
}

// drillsOf are wired as in production.
func drillsOf(r *Reconciler, every time.Duration) *Drills {
	return NewDrills(DrillOptions{
		Live: r.Live, Cache: r.Cache, Client: r.Client, Events: r.Events, Log: r.Log,
		Metrics: NewDrillMetrics(prometheus.NewRegistry()), Config: r.Config, Leading: r.Leading,
		WithFleet: r.WithFleet, ShouldList: r.ShouldList, Key: r.Key, Now: r.Now, Every: every,
	})
}

// drilled drills a node of the world once and returns its condition.
func (w *world) drilled(p *Drills, node string) corev1.NodeCondition {
	w.t.Helper()
	p.drillNode(w.t.Context(), node)
	for _, c := range w.node(node).Status.Conditions {
		if c.Type == taint.FenceableCondition {
			return c
		}
	}
	return corev1.NodeCondition{}
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

// The condition says whether the node could be fenced now. It is written when that changes, and at no other time is the API server asked;
// a device that is not reached for once is not yet False. The metrics count each node, and each device, once.
func TestDrillWritesTheCondition(t *testing.T) {
	w := newWorld(t)
	p := drillsOf(w.r, 0)
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
		{"all is well", func() {}, corev1.ConditionTrue, "MachineAnswers", 1, "", "ok"},
		{"still", func() {}, corev1.ConditionTrue, "MachineAnswers", 0, "", "ok"},
		{"off is an answer", func() { w.machines["n4"].on = false }, corev1.ConditionTrue, "MachineAnswers", 1, "", "ok"},
		{"fenced since", func() {
			w.change("n4", func(n *corev1.Node) {
				n.Annotations = map[string]string{taint.RecordAnnotation: taint.Record{ID: "f-1", NodeUID: string(n.UID), By: "test"}.Enter(taint.PhaseDone, taint.ResultEvicted, w.Now().Add(time.Second)).Encode()}
			})
			w.pass(2 * time.Second)
		}, corev1.ConditionTrue, "MachineAnswers", 1, "", "ok"},
		{"said since", func() {}, corev1.ConditionTrue, "MachineAnswers", 0, "", "ok"},
		{"not reached", func() { w.machines["n4"].deaf = true }, corev1.ConditionUnknown, "MachineNotAnswering", 1, "MachineNotAnswering n4", "unreachable"},
		{"not reached again", func() {}, corev1.ConditionFalse, "MachineNotAnswering", 1, "", "unreachable"},
		{"nor a third time", func() {}, corev1.ConditionFalse, "MachineNotAnswering", 0, "", "unreachable"},
		{"back", func() { w.machines["n4"].deaf = false }, corev1.ConditionTrue, "MachineAnswers", 1, "MachineAnswers n4", "ok"},
		{"another machine", func() { w.machines["n4"].uuid = "99999999-7742-3448-3784-823347823834" }, corev1.ConditionFalse, "MachineNotAnswering", 1, "", "identity"},
	}
	for _, tt := range steps {
		tt.change()
		w.told.said = nil
		live.n.Store(0)
		before := w.version()
		c := w.drilled(p, "n4")
		if c.Status != tt.status || c.Reason != tt.reason || w.version()-before != tt.writes || strings.ContainsAny(c.Message, "0") {
			t.Errorf("%s: got %s, %s, %q, %d writes, want %s, %s, %d", tt.name, c.Status, c.Reason, c.Message, w.version()-before, tt.status, tt.reason, tt.writes)
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
		if ok, want := testutil.ToFloat64(m.machines.WithLabelValues("ok")), map[bool]float64{true: 1}[tt.metric == "ok"]; ok != want {
			t.Errorf("%s: got %v nodes that are ok, want %v", tt.name, ok, want)
		}
	}
}

// A node that is marked, or whose fence is open, is left to its fence: it is not asked, nor written.
func TestDrillLeavesFencedNodesAlone(t *testing.T) {
	w := newWorld(t)
	p := drillsOf(w.r, 0)
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
	if err := p.writeCondition(t.Context(), cached, drill.Finding{Fenceable: corev1.ConditionTrue}); err != nil || w.version() != before {
		t.Errorf("marked just now: got error %v, %d writes", err, w.version()-before)
	}
}

// The leader asks all nodes, forgets those that are gone, and returns when it is told to.
func TestDrills(t *testing.T) {
	w := newWorld(t)
	p := drillsOf(w.r, time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	m := p.Metrics
	for deadline := time.Now().Add(time.Minute); testutil.ToFloat64(m.machines.WithLabelValues("ok")) < float64(len(worldDevices)) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
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

// A device that lied once is not believed before the outage either, and a machine that could not be powered off is not fenceable where that
// is what the fence would need.
func TestDrillOfDistrustedAndPowerless(t *testing.T) {
	m := machine.Machine{Provider: &oneMachine{now: time.Now, state: providers.PowerOff}, Name: "racks", Device: "racks/1", Identity: taint.Machine{Provider: "racks", ID: "1"}, Target: providers.Target{Node: "n1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	judge := func(m machine.Machine, liar func(machine.Machine) string) drill.Finding {
		config := &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
		return drill.Judge(AskDevices(t.Context(), config, node, liar, providers.Now))
	}
	if f := judge(m, func(machine.Machine) string { return "n9" }); f.Fenceable != corev1.ConditionFalse || f.Reason != reason.Distrusted || !strings.Contains(f.Detail, "record of node n9") {
		t.Errorf("distrusted: got %+v", f)
	}
	m.Target.Claimed = true // and it tells no UUID
	if f := judge(m, nobodyLies); f.Fenceable != corev1.ConditionTrue {
		t.Errorf("observe: got %+v", f)
	}
	m.Mode = fence.Fence
	if f := judge(m, nobodyLies); f.Fenceable != corev1.ConditionFalse || f.Result != "no_power" || !strings.Contains(f.Message, "never pinned") {
		t.Errorf("fence: got %+v", f)
	}
	// A healthy node is pinned in a moment: that it was not yet, is no news. That its device tells no UUID is.
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if f := judge(m, nobodyLies); f.Result != "no_power" || strings.Contains(f.Message, "never pinned") {
		t.Errorf("fence, healthy: got %+v", f)
	}
}

// A device that says nothing while the machine runs is no fault beside one that answers; one that cannot be asked is, and so is one alone.
func TestDrillOfQuietDevices(t *testing.T) {
	bmc := machine.Machine{Provider: &oneMachine{now: time.Now, state: providers.PowerOn}, Name: "racks", Device: "racks/1"}
	quiet := machine.Machine{Provider: &oneMachine{now: time.Now}, Name: "people", Device: "people/1", Quiet: true}
	failing := machine.Machine{Provider: broken{providers.ErrDenied}, Name: "people", Device: "people/1", Quiet: true}
	for name, tc := range map[string]struct {
		first, second machine.Machine
		want          int
	}{"beside a BMC": {bmc, quiet, 1}, "that fails": {bmc, failing, 2}, "alone": {quiet, quiet, 2}} {
		m := tc.first
		m.Further = []machine.Machine{tc.second}
		m.Further[0].Device += "-b"
		m.Further[0].Level = 1
		config := &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
		seen := AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			func(machine.Machine) string { return "" }, providers.Now)
		if len(seen.Devices) != tc.want {
			t.Errorf("%s: %d devices are judged, want %d: %+v", name, len(seen.Devices), tc.want, seen.Devices)
		}
	}
}

// doubting tells in a drill alone why an Off may not count.
type doubting struct{ *oneMachine }

func (d doubting) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	o, err := d.oneMachine.State(ctx, t)
	if providers.IsDrill(ctx) {
		o.Doubt = "its chassis says On"
	}
	return o, err
}

// A drill lets a device tell what an ordinary question has no time for.
func TestDrillAsksForDoubts(t *testing.T) {
	m := machine.Machine{Provider: doubting{&oneMachine{now: time.Now, state: providers.PowerOn}}, Name: "racks", Device: "racks/1"}
	config := &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
	seen := AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nobodyLies, providers.Now)
	if f := drill.Judge(seen); f.Fenceable != corev1.ConditionTrue || !strings.Contains(f.Warning, "Device racks/1: its chassis says On.") {
		t.Errorf("got %+v, want a warning", f)
	}
}
