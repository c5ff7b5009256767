package taint

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A mark that another program set is named after the program. A mark of kubectl, or of an unknown manager, is a
// person's.
func TestMarkedBy(t *testing.T) {
	wrote := func(manager, fields string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, FieldsV1: metav1.NewFieldsV1(fields),
			Time: &metav1.Time{Time: time.Unix(int64(minute)*60, 0)},
		}
	}
	const taints, labels = `{"f:spec":{"f:taints":{}}}`, `{"f:metadata":{"f:labels":{}}}`
	for _, tt := range []struct {
		name   string
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		{"no manager", nil, ByPerson},
		{"kubectl taint", []metav1.ManagedFieldsEntry{wrote("kubectl-taint", taints, 1)}, ByPerson},
		{"another controller", []metav1.ManagedFieldsEntry{wrote("rescuer", taints, 1)}, "external/rescuer"},
		{"other fields of others",
			[]metav1.ManagedFieldsEntry{wrote("rescuer", taints, 1), wrote("labeller", labels, 2)}, "external/rescuer"},
		{"the last one", []metav1.ManagedFieldsEntry{wrote("rescuer", taints, 2), wrote("kubectl-taint", taints, 1)},
			"external/rescuer"},
		{"a person after a controller",
			[]metav1.ManagedFieldsEntry{wrote("rescuer", taints, 1), wrote("kubectl-edit", taints, 2)}, ByPerson},
		{"the stock controllers add theirs", []metav1.ManagedFieldsEntry{wrote("kube-controller-manager", taints, 1)},
			ByPerson},
		{"ours", []metav1.ManagedFieldsEntry{wrote("forcefence", taints, 1)}, ByPerson},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ManagedFields: tt.fields}}
		n.Spec.Taints = []corev1.Taint{{Key: DefaultKey, Value: "x", Effect: corev1.TaintEffectNoSchedule}}
		l := NewLook(n, nil, DefaultKey, Instant{}, Instant{})
		if l.MarkedBy != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, l.MarkedBy, tt.want)
		}
		r := Record{ID: "x", NodeUID: "u", By: l.MarkedBy}.EnterPhase(PhaseArmed, "", time.Time{})
		if back, err := ParseRecord(r.Encode()); err != nil || !back.IsVouchedFor() {
			t.Errorf("%s: the record reads back as %+v, %v: want one that a person vouches for", tt.name, back, err)
		}
	}
	if own := (&Record{By: "forcefence-7d9f"}); own.IsVouchedFor() {
		t.Error("a controller of ours vouches for nothing")
	}
}

// Another client's out-of-service taint is found, with the client's name if the managed fields show it.
func TestOutOfServiceByOther(t *testing.T) {
	theirs := corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
	ours := OutOfService(time.Unix(0, 0))
	wrote := func(manager string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, Time: &metav1.Time{},
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
	}
	for _, tt := range []struct {
		name   string
		taints []corev1.Taint
		fields []metav1.ManagedFieldsEntry
		client string
		found  bool
	}{
		{"no taint", nil, wrote("harvester"), "", false},
		{"ours", []corev1.Taint{ours}, wrote("forcefence"), "", false},
		{"another's", []corev1.Taint{theirs}, wrote("harvester"), "harvester", true},
		{"both", []corev1.Taint{ours, theirs}, wrote("harvester"), "harvester", true},
		{"kubectl's", []corev1.Taint{theirs}, wrote("kubectl-taint"), "kubectl-taint", true},
		{"a stock controller wrote another taint since", []corev1.Taint{theirs}, wrote("kube-controller-manager"), "",
			true},
		{"no managed fields", []corev1.Taint{theirs}, nil, "", true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: tt.fields}}
		n.Spec.Taints = tt.taints
		if client, found := OutOfServiceByOther(n); client != tt.client || found != tt.found {
			t.Errorf("%s: got %q, %t, want %q, %t", tt.name, client, found, tt.client, tt.found)
		}
	}
}

