package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

var nodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// zone is one of KWOK's, for all nodes: forcefence powers off nothing in a zone in which all nodes are silent.
const zone = "test-zone-a"

// TestKarpenter plays stories with Karpenter's own controllers, on the cloud KWOK. The Nodes that this cloud makes get
// machines with power and BMCs. It does not run beside the other tests.
func TestKarpenter(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	t.Run("Controllers", func(t *testing.T) {
		f := newFleet(t, program, fleetOptions{start: Karpenter, mode: "mode: fence\nkarpenter: handOver",
			labels: map[string]string{corev1.LabelTopologyZone: zone}, hosts: map[string]int{"Base": 5}})
		f.create(`{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}`)
		f.play(t, map[string]func(*testing.T, *fleet){
			"PowerCut": karpenterPowerCut, "StaysOn": karpenterStaysOn, "Deleting": karpenterDeleting,
		})
	})
}

// provision makes the story's NodePool, and a pod that needs a node of it. annotations are the pod's.
func (f *fleet) provision(annotations map[string]string) {
	f.t.Helper()
	f.namespace(f.name)
	f.create(fmt.Sprintf(`{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: %[1]s},
  spec: {disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never},
    template: {metadata: {labels: {story: %[1]s}}, spec: {
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default},
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]},
        {key: topology.kubernetes.io/zone, operator: In, values: [%[2]s]},
        {key: kubernetes.io/arch, operator: In, values: [amd64]},
        {key: kubernetes.io/os, operator: In, values: [linux]}]}}}}`, f.name, zone))
	kit.Must(f.t, f.Create(f.ctx, cluster.Workload{Namespace: f.name, Name: "db", Replicas: 1, Annotations: annotations,
		NodeSelector: map[string]string{"story": f.name}}.StatefulSet()))
}

// adding is held while a host is added, which no other may be meanwhile.
var adding sync.Mutex

// karpenterStory is a story whose hosts come later.
func (f *fleet) karpenterStory(t *testing.T) *fleet {
	t.Helper()
	adding.Lock()
	defer adding.Unlock()
	s, _ := f.story(t)
	return s
}

// claimed waits for a Node that the cloud made for the story, beside known ones, and puts a machine under it.
func (f *fleet) claimed(known ...*machine.Host) *machine.Host {
	f.t.Helper()
	var name string
	f.until("Karpenter makes a node", func() bool {
		list, err := f.Client().CoreV1().Nodes().List(f.ctx, metav1.ListOptions{LabelSelector: "story=" + f.name})
		kit.Must(f.t, err)
		for _, n := range list.Items {
			if !slices.ContainsFunc(known, func(h *machine.Host) bool { return h.Name() == n.Name }) {
				name = n.Name
			}
		}
		return name != ""
	})
	adding.Lock()
	defer adding.Unlock()
	kit.Must(f.t, f.hosts.AddHosts(f.ctx, []string{name}, nil))
	h := f.hosts.Host(name)
	f.patch(corev1.SchemeGroupVersion.WithResource("nodes"), "", name,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, machine.BMCAnnotation, h.Machine.Address()))
	return h
}

// claimOf returns the name of the NodeClaim of a host, once Karpenter sees its node as whole.
func (f *fleet) claimOf(h *machine.Host) (name string) {
	f.t.Helper()
	f.until("the NodeClaim of "+h.Name()+" is initialized", func() bool {
		list, err := f.dynamic.Resource(nodeClaims).List(f.ctx, metav1.ListOptions{})
		kit.Must(f.t, err)
		for i := range list.Items {
			o := &list.Items[i]
			node, _, _ := unstructured.NestedString(o.Object, "status", "nodeName")
			if c, _ := condition(o, "Initialized"); node == h.Name() && c.Status == metav1.ConditionTrue {
				name = o.GetName()
			}
		}
		return name != ""
	})
	return name
}

// untilHandedOver waits until a host's NodeClaim and Node are gone, and logs how long that takes.
func (f *fleet) untilHandedOver(h *machine.Host, claim string) {
	f.t.Helper()
	f.until("the NodeClaim of "+h.Name()+" is deleted", func() bool {
		o := f.find(nodeClaims, "", claim)
		return o == nil || o.GetDeletionTimestamp() != nil
	})
	f.until("NodeClaim and Node are gone", func() bool {
		return f.find(nodeClaims, "", claim) == nil &&
			f.find(corev1.SchemeGroupVersion.WithResource("nodes"), "", h.Name()) == nil
	})
}

