package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
)

// nodeWrites are all writes to a Node.
var nodeWrites = map[string]func(context.Context, Writer, taint.Look) error{
	"record":  func(ctx context.Context, w Writer, l taint.Look) error { return w.WriteRecord(ctx, l, aRecord(l)) },
	"arm":     func(ctx context.Context, w Writer, l taint.Look) error { return w.SetMark(ctx, l, aRecord(l)) },
	"unmark":  func(ctx context.Context, w Writer, l taint.Look) error { return w.RemoveMark(ctx, l, aRecord(l)) },
	"release": func(ctx context.Context, w Writer, l taint.Look) error { return w.ReleaseNode(ctx, l, aRecord(l)) },
	"clear": func(ctx context.Context, w Writer, l taint.Look) error {
		return w.ClearVolumes(ctx, l, nil, []corev1.AttachedVolume{{Name: "stays"}})
	},
	"annotate": func(ctx context.Context, w Writer, l taint.Look) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: types.UID(l.UID),
			ResourceVersion: l.ResourceVersion}}
		return w.AnnotateNode(ctx, n, map[string]string{"forcefence.io/new": "text", "forcefence.io/old": ""})
	},
	"pin":         func(ctx context.Context, w Writer, l taint.Look) error { return w.PinMachine(ctx, l, "a.b") },
	"named":       func(ctx context.Context, w Writer, l taint.Look) error { return w.NameMachine(ctx, l, "a.b") },
	"expireReady": func(ctx context.Context, w Writer, l taint.Look) error { return w.ExpireReady(ctx, l) },
	"condition": func(ctx context.Context, w Writer, l taint.Look) error {
		return w.setCondition(ctx, l, corev1.NodeCondition{Type: "forcefence.io/Test", Status: corev1.ConditionTrue},
			object{})
	},
}

// podWrites are all writes to a pod.
var podWrites = map[string]func(context.Context, Writer, action.Pod) error{
	"tombstone": func(ctx context.Context, w Writer, p action.Pod) error {
		_, err := w.EndPod(ctx, p, taint.FenceMessage("f-1"))
		return err
	},
	"spare":  func(ctx context.Context, w Writer, p action.Pod) error { return w.SparePod(ctx, p, "f-1/then") },
	"nudge":  func(ctx context.Context, w Writer, p action.Pod) error { return w.NudgePod(ctx, p) },
	"delete": func(ctx context.Context, w Writer, p action.Pod) error { return w.DeletePod(ctx, p) },

	"set not ready": func(ctx context.Context, w Writer, p action.Pod) error { return w.SetPodNotReady(ctx, p) },
}

