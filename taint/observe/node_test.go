package observe

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// scene is one node whose steps are reported, without a world in which they happen.
type scene struct {
	*NodeReporter
	t       *testing.T
	now     time.Time
	writing bool
	leading error
	known   fleet.Fleet
	events  *events.FakeRecorder
	times   []time.Time // of the Events
	object  *corev1.Node
}

// newScene is a node that was looked at in a phase of its fence; "" is none.
func newScene(t *testing.T, phase taint.Phase) *scene {
	t.Helper()
	s := &scene{t: t, now: newYear, events: events.NewFakeRecorder(200)}
	o := New(Options{
		RefusedDetach: signing.RefusedDetach,
		Sinks: Sinks{
			Events: func(at time.Time) events.EventRecorder {
				s.times = append(s.times, at)
				return s.events
			},
			Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		},
		Leading: func() error { return s.leading }, Writing: func() bool { return s.writing },
		Fleet: func(do func(*fleet.Fleet)) { do(&s.known) }, Now: func() time.Time { return s.now },
	})
	s.object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "5"}}
	s.object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if phase != "" {
		rec := taint.Record{ID: "f-1", NodeUID: "u", By: "test", Since: newYear}.EnterPhase(phase, "", newYear)
		s.object.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
		s.object.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-1", newYear)
	}
	s.NodeReporter = o.NewNodeReporter("n1", &decide.Node{})
	s.look()
	return s
}

// look has the node read live.
func (s *scene) look() {
	now := s.Now.Instant()
	o := decide.NodeRead{Look: taint.NewLook(s.object, nil, taint.DefaultKey, now, now), Node: s.object}
	o.Facts.Devices, o.Facts.Mode = []proof.Device{{Name: "bmc/n1"}}, fence.Fence
	s.observes(action.Decision{Action: action.ReadNode{}}, o)
}

// observes has a step told that brought an observation.
func (s *scene) observes(d action.Decision, o decide.Observation) {
	began := s.Now.Instant()
	if o != nil {
		s.course.Apply(began, &s.known, o)
	}
	s.ReportStep(s.t.Context(),
		decide.StepDone{Look: s.course.Look(), Decision: d, Outcome: o, Began: began, Ended: began})
}

// does has a step told that went well.
func (s *scene) does(d action.Decision) {
	var o decide.Observation
	switch d.Action.(type) {
	case action.Wait, action.NoAction:
	case action.AskDevices:
		o = decide.DevicesAnswered{Answers: make([]providers.Answer, 1)}
	default:
		made := map[string]bool{}
		for _, p := range action.PodsOf(d.Action) {
			made[p.UID] = true
		}
		o = decide.ActionDone{Writes: decide.Writes{Made: made}}
	}
	// Not applied: the next step reports on the same look.
	began := s.Now.Instant()
	s.now = s.now.Add(time.Millisecond)
	s.ReportStep(s.t.Context(),
		decide.StepDone{Look: s.course.Look(), Decision: d, Outcome: o, Began: began, Ended: s.Now.Instant()})
}

