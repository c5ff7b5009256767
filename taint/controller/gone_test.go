package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// newDetachWorld is a world that has run for a while, with the right to detach a deleted Node's volumes. Kubernetes
// does not.
func newDetachWorld(t *testing.T) *world {
	w := newWorld(t)
	w.onDetach = evict.ForceDetach
	w.run(30 * time.Second)
	w.detaches = false
	return w
}

// deleteNode deletes a Node as a cloud does, and tells the informer.
func (w *world) deleteNode(name string) {
	w.t.Helper()
	n := w.node(name)
	must(w.t, w.api.Delete(context.Background(), n))
	slimNode(n)
	w.r.onNodeDeleted(event.TypedDeleteEvent[*corev1.Node]{Object: n})
}

// collect deletes a node's pods by force, as Kubernetes' pod garbage collector does.
func (w *world) collect(node string) {
	w.t.Helper()
	for _, name := range w.pods(node) {
		must(w.t, w.api.Delete(context.Background(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: worldNS, Name: name}}))
	}
}

// A Node is deleted while its machine is off: an Event says which volumes are attached. Once no pod of its name uses
// them, their attachments are deleted, and those of other nodes are not.
func TestGoneNodeIsDetached(t *testing.T) {
	w := newDetachWorld(t)
	before, others := w.attached("n1"), w.attached("n4")
	w.cut("n1")
	w.deleteNode("n1")
	w.run(40 * time.Second)
	if !w.told.has("DeletedNodeAttached n1") || !slices.Equal(w.attached("n1"), before) {
		t.Fatalf("told %q, attached %v; want an Event, and %v while pods use them", w.told.said, w.attached("n1"),
			before)
	}
	w.collect("n1")
	if !w.until(15*time.Second, func() bool { return len(w.attached("n1")) == 0 }) {
		t.Fatalf("got %v attached, want none; told %q", w.attached("n1"), w.told.texts)
	}
	w.run(5 * time.Second)
	if !w.told.has("DeletedNodeDetached n1") || !slices.Equal(w.attached("n4"), others) || len(w.r.gone) > 0 {
		t.Errorf("told %q, attached to another node %v, want %v; remembered %v", w.told.said, w.attached("n4"), others,
			w.r.gone)
	}
}

// What alone keeps a deleted Node's attachments.
func TestGoneNodeIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it is not switched on": func(w *world) { w.onDetach = evict.Alert },
		"its machine is on":     func(w *world) { w.machines["n1"].on = true },
		"its device is silent":  func(w *world) { w.machines["n1"].deaf = true },
		"mode shadow":           func(w *world) { w.mode = fence.Shadow },
		"it is excluded":        func(w *world) { w.excluded = "n1" },
		"all is paused":         func(w *world) { w.create(w.elsewhere()) },
		"its device lied in its last fence": func(w *world) {
			n := w.r.gone["n1"].node
			device := worldDevices["n1"]
			rec := taint.Record{ID: "f-1", NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID,
				Device: device[0] + "/" + device[1], By: "test", Since: w.Now()}.
				EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, w.Now())
			n.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
		},
		"its record cannot be read": func(w *world) {
			w.r.gone["n1"].node.Annotations = map[string]string{taint.RecordAnnotation: "{"}
		},
		"a pod whose claim may not be read": func(w *world) {
			w.pod("n1", "late", nil, nil, func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "secret"}}})
			})
			w.r.Live = refusing{w.r.Live, func(k client.ObjectKey) error {
				if k.Name == "secret" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "claims"}, k.Name, nil)
				}
				return nil
			}}
		},
		"another process leads":  func(w *world) { w.lead() },
		"its attachments' claim": func(w *world) { w.pod("n1", "late", []string{"data-db-n1"}, []string{}, nil) },
		"the name is taken again": func(w *world) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID("another")}}
			setReady(corev1.ConditionUnknown)(n)
			w.create(n)
		},
		"another node is the same machine": func(w *world) {
			uuid := w.r.gone["n1"].node.Status.NodeInfo.SystemUUID
			w.change("n2", func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid })
		},
		"attachments of an earlier Node": func(w *world) {
			w.r.gone["n1"].node.CreationTimestamp = metav1.NewTime(w.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDetachWorld(t)
			w.cut("n1")
			w.deleteNode("n1")
			w.collect("n1")
			before := w.attached("n1")
			change(w)
			w.run(time.Minute)
			got := w.attached("n1")
			if name == "its attachments' claim" { // of this volume alone
				var claim corev1.PersistentVolumeClaim
				w.get(&claim, worldNS, "data-db-n1")
				before = []string{claim.Spec.VolumeName}
			}
			if !slices.Equal(got, before) {
				t.Errorf("got %v, want %v", got, before)
			}
		})
	}
}