// transitionedBefore is when conditions of readyPod last changed.
var transitionedBefore = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// readyPod makes a running pod with these conditions.
func readyPod(t *testing.T, c client.Client, conditions ...corev1.PodCondition) *corev1.Pod {
	t.Helper()
	p := newPod(t, c)
	for i := range conditions {
		conditions[i].LastTransitionTime = transitionedBefore
	}
	p.Status.Phase, p.Status.Conditions = corev1.PodRunning, conditions
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// conditionsOf are the pod's conditions as "type status reason", sorted. A " new" follows where the time of the last
// transition changed.
func conditionsOf(t *testing.T, c client.Client, p *corev1.Pod) []string {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, cond := range p.Status.Conditions {
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s", cond.Type, cond.Status, cond.Reason))
		if !cond.LastTransitionTime.Equal(&transitionedBefore) {
			text += " new"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// SetPodNotReady changes Ready and nothing else of the pod. The kubelet's own words come back with its next status.
func TestSetNotReady(t *testing.T) {
	c := cluster.Admin(t, shared)
	o := readyPod(t, c, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	want := o.DeepCopy()
	if err := (late{}).writer(c).SetPodNotReady(t.Context(), SeePod(o, taint.DefaultKey, nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ContainersReady True", "Ready False NodeFenced new"},
		conditionsOf(t, c, o)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	want.Status.Conditions, want.ResourceVersion, want.ManagedFields = o.Status.Conditions, o.ResourceVersion,
		o.ManagedFields
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("the rest of the pod (-want +got):\n%s", diff)
	}
}

// A tombstone sets Ready and ContainersReady False in its own write, each only from True. Its small form leaves both.
func TestTombstoneSetsNotReady(t *testing.T) {
	c := cluster.Admin(t, shared)
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	is := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason}
	}
	for _, tc := range []struct {
		name       string
		conditions []corev1.PodCondition
		small      bool
		want       []string
	}{
		{"both True",
			[]corev1.PodCondition{scheduled, is(corev1.PodReady, "True", ""), is(corev1.ContainersReady, "True", "")},
			false,
			[]string{"ContainersReady False PodFailed new", "DisruptionTarget True NodeFenced new", "PodScheduled True",
				"Ready False PodFailed new"}},
		{"Ready False already",
			[]corev1.PodCondition{is(corev1.PodReady, "False", "NodeFenced"), is(corev1.ContainersReady, "True", "")},
			false,
			[]string{"ContainersReady False PodFailed new", "DisruptionTarget True NodeFenced new",
				"Ready False NodeFenced"}},
		{"only the containers",
			[]corev1.PodCondition{is(corev1.PodReady, "Unknown", "x"), is(corev1.ContainersReady, "False", "y")}, false,
			[]string{"ContainersReady False y", "DisruptionTarget True NodeFenced new", "Ready Unknown x"}},
		{"neither is there", []corev1.PodCondition{scheduled}, false,
			[]string{"DisruptionTarget True NodeFenced new", "PodScheduled True"}},
		{"small", []corev1.PodCondition{is(corev1.PodReady, "True", ""), is(corev1.ContainersReady, "True", "")}, true,
			[]string{"ContainersReady True", "Ready True"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := readyPod(t, c, tc.conditions...)
			p := SeePod(o, taint.DefaultKey, nil)
			p.Small = tc.small
			if _, err := (late{}).writer(c).EndPod(t.Context(), p, taint.FenceMessage("f-1")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, conditionsOf(t, c, o)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if !taint.IsTombstone(o) {
				t.Errorf("got status %+v, want a tombstone", o.Status)
			}
		})
	}
}

func aRecord(l taint.Look) taint.Record {
	return taint.Record{ID: "f-1", NodeUID: l.UID, By: "test", Since: time.Now()}.EnterPhase(taint.PhaseArmed, "",
		time.Now())
}

// A fence that ends takes its out-of-service taint along, in the same write, whichever write ends it. Others' taints
// stay.
func TestEndOfFenceTakesOutOfServiceOff(t *testing.T) {
	theirs := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
		Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		phase taint.Phase
		write func(Writer, context.Context, taint.Look, taint.Record) error
		want  []corev1.Taint
	}{
		"a record that is done": {taint.PhaseDone, Writer.WriteRecord, []corev1.Taint{theirs}},
		"a record that goes on": {taint.PhaseEvicting, Writer.WriteRecord,
			[]corev1.Taint{theirs, taint.OutOfService(transitionedBefore.Time)}},
		"the end of the mark": {taint.PhaseDone, Writer.RemoveMark, []corev1.Taint{theirs}},
		"our taint is taken back": {"", func(w Writer, ctx context.Context, l taint.Look, _ taint.Record) error {
			return w.SetOutOfService(ctx, l, false)
		}, []corev1.Taint{theirs}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
			node.Spec.Taints = []corev1.Taint{theirs, taint.OutOfService(transitionedBefore.Time)}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(node).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			l := taint.Look{Name: "n1", UID: "u1", ResourceVersion: node.ResourceVersion, Taints: node.Spec.Taints}
			rec := taint.Record{ID: "f-1", NodeUID: "u1", By: "test", Phase: tc.phase}
			if err := tc.write((late{}).writer(c), t.Context(), l, rec); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, node.Spec.Taints); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

// refusals are the ways in which a write comes too late, or from the wrong process. Each must leave the object as it is
// (invariant 5).
var refusals = []struct {
	name    string
	change  bool // another client writes between the look and the write
	anew    bool // the object was deleted and created again
	uid     bool // the resourceVersion is the same, the UID is not: a cluster that was restored from a backup
	noRV    bool // the look has no resourceVersion
	stale   bool // this process is no leader any more
	isAgain bool // the caller looks again
	either  bool // or reports it
}{
	{name: "changed since", change: true, isAgain: true},
	{name: "another object", anew: true, isAgain: true},
	{name: "another UID", uid: true, either: true},
	{name: "no resourceVersion", noRV: true},
	{name: "no leader any more", stale: true},
}

var errStale = errors.New("not leading")

func (r late) writer(c client.Client) Writer {
	return Writer{Client: c, Key: taint.DefaultKey, Now: time.Now, Leading: func() error {
		if r.stale {
			return errStale
		}
		return nil
	}}
}

type late struct{ stale bool }

func newNode(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
	n.Spec.Taints = []corev1.Taint{{Key: "example.net/theirs", Effect: corev1.TaintEffectNoSchedule}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
	}
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"goes", "stays"}
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "goes"}, {Name: "stays"}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), n) })
	return n
}

