package evict

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// now is when every View below is decided. The mark was first seen ten seconds ago, with Ready not True.
var now = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func ago(d time.Duration) providers.Instant { return now.Add(-d) }

const (
	on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown

	pvA = corev1.UniqueVolumeName("kubernetes.io/csi/d^a")
	pvB = corev1.UniqueVolumeName("kubernetes.io/csi/d^b")
)

// answer is one that took 100 ms and was there d ago.
func answer(s providers.PowerState, d time.Duration) providers.Answer {
	return providers.Answer{
		Observation: providers.Observation{State: s, Raw: s.String(), At: ago(d + 100*time.Millisecond)},
		By:          "rack-a", Got: ago(d),
	}
}

type with = func(*View)

var machine = taint.MachineRef{Provider: "rack-a", ID: "7"}

// marked is a node under our mark in the given phase, entered five seconds ago, about which nothing was asked since.
func marked(p taint.Phase, change ...with) View {
	r := taint.Record{ID: "f1", NodeUID: "u1", BootID: "b1", LeaseRV: "7", Since: ago(time.Minute).Wall, By: "other",
		Device: "rack-a/7", Machine: &machine}.EnterPhase(p, "", ago(5*time.Second).Wall)
	v := View{
		Now: now, Devices: []proof.Device{{Name: "rack-a/7", Machine: machine}}, By: "me",
		Settings: Settings{DetachTimeout: 6 * time.Minute},
		Look: taint.Look{
			Sent: ago(20 * time.Millisecond), Got: ago(10 * time.Millisecond), Exists: true, Name: "n1", UID: "u1",
			ResourceVersion: "42", BootID: "b1",
			Ready: corev1.ConditionUnknown, LeaseRV: "7", Record: &r,
			Mark: &taint.Mark{Value: "f1", Effect: corev1.TaintEffectNoSchedule},
		},
		Memory: Memory{ProofFrom: ago(10 * time.Second)}, Live: true,
	}
	v.Memory.id, v.Memory.volumes.podsListed = markOf(v.Look), true
	for _, c := range change {
		c(&v)
	}
	return v
}

// A person may set the same mark again between two looks of ours. A proof from before it does not count: the device is
// asked again.
func TestSameMarkSetAgain(t *testing.T) {
	v := evicting(proven)
	again := v.Look
	again.Sent, again.Got = ago(-time.Second), ago(-2*time.Second)
	rec := *v.Look.Record
	rec.Since = rec.Since.Add(time.Minute)
	again.Record = &rec
	v.Memory.ApplyLook(v.Look)
	if !v.IsProvenOff(now) {
		t.Fatal("the same mark is not proven any more")
	}
	v.Memory.ApplyLook(again)
	if v.IsProvenOff(now) {
		t.Error("a mark that was set again is proven by an answer from before it")
	}
}

func armed(change ...with) View    { return marked(taint.PhaseArmed, change...) }
func evicting(change ...with) View { return marked(taint.PhaseEvicting, change...) }

func saying(s providers.PowerState, d time.Duration) with {
	return func(v *View) { heard(v, answer(s, d)) }
}

// heard folds in what the devices answered.
func heard(v *View, answers ...providers.Answer) {
	v.Answers.SetDevices(v.Devices...)
	v.Answers.ApplyAnswers(answers...)
}

// proven is an Off that counts.
var proven = saying(off, time.Second)

// claiming is a pod that stays, and whose volumes are not known.
var claiming = pod("claims", exempt, func(p *action.Pod) { p.Claims = true })

// unresolved binds it to the node.
var unresolved = pods(claiming)

func pods(ps ...action.Pod) with { return func(v *View) { v.Pods = append(v.Pods, ps...) } }

// attached adds attachments of volumes that pods of this fence used.
func attached(pvs ...string) with {
	return func(v *View) {
		for _, pv := range pvs {
			v.Attachments = append(v.Attachments, action.Attachment{Name: "va-" + pv, PV: pv, Attacher: "d"})
			v.Memory.volumes = v.Memory.volumes.withPods([]action.Pod{{Namespace: "a", ClaimNames: []string{pv}}})
			v.Memory.ApplyBoundClaims(map[string]string{pv: "a/" + pv})
		}
	}
}

// strange adds the attachment of a volume that is bound to that claim, which no pod of this fence uses.
func strange(pv, claim string) with {
	return func(v *View) {
		v.Memory.volumes.fromBegin = true
		v.Attachments = append(v.Attachments, action.Attachment{Name: "va-" + pv, PV: pv, Attacher: "gone"})
		v.Memory.ApplyBoundClaims(map[string]string{pv: claim})
	}
}

// inline gives a pod an in-tree volume without a claim, which a CSI driver serves; hostPath one that none serves.
func inline(p *action.Pod)   { p.OtherVolume, p.InlineVolume = "ebs", true }
func hostPath(p *action.Pod) { p.OtherVolume = "logs" }

// hadPod has the fence know of a pod that is gone by now.
func hadPod(p action.Pod) with {
	return func(v *View) {
		v.Memory.volumes.fromBegin = true
		v.Memory.volumes = v.Memory.volumes.withPods([]action.Pod{p})
	}
}

// handedOver gives the fence to another process, which knows what its record says.
func handedOver(v *View) {
	v.Look.Record.Claims = taint.EncodeClaims(v.Memory.volumes.claims)
	v.Memory.volumes = newVolumes(v.Look)
}

// mounted has the node report a volume of the strange attachment's driver as mounted when the fence began.
func mounted(v *View) { v.Memory.volumes.inUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/gone^y"} }

// byRecord has the record of another process identify the claim of the fence's only pod.
func byRecord(claim string) with {
	return func(v *View) {
		v.Look.Record.Claims = taint.EncodeClaims(map[string]bool{claim: true})
		bound := v.Memory.volumes.bound
		v.Memory.volumes = newVolumes(v.Look)
		v.Memory.volumes.bound = bound
	}
}

func listed(name corev1.UniqueVolumeName) with {
	return func(v *View) { v.Look.Attached = append(v.Look.Attached, corev1.AttachedVolume{Name: name}) }
}

func lists(names ...corev1.UniqueVolumeName) with {
	return func(v *View) {
		for _, n := range names {
			v.Look.InUse = append(v.Look.InUse, n)
			v.Look.Attached = append(v.Look.Attached, corev1.AttachedVolume{Name: n})
		}
	}
}

func noExecute(key string, age time.Duration) with {
	return func(v *View) {
		v.Look.Taints = append(v.Look.Taints,
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: ago(age).Wall}})
	}
}

func twin(v *View)      { v.Twin = "n8" }
func person(v *View)    { v.Look.Record.By = taint.ByPerson }
func noDevice(v *View)  { v.Devices = nil }
func trust(v *View)     { v.Settings.TrustPerson = true }
func ready(v *View)     { v.Look.Ready, v.Memory.ProofFrom = corev1.ConditionTrue, providers.Instant{} }
func heartbeat(v *View) { v.Look.LeaseRV = "8" }
func booted(v *View)    { v.Look.BootID = "b2" }
func deletingAttached(v *View) {
	attached("a")(v)
	v.Attachments[0].Deleting = true
}

// saidOn has the record say that a device said On.
func saidOn(v *View) {
	r := v.Look.Record.WithEvidence(taint.Evidence{At: ago(time.Second).Wall, State: "On"})
	v.Look.Record = &r
}

func recreated(v *View) { v.Look.UID = "u2" }
func overdue(v *View)   { v.Look.Record.At = ago(7 * time.Minute).Wall }
func forces(v *View)    { v.Settings.OnDetachTimeout = ForceDetach }
func cleared(v *View)   { v.Memory.Cleared = 1 }
func spared(v *View) {
	for i := range v.Pods {
		v.Pods[i].Spared = v.Look.Record.Token()
	}
}
func seen(d time.Duration) with {
	return func(v *View) { v.Memory.ProofFrom = ago(d) }
}

// pod is one that goes, and that the stock controller leaves alone for five minutes.
func pod(name string, change ...func(*action.Pod)) action.Pod {
	secs := int64(300)
	p := action.Pod{Namespace: "a", Name: name, UID: "uid-" + name, ResourceVersion: "1",
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &secs},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &secs},
		}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func tomb(p *action.Pod)       { p.Terminal, p.Tombstone = true, true }
func finished(p *action.Pod)   { p.Terminal = true }
func exempt(p *action.Pod)     { p.Exempt = taint.ExemptDaemon }
func first(p *action.Pod)      { p.First = true }
func deleting(p *action.Pod)   { p.Deleting, p.Grace = true, 30 }
func forced(p *action.Pod)     { p.Deleting, p.Grace = true, 0 }
func held(p *action.Pod)       { p.Finalizers = []string{"example.com/keep"} }
func intolerant(p *action.Pod) { p.Tolerations = nil }
func prio(n int32) func(*action.Pod) {
	return func(p *action.Pod) { p.Priority = n }
}

func tolerating(secs int64) func(*action.Pod) {
	return func(p *action.Pod) {
		for i := range p.Tolerations {
			p.Tolerations[i].TolerationSeconds = &secs
		}
	}
}

func uses(pv string, unique corev1.UniqueVolumeName) func(*action.Pod) {
	return func(p *action.Pod) { p.Volumes = append(p.Volumes, action.Volume{PV: pv, Unique: unique}) }
}

