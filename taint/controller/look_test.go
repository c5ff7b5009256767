package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
)

// unreadable is an API server that answers some GETs with an error.
type unreadable struct {
	client.Reader
	err func(o client.Object, name string) error
}

func (r unreadable) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.err(o, k.Name); err != nil {
		return err
	}
	return r.Reader.Get(ctx, k, o, opts...)
}

// readErrors are the ways in which a GET fails; only the first says that there is nothing.
var readErrors = map[string]error{
	"not found":   apierrors.NewNotFound(schema.GroupResource{}, "n1"),
	"forbidden":   apierrors.NewForbidden(schema.GroupResource{}, "n1", errors.New("RBAC")),
	"time-out":    apierrors.NewTimeoutError("etcd", 1),
	"too many":    apierrors.NewTooManyRequestsError("slow down"),
	"unavailable": apierrors.NewServiceUnavailable("starting"),
	"no API":      errors.New("connection refused"),
}

// A Lease, Node, claim or volume that cannot be read is not one that is not there: a node without a Lease gives no sign of life.
func TestReadsThatFail(t *testing.T) {
	w := newWorld(t)
	for what, is := range map[string]func(client.Object) bool{
		"node":   func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok },
		"lease":  func(o client.Object) bool { _, ok := o.(*coordinationv1.Lease); return ok },
		"claim":  func(o client.Object) bool { _, ok := o.(*corev1.PersistentVolumeClaim); return ok },
		"volume": func(o client.Object) bool { _, ok := o.(*corev1.PersistentVolume); return ok },
	} {
		for name, fail := range readErrors {
			t.Run(what+"/"+name, func(t *testing.T) {
				live := unreadable{w.api, func(o client.Object, _ string) error {
					if is(o) {
						return fail
					}
					return nil
				}}
				none := apierrors.IsNotFound(fail)
				_, l, err := Look(t.Context(), live, "n1", taint.DefaultKey, w.Now)
				failed := (what == "node" || what == "lease") && !none
				switch {
				case (err != nil) != failed:
					t.Errorf("look: got error %v, want one: %v", err, failed)
				case !failed && (l.Exists != (what != "node") || l.Exists && (l.LeaseRV == "") != (what == "lease")):
					t.Errorf("look: got exists %v, lease %q", l.Exists, l.LeaseRV)
				}
				tn := &turn{Reconciler: New(Options{Live: live, Now: w.Now}), policy: &Policy{}, look: taint.Look{Name: "n1"}}
				pods, objects, err := tn.pods(t.Context())
				must(t, err)
				err = tn.resolve(t.Context(), pods, objects, true)
				if failed = (what == "claim" || what == "volume") && !none; (err != nil) != failed {
					t.Errorf("volumes: got error %v, want one: %v", err, failed)
				}
			})
		}
	}
}

// A look is as old as its question, and was not there before both answers were: what happens in between may be missing from it.
func TestLookTakesItsTime(t *testing.T) {
	w := newWorld(t)
	begun := w.Now()
	slow := unreadable{w.api, func(client.Object, string) error { w.pass(time.Second); return nil }}
	_, l, err := Look(t.Context(), slow, "n1", taint.DefaultKey, w.Now)
	must(t, err)
	if l.Sent.Sub(begun) > time.Second || l.Got.Sub(begun) < 2*time.Second {
		t.Errorf("two reads of a second each: got sent after %s, answered after %s", l.Sent.Sub(begun), l.Got.Sub(begun))
	}
}

