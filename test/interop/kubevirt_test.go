package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

// schedulableLabel is written by virt-handler, which no node here has: the tests write it.
const schedulableLabel = "kubevirt.io/schedulable"

var instances = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}

// virtualMachine makes a VirtualMachine that runs by that strategy, with a disk of its own.
func (f *fleet) virtualMachine(name, strategy string) {
	f.t.Helper()
	f.create(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: %[2]s}
spec: {accessModes: [ReadWriteOnce], storageClassName: %[4]s, resources: {requests: {storage: 1Gi}}}
`, f.name, name, strategy, cluster.StorageClass), fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  runStrategy: %[3]s
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      architecture: amd64
      nodeSelector: {story: %[1]s}
      domain:
        devices: {autoattachPodInterface: false, disks: [{name: disk, disk: {bus: virtio}}]}
        resources: {requests: {memory: 64Mi}}
      volumes: [{name: disk, persistentVolumeClaim: {claimName: %[2]s}}]
`, f.name, name, strategy))
}

// openFor lets virtual machines start on the host, or not, as its virt-handler does.
func (f *fleet) openFor(h *machine.Host, open bool) {
	f.t.Helper()
	_, err := f.Client().CoreV1().Nodes().Patch(f.ctx, h.Name(), types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"labels":{%q:"%t"}}}`, schedulableLabel, open)), metav1.PatchOptions{})
	kit.Must(f.t, err)
}

// instance returns the VirtualMachineInstance and its phase; both are empty if there is none.
func (f *fleet) instance(name string) (_ *unstructured.Unstructured, phase string) {
	f.t.Helper()
	o := f.find(instances, f.name, name)
	if o == nil {
		return &unstructured.Unstructured{}, ""
	}
	phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
	return o, phase
}

// runs reports whether the virtual machine runs in an instance that is not the one of that UID, and returns its
// instance's UID. It acts as the virt-handler of the instance's node: it starts what virt-controller handed over.
func (f *fleet) runs(name string, not types.UID) (types.UID, bool) {
	f.t.Helper()
	o, phase := f.instance(name)
	if phase == "Scheduled" {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "phaseTransitionTimestamps")
		list = append(list, map[string]any{"phase": "Running",
			"phaseTransitionTimestamp": time.Now().UTC().Format(time.RFC3339)})
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()},
			"status":   map[string]any{"phase": "Running", "phaseTransitionTimestamps": list},
		})
		kit.Must(f.t, err)
		_, err = f.dynamic.Resource(instances).Namespace(f.name).
			Patch(f.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			f.t.Logf("instance %s changed meanwhile: %v", name, err)
		}
		return "", false
	}
	return o.GetUID(), phase == "Running" && o.GetUID() != not
}

// launcher returns the pod of an instance, or nil.
func (f *fleet) launcher(of types.UID) *corev1.Pod {
	for _, pod := range f.Pods(f.name) {
		if ref := metav1.GetControllerOf(pod); ref != nil && ref.UID == of {
			return pod
		}
	}
	return nil
}

// A host with virtual machines loses its power. Those that their strategy restarts run elsewhere, and the one that runs
// once stays down.
func kubeVirtCut(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.namespace(f.name)
	cut, other := hosts[0], hosts[1]
	f.openFor(cut, true)
	strategies := map[string]string{"always": "Always", "rerun": "RerunOnFailure", "once": "Once"}
	before := map[string]types.UID{}
	for name, strategy := range strategies {
		f.virtualMachine(name, strategy)
	}
	f.until("all virtual machines run", func() bool {
		for name := range strategies {
			if uid, ok := f.runs(name, ""); ok {
				before[name] = uid
			}
		}
		return len(before) == len(strategies)
	})
	f.openFor(other, true)

	kit.Must(t, cut.Machine.CutPower())
	start := time.Now()
	since := func(what string) { t.Logf("%5.1f s after the power cut: %s", time.Since(start).Seconds(), what) }
	kit.Until(t, "the host is marked", func() bool { return f.record(cut).Phase != "" })
	since("the host is proven off")
	kit.Until(t, "the launcher pod is gone", func() bool { return f.launcher(before["always"]) == nil })
	since("its launcher pod is gone")
	var uid types.UID
	kit.Until(t, "a new instance", func() bool {
		o, _ := f.instance("always")
		uid = o.GetUID()
		return uid != "" && uid != before["always"]
	})
	since("a new instance")
	kit.Until(t, "its launcher pod is scheduled", func() bool {
		pod := f.launcher(uid)
		return pod != nil && pod.Spec.NodeName != ""
	})
	since("its launcher pod is scheduled")
	if node := f.launcher(uid).Spec.NodeName; node != other.Name() {
		t.Errorf("new launcher pod: on node %s, want %s", node, other.Name())
	}
	f.until("both virtual machines run again", func() bool {
		_, always := f.runs("always", before["always"])
		_, rerun := f.runs("rerun", before["rerun"])
		return always && rerun
	})
	since("both virtual machines run again")
	f.untilFenced(cut, taint.ResultEvicted)
	f.during(10*time.Second, "a virtual machine that runs once stays down", func() bool {
		o, phase := f.instance("once")
		return o.GetUID() == before["once"] && phase == "Failed"
	})
}

// A host falls silent and its machine runs on: its virtual machines are left alone, in mode fence, too. The guard
// refuses a claim that it is off.
func kubeVirtSilent(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.namespace(f.name)
	silent := hosts[0]
	f.openFor(silent, true)
	f.virtualMachine("always", "Always")
	var before types.UID
	f.until("the virtual machine runs", func() (ok bool) { before, ok = f.runs("always", ""); return ok })
	f.openFor(hosts[1], true)
	silent.StopHeartbeats()
	f.untilUnknown(silent.Node)
	f.staysOn(silent, "the host's machine runs")
	if o, phase := f.instance("always"); o.GetUID() != before || phase != "Running" {
		t.Errorf("instance: got %s in phase %s, want %s running", o.GetUID(), phase, before)
	}
	if f.launcher(before) == nil {
		t.Error("launcher pod: got none, want it left alone")
	}
	_, err := f.Kubectl(f.ctx, "taint", "node", silent.Name(), corev1.TaintNodeOutOfService+"=:NoExecute")
	if err == nil || !strings.Contains(err.Error(), "the node's machine was On when forcefence last asked") {
		t.Errorf("out-of-service taint: got %v, want the guard to refuse it", err)
	}
}

// A host that forcefence may not touch loses its power. Its virt-handler is silent for longer than virt-controller
// waits, and Kubernetes deletes the launcher pod, which no kubelet confirms. KubeVirt alone does not replace the
// instance: to it the pod counts as alive. It does so once the pod is gone.
func kubeVirtAlone(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.namespace(f.name)
	cut := hosts[0]
	f.openFor(cut, true)
	f.virtualMachine("always", "Always")
	var before types.UID
	f.until("the virtual machine runs", func() (ok bool) { before, ok = f.runs("always", ""); return ok })
	f.openFor(hosts[1], true)
	f.patch(corev1.SchemeGroupVersion.WithResource("nodes"), "", cut.Name(),
		fmt.Sprintf(`{"metadata":{"labels":{"remediation.medik8s.io/exclude-from-remediation":"true"},`+
			`"annotations":{"kubevirt.io/heartbeat":%q}}}`, time.Now().Add(-6*time.Minute).UTC().Format(time.RFC3339)))
	kit.Must(t, cut.Machine.CutPower())
	f.untilUnknown(cut.Node)
	pod := f.launcher(before)
	kit.Must(t, f.Client().CoreV1().Pods(f.name).Delete(f.ctx, pod.Name, metav1.DeleteOptions{}))
	f.until("virt-controller closes the host", func() bool { return f.node(cut).Labels[schedulableLabel] == "false" })
	f.during(75*time.Second, "the instance stays, past virt-controller's next look after a minute", func() bool {
		o, phase := f.instance("always")
		return o.GetUID() == before && phase == "Running"
	})
	now := int64(0)
	kit.Must(t, f.Client().CoreV1().Pods(f.name).Delete(f.ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
	f.until("a new instance", func() bool { // its disk stays attached to the dead host for minutes: it cannot run yet
		o, _ := f.instance("always")
		return o.GetUID() != "" && o.GetUID() != before
	})
}