// migrated gives a pod a volume of an in-tree plugin that a CSI driver serves.
func migrated(pv string, name corev1.UniqueVolumeName) func(*action.Pod) {
	return func(p *action.Pod) { p.Volumes = append(p.Volumes, action.Volume{PV: pv, Migrated: name}) }
}

// unread gives a pod a claim that cannot be read.
func unread(claim string) func(*action.Pod) {
	return func(p *action.Pod) { p.Volumes = append(p.Volumes, action.Volume{Claim: claim, Unread: true}) }
}

// want is a decision in short: pods by name, of the record phase and result.
type want struct {
	Act      action.Action // by brief
	Why      reason.Reason
	After    time.Duration
	Pods     []string
	InUse    []corev1.UniqueVolumeName
	Attached []corev1.UniqueVolumeName
	Phase    taint.Phase
	Result   taint.Result
	Returned bool
	Alert    string
}

func short(d action.Decision) want {
	rec := action.RecordOf(d.Action)
	w := want{Act: d.Action, Why: d.Reason, After: d.RequeueAfter, Phase: rec.Phase, Result: rec.Result,
		Returned: action.NeedsNoProof(d.Action), Alert: d.Alert}
	for _, p := range action.PodsOf(d.Action) {
		w.Pods = append(w.Pods, p.Name)
	}
	clears, _ := d.Action.(action.ClearVolumes)
	w.InUse = clears.InUse
	for _, a := range clears.Attached {
		w.Attached = append(w.Attached, a.Name)
	}
	return w
}

// brief is an action's name, and of a read what it reads.
func brief(a action.Action) string {
	switch a.(type) {
	case action.ReadVolumes, action.ReadClaims, action.ListAttachments:
		return fmt.Sprintf("%s %+v", action.Name(a), a)
	}
	return action.Name(a)
}

var byBrief = cmp.Transformer("brief", brief)

func waits(why reason.Reason, after time.Duration) want {
	return want{Act: action.Wait{}, Why: why, After: after}
}
func asks(why reason.Reason) want { return want{Act: action.AskDevices{}, Why: why} }
func lift(why reason.Reason, res taint.Result) want {
	return want{Act: action.RemoveMark{}, Why: why, Phase: taint.PhaseDone, Result: res}
}

