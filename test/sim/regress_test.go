package sim

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// What histories found, as the one View that showed it: seeds change their meaning whenever the model does.

// evicting is a View of a node in the middle of an eviction, proven off since the given time.
func evicting(now, since time.Time, taints ...corev1.Taint) evict.View {
	rec := taint.Record{ID: "f1", Phase: taint.PhaseEvicting, NodeUID: "u", BootID: "b", LeaseRV: "1", Since: since,
		At: since, By: "ff"}
	l := taint.Look{
		Sent: providers.InstantOf(since), Got: providers.InstantOf(since), Exists: true, Name: "n1", UID: "u",
		ResourceVersion: "7", BootID: "b", LeaseRV: "1",
		Ready: corev1.ConditionUnknown, Mark: &taint.Mark{Value: "f1", Effect: corev1.TaintEffectNoSchedule},
		Record: &rec, Taints: taints,
	}
	v := evict.View{Now: providers.InstantOf(now), Settings: evict.Settings{DetachTimeout: time.Hour},
		Devices: []proof.Device{{Name: "bmc/n1"}}, By: "ff", Live: true}
	v.Memory.ApplyLook(l)
	l.Sent, l.Got = providers.InstantOf(now), providers.InstantOf(now)
	v.Look = l
	v.Answers.SetDevices(v.Devices...)
	v.Answers.ApplyAnswers(providers.Answer{Observation: providers.Observation{State: providers.PowerOff,
		At: providers.InstantOf(now)}, Got: providers.InstantOf(now)})
	return v
}

func unreachable(at time.Time) corev1.Taint {
	added := metav1.NewTime(at)
	return corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
}

// A pod waited for the stock eviction, its volume's entries were cleared already, the machine came back: the pod stayed
// and hung for good on "not attached according to node status" (F5).
func TestWaitingPodsKeepTheirVolumes(t *testing.T) {
	v := evicting(epoch.Add(time.Second), epoch, unreachable(epoch))
	v.Look.InUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/sim^vol"}
	v.Look.Attached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/sim^vol"}}
	v.Pods = []action.Pod{
		{Name: "db-0", UID: "p", Volumes: []action.Volume{{PV: "vol", Unique: "kubernetes.io/csi/sim^vol"}}}}
	if d := evict.Step(v); !action.Is[action.Wait](d) || d.Reason != reason.StockEviction {
		t.Errorf("got %s %s, want Wait %s", action.Name(d.Action), d.Reason, reason.StockEviction)
	}
}

// A process that came to it late gave up waiting for a stock deletion that was due seconds ago: patience ran from the
// proof, not from the time the deletion was due. The deletion hit the replacement (F2).
func TestPatienceRunsFromWhenDue(t *testing.T) {
	minute := int64(60)
	pod := action.Pod{Name: "db-0", UID: "p", Tolerations: []corev1.Toleration{{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: &minute,
	}}}
	noTime := unreachable(epoch)
	noTime.TimeAdded = nil
	for name, c := range map[string]struct {
		after time.Duration
		taint corev1.Taint
		want  action.Action
	}{
		"due in 31 s":             {29 * time.Second, unreachable(epoch), action.EndPods{}},
		"due in 29 s":             {31 * time.Second, unreachable(epoch), action.Wait{}},
		"due 2 s ago":             {62 * time.Second, unreachable(epoch), action.Wait{}},
		"due a minute ago":        {121 * time.Second, unreachable(epoch), action.EndPods{}},
		"nobody knows, just seen": {31 * time.Second, noTime, action.Wait{}},
		"nobody knows, long seen": {121 * time.Second, noTime, action.EndPods{}},
	} {
		v := evicting(epoch.Add(c.after), epoch, c.taint)
		v.Pods = []action.Pod{pod}
		if d := evict.Step(v); action.Name(d.Action) != action.Name(c.want) {
			t.Errorf("%s: got %s %s, want %s", name, action.Name(d.Action), d.Reason, action.Name(c.want))
		}
	}
}

// The API server was away for a minute and a half. The stock controller saw the taint only then, and counted from
// there: its deletion, long overdue by the taint's own time, hit the replacement (F2).
func TestStockCountsAnewAfterAnOutage(t *testing.T) {
	five := int64(5)
	pod := action.Pod{Name: "db-0", UID: "p", Tolerations: []corev1.Toleration{{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: &five,
	}}}
	for _, c := range []struct {
		away, since time.Duration // the outage, and how long it is over
		want        action.Action
	}{
		{90 * time.Second, time.Second, action.Wait{}}, {90 * time.Second, 64 * time.Second, action.Wait{}},
		{90 * time.Second, 66 * time.Second, action.EndPods{}}, {19 * time.Second, 47 * time.Second, action.EndPods{}},
	} {
		v := evicting(epoch.Add(c.away), epoch, unreachable(epoch))
		v.Pods = []action.Pod{pod}
		v.Memory.ApplyLook(v.Look)
		v.Now = providers.InstantOf(epoch.Add(c.away + c.since))
		v.Answers.ApplyAnswers(
			providers.Answer{Observation: providers.Observation{State: providers.PowerOff, At: v.Now}, Got: v.Now})
		if d := evict.Step(v); action.Name(d.Action) != action.Name(c.want) {
			t.Errorf("away for %s, back for %s: got %s %s, want %s", c.away, c.since, action.Name(d.Action), d.Reason,
				action.Name(c.want))
		}
	}
}