// A pod's volumes are those of its claims, its generic ephemeral ones included, by the names that attachments and the node's lists have
// for them; and they are looked up where they matter only.
func TestResolve(t *testing.T) {
	w := newWorld(t)
	tn := &turn{Reconciler: w.r, policy: &Policy{}, look: taint.Look{Name: "n1"}}
	for _, all := range []bool{false, true} {
		pods, objects, err := tn.pods(t.Context())
		must(t, err)
		must(t, tn.resolve(t.Context(), pods, objects, all))
		if len(pods) != 6 {
			t.Fatalf("pods of n1: got %d, want 6", len(pods))
		}
		for _, p := range pods {
			var got, want []string
			for _, v := range p.Volumes {
				got = append(got, v.PV, string(v.Unique))
			}
			if p.Name != "done-n1" && (all || p.Name == "agent-n1" || p.Name == "stays-n1") {
				for _, pv := range w.uses[p.Name] {
					want = append(want, pv, w.unique[pv])
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, all %v: got %q, want %q", p.Name, all, got, want)
			}
		}
	}
}

// blind is a server that passes over the options of a list: what it returns is of all nodes, as a live list of attachments is.
type blind struct{ client.Reader }

func (b blind) List(ctx context.Context, l client.ObjectList, _ ...client.ListOption) error {
	return b.Reader.List(ctx, l)
}

// Other nodes' volumes are not this node's business.
func TestAttachmentsOfOneNode(t *testing.T) {
	w := newWorld(t)
	for node, want := range map[string]int{"n1": 5, "n4": 5 + 5 + 1 + 1, "n5": 2, "nowhere": 0} {
		got, err := attachments(t.Context(), blind{w.api}, node)
		must(t, err)
		var pvs []string
		for _, a := range got {
			if a.PV != "" {
				pvs = append(pvs, a.PV)
			}
		}
		slices.Sort(pvs)
		if have := w.attached(node); len(got) != want || !slices.Equal(pvs, have) {
			t.Errorf("%s: got %d attachments of %v, want %d of %v", node, len(got), pvs, want, have)
		}
	}
}

// What exempt pods and other nodes use is no work for a fence.
func TestWorkIsOfThisNodesPods(t *testing.T) {
	pv, other := "pv-1", "pv-2"
	attached := func(node string, pv *string) storagev1.VolumeAttachment {
		return storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: pv}}}
	}
	for _, tc := range []struct {
		name        string
		attachments []storagev1.VolumeAttachment
		change      func(*corev1.Pod)
		want        bool
	}{
		{"the DaemonSet's volume", []storagev1.VolumeAttachment{attached("n1", &pv)}, nil, false},
		{"another volume beside it", []storagev1.VolumeAttachment{attached("n1", &pv), attached("n1", &other)}, nil, true},
		{"another volume elsewhere", []storagev1.VolumeAttachment{attached("n1", &pv), attached("n2", &other)}, nil, false},
		{"an inline volume", []storagev1.VolumeAttachment{attached("n1", nil)}, nil, true},
		{"a finished DaemonSet pod's volume", []storagev1.VolumeAttachment{attached("n1", &pv)}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		{"an ordinary pod", nil, func(p *corev1.Pod) { p.OwnerReferences = nil }, true},
		{"a finished ordinary pod", nil, func(p *corev1.Pod) { p.OwnerReferences, p.Status.Phase = nil, corev1.PodSucceeded }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseArmed)
			yes := true
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}}}}
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}
			if tc.change != nil {
				tc.change(&p)
			}
			tn.Live, tn.Cache = server{pods: []corev1.Pod{p}, bound: pv}, server{attachments: tc.attachments}
			if got, err := tn.work(t.Context()); err != nil || (got != fence.NoneToDo) != tc.want {
				t.Errorf("got %v, error %v, want %v", got, err, tc.want)
			}
		})
	}
}

// A pod is seen as it is.
func TestSeePod(t *testing.T) {
	prio, grace, now := int32(7), int64(30), metav1.Now()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "3", Labels: map[string]string{"tier": "storage"}, Finalizers: []string{"f"},
			DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace, Annotations: map[string]string{taint.SparedAnnotation: "token"},
		},
		Spec:   corev1.PodSpec{Priority: &prio, Tolerations: []corev1.Toleration{{Key: "k"}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: taint.TombstoneReason},
	}
	for selector, first := range map[string]bool{"tier=storage": true, "tier=web": false, "": false} {
		s, err := metav1.ParseToLabelSelector(selector)
		must(t, err)
		sel, err := metav1.LabelSelectorAsSelector(s)
		must(t, err)
		got := SeePod(p, taint.DefaultKey, sel)
		want := evict.Pod{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "3", Terminal: true, Tombstone: true, Spared: "token", First: first, Priority: 7,
			Deleting: true, Grace: 30, Finalizers: []string{"f"}, Tolerations: p.Spec.Tolerations,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("first %q (-want +got):\n%s", selector, diff)
		}
	}
}
