package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/machine"
)

// journals keeps what is told as Fencing objects would be, by their names.
type journals map[string]journal.Entry

func (j journals) tell(t journal.Update) { j[t.Name()] = j[t.Name()].AddUpdate(t) }

// What shadow and disabled leave alone is everything; shadow says what it would have done, once; and a node's own grace
// holds.
func TestModes(t *testing.T) {
	w := newWorld(t)
	modes := map[string]fence.ChosenMode{"n1": {Mode: fence.Shadow, PowerOffAfter: 3 * time.Minute},
		"n2": {Mode: fence.Disabled, By: "the file"}}
	w.chosen = func(n *corev1.Node) fence.ChosenMode { return modes[n.Name] }
	lead := func() journals {
		entries := journals{}
		w.lead()
		w.r.observer.Fences = entries.tell
		return entries
	}
	entries := lead()
	w.run(15 * time.Second)
	for mode, want := range map[string]float64{"shadow": 1, "disabled": 1, "observe": float64(len(w.machines) - 2)} {
		if got := w.heard.count(t, "forcefence_node_mode", mode); got != want {
			t.Errorf("forcefence_node_mode %s: got %v, want %v", mode, got, want)
		}
	}
	for _, n := range []string{"n1", "n2"} {
		w.silence(n)
		w.change(n, setReady(corev1.ConditionUnknown))
	}
	w.run(2 * time.Minute)
	if w.told.has("WouldPowerOff n1") || !w.told.has("WaitingForGrace n1") || !w.told.has("ModeDisabled n2") {
		t.Errorf("told: got %q", w.told.said)
	}
	w.run(2 * time.Minute)
	if !w.told.has("WouldPowerOff n1") {
		t.Errorf("told: got %q", w.told.said)
	}
	w.machines["n1"].on, w.machines["n2"].on = false, false
	w.run(100 * time.Second)
	if !w.told.has("WouldRecover n1") {
		t.Errorf("told: got %q", w.told.said)
	}
	for _, n := range []string{"n1", "n2"} {
		if m := w.machines[n]; m.offs() != 0 || w.marked(n) || w.record(n).ID != "" {
			t.Errorf("%s: got %d power-offs, marked %v, record %+v", n, m.offs(), w.marked(n), w.record(n))
		}
	}
	for _, decision := range []string{"power_off", "recover"} {
		if got := w.heard.count(t, "forcefence_shadow_decisions_total", decision); got != 1 {
			t.Errorf("forcefence_shadow_decisions_total %s: got %v, want 1", decision, got)
		}
	}
	// Each is one Fencing, marked, as it was told first: another leader, who tells the second again, makes no other,
	// and changes none.
	first := map[string]api.Fencing{}
	for _, e := range entries {
		first[e.Object.Status.Result] = e.Object
	}
	for would, state := range map[string]string{"WouldPowerOff": "On", "WouldRecover": "Off"} {
		f := first[would]
		p := f.Status.Pods
		if !f.Spec.Shadow || f.Spec.Node != "n1" || f.Spec.ID != "" || f.Spec.Why == "" ||
			f.Spec.PowerOff != (state == "On") || f.Status.Phase != "Done" ||
			p.Ended != 0 || p.Would == 0 || int(p.Would) != len(p.Names) || len(f.Status.Evidence) == 0 {
			t.Errorf("%s: got %+v, want what would have been done", would, f)
		}
		for _, e := range f.Status.Evidence {
			if e.State != state || e.From == "" {
				t.Errorf("%s: evidence: got %+v, want %s and from whom", would, e, state)
			}
		}
	}
	if len(first) != 2 || len(entries) != 2 {
		t.Errorf("Fencings: got %d of %d results, want two", len(entries), len(first))
	}
	again := lead()
	w.told.said = nil
	w.run(100 * time.Second)
	before := first["WouldRecover"]
	e, told := again[before.Name]
	if !w.told.has("WouldRecover n1") || !told || len(again) != 1 {
		t.Fatalf("another leader told: got %q, and %d Fencings, want %s again", w.told.said, len(again), before.Name)
	}
	if diff := cmp.Diff(before, e.MergeObject(&before).Object); diff != "" {
		t.Errorf("told by another leader: -before +after:\n%s", diff)
	}
	// The mode changes: what was said is done now.
	modes["n1"] = fence.ChosenMode{Mode: fence.Observe}
	w.untilDone("n1", taint.ResultEvicted)
}

// A healthy node in mode disabled is not pinned; held pods are nudged in no mode that begins nothing.
func TestModesOfHealthyNodes(t *testing.T) {
	w := newWorld(t)
	mode := fence.Disabled
	w.chosen = func(*corev1.Node) fence.ChosenMode { return fence.ChosenMode{Mode: mode} }
	w.r.Options.Config = func() *Config {
		return &Config{Machines: machine.Finder{Led: func(n *corev1.Node) (machine.Machine, error) {
			m, err := w.machine(n)
			m.Target.Claimed, m.Identity = true,
				taint.MachineRef{Provider: m.Name, ID: m.Target.ID, SystemUUID: m.Target.SystemUUID}
			return m, err
		}}, Settings: decide.Settings{ExcludeSelector: w.exclusion(), Modes: w.modes()}}
	}
	pinned := func() bool {
		var n corev1.Node
		must(t, w.api.Get(t.Context(), client.ObjectKey{Name: "n1"}, &n))
		return n.Labels[taint.PinLabel] != ""
	}
	w.changes++
	w.run(15 * time.Second)
	if pinned() {
		t.Error("mode disabled: pinned")
	}
	w.change("n1", func(n *corev1.Node) { // a hook, which may hold pods
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: taint.ProtectionCondition, Status: corev1.ConditionTrue,
				LastHeartbeatTime: metav1.NewTime(w.Now())})
	})
	st := w.r.stateOf("n1")
	// a round that would be followed by another
	st.nudging = nudgeState{known: true, pending: true, fresh: true, opened: w.Now()}
	if wait := (nudges{w.r.workOn("n1", st)}).runDueRound(t.Context()); wait != 0 || st.nudging.pending {
		t.Errorf("mode disabled: a nudge is due in %s", wait)
	}
	mode = fence.Shadow
	w.changes++
	w.run(15 * time.Second)
	if !pinned() {
		t.Error("mode shadow: not pinned, so it could not decide as mode fence does")
	}
}
