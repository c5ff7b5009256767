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
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
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
	look, o := x.st.course.Look(), x.act(x.t.Context(), s)
	x.WithFleet(func(f *fleet.Fleet) { x.st.course.Apply(x.Now.Instant(), f, o) })
	x.st.reporter.ReportStep(x.t.Context(), decide.StepDone{Look: look, Decision: s, Outcome: o})
	if action.Name(s.Action) == "WriteRecord" {
		x.write(action.RecordOf(s.Action))
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
			Feeds: true, Identity: taint.MachineRef{Provider: "strip", ID: name},
		})
	}
	slices.SortFunc(m.Further, func(a, b machine.Machine) int { return strings.Compare(a.Device, b.Device) })
	first := m.Further[0]
	first.Further = m.Further[1:]
	config := x.Config()
	config.Machines.Led = func(*corev1.Node) (machine.Machine, error) { return first, nil }
	x.Config = func() *Config { return config }
	var fencing journal.Entry
	x.observer.Fences = func(t journal.Update) { fencing = fencing.AddUpdate(t) }
	x.live.pods = podsOf("n1", "p")

	x.does(x.upTo("WriteRecord")) // announced
	for range 2 {
		x.does(x.upTo("PowerOff"))
	}
	if got := powerOffEvents(told(x.events)); len(got) != 0 {
		t.Errorf("got Events %q while the fence is open, want none", got)
	}
	x.live.lease = "2"
	x.live.node = x.live.node.DeepCopy()
	x.live.node.Status.Conditions[0].Status = corev1.ConditionTrue
	closing := x.upTo("WriteRecord")
	if to := action.RecordOf(closing.Action).PowerOffTo; action.RecordOf(closing.Action).
		Result != taint.ResultCancelled || len(to) != 1 ||
		to[0].Device != "strip/a" {
		t.Fatalf("got record %+v, want it to name strip/a", action.RecordOf(closing.Action))
	}
	x.does(closing)
	x.fleetLoaded = true // the nodes are those of inMidst
	for range 3 {
		if _, err := x.Reconcile(t.Context(),
			reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil {
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
