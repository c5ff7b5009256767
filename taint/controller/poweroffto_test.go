package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
)

// switchable is a device that takes a power-off, or refuses it.
type switchable struct {
	oneMachine
	refuses error
}

func (o *switchable) PowerOff(context.Context, providers.Target, func() error) error {
	return o.refuses
}

// write puts a record on the node, as the API server has it from then on.
func (x *midst) write(rec taint.Record) {
	x.live.node = x.live.node.DeepCopy()
	x.live.node.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
	x.cached.node = x.live.node
}

// does carries out a step of the course, reports the result to the course, and stores what it wrote in the API server.
func (x *midst) does(s action.Decision) {
	x.t.Helper()
	o := x.act(x.t.Context(), s)
	x.across(func(f *fleet.Fleet) { x.st.course.Apply(x.now(), f, o) })
	if action.Name(s.Action) == "Write" {
		x.tell(x.st, s)
		x.write(action.RecordOf(s.Action))
		x.chronicleWrite(x.st, s)
	}
}

// powerOffEvents are the Events that name devices which accepted a power-off.
func powerOffEvents(all []string) []string {
	return slices.DeleteFunc(all, func(e string) bool { return !strings.Contains(e, string(reason.PoweredOff)) })
}

// Of two outlets one accepted the power-off and the other refused it. Then the node came back. The record, the Fencing
// object and one Event name the outlet that is off.
func TestAcceptedPowerOffIsReported(t *testing.T) {
	a, b := &switchable{}, &switchable{refuses: fmt.Errorf("%w: no such outlet action", providers.ErrPermanent)}
	x := inMidst(t, &a.oneMachine, "")
	a.state, b.state, b.now = providers.PowerOn, providers.PowerOn, x.c.Now
	var m machine.Machine
	for name, o := range map[string]*switchable{"b": b, "a": a} {
		m.Further = append(m.Further, machine.Machine{
			Provider: o, Name: "strip", Device: "strip/" + name, Target: providers.Target{Node: "n1", ID: name},
			Mode: fence.Fence, Feeds: true, Identity: taint.Machine{Provider: "strip", ID: name},
		})
	}
	slices.SortFunc(m.Further, func(a, b machine.Machine) int { return strings.Compare(a.Device, b.Device) })
	first := m.Further[0]
	first.Further = m.Further[1:]
	config := x.Config()
	config.Machines.Led = func(*corev1.Node) (machine.Machine, error) { return first, nil }
	x.Config = func() *Config { return config }
	var fencing journal.Entry
	x.Told = func(t journal.Told) { fencing = fencing.Add(t) }
	x.live.pods = podsOf("n1", "p")

	x.does(x.upTo("Write")) // announced
	for range 2 {
		x.does(x.upTo("PowerOff"))
	}
	x.chronicleLook(x.st)
	x.reportPowerOffs(x.live.node, x.st, x.st.course.Look().Record)
	if got := powerOffEvents(told(x.events)); len(got) != 0 {
		t.Errorf("got Events %q while the fence is open, want none", got)
	}
	x.live.lease = "2"
	x.live.node = x.live.node.DeepCopy()
	x.live.node.Status.Conditions[0].Status = corev1.ConditionTrue
	closing := x.upTo("Write")
	if to := action.RecordOf(closing.Action).PowerOffTo; action.RecordOf(closing.Action).Result != taint.ResultCancelled || len(to) != 1 ||
		to[0].Device != "strip/a" {
		t.Fatalf("got record %+v, want it to name strip/a", action.RecordOf(closing.Action))
	}
	x.does(closing)
	x.met = true // the nodes are those of inMidst
	for range 3 {
		if _, err := x.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		x.pass(time.Second)
	}
	got := powerOffEvents(told(x.events))
	if len(got) != 1 || !strings.Contains(got[0], "(Cancelled)") || !strings.Contains(got[0], "strip/a") ||
		strings.Contains(got[0], "strip/b") {
		t.Errorf("got Events %q, want one that names strip/a", got)
	}
	if to := fencing.Object.Status.PowerOffTo; !slices.Equal(to, []string{"strip/a"}) {
		t.Errorf("the Fencing object names %v, want strip/a", to)
	}
}

// However a fence ends, its powered-off devices are named once, by a process that saw it open.
func TestPowerOffsAreReportedOnce(t *testing.T) {
	rec := func(p taint.Phase, res taint.Result, devices ...string) *taint.Record {
		r := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "other",
			Since: newYear}.Enter(p, res, newYear)
		for _, d := range devices {
			r.PowerOffTo = append(r.PowerOffTo, taint.Speaker{Device: d})
		}
		return &r
	}
	open := rec(taint.PhasePoweringOff, "", "strip/a", "strip/b")
	released := rec(taint.PhaseDone, taint.ResultReleased, "strip/a")
	evicting, evicted := rec(taint.PhaseEvicting, "", "strip/a"), rec(taint.PhaseDone, taint.ResultEvicted, "strip/a")
	next := rec(taint.PhaseDone, taint.ResultCancelled, "strip/a")
	next.Since = newYear.Add(time.Hour)
	persons := func(devices ...string) *taint.Record {
		r := rec(taint.PhaseArmed, "", devices...)
		r.ID, r.By = "manual", taint.ByPerson
		return r
	}
	for name, tc := range map[string]struct {
		seen []*taint.Record
		want string // what the Event holds; "" is no Event
	}{
		"released by a person":        {[]*taint.Record{open, open, released, released}, "(Released)"},
		"evicted":                     {[]*taint.Record{open, evicting, evicted}, "(Evicted)"},
		"ended before this one led":   {[]*taint.Record{rec(taint.PhaseDone, taint.ResultCancelled, "strip/a")}, ""},
		"no device took it":           {[]*taint.Record{open, rec(taint.PhaseDone, taint.ResultPowerOffFailed)}, ""},
		"the end of another fence":    {[]*taint.Record{open, next, next}, "(Unknown)"},
		"no record":                   {[]*taint.Record{nil}, ""},
		"the record was removed":      {[]*taint.Record{open, nil, nil}, "(Unknown)"},
		"a person's mark names them":  {[]*taint.Record{open, persons("strip/a"), persons("strip/a")}, ""},
		"a person's mark, and life":   {[]*taint.Record{open, persons(), persons()}, "(Unknown)"},
		"what a kubelet wrote itself": {[]*taint.Record{open, rec(taint.PhaseDone, taint.ResultReleased, "strip/a\nand more")}, "strip/a and more"},
	} {
		t.Run(name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{}, "")
			for _, r := range tc.seen {
				x.reportPowerOffs(x.live.node, x.st, r)
			}
			got := powerOffEvents(told(x.events))
			if len(got) != map[bool]int{true: 1, false: 0}[tc.want != ""] ||
				tc.want != "" && !strings.Contains(got[0], tc.want) {
				t.Errorf("got Events %q, want %q once", got, tc.want)
			}
		})
	}
	t.Run("the Node is gone", func(t *testing.T) {
		x := inMidst(t, &oneMachine{}, "")
		x.reportPowerOffs(x.live.node, x.st, open)
		x.forget("n1", x.st)
		if got := powerOffEvents(told(x.events)); len(got) != 1 || !strings.Contains(got[0], "strip/a, strip/b") {
			t.Errorf("got Events %q, want one that names both outlets", got)
		}
	})
}