func TestStep(t *testing.T) {
	records := func(why reason.Reason) want {
		return want{Act: action.WriteRecord{}, Why: why, Phase: taint.PhaseEvicting}
	}
	told := armed(proven, func(v *View) {
		v.Look.Mark.Value, v.Look.Record.Phase, v.Look.Record.Result = "manual", taint.PhaseDone, taint.ResultEvicted
		v.Look.Record.PowerOns = []time.Time{now.Wall}
	})
	if got := action.RecordOf(told.adoptPersonMark().Action).PowerOns; len(got) != 1 {
		t.Errorf("a person's mark after a fence: got %v, want the power-ons of before, which limit the next", got)
	}
	adopts := want{Act: action.WriteRecord{}, Why: reason.Adopting, Phase: taint.PhaseArmed}
	ends := func(names ...string) want { return want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: names} }
	deletes := func(names ...string) want { return want{Act: action.DeletePods{}, Why: reason.Deleting, Pods: names} }
	spares := func(names ...string) want {
		return want{Act: action.SparePods{}, Why: reason.Sparing, Pods: names, Returned: true}
	}
	back := func(names ...string) want {
		return want{Act: action.DeletePods{}, Why: reason.Returned, Pods: names, Returned: true}
	}
	finish := lift(reason.Finished, taint.ResultEvicted)
	detach := waits(reason.WaitingDetach, pollWait)
	stock := waits(reason.StockEviction, 200*time.Millisecond)

	for _, tt := range []struct {
		name string
		view View
		want want
	}{
		// Nothing to decide on.
		{"zero", View{}, want{Act: action.NoAction{}, Why: reason.Gone}},
		{"not marked", armed(proven, func(v *View) { v.Look.Mark = nil }),
			want{Act: action.NoAction{}, Why: reason.NotMarked}},
		{"bad record",
			evicting(proven, pods(pod("p")), func(v *View) { v.Look.Record, v.Look.RecordErr = nil, errors.New("no") }),
			want{Act: action.NoAction{}, Why: reason.BadRecord, Alert: "RecordUnreadable"}},

		// A person's mark.
		{"no record", armed(proven, func(v *View) { v.Look.Record = nil }), adopts},
		{"the record is of a fence that ended",
			marked(taint.PhaseDone, proven, func(v *View) { v.Look.Record.Result = taint.ResultEvicted }), adopts},
		{"the mark has another value", armed(proven, func(v *View) { v.Look.Mark.Value = "manual" }), adopts},
		{"set while we powered off",
			marked(taint.PhasePoweringOff, proven, func(v *View) { v.Look.Mark.Value = "manual" }), adopts},
		{"set while we powered off, with our id", marked(taint.PhasePoweringOff, proven), adopts},
		{"overwritten in the middle: goes on from its phase",
			evicting(proven, func(v *View) { v.Look.Mark.Value = "manual" }),
			want{Act: action.WriteRecord{}, Why: reason.Adopting, Phase: taint.PhaseEvicting}},

		// Armed, ours.
		{"armed: nothing asked since", armed(), asks(reason.Confirming)},
		{"armed: off, asked before the mark", armed(saying(off, 10*time.Second)), asks(reason.Confirming)},
		{"armed: off", armed(proven), records(reason.Confirmed)},
		{"armed: off, and the pods were not listed", armed(proven,
			func(v *View) { v.Memory.volumes.podsListed = false }),
			want{Act: action.ListPods{}, Why: reason.Confirmed}},
		{"armed: off, just in time", armed(saying(off, proof.TTL-100*time.Millisecond)), records(reason.Confirmed)},
		{"armed: off, too long ago", armed(saying(off, proof.TTL-99*time.Millisecond)), asks(reason.Confirming)},
		{"armed: off, and another node that is heard may be the machine", armed(proven, twin),
			lift(reason.SharedMachine, taint.ResultLifted)},
		{"person: off, and another node that is heard may be the machine", armed(person, proven, twin),
			waits(reason.SharedMachine, pollUnknown)},
		{"evicting: another node that is heard may be the machine", evicting(proven, twin, pods(pod("p"))),
			waits(reason.SharedMachine, pollUnknown)},
		{"evicting: a pod that stays keeps its Ready while that node is heard", evicting(proven, twin,
			pods(pod("e", exempt, func(p *action.Pod) { p.Ready = true }))), waits(reason.SharedMachine, pollUnknown)},
		{"evicting and back: another node that is heard may be the machine", evicting(heartbeat, twin,
			pods(pod("t", tomb))), back("t")},
		{"armed: on", armed(saying(on, time.Second)), lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: changing", armed(saying(changing, time.Second)), lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: unknown", armed(saying(unknown, time.Second)), lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: off, but it took too long", armed(seen(20*time.Second), slowOff),
			lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: heartbeat", armed(proven, heartbeat), lift(reason.Alive, taint.ResultLifted)},
		{"armed: booted", armed(proven, booted), lift(reason.Alive, taint.ResultLifted)},
		{"armed: recreated", armed(proven, recreated), lift(reason.Alive, taint.ResultLifted)},
		{"armed: ready and a heartbeat", armed(proven, ready, heartbeat), lift(reason.Alive, taint.ResultLifted)},
		{"armed: device gone from the configuration", armed(noDevice), asks(reason.Confirming)},
		{"armed: ready is stale", armed(ready, proven), want{Act: action.ExpireReady{}, Why: reason.Expiring}},
		{"armed: ready, nothing asked", armed(ready), asks(reason.Confirming)},
		{"armed: ready, asked long ago", armed(ready, saying(off, 6*time.Second)), asks(reason.Confirming)},
		{"armed: ready, off, and too old after a slow look", armed(ready, func(v *View) {
			a := answer(off, 200*time.Millisecond)
			a.At = a.Got.Add(-4900 * time.Millisecond)
			heard(v, a)
		}), asks(reason.Confirming)},
		{"armed: ready and on", armed(ready, saying(on, time.Second)), lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: ready and unknown", armed(ready, saying(unknown, time.Second)),
			lift(reason.NotConfirmed, taint.ResultLifted)},
		{"armed: never comes to an end", armed(overdue, saying(off, 6*time.Second)),
			want{Act: action.AskDevices{}, Why: reason.Confirming, Alert: "ConfirmingOff"}},

		// Armed, a person's.
		{"person: no device", armed(person, noDevice), records(reason.Vouched)},
		{"another controller: no device", armed(func(v *View) { v.Look.Record.By = "external/rescuer" }, noDevice),
			records(reason.Vouched)},
		{"another controller: adopted",
			armed(func(v *View) { v.Look.Record, v.Look.MarkedBy = nil, "external/rescuer" }),
			want{Act: action.WriteRecord{}, Why: reason.Adopting, Phase: taint.PhaseArmed}},
		{"person: no device, still ready", armed(person, noDevice, ready), waits(reason.StillReady, pollWait)},
		{"person: no device, heartbeat", armed(person, noDevice, heartbeat), lift(reason.Alive, taint.ResultLifted)},
		{"person: nothing asked", armed(person), asks(reason.Confirming)},
		{"person: off", armed(person, proven), records(reason.Confirmed)},
		{"person: unknown", armed(person, saying(unknown, time.Second)), records(reason.Vouched)},
		{"person: on is refused", armed(person, saying(on, 300*time.Millisecond)),
			waits(reason.Refused, 700*time.Millisecond)},
		{"person: they disagree, which is refused", armed(two, person, both(off, on, 300*time.Millisecond)),
			waits(reason.MarkDisagree, 700*time.Millisecond)},
		{"person: they disagree, trusted", armed(two, person, trust, both(on, off, 300*time.Millisecond)),
			records(reason.Vouched)},
		{"person: one on, the other unknown", armed(two, person, both(unknown, on, 300*time.Millisecond)),
			waits(reason.Refused, 700*time.Millisecond)},
		{"they disagree: the mark goes", armed(two, both(off, on, time.Second)),
			lift(reason.NotConfirmed, taint.ResultLifted)},
		{"the second confirms", armed(two, both(unknown, off, time.Second)), records(reason.Confirmed)},
		{"person: on is refused, asked again", armed(person, saying(on, time.Second)), asks(reason.Confirming)},
		{"person: on, trusted", armed(person, trust, saying(on, 300*time.Millisecond)), records(reason.Vouched)},
		{"person: changing", armed(person, saying(changing, 300*time.Millisecond)),
			waits(reason.Confirming, 200*time.Millisecond)},
		{"person: changing, trusted", armed(person, trust, saying(changing, 300*time.Millisecond)),
			waits(reason.Confirming, 200*time.Millisecond)},
		{"person: changing, due", armed(person, saying(changing, 500*time.Millisecond)), asks(reason.Confirming)},
		{"person: ready and off", armed(person, ready, proven), want{Act: action.ExpireReady{}, Why: reason.Expiring}},
		{"person: ready and on", armed(person, ready, saying(on, time.Second)),
			waits(reason.Refused, proof.TTL-1100*time.Millisecond)},
		{"person: ready and unknown", armed(person, ready, saying(unknown, time.Second)),
			waits(reason.StillReady, proof.TTL-1100*time.Millisecond)},
		{"person: ready, asked long ago", armed(person, ready, saying(unknown, 6*time.Second)),
			asks(reason.Confirming)},
		{"person: healthy node, heartbeat", armed(person, ready, heartbeat), lift(reason.Alive, taint.ResultLifted)},
		{"person: refused for long", armed(person, overdue, saying(on, 300*time.Millisecond)),
			want{Act: action.Wait{}, Why: reason.Refused, After: 700 * time.Millisecond,
				Alert: "MarkRefusedPoweredOn"}},

		// Evicting: proof first.
		{"new leader asks", evicting(pods(pod("p"))), asks(reason.Confirming)},
		{"proof expired", evicting(pods(pod("p")), saying(off, 6*time.Second)), asks(reason.Confirming)},
		{"proof from before the mark", evicting(pods(pod("p")), seen(time.Second), saying(off, 950*time.Millisecond)),
			asks(reason.Confirming)},
		{"proof lost", evicting(pods(pod("p")), saying(unknown, 300*time.Millisecond)),
			waits(reason.ProofLost, 700*time.Millisecond)},
		{"proof lost, due", evicting(pods(pod("p")), saying(unknown, time.Second)), asks(reason.Confirming)},
		{"proof lost, changing", evicting(pods(pod("p", tomb)), saying(changing, 300*time.Millisecond)),
			waits(reason.ProofLost, 200*time.Millisecond)},
		{"one of two says on: the record says so, once",
			evicting(two, pods(pod("p")), both(off, on, 300*time.Millisecond)), records(reason.ProofLost)},
		{"the outlet of a dead server is on", evicting(two, feeds, pods(pod("t", tomb)),
			both(off, on, 300*time.Millisecond)), deletes("t")},
		{"proof lost, they disagree", evicting(two, pods(pod("p")), both(off, on, 300*time.Millisecond), saidOn),
			want{Act: action.Wait{}, Why: reason.ProofLost, After: 700 * time.Millisecond, Alert: "DevicesDisagree"}},
		{"the second proves", evicting(two, pods(pod("p")), both(unknown, off, time.Second)), ends("p")},
		{"both fall silent but one, which says on",
			evicting(two, pods(pod("p")), both(unknown, on, 300*time.Millisecond)), spares("p")},
		{"proof lost for long", evicting(overdue, pods(pod("p")), saying(unknown, 300*time.Millisecond)),
			want{Act: action.Wait{}, Why: reason.ProofLost, After: 700 * time.Millisecond, Alert: "ProofLost"}},
		{"proof lost, volumes to clear", evicting(lists(pvA), attached("a"), saying(unknown, 300*time.Millisecond)),
			waits(reason.ProofLost, 700*time.Millisecond)},
		{"proof lost when nothing is left: finish", evicting(saying(unknown, time.Second)), finish},
		{"new leader, nothing is left: finish", evicting(), finish},
		{"new leader, only detach is left", evicting(attached("a")), detach},
		{"ours, and the device is gone from the configuration", evicting(noDevice, pods(pod("p"))),
			asks(reason.Confirming)},

		// Evicting: what goes, in which order.
		{"tombstones", evicting(proven, pods(pod("p"))), ends("p")},
		{"order", evicting(proven,
			pods(pod("z"), pod("b", prio(5)), pod("a"), pod("s", first), pod("t", first, prio(9)), pod("c", prio(-1)))),
			ends("t", "s", "b", "a", "z", "c")},
		{"order by volumes, known or not",
			evicting(proven,
				pods(pod("a"), pod("v", func(p *action.Pod) { p.Volumes = []action.Volume{{PV: "pv"}} }),
					pod("c", func(p *action.Pod) { p.Claims = true }), pod("p", prio(1)))), ends("p", "c", "v", "a")},
		{"order by namespace", evicting(proven, pods(pod("b"), pod("a", func(p *action.Pod) { p.Namespace = "z" }))),
			ends("b", "a")},
		{"a toleration of another taint does not help", evicting(proven, pods(pod("w", func(p *action.Pod) {
			p.Tolerations = []corev1.Toleration{{Key: "example.com/x", Operator: corev1.TolerationOpExists}}
		}))), stock},
		{"exempt, finished and tombstoned stay out",
			evicting(proven, pods(pod("e", exempt), pod("f", finished), pod("t", tomb), pod("p"))), ends("p")},
		{"a pod that is being deleted is tombstoned", evicting(proven, pods(pod("p", deleting))), ends("p")},
		{"late pod", evicting(proven, cleared, pods(pod("t", tomb), pod("late"))), ends("late")},
		{"tombstones that cannot be written", evicting(overdue, proven, pods(pod("p"))),
			want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: []string{"p"}, Alert: "EndingPods"}},
		{"then volumes", evicting(proven, pods(pod("t", tomb)), lists(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"then delete", evicting(proven, cleared, pods(pod("t", tomb))), deletes("t")},
		{"delete in order", evicting(proven, pods(pod("b", tomb), pod("a", tomb), pod("s", tomb, first))),
			deletes("s", "a", "b")},
		{"delete with grace 0 though it is being deleted", evicting(proven, pods(pod("t", tomb, deleting, held))),
			deletes("t")},
		{"finalizers keep it: done with it", evicting(proven, pods(pod("t", tomb, forced, held))), finish},
		{"deleted, no finalizer: again", evicting(proven, pods(pod("t", tomb, forced))), deletes("t")},
		{"a Pod that an exemption covers now, with a tombstone", evicting(proven, pods(pod("t", tomb, exempt))),
			deletes("t")},
		{"a finished pod that a client deleted", evicting(proven, pods(pod("f", finished, deleting))), deletes("f")},
		{"an exempt pod that a client deleted", evicting(proven, pods(pod("e", exempt, deleting))), deletes("e")},
		{"a deletion that began without grace and has no finalizer", evicting(proven, pods(pod("e", exempt, forced))),
			deletes("e")},
		{"a deletion that finalizers hold up", evicting(proven, pods(pod("e", exempt, forced, held))), finish},
		{"a deletion waits for the others' end", evicting(proven, pods(pod("f", finished, deleting), pod("p"))),
			ends("p")},
		{"a deletion needs a proof", evicting(pods(pod("f", finished, deleting))), asks(reason.Confirming)},
		{"a deletion after the return is the kubelet's", evicting(heartbeat, pods(pod("f", finished, deleting))),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"the volume of an exempt pod that a client deleted",
			evicting(proven, pods(pod("e", exempt, deleting, uses("b", pvB))), lists(pvB)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"exempt and finished pods are not waited for", evicting(proven, pods(pod("e", exempt), pod("f", finished))),
			finish},
		{"detach", evicting(proven, attached("a")), detach},
		{"detach takes long", evicting(proven, overdue, attached("a")),
			want{Act: action.Wait{}, Why: reason.WaitingDetach, After: pollWait, Alert: "WaitingForDetach"}},
		{"detach takes as long as it may", evicting(proven, func(v *View) {
			r := v.Look.Record.EnterPhase(taint.PhaseEvicting, "", ago(v.Settings.DetachTimeout).Wall)
			v.Look.Record = &r
		}, attached("a")), detach},
		{"attachment of a finished pod must go",
			evicting(proven, pods(pod("f", finished, uses("a", pvA))), attached("a")), detach},
		{"attachment of a pod that stays", evicting(proven, pods(pod("e", exempt, uses("a", pvA))), attached("a")),
			finish},
		{"inline attachment", evicting(proven, attached(""), pods(pod("t", tomb, inline))), deletes("t")},
		{"inline attachment of a pod that is gone", evicting(proven, attached(""), hadPod(pod("t", inline))), detach},
		{"inline attachment, and no pod had such a volume", evicting(proven, attached(""), hadPod(pod("t", hostPath))),
			finish},
		{"inline attachment, by the record of a pod that is gone", evicting(proven, attached(""),
			hadPod(pod("t", inline)), handedOver), detach},
		{"inline attachment, and the record knows of no such volume", evicting(proven, attached(""),
			hadPod(pod("t", hostPath)), handedOver), finish},
		{"attachment of a volume that is gone", evicting(proven, strange("x", "")), finish},
		{"attachment of a volume that no pod of this fence used", evicting(proven, strange("x", "a/x")), finish},
		{"and one that a pod used", evicting(proven, strange("x", "a/x"), attached("a")), detach},
		{"attachment of a volume that could not be read", evicting(proven, strange("x", action.UnreadClaim)), detach},
		{"a new leader knows the claims by the record", evicting(proven, strange("x", "a/x"), byRecord("a/y")), finish},
		{"a new leader waits for a claim of the record", evicting(proven, strange("x", "a/x"), byRecord("a/x")),
			detach},
		{"a new leader does not know which pods there were", evicting(proven, strange("x", "a/x"),
			func(v *View) { v.Memory.volumes.fromBegin = false }), detach},
		{"the node reports a volume of its driver as mounted", evicting(proven, strange("x", "a/x"), mounted), detach},
		{"and its driver does not detach it in time", evicting(proven, strange("x", "a/x"), mounted, overdue), finish},
		{"and the configuration deletes it then", evicting(proven, strange("x", "a/x"), mounted, overdue, forces),
			want{Act: action.DeleteAttachments{}, Why: reason.ForcingDetach, Alert: "WaitingForDetach"}},
		{"and that did not help in time", evicting(proven, strange("x", "a/x"), mounted, forces,
			func(v *View) { v.Look.Record.At = ago(13 * time.Minute).Wall }), finish},
		{"attachment that was never attached", evicting(proven, attached("a"),
			func(v *View) { v.Attachments[0].NeverAttached = true }), finish},
		{"whose volume it is takes a read, after a while", evicting(proven, attached("a"), func(v *View) {
			v.Look.Record.At, v.Memory.volumes.bound = ago(5001*time.Millisecond).Wall, nil
		}), want{Act: action.ReadClaims{PVs: []string{"a"}}, Why: reason.WaitingDetach}},
		{"back, and a volume is gone", evicting(heartbeat, strange("x", "")),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"back, and an attachment that was being deleted before holds nothing", evicting(heartbeat, strange("x", "a/x"),
			func(v *View) { v.Attachments[0].Deleting = true }), lift(reason.FinishedReturn, taint.ResultReturned)},
		{"back, and the node reported a volume of its driver as mounted", evicting(heartbeat, strange("x", "a/x"),
			mounted, overdue), lift(reason.FinishedReturn, taint.ResultReturned)},
		{"nothing left", evicting(proven), finish},

		// Step 10: the lists.
		{"entries of pods that stay are kept",
			evicting(proven, pods(pod("e", exempt, uses("b", pvB)), pod("t", tomb, uses("a", pvA))), lists(pvA, pvB)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing, InUse: []corev1.UniqueVolumeName{pvB},
				Attached: []corev1.UniqueVolumeName{pvB}}},
		{"only entries of pods that stay", evicting(proven, pods(pod("e", exempt, uses("b", pvB))), lists(pvB)),
			finish},
		{"a volume that is not CSI's keeps all of its kind",
			evicting(proven, pods(pod("e", exempt, uses("n", ""))), lists("kubernetes.io/nfs/x", pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing,
				InUse:    []corev1.UniqueVolumeName{"kubernetes.io/nfs/x"},
				Attached: []corev1.UniqueVolumeName{"kubernetes.io/nfs/x"}}},
		{"it keeps them beside a CSI volume",
			evicting(proven, pods(pod("e", exempt, uses("n", ""), uses("b", pvB))), lists("kubernetes.io/nfs/x")),
			finish},
		{"a migrated volume keeps its CSI entry and all in-tree entries",
			evicting(proven, pods(pod("e", exempt, migrated("m", pvB))), lists("kubernetes.io/aws-ebs/x", pvA, pvB)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing,
				InUse:    []corev1.UniqueVolumeName{"kubernetes.io/aws-ebs/x", pvB},
				Attached: []corev1.UniqueVolumeName{"kubernetes.io/aws-ebs/x", pvB}}},
		{"an unread claim of a pod that stays keeps all entries",
			evicting(proven, pods(pod("e", exempt, unread("b"))), lists(pvA, "kubernetes.io/nfs/x")), finish},
		{"an unread claim of a pod that waits keeps all entries",
			evicting(proven, pods(pod("w", intolerant, unread("b"))), lists(pvA)), stock},
		{"an unread claim of a finished pod keeps no entry",
			evicting(proven, pods(pod("t", tomb, unread("b"))), lists(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"entries of finished pods go", evicting(proven, pods(pod("f", finished, uses("a", pvA))), lists(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"attached comes back while it is detached: left alone", evicting(proven, cleared, listed(pvA), attached("a")),
			detach},
		{"attached stays listed when all is detached: cleared again", evicting(proven, cleared, listed(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"attached comes back each time: let be",
			evicting(proven, func(v *View) { v.Memory.Cleared = maxClearings }, listed(pvA)), finish},
		{"attached, never cleared by us", evicting(proven, listed(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"in use comes back: cleared again", evicting(proven, cleared, lists(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"pods that wait for their stock eviction keep their entries",
			evicting(proven, pods(pod("w", intolerant, uses("a", pvA))), lists(pvA)), stock},

		// Step 8: the stock eviction.
		{"taint is coming, intolerant", evicting(proven, pods(pod("w", intolerant))), stock},
		{"taint is coming, tolerates 0 s", evicting(proven, pods(pod("w", tolerating(0)))), stock},
		{"taint is coming, tolerates 30 s", evicting(proven, pods(pod("w", tolerating(30)))), stock},
		{"taint is coming, tolerates 31 s", evicting(proven, pods(pod("p", tolerating(31)))), ends("p")},
		{"taint does not come", evicting(seen(15001*time.Millisecond), proven, pods(pod("w", intolerant))), ends("w")},
		{"taint landed, intolerant",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, time.Second), pods(pod("w", intolerant))), stock},
		{"taint landed, tolerates for ever",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, time.Second),
				pods(pod("p",
					func(p *action.Pod) {
						p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
					}))), ends("p")},
		{"taint landed, due in 30 s",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, 270*time.Second), pods(pod("w"))), stock},
		{"taint landed, due in 31 s",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, 269*time.Second), pods(pod("p"))), ends("p")},
		{"taint landed, the shortest counts",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, 5*time.Second), pods(pod("w", func(p *action.Pod) {
				short := int64(20)
				p.Tolerations = append(p.Tolerations,
					corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: &short})
			}))), stock},
		{"taint landed, the deletion came",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, time.Second), pods(pod("p", intolerant, deleting))),
			ends("p")},
		{"landed, another does not come",
			evicting(proven, noExecute(corev1.TaintNodeNotReady, 10*time.Second), pods(pod("p", tolerating(60)))),
			ends("p")},
		{"a person's NoExecute taint", evicting(proven, noExecute("example.com/broken", time.Second), pods(pod("w"))),
			stock},
		{"NoSchedule evicts no pod", evicting(proven, func(v *View) {
			v.Look.Taints = []corev1.Taint{{Key: "example.com/broken", Effect: corev1.TaintEffectNoSchedule}}
		}, pods(pod("p"))), ends("p")},
		{"no other controller deletes it",
			evicting(seen(61*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, 61*time.Second),
				pods(pod("p", intolerant))), ends("p")},
		{"no other controller deletes it yet",
			evicting(seen(60*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, 60*time.Second),
				pods(pod("w", intolerant))), stock},
		{"due only now, long after the mark",
			evicting(seen(290*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, 290*time.Second),
				pods(pod("w"))), stock},
		{"due a minute ago",
			evicting(seen(361*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, 361*time.Second),
				pods(pod("p"))), ends("p")},
		{"due just under a minute ago",
			evicting(seen(359*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, 359*time.Second),
				pods(pod("w"))), stock},
		{"due long before the mark: from when the node was known dead",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, 10*time.Minute), pods(pod("w", intolerant))),
			stock},
		{"the configured ones first, in any order of the list", evicting(proven, pods(pod("s", first), pod("a"))),
			ends("s", "a")},
		{"a taint that lands late",
			evicting(seen(10*time.Minute), proven, noExecute("example.com/broken", time.Second), pods(pod("w"))),
			stock},
		{"a taint without a time", evicting(proven, func(v *View) {
			v.Look.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}, pods(pod("w", intolerant))), stock},
		{"a taint without a time, no other controller deletes it",
			evicting(seen(61*time.Second), proven, func(v *View) {
				v.Look.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
			}, pods(pod("p", intolerant))), ends("p")},
		{"a taint from the future, by another clock",
			evicting(proven, noExecute(corev1.TaintNodeUnreachable, -time.Hour), pods(pod("w", intolerant))), stock},
		{"a taint from the future does not hold for ever",
			evicting(seen(61*time.Second), proven, noExecute(corev1.TaintNodeUnreachable, -time.Hour),
				pods(pod("p", intolerant))), ends("p")},
		{"pods that wait delay no other pod", evicting(proven, pods(pod("w", intolerant), pod("t", tomb))),
			deletes("t")},
		{"waiting takes long",
			evicting(overdue, seen(time.Second), saying(off, 0), noExecute(corev1.TaintNodeUnreachable, time.Second),
				pods(pod("w", intolerant))),
			want{Act: action.Wait{}, Why: reason.StockEviction, After: 200 * time.Millisecond,
				Alert: "WaitingForStockEviction"}},

		// A person's mark, evicting.
		{"person, no device: goes on", evicting(person, noDevice, pods(pod("p"))), ends("p")},
		{"person, no device, looked too long ago",
			evicting(person, noDevice, pods(pod("p")), func(v *View) { v.Look.Got = ago(proof.TTL + 1) }),
			waits(reason.ProofLost, 100*time.Millisecond)},
		{"person, unknown: goes on", evicting(person, pods(pod("p")), saying(unknown, 300*time.Millisecond)),
			ends("p")},
		{"person, unknown, due", evicting(person, pods(pod("p")), saying(unknown, time.Second)),
			asks(reason.Confirming)},
		{"person, changing", evicting(person, pods(pod("p")), saying(changing, 300*time.Millisecond)),
			waits(reason.ProofLost, 200*time.Millisecond)},
		{"person, on: return",
			evicting(person, pods(pod("p"), pod("t", tomb)), saying(on, 300*time.Millisecond), spared), back("t")},
		{"person, on, trusted",
			evicting(person, trust, pods(pod("p"), pod("t", tomb)), saying(on, 300*time.Millisecond)), ends("p")},
		{"person, on, trusted, due", evicting(person, trust, pods(pod("p"), pod("t", tomb)), saying(on, time.Second)),
			asks(reason.Confirming)},
		{"person, heartbeat: return", evicting(person, noDevice, heartbeat, pods(pod("p"), pod("t", tomb)), spared),
			back("t")},

		// The return path, with a proof in hand. First what lives is spared: a tombstone may still be on its way to it.
		{"pods that live are spared first",
			evicting(proven, heartbeat,
				pods(pod("p"), pod("q", first), pod("t", tomb), pod("x", exempt), pod("f", finished))),
			spares("q", "p")},
		{"spared by another fence is not spared by this one",
			evicting(proven, heartbeat, pods(pod("p", func(p *action.Pod) { p.Spared = "f0/20260101T000000.000" }))),
			spares("p")},
		{"begun to spare, and off again: stays on the return path",
			evicting(proven, pods(pod("q")), spared, func(v *View) { v.Pods = append(v.Pods, pod("p")) }), spares("p")},
		{"a finished pod that was spared does not delay the return path",
			evicting(proven, pods(pod("f", finished)), spared, func(v *View) { v.Pods = append(v.Pods, pod("p")) }),
			ends("p")},
		{"power on, and volumes are attached: the record says so, once",
			evicting(saying(on, 300*time.Millisecond), pods(pod("p")), deletingAttached, spared),
			records(reason.WaitingDetach)},
		{"power on, which the record says",
			evicting(saying(on, 300*time.Millisecond), pods(pod("p")), deletingAttached, spared, saidOn),
			want{Act: action.Wait{}, Why: reason.WaitingDetach, After: pollWait, Returned: true}},
		{"power on, which only an answer before the mark says",
			evicting(saying(on, 300*time.Millisecond), pods(pod("p")), deletingAttached, spared, saidOn,
				func(v *View) { v.Look.Record.Evidence[0].At = ago(time.Minute).Wall }),
			records(reason.WaitingDetach)},
		{"heartbeat: only what is tombstoned",
			evicting(proven, heartbeat, pods(pod("p"), pod("t", tomb)), lists(pvA), spared), back("t")},
		{"booted", evicting(proven, booted, pods(pod("p"), pod("t", tomb)), lists(pvA), spared), back("t")},
		{"recreated", evicting(proven, recreated, pods(pod("p"), pod("t", tomb)), spared), back("t")},
		{"ready", evicting(proven, ready, pods(pod("p"), pod("t", tomb)), spared), back("t")},
		{"power on", evicting(saying(on, 300*time.Millisecond), pods(pod("p"), pod("t", tomb)), spared), back("t")},
		{"power on, asked again", evicting(saying(on, time.Second), pods(pod("p"), pod("t", tomb))),
			asks(reason.Returned)},
		{"power on, asked before the mark",
			evicting(seen(200*time.Millisecond), saying(on, 300*time.Millisecond), pods(pod("p"), pod("t", tomb))),
			asks(reason.Confirming)},
		{"no clearing", evicting(proven, heartbeat, lists(pvA), pods(pod("p")), spared),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"no tombstone: pods keep running",
			evicting(proven, heartbeat, pods(pod("p", uses("a", pvA))), attached("a"), spared),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"detach of what was deleted", evicting(proven, heartbeat, pods(pod("p")), attached("a"), spared),
			want{Act: action.ReadClaims{PVs: []string{"a"}}, Why: reason.WaitingDetach}},
		{"detach takes long on return",
			evicting(overdue, heartbeat, attached("a"), func(v *View) { v.Live, v.Memory.ListedAt = false, now }),
			want{Act: action.Wait{}, Why: reason.WaitingDetach, After: pollWait, Returned: true,
				Alert: "WaitingForDetach"}},
		{"finalizers keep a tombstoned pod", evicting(heartbeat, pods(pod("t", tomb, forced, held))),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready under the same boot id: never off", evicting(ready, heartbeat),
			want{Act: action.RemoveMark{}, Why: reason.NeverOff, Phase: taint.PhaseDone,
				Result: taint.ResultNeverPoweredOff, Alert: "FencedNodeNeverPoweredOff"}},
		{"ready under its host's boot id: the mark goes, and its device is asked then",
			evicting(ready, heartbeat, func(v *View) { v.Look.Record.Run = "1" }),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready under another boot id", evicting(ready, heartbeat, booted),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready, no heartbeat yet", evicting(ready), lift(reason.FinishedReturn, taint.ResultReturned)},
		{"heartbeat, not ready yet", evicting(heartbeat), lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready, boot id never said",
			evicting(ready, heartbeat, func(v *View) { v.Look.BootID, v.Look.Record.BootID = "", "" }),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready, recreated", evicting(ready, heartbeat, recreated), lift(reason.FinishedReturn, taint.ResultReturned)},
		{"ready, but a person vouched", evicting(ready, heartbeat, person),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"never off, tombstones first", evicting(ready, heartbeat, pods(pod("t", tomb))), back("t")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := fmt.Sprintf("%+v", tt.view.Pods)
			got := Step(tt.view)
			if diff := cmp.Diff(tt.want, short(got), cmpopts.EquateEmpty(), byBrief); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
			if after := fmt.Sprintf("%+v", tt.view.Pods); after != before {
				t.Errorf("the view's pods were changed: %s, were %s", after, before)
			}
			checkRecord(t, tt.view, got)
			if !LooksAtPods(tt.view.Look) {
				other := tt.view
				other.Pods, other.Attachments = []action.Pod{pod("x"), pod("y", tomb), pod("z", exempt)},
					[]action.Attachment{{Name: "va", PV: "x"}}
				if diff := cmp.Diff(got, Step(other)); diff != "" {
					t.Errorf("the decision hangs on pods that LooksAtPods says it does not look at (-without "+
						"+with):\n%s", diff)
				}
			}
		})
	}
}