// A machine loses its power: its pod runs on a new node, and Karpenter deletes the old one.
func karpenterPowerCut(t *testing.T, f *fleet) {
	f = f.karpenterStory(t)
	f.provision(nil)
	h := f.claimed()
	claim := f.claimOf(h)
	f.running(1)
	kit.Must(t, h.Machine.CutPower())
	f.until("the fence has ended", func() bool { return f.ended(h) })
	next := f.claimed(h)
	f.untilHandedOver(h, claim)
	if pod := f.running(1)[0]; pod.Spec.NodeName != next.Name() {
		t.Errorf("the pod runs on %s, want %s", pod.Spec.NodeName, next.Name())
	}
	if n := resets(h); n > 0 {
		t.Errorf("power-offs of a machine without power: got %d, want none", n)
	}
}

// ended reports whether a host's fence has ended, or its Node is gone.
func (f *fleet) ended(h *machine.Host) bool {
	f.t.Helper()
	o := f.find(corev1.SchemeGroupVersion.WithResource("nodes"), "", h.Name())
	return o == nil || f.record(h).Phase == taint.PhaseDone
}

// A kubelet hangs, and its machine does not go off: Karpenter replaces it, and the pod with it.
func karpenterStaysOn(t *testing.T, f *fleet) {
	f = f.karpenterStory(t)
	f.provision(nil)
	h := f.claimed()
	claim := f.claimOf(h)
	f.running(1)
	h.Redfish().BMC.SetFault(datacenter.Fault{StaysOn: true})
	h.StopHeartbeats()
	f.until("a power-off was asked for", func() bool { return resets(h) > 0 })
	f.untilHandedOver(h, claim)
	kit.Must(t, h.Machine.CutPower()) // the cloud KWOK ends Nodes, but no machines
	next := f.claimed(h)
	if pod := f.running(1)[0]; pod.Spec.NodeName != next.Name() {
		t.Errorf("the pod runs on %s, want %s", pod.Spec.NodeName, next.Name())
	}
}

// keepNode sets the finalizers of a host's Node, if it is there.
func (f *fleet) keepNode(h *machine.Host, finalizers []string) {
	f.t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	kit.Must(f.t, err)
	_, err = f.Client().CoreV1().Nodes().Patch(context.Background(), h.Name(), types.MergePatchType, text,
		metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		kit.Must(f.t, err)
	}
}

// Karpenter is deleting a machine, and waits for a pod. Its kubelet hangs: forcefence does not power it off. Once it is
// off, forcefence moves the pod, and Karpenter can go on.
func karpenterDeleting(t *testing.T, f *fleet) {
	f = f.karpenterStory(t)
	f.provision(map[string]string{"karpenter.sh/do-not-disrupt": "true"})
	h := f.claimed()
	claim := f.claimOf(h)
	f.running(1)
	// KWOK takes a silent machine for ended as soon as its Node is being deleted. A real cloud takes minutes for that.
	finalizers := f.node(h).Finalizers
	f.keepNode(h, append(slices.Clone(finalizers), finalizer))
	t.Cleanup(func() { f.keepNode(h, nil) })
	kit.Must(t, f.dynamic.Resource(nodeClaims).Delete(f.ctx, claim, metav1.DeleteOptions{}))
	f.until("Karpenter waits for the pod", func() bool {
		return slices.ContainsFunc(f.node(h).Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "karpenter.sh/disrupted"
		})
	})
	h.StopHeartbeats()
	f.untilUnknown(h.Node)
	f.staysOn(h, "the power of a machine that Karpenter is deleting is left alone")
	if f.find(nodeClaims, "", claim) == nil {
		t.Error("the NodeClaim is gone, want it to wait for its Node: else nothing was tested")
	}
	start := time.Now()
	kit.Must(t, h.Machine.CutPower())
	next := f.claimed(h)
	if pod := f.running(1)[0]; pod.Spec.NodeName != next.Name() {
		t.Errorf("the pod runs on %s, want %s", pod.Spec.NodeName, next.Name())
	}
	f.keepNode(h, nil)
	t.Logf("the pod runs elsewhere %.1f s after the power cut", time.Since(start).Seconds())
	f.untilHandedOver(h, claim)
}
