package journal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

const second = time.Second

// record is the one of a usual fence, in its first phase.
func record() taint.Record {
	return taint.Record{
		ID: "f-0123456789ab", NodeUID: "uid", BootID: "boot", LeaseRV: "7", Since: start, By: "pod-1",
		Device: "racks/7",
	}.EnterPhase(taint.PhaseArmed, "", start).
		WithEvidence(taint.Evidence{At: start, From: "racks/7", State: "Off", Raw: "Off"})
}

func pod(i int) api.Pod {
	return api.Pod{Namespace: "shop", Name: fmt.Sprintf("db-%d", i), UID: fmt.Sprintf("u%d", i)}
}

func podsTo(n int) (out []api.Pod) {
	for i := range n {
		out = append(out, pod(i))
	}
	return out
}

func podNames(n int) (out []string) {
	for _, p := range podsTo(n) {
		out = append(out, p.Name)
	}
	return out
}

func told(r taint.Record, at time.Time) Update {
	return Update{Node: "n1", At: at, Record: r, Why: "NotReady"}
}

// story is a whole fence, as one process reports it.
func story() []Update {
	armed, evicting := record(), record().EnterPhase(taint.PhaseEvicting, "", after(1*second))
	ended := told(evicting, after(2*second))
	ended.Ended = podsTo(2)
	again := told(evicting, after(3*second)) // a repeated write, and one more
	again.Ended = podsTo(3)
	attached, left, none := told(evicting, after(1*second)), told(evicting, after(4*second)),
		told(evicting, after(5*second))
	// That the pod of pv-3 stays is known once its volumes are read.
	attached.Attached, left.Attached, none.Attached = &[]string{"pv-2", "pv-1", "pv-3"}, &[]string{"pv-1"}, &[]string{}
	left.Staying, none.Staying = []string{"pv-3"}, []string{"pv-3"}
	done := told(evicting.EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(8200*time.Millisecond)),
		after(9*second))
	done.Left = podsTo(1)
	all := []Update{told(armed, start), told(evicting, after(1*second)), attached, ended, again, left, none, done}
	all[0].Step = step(api.StepAskDevices, -second, -400*time.Millisecond, 0)
	all[1].Step = step(api.StepAskDevices, 500*time.Millisecond, 900*time.Millisecond, 0)
	all[3].Step = step(api.StepEndPods, 1500*time.Millisecond, 2*second, 2)
	all[4].Step = step(api.StepEndPods, 2500*time.Millisecond, 3*second, 1)
	all[4].Step.Error = "conflict"
	all[7].Step = step(api.StepRemoveMark, 8*second, 8200*time.Millisecond, 0)
	return all
}

func step(name string, began, ended time.Duration, objects int32) *api.Step {
	return &api.Step{Step: name, Began: toMicroTime(after(began)), Ended: toMicroTime(after(ended)), Objects: objects}
}

func tell(e Entry, all ...Update) Entry {
	for _, t := range all {
		e = e.AddUpdate(t)
	}
	return e
}