func newPod(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "kube-system"},
		Spec: corev1.PodSpec{
			NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "none"}},
			AutomountServiceAccountToken: &no,
			ServiceAccountName:           "writer-test",
		},
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "writer-test", Namespace: "kube-system"}}
	if err := c.Create(t.Context(), sa); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// same fails unless the object stands at the server as it was.
func same(t *testing.T, c client.Client, was client.Object) {
	t.Helper()
	is := was.DeepCopyObject().(client.Object)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(was), is); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the write got through (-was +is):\n%s", diff)
	}
}

// touch is another client's write.
func touch(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// again deletes the object and makes another of its name.
func again(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	o.SetResourceVersion("")
	o.SetUID("")
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestNodeWritesAreRefused(t *testing.T) {
	c := cluster.Admin(t, shared)
	for name, write := range nodeWrites {
		for _, r := range refusals {
			t.Run(name+"/"+r.name, func(t *testing.T) {
				n := newNode(t, c)
				_, l, err := ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
				if err != nil {
					t.Fatal(err)
				}
				if r.change {
					touch(t, c, n)
				}
				if r.anew {
					again(t, c, n)
				}
				if r.uid {
					l.UID = "00000000-0000-4000-8000-000000000000"
				}
				if r.noRV {
					l.ResourceVersion = ""
				}
				err = write(t.Context(), late{r.stale}.writer(c), l)
				if err == nil || !r.either && errors.Is(err, ErrAgain) != r.isAgain ||
					r.stale && !errors.Is(err, errStale) {
					t.Errorf("got %v, want a refusal, to be looked at again: %v", err, r.isAgain)
				}
				same(t, c, n)
			})
		}
	}
}

func TestPodWritesAreRefused(t *testing.T) {
	c := cluster.Admin(t, shared)
	for name, write := range podWrites {
		for _, r := range refusals {
			t.Run(name+"/"+r.name, func(t *testing.T) {
				o := newPod(t, c)
				p := SeePod(o, taint.DefaultKey, nil)
				if r.change {
					touch(t, c, o)
				}
				if r.anew {
					again(t, c, o)
				}
				if r.uid {
					p.UID = "00000000-0000-4000-8000-000000000000"
				}
				if r.noRV {
					p.ResourceVersion = ""
				}
				err := write(t.Context(), late{r.stale}.writer(c), p)
				if err == nil || !r.either && errors.Is(err, ErrAgain) != r.isAgain ||
					r.stale && !errors.Is(err, errStale) {
					t.Errorf("got %v, want a refusal, to be looked at again: %v", err, r.isAgain)
				}
				same(t, c, o)
			})
		}
	}
}

func TestAttachmentDeletionIsRefused(t *testing.T) {
	c := cluster.Admin(t, shared)
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			pv := "pv"
			o := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{GenerateName: "va-"},
				Spec: storagev1.VolumeAttachmentSpec{
					Attacher: "csi.example.net", NodeName: "nowhere",
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
				}}
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
			a := action.Attachment{Name: o.Name, UID: string(o.UID), ResourceVersion: o.ResourceVersion}
			if r.change {
				touch(t, c, o)
			}
			if r.anew {
				again(t, c, o)
			}
			if r.uid {
				a.UID = "00000000-0000-4000-8000-000000000000"
			}
			if r.noRV {
				a.ResourceVersion = ""
			}
			err := late{r.stale}.writer(c).DeleteAttachment(t.Context(), a)
			if err == nil || !r.either && errors.Is(err, ErrAgain) != r.isAgain ||
				r.stale && !errors.Is(err, errStale) {
				t.Errorf("got %v, want a refusal, to be looked at again: %v", err, r.isAgain)
			}
			same(t, c, o)
			a.UID, a.ResourceVersion = string(o.UID), o.ResourceVersion
			if err := (late{}).writer(c).DeleteAttachment(t.Context(), a); err != nil {
				t.Errorf("unchanged object: got %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("after its deletion: got %v, want it gone", err)
			}
		})
	}
}