// A deleted Node counts in the metric while volumes are attached to it. The Event comes again before API servers forget
// it, and not at each look.
func TestGoneNodeStaysReported(t *testing.T) {
	w := newWorld(t)
	w.run(30 * time.Second)
	w.detaches = false
	w.cut("n1")
	w.deleteNode("n1")
	countEvents := func() (n int) {
		for _, said := range w.told.said {
			if said == "DeletedNodeAttached n1" {
				n++
			}
		}
		return n
	}
	expect := func(nodes float64, events int) {
		t.Helper()
		sent := countEvents()
		if got := w.heard.count(t, "forcefence_deleted_nodes_attached", ""); got != nodes || sent != events {
			t.Errorf("got %v nodes and %d Events, want %v and %d; told %q", got, sent, nodes, events, w.told.texts)
		}
	}
	expect(0, 0)
	w.run(15 * time.Minute)
	first := countEvents()
	expect(1, max(first, 1))
	w.run(14 * time.Minute)
	expect(1, first)
	w.run(20 * time.Minute)
	expect(1, first+1)
	// The Node is deleted a second time: what was reported is not forgotten.
	w.r.rememberGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "another"}})
	w.r.forgetGone("n1", "")
	if !w.told.has("DeletedNodeDetached n1") {
		t.Errorf("told %q, want that the report is over", w.told.said)
	}
	expect(0, first+1)
}

// Attachments may name any node. What is remembered of nodes that never were is bounded.
func TestGoneNodesAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range maxGoneNodes + 1 {
		w.r.rememberGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ghost-%d", i)}})
	}
	if len(w.r.gone) != maxGoneNodes {
		t.Errorf("got %d, want %d", len(w.r.gone), maxGoneNodes)
	}
}

// takesName is an API server in which a Node takes the name right before a deletion.
type takesName struct {
	client.Reader
	left int // live reads of the Node before it exists
}

func (r *takesName) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if n, ok := o.(*corev1.Node); ok && k.Name == "n1" {
		if r.left--; r.left < 0 {
			n.Name = "n1"
			return nil
		}
	}
	return r.Reader.Get(ctx, k, o, opts...)
}

// A live look precedes each deletion: a Node that registers in between ends them.
func TestGoneNodeComesBackBetweenDeletions(t *testing.T) {
	w := newDetachWorld(t)
	w.cut("n1")
	w.deleteNode("n1")
	w.collect("n1")
	before := w.attached("n1")
	w.r.gone["n1"].since = w.r.gone["n1"].since.Add(-time.Minute)
	w.r.WithFleet(func(f *fleet.Fleet) { f.RemoveNode("n1", w.r.Now.Instant()) })
	w.r.Live = &takesName{Reader: w.r.Live, left: 3} // two looks, and the first deletion
	if _, err := w.r.followGone(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if got := w.attached("n1"); len(got) != len(before)-1 {
		t.Errorf("got %v of %v attached, want one deletion", got, before)
	}
}

// The deletion of a deleted Node's attachment is sent while the proof holds, or not at all: it does not wait for a
// connection.
func TestGoneNodeIsDetachedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetachWorld(t)
		w.cut("n1")
		w.deleteNode("n1")
		w.collect("n1")
		before := w.attached("n1")
		w.r.gone["n1"].since = w.r.gone["n1"].since.Add(-time.Minute)
		w.r.WithFleet(func(f *fleet.Fleet) { f.RemoveNode("n1", w.r.Now.Instant()) })
		var dialed *atomic.Int32
		w.r.writer.Client, dialed = neverConnected(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := w.r.followGone(ctx, "n1")
		if took := time.Since(begun); took > proof.TTL || dialed.Load() == 0 || len(w.attached("n1")) != len(before) {
			t.Errorf("over after %s, want %s at most; %d connections, %v", took, proof.TTL, dialed.Load(), err)
		}
	})
}

// An attachment that was never attached holds no volume. The report on a deleted Node ends although it stays.
func TestGoneNodeReportEnds(t *testing.T) {
	for name, end := range map[string]func(*world){
		"only what was never attached is left": func(w *world) {
			var list storagev1.VolumeAttachmentList
			must(w.t, w.api.List(context.Background(), &list))
			for i := range list.Items {
				if va := &list.Items[i]; va.Spec.NodeName == "n1" {
					va.Finalizers = nil
					must(w.t, w.api.Update(context.Background(), va))
					va.Status.Attached = false
					must(w.t, w.api.Status().Update(context.Background(), va))
				}
			}
		},
		"a Node has the name again": func(w *world) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID("another")}}
			setReady(corev1.ConditionTrue)(n)
			w.create(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run(30 * time.Second)
			w.detaches = false
			w.cut("n1")
			w.deleteNode("n1")
			w.run(20 * time.Second)
			if !w.told.has("DeletedNodeAttached n1") || w.told.has("DeletedNodeDetached n1") {
				t.Fatalf("told %q, want that volumes are attached", w.told.said)
			}
			end(w)
			w.run(20 * time.Second)
			if !w.told.has("DeletedNodeDetached n1") {
				t.Errorf("told %q, want that the report is over", w.told.said)
			}
		})
	}
}