func slowOff(v *View) {
	a := answer(off, 100*time.Millisecond)
	a.At = a.Got.Add(-proof.TTL - time.Second)
	heard(v, a)
}

// checkRecord holds what every record that Step wants written must have.
func checkRecord(t *testing.T, v View, d action.Decision) {
	t.Helper()
	rec := action.RecordOf(d.Action)
	if (action.Is[action.WriteRecord](d) || action.Is[action.RemoveMark](d)) == (rec.Phase == "") {
		t.Errorf("act %s with a record in phase %q", action.Name(d.Action), rec.Phase)
	}
	if rec.Phase == "" {
		return
	}
	if back, err := taint.ParseRecord(rec.Encode()); err != nil || !cmp.Equal(back, rec) {
		t.Errorf("the record does not read back: %v\n%s", err, cmp.Diff(rec, back))
	}
	if before := v.Look.Record; !rec.At.Equal(v.Now.Wall) &&
		(before == nil || rec.Phase != before.Phase || !rec.At.Equal(before.At)) {
		t.Errorf("phase %s entered at %s, want now", rec.Phase, rec.At)
	}
	if rec.ID != v.Look.Mark.Value {
		t.Errorf("the record is of fence %q, the mark of %q", rec.ID, v.Look.Mark.Value)
	}
	switch {
	case rec.Machine == nil || *rec.Machine != machine:
		t.Errorf("the fence's machine is %+v, want %+v", rec.Machine, machine)
	case d.Reason == reason.Adopting:
		want := taint.ByPerson
		if v.Look.MarkedBy != "" {
			want = v.Look.MarkedBy
		}
		if rec.By != want {
			t.Errorf("adopted by %q, want %q", rec.By, want)
		}
		if rec.Phase == taint.PhaseArmed && v.Look.IsAliveSince(&rec) {
			t.Errorf("adopted with a life that is not the look's: %+v", rec)
		}
	case rec.NodeUID != v.Look.Record.NodeUID, rec.BootID != v.Look.Record.BootID, rec.LeaseRV != v.Look.Record.LeaseRV,
		rec.By != v.Look.Record.By:
		t.Errorf("the fence forgot what it was begun on: %+v, was %+v", rec, *v.Look.Record)
	}
	if rec.Phase == taint.PhaseEvicting && d.Reason != reason.Adopting && len(rec.Evidence) == 0 {
		t.Error("an eviction without evidence")
	}
}

