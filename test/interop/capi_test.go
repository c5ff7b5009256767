package interop

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var (
	coreGroup           = schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta2"}
	clusters            = coreGroup.WithResource("clusters")
	machines            = coreGroup.WithResource("machines")
	machineHealthChecks = coreGroup.WithResource("machinehealthchecks")

	// The infrastructure provider is the test: Cluster API's own for tests is not to be had as a module.
	infrastructure = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}
	fakeCluster    = infrastructure.WithKind("FakeCluster")
	fakeMachine    = infrastructure.WithKind("FakeMachine")
)

// Annotations of Machines, which a user sets.
const (
	pausedAnnotation    = "cluster.x-k8s.io/paused"
	skipAnnotation      = "cluster.x-k8s.io/skip-remediation"
	remediateAnnotation = "cluster.x-k8s.io/remediate-machine"
)

// rateLimit is the least time between two looks of a MachineHealthCheck.
const rateLimit = 15 * time.Second

// TestClusterAPI holds the contract with Cluster API's MachineHealthCheck: the test is the remediator.
func TestClusterAPI(t *testing.T) {
	w := newWorld(t, ClusterAPI)
	w = w.capiCluster(t)
	for name, story := range map[string]func(*testing.T, *world){
		"Recovered": capiRecovered, "Third": capiThird, "Deleted": capiDeleted, "Paused": capiPaused,
		"PausedMachine": capiPausedMachine, "Storm": capiStorm, "Asked": capiAsked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, w)
		})
	}
}

// capiCluster makes a Cluster of this very control plane, with one machine of its own, and waits until Cluster API
// looks at its nodes.
func (w *world) capiCluster(t *testing.T) *world {
	t.Helper()
	contract := map[string]string{"cluster.x-k8s.io/v1beta2": infrastructure.Version}
	w.create(definition(fakeCluster, contract), definition(fakeMachine, contract),
		definition(template(fakeMachine), contract))
	w, nodes := w.story(t, 1, providerID)
	api, err := url.Parse(w.URL())
	kit.Must(t, err)
	kubeconfig, err := os.ReadFile(w.Kubeconfig())
	kit.Must(t, err)
	w.create(fmt.Sprintf(`{apiVersion: %s, kind: Cluster, metadata: {namespace: %s, name: c1}, spec: {
  controlPlaneEndpoint: {host: %s, port: %s},
  infrastructureRef: {apiGroup: %s, kind: %s, name: c1}}}`,
		coreGroup, w.ns, api.Hostname(), api.Port(), fakeCluster.Group, fakeCluster.Kind))
	w.create(fmt.Sprintf(`{apiVersion: v1, kind: Secret, type: cluster.x-k8s.io/secret, data: {value: %s},
  metadata: {namespace: %s, name: c1-kubeconfig, labels: {cluster.x-k8s.io/cluster-name: c1}}}`,
		base64.StdEncoding.EncodeToString(kubeconfig), w.ns))
	w.provisioned(fakeCluster, "c1", "{}")
	w.machine(nodes[0], `cluster.x-k8s.io/control-plane: ""`)
	w.until("the control plane is initialized", func() bool {
		c, ok := condition(w.find(clusters, w.ns, "c1"), "ControlPlaneInitialized")
		return ok && c.Status == metav1.ConditionTrue
	})
	return w
}