// told returns the Events that were sent.
func (s *scene) told() (out []string) {
	for {
		select {
		case e := <-s.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// reasons are the Events' reasons.
func (s *scene) reasons() (out []string) {
	for _, e := range s.told() {
		out = append(out, strings.Fields(e)[1])
	}
	return out
}

// A node without a hook starts its old pods if it boots before the mark is off. One Event of each fence warns a person
// when the eviction begins.
func TestNodeWithoutHookIsTold(t *testing.T) {
	begins := action.Decision{Action: action.WriteRecord{}, Reason: reason.Confirmed}
	vouched := action.Decision{Action: action.WriteRecord{}, Reason: reason.Vouched}
	goesOn := action.Decision{Action: action.EndPods{}, Reason: reason.Tombstoning}
	over := action.Decision{Action: action.RemoveMark{}, Reason: reason.Finished}
	lifted := action.Decision{Action: action.RemoveMark{}, Reason: reason.NotConfirmed}
	for name, tt := range map[string]struct {
		hook  corev1.NodeCondition
		story []action.Decision
		want  int
	}{
		"no hook ever": {corev1.NodeCondition{}, []action.Decision{begins, goesOn, over}, 1},
		"the runtime has no NRI": {corev1.NodeCondition{Status: "False", Reason: taint.ProtectionNone},
			[]action.Decision{begins, goesOn}, 1},
		"nobody knows": {corev1.NodeCondition{Status: "Unknown", Reason: taint.ProtectionFailClosed},
			[]action.Decision{begins}, 1},
		"under a person's word":    {corev1.NodeCondition{}, []action.Decision{vouched, goesOn}, 1},
		"the write met a conflict": {corev1.NodeCondition{}, []action.Decision{begins, begins, goesOn}, 1},
		"two fences": {corev1.NodeCondition{}, []action.Decision{begins, goesOn, over, begins, goesOn},
			2},
		"fail-closed": {corev1.NodeCondition{Status: "True", Reason: taint.ProtectionFailClosed},
			[]action.Decision{begins, goesOn, over}, 0},
		"fail-open": {corev1.NodeCondition{Status: "True", Reason: taint.ProtectionFailOpen},
			[]action.Decision{begins, goesOn, over}, 0},
		"not at a boot": {corev1.NodeCondition{Status: "True", Reason: taint.ProtectionNotAtBoot},
			[]action.Decision{begins, goesOn, over}, 1},
		"lifted before it was begun": {corev1.NodeCondition{}, []action.Decision{lifted}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, taint.PhaseArmed)
			if tt.hook.Status != "" {
				tt.hook.Type = taint.ProtectionCondition
				s.object.Status.Conditions = append(s.object.Status.Conditions, tt.hook)
			}
			for _, d := range tt.story {
				s.does(d)
			}
			s.queue.flushNode("n1")
			var got []string
			for _, e := range s.told() {
				if strings.HasPrefix(e, "Warning NoHookOnNode ") {
					got = append(got, e)
				}
			}
			if len(got) != tt.want {
				t.Fatalf("got %d Events %q, want %d", len(got), got, tt.want)
			}
			for _, e := range got {
				if !strings.Contains(e, "power restore policy") || !strings.Contains(e, "install the hook") {
					t.Errorf("it does not say what to do: %s", e)
				}
			}
		})
	}
}

// The Event about a skipped policy is sent once, and again after its cause changed or ended.
func TestStandsAsideOnce(t *testing.T) {
	s := newScene(t, "")
	for _, why := range []string{"", "on", "on", "unread", "", "on", ""} {
		d := action.Decision{Action: action.Wait{}}
		if why != "" {
			d.PolicyBlock = action.PolicyBlock{Why: reason.PolicyYields, Detail: why}
		}
		s.does(d)
	}
	got := s.told()
	for i, why := range []string{"on", "unread", "on"} {
		if len(got) != 3 || !strings.Contains(got[i], string(reason.PolicyYields)) ||
			!strings.Contains(got[i], ": "+why+".") {
			t.Fatalf("got %q, want on, unread, on", got)
		}
	}
}

// That policies wait is reported once for all nodes, even if the count in it changes. Another incident is reported
// again.
func TestPoliciesWaitIsToldOnce(t *testing.T) {
	s := newScene(t, "")
	other := s.Observer.NewNodeReporter("n2", s.course)
	other.node = s.object
	waits := func(detail, once string) action.PolicyBlock {
		return action.PolicyBlock{Why: reason.PolicyWaits, Detail: detail, ReportOnceKey: once}
	}
	s.decisions.reportAside(waits("5 of 9", "a"))
	s.decisions.reportAside(waits("6 of 9", "a"))
	other.decisions.reportAside(waits("6 of 9", "a"))
	s.decisions.reportAside(waits("3 of 4", "b"))
	got := s.told()
	for i, detail := range []string{"5 of 9", "3 of 4"} {
		if len(got) != 2 || !strings.Contains(got[i], string(reason.PolicyWaits)+" ") ||
			!strings.Contains(got[i], ": "+detail) {
			t.Fatalf("got %q, want one Event for each incident", got)
		}
	}
	s.now = s.now.Add(onceFor)
	s.decisions.reportAside(waits("4 of 4", "b"))
	if got := s.told(); len(got) != 0 {
		t.Errorf("got %q for another count of the same incident, want none", got)
	}
	other.decisions.reportAside(waits("3 of 4", "b"))
	if got := s.told(); len(got) != 1 {
		t.Errorf("got %q after %s, want it told again", got, onceFor)
	}
}

// A reason is reported once, and again after another reason. A question in between changes nothing.
func TestToldOnce(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	waits := func(why reason.Reason) action.Decision { return action.Decision{Action: action.Wait{}, Reason: why} }
	for _, d := range []action.Decision{
		waits(reason.ProofLost), waits(reason.ProofLost), {Action: action.AskDevices{}, Reason: reason.Confirming},
		waits(reason.ProofLost),
		waits(reason.WaitingDetach), waits(reason.ProofLost),
	} {
		s.does(d)
	}
	if got, want := s.reasons(), []string{"ProofLost", "WaitingForDetach", "ProofLost"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.leading = errStale
	s.does(waits(reason.Finished))
	if got := s.told(); got != nil {
		t.Errorf("told by a process that does not lead: %v", got)
	}
}

// While pods are written the node's Events wait: until the writes are done, or for a while. None is lost, they come in
// their order, and each has the time of what it tells.
func TestEventsWaitForWrites(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	begun := map[string]time.Time{}
	does := func(a action.Action, why reason.Reason) {
		s.now = s.now.Add(time.Second)
		begun[string(why)] = s.now
		s.does(action.Decision{Action: a, Reason: why})
	}
	wants := func(what string, want ...string) {
		t.Helper()
		got := s.reasons()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
		for i, why := range got {
			if at := begun[why]; !at.IsZero() && !s.times[i].Equal(at) {
				t.Errorf("%s: %s has the time %s, want %s", what, why, s.times[i], at)
			}
		}
		s.times = nil
	}
	does(action.WriteRecord{}, reason.Confirmed)
	does(action.EndPods{}, reason.Tombstoning)
	s.queue.sendDue()
	wants("while pods are ended")
	does(action.Wait{}, reason.WaitingDetach)
	wants("once they are", "MachineConfirmedOff", "NoHookOnNode", "EndingPods", "WaitingForDetach")
	does(action.DeletePods{}, reason.Deleting)
	s.now = s.now.Add(queueFor)
	s.queue.sendDue()
	wants("pods that take their time", "DeletingPods")
	does(action.ClearVolumes{}, reason.Clearing)
	does(action.RemoveMark{}, reason.Finished)
	wants("the mark goes", "ClearingVolumes", "NodeEvicted")

	s.writing = true // another node's
	does(action.EndPods{Pods: []action.Pod{{Name: "a"}}}, reason.Tombstoning)
	does(action.RemoveMark{}, reason.NeverOff)
	wants("the mark goes while another node's pods are ended")
	s.writing = false // it ends
	s.queue.sendDue()
	wants("no pods are being ended", "EndingPods", "NodeFenced", "FencedNodeNeverPoweredOff")

	s.writing = true // another, which does not end
	does(action.EndPods{Pods: []action.Pod{{Name: "b"}}}, reason.Retrying)
	does(action.RemoveMark{}, reason.Finished)
	s.queue.sendDue()
	wants("a run beside it ends")
	s.now = s.now.Add(queueFor)
	synctest.Test(t, func(t *testing.T) {
		go func() { _ = s.Start(t.Context()) }() // until the test's end; it returns no error
		time.Sleep(time.Second)
	})
	wants("it still does not end", "RetryingPods", "NodeFenced", "NodeEvicted")
}

// Pods' Events wait for their fence's end, and not for a settled moment in it.
func TestPodEventsWaitForFence(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	s.does(action.Decision{Action: action.EndPods{Pods: []action.Pod{{Name: "a"}}}, Reason: reason.Tombstoning})
	s.does(action.Decision{Action: action.Wait{}, Reason: reason.WaitingDetach})
	if got, want := s.reasons(), []string{"EndingPods", "WaitingForDetach"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.object = s.object.DeepCopy()
	s.object.Spec.Taints = nil // somebody took the mark off
	s.look()
	s.does(action.Decision{Action: action.NoAction{}})
	if got, want := s.reasons(), []string{"NodeFenced"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Every word in braces that the text of a decision's reason has is replaced.
func TestEventsHaveNoBraces(t *testing.T) {
	// they are no decisions, and have words of their own
	others := []reason.Reason{reason.OddLease, reason.Fenced, reason.PoweredOff, reason.NeedsPerson}
	s := newScene(t, taint.PhaseEvicting)
	for _, row := range reason.Table() {
		if row.Text == "" || slices.Contains(others, row.Reason) {
			continue
		}
		s.told()
		d := action.Decision{Action: action.Wait{}, Reason: row.Reason, Detail: "because"}
		if strings.Contains(row.Text, "{by}") {
			d.Action = action.WriteRecord{Record: taint.Record{ID: "f-9", By: "kim"}}
		}
		s.does(d)
		s.queue.flushNode("n1")
		if got := s.told(); len(got) == 0 || !strings.Contains(got[0], string(row.Reason)) ||
			strings.ContainsAny(got[0], "{}") {
			t.Errorf("%s: got %q", row.Reason, got)
		}
	}
}

// A Lease with a duration out of bounds is reported once, and again when it returns to one.
func TestOddLeaseIsTold(t *testing.T) {
	s := newScene(t, "")
	for _, odd := range []bool{false, true, true, false, true} {
		s.ReportCachedNode(s.object, fleet.View{OddLease: odd})
	}
	got := s.told()
	if len(got) != 2 || !strings.Contains(got[0], "LeaseDurationOutOfBounds") {
		t.Errorf("got %q, want it told twice", got)
	}
	for range 3 {
		s.ReportCachedNode(s.object, fleet.View{LongLease: 5 * time.Minute})
	}
	if got := s.told(); len(got) != 1 || !strings.Contains(got[0], "LeaseDurationUnusual") ||
		!strings.Contains(got[0], "5m0s") {
		t.Errorf("a longer Lease than the others': got %q, want it told once", got)
	}
}

// Another client takes the node out of service. An Event names the client as long as no device calls the machine off:
// once, and again if the machine's power changes.
func TestOutOfServiceByOtherIsReported(t *testing.T) {
	answer := func(s *scene, state providers.PowerState) {
		s.now = s.now.Add(time.Second)
		at := s.Now.Instant()
		s.observes(action.Decision{Action: action.AskDevices{}}, decide.DevicesAnswered{Answers: []providers.Answer{
			{Observation: providers.Observation{State: state, At: at}, Got: at}}})
	}
	for _, tt := range []struct {
		name    string
		manager string
		value   string
		answers []providers.PowerState
		want    []string
	}{
		{"on", "harvester", "", []providers.PowerState{providers.PowerOn, providers.PowerOn},
			[]string{`"harvester" set it, and its machine is on`}},
		{"off", "harvester", "", []providers.PowerState{providers.PowerOff}, nil},
		{"unknown, then on", "harvester", "", []providers.PowerState{providers.PowerUnknown, providers.PowerOn},
			[]string{`"harvester" set it, and no device says that its machine is off`,
				`"harvester" set it, and its machine is on`}},
		{"on, off, on", "harvester", "",
			[]providers.PowerState{providers.PowerOn, providers.PowerOff, providers.PowerOn},
			[]string{`"harvester" set it, and its machine is on`, `"harvester" set it, and its machine is on`}},
		{"a client that is not known", "kube-controller-manager", "", []providers.PowerState{providers.PowerOn},
			[]string{"a client that its managed fields no longer show set it, and its machine is on"}},
		{"a client's name is quoted", "a\nb", "", []providers.PowerState{providers.PowerOn},
			[]string{`"a\nb" set it, and its machine is on`}},
		{"ours", "forcefence", "forcefence", []providers.PowerState{providers.PowerOn}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, "")
			s.object.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: tt.value,
				Effect: corev1.TaintEffectNoExecute}}
			s.object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: tt.manager, Time: &metav1.Time{},
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
			s.look()
			for _, state := range tt.answers {
				answer(s, state)
			}
			var got []string
			for _, e := range s.told() {
				if strings.Contains(e, "OutOfServiceByOther") {
					got = append(got, e)
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("got %q, want %q in it", got[i], tt.want[i])
				}
			}
		})
	}
}

// However a fence ends, its powered-off devices are named once, by a process that saw it open.
func TestPowerOffsAreReportedOnce(t *testing.T) {
	rec := func(p taint.Phase, res taint.Result, devices ...string) *taint.Record {
		r := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "other",
			Since: newYear}.EnterPhase(p, res, newYear)
		for _, d := range devices {
			r.PowerOffTo = append(r.PowerOffTo, taint.DeviceRef{Device: d})
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
	forged := rec(taint.PhaseDone, taint.ResultReleased, "strip/a\nand more")
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
		"what a kubelet wrote itself": {[]*taint.Record{open, forged}, "strip/a and more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "")
			for _, r := range tc.seen {
				s.fences.reportPowerOffs(s.object, r)
			}
			got := s.told()
			if len(got) != map[bool]int{true: 1, false: 0}[tc.want != ""] ||
				tc.want != "" && !strings.Contains(got[0], tc.want) {
				t.Errorf("got Events %q, want %q once", got, tc.want)
			}
		})
	}
	t.Run("the Node is gone", func(t *testing.T) {
		s := newScene(t, "")
		s.fences.reportPowerOffs(s.object, open)
		s.ReportGone()
		if got := s.told(); len(got) != 1 || !strings.Contains(got[0], "strip/a, strip/b") {
			t.Errorf("got Events %q, want one that names both outlets", got)
		}
	})
}