// The controller-manager's clock was wrong, and so was the taint's timeAdded: its deletion, which seemed far away or
// long over, hit the replacement (F2). So the taint also counts from when we first saw it, and a pod waits while either
// time is near.
func TestStockCountsFromOurOwnSight(t *testing.T) {
	minutes := int64(300)
	pod := action.Pod{Name: "db-0", UID: "p", Tolerations: []corev1.Toleration{{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: &minutes,
	}}}
	for _, c := range []struct {
		ahead, after time.Duration // the controller-manager's clock, and how long ago the taint was first seen
		want         action.Action
	}{
		{45 * time.Second, 269 * time.Second, action.EndPods{}},
		{45 * time.Second, 270 * time.Second, action.Wait{}}, // by our own sight
		{45 * time.Second, 361 * time.Second, action.Wait{}}, // by timeAdded
		{45 * time.Second, 406 * time.Second, action.EndPods{}},
		{-90 * time.Second, 179 * time.Second, action.EndPods{}},
		{-90 * time.Second, 180 * time.Second, action.Wait{}}, // by timeAdded
		{-90 * time.Second, 271 * time.Second, action.Wait{}}, // by our own sight
		{-90 * time.Second, 360 * time.Second, action.Wait{}},
		{-90 * time.Second, 361 * time.Second, action.EndPods{}},
	} {
		v := evicting(epoch.Add(c.after), epoch, unreachable(epoch.Add(c.ahead)))
		v.Pods = []action.Pod{pod}
		if d := evict.Step(v); action.Name(d.Action) != action.Name(c.want) {
			t.Errorf("clock ahead by %s, seen %s ago: got %s %s, want %s", c.ahead, c.after, action.Name(d.Action),
				d.Reason, action.Name(c.want))
		}
	}
}

// A person took the mark off between tombstone and delete, and no other pod was left to move: the terminating
// tombstone, which no StatefulSet controller deletes, stood for good, as "nothing to evict".
func TestTombstonesLeftBehindAreWork(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  action.Pod
		want bool
	}{
		{"tombstoned and terminating", action.Pod{Terminal: true, Tombstone: true, Deleting: true, Grace: 30}, true},
		{"kept by finalizers only",
			action.Pod{Terminal: true, Tombstone: true, Deleting: true, Finalizers: []string{"x"}}, false},
		{"failed by itself", action.Pod{Terminal: true}, false},
	} {
		if got := evict.HasWork([]action.Pod{c.pod}, nil); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// A tombstone was sent with a good proof and was long on its way; the machine booted, the mark went, the hook let the
// pod start, and then the tombstone landed on it: its replacement ran beside it (invariant 10). So pods are spared
// before the mark goes, and a fence that has begun to spare ends nothing more.
func TestReturnSparesPodsBeforeTheMarkGoes(t *testing.T) {
	token := evicting(epoch, epoch).Look.Record.Token()
	on := providers.Answer{Observation: providers.Observation{State: providers.PowerOn, At: providers.InstantOf(epoch)},
		Got: providers.InstantOf(epoch)}
	for _, c := range []struct {
		name   string
		spared string
		answer providers.Answer
		want   action.Action
	}{
		{"not spared", "", on, action.SparePods{}},
		{"spared by an earlier fence", "f0/20300101T000000.000", on, action.SparePods{}},
		{"spared", token, on, action.RemoveMark{}},
		{"spared, and off again", token, evicting(epoch, epoch).Answers.Answer, action.RemoveMark{}},
		{"off, spared by an earlier fence", "f0/20300101T000000.000", evicting(epoch, epoch).Answers.Answer,
			action.EndPods{}},
	} {
		v := evicting(epoch.Add(100*time.Millisecond), epoch, unreachable(epoch.Add(-time.Hour)))
		v.Answers.ApplyAnswers(c.answer)
		v.Pods = []action.Pod{{Name: "db-0", UID: "p", Spared: c.spared, Deleting: true, Grace: 30}}
		if d := evict.Step(v); action.Name(d.Action) != action.Name(c.want) {
			t.Errorf("%s: got %s %s, want %s", c.name, action.Name(d.Action), d.Reason, action.Name(c.want))
		}
	}
}