// provisioned makes an object of the infrastructure that says that it is there.
func (w *world) provisioned(kind schema.GroupVersionKind, name, spec string) {
	w.t.Helper()
	w.create(fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %s}, spec: %s}`,
		kind.GroupVersion(), kind.Kind, w.ns, name, spec))
	w.patch(resource(kind), w.ns, name, `{"status":{"initialization":{"provisioned":true}}}`, "status")
}

func providerID(_ int, o *cluster.NodeOptions) { o.ProviderID = "fake://" + o.Name }

// machineName is the name of a node's Machine, which differs from the node's.
func machineName(n *cluster.Node) string { return "machine-of-" + n.Name() }

// machine makes the Machine of a node, and waits until it has the node.
func (w *world) machine(n *cluster.Node, label string) {
	w.t.Helper()
	name := machineName(n)
	w.provisioned(fakeMachine, name, fmt.Sprintf("{providerID: 'fake://%s'}", n.Name()))
	w.create(fmt.Sprintf(`{apiVersion: %[1]s, kind: Machine,
  metadata: {namespace: %[2]s, name: %[3]s, labels: {%[4]s, cluster.x-k8s.io/cluster-name: c1}},
  spec: {clusterName: c1, bootstrap: {dataSecretName: none},
    infrastructureRef: {apiGroup: %[5]s, kind: %[6]s, name: %[3]s}}}`,
		coreGroup, w.ns, name, label, fakeMachine.Group, fakeMachine.Kind))
	w.until("the Machine has its node", func() bool {
		ref, _, _ := unstructured.NestedString(w.find(machines, w.ns, name).Object, "status", "nodeRef", "name")
		return ref == n.Name()
	})
}

// group is a story's machines, and a MachineHealthCheck of theirs with more fields of its remediation.
func (w *world) group(t *testing.T, count int, more string) (*world, []*cluster.Node) {
	t.Helper()
	s, nodes := w.story(t, count, providerID)
	s.watchMachines(more, nodes...)
	return s, nodes
}

// watchMachines makes the nodes' Machines and a MachineHealthCheck of theirs.
func (w *world) watchMachines(more string, nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		w.machine(n, "story: "+w.name)
	}
	w.create(fmt.Sprintf(`{apiVersion: %s, kind: MachineHealthCheck, metadata: {namespace: %s, name: %s}, spec: {
  clusterName: c1, selector: {matchLabels: {story: %[3]s}},
  checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 1}]},
  remediation: {%s templateRef: {apiVersion: %s, kind: %s, name: mend}}}}`,
		coreGroup, w.ns, w.name, more, request.GroupVersion(), template(request).Kind))
	w.until("the MachineHealthCheck has its machines", func() bool {
		status, _, _ := unstructured.NestedMap(w.find(machineHealthChecks, w.ns, w.name).Object, "status")
		count := int64(len(nodes))
		return status["expectedMachines"] == count && status["currentHealthy"] == count
	})
}

// requested reports whether there is a request for the node's Machine, and whether it is being deleted.
func (w *world) requested(n *cluster.Node) (there, deleting bool) {
	w.t.Helper()
	o := w.request(request, machineName(n))
	return o != nil, o != nil && o.GetDeletionTimestamp() != nil
}

// untilRequested waits for the requests of these nodes, and holds them.
func (w *world) untilRequested(nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		w.untilRequest(request, machineName(n))
		w.hold(request, machineName(n))
	}
}

// untilReleased waits until the requests are being deleted, and lets them go.
func (w *world) untilReleased(nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		w.until("the request is being deleted", func() bool {
			_, deleting := w.requested(n)
			return deleting
		})
		w.release(request, machineName(n))
	}
}

// revive gives the nodes their power back, and waits until they are Ready.
func (w *world) revive(nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		n.PowerOn("")
		kit.Must(w.t, n.WaitReady(w.ctx))
	}
}

// A second death at the same moment gets a request, too. Creation and deletion are all that Cluster API does with it.
func capiRecovered(t *testing.T, w *world) {
	w, nodes := w.group(t, 2, "")
	w.die(nodes...)
	w.untilRequested(nodes...)
	for _, n := range nodes {
		name := machineName(n)
		o := w.request(request, name)
		machine := w.find(machines, w.ns, name)
		for _, tt := range []struct {
			what      string
			got, want any
		}{
			{"annotations", o.GetAnnotations(), map[string]string{
				"cluster.x-k8s.io/cloned-from-name":      "mend",
				"cluster.x-k8s.io/cloned-from-groupkind": template(request).GroupKind().String(),
			}},
			{"labels", o.GetLabels(), map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}},
			{"spec", o.Object["spec"], map[string]any{}},
			{"owners", o.GetOwnerReferences(), []metav1.OwnerReference{{
				APIVersion: coreGroup.String(), Kind: "Machine", Name: name, UID: machine.GetUID()}}},
		} {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("%s of the request (-want +got):\n%s", tt.what, diff)
			}
		}
		w.untilCondition(name, "HealthCheckSucceeded", metav1.ConditionFalse)
		w.untilCondition(name, "ExternallyRemediated", metav1.ConditionFalse)
	}
	w.revive(nodes...)
	w.untilReleased(nodes...)
	for _, n := range nodes {
		w.untilCondition(machineName(n), "HealthCheckSucceeded", metav1.ConditionTrue)
		c, _ := condition(w.find(machines, w.ns, machineName(n)), "ExternallyRemediated")
		if c.Status != metav1.ConditionFalse || c.Reason != "WaitingForRemediation" {
			t.Errorf("ExternallyRemediated: got %s (%s), want it left to the remediator", c.Status, c.Reason)
		}
		if c, ok := condition(w.find(machines, w.ns, machineName(n)), "OwnerRemediated"); ok {
			t.Errorf("OwnerRemediated: got %+v, want none", c)
		}
	}
}

// untilCondition waits for a Machine's condition.
func (w *world) untilCondition(machine, kind string, want metav1.ConditionStatus) {
	w.t.Helper()
	w.until(kind+" is "+string(want), func() bool {
		c, ok := condition(w.find(machines, w.ns, machine), kind)
		return ok && c.Status == want
	})
}

// While others have requests, a later death may get none for long. Cluster API looks at dead machines in any order, and
// stops at the first that has a request. So the log says what happened; once the others are healthy, the request comes.
func capiThird(t *testing.T, w *world) {
	w, nodes := w.group(t, 3, "")
	w.die(nodes[:2]...)
	w.untilRequested(nodes[:2]...)
	w.die(nodes[2])
	start := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, 2*rateLimit)
	defer cancel()
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		there, _ := w.requested(nodes[2])
		return there, nil
	})
	t.Logf("a request for the third within %.1f s: %t", time.Since(start).Seconds(), err == nil)
	w.revive(nodes[:2]...)
	w.untilReleased(nodes[:2]...)
	w.untilRequested(nodes[2])
}

// A deleted Node is no end: its Machine counts as unhealthy. The request goes with the Machine.
func capiDeleted(t *testing.T, w *world) {
	w, nodes := w.group(t, 2, "")
	name := machineName(nodes[0])
	w.die(nodes[0])
	w.untilRequested(nodes[0])
	kit.Must(t, w.Client().CoreV1().Nodes().Delete(w.ctx, nodes[0].Name(), metav1.DeleteOptions{}))
	w.during(rateLimit+5*time.Second, "the request of a deleted Node stays", func() bool {
		there, deleting := w.requested(nodes[0])
		return there && !deleting
	})
	kit.Must(t, w.dynamic.Resource(machines).Namespace(w.ns).Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.untilReleased(nodes[0])
	w.until("the request is gone", func() bool {
		there, _ := w.requested(nodes[0])
		return !there
	})
}

// A paused Machine gets no request, and keeps the one that it has. The same goes for a skipped one.
func capiPausedMachine(t *testing.T, w *world) {
	w, nodes := w.group(t, 3, "")
	w.die(nodes[0])
	w.untilRequested(nodes[0])
	annotations := []string{pausedAnnotation, pausedAnnotation, skipAnnotation}
	for i, a := range annotations {
		w.annotate(machines, machineName(nodes[i]), a, `""`)
	}
	w.revive(nodes[0])
	w.die(nodes[1:]...)
	w.leftAlone(nodes)
	for i, a := range annotations {
		w.annotate(machines, machineName(nodes[i]), a, "null")
	}
	w.untilReleased(nodes[0])
	w.untilRequested(nodes[1:]...)
}

// A paused MachineHealthCheck makes no requests, and deletes none.
func capiPaused(t *testing.T, w *world) {
	w, nodes := w.group(t, 3, "")
	w.die(nodes[0])
	w.untilRequested(nodes[0])
	w.annotate(machineHealthChecks, w.name, pausedAnnotation, `""`)
	w.revive(nodes[0])
	w.die(nodes[1])
	w.leftAlone(nodes)
	w.annotate(machineHealthChecks, w.name, pausedAnnotation, "null")
	w.untilReleased(nodes[0])
	w.untilRequested(nodes[1])
}

// leftAlone checks that the first node's request stays, and that no other comes.
func (w *world) leftAlone(nodes []*cluster.Node) {
	w.t.Helper()
	w.during(rateLimit+5*time.Second, "a pause leaves requests alone", func() bool {
		_, deleting := w.requested(nodes[0])
		return !deleting && slices.Equal(w.requestsOf(nodes), []string{machineName(nodes[0])})
	})
}

// annotate sets an annotation to a value of JSON; null takes it off.
func (w *world) annotate(of schema.GroupVersionResource, name, annotation, value string) {
	w.t.Helper()
	w.patch(of, w.ns, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, value))
}

// A user can have a request made of a node that is Ready, and taken back.
func capiAsked(t *testing.T, w *world) {
	w, nodes := w.group(t, 1, "")
	w.annotate(machines, machineName(nodes[0]), remediateAnnotation, `""`)
	w.untilRequested(nodes[0])
	w.annotate(machines, machineName(nodes[0]), remediateAnnotation, "null")
	w.untilReleased(nodes[0])
}

// requestsOf are the requests of these nodes' Machines.
func (w *world) requestsOf(nodes []*cluster.Node) []string {
	w.t.Helper()
	return slices.DeleteFunc(w.requestNames(request), func(name string) bool {
		return !slices.ContainsFunc(nodes, func(n *cluster.Node) bool { return machineName(n) == name })
	})
}

// More dead machines than the limit get no request at all.
func capiStorm(t *testing.T, w *world) {
	w, nodes := w.group(t, 3, "triggerIf: {unhealthyLessThanOrEqualTo: 0},")
	w.die(nodes[:2]...)
	w.until("remediation is not allowed", func() bool {
		c, ok := condition(w.find(machineHealthChecks, w.ns, w.name), "RemediationAllowed")
		return ok && c.Status == metav1.ConditionFalse
	})
	w.during(rateLimit+5*time.Second, "there is no request", func() bool { return len(w.requestsOf(nodes)) == 0 })
	w.patch(machineHealthChecks, w.ns, w.name,
		`{"spec":{"remediation":{"triggerIf":{"unhealthyLessThanOrEqualTo":2}}}}`)
	w.untilRequested(nodes[:2]...)
}