func TestStory(t *testing.T) {
	got := tell(Entry{}, story()...).Object
	end := toMicroTime(after(8200 * time.Millisecond))
	when := metav1.NewTime(after(9 * second))
	want := api.Fencing{
		ObjectMeta: metav1.ObjectMeta{Name: "n1.f-0123456789ab",
			Labels: map[string]string{api.NodeLabel: "n1", api.FenceLabel: "f-0123456789ab"}},
		Spec: api.FencingSpec{
			Node: "n1", NodeUID: "uid", BootID: "boot", ID: "f-0123456789ab", By: "pod-1", Why: "NotReady",
			Device: "racks/7", StartedAt: toMicroTime(start),
		},
		Status: api.FencingStatus{
			Phase: "Done", Result: "Evicted", FinishedAt: &end, Duration: "8.2s",
			Timeline: []api.PhaseEntered{{Phase: "Armed", At: toMicroTime(start)},
				{Phase: "Evicting", At: toMicroTime(after(second))}, {Phase: "Done", Result: "Evicted", At: end}},
			Evidence: []api.Answer{{At: toMicroTime(start), From: "racks/7", State: "Off", Raw: "Off"}},
			Steps: []api.Step{
				{Step: "AskDevices", Began: toMicroTime(after(-second)),
					Ended: toMicroTime(after(900 * time.Millisecond)), Times: 2},
				{Step: "EndPods", Began: toMicroTime(after(1500 * time.Millisecond)),
					Ended: toMicroTime(after(3 * second)), Objects: 3, Times: 2, Error: "conflict"},
				{Step: "RemoveMark", Began: toMicroTime(after(8 * second)),
					Ended: toMicroTime(after(8200 * time.Millisecond))},
			},
			Pods: api.Pods{Ended: 3, Left: 1, Names: podsTo(3)},
			Volumes: api.Volumes{
				Attached: 2, Detached: 2, Names: []string{"pv-1", "pv-2"}, Staying: []string{"pv-3"},
			},
			Conditions: []metav1.Condition{
				{Type: api.Finished, Status: metav1.ConditionTrue, Reason: "Evicted",
					Message: "the moved pods are gone, their volumes detached", LastTransitionTime: when},
				{Type: api.Proven, Status: metav1.ConditionTrue, Reason: "MachineOff",
					Message: "racks/7 said that the machine is off", LastTransitionTime: metav1.NewTime(start)},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRepeatedUpdates: an update that comes twice, or late, changes nothing, and no input is modified.
func TestRepeatedUpdates(t *testing.T) {
	all := story()
	e := tell(Entry{}, all...)
	before := e.Object.DeepCopy()
	if diff := cmp.Diff(*before, tell(e, all[len(all)-1]).Object); diff != "" {
		t.Errorf("the end reported again: -want +got:\n%s", diff)
	}
	late := tell(e, all[1], all[3])
	if diff := cmp.Diff(*before, late.Object); diff != "" {
		t.Errorf("phases reported late: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(*before, e.Object); diff != "" {
		t.Errorf("the entry itself: -want +got:\n%s", diff)
	}
}

// TestProcesses: at whichever place of the story a process ends and another goes on, with what was written until then,
// the end is the same.
func TestProcesses(t *testing.T) {
	all := story()
	want := tell(Entry{}, all...).Object
	for cut := range len(all) {
		first := tell(Entry{}, all[:cut]...)
		second := tell(Entry{}, all[cut:]...)
		if cut > 0 {
			second = second.MergeObject(first.BoundedObject(&api.Fencing{}))
		}
		got := second.Object
		for _, c := range want.Status.Conditions { // the time of a transition is the second process's
			if have := meta.FindStatusCondition(got.Status.Conditions, c.Type); have == nil ||
				have.Status != c.Status || have.Reason != c.Reason {
				t.Errorf("cut %d: condition %s: got %+v, want %+v", cut, c.Type, have, c)
			}
		}
		got.Status.Conditions = want.Status.Conditions
		got.Status.Pods.Names = slices.SortedFunc(slices.Values(got.Status.Pods.Names),
			func(a, b api.Pod) int { return strings.Compare(a.UID, b.UID) })
		if cut > 3 { // only lists say what stays attached
			got.Status.Volumes.Left = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cut %d: -want +got:\n%s", cut, diff)
		}
	}
}

func TestBounds(t *testing.T) {
	evicting := told(record().EnterPhase(taint.PhaseEvicting, "", after(second)), after(second))
	evicting.Ended = podsTo(700)
	var list []string
	for i := range 300 {
		list = append(list, fmt.Sprintf("pv-%03d", i))
	}
	evicting.Attached, evicting.Staying = &list, append([]string{"stays"}, podNames(700)...)
	e := Entry{}.AddUpdate(evicting)
	for i := range 100 {
		r := record().EnterPhase(taint.PhaseEvicting, "", after(time.Duration(i)*time.Minute)).
			WithEvidence(taint.Evidence{At: after(time.Duration(i) * second), From: "x", State: "Off"})
		e = e.AddUpdate(told(r, after(second)))
	}
	got := e.BoundedObject(&api.Fencing{})
	if p := got.Status.Pods; p.Ended != 700 || len(p.Names) != api.MaxNames {
		t.Errorf("pods: got %d and %d names, want 700 and %d", p.Ended, len(p.Names), api.MaxNames)
	}
	if v := got.Status.Volumes; v.Attached != 300 || v.Detached != 0 || len(v.Names) != api.MaxNames ||
		len(v.Left) != api.MaxNames || len(v.Staying) != api.MaxNames {
		t.Errorf("volumes: got %d, %d detached, %d names, %d left, %d that stay, want 300, 0 and %d each", v.Attached,
			v.Detached, len(v.Names), len(v.Left), len(v.Staying), api.MaxNames)
	}
	s := got.Status
	if len(s.Timeline) != api.MaxTimeline || s.Timeline[0].Phase != "Evicting" ||
		!s.Timeline[api.MaxTimeline-1].At.Time.Equal(after(99*time.Minute)) {
		t.Errorf("timeline: got %d from %v to %v, want %d with the first and the last", len(s.Timeline), s.Timeline[0],
			s.Timeline[len(s.Timeline)-1], api.MaxTimeline)
	}
	if len(s.Evidence) != api.MaxEvidence || !s.Evidence[0].At.Time.Equal(start) ||
		!s.Evidence[api.MaxEvidence-1].At.Time.Equal(after(99*second)) {
		t.Errorf("evidence: got %d from %v, want %d with the first and the last", len(s.Evidence), s.Evidence[0],
			api.MaxEvidence)
	}

	// Another process goes on with what was written: the count stays, and grows by what is new.
	next := Entry{}.AddUpdate(told(record().EnterPhase(taint.PhaseEvicting, "", after(second)), after(second))).
		MergeObject(got)
	more := told(record().EnterPhase(taint.PhaseEvicting, "", after(second)), after(second))
	more.Ended = []api.Pod{{Namespace: "shop", Name: "late", UID: "late"}}
	if p := next.AddUpdate(more).Object.Status.Pods; p.Ended != 701 {
		t.Errorf("pods after a change of leader: got %d, want 701", p.Ended)
	}
	more.Attached = &[]string{"pv-000", "pv-299"} // the second is counted without its name
	if v := next.AddUpdate(more).Object.Status.Volumes; v.Attached != 300 || v.Detached != 298 {
		t.Errorf("volumes after a change of leader: got %d, %d detached, want 300 and 298", v.Attached, v.Detached)
	}
}

func TestConditions(t *testing.T) {
	alert, none := "PodsStuck: pod shop/db-0 cannot be deleted (denied)", ""
	evicting := record().EnterPhase(taint.PhaseEvicting, "", after(second))
	silent := evicting
	silent.Evidence, silent.By = nil, taint.ByPerson
	alerted := func(r taint.Record, text *string) Update { x := told(r, after(second)); x.Alert = text; return x }
	for _, c := range []struct {
		name                       string
		told                       []Update
		proven, finished, needsOne string // status and reason
	}{
		{"armed", []Update{told(record(), start)}, "True MachineOff", "False Armed", ""},
		{"a person's, without proof", []Update{told(silent, start)}, "False NoProof", "False Evicting", ""},
		{"nothing said yet",
			[]Update{told(
				taint.Record{ID: "f-0123456789ab", NodeUID: "u", By: "x",
					Since: start}.EnterPhase(taint.PhasePoweringOff, "", start), start)}, "Unknown NoProof",
			"False PoweringOff", ""},
		{"no alert", []Update{alerted(evicting, &none)}, "True MachineOff", "False Evicting", ""},
		{"an alert", []Update{alerted(evicting, &alert), told(evicting, after(second))}, "True MachineOff",
			"False Evicting", "True Alert"},
		{"it is over", []Update{alerted(evicting, &alert), alerted(evicting, &none)}, "True MachineOff",
			"False Evicting", "False Over"},
		{"the fence is over",
			[]Update{alerted(evicting, &alert),
				told(evicting.EnterPhase(taint.PhaseDone, taint.ResultReleased, after(2*second)), after(2*second))},
			"True MachineOff", "True Released", "False Over"},
		{"a device that lied",
			[]Update{told(evicting.EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(2*second)), start),
				told(evicting.EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, after(time.Hour)),
					after(time.Hour))}, "False NeverPoweredOff", "True NeverPoweredOff", ""},
		{"the Node was deleted", []Update{{Node: "n1", At: after(3 * second), Record: evicting, Gone: true}},
			"True MachineOff", "True NodeGone", ""},
		{"a shadow's recovery", []Update{shadow(false)}, "True MachineOff", "True WouldRecover", ""},
		{"a shadow's power-off", []Update{shadow(true)}, "Unknown NoProof", "True WouldPowerOff", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := tell(Entry{}, c.told...).Object
			for kind, want := range map[string]string{
				api.Proven: c.proven, api.Finished: c.finished, api.NeedsPerson: c.needsOne} {
				got := ""
				if cond := meta.FindStatusCondition(o.Status.Conditions, kind); cond != nil {
					got = string(cond.Status) + " " + cond.Reason
				}
				if got != want {
					t.Errorf("%s: got %q, want %q", kind, got, want)
				}
			}
			if o.Spec.Shadow != strings.HasPrefix(c.name, "a shadow") {
				t.Errorf("shadow: got %t", o.Spec.Shadow)
			}
			if c.name == "a device that lied" && o.Status.Duration != "2.0s" {
				t.Errorf("took: got %s, want the time to the first end", o.Status.Duration)
			}
		})
	}
}

// The attachments that need a person are in the Fencing as long as the alert is: the first by name, also after another
// process's report.
func TestWaitingAttachments(t *testing.T) {
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	rec := taint.Record{ID: "f-0123456789ab", NodeUID: "u", By: "pod-1", Since: start}.
		EnterPhase(taint.PhaseEvicting, "", start)
	alert, none, attached := "volumes stay", "", []string{"pv-1"}
	var all []api.Attachment
	for _, name := range strings.Split("j i h g f e d c b a", " ") {
		all = append(all, api.Attachment{Name: name, Volume: "pv-" + name, Driver: "d"})
	}
	update := Update{Node: "n1", At: start, Record: rec}
	told := update
	told.Alert, told.Waiting = &alert, all
	e := Entry{}.AddUpdate(told)
	volumes := update
	volumes.Attached = &attached
	e = e.AddUpdate(volumes)
	if got := e.Object.Status.Volumes.Waiting; len(got) != api.MaxWaiting || got[0] != all[len(all)-1] {
		t.Errorf("got %+v, want the first %d by name", got, api.MaxWaiting)
	}
	over := update
	over.Alert = &none
	if got := e.AddUpdate(over).Object.Status.Volumes.Waiting; len(got) != 0 {
		t.Errorf("the alert is over: got %+v", got)
	}
	done := update
	done.Record = rec.EnterPhase(taint.PhaseDone, taint.ResultEvicted, start)
	if got := e.AddUpdate(done).Object.Status.Volumes.Waiting; len(got) != 0 {
		t.Errorf("the fence has ended: got %+v", got)
	}
}

// The condition Finished names the pods that stay, also after an update that comes late.
func TestStayingPods(t *testing.T) {
	evicting := record().EnterPhase(taint.PhaseEvicting, "", after(second))
	done := evicting.EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(2*second))
	done.Staying = taint.Staying{Pods: []taint.StayingPod{{Pod: "shop/tol-0", Why: taint.ExemptTolerate}}}
	cameOn := done
	cameOn.AfterFence = taint.AfterFenceCameOn
	for name, updates := range map[string][]Update{
		"it ends":            {told(evicting, after(second)), told(done, after(2*second))},
		"a look was late":    {told(done, after(2*second)), told(evicting, after(3*second))},
		"it came on by then": {told(done, after(2*second)), told(cameOn, after(time.Hour))},
	} {
		o := tell(Entry{}, updates...).Object
		got := meta.FindStatusCondition(o.Status.Conditions, api.Finished).Message
		if !strings.Contains(got, "shop/tol-0 (tolerates the mark)") {
			t.Errorf("%s: got %q, want the pod", name, got)
		}
	}
}

// shadow is a shadow decision about two pods, half a minute after the start.
func shadow(powerOff bool) Update {
	r, state := record(), "Off"
	if r.PowerOff = powerOff; powerOff {
		r, state = r.EnterPhase(taint.PhasePoweringOff, "", start), "On"
	}
	r.ID, r.Since, r.At, r.Evidence = "", after(30*second), after(30*second), []taint.Evidence{
		{At: after(29 * second), From: "racks/7", State: state, Raw: state},
		{At: after(30 * second), From: "racks/8", State: state, Raw: state},
	}
	t := told(r, after(31*second))
	t.Shadow, t.Would = true, podsTo(2)
	return t
}

// TestShadow: a shadow decision is over as soon as it is reported. It says what would have been done, on which answers,
// to which pods, and that none was touched. A second report changes nothing, and each life and decision has an object
// of its own.
func TestShadow(t *testing.T) {
	seen := map[string]string{ObjectName("n1", record()): "a fence"}
	for _, c := range []struct {
		powerOff             bool
		prefix, state, would string
	}{{false, "n1.would-recover-", "Off", "WouldRecover"}, {true, "n1.would-power-off-", "On", "WouldPowerOff"}} {
		first := shadow(c.powerOff)
		e := Entry{}.AddUpdate(first)
		o := e.BoundedObject(&api.Fencing{})
		end := toMicroTime(after(30 * second))
		spec := api.FencingSpec{Node: "n1", NodeUID: "uid", BootID: "boot", By: "pod-1", Why: "NotReady",
			Device: "racks/7", StartedAt: end, PowerOff: c.powerOff, Shadow: true}
		if diff := cmp.Diff(spec, o.Spec); diff != "" {
			t.Errorf("%s: spec: -want +got:\n%s", c.would, diff)
		}
		status := api.FencingStatus{
			Phase: "Done", Result: c.would, FinishedAt: &end,
			Timeline: []api.PhaseEntered{{Phase: "Done", Result: c.would, At: end}},
			Evidence: []api.Answer{{At: toMicroTime(after(29 * second)), From: "racks/7", State: c.state, Raw: c.state},
				{At: end, From: "racks/8", State: c.state, Raw: c.state}},
			Pods: api.Pods{Would: 2, Names: podsTo(2)},
		}
		got := o.DeepCopy().Status
		got.Conditions = nil
		if diff := cmp.Diff(status, got); diff != "" {
			t.Errorf("%s: status: -want +got:\n%s", c.would, diff)
		}
		if f := meta.FindStatusCondition(o.Status.Conditions, api.Finished); f == nil ||
			!strings.HasSuffix(f.Message, "nothing was done") {
			t.Errorf("%s: condition: got %+v, want that nothing was done", c.would, f)
		}
		if IsOpen(o) || len((Retention{Count: 0, Age: time.Hour}).FindExpired([]api.Fencing{*o}, start)) != 1 {
			t.Errorf("%s: got one that is still going on, which nothing would delete", c.would)
		}

		// Another leader reports it later, by its own name and clock, with a pod that came since.
		again := first
		again.At, again.Would = after(time.Hour), podsTo(3)
		again.Record.By, again.Record.Since, again.Record.At = "pod-2", after(time.Hour), after(time.Hour)
		other := Entry{}.AddUpdate(again)
		if diff := cmp.Diff(*o, other.MergeObject(o).Object); other.Object.Name != o.Name || diff != "" {
			t.Errorf("%s, reported by another: got %s, want %s as it was: -want +got:\n%s", c.would, other.Object.Name,
				o.Name, diff)
		}
		// The first made the object, and ended before it wrote the rest. Another process writes the rest, or none does.
		bare := o.DeepCopy()
		bare.Status = api.FencingStatus{}
		for how, s := range map[string]api.FencingStatus{
			"joined":     other.MergeObject(bare).Object.Status,
			"taken over": EntryOf(bare).AddUpdate(again).Object.Status} {
			if s.Result != c.would || s.Pods.Would != 3 || len(s.Pods.Names) != 3 || s.Pods.Ended != 0 ||
				len(s.Evidence) != 2 {
				t.Errorf("%s, half written and %s: got %+v, want all that the other knows", c.would, how, s)
			}
		}
		if s := EntryOf(bare).WithEnd(ResultUnknown, after(time.Hour)).Object.Status; s.Phase != "Done" ||
			s.Result != c.would || s.FinishedAt == nil {
			t.Errorf("%s, half written and never completed: got %+v", c.would, s)
		}

		// Names.
		for what, change := range map[string]func(*Update){
			"it": func(*Update) {}, "another boot's": func(x *Update) { x.Record.BootID = "2" },
			"after a heartbeat":           func(x *Update) { x.Record.LeaseRV = "8" },
			"another Node's of that name": func(x *Update) { x.Record.NodeUID = "2" },
			"another node's":              func(x *Update) { x.Node = "n2" },
			"a long name's":               func(x *Update) { x.Node = strings.Repeat("node-0123.", 25) + "xyz" },
		} {
			x := first
			change(&x)
			name := x.Name()
			if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 || seen[name] != "" ||
				what == "it" && (name != o.Name || !strings.HasPrefix(name, c.prefix)) {
				t.Errorf("%s of %s: got name %q, which %q has: %v", c.would, what, name, seen[name], bad)
			}
			seen[name] = c.would + " of " + what
		}
	}
	big := shadow(false)
	big.Would = podsTo(700)
	if p := (Entry{}).AddUpdate(big).BoundedObject(&api.Fencing{}).Status.Pods; p.Would != 700 ||
		len(p.Names) != api.MaxNames {
		t.Errorf("700 pods: got %d and %d names, want all of them and %d", p.Would, len(p.Names), api.MaxNames)
	}
}

// TestClocks: the clocks of two controllers differ by a minute. A fence that is over is over.
func TestClocks(t *testing.T) {
	e := tell(Entry{}, told(record().EnterPhase(taint.PhaseEvicting, "", after(time.Minute)), after(time.Minute)),
		told(record().EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(-second)), after(-second)))
	if s := e.Object.Status; s.Phase != "Done" || s.Result != "Evicted" || s.Duration != "0s" {
		t.Errorf("got %s %s after %s, want Done Evicted after 0s", s.Phase, s.Result, s.Duration)
	}
}

