package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// What NodeHealthCheck writes on a request, and reads of it.
const (
	nodeAnnotation     = "remediation.medik8s.io/node-name"
	templateAnnotation = "remediation.medik8s.io/template-name"
	timedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
	delayAnnotation    = "remediation.medik8s.io/healthy-delay"

	leases = "medik8s-leases" // namespace of the nodes' Leases
)

var nodeHealthChecks = schema.GroupVersionResource{
	Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"}

// minTimeout is the shortest that a NodeHealthCheck takes for a template.
const minTimeout = time.Minute

// TestNodeHealthCheck holds the contract with NodeHealthCheck: the test is the remediator.
func TestNodeHealthCheck(t *testing.T) {
	w := newWorld(t, NodeHealthCheck)
	for name, story := range map[string]func(*testing.T, *world){
		"Recovered": nhcRecovered, "Escalated": nhcEscalated, "TimedOut": nhcTimedOut, "Deleted": nhcDeleted,
		"Paused": nhcPaused, "Storm": nhcStorm, "Leased": nhcLeased, "Delayed": nhcDelayed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, w)
		})
	}
}

// watch makes a NodeHealthCheck of the story's nodes that escalates over these kinds, with more fields of its spec.
func (w *world) watch(more string, kinds ...schema.GroupVersionKind) {
	w.t.Helper()
	var steps []string
	for i, kind := range kinds {
		steps = append(steps, fmt.Sprintf("{order: %d, timeout: %s, remediationTemplate: "+
			"{apiVersion: %s, kind: %s, namespace: %s, name: mend}}",
			i, minTimeout, kind.GroupVersion(), template(kind).Kind, w.ns))
	}
	w.create(fmt.Sprintf(`{apiVersion: remediation.medik8s.io/v1alpha1, kind: NodeHealthCheck, metadata: {name: %[1]s},
  spec: {selector: {matchLabels: {story: %[1]s}}, minHealthy: 0, %[2]s
    unhealthyConditions: [{type: Ready, status: Unknown, duration: 1s}, {type: Ready, status: "False", duration: 1s}],
    escalatingRemediations: [%[3]s]}}`, w.name, more, strings.Join(steps, ", ")))
	w.untilStatus("phase", "Enabled")
}

// status returns a field of the NodeHealthCheck's status.
func (w *world) status(field string) any {
	w.t.Helper()
	status, _, err := unstructured.NestedMap(w.find(nodeHealthChecks, "", w.name).Object, "status")
	kit.Must(w.t, err)
	return status[field]
}

func (w *world) untilStatus(field string, want any) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s is %v", field, want), func() bool { return w.status(field) == want })
}

// die cuts a node's power, and waits until Kubernetes has noticed.
func (w *world) die(nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		n.PowerOff()
	}
	w.untilUnknown(nodes...)
}

// untilRequest waits for a request, and returns it.
func (w *world) untilRequest(kind schema.GroupVersionKind, name string) (o *unstructured.Unstructured) {
	w.t.Helper()
	w.until("request "+kind.Kind+" "+name, func() bool {
		o = w.request(kind, name)
		return o != nil
	})
	return o
}

