package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

var t0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

// tale is a round under test: two pods, db-0 with a volume and web-0 without, on node n, which lost its power at t0.
type tale struct {
	*Round
	told  []Event
	notes []string
	n     *corev1.Node
}

func newTale() *tale {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	t := &tale{n: n}
	t.Round = NewRound(1, n, taint.DefaultKey, "BMC", []Victim{
		{Name: "db-0", UID: "db-0", Attachments: []types.UID{"va"}}, {Name: "web-0", UID: "web-0"},
	}, func(e Event) { t.told = append(t.told, e) },
		func(_ time.Duration, text string) { t.notes = append(t.notes, text) })
	t.Begin(t0)
	return t
}

func (t *tale) node(ms int, change func(*corev1.Node)) {
	t.n = t.n.DeepCopy()
	change(t.n)
	t.Node(at(ms), t.n)
}

func (t *tale) mark(ms int) {
	t.node(ms, func(n *corev1.Node) {
		n.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f", at(ms))
		n.Annotations = record(taint.PhaseArmed, "")
	})
}

func (t *tale) unmark(ms int, res taint.Result) {
	t.node(ms, func(n *corev1.Node) { n.Spec.Taints, n.Annotations = nil, record(taint.PhaseDone, res) })
}

func record(p taint.Phase, res taint.Result) map[string]string {
	r := taint.Record{ID: "f", Phase: p, Result: res, NodeUID: "n", By: "c", Since: t0, At: t0}
	return map[string]string{taint.RecordAnnotation: r.Encode()}
}

func (t *tale) evicting(ms int) {
	t.node(ms, func(n *corev1.Node) { n.Annotations = record(taint.PhaseEvicting, "") })
}

func (t *tale) pod(ms int, name string, tombstone, deleted bool) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if tombstone {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, taint.TombstoneReason
	}
	t.Pod(at(ms), p, deleted)
}

func (t *tale) detach(ms int, uid string) {
	t.Attachment(at(ms), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}})
}

func (t *tale) log(ms int, msg, why, state string) {
	t.Log(Log{Time: at(ms), Msg: msg, Node: "n", Why: why, State: state, Raw: state})
}

// short writes events as "ms kind".
func short(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%d %s", e.Millis, e.Kind))
	}
	return out
}