// The fence reports the pods that stay. Finalizers that stock controllers remove by themselves are not reported.
func TestKeptPodsAreTold(t *testing.T) {
	pod := func(name string, finalizers ...string) action.Pod {
		return action.Pod{Namespace: "a", Name: name, UID: name, Terminal: true, Tombstone: true, Deleting: true,
			Finalizers: finalizers}
	}
	s := newScene(t, taint.PhaseEvicting)
	s.does(action.Decision{Reason: reason.Finished, Action: action.RemoveMark{HeldPods: []action.Pod{
		pod("job", "batch.kubernetes.io/job-tracking"), pod("owner", "foregroundDeletion"), pod("orphans", "orphan"),
		pod("kept", "example.net/keep"), pod("both", "batch.kubernetes.io/job-tracking", "example.net/too"),
		pod("gone"),
	}}, Stuck: []action.StuckPod{
		{Pod: pod("huge"), Write: action.WritesDelete, Why: action.TooLarge},
		{Pod: pod("lives"), Write: action.WritesSpare, Why: action.Denied},
	}})
	got := strings.Join(s.told(), "\n")
	for text, want := range map[string]int{
		"FinalizersKeepPod": 2, "removed: example.net/keep.": 1, "removed: example.net/too.": 1, "job-tracking": 0,
		"PodLeftBehind": 2, "cannot be deleted (too large for the API server)": 1,
		"could not be marked as spared (the API server refuses it)": 1, "NodeEvicted": 1,
	} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q: got %d times, want %d, in:\n%s", text, n, want, got)
		}
	}
}