// lease returns the node's Lease of the remediation, or nil.
func (w *world) lease(node string) *coordinationv1.Lease {
	w.t.Helper()
	lease, err := w.Client().CoordinationV1().Leases(leases).Get(w.ctx, "node-"+node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	kit.Must(w.t, err)
	return lease
}

func nhcRecovered(t *testing.T, w *world) {
	w, nodes := w.story(t, 3, nil)
	w.watch("", request)
	dead := nodes[1]
	name := dead.Name()
	w.die(dead)
	o := w.untilRequest(request, name)

	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"annotations", o.GetAnnotations(), map[string]string{nodeAnnotation: name, templateAnnotation: "mend"}},
		{"labels", o.GetLabels(), map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"}},
		{"spec", o.Object["spec"], map[string]any{}},
		{"finalizers", o.GetFinalizers(), []string(nil)},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s of the request (-want +got):\n%s", tt.what, diff)
		}
	}
	owner := ownerOf(o, "NodeHealthCheck")
	if owner.Name != w.name || owner.Controller == nil || *owner.Controller {
		t.Errorf("owner: got %+v, want NodeHealthCheck %s, which does not control the request", owner, w.name)
	}
	lease := w.lease(name)
	if lease == nil {
		t.Fatal("the node has no Lease, want one before there is a request")
	}
	if got, want := *lease.Spec.HolderIdentity, "NodeHealthCheck-"+w.name; got != want {
		t.Errorf("holder of the Lease: got %s, want %s", got, want)
	}
	if got, want := *lease.Spec.LeaseDurationSeconds, int32((minTimeout + time.Minute).Seconds()); got != want {
		t.Errorf("duration of the Lease: got %d s, want %d s: the timeout and a minute", got, want)
	}
	if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].Kind != "Node" {
		t.Errorf("owners of the Lease: got %+v, want the Node", lease.OwnerReferences)
	}

	// As long as the remediator holds the request, the node counts as unhealthy.
	w.hold(request, name)
	dead.PowerOn("")
	kit.Must(t, dead.WaitReady(w.ctx))
	w.until("the request of the node that is Ready is being deleted", func() bool {
		return w.request(request, name).GetDeletionTimestamp() != nil
	})
	w.untilStatus("healthyNodes", int64(2))
	w.during(3*time.Second, "a held request counts as an unhealthy node", func() bool {
		return w.status("healthyNodes") == int64(2) && w.status("phase") == "Remediating" && w.lease(name) != nil
	})
	w.release(request, name)
	w.untilStatus("healthyNodes", int64(3))
	w.until("the Lease is gone", func() bool { return w.lease(name) == nil })
	w.untilStatus("phase", "Enabled")
}

// A remediator that gives up lets the next one begin at once, and both requests go with the node's return.
func nhcEscalated(t *testing.T, w *world) {
	w, nodes := w.story(t, 2, nil)
	w.watch("", request, other)
	name := nodes[0].Name()
	w.die(nodes[0])
	w.untilRequest(request, name)
	w.hold(request, name)
	if got := w.requestNames(other); len(got) > 0 {
		t.Errorf("requests of the second kind: got %q, want none yet", got)
	}
	w.conclude(request, name, metav1.ConditionFalse)
	w.untilRequest(other, name)
	at := w.request(request, name).GetAnnotations()[timedOutAnnotation]
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		t.Errorf("%s: got %q, want a time: %v", timedOutAnnotation, at, err)
	}
	if w.request(request, name).GetDeletionTimestamp() != nil {
		t.Error("the first request is being deleted, want it to stay while the node is unhealthy")
	}
	w.hold(other, name)
	nodes[0].PowerOn("")
	kit.Must(t, nodes[0].WaitReady(w.ctx))
	w.until("both requests are being deleted", func() bool {
		return w.request(request, name).GetDeletionTimestamp() != nil &&
			w.request(other, name).GetDeletionTimestamp() != nil
	})
	w.release(request, name)
	w.release(other, name)
	w.untilStatus("healthyNodes", int64(2))
}

// Success does not end a remediation: only a healthy node does.
func nhcTimedOut(t *testing.T, w *world) {
	w, nodes := w.story(t, 2, nil)
	w.watch("", request, other)
	name := nodes[0].Name()
	w.die(nodes[0])
	first := w.untilRequest(request, name)
	w.conclude(request, name, metav1.ConditionTrue)
	next := w.untilRequest(other, name)
	if took := next.GetCreationTimestamp().Sub(first.GetCreationTimestamp().Time); took < minTimeout {
		t.Errorf("the next request came after %s, want it at the timeout of %s", took, minTimeout)
	}
	if at := w.request(request, name).GetAnnotations()[timedOutAnnotation]; at != "" {
		t.Errorf("%s of a request that succeeded: got %q, want none", timedOutAnnotation, at)
	}
}