func TestRound(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(t *tale)
		want []string
	}{
		{"nothing happens", func(*tale) {}, nil},
		{"a power cut", func(t *tale) {
			t.Power(at(0), false, "")
			t.log(10, "Machine answered", "", "Off")
			t.mark(20)
			t.log(30, "Decided", "MachineConfirmedOff", "")
			t.evicting(40)
			t.pod(50, "db-0", true, false)
			t.pod(60, "web-0", true, false)
			t.node(70, func(n *corev1.Node) { n.Status.VolumesInUse = nil })
			t.pod(80, "web-0", true, true)
			t.pod(90, "db-0", true, true)
			t.detach(100, "va")
			t.unmark(110, taint.ResultEvicted)
			t.Replaced(at(120), "")
		}, []string{
			"0 power_lost", "10 off_seen", "20 marked", "30 confirmed", "40 evicting", "60 tombstoned",
			"70 volumes_cleared",
			"90 pods_deleted", "100 detached", "110 mark_removed", "120 replacements_running",
		}},
		{"the log comes late, with its own time", func(t *tale) {
			t.mark(20)
			t.evicting(40)
			t.log(10, "Machine answered", "", "Off")
			t.log(30, "Decided", "MachineConfirmedOff", "")
		}, []string{"10 off_seen", "20 marked", "30 confirmed", "40 evicting"}},
		{"an answer other than Off", func(t *tale) {
			t.log(10, "Machine answered", "", "On")
			t.log(20, "Machine answered", "", "Changing")
			t.log(30, "Machine answered", "", "Unknown")
		}, nil},
		{"an answer that was reported in an earlier fence", func(t *tale) { t.log(10, "Decided", "MachineOff", "") },
			[]string{"10 off_seen"}},
		{"what was before the beginning, and other nodes and pods", func(t *tale) {
			t.log(-10, "Machine answered", "", "Off")
			t.Log(Log{Time: at(10), Msg: "Machine answered", Node: "m", State: "Off"})
			t.pod(10, "other", true, true)
			t.detach(10, "other")
			m := t.n.DeepCopy()
			m.Name = "m"
			m.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f", t0)
			t.Node(at(10), m)
		}, nil},
		{"ended pods that go while others are not ended yet", func(t *tale) {
			t.evicting(10)
			t.pod(20, "web-0", true, false)
			t.pod(25, "web-0", true, true)
		}, []string{"10 evicting"}},
		{"the machine comes back when one of two pods is ended", func(t *tale) {
			t.mark(10)
			t.evicting(20)
			t.pod(30, "db-0", true, false)
			t.node(40, func(n *corev1.Node) { n.Status.NodeInfo.BootID, n.Status.VolumesInUse = "boot-2", nil })
			t.pod(50, "db-0", true, true)
			t.log(60, "Deleted pods", "", "")
			t.detach(70, "va")
			t.unmark(80, taint.ResultReturned)
		}, []string{"10 marked", "20 evicting", "30 tombstoned", "50 pods_deleted", "70 detached", "80 mark_removed"}},
		{"ended pods are reported as soon as no more can come", func(t *tale) {
			t.evicting(20)
			t.pod(30, "db-0", true, false)
			t.node(40, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
			t.Log(Log{Time: at(50), Msg: "Ended pods", Node: "n", Pods: 1})
		}, []string{"20 evicting", "30 tombstoned"}},
		{"but not before all of them were seen", func(t *tale) {
			t.evicting(20)
			t.pod(30, "db-0", true, false)
			t.node(40, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
			t.Log(Log{Time: at(50), Msg: "Ended pods", Node: "n", Pods: 2})
		}, []string{"20 evicting"}},
		{"it comes back before a pod with a volume is ended", func(t *tale) {
			t.mark(10)
			t.evicting(20)
			t.pod(30, "web-0", true, false)
			t.pod(40, "web-0", true, true)
			t.unmark(50, taint.ResultReturned)
		}, []string{"10 marked", "20 evicting", "30 tombstoned", "40 pods_deleted", "50 mark_removed"}},
		{"a pod is deleted that was never ended", func(t *tale) {
			t.pod(30, "web-0", false, true)
			t.pod(40, "db-0", false, true)
			t.detach(50, "va")
		}, nil},
		{"a fence is lifted and another begins", func(t *tale) {
			t.log(5, "Machine answered", "", "Off")
			t.mark(10)
			t.unmark(20, taint.ResultLifted)
			t.log(25, "Decided", "MachineOff", "")
			t.mark(30)
			t.unmark(40, taint.ResultEvicted)
		}, []string{"5 off_seen", "10 marked", "20 mark_removed", "25 off_seen", "30 marked", "40 mark_removed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTale()
			tt.play(r)
			if diff := cmp.Diff(tt.want, short(r.Events())); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if len(r.told) != len(tt.want) {
				t.Errorf("told %v, want each event once", short(r.told))
			}
		})
	}
}

func TestRoundNotBegun(t *testing.T) {
	n := newTale().n
	r := NewRound(1, n, taint.DefaultKey, "BMC", nil, func(e Event) { t.Errorf("told %v before the beginning", e) },
		func(time.Duration, string) {})
	r.Log(Log{Time: t0, Msg: "Machine answered", Node: "n", State: "Off"})
	r.Power(t0, false, "")
	if at, ok := r.When(OffSeen); ok {
		t.Errorf("got off_seen at %s, want none", at)
	}
}

func TestNotReadyNamesItsCause(t *testing.T) {
	for _, tt := range []struct{ reason, want string }{
		{"MachinePoweredOff", "forcefence sets"}, {"NodeStatusUnknown", "Kubernetes notices"},
	} {
		r := newTale()
		r.node(10, func(n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				Reason: tt.reason}
		})
		if len(r.notes) != 1 || !strings.Contains(r.notes[0], tt.want) {
			t.Errorf("reason %s: noted %q, want one with %q", tt.reason, r.notes, tt.want)
		}
	}
}

func TestHeldPods(t *testing.T) {
	r := newTale()
	r.Held(at(10), "db-0")
	r.Held(at(10), "web-0")
	r.Held(at(11), "web-0")
	r.Held(at(11), "stranger")
	if got := r.HeldPods(); got != 2 {
		t.Errorf("got %d held pods, want 2", got)
	}
	r.pod(12, "db-0", true, false) // held first, then ended by a write that was under way
	if got := r.HeldPods(); got != 1 {
		t.Errorf("got %d held pods, want 1", got)
	}
}

func TestWait(t *testing.T) {
	r := newTale()
	changed, happened := r.wait(Marked)
	if happened {
		t.Fatal("marked happened before it did")
	}
	r.mark(10)
	<-changed
	if _, happened := r.wait(Marked); !happened {
		t.Error("marked did not happen")
	}
}
