package request

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/reason"
)

// waits returns node n1 in mode onRequest, dead, about which that was decided last.
func waits(why reason.Reason, edits ...func(*Node)) *Node {
	n := &Node{Look: taint.Look{Exists: true, Name: "n1", UID: "u1", BootID: "b1", Ready: corev1.ConditionUnknown},
		Mode: fence.OnRequest, Waits: why}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

// recorded gives the node the record of a fence, whose phase was entered that long after the request.
func recorded(p taint.Phase, res taint.Result, after time.Duration) func(*Node) {
	return func(n *Node) {
		n.Look.Record = &taint.Record{ID: "f-1", Phase: p, Result: res, NodeUID: "u1", BootID: "b1",
			At: now.Add(-time.Minute + after)}
		if p == taint.PhaseArmed || p == taint.PhaseEvicting {
			n.Look.Mark = &taint.Mark{Value: "f-1"}
		}
	}
}

func mode(m fence.Mode) func(*Node) { return func(n *Node) { n.Mode = m } }

func ready(n *Node) { n.Look.Ready, n.Look.BootID = corev1.ConditionTrue, "b2" }

// readySince makes the node Ready that long after the request was made.
func readySince(after time.Duration) func(*Node) {
	return func(n *Node) {
		ready(n)
		n.Look.ReadySince = now.Add(-time.Minute + after)
	}
}

func shown(status metav1.ConditionStatus) edit {
	return func(r *api.ForcefenceRemediation) {
		r.Status.Conditions = []metav1.Condition{{Type: api.Succeeded, Status: status, Reason: fenceDone,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	}
}

// waited shows that the request waits, and why.
func waited(why string) edit {
	return func(r *api.ForcefenceRemediation) {
		r.Status.Conditions = []metav1.Condition{{Type: api.Processing, Status: metav1.ConditionTrue, Reason: why}}
	}
}

// answeredAs gives the shown condition another reason.
func answeredAs(why string) edit {
	return func(r *api.ForcefenceRemediation) { r.Status.Conditions[0].Reason = why }
}

func held(r *api.ForcefenceRemediation) { r.Finalizers = []string{"other", api.Finalizer} }

func TestOutcome(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	over := annotated(timedOutAnnotation, "2026-11-27T12:00:00Z")
	for _, tc := range []struct {
		name                  string
		request               *api.ForcefenceRemediation
		refusal               string
		node                  *Node
		processing, succeeded metav1.ConditionStatus
		why, says             string
		finalizer             bool
	}{
		{"not looked at", requested(), "", waits(""), yes, unknown, waiting, "not looked", false},
		{"in its grace", requested(), "", waits(reason.InGrace), yes, unknown, "WaitingForGrace", "waits", false},
		{"a storm", requested(), "", waits(reason.TooFewHealthy, func(n *Node) { n.Detail = "3 of 5" }), yes, unknown,
			"TooFewHealthy", "3 of 5", false},
		{"a quorum", requested(), "", waits(reason.Quorum), yes, unknown, "EtcdQuorum", "", false},
		{"a control-plane node", requested(), "", waits(reason.ControlPlane), yes, unknown, "ControlPlaneNode", "",
			false},
		{"released by a person", requested(), "", waits(reason.Released), yes, unknown, string(reason.Released), "",
			false},
		{"excluded by a person", requested(), "", waits(reason.Excluded), yes, unknown, string(reason.Excluded), "",
			false},
		{"devices are silent", requested(), "", waits(reason.Unknown), yes, unknown, "PowerUnknown", "", false},
		{"healthy again", requested(), "", waits("", ready), yes, unknown, isReady, "alone", false},
		{"on, and about to be powered off", requested(), "", waits(reason.PoweredOn), yes, unknown,
			"PoweredOnNotReady", "", false},

		{"powering off", requested(), "", waits("", recorded(taint.PhasePoweringOff, "", time.Second)), yes, unknown,
			fencing, "fence f-1 is in phase PoweringOff", false},
		{"marked", requested(), "", waits("", recorded(taint.PhaseArmed, "", time.Second)), yes, unknown, fencing,
			"Armed", true},
		{"evicting", requested(held), "", waits("", recorded(taint.PhaseEvicting, "", time.Second)), yes, unknown,
			fencing,
			"Evicting", true},
		{"deleted under our mark", requested(held, deleted), "it is being deleted",
			waits("", recorded(taint.PhaseEvicting, "", time.Second)), yes, unknown, fencing, "", true},
		{"deleted before our mark", requested(deleted), "it is being deleted",
			waits("", recorded(taint.PhaseArmed, "", time.Second)), yes, unknown, fencing, "", false},
		{"a person's mark", requested(), "", waits("", recorded(taint.PhaseArmed, "", time.Second), func(n *Node) {
			n.Look.Mark.Value = "manual"
		}), yes, unknown, fencing, "", false},
		{"timed out in the middle", requested(over), "over", waits("", recorded(taint.PhaseEvicting, "", time.Second)),
			yes, unknown, fencing, "", true},
		{"timed out, and ended", requested(over, held), "over",
			waits("", recorded(taint.PhaseDone, taint.ResultEvicted, time.Second)), no, no, timedOut, "no power-off",
			false},
		{"timed out", requested(over), "over", waits(reason.Unknown), no, no, timedOut, "", false},

		{"done", requested(held), "", waits("", recorded(taint.PhaseDone, taint.ResultEvicted, time.Second)), no, yes,
			fenceDone, "mark is off", false},
		{"done before the request, and dead since", requested(), "",
			waits("", recorded(taint.PhaseDone, taint.ResultEvicted, -time.Hour)), no, yes, fenceDone, "", false},
		{"done before the request, and back since", requested(), "",
			waits(reason.InGrace, recorded(taint.PhaseDone, taint.ResultEvicted, -time.Hour), func(n *Node) {
				n.Look.BootID = "b2"
			}), yes, unknown, "WaitingForGrace", "", false},
		{"done, and back", requested(), "", waits("", recorded(taint.PhaseDone, taint.ResultReturned, time.Second),
			ready),
			no, yes, fenceDone, "Returned", false},
		{"back under our mark, and dead again", requested(waited(isBack)), "",
			waits("", recorded(taint.PhaseEvicting, "", time.Second)), yes, unknown, isBack, "Evicting", true},
		{"back in its fence, dead again, and the fence is done", requested(waited(isBack)), "",
			waits("", recorded(taint.PhaseDone, taint.ResultReturned, time.Second)), no, yes, recovered, "", false},
		{"back in its fence, dead again, and the fence failed", requested(waited(isBack)), "",
			waits("", recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Second)), no, yes, recovered, "",
			false},
		{"under our mark, and Ready is stale", requested(waited(fencing)), "",
			waits("", recorded(taint.PhaseArmed, "", time.Second), readySince(-time.Second)), yes, unknown, fencing,
			"Armed", true},
		{"under our mark in its healthyDelay", requested(annotated(healthyDelayAnnotation, "1m")), "",
			waits("", recorded(taint.PhaseEvicting, "", time.Second), readySince(2*time.Second)), yes, unknown,
			fencing, "Evicting", true},
		{"back without a fence", requested(), "", waits(reason.InGrace, readySince(time.Second)), no, yes, recovered,
			"no further", false},
		{"back, by a clock that is late", requested(waited("PoweredOnNotReady")), "",
			waits("", readySince(-time.Second)),
			no, yes, recovered, "no further", false},
		{"Ready all the time", requested(waited(isReady)), "", waits("", readySince(-time.Second)), yes, unknown,
			isReady, "alone", false},
		{"Ready since before the request", requested(), "", waits("", readySince(-time.Second)), yes, unknown, isReady,
			"alone", false},
		{"back in its healthyDelay", requested(annotated(healthyDelayAnnotation, "1m")), "",
			waits("", readySince(time.Second)), yes, unknown, isReady, "alone", false},
		{"back under our mark", requested(), "", waits("", recorded(taint.PhaseEvicting, "", time.Second),
			readySince(2*time.Second)), yes, unknown, isBack, "Evicting", true},
		{"timed out, and back", requested(over), "over", waits("", readySince(time.Second)), no, no, timedOut, "",
			false},
		{"answered, and back", requested(shown(yes)), "", waits("", ready), no, yes, recovered, "no further", false},
		{"answered after its fence, and back on the same boot", requested(shown(yes)), "",
			waits("", recorded(taint.PhaseDone, taint.ResultEvicted, time.Second), ready, func(n *Node) {
				n.Look.BootID = "b1" // a container's is its host's
			}), no, yes, recovered, "no further", false},
		{"answered, and back in its healthyDelay", requested(shown(yes), annotated(healthyDelayAnnotation, "1m")), "",
			waits("", ready), no, yes, fenceDone, "", false},
		{"answered, back, and dead again", requested(shown(yes), answeredAs(recovered)), "",
			waits(reason.PoweredOn), no,
			yes, recovered, "", false},
		{"it stays True", requested(shown(yes)), "", waits(reason.NoMachine), no, yes, fenceDone, "", false},
		{"False becomes True", requested(shown(no)), "",
			waits("", recorded(taint.PhaseDone, taint.ResultEvicted, time.Second)), no, yes, fenceDone, "", false},

		{"no pod to move", requested(), "", waits(reason.NoWork), no, no, "NothingToEvict", "", false},
		{"no device", requested(), "", waits(reason.NoMachine), no, no, "NoMachine", "", false},
		{"a device that is not trusted", requested(), "", waits(reason.Distrusted), no, no, "DeviceDistrusted", "",
			false},
		{"mode disabled", requested(), "", waits("", mode(fence.Disabled)), no, no, "Mode", "disabled", false},
		{"mode shadow", requested(), "", waits("", mode(fence.Shadow)), no, no, "Mode", "shadow", false},
		{"an unknown mode", requested(), "", waits("", mode(99)), no, no, "Mode", "mode 99", false},
		{"on in mode observe", requested(), "", waits(reason.PoweredOn, mode(fence.Observe)), no, no,
			"PoweredOnNotReady",
			"observe", false},
		{"silent in mode observe", requested(), "", waits(reason.Unknown, mode(fence.Observe)), yes, unknown,
			"PowerUnknown", "", false},
		{"not powered off", requested(), "", waits(reason.BackingOff,
			recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Second)), no, no, "PowerOffFailed", "f-1",
			false},
		{"not powered off before the request", requested(), "", waits(reason.BackingOff,
			recorded(taint.PhaseDone, taint.ResultPowerOffFailed, -time.Second)), yes, unknown, "PowerOffBackOff", "",
			false},
		{"cancelled", requested(), "", waits(reason.InGrace,
			recorded(taint.PhaseDone, taint.ResultCancelled, time.Second)), yes, unknown, "WaitingForGrace", "", false},

		{"no such node", requested(), "node n1 does not exist", nil, no, unknown, refused, "does not exist", false},
		{"a record that cannot be read", requested(), "", waits("", func(n *Node) {
			n.Look.RecordErr = errors.New("cut off")
		}), yes, unknown, broken, "", false},
	} {
		got := OutcomeOf(tc.request, tc.refusal, tc.node, now)
		if got.Processing.Status != tc.processing || got.Succeeded.Status != tc.succeeded ||
			got.Processing.Reason != tc.why || got.Succeeded.Reason != tc.why ||
			!strings.Contains(got.Processing.Message, tc.says) || got.Finalizer != tc.finalizer {
			t.Errorf("%s: got %+v, want Processing=%s, Succeeded=%s, %s %q, finalizer %v", tc.name, got, tc.processing,
				tc.succeeded, tc.why, tc.says, tc.finalizer)
		}
		if replace := got.Succeeded.Reason == "PowerOffFailed"; got.MayReplace() != replace {
			t.Errorf("%s: may replace the Machine: got %v, want %v", tc.name, got.MayReplace(), replace)
		}
		since := metav1.NewTime(now)
		was := meta.FindStatusCondition(tc.request.Status.Conditions, api.Succeeded)
		if was != nil && was.Status == tc.succeeded {
			since = was.LastTransitionTime
		}
		if at := got.Succeeded.LastTransitionTime; !at.Equal(&since) {
			t.Errorf("%s: changed at %s, want %s", tc.name, at, since)
		}
	}
}

// What a condition shows is bounded, also of a device that answers with a long text.
func TestConditionIsShort(t *testing.T) {
	n := waits(reason.Unknown, func(n *Node) { n.Detail = strings.Repeat("ü", 100000) })
	got := OutcomeOf(requested(), "", n, now).Processing.Message
	if len(got) > maxText || strings.ToValidUTF8(got, "") != got {
		t.Errorf("got %d bytes, want %d of valid text at most", len(got), maxText)
	}
}

// A request whose outage no controller watched gets no life, so it permits nothing until it is deleted. That is also so
// where its node is Ready when it is first seen, and waits for its healthyDelay.
func TestUnwatchedGetsNoLife(t *testing.T) {
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue} {
		for after, want := range map[time.Duration]string{-time.Second: "u1", time.Second: ""} {
			n := waits("")
			n.Look.Ready, n.Look.ReadySince = ready, now.Add(-time.Minute+after)
			if out := OutcomeOf(requested(annotated(healthyDelayAnnotation, "1m")), "", n, now); out.NodeUID != want {
				t.Errorf("Ready %s since %s after the request: got the Node %q, want %q", ready, after, out.NodeUID,
					want)
			}
		}
	}
}