func TestName(t *testing.T) {
	person := func(id string, since time.Time) taint.Record {
		return taint.Record{ID: id, NodeUID: "uid", Since: since, By: taint.ByPerson}
	}
	long := strings.Repeat("node-0123.", 25) + "x"
	seen := map[string]string{}
	for _, c := range []struct {
		name, node string
		r          taint.Record
		prefix     string
	}{
		{"ours", "n1", record(), "n1.f-0123456789ab"},
		{"ours, another node", "n2", record(), "n2.f-0123456789ab"},
		{"a person's", "n1", person("manual", start), "n1.manual-"},
		{"the same word later", "n1", person("manual", after(time.Hour)), "n1.manual-"},
		{"no word", "n1", person("", start), "n1."},
		{"the ends of the alphabet", "n1", person("AZ_az_09", start), "n1.az-az-09-"},
		{"capitals and dots", "n1", person("Rack_7.B", start), "n1.rack-7-b-"},
		{"like ours, but a person's", "n1", person("f-0123456789ab", start), "n1.f-0123456789ab-"},
		{"the same, later", "n1", person("f-0123456789ab", after(second)), "n1.f-0123456789ab-"},
		{"nothing that a name may hold", "n1", person("___", start), "n1."},
		{"another controller's", "n1", taint.Record{ID: "x", NodeUID: "uid", Since: start, By: "external/nhc"},
			"n1.x-"},
		{"a long node", long, record(), long[:100]},
		{"a longer one", long + "y", record(), long[:100]},
		{"long both", long, person(strings.Repeat("w", 63), start), long[:100]},
	} {
		got := ObjectName(c.node, c.r)
		if bad := validation.IsDNS1123Subdomain(got); len(bad) > 0 || !strings.HasPrefix(got, c.prefix) {
			t.Errorf("%s: got %q, want a name that begins with %q: %v", c.name, got, c.prefix, bad)
		}
		if before := seen[got]; before != "" {
			t.Errorf("%s: got %q, which %s has", c.name, got, before)
		}
		seen[got] = c.name
		if again := ObjectName(c.node,
			c.r.EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(time.Hour))); again != got {
			t.Errorf("%s: got %q in another phase, want %q", c.name, again, got)
		}
	}
}