// An alert names a few of the stuck pods, and is sent again when other pods are stuck.
func TestAlertNamesPods(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	tell := func(names ...string) string {
		d := action.Decision{Action: action.Wait{}, Reason: reason.Retrying, Alert: string(reason.Stuck)}
		for _, n := range names {
			d.Stuck = append(d.Stuck,
				action.StuckPod{Pod: action.Pod{Namespace: "a", Name: n}, Write: action.WritesEnd,
					Why: action.TooLarge})
		}
		s.decisions.reportAlert(d)
		return strings.Join(s.told(), "\n")
	}
	const first = "(PodsStuck: pod a/p1 cannot be ended (too large for the API server))"
	if got := tell("p1"); !strings.Contains(got, "FenceNeedsPerson") || !strings.Contains(got, first) {
		t.Errorf("got %s, want %s", got, first)
	}
	if got := tell("p1"); got != "" {
		t.Errorf("told again: %s", got)
	}
	got := tell("p1", "p2", "p3", "p4", "p5")
	if !strings.Contains(got, "pod a/p3 cannot") || strings.Contains(got, "p4") ||
		!strings.Contains(got, "; and 2 more)") {
		t.Errorf("got %s, want three of five", got)
	}
}

// An alert about volumes that do not detach says why the proof guard refuses that. They are volumes that a node reports
// in use while it is not Ready, and that are not being detached.
func TestAlertNamesTheRefusedDetach(t *testing.T) {
	for _, tc := range []struct {
		name       string
		ready      corev1.ConditionStatus
		inUse      corev1.UniqueVolumeName
		attachment action.Attachment
		want       bool
	}{
		{"in use", corev1.ConditionUnknown, "kubernetes.io/csi/d^1", action.Attachment{PV: "pv", Attacher: "d"}, true},
		{"the node is Ready", corev1.ConditionTrue, "kubernetes.io/csi/d^1", action.Attachment{PV: "pv", Attacher: "d"},
			false},
		{"not in use", corev1.ConditionUnknown, "kubernetes.io/csi/e^1", action.Attachment{PV: "pv", Attacher: "d"},
			false},
		{"being detached", corev1.ConditionUnknown, "kubernetes.io/csi/d^1",
			action.Attachment{PV: "pv", Attacher: "d", Deleting: true}, false},
	} {
		s := newScene(t, taint.PhaseEvicting)
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
		rec := taint.Record{ID: "f-1", NodeUID: "u", LeaseRV: "1", By: "test", Since: newYear}.
			EnterPhase(taint.PhaseEvicting, "", newYear).
			WithEvidence(taint.Evidence{At: newYear, From: "bmc", State: "Off", Raw: "Off"})
		rec.Proof = signing.Signer{Key: key, By: "test"}.Sign(taint.Look{Name: "n1"}, rec, true)
		s.object.Annotations[taint.RecordAnnotation] = rec.Encode() // and the node has no Lease any more
		s.object.Status.Conditions[0].Status = tc.ready
		s.object.Status.VolumesInUse = []corev1.UniqueVolumeName{tc.inUse}
		s.look()
		s.observes(action.Decision{Action: action.ListPods{}}, decide.PodsListed{})
		s.observes(action.Decision{Action: action.ListAttachments{}},
			decide.AttachmentsListed{Attachments: []action.Attachment{tc.attachment}})
		s.told()
		d := action.Decision{Action: action.Wait{}, Reason: reason.WaitingDetach, Alert: string(reason.WaitingDetach),
			AlertDetail: "volumes of d are still attached"}
		s.decisions.reportAlert(d)
		s.decisions.reportAlert(d)
		got := s.told()
		if len(got) != 1 || strings.Contains(got[0], "refuses to detach those in use") != tc.want {
			t.Errorf("%s: got %q, want one alert, and that the guard refuses: %t", tc.name, got, tc.want)
		}
	}
}