// A status that the kubelet wrote is a sign of life, as a renewed Lease is. An older version's record names none.
func TestStatusIsALife(t *testing.T) {
	at := metav1.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	node := func(c corev1.NodeCondition) Look {
		c.Type = corev1.NodeReady
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
		n.Status.Conditions = []corev1.NodeCondition{c}
		return NewLook(n, nil, DefaultKey, Instant{}, Instant{})
	}
	was := node(corev1.NodeCondition{Status: corev1.ConditionTrue, LastHeartbeatTime: at})
	now := node(corev1.NodeCondition{Status: corev1.ConditionFalse,
		LastHeartbeatTime: metav1.NewTime(at.Add(time.Second))})
	if was.SameLife(now) || !was.SameLife(was) {
		t.Error("another status is the same life, or the same status is another")
	}
	if r := (&Record{NodeUID: "u1", Heartbeat: was.Heartbeat}); !now.IsAliveSince(r) || was.IsAliveSince(r) {
		t.Error("a status after the record's is no sign of life, or the same one is")
	}
	if now.IsAliveSince(&Record{NodeUID: "u1"}) {
		t.Error("a record that names no status takes any for a sign of life")
	}
	never := node(corev1.NodeCondition{Status: corev1.ConditionUnknown, LastHeartbeatTime: at,
		Reason: "NodeStatusNeverUpdated"})
	if !never.Heartbeat.IsZero() {
		t.Errorf("a Node whose kubelet wrote no status: got a heartbeat at %s", never.Heartbeat)
	}
}

// An order to power off ends with the life and the fence that it is about. One remains: that by which the machine went
// off, after a fence that moved everything.
func TestOrdersToWithdraw(t *testing.T) {
	hosts, others := DeviceRef{Device: "hosts/a"}, DeviceRef{Device: "hosts/b"}
	since := time.Unix(1000, 0)
	record := func(p Phase, res Result) Record {
		r := Record{ID: "f1", NodeUID: "u", BootID: "b1", LeaseRV: "1", By: "test", Since: since, Phase: p, Result: res}
		return r.WithOrders(hosts)
	}
	done := func(res Result) func(*Record, *Look) {
		return func(r *Record, _ *Look) { r.Phase, r.Result = PhaseDone, res }
	}
	for name, tt := range map[string]struct {
		edit func(*Record, *Look)
		want bool
	}{
		"the fence is open":    {func(*Record, *Look) {}, false},
		"the machine is off":   {func(r *Record, _ *Look) { r.Phase = PhaseEvicting }, false},
		"a heartbeat":          {func(_ *Record, l *Look) { l.LeaseRV = "2" }, true},
		"another boot":         {func(r *Record, l *Look) { r.Phase, l.BootID = PhaseEvicting, "b2" }, true},
		"another Node":         {func(_ *Record, l *Look) { l.UID = "v" }, true},
		"cancelled":            {done(ResultCancelled), true},
		"the power-off failed": {done(ResultPowerOffFailed), true},
		"released":             {done(ResultReleased), true},
		"lifted":               {done(ResultLifted), true},
		"the mark was removed": {done(ResultMarkRemoved), true},
		"returned":             {done(ResultReturned), true},
		"never off":            {done(ResultNeverPoweredOff), true},
		"evicted, off by another": {func(r *Record, l *Look) {
			done(ResultEvicted)(r, l)
			r.OffBy = []DeviceRef{others}
		}, true},
		"evicted, and it is off by that": {func(r *Record, l *Look) {
			done(ResultEvicted)(r, l)
			r.OffBy = []DeviceRef{hosts}
		}, false},
		"evicted, and it is back": {func(r *Record, l *Look) {
			done(ResultEvicted)(r, l)
			r.OffBy, l.LeaseRV = []DeviceRef{hosts}, "2"
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := record(PhasePoweringOff, ""), Look{Exists: true, UID: "u", BootID: "b1", LeaseRV: "1"}
			l.Record = &r
			tt.edit(&r, &l)
			if got := l.OrdersToWithdraw(); len(got) > 0 != tt.want {
				t.Fatalf("got %v, want any: %v", got, tt.want)
			}
			if left := r.WithoutOrders(r.Orders).Orders; len(left) > 0 {
				t.Errorf("got %v after they were taken back", left)
			}
		})
	}
	if (Look{}).OrdersToWithdraw() != nil {
		t.Error("got orders without a record")
	}
}