func TestExpired(t *testing.T) {
	fence := func(name string, ended time.Duration) api.Fencing {
		e := tell(Entry{}, told(record().EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(ended)), after(ended)))
		e.Object.Name = name
		return e.Object
	}
	open := tell(Entry{}, told(record(), start)).Object
	open.Name = "open"
	all := []api.Fencing{fence("b", 2*time.Hour), open, fence("c", 3*time.Hour), fence("a", time.Hour)}
	for _, c := range []struct {
		name string
		keep Retention
		now  time.Time
		want []string
	}{
		{"all", Retention{3, 24 * time.Hour}, after(4 * time.Hour), nil},
		{"by count", Retention{1, 24 * time.Hour}, after(4 * time.Hour), []string{"b", "a"}},
		{"by age", Retention{9, 90 * time.Minute}, after(4 * time.Hour), []string{"b", "a"}},
		{"all of them, but the open one", Retention{9, time.Hour}, after(100 * time.Hour), []string{"c", "b", "a"}},
	} {
		var got []string
		for _, f := range c.keep.FindExpired(all, c.now) {
			got = append(got, f.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestEnds(t *testing.T) {
	e := tell(Entry{}, story()[:4]...).WithEnd(ResultUnknown, after(time.Hour))
	if s := e.Object.Status; s.Phase != "Done" || s.Result != "Unknown" || s.Pods.Ended != 2 || s.Duration != "1h0m0s" {
		t.Errorf("got %+v, want Done, Unknown, and what was known", s)
	}
}

// What becomes of the machine afterwards is added to the fence that is over, by the current leader, and nothing else of
// it changes.
func TestAfterwards(t *testing.T) {
	before := tell(Entry{}, story()...).Object
	rec := story()[len(story())-1].Record
	for _, after := range []taint.AfterFence{taint.AfterFencePowerOn, taint.AfterFencePoweredOn} {
		rec.AfterFence = after
		now := Entry{}.AddUpdate(told(rec, start.Add(time.Hour))).MergeObject(&before).Object
		c := meta.FindStatusCondition(now.Status.Conditions, api.Finished)
		if now.Status.AfterFence != string(after) || c.Reason != "Evicted" ||
			!strings.HasSuffix(c.Message, afterFenceTexts[after]) || afterFenceTexts[after] == "" {
			t.Errorf("%s: got %q, condition %+v", after, now.Status.AfterFence, c)
		}
		now.Status.AfterFence, now.Status.Conditions = "", before.Status.Conditions
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("%s: something else changed (-before +now):\n%s", after, diff)
		}
		before.Status.AfterFence = string(after)
		if late := EntryOf(&before).AddUpdate(told(rec, start.Add(time.Hour))).
			Object; late.Status.AfterFence != string(after) {
			t.Errorf("%s: reported again: got %q", after, late.Status.AfterFence)
		}
		before.Status.AfterFence = ""
	}
}

// TestPowerOffTo: the object names what the record names. Until the end they may be more than those that accepted a
// power-off.
func TestPowerOffTo(t *testing.T) {
	named := func(p taint.Phase, res taint.Result, at time.Duration, devices ...string) Update {
		r := record().EnterPhase(p, res, after(at))
		for _, d := range devices {
			r.PowerOffTo = append(r.PowerOffTo, taint.DeviceRef{Device: d})
		}
		return told(r, after(at))
	}
	check := func(what string, e Entry, want ...string) {
		t.Helper()
		if got := e.Object.Status.PowerOffTo; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	one := named(taint.PhasePoweringOff, "", 0, "strip/1", "strip/2")
	more := named(taint.PhasePoweringOff, "", 0, "strip/1", "strip/2", "bmc/1")
	end := named(taint.PhaseDone, taint.ResultCancelled, second, "strip/1")
	check("announced", tell(Entry{}, one), "strip/1", "strip/2")
	check("the next level", tell(Entry{}, one, more), "bmc/1", "strip/1", "strip/2")
	check("a look that was overtaken", tell(Entry{}, more, one), "bmc/1", "strip/1", "strip/2")
	done := tell(Entry{}, one, more, end)
	check("ended", done, "strip/1")
	check("reported late", tell(done, more), "strip/1")
	check("none accepted it", tell(Entry{}, one, named(taint.PhaseDone, taint.ResultCancelled, second)))
	check("the Node is gone", tell(Entry{}, one, Update{Node: "n1", At: after(second), Record: one.Record, Gone: true}),
		"strip/1", "strip/2")

	open, other := tell(Entry{}, one).Object, tell(Entry{}, more)
	check("another process reported more", other.MergeObject(&open), "bmc/1", "strip/1", "strip/2")
	check("another process saw the end", other.MergeObject(&done.Object), "strip/1")
	check("this one saw the end", done.MergeObject(&other.Object), "strip/1")
	var many []string
	for i := range 2 * api.MaxDevices {
		many = append(many, fmt.Sprintf("strip/%02d", i))
	}
	bounded := tell(Entry{}, named(taint.PhasePoweringOff, "", 0, many...)).BoundedObject(&api.Fencing{})
	if got := bounded.Status.PowerOffTo; len(got) != api.MaxDevices {
		t.Errorf("got %d devices, want %d", len(got), api.MaxDevices)
	}
}

// Only the same answer of the same device to the same question is one answer.
func TestEvidenceKeepsDifferentAnswers(t *testing.T) {
	first := api.Answer{At: toMicroTime(start), From: "racks/7", State: "Off", Raw: "off"}
	for _, tt := range []struct {
		name   string
		change func(*api.Answer)
		want   int
	}{
		{"the same", func(*api.Answer) {}, 1},
		{"another device", func(a *api.Answer) { a.From = "pdus/7" }, 2},
		{"another state", func(a *api.Answer) { a.State = "On" }, 2},
		{"another word", func(a *api.Answer) { a.Raw = "Off" }, 2},
		{"a later question", func(a *api.Answer) { a.At = toMicroTime(after(second)) }, 2},
	} {
		other := first
		tt.change(&other)
		if got := normalizeEvidence([]api.Answer{first, other}); len(got) != tt.want {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.want)
		}
	}
}
