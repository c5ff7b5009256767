package taint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// unchanged fails if a function changed what it was given.
func unchanged(t *testing.T, before, after any) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the argument was changed (-before +after):\n%s", diff)
	}
}

func mark(value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: DefaultKey, Value: value, Effect: effect}
}

var (
	cordon      = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	unreachable = corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: noon}}
)

func TestFind(t *testing.T) {
	added := mark("f1", corev1.TaintEffectNoSchedule)
	added.TimeAdded = &metav1.Time{Time: noon}
	for _, tt := range []struct {
		name   string
		taints []corev1.Taint
		id     string
		want   Mark
		ok     bool
	}{
		{"none", nil, "f1", Mark{}, false},
		{"other taints only", []corev1.Taint{cordon, unreachable}, "", Mark{}, false},
		{"ours", []corev1.Taint{cordon, added}, "f1", Mark{"f1", corev1.TaintEffectNoSchedule, noon, false}, true},
		{"a person's", []corev1.Taint{mark("manual", corev1.TaintEffectNoSchedule)}, "f1",
			Mark{"manual", corev1.TaintEffectNoSchedule, time.Time{}, false}, true},
		{"a person's without a value", []corev1.Taint{mark("", corev1.TaintEffectNoSchedule)}, "",
			Mark{"", corev1.TaintEffectNoSchedule, time.Time{}, false}, true},
		{"the KEP's effect", []corev1.Taint{mark("true", EffectForceEviction)}, "",
			Mark{"true", EffectForceEviction, time.Time{}, false}, true},
		{"an effect that does not fit", []corev1.Taint{mark("x", corev1.TaintEffectNoExecute)}, "",
			Mark{"x", corev1.TaintEffectNoExecute, time.Time{}, false}, true},
		{"ours beside a person's",
			[]corev1.Taint{mark("manual", corev1.TaintEffectNoExecute), mark("f1", corev1.TaintEffectNoSchedule)}, "f1",
			Mark{"f1", corev1.TaintEffectNoSchedule, time.Time{}, true}, true},
		{"ours before a person's",
			[]corev1.Taint{mark("f1", corev1.TaintEffectNoSchedule), mark("manual", corev1.TaintEffectNoExecute)}, "f1",
			Mark{"f1", corev1.TaintEffectNoSchedule, time.Time{}, true}, true},
		{"two of persons: the first",
			[]corev1.Taint{mark("a", corev1.TaintEffectNoExecute), mark("b", corev1.TaintEffectNoSchedule)}, "f1",
			Mark{"a", corev1.TaintEffectNoExecute, time.Time{}, true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.taints}}
			got, ok := FindMark(n, DefaultKey, tt.id)
			if got != tt.want || ok != tt.ok {
				t.Errorf("Find = %+v, %v, want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestWithWithout(t *testing.T) {
	f1 := mark("f1", corev1.TaintEffectNoSchedule)
	f1.TimeAdded = &metav1.Time{Time: noon}
	manual := mark("manual", corev1.TaintEffectPreferNoSchedule)
	for _, tt := range []struct {
		name    string
		taints  []corev1.Taint
		with    []corev1.Taint
		without []corev1.Taint // of taints
	}{
		{"empty", nil, []corev1.Taint{f1}, nil},
		{"others stay in order", []corev1.Taint{unreachable, cordon}, []corev1.Taint{unreachable, cordon, f1},
			[]corev1.Taint{unreachable, cordon}},
		{"repeated", []corev1.Taint{cordon, f1, unreachable}, []corev1.Taint{cordon, unreachable, f1},
			[]corev1.Taint{cordon, unreachable}},
		{"ours under another effect", []corev1.Taint{mark("f1", EffectForceEviction)}, []corev1.Taint{f1},
			[]corev1.Taint{}},
		{"a person's under our effect cannot stay", []corev1.Taint{mark("x", corev1.TaintEffectNoSchedule)},
			[]corev1.Taint{f1},
			[]corev1.Taint{mark("x", corev1.TaintEffectNoSchedule)}},
		{"a person's under another effect stays", []corev1.Taint{manual, f1}, []corev1.Taint{manual, f1},
			[]corev1.Taint{manual}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.taints)
			if diff := cmp.Diff(tt.with,
				WithMark(tt.taints, DefaultKey, "f1", noon.Add(300*time.Millisecond))); diff != "" {
				t.Errorf("With (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.without, WithoutMark(tt.taints, DefaultKey, "f1")); diff != "" {
				t.Errorf("Without (-want +got):\n%s", diff)
			}
			unchanged(t, before, tt.taints)
		})
	}
}

// FuzzMark makes taint lists out of words "key=value:effect" and holds the codec against them.
func FuzzMark(f *testing.F) {
	for _, s := range []string{
		"", "k=f1:NoSchedule", "k=manual:NoExecute k=f1:NoSchedule a=b:NoSchedule",
		"k=:ForceEviction a=:NoExecute a=:NoSchedule",
		"k=f1:NoSchedule k=f1:NoExecute k=f1:ForceEviction b=2:NoSchedule",
	} {
		f.Add(s, "f1")
	}
	f.Add("k=:NoSchedule", "")
	f.Fuzz(func(t *testing.T, words, id string) {
		type slot struct {
			key    string
			effect corev1.TaintEffect
		}
		var taints []corev1.Taint
		unique := map[slot]bool{}
		for _, w := range strings.Fields(words) {
			key, rest, _ := strings.Cut(w, "=")
			value, effect, _ := strings.Cut(rest, ":")
			s := slot{key, corev1.TaintEffect(effect)}
			if !unique[s] { // as the API server holds them
				unique[s] = true
				taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: s.effect})
			}
		}
		const key = "k"
		before := slices.Clone(taints)
		with := WithMark(taints, key, id, noon)
		unchanged(t, before, taints)

		others := slices.ContainsFunc(with, func(t corev1.Taint) bool { return t.Key == key && t.Value != id })
		if m, ok := FindMark(&corev1.Node{Spec: corev1.NodeSpec{Taints: with}}, key, id); !ok ||
			m != (Mark{id, corev1.TaintEffectNoSchedule, noon, others}) {
			t.Errorf("Find after WithMark(%q) = %+v, %v", id, m, ok)
		}
		seen := map[slot]bool{}
		for _, x := range with {
			s := slot{x.Key, x.Effect}
			if seen[s] {
				t.Errorf("With left two taints %v", s)
			}
			seen[s] = true
		}
		if again := WithMark(with, key, id, noon); !cmp.Equal(with, again) {
			t.Errorf("With twice: %v, then %v", with, again)
		}

		foreign := func(ts []corev1.Taint) (out []string) {
			for _, x := range ts {
				if x.Key != key {
					out = append(out, fmt.Sprintf("%+v", x))
				}
			}
			return out
		}
		without := WithoutMark(with, key, id)
		for name, ts := range map[string][]corev1.Taint{
			"With": with, "Without": WithoutMark(taints, key, id), "Without(With)": without} {
			if diff := cmp.Diff(foreign(taints), foreign(ts)); diff != "" {
				t.Errorf("%s changed other taints (-before +after):\n%s", name, diff)
			}
		}
		for _, x := range without {
			if x.Key == key && x.Value == id {
				t.Errorf("WithoutMark(%q) left %v", id, x)
			}
		}
		for _, x := range taints { // a person's mark under another effect is not ours to change
			if x.Key == key && x.Value != id && x.Effect != corev1.TaintEffectNoSchedule &&
				!slices.Contains(without, x) {
				t.Errorf("WithoutMark(WithMark(%q)) lost a person's %v", id, x)
			}
		}
	})
}