// Only what the writer is there for changes: no other taint, label, annotation, condition or list entry (invariant 5).
func TestNodeWritesTouchNothingElse(t *testing.T) {
	c := cluster.Admin(t, shared)
	w := late{}.writer(c)
	for name, want := range map[string]func(l taint.Look, n *corev1.Node){
		"record": func(l taint.Look, n *corev1.Node) { n.Annotations = map[string]string{taint.RecordAnnotation: "R"} },
		"arm": func(l taint.Look, n *corev1.Node) {
			n.Annotations = map[string]string{taint.RecordAnnotation: "R"}
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: taint.DefaultKey, Value: "f-1", Effect: corev1.TaintEffectNoSchedule})
		},
		"unmark": func(l taint.Look, n *corev1.Node) { n.Annotations = map[string]string{taint.RecordAnnotation: "R"} },
		"release": func(l taint.Look, n *corev1.Node) {
			n.Annotations = map[string]string{taint.RecordAnnotation: "R"}
		},
		"clear": func(l taint.Look, n *corev1.Node) {
			n.Status.VolumesInUse, n.Status.VolumesAttached = nil, []corev1.AttachedVolume{{Name: "stays"}}
		},
		"pin":   func(l taint.Look, n *corev1.Node) { n.Labels = map[string]string{taint.PinLabel: "a.b"} },
		"named": func(l taint.Look, n *corev1.Node) { n.Labels = map[string]string{taint.NamedLabel: "a.b"} },
		"annotate": func(l taint.Look, n *corev1.Node) {
			n.Annotations = map[string]string{"forcefence.io/new": "text", "example.com/other": "text"}
		},
		"expireReady": func(l taint.Look, n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, "MachinePoweredOff"
		},
		"condition": func(l taint.Look, n *corev1.Node) {
			added := corev1.NodeCondition{Type: "forcefence.io/Test", Status: corev1.ConditionTrue}
			// strategic merges put new ones first
			n.Status.Conditions = append([]corev1.NodeCondition{added}, n.Status.Conditions...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c)
			_, l, err := ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			if name == "annotate" { // which removes the empty one, and keeps another's
				n.Annotations = map[string]string{"forcefence.io/old": "text", "example.com/other": "text"}
				if err := c.Update(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				if _, l, err = ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now); err != nil {
					t.Fatal(err)
				}
			}
			if name == "unmark" || name == "release" { // our taint out-of-service goes, too, and another's stays
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "kim", Effect: corev1.TaintEffectNoSchedule})
				theirs := corev1.Taint{Key: taint.DefaultKey, Value: "kim", Effect: corev1.TaintEffectPreferNoSchedule}
				if name == "unmark" { // a person's mark stays
					n.Spec.Taints = append(n.Spec.Taints, theirs)
				}
				marked := n.DeepCopy()
				marked.Spec.Taints = append(taint.WithMark(marked.Spec.Taints, taint.DefaultKey, "f-1", time.Now()),
					taint.OutOfService(time.Now()))
				if name == "release" {
					marked.Spec.Taints = append(marked.Spec.Taints, theirs)
				}
				if err := c.Update(t.Context(), marked); err != nil {
					t.Fatal(err)
				}
				if _, l, err = ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now); err != nil {
					t.Fatal(err)
				}
			}
			want(l, n)
			if err := nodeWrites[name](t.Context(), w, l); err != nil {
				t.Fatal(err)
			}
			var is corev1.Node
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(n), &is); err != nil {
				t.Fatal(err)
			}
			if r := is.Annotations[taint.RecordAnnotation]; strings.Contains(r, `"id":"f-1"`) {
				is.Annotations[taint.RecordAnnotation] = "R"
			}
			for i := range is.Spec.Taints {
				is.Spec.Taints[i].TimeAdded = nil
			}
			for i := range is.Status.Conditions {
				cond := &is.Status.Conditions[i]
				cond.LastHeartbeatTime, cond.LastTransitionTime, cond.Message = metav1.Time{}, metav1.Time{}, ""
			}
			is.ResourceVersion, is.ManagedFields = n.ResourceVersion, n.ManagedFields
			if diff := cmp.Diff(n, &is); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