// A volume that does not detach is named with its driver, its attachment, and the command to look. Another volume that
// detaches meanwhile is no further Event. What a person needs is in the Fencing as data, and leaves it with the alert.
func TestStuckVolumeIsNamed(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	s.look()
	list := func(names ...string) {
		var attachments []action.Attachment
		for _, name := range names {
			attachments = append(attachments, action.Attachment{Name: name, PV: "pv-" + name, Attacher: "csi.example.com"})
		}
		s.observes(action.Decision{Action: action.ListPods{}}, decide.PodsListed{})
		s.observes(action.Decision{Action: action.ListAttachments{}}, decide.AttachmentsListed{Attachments: attachments})
	}
	d := action.Decision{Action: action.Wait{}, Reason: reason.WaitingDetach, Alert: string(reason.WaitingDetach),
		AlertDetail: "volumes of csi.example.com are still attached"}
	list("b", "a")
	s.told()
	waiting := s.decisions.reportAlert(d)
	got := s.told()
	if len(got) != 1 {
		t.Fatalf("got Events %q, want one", got)
	}
	for _, want := range []string{"kubectl describe volumeattachment a (", "volume pv-a", "driver csi.example.com",
		"ForcefenceMarkStuck"} {
		if !strings.Contains(got[0], want) {
			t.Errorf("the Event %q lacks %q", got[0], want)
		}
	}
	if strings.Contains(got[0], "release") {
		t.Errorf("the Event %q advises to release a fence whose volume is attached", got[0])
	}
	if len(waiting) != 2 || waiting[0] != (api.Attachment{Name: "a", Volume: "pv-a", Driver: "csi.example.com"}) {
		t.Errorf("got %+v, want both attachments by name", waiting)
	}
	list("b")
	if left, more := s.decisions.reportAlert(d), s.told(); len(left) != 1 || len(more) != 0 {
		t.Errorf("once one is detached: got %+v, Events %q; want the other, and no further Event", left, more)
	}
	d.Alert, d.AlertDetail = "", ""
	if left := s.decisions.reportAlert(d); len(left) != 0 {
		t.Errorf("without an alert: got %+v", left)
	}
}