func TestSee(t *testing.T) {
	sent, got := noon, noon.Add(time.Second)
	rec := Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", BootID: "b1", LeaseRV: "7", Since: noon, At: noon,
		By: "me"}
	node := func(change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "42",
				Labels: map[string]string{"zone": "a"}},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{cordon}},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{BootID: "b1", SystemUUID: "s1"},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(noon)},
				},
				VolumesInUse:    []corev1.UniqueVolumeName{"v1"},
				VolumesAttached: []corev1.AttachedVolume{{Name: "v1"}},
			},
		}
		for _, c := range change {
			c(n)
		}
		return n
	}
	plain := Look{
		Sent: providers.InstantOf(sent), Got: providers.InstantOf(got), Exists: true, Name: "n1", UID: "u1",
		ResourceVersion: "42", BootID: "b1", SystemUUID: "s1",
		Labels: map[string]string{"zone": "a"}, Ready: corev1.ConditionUnknown, ReadySince: noon,
		Taints: []corev1.Taint{cordon},
		InUse:  []corev1.UniqueVolumeName{"v1"}, Attached: []corev1.AttachedVolume{{Name: "v1"}},
	}
	look := func(change func(*Look)) Look { l := plain; change(&l); return l }
	for _, tt := range []struct {
		name  string
		node  *corev1.Node
		lease string
		want  Look
	}{
		{"no node", nil, "7", Look{Sent: providers.InstantOf(sent), Got: providers.InstantOf(got)}},
		{"no lease", node(), "", plain},
		{"lease", node(), "7", look(func(l *Look) { l.LeaseRV = "7" })},
		{"no Ready condition", node(func(n *corev1.Node) { n.Status.Conditions = nil }), "",
			look(func(l *Look) { l.Ready, l.ReadySince = "", time.Time{} })},
		{"mark and record", node(func(n *corev1.Node) {
			n.Annotations = map[string]string{RecordAnnotation: rec.Encode()}
			n.Spec.Taints = []corev1.Taint{mark("manual", corev1.TaintEffectNoExecute),
				mark("f1", corev1.TaintEffectNoSchedule)}
		}), "7", look(func(l *Look) {
			l.LeaseRV, l.Record, l.Mark, l.MarkedBy = "7", &rec,
				&Mark{Value: "f1", Effect: corev1.TaintEffectNoSchedule, Others: true}, ByPerson
			l.Taints = []corev1.Taint{mark("manual", corev1.TaintEffectNoExecute),
				mark("f1", corev1.TaintEffectNoSchedule)}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.node.DeepCopy()
			lease := leaseAt(tt.lease)
			if diff := cmp.Diff(tt.want,
				NewLook(tt.node, lease, DefaultKey, providers.InstantOf(sent), providers.InstantOf(got))); diff != "" {
				t.Errorf("See (-want +got):\n%s", diff)
			}
			unchanged(t, before, tt.node)
		})
	}
	t.Run("a record that does not parse", func(t *testing.T) {
		n := node(func(n *corev1.Node) {
			n.Annotations = map[string]string{RecordAnnotation: "?"}
			n.Spec.Taints = []corev1.Taint{mark("f1", corev1.TaintEffectNoSchedule)}
		})
		l := NewLook(n, nil, DefaultKey, providers.InstantOf(sent), providers.InstantOf(got))
		if l.Record != nil || l.RecordErr == nil || l.Mark == nil || l.HasOwnMark() {
			t.Errorf("See = record %v, error %v, mark %v, ours %v, want no record, an error, a mark that is not ours",
				l.Record, l.RecordErr, l.Mark, l.HasOwnMark())
		}
	})
}

