package integration

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/explain"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// explainer runs forcefence explain as a person who has the ClusterRole forcefence-explain and nothing else.
func (w *world) explainer(c *child) func(h *host) explain.Report {
	w.t.Helper()
	person := filepath.Join(w.dir, "person.kubeconfig")
	kit.Must(w.t, w.WriteKubeconfig(person, w.ns+"-sre"))
	w.kubectlApply("{apiVersion: v1, kind: Namespace, metadata: {name: " + installedIn + "}}\n---\n" +
		kit.Installed(w.t, "people.yaml"))
	w.kubectl("create", "clusterrolebinding", w.ns+"-sre", "--clusterrole=forcefence-explain", "--user="+w.ns+"-sre")
	w.t.Cleanup(func() {
		_ = w.Client().RbacV1().ClusterRoleBindings().Delete(context.Background(), w.ns+"-sre", metav1.DeleteOptions{})
	})
	return func(h *host) explain.Report {
		w.t.Helper()
		args := []string{"explain", h.Name(), "--config", c.config, "--kubeconfig", person}
		out, status := w.forcefence(args...)
		if status != 0 {
			w.t.Fatalf("explain: exit status %d\n%s", status, out)
		}
		w.t.Logf("explain:\n%s", out)
		cmd := exec.CommandContext(w.ctx, binary, append(args, "-o", "json")...)
		text, err := cmd.Output()
		kit.Must(w.t, err)
		var r struct {
			explain.Report
			Unknown []string
		}
		kit.Must(w.t, json.Unmarshal(text, &r))
		if len(r.Unknown) > 0 {
			w.t.Errorf("explain: not known: %q, want that the ClusterRole is enough", r.Unknown)
		}
		return r.Report
	}
}

// What explain says about a node beforehand is what then happens to it: which pods are moved and which stay, which
// replacements find room.
func TestExplain(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, node: func(i int, o *cluster.NodeOptions) {
		if o.Labels["disk"] = "ssd"; i == 1 || i == 2 {
			o.Labels["disk"] = "hdd"
		}
		if i > 0 {
			o.CPU = "4"
		}
		if i == 3 {
			o.Slots = new(int32(0))
		}
	}})
	h := w.hosts[0]
	db, slot, big := w.workload("db", 1), w.workload("slot", 1), w.workload("big", 1)
	db.Volume, slot.Volume = true, true
	slot.NodeSelector["disk"] = "ssd"
	large := big.StatefulSet()
	large.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("6")}
	patient := w.workload("patient", 1)
	patient.Tolerations = []corev1.Toleration{{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}}
	w.fill(h, 5+4, w.plain("web", 1), db.StatefulSet(), slot.StatefulSet(), large, patient.Deployment(),
		w.workload("agent", 1).DaemonSet())
	c := w.start(settings{Mode: "fence"})
	w.untilPinned(h)
	ask := w.explainer(c)

	r := ask(h)
	off, on, mute := r.Scenarios[0], r.Scenarios[1], r.Scenarios[2]
	if off.Outcome != explain.Moves || on.Outcome != explain.Moves || len(on.Through) != 1 ||
		mute.Outcome != explain.Nothing || mute.Reason != "PowerUnknown" {
		t.Errorf("got %+v, want that a machine that is off, or on, is recovered from", r.Scenarios)
	}
	var stay, roomless []string
	for _, p := range r.Stay {
		stay = append(stay, p.Why)
	}
	slices.Sort(stay)
	if !slices.Equal(stay, []string{"pod of a DaemonSet", "tolerates the mark"}) {
		t.Errorf("pods that stay: got %+v", r.Stay)
	}
	why := map[string]string{}
	for _, p := range r.Replacements {
		if !p.Fits {
			roomless = append(roomless, p.Pod)
		}
		why[strings.TrimPrefix(p.Pod, w.ns+"/")] = p.Why
	}
	slices.Sort(roomless)
	if !strings.Contains(why["big-0"], "3 with too little cpu (it asks for 6, at most 4 is free)") ||
		!strings.Contains(why["slot-0"], "1 without a free attach slot of "+cluster.CSIDriver) || len(roomless) != 2 {
		t.Errorf("replacements: got %+v", r.Replacements)
	}
	if len(off.Detach) != 2 {
		t.Errorf("volumes to be detached: got %q, want those of two pods", off.Detach)
	}

	before := w.podsOn(h)
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	var moved, pending []string
	now := w.pods()
	for _, b := range before {
		if !slices.ContainsFunc(now, func(p corev1.Pod) bool { return p.UID == b.UID }) {
			moved = append(moved, w.ns+"/"+b.Name)
		}
	}
	slices.Sort(moved)
	want := slices.Sorted(slices.Values(off.Moved))
	if !slices.Equal(moved, want) {
		t.Errorf("pods that are gone: %q, and explain said %q", moved, want)
	}
	w.until("replacements", func() bool {
		pending = nil
		settled := true
		for _, p := range w.pods() {
			old := slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID })
			homeless := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
			})
			switch {
			case old:
			case homeless:
				pending = append(pending, w.ns+"/"+p.Name)
			default:
				settled = settled && p.Status.Phase == corev1.PodRunning
			}
		}
		slices.Sort(pending)
		return settled && len(pending) >= len(roomless)
	})
	if !slices.Equal(pending, roomless) {
		t.Errorf("replacements without room: %q, and explain said %q", pending, roomless)
	}
}