// The fence of a Node that was deleted is over: its Events wait for nothing any more, and its Fencing says so.
func TestDeletedNodeIsTold(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	var got journal.Update
	s.Fences = func(told journal.Update) { got = told }
	s.writing = true
	s.queueEvent(reason.NoHook, "Evict")
	s.ReportGone()
	if told := s.reasons(); !slices.Equal(told, []string{"NoHookOnNode"}) {
		t.Errorf("got Events %q, want the one that waited", told)
	}
	if !got.Gone || got.Record.ID != "f-1" {
		t.Errorf("got %+v, want that the fence's Node is gone", got)
	}
}

// Only the pods that this fence ended before are its own: another fence's tombstones, and pods that run, are not.
func TestPodsEndedBeforeAreOfTheFence(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	var got []api.Pod
	s.Fences = func(told journal.Update) { got = append(got, told.Ended...) }
	s.fences.reportEndedBefore([]action.Pod{
		{UID: "ours", Tombstone: true, Message: taint.FenceMessage("f-1")},
		{UID: "another fence's", Tombstone: true, Message: taint.FenceMessage("f-0")},
		{UID: "runs", Message: taint.FenceMessage("f-1")},
	})
	if len(got) != 1 || got[0].UID != "ours" {
		t.Errorf("got %v, want ours alone", got)
	}
}

// Steps that fail for a minute make a node stuck, but not in a process that does not lead or ends, and not if a write
// was late or met another's.
func TestWhichFailuresMakeANodeStuck(t *testing.T) {
	refused := errors.New("admission says no")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx     context.Context
		leading error
		err     error
		want    bool
	}{
		"a refusal":             {t.Context(), nil, refused, true},
		"by one that leads not": {t.Context(), errStale, refused, false},
		"the process ends":      {over, nil, refused, false},
		"another's write":       {t.Context(), nil, kube.ErrAgain, false},
		"a write that was late": {t.Context(), nil, kube.ErrLate, false},
	} {
		s := newScene(t, taint.PhaseEvicting)
		s.leading = tc.leading
		for range 2 {
			s.states.stepFailed(tc.ctx, action.Decision{Action: action.EndPods{}}, tc.err)
			s.now = s.now.Add(stuckAfter)
		}
		s.states.setState(reason.StateEvicting) // what is decided next does not hide it
		if s.states.failing.stuck != tc.want || (s.states.shown == reason.StateStuck) != tc.want {
			t.Errorf("%s: got stuck %v, shown %s; want it stuck: %v", name, s.states.failing.stuck, s.states.shown,
				tc.want)
		}
		if s.states.stepSucceeded(); s.states.shown == reason.StateStuck {
			t.Errorf("%s: stuck although a step succeeded", name)
		}
	}
}

// A person is called again if the same trouble comes back in the fence.
func TestAlertIsSentAgain(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	var got []int
	for _, alert := range []string{"a disk", "a disk", "", "a disk"} {
		s.decisions.reportAlert(action.Decision{Action: action.Wait{}, Reason: reason.Retrying, Alert: alert})
		got = append(got, len(s.told()))
	}
	if want := []int{1, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("Events: got %v, want %v", got, want)
	}
}