func TestLook(t *testing.T) {
	rec := Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", BootID: "b1", LeaseRV: "7", By: "me"}
	base := Look{Exists: true, UID: "u1", BootID: "b1", LeaseRV: "7", Ready: corev1.ConditionUnknown}
	for _, tt := range []struct {
		name            string
		change          func(*Look)
		alive, sameLife bool
	}{
		{"nothing changed", func(*Look) {}, false, true},
		{"condition, labels, resourceVersion are no life", func(l *Look) {
			l.ResourceVersion, l.Ready, l.Labels = "99", corev1.ConditionTrue, map[string]string{"a": "b"}
		}, false, true},
		{"heartbeat", func(l *Look) { l.LeaseRV = "8" }, true, false},
		{"boot", func(l *Look) { l.BootID = "b2" }, true, false},
		{"recreated", func(l *Look) { l.UID = "u2" }, true, false},
		{"gone", func(l *Look) { *l = Look{} }, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := base
			tt.change(&l)
			if got := l.IsAliveSince(&rec); got != tt.alive {
				t.Errorf("Alive = %v, want %v", got, tt.alive)
			}
			if got := base.SameLife(l); got != tt.sameLife {
				t.Errorf("SameLife = %v, want %v", got, tt.sameLife)
			}
			if got := l.SameLife(base); got != tt.sameLife {
				t.Errorf("SameLife the other way = %v, want %v", got, tt.sameLife)
			}
		})
	}
	if (Look{}).SameLife(Look{}) {
		t.Error("two looks at no node are the same life")
	}
	for _, tt := range []struct {
		name  string
		value string
		phase Phase
		want  bool
	}{
		{"our id", "f1", PhaseArmed, true},
		{"our id, evicting", "f1", PhaseEvicting, true},
		{"our id, powering off", "f1", PhasePoweringOff, true},
		{"our id, done: a person put it back", "f1", PhaseDone, false},
		{"another id", "manual", PhaseArmed, false},
	} {
		r := rec
		r.Phase = tt.phase
		if got := (Look{Mark: &Mark{Value: tt.value}, Record: &r}).HasOwnMark(); got != tt.want {
			t.Errorf("%s: Ours = %v, want %v", tt.name, got, tt.want)
		}
	}
	if (Look{Record: &rec}).HasOwnMark() || (Look{Mark: &Mark{Value: ""}}).HasOwnMark() {
		t.Error("a record without a mark, or a mark without a record, is ours")
	}
	for status, want := range map[corev1.ConditionStatus]bool{
		"": false, corev1.ConditionTrue: true, corev1.ConditionFalse: false, corev1.ConditionUnknown: false} {
		if got := (Look{Ready: status}).IsReady(); got != want {
			t.Errorf("IsReady with %q = %v, want %v", status, got, want)
		}
	}
}
