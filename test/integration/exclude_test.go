package integration

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/test/kit"
)

// condition sets a condition of a Node, as its kubelet or an operator would.
func (w *world) condition(h *host, name string, status corev1.ConditionStatus) {
	w.t.Helper()
	_, err := w.Client().CoreV1().Nodes().
		PatchStatus(w.ctx, h.Name(),
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":%q}]}}`, name, status))
	kit.Must(w.t, err)
}

//go:embed testdata/clusterapi.yaml
var clusterAPI string

// One node for each rule, all lost at the same moment. What excludes a node stops everything; what says that a drain is
// under way keeps a machine on, and none that is off from its recovery. When it is taken back the node is fenced as
// any.
func TestExclusions(t *testing.T) {
	w := newWorld(t, plan{nodes: 20})
	label := "remediation.medik8s.io/exclude-from-remediation"
	lease := func(h *host, holder string) {
		w.kubectlApply(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {namespace: %s, name: "+
			"node-%s}\nspec: {holderIdentity: %s, leaseDurationSeconds: 3600, renewTime: %q}",
			w.ns, h.Name(), holder, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
	}
	w.kubectlApply(clusterAPI)
	w.kubectl("wait", "--for=condition=Established", "--timeout=5m", "crd/machines.cluster.x-k8s.io",
		"crd/clusters.cluster.x-k8s.io")
	object := func(kind, name, rest string) {
		w.kubectlApply(fmt.Sprintf("apiVersion: cluster.x-k8s.io/v1beta2\nkind: %s\nmetadata: {namespace: %s, name: "+
			"%s}\n%s", kind, w.ns, name, rest))
	}
	ofMachine := func(h *host) {
		for name, value := range map[string]string{
			"cluster-namespace": w.ns, "machine": "m-" + h.Name(), "cluster-name": "c-" + h.Name()} {
			w.annotate(h, fence.ClusterAPI+"/"+name, value)
		}
	}
	rules := []struct {
		says string // of the Event
		off  bool   // the machine
		set  func(h *host)
		undo func(h *host)
	}{
		{`annotation forcefence.io/paused "new disk"`, true,
			func(h *host) { w.annotate(h, fence.PausedAnnotation, "new disk") },
			func(h *host) {
				w.annotate(h, fence.PausedAnnotation,
					"new disk; until="+time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))
			}},
		{`until="noon" is not a time`, true,
			func(h *host) { w.annotate(h, fence.PausedAnnotation, "new disk; until=noon") },
			func(h *host) { w.annotate(h, fence.PausedAnnotation, "") }},
		{"label " + label, true,
			func(h *host) { w.kubectl("label", "node", h.Name(), label+"=true") },
			func(h *host) { w.kubectl("label", "--overwrite", "node", h.Name(), label+"=false") }},
		{"condition MaintenanceInProgress", false,
			func(h *host) { w.condition(h, "MaintenanceInProgress", corev1.ConditionTrue) },
			func(h *host) { w.condition(h, "MaintenanceInProgress", corev1.ConditionFalse) }},
		{"Lease " + w.ns + "/node-" + w.hosts[4].Name() + ": node maintenance", false,
			func(h *host) { lease(h, "node-maintenance") },
			func(h *host) { lease(h, "NodeHealthCheck-workers") }},
		{"Machine " + w.ns + "/m-" + w.hosts[5].Name() + ": annotation cluster.x-k8s.io/skip-remediation", false,
			func(h *host) {
				object("Machine", "m-"+h.Name(), "")
				w.kubectl("-n", w.ns, "annotate", "machines.cluster.x-k8s.io", "m-"+h.Name(),
					"cluster.x-k8s.io/skip-remediation=")
				ofMachine(h)
			},
			func(h *host) {
				w.kubectl("-n", w.ns, "annotate", "machines.cluster.x-k8s.io", "m-"+h.Name(),
					"cluster.x-k8s.io/skip-remediation-")
			}},
		{"Cluster " + w.ns + "/c-" + w.hosts[6].Name() + ": spec.paused", true,
			func(h *host) { object("Cluster", "c-"+h.Name(), "spec: {paused: true}"); ofMachine(h) },
			func(h *host) { object("Cluster", "c-"+h.Name(), "spec: {paused: false}") }},
		{"condition DrainInProgress", false,
			func(h *host) { w.condition(h, "DrainInProgress", corev1.ConditionTrue) },
			func(h *host) { w.condition(h, "DrainInProgress", corev1.ConditionFalse) }},
		{"the node is cordoned", false,
			func(h *host) { w.kubectl("cordon", h.Name()) },
			func(h *host) { w.kubectl("uncordon", h.Name()) }},
	}
	off := w.hosts[len(rules)]
	for i := range rules {
		w.create(w.bare(fmt.Sprintf("pod-%d", i), w.hosts[i]))
	}
	w.create(w.bare("pod-off", off))
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(rules)+1))
	c := w.start(settings{Mode: "fence", Top: "excludeCordoned: true\nmaintenanceLeases: " + w.ns})
	w.untilPinned(w.hosts[:len(rules)+1]...)
	for i, r := range rules {
		r.set(w.hosts[i])
	}
	w.condition(off, "GracefulNodeShutdownInProgress", corev1.ConditionTrue)
	w.kubectl("-n", w.ns, "create", "configmap", "forcefence-pause", "--from-literal=reason=switches")
	off.cut()
	for i, r := range rules {
		if r.off {
			w.hosts[i].cut()
		} else {
			w.hosts[i].partition()
		}
	}
	if told := w.untilEvent("Node", off.Name(), "NodeExcluded"); !strings.Contains(told,
		"ConfigMap "+w.ns+`/forcefence-pause: "switches"`) {
		t.Errorf("told %q, want that the whole cluster is paused", told)
	}
	for _, h := range w.hosts[:len(rules)+1] {
		kit.Must(t, w.alone(h))
	}
	w.kubectl("-n", w.ns, "delete", "configmap", "forcefence-pause")
	w.untilDone(off, taint.ResultEvicted)
	for i, r := range rules {
		reason := "NodeExcluded"
		if i >= 7 {
			reason = "PowerOffHeldUp"
		}
		if told := w.untilEvent("Node", w.hosts[i].Name(), reason); !strings.Contains(told, r.says) {
			t.Errorf("told %q, want that it says %q", told, r.says)
		}
	}
	c.untilMetric(`forcefence_nodes{state="excluded"}`, float64(len(rules))) // also those that are kept on
	for i, h := range w.hosts[:len(rules)] {
		kit.Must(t, w.alone(h))
		if n := h.resets(); n != 0 || !w.has(fmt.Sprintf("pod-%d", i)) {
			kit.Harm(t, "%s: got %d power-offs, its pod is there: %v", rules[i].says, n,
				w.has(fmt.Sprintf("pod-%d", i)))
		}
	}
	for i, r := range rules {
		r.undo(w.hosts[i])
	}
	for i, r := range rules {
		w.untilDone(w.hosts[i], taint.ResultEvicted)
		if n := w.hosts[i].resets(); (n == 0) != r.off {
			kit.Harm(t, "%s: got %d power-offs, its machine was off: %v", r.says, n, r.off)
		}
	}
}