// The next outage of a node is reported, although it is as the last one: the node was healthy in between.
func TestNextOutageIsTold(t *testing.T) {
	for want, d := range map[reason.Reason]action.Decision{
		reason.ProofLost:   {Action: action.Wait{}, Reason: reason.ProofLost},
		reason.NeedsPerson: {Action: action.Wait{}, Reason: reason.Retrying, Alert: "a disk"},
		reason.PolicyYields: {Action: action.Wait{}, Reason: reason.Retrying,
			PolicyBlock: action.PolicyBlock{Why: reason.PolicyYields, Detail: "on"}},
	} {
		s := newScene(t, taint.PhaseEvicting)
		s.does(d)
		s.does(d)
		first := s.reasons()
		s.ReportIdle(s.object, s.course.Look(), fence.Fence)
		s.look()
		s.does(d)
		for when, told := range map[string][]string{"the first outage": first, "the next": s.reasons()} {
			is := func(r string) bool { return r == string(want) }
			if i := slices.IndexFunc(told, is); i < 0 || slices.ContainsFunc(told[i+1:], is) {
				t.Errorf("%s: got %q, want one %s", when, told, want)
			}
		}
	}
}

// Nodes are counted by their state, each once, and not at all once they are gone.
func TestNodesAreCounted(t *testing.T) {
	s := newScene(t, "")
	want := func(when string, states ...reason.State) {
		t.Helper()
		got := map[string]float64{}
		for _, state := range append(states, reason.StateHealthy, reason.StateStuck, reason.StateEvicting) {
			got[string(state)] = testutil.ToFloat64(s.Metrics.nodes.WithLabelValues(string(state)))
		}
		for state, n := range got {
			if is := slices.Contains(states, reason.State(state)); n != map[bool]float64{true: 1}[is] {
				t.Errorf("%s: got %v, want %v", when, got, states)
			}
		}
	}
	s.ReportIdle(s.object, s.course.Look(), fence.Fence)
	want("healthy", reason.StateHealthy)
	s.does(action.Decision{Action: action.EndPods{}, Reason: reason.Tombstoning})
	want("evicting", reason.StateEvicting)
	s.does(action.Decision{Action: action.Wait{}, Reason: reason.Retrying, Alert: "somebody should look"})
	want("a person is called", reason.StateStuck)
	s.ReportGone()
	want("gone")
}

// A Fencing gets the pods that a fence leaves when it ends: those that are held, those that could not be deleted, and
// those of a node that came back.
func TestFencingGetsPodsThatStay(t *testing.T) {
	s := newScene(t, taint.PhaseEvicting)
	var got journal.Update
	s.Fences = func(told journal.Update) { got = told }
	rec := s.course.Look().Record.EnterPhase(taint.PhaseDone, taint.ResultReturned, newYear)
	s.does(action.Decision{Reason: reason.FinishedReturn, Action: action.RemoveMark{
		Record: rec, HeldPods: []action.Pod{{UID: "held"}}, Spared: []action.Pod{{UID: "spared"}},
	}, Stuck: []action.StuckPod{{Pod: action.Pod{UID: "stuck"}}}})
	if len(got.Left) != 2 || got.Left[0].UID != "held" || got.Left[1].UID != "stuck" || len(got.Spared) != 1 ||
		got.Spared[0].UID != "spared" {
		t.Errorf("got %v left and %v spared, want the pods of the decision", got.Left, got.Spared)
	}
}