func TestAdoptInTheMiddle(t *testing.T) {
	v := evicting(booted, func(v *View) { v.Look.Mark.Value = "manual" })
	got := action.RecordOf(Step(v).Action)
	if got.BootID != "b1" || got.LeaseRV != "7" || got.NodeUID != "u1" || got.ID != "manual" ||
		!got.Since.Equal(v.Look.Record.Since) {
		t.Fatalf("adopted as %+v, want the life and the beginning of the fence it takes over", got)
	}
	v.Look.Record = &got
	v.Pods = []action.Pod{pod("t", tomb)}
	d := Step(v)
	if a, ok := d.Action.(action.DeletePods); !ok || !a.Returned {
		t.Errorf("after that %s %s, want the return path", action.Name(d.Action), d.Reason)
	}
}

// two devices speak for the node.
func two(v *View) {
	v.Devices = append(v.Devices,
		proof.Device{Name: "rack-b/7", Level: 1, Machine: taint.MachineRef{Provider: "rack-b", ID: "7"}})
}

// feeds makes the second device one that only gives the machine power.
func feeds(v *View) { v.Devices[1].Feeds = true }

func both(first, second providers.PowerState, d time.Duration) with {
	return func(v *View) { heard(v, answer(first, d), answer(second, d)) }
}