func nhcDeleted(t *testing.T, w *world) {
	w, nodes := w.story(t, 2, nil)
	w.watch("", request)
	name := nodes[0].Name()
	w.die(nodes[0])
	w.untilRequest(request, name)
	w.hold(request, name)
	kit.Must(t, w.Client().CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.until("the request of the deleted node is being deleted", func() bool {
		return w.request(request, name).GetDeletionTimestamp() != nil
	})
	w.release(request, name)
	w.until("the request is gone", func() bool { return w.request(request, name) == nil })
}

// A paused NodeHealthCheck makes no requests. It deletes none, either: that of a node that is Ready again stays.
func nhcPaused(t *testing.T, w *world) {
	w, nodes := w.story(t, 3, nil)
	w.watch("", request)
	before, after := nodes[0], nodes[1]
	w.die(before)
	w.untilRequest(request, before.Name())
	w.patch(nodeHealthChecks, "", w.name, `{"spec":{"pauseRequests":["upgrade"]}}`)
	w.untilStatus("phase", "Paused")
	w.die(after)
	before.PowerOn("")
	kit.Must(t, before.WaitReady(w.ctx))
	w.during(5*time.Second, "a paused NodeHealthCheck leaves requests alone", func() bool {
		o := w.request(request, before.Name())
		return o != nil && o.GetDeletionTimestamp() == nil && w.request(request, after.Name()) == nil
	})
	w.patch(nodeHealthChecks, "", w.name, `{"spec":{"pauseRequests":null}}`)
	w.until("the pause is made up for", func() bool {
		return slices.Equal(w.requestNames(request), []string{after.Name()})
	})
}

// Without its limit a NodeHealthCheck makes all requests at once, with it none.
func nhcStorm(t *testing.T, w *world) {
	w, nodes := w.story(t, 4, nil)
	w.watch("", request)
	w.patch(nodeHealthChecks, "", w.name, `{"spec":{"minHealthy":4}}`)
	w.die(nodes[:3]...)
	w.logged(w.name, "Skipped remediation because the number of healthy nodes selected by the selector is 1")
	if got := w.requestNames(request); len(got) > 0 {
		t.Errorf("requests: got %q, want none below minHealthy", got)
	}
	w.patch(nodeHealthChecks, "", w.name, `{"spec":{"minHealthy":1}}`)
	w.until("three requests", func() bool { return len(w.requestNames(request)) == 3 })
}

// Another holder of the node's Lease, such as medik8s' node maintenance, comes first.
func nhcLeased(t *testing.T, w *world) {
	w, nodes := w.story(t, 2, nil)
	name := nodes[0].Name()
	holder, seconds, now := "node-maintenance", int32(3600), metav1.NowMicro()
	_, err := w.Client().CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: leases}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // the controller may have made it
		t.Fatal(err)
	}
	_, err = w.Client().CoordinationV1().Leases(leases).Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now,
			RenewTime: &now},
	}, metav1.CreateOptions{})
	kit.Must(t, err)
	w.watch("", request)
	w.die(nodes[0])
	w.logged(name, "node lease is already taken")
	if got := w.requestNames(request); len(got) > 0 {
		t.Errorf("requests: got %q, want none while %s holds the Lease", got, holder)
	}
}

// healthyDelay keeps the request for a while, with an annotation more.
func nhcDelayed(t *testing.T, w *world) {
	w, nodes := w.story(t, 2, nil)
	const delay = 6 * time.Second
	w.watch(fmt.Sprintf("healthyDelay: %s,", delay), request)
	name := nodes[0].Name()
	w.die(nodes[0])
	w.untilRequest(request, name)
	nodes[0].PowerOn("")
	kit.Must(t, nodes[0].WaitReady(w.ctx))
	var since string
	w.until("the request has a delay", func() bool {
		since = w.request(request, name).GetAnnotations()[delayAnnotation]
		return since != ""
	})
	w.until("the request is gone", func() bool { return w.request(request, name) == nil })
	if at, err := time.Parse(time.RFC3339, since); err != nil || time.Since(at) < delay {
		t.Errorf("the request went %s after %q, want it to stay for %s: %v", time.Since(at), since, delay, err)
	}
}
