package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// tolerant is a workload of one pod that tolerates every taint. It names its node, because such a pod is not kept off
// the others.
func (w *world) tolerant(name string, h *host) cluster.Workload {
	wl := w.workload(name, 1)
	wl.NodeSelector = map[string]string{corev1.LabelHostname: h.Name()}
	wl.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return wl
}

// says checks that a text has all of these parts.
func (w *world) says(where, text string, parts ...string) {
	w.t.Helper()
	for _, part := range parts {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
			w.t.Errorf("%s: got no %q in:\n%s", where, part, text)
		}
	}
}

// A StatefulSet's pod that tolerates everything stays on the dead node with its volume, while a Deployment's pods move.
// The drill says so before; the Event, the status and the record afterwards.
func TestStayingPodIsNamed(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	tol := w.tolerant("tol", h)
	tol.Volume = true
	w.fill(h, 3, tol.StatefulSet(), w.plain("dep", 2))
	moves := slices.DeleteFunc(w.podsOn(h), func(p corev1.Pod) bool { return p.Name == "tol-0" })
	c := w.start(settings{})
	name := w.ns + "/tol-0 (tolerates the mark; keeps the volume of claim data-tol-0)"
	drill, _ := w.forcefence("drill", h.Name(), "--config", c.config)
	w.says("drill", drill, "If it is fenced, 1 pod stays: "+name)
	h.cut()
	rec := w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, moves)
	if !w.has("tol-0") {
		t.Error("the pod that tolerates everything was removed")
	}
	if got := rec.Staying.String(); got != "1 pod stays: "+name {
		t.Errorf("record: got %q, want %s", got, name)
	}
	w.says("Event", w.untilEvent("Node", h.Name(), "NodeEvicted"), "The moved pods are gone", name)
	status, _ := w.forcefence("status", h.Name())
	w.says("status", status, "Its other pods were freed.", "1 pod stays: "+name)
	check, _ := w.forcefence("check")
	w.says("check", check, "On a node that is fenced", name)
}

// The only pod of a CSI driver's controller tolerates everything and dies with its node. evictFirst has no effect on
// it, and no volume detaches. The alert names the driver and the pod.
func TestTolerantDriverIsNamed(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.tolerant("csi-controller", h).Deployment(), w.volumes("db", 1))
	w.Attacher().SetDelays(0, time.Hour) // it runs nowhere
	w.start(settings{Detach: "10s", Top: `evictFirst: "app=csi-controller"`})
	h.cut()
	const stays = " (tolerates the mark; evictFirst has no effect on it)"
	w.says("alert", w.untilEvent("Node", h.Name(), "FenceNeedsPerson"),
		"volumes of "+cluster.CSIDriver+" are still attached; 1 pod stays: "+w.ns+"/csi-controller-", stays)
	w.Attacher().SetDelays(0, 0)
	w.untilDone(h, taint.ResultEvicted)
	w.says("Event", w.untilEvent("Node", h.Name(), "NodeEvicted"), "1 pod stays: "+w.ns+"/csi-controller-", stays)
}

// Pods that tolerate what Kubernetes puts on a dead node, with every effect, are bound to it again once its mark is
// gone, if no other node takes them. The Event says which toleration does it. Once another node does, they move.
func TestPodsThatComeBackAreNamed(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	keep := w.workload("keep", 4)
	keep.Tolerations = []corev1.Toleration{
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
	}
	w.fill(h, 4, keep.StatefulSet())
	before := w.podsOn(h)
	kit.Must(t, w.Open(w.ctx, h.Name()))
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.says("Event", w.untilEvent("Node", h.Name(), "MarkBackOff"), w.ns+"/keep-", " tolerates node.kubernetes.io/",
		":NoSchedule")
	kit.Must(t, w.Open(w.ctx))
	w.untilReplaced(h, before)
}