// The record keeps the device that gave the proof in the middle of the fence, and a false Off is blamed on that device.
func TestFalseOffOfOneOfTwoDevices(t *testing.T) {
	v := evicting(two, both(off, unknown, 3*time.Second))
	begun := v.Look.Record.WithEvidence(v.Answers.Evidence()...)
	v.Look.Record = &begun
	heard(&v, answer(unknown, time.Second), answer(off, time.Second))
	d := Step(v)
	offs := func(r taint.Record) (from []string) {
		for _, e := range r.Evidence {
			if e.State == "Off" {
				from = append(from, e.From)
			}
		}
		return from
	}
	if got := offs(action.RecordOf(d.Action)); !action.Is[action.RemoveMark](d) ||
		!slices.Equal(got, []string{"rack-a/7", "rack-b/7"}) {
		t.Errorf("%s %s: Offs in the record of %q, want both", action.Name(d.Action), d.Reason, got)
	}
	lied := func(r taint.Record) (names []string) {
		for _, l := range r.FalseOffs {
			names = append(names, l.Device)
		}
		return names
	}
	only := evicting(two, both(unknown, off, 3*time.Second))
	begun = only.Look.Record.WithEvidence(only.Answers.Evidence()...)
	only.Look.Record = &begun
	for name, v := range map[string]struct {
		View
		want []string
	}{"one of them": {only, []string{"rack-b/7"}}, "both, in turn": {v, []string{"rack-a/7", "rack-b/7"}}} {
		heartbeat(&v.View)
		ready(&v.View)
		if rec := action.RecordOf(Step(v.View).Action); rec.Result != taint.ResultNeverPoweredOff ||
			!slices.Equal(lied(rec), v.want) {
			t.Errorf("%s: %s, %q lied, want %q", name, rec.Result, lied(rec), v.want)
		}
	}
	// A person's mark does not make a liar believed.
	mark := armed(two, func(v *View) {
		r := action.RecordOf(d.Action).WithFalseOffs(proof.SpeakersOf(v.Devices)).
			EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, now.Wall)
		v.Look.Record, v.Look.Mark.Value = &r, "manual"
	})
	if d := Step(mark); d.Reason != reason.Adopting || len(lied(action.RecordOf(d.Action))) != 2 {
		t.Errorf("%s: %q lied, want both as before", d.Reason, lied(action.RecordOf(d.Action)))
	}
}

func TestEvidence(t *testing.T) {
	for _, tt := range []struct {
		name string
		view View
		want taint.Evidence
	}{
		{"proof", armed(proven),
			taint.Evidence{At: ago(1100 * time.Millisecond).Wall, From: "rack-a", State: "Off", Raw: "Off"}},
		{"no device to ask", armed(person, noDevice),
			taint.Evidence{At: now.Wall, From: "person", State: "None", Raw: "no device speaks for the node"}},
		{"what the device could say", armed(person, trust, saying(on, 300*time.Millisecond)),
			taint.Evidence{At: ago(400 * time.Millisecond).Wall, From: "rack-a", State: "On", Raw: "On"}},
	} {
		got := action.RecordOf(Step(tt.view).Action).Evidence
		if len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: evidence %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		view  View
		later time.Duration
		want  bool
	}{
		{"zero", View{}, 0, false},
		{"no record", evicting(func(v *View) { v.Look.Record = nil }), 0, false},
		{"proven", evicting(proven), 0, true},
		{"proven, until it expires", evicting(proven), 3900 * time.Millisecond, true},
		{"proven, and a nanosecond more", evicting(proven), 3900*time.Millisecond + 1, false},
		{"not asked", evicting(), 0, false},
		{"asked before the mark", evicting(seen(time.Second), saying(off, 950*time.Millisecond)), 0, false},
		{"asked with the mark", evicting(seen(time.Second), saying(off, 900*time.Millisecond)), 0, true},
		{"the mark was not seen yet", evicting(proven, func(v *View) { v.Memory.ProofFrom = providers.Instant{} }), 0,
			false},
		{"on", evicting(saying(on, 0)), 0, false},
		{"changing", evicting(saying(changing, 0)), 0, false},
		{"unknown", evicting(saying(unknown, 0)), 0, false},
		{"person, no device", evicting(person, noDevice), 0, true},
		{"person, no device, looked too long ago", evicting(person, noDevice), proof.TTL, false},
		{"person, device not asked", evicting(person), 0, false},
		{"person, unknown", evicting(person, saying(unknown, 0)), 0, true},
		{"person, unknown, due again", evicting(person, saying(unknown, 0)), time.Second, false},
		{"person, on", evicting(person, saying(on, 0)), 0, false},
		{"person, on, trusted", evicting(person, trust, saying(on, 0)), 0, true},
		{"person, they disagree", evicting(two, person, both(off, on, 0)), 0, false},
		{"person, they disagree, trusted", evicting(two, person, trust, both(off, on, 0)), 0, true},
		{"the second is off", evicting(two, both(unknown, off, time.Second)), 0, true},
		{"they disagree", evicting(two, both(off, on, time.Second)), 0, false},
		{"person, changing, trusted", evicting(person, trust, saying(changing, 0)), 0, false},
		{"ours, on, trusted persons", evicting(trust, saying(on, 0)), 0, false},
	} {
		if got := tt.view.MayEndPods(now.Add(tt.later)); got != tt.want {
			t.Errorf("%s: Holds after %s = %v, want %v", tt.name, tt.later, got, tt.want)
		}
	}
}

func TestMemory(t *testing.T) {
	look := func(change ...func(*taint.Look)) taint.Look {
		l := armed().Look
		for _, c := range change {
			c(&l)
		}
		return l
	}
	isReady := func(l *taint.Look) { l.Ready = corev1.ConditionTrue }
	unmarked := func(l *taint.Look) { l.Mark = nil }
	value := func(s string) func(*taint.Look) { return func(l *taint.Look) { l.Mark = &taint.Mark{Value: s} } }
	later := func(l *taint.Look) { l.Got = now.Add(time.Second) }
	first, second := look().Got, now.Add(time.Second)
	for _, tt := range []struct {
		name  string
		looks []taint.Look
		want  providers.Instant
	}{
		{"not marked", []taint.Look{look(unmarked)}, providers.Instant{}},
		{"marked, ready", []taint.Look{look(isReady)}, providers.Instant{}},
		{"marked", []taint.Look{look()}, first},
		{"a person's without a value", []taint.Look{look(value(""))}, first},
		{"the first look counts", []taint.Look{look(), look(later)}, first},
		{"ready left True", []taint.Look{look(isReady), look(later)}, second},
		{"ready in between", []taint.Look{look(), look(isReady), look(later)}, second},
		{"unmarked in between", []taint.Look{look(), look(unmarked), look(later)}, second},
		{"another mark", []taint.Look{look(), look(value("f2"), later)}, second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Memory{Cleared: 1}
			for _, l := range tt.looks {
				m.ApplyLook(l)
			}
			if !m.ProofFrom.Equal(tt.want) {
				t.Errorf("ProofFrom %s, want %s", m.ProofFrom, tt.want)
			}
		})
	}
	t.Run("another fence clears again", func(t *testing.T) {
		m := Memory{}
		m.ApplyLook(look())
		m.Cleared = 1
		if isNew := m.ApplyLook(look(value("f2"))); m.Cleared != 0 || !isNew {
			t.Errorf("cleared %d times, new fence %v, want 0 and true", m.Cleared, isNew)
		}
		if m.ApplyLook(look(value("f2"))) {
			t.Error("the same mark is another")
		}
	})
}

