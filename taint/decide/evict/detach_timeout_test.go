package evict

import (
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// onOvertime is a fence in which one volume is all that is left, longer than the detach timeout.
func onOvertime(what OnDetachTimeout, change ...with) View {
	return evicting(append([]with{proven, attached("a"), func(v *View) {
		v.Settings.OnDetachTimeout = what
		r := v.Look.Record.EnterPhase(taint.PhaseEvicting, "", ago(v.Settings.DetachTimeout+time.Second).Wall)
		v.Look.Record = &r
		v.Memory.emptySince = ago(time.Hour)
	}}, change...)...)
}

func staysBy(name string, t ...corev1.Toleration) action.Pod {
	return action.Pod{Namespace: "ns", Name: name, UID: name, ResourceVersion: "1", Exempt: taint.ExemptTolerate,
		Tolerations: t}
}

// TestOvertime is what may be done about volumes that do not detach, and what keeps it from being done.
func TestOvertime(t *testing.T) {
	early := func(v *View) {
		r := v.Look.Record.EnterPhase(taint.PhaseEvicting, "", ago(v.Settings.DetachTimeout).Wall)
		v.Look.Record = &r
	}
	isDeleted := func(v *View) { v.Attachments[0].Deleting = true }
	forced := func(d time.Duration) with { return func(v *View) { v.Memory.ForcedAt = ago(d) } }
	emptied := func(d time.Duration) with { return func(v *View) { v.Memory.emptySince = ago(d) } }
	outOfService := func(v *View) { v.Look.Taints = append(v.Look.Taints, taint.OutOfService(now.Wall)) }
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	aWhile := corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64)}
	finished := staysBy("job")
	finished.Terminal = true
	stuck := staysBy("stuck")
	stuck.Terminal, stuck.Deleting, stuck.Finalizers = true, true, []string{"example.net/keep"}
	noMark := corev1.Toleration{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}
	for _, tt := range []struct {
		name string
		view View
		want action.Action // by brief
		why  reason.Reason
	}{
		{"alert", onOvertime(Alert), action.Wait{}, reason.WaitingDetach},
		{"delete", onOvertime(ForceDetach), action.DeleteAttachments{}, reason.ForcingDetach},
		{"delete, not yet", onOvertime(ForceDetach, early), action.Wait{}, reason.WaitingDetach},
		{"delete, only in a cache", onOvertime(ForceDetach, func(v *View) { v.Live = false }),
			action.ListAttachments{Live: true}, reason.ForcingDetach},
		{"delete, volumes not resolved", onOvertime(ForceDetach, unresolved),
			action.ReadVolumes{Pods: []action.Pod{claiming}}, ""},
		{"deleted already", onOvertime(ForceDetach, isDeleted), action.Wait{}, reason.WaitingDetach},
		{"made again", onOvertime(ForceDetach, forced(29*time.Second)), action.Wait{}, reason.WaitingDetach},
		{"made again long ago", onOvertime(ForceDetach, forced(30*time.Second)), action.DeleteAttachments{},
			reason.ForcingDetach},
		{"delete, proof old", onOvertime(ForceDetach, saying(off, 6*time.Second)), action.AskDevices{},
			reason.Confirming},
		{"delete, proof lost", onOvertime(ForceDetach, saying(unknown, 100*time.Millisecond)), action.Wait{},
			reason.WaitingDetach},
		{"delete, changing", onOvertime(ForceDetach, saying(changing, 100*time.Millisecond)), action.Wait{},
			reason.WaitingDetach},
		{"delete, on", onOvertime(ForceDetach, saying(on, 100*time.Millisecond)), action.WriteRecord{},
			reason.WaitingDetach},
		{"delete, on, which the record says", onOvertime(ForceDetach, saying(on, 100*time.Millisecond), saidOn),
			action.Wait{}, reason.WaitingDetach},
		{"delete, the node lives", onOvertime(ForceDetach, func(v *View) { v.Look.LeaseRV = "8" }),
			action.ReadClaims{PVs: []string{"a"}}, reason.WaitingDetach},
		{"delete, a pod is left", onOvertime(ForceDetach, pods(pod("late"))), action.EndPods{}, reason.Tombstoning},
		{"out of service", onOvertime(TakeOutOfService), action.AddOutOfServiceTaint{}, reason.OutOfService},
		{"out of service, not yet", onOvertime(TakeOutOfService, early), action.Wait{}, reason.WaitingDetach},
		{"out of service, only in a cache", onOvertime(TakeOutOfService, func(v *View) { v.Live = false }),
			action.ListAttachments{Live: true}, reason.OutOfService},
		{"out of service, proof lost", onOvertime(TakeOutOfService, saying(unknown, 100*time.Millisecond)),
			action.Wait{}, reason.WaitingDetach},
		{"out of service already", onOvertime(TakeOutOfService, outOfService), action.Wait{}, reason.WaitingDetach},
		{"a pod was there just now", onOvertime(TakeOutOfService, emptied(59*time.Second)), action.Wait{},
			reason.WaitingDetach},
		{"a pod was there a minute ago", onOvertime(TakeOutOfService, emptied(time.Minute)),
			action.AddOutOfServiceTaint{}, reason.OutOfService},
		{"not looked at", onOvertime(TakeOutOfService, func(v *View) { v.Memory.emptySince = providers.Instant{} }),
			action.Wait{},
			reason.WaitingDetach},
		{"a pod tolerates everything", onOvertime(TakeOutOfService, pods(staysBy("proxy", everything))),
			action.AddOutOfServiceTaint{}, reason.OutOfService},
		{"a pod tolerates it for a while", onOvertime(TakeOutOfService, pods(staysBy("p", aWhile))), action.Wait{},
			reason.WaitingDetach},
		{"a pod tolerates the mark alone", onOvertime(TakeOutOfService, pods(staysBy("p", noMark))), action.Wait{},
			reason.WaitingDetach},
		{"a finished pod", onOvertime(TakeOutOfService, pods(finished)), action.Wait{}, reason.WaitingDetach},
		{"a pod that finalizers keep", onOvertime(TakeOutOfService, pods(stuck)), action.AddOutOfServiceTaint{},
			reason.OutOfService},
		{"the node lives again", onOvertime(TakeOutOfService, outOfService, func(v *View) { v.Look.LeaseRV = "8" }),
			action.RemoveOutOfServiceTaint{}, reason.Returned},
		{"the machine is on again", onOvertime(TakeOutOfService, outOfService, saying(on, 100*time.Millisecond)),
			action.RemoveOutOfServiceTaint{}, reason.Returned},
		{"another person's taint", onOvertime(TakeOutOfService, func(v *View) {
			v.Look.Taints = []corev1.Taint{
				{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
			v.Look.LeaseRV = "8"
		}), action.ReadClaims{PVs: []string{"a"}}, reason.WaitingDetach},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Step(tt.view)
			if brief(d.Action) != brief(tt.want) || d.Reason != tt.why {
				t.Fatalf("Step: got %s %s, want %s %s", brief(d.Action), d.Reason, brief(tt.want), tt.why)
			}
			if late := tt.view.Now.Sub(
				providers.InstantOf(tt.view.Look.Record.At)) > tt.view.Settings.DetachTimeout; late &&
				tells(d.Action) && d.Alert != string(reason.WaitingDetach) {
				t.Errorf("alert: got %q, want the same for each action: each change of the alert is reported", d.Alert)
			}
			if a, ok := d.Action.(action.DeleteAttachments); ok && !slices.Equal(a.Attachments, tt.view.Attachments) {
				t.Errorf("to delete: got %v, want %v", a.Attachments, tt.view.Attachments)
			}
		})
	}
}

// tells reports whether overtime chose the action: no reads, and no action that comes before the wait for volumes.
func tells(a action.Action) bool {
	switch a.(type) {
	case action.ReadVolumes, action.ReadClaims, action.ListAttachments, action.EndPods, action.RemoveOutOfServiceTaint:
		return false
	}
	return true
}

// TestEmptied is how long no pod was seen that being out of service would end.
func TestEmptied(t *testing.T) {
	var m Memory
	at := func(s int) providers.Instant { return now.Add(time.Duration(s) * time.Second) }
	ordinary := []action.Pod{{Name: "p"}}
	for _, see := range []struct {
		at   int
		pods []action.Pod
		want providers.Instant
	}{
		{0, ordinary, providers.Instant{}}, {1, nil, at(1)}, {5, nil, at(1)}, {6, ordinary, providers.Instant{}},
		{7, nil, at(7)},
	} {
		if m.ApplyPods(see.pods, at(see.at)); !m.emptySince.Equal(see.want) {
			t.Errorf("after %d s: empty since %v, want %v", see.at, m.emptySince, see.want)
		}
	}
}