// A Fencing gets the begin and the end of each step of its fence, and of the question before it. Other steps are not
// its own.
func TestStepsAreTold(t *testing.T) {
	s := newScene(t, "")
	var got []string
	s.Fences = func(told journal.Update) {
		if step := told.Step; step != nil {
			got = append(got, fmt.Sprintf("%s %s %s-%s of %d %s", told.Record.ID, step.Step, step.Began.Sub(newYear),
				step.Ended.Sub(newYear), step.Objects, step.Error))
		}
	}
	at := func(seconds int) providers.Instant {
		s.now = newYear.Add(time.Duration(seconds) * time.Second)
		return s.Now.Instant()
	}
	tells := func(seconds int, a action.Action, o decide.Observation) {
		began := at(seconds)
		s.ReportStep(t.Context(), decide.StepDone{
			Look: s.course.Look(), Decision: action.Decision{Action: a}, Outcome: o, Began: began,
			Ended: at(seconds + 1),
		})
	}
	answer := func(from, to int, state providers.PowerState) decide.DevicesAnswered {
		a := providers.Answer{Got: at(to)}
		a.At = at(from)
		a.State = state
		return decide.DevicesAnswered{Answers: []providers.Answer{a}}
	}
	open := taint.Record{ID: "f-1", NodeUID: "u", By: "test", Since: newYear}.EnterPhase(taint.PhaseArmed, "", newYear)
	closed := open.EnterPhase(taint.PhaseDone, taint.ResultEvicted, newYear)
	pods := []action.Pod{{UID: "a"}, {UID: "b"}, {UID: "c"}}
	tells(1, action.EndPods{Policy: "p", Pods: pods}, decide.ActionDone{})
	tells(2, action.AskDevices{}, answer(2, 3, providers.PowerOff))
	tells(4, action.SetMark{Record: open}, decide.ActionDone{Err: kube.ErrAgain}) // there is no such fence
	tells(5, action.SetMark{Record: open}, decide.ActionDone{})
	s.object.Annotations = map[string]string{taint.RecordAnnotation: open.Encode()}
	s.object.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-1", newYear)
	s.look()
	tells(7, action.EndPods{Pods: pods}, decide.ActionDone{Writes: decide.Writes{
		Made: map[string]bool{"a": true, "b": true}, Failed: 1, FirstErr: kube.ErrAgain,
	}})
	tells(8, action.EndPods{Policy: "p", Pods: pods}, decide.ActionDone{})
	tells(9, action.AskDevices{}, answer(9, 10, providers.PowerOff)) // the same as before
	tells(11, action.AskDevices{}, answer(11, 13, providers.PowerChanging))
	refused := fmt.Errorf("%w: no licence", providers.ErrDenied)
	tells(14, action.PowerOff{},
		decide.ActionDone{Err: refused, Power: []decide.PowerSent{{Device: "bmc/n1", Err: refused}}})
	tells(16, action.RemoveMark{Record: closed}, decide.ActionDone{})

	// two more fences, whose devices say what they said last: in the next outage, and after a person released the node
	for i, back := range []bool{true, false} {
		from := 100 * (i + 1)
		s.object.Annotations = map[string]string{taint.RecordAnnotation: closed.Encode()}
		s.object.Spec.Taints = nil
		s.look()
		if back {
			s.ReportIdle(s.object, s.course.Look(), fence.Fence)
			s.look()
		}
		next := open
		next.ID, next.Since = fmt.Sprintf("f-%d", i+2), at(from).Wall
		tells(from, action.AskDevices{}, answer(from, from+1, providers.PowerChanging))
		tells(from+2, action.AskDevices{}, answer(from+2, from+3, providers.PowerChanging))
		tells(from+4, action.SetMark{Record: next}, decide.ActionDone{})
	}
	want := []string{
		"f-1 AskDevices 2s-3s of 0 ", "f-1 SetMark 5s-6s of 0 ", "f-1 EndPods 7s-8s of 2 conflict",
		"f-1 AskDevices 11s-13s of 0 ", "f-1 PowerOff 14s-15s of 0 denied", "f-1 RemoveMark 16s-17s of 0 ",
		"f-2 AskDevices 1m42s-1m43s of 0 ", "f-2 SetMark 1m44s-1m45s of 0 ",
		"f-3 AskDevices 3m22s-3m23s of 0 ", "f-3 SetMark 3m24s-3m25s of 0 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestActionNames compares what metrics and Fencing objects call each action. Users select by these names.
func TestActionNames(t *testing.T) {
	named := map[string]int{}
	for _, tc := range []struct {
		action.Action
		phase, shadow string
		step          bool // under the action's own name
	}{
		{Action: action.SetMark{}, phase: "mark", shadow: "recover", step: true},
		{Action: action.EndPods{}, phase: "tombstone", step: true},
		{Action: action.ClearVolumes{}, phase: "clear", step: true},
		{Action: action.DeletePods{}, phase: "delete", step: true},
		{Action: action.WriteRecord{}, shadow: "power_off"},
		{Action: action.PowerOff{}, step: true},
		{Action: action.PowerOn{}, step: true},
		{Action: action.RemoveMark{}, step: true},
		{Action: action.SparePods{}, step: true},
		{Action: action.DeleteAttachments{}, step: true},
		{Action: action.SetPodsNotReady{}, step: true},
	} {
		name := action.Name(tc.Action)
		step := stepOf(decide.StepDone{Decision: action.Decision{Action: tc.Action}}, decide.ActionDone{})
		if phases[name] != tc.phase || shadowed[name] != tc.shadow ||
			(step != nil) != tc.step || step != nil && step.Step != name {
			t.Errorf("%s: got phase %q, shadow %q, step %v", name, phases[name], shadowed[name], step)
		}
		for table, has := range map[string]bool{
			"phases": tc.phase != "", "shadowed": tc.shadow != "", "steps": tc.step,
		} {
			if has {
				named[table]++
			}
		}
	}
	want := map[string]int{"phases": len(phases), "shadowed": len(shadowed), "steps": len(steps)}
	if !maps.Equal(named, want) {
		t.Errorf("the tables name %v actions, and this test %v", want, named)
	}
}