func TestWork(t *testing.T) {
	inUse := []corev1.UniqueVolumeName{pvA}
	for _, tt := range []struct {
		name  string
		pods  []action.Pod
		pvs   []string
		want  bool
		inUse []corev1.UniqueVolumeName
	}{
		{"nothing", nil, nil, false, nil},
		{"a pod to move", []action.Pod{pod("p")}, nil, true, nil},
		{"exempt and finished", []action.Pod{pod("e", exempt), pod("f", finished)}, nil, false, nil},
		{"a finished pod that a client deleted", []action.Pod{pod("f", finished, deleting)}, nil, true, nil},
		{"an exempt pod that a client deleted", []action.Pod{pod("e", exempt, deleting)}, nil, true, nil},
		{"one that finalizers keep", []action.Pod{pod("e", exempt, forced, held)}, nil, false, nil},
		{"an attachment of a mounted volume without a user", nil, []string{"a"}, true, inUse},
		{"an attachment of a volume that is not mounted", nil, []string{"a"}, false, nil},
		{"a mounted volume of a pod that stays", []action.Pod{pod("e", exempt, uses("b", pvA))}, []string{"a"}, false,
			inUse},
		{"an attachment of a finished pod", []action.Pod{pod("f", finished, uses("a", pvA))}, []string{"a"}, true,
			inUse},
		{"an attachment of a pod that stays", []action.Pod{pod("e", exempt, uses("a", pvA))}, []string{"a"}, false,
			nil},
		{"a tombstone that an interrupted fence left", []action.Pod{pod("t", tomb)}, nil, true, nil},
		{"a tombstone that finalizers keep", []action.Pod{pod("t", tomb, forced, held)}, nil, false, nil},
	} {
		v := View{}
		attached(tt.pvs...)(&v)
		if got := HasWork(tt.pods, v.Attachments, tt.inUse); got != tt.want {
			t.Errorf("%s: Work = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLeftover(t *testing.T) {
	v := View{}
	attached("a", "b", "")(&v)
	ps := []action.Pod{pod("p", uses("a", pvA)), pod("e", exempt, uses("b", pvB))}
	names := func(as []action.Attachment) (out []string) {
		for _, a := range as {
			out = append(out, a.Name)
		}
		return out
	}
	if diff := cmp.Diff([]string{"va-"}, names(UnusedAttachments(ps, v.Attachments, false))); diff != "" {
		t.Errorf("Leftover (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"va-a", "va-"}, names(UnusedAttachments(ps, v.Attachments, true))); diff != "" {
		t.Errorf("Leftover, movable (-want +got):\n%s", diff)
	}
}

func TestTolerates(t *testing.T) {
	const exists, equal = corev1.TolerationOpExists, corev1.TolerationOpEqual
	noExec := corev1.TaintEffectNoExecute
	tnt := corev1.Taint{Key: "k", Value: "v", Effect: noExec}
	for _, tt := range []struct {
		name string
		tol  corev1.Toleration
		want bool
	}{
		{"everything", corev1.Toleration{Operator: exists}, true},
		{"the key", corev1.Toleration{Key: "k", Operator: exists}, true},
		{"another key", corev1.Toleration{Key: "l", Operator: exists}, false},
		{"the effect", corev1.Toleration{Operator: exists, Effect: noExec}, true},
		{"another effect", corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoSchedule}, false},
		{"the value", corev1.Toleration{Key: "k", Operator: equal, Value: "v"}, true},
		{"the value, operator left out", corev1.Toleration{Key: "k", Value: "v"}, true},
		{"another value", corev1.Toleration{Key: "k", Operator: equal, Value: "w"}, false},
		{"a value without a key", corev1.Toleration{Operator: equal, Value: "v"}, false},
		{"an unknown operator", corev1.Toleration{Key: "k", Operator: "Gt", Value: "v"}, false},
	} {
		if got := StockTolerates(tt.tol, tnt); got != tt.want {
			t.Errorf("%s: StockTolerates = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A cache of attachments may be behind: what ends a fence is read live, and only that.
func TestReads(t *testing.T) {
	cached := func(v *View) { v.Live = false }
	listed := func(d time.Duration) with { return func(v *View) { v.Memory.ListedAt = ago(d) } }
	inUse := func(v *View) { v.Look.InUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^a"} }
	read := action.ReadVolumes{Pods: []action.Pod{claiming}}
	readLive := action.ListAttachments{Live: true}
	for _, tt := range []struct {
		name string
		view View
		want action.Action // by brief
	}{
		{"nothing is left, by a cache", evicting(proven, cached), readLive},
		{"nothing is left", evicting(proven), action.RemoveMark{}},
		{"nothing is left, volumes unresolved", evicting(proven, unresolved), read},
		{"nothing is left, volumes unresolved, by a cache", evicting(proven, cached, unresolved), read},
		{"nothing is left but a finished pod",
			evicting(proven, pods(pod("f", finished, func(p *action.Pod) { p.Claims = true }))), action.RemoveMark{}},
		{"back, nothing is left, by a cache", evicting(proven, cached, func(v *View) { v.Look.BootID = "b2" }),
			readLive},
		{"never off, by a cache",
			evicting(proven, cached, func(v *View) { v.Look.LeaseRV, v.Look.Ready = "8", corev1.ConditionTrue }),
			readLive},
		{"waits for an attachment of a cache", evicting(proven, cached, attached("a"), listed(relistEvery)), readLive},
		{"waits, listed just now", evicting(proven, cached, attached("a"), listed(relistEvery-time.Millisecond)),
			action.Wait{}},
		{"waits, volumes unresolved", evicting(proven, cached, unresolved, attached("a"), listed(0)), read},
		{"clears, volumes unresolved", evicting(proven, cached, unresolved, inUse), read},
		{"clears by a cache", evicting(proven, cached, inUse), action.ClearVolumes{}},
		{"ends pods by a cache, unresolved", evicting(proven, cached, unresolved, pods(pod("web-0"))),
			action.EndPods{}},
		{"lifts before anything was touched, by a cache",
			armed(cached, unresolved, func(v *View) { v.Look.BootID = "b2" }), action.RemoveMark{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := Step(tt.view); brief(d.Action) != brief(tt.want) {
				t.Errorf("got %s (%s), want %s", brief(d.Action), d.Reason, brief(tt.want))
			}
		})
	}
}

// The Event at the end of a fence names the pods that only finalizers keep: those that it ended, and those whose
// deletion it finished.
func TestUnmarkNamesKeptPods(t *testing.T) {
	kept, done := pod("kept", tomb, forced, held), pod("done", finished, forced, held, ownedBy("StatefulSet"))
	stays, daemon := pod("stays", tolerant, forced, held, ownedBy("Job")), pod("cni", exempt, forced, held)
	all := pods(pod("e", exempt), kept, pod("f", finished), done, stays, daemon)
	for _, tt := range []struct {
		view View
		want []action.Pod
	}{
		{evicting(proven, all), []action.Pod{kept, done, stays}},
		{evicting(heartbeat, all), []action.Pod{kept}},
	} {
		d := Step(tt.view)
		if a, ok := d.Action.(action.RemoveMark); !ok || !cmp.Equal(a.HeldPods, tt.want) {
			t.Errorf("got %s that keeps %v, want RemoveMark and %v", action.Name(d.Action), a.HeldPods, tt.want)
		}
	}
}

// A fence whose node came back counts the pods that stay: also those that needed no write to be spared.
func TestUnmarkCountsSparedPods(t *testing.T) {
	spared, finished, daemon := pod("b", func(p *action.Pod) { p.Spared = evicting().Look.Record.Token() }),
		pod("f", finished), pod("e", exempt)
	for _, tt := range []struct {
		name string
		view View
		want []action.Pod
	}{
		{"it came back", evicting(ready, heartbeat, pods(spared, finished, daemon)), []action.Pod{spared}},
		{"evicted", evicting(proven, pods(finished, daemon)), nil},
		{"lifted before anything was touched", armed(ready, heartbeat, pods(pod("web-0"))), nil},
	} {
		d := Step(tt.view)
		if a, ok := d.Action.(action.RemoveMark); !ok || !cmp.Equal(a.Spared, tt.want) {
			t.Errorf("%s: got %s with %v spared, want RemoveMark and %v", tt.name, action.Name(d.Action), a.Spared,
				tt.want)
		}
	}
}

// claims are those of volumes, by pairs.
func claims(pairs ...string) with {
	return func(v *View) {
		v.Claims = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			v.Claims[pairs[i]] = pairs[i+1]
		}
	}
}

// A node that is back, and waits for nothing but volumes: its record names them, or the hook holds all.
func TestNames(t *testing.T) {
	named := func(pairs ...string) with {
		return func(v *View) {
			for i := 0; i < len(pairs); i += 2 {
				v.Look.Record.Detaching = append(v.Look.Record.Detaching,
					taint.Detaching{PV: pairs[i], Claim: pairs[i+1]})
			}
		}
	}
	cached := func(v *View) { v.Live, v.Memory.ListedAt = false, now }
	goes := func(v *View) { v.Attachments[0].Deleting = true }
	var many []string
	for i := range taint.MaxDetaching + 1 {
		many = append(many, fmt.Sprintf("pv-%03d", i), fmt.Sprintf("ns/c-%03d", i))
	}
	several := func(n int) with {
		return func(v *View) {
			for i := range n {
				attached(many[2*i])(v)
			}
			claims(many...)(v)
		}
	}
	wait, nothing := action.Wait{}, action.WriteRecord{}
	read := func(pvs ...string) action.Action { return action.ReadClaims{PVs: pvs} }
	write := func(pairs ...string) action.Action {
		return action.WriteRecord{Record: *evicting(named(pairs...)).Look.Record}
	}
	for _, tt := range []struct {
		name string
		view View
		want action.Action // by brief, and the record's Detaching
	}{
		{"their claims are read", evicting(heartbeat, attached("b", "a")), read("b", "a")},
		{"and named", evicting(heartbeat, attached("b", "a"), claims("a", "x/1", "b", "y/2")),
			write("a", "x/1", "b", "y/2")},
		{"named already",
			evicting(heartbeat, attached("b", "a"), named("a", "x/1", "b", "y/2"), claims("a", "x/1", "b", "y/2")),
			wait},
		{"named already, by a cache", evicting(heartbeat, cached, attached("b", "a"), named("a", "x/1", "b", "y/2")),
			wait},
		{"read again with the next list", evicting(heartbeat, attached("b", "a"), named("a", "x/1", "b", "y/2")),
			read("b", "a")},
		{"one was given to another claim",
			evicting(heartbeat, attached("b", "a"), named("a", "x/1", "b", "y/2"), claims("a", "x/1", "b", "z/3")),
			write("a", "x/1", "b", "z/3")},
		{"one has gone", evicting(heartbeat, attached("b"), named("a", "x/1", "b", "y/2"), claims("b", "y/2")),
			write("b", "y/2")},
		{"one has gone, by a cache", evicting(heartbeat, cached, attached("b"), named("a", "x/1", "b", "y/2")),
			action.ListAttachments{Live: true}},
		{"one more, its claim is read", evicting(heartbeat, attached("a", "c"), named("a", "x/1")), read("a", "c")},
		{"one more, by a cache: with the next list", evicting(heartbeat, cached, attached("a", "c"), named("a", "x/1")),
			wait},
		{"one more", evicting(heartbeat, attached("a", "c"), named("a", "x/1"), claims("a", "x/1", "c", "z/3")),
			write("a", "x/1", "c", "z/3")},
		{"all have gone", evicting(heartbeat, named("a", "x/1")), action.RemoveMark{}},
		{"volumes are not resolved", evicting(heartbeat, attached("a"), unresolved),
			action.ReadVolumes{Pods: []action.Pod{claiming}}},
		{"one without a claim", evicting(heartbeat, attached("a", "b"), claims("a", "x/1", "b", "")),
			write("a", "x/1", "b", "")},
		{"one whose claim cannot be read",
			evicting(heartbeat, attached("a", "b"), claims("a", "x/1", "b", action.UnreadClaim)), wait},
		{"one whose claim cannot be read, and others were named",
			evicting(heartbeat, attached("a", "b"), named("a", "x/1"), claims("a", "x/1", "b", action.UnreadClaim)),
			nothing},
		{"one of two was read for another reason", evicting(heartbeat, attached("a", "b"), claims("a", "x/1")),
			read("a", "b")},
		{"an inline volume", evicting(heartbeat, attached("")), wait},
		{"an inline volume, and others were named", evicting(heartbeat, attached("a", ""), named("a", "x/1")), nothing},
		{"as many as may be", evicting(heartbeat, several(taint.MaxDetaching)), write(many[:2*taint.MaxDetaching]...)},
		{"too many", evicting(heartbeat, several(taint.MaxDetaching+1)), wait},
		{"booted, no heartbeat yet", evicting(booted, attached("a"), claims("a", "x/1")), write("a", "x/1")},
		{"no sign of life but the device's word",
			evicting(saying(on, 300*time.Millisecond), saidOn, attached("a"), claims("a", "x/1")), wait},
		{"an ended pod is left", evicting(heartbeat, pods(pod("t", tomb)), attached("a"), claims("a", "x/1")),
			action.DeletePods{}},
		{"a pod was not spared yet", evicting(heartbeat, pods(pod("p")), attached("a"), claims("a", "x/1")),
			action.SparePods{}},
		{"a pod uses a volume that is never detached",
			evicting(heartbeat, pods(pod("p", uses("a", pvA))), spared, attached("a")), action.RemoveMark{}},
		{"a pod uses one that is being detached",
			evicting(heartbeat, pods(pod("p", uses("a", pvA))), spared, attached("a"), goes), read("a")},
		{"off, and not back", evicting(proven, attached("a"), goes, claims("a", "x/1")), wait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Step(tt.view)
			rec, names := action.RecordOf(d.Action), action.RecordOf(tt.want).Detaching
			if brief(d.Action) != brief(tt.want) || !slices.Equal(rec.Detaching, names) {
				t.Fatalf("got %s that names %v, want %s that names %v", brief(d.Action), rec.Detaching, brief(tt.want),
					names)
			}
			if !action.Is[action.WriteRecord](d) {
				return
			}
			rec.Detaching, tt.view.Look.Record.Detaching = nil, nil
			if diff := cmp.Diff(*tt.view.Look.Record, rec); diff != "" {
				t.Errorf("more is written than names (-was +written):\n%s", diff)
			}
		})
	}
}

// The run that the device reports when it confirms the Off is the one that is over: the machine may have been started
// since the mark.
func TestConfirmRecordsTheRun(t *testing.T) {
	a := answer(off, time.Second)
	a.Run = "2"
	d := Step(armed(func(v *View) { v.Look.Record.Run = "1"; heard(v, a) }))
	rec := action.RecordOf(d.Action)
	if !action.Is[action.WriteRecord](d) || rec.Phase != taint.PhaseEvicting || rec.Run != "2" {
		t.Errorf("got %s %s with run %q", action.Name(d.Action), rec.Phase, rec.Run)
	}
	// It was started after our power-off, and another person or program turned it off: afterwards we do not power it
	// on.
	by := []taint.DeviceRef{{Device: "laptop/n1"}}
	for run, want := range map[string]int{"1": 0, "2": 1, "": 1} {
		d := Step(armed(func(v *View) { v.Look.Record.Run, v.Look.Record.OffBy = run, by; heard(v, a) }))
		rec := action.RecordOf(d.Action)
		if len(rec.OffBy) != want {
			t.Errorf("run %q at our power-off, 2 now: got it off by %v, want %d devices", run, rec.OffBy, want)
		}
	}
	// It came on between mark and confirmation: a later fence must not believe that we turned it off.
	for state, want := range map[providers.PowerState]int{on: 0, unknown: 1} {
		d := Step(armed(func(v *View) { v.Look.Record.OffBy = by; heard(v, answer(state, time.Second)) }))
		rec := action.RecordOf(d.Action)
		if !action.Is[action.RemoveMark](d) || len(rec.OffBy) != want {
			t.Errorf("%s confirms nothing: got %s and off by %v, want %d devices", state, action.Name(d.Action),
				rec.OffBy, want)
		}
	}
	// Another device confirms, and the device that reports runs does not answer: the record keeps the run of the mark.
	a.Run = ""
	d = Step(armed(func(v *View) { v.Look.Record.Run, v.Look.Record.RunBy = "1", "laptop/n1"; heard(v, a) }))
	rec = action.RecordOf(d.Action)
	if !action.Is[action.WriteRecord](d) || rec.Run != "1" || rec.RunBy != "laptop/n1" {
		t.Errorf("no run reported: got %s with run %q by %q", action.Name(d.Action), rec.Run, rec.RunBy)
	}
}

// A person's mark in the middle of a power-off ends that fence. The record of the person's fence still names what
// accepted the power-off, as long as the node shows no life, and in any case the orders that are to be taken back.
func TestPersonsMarkKeepsPowerOffTo(t *testing.T) {
	for name, tc := range map[string]struct {
		phase taint.Phase
		lease string
		want  int
	}{
		"powering off": {taint.PhasePoweringOff, "7", 1}, "armed": {taint.PhaseArmed, "7", 1},
		"evicting":         {taint.PhaseEvicting, "7", 1},
		"alive since then": {taint.PhasePoweringOff, "8", 0},
	} {
		v := marked(tc.phase, func(v *View) {
			v.Look.Mark.Value, v.Look.LeaseRV = "manual", tc.lease
			v.Look.Record.PowerOffTo = []taint.DeviceRef{{Device: "strip/7"}}
			v.Look.Record.Orders = []taint.DeviceRef{{Device: "hosts/7"}}
		})
		d := Step(v)
		if n := len(action.RecordOf(d.Action).Orders); n != 1 {
			t.Errorf("%s: got %d orders in the record, want 1", name, n)
		}
		if to := action.RecordOf(d.Action).PowerOffTo; d.Reason != reason.Adopting || len(to) != tc.want {
			t.Errorf("%s: got %s (%s) naming %v, want %d devices", name, action.Name(d.Action), d.Reason, to, tc.want)
		}
	}
}

// TestDeletedAtOnce holds which pods are deleted as soon as they are ended: those of which no volume is to be cleared
// or detached (steps 10 and 11).
func TestDeletedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  action.Pod
		want bool
	}{
		{"no volume", pod("a"), true},
		{"a volume", pod("a", uses("pv", pvA)), false},
		{"claims whose volumes are unknown", pod("a", claimant), false},
		{"a volume that is no claim's", pod("a", func(p *action.Pod) { p.OtherVolume = "data" }), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ends, _ := Step(evicting(proven, pods(tt.pod))).Action.(action.EndPods)
			if len(ends.Pods) != 1 || ends.Pods[0].AtOnce != tt.want {
				t.Errorf("got %+v, want AtOnce %t", ends, tt.want)
			}
		})
	}
}
