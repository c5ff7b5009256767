package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// annotate writes an annotation of a Node; "" takes it off.
func (w *world) annotate(h *host, key, value string) {
	w.t.Helper()
	word := fmt.Sprintf("%q", value)
	if value == "" {
		word = "null"
	}
	_, err := w.Client().CoreV1().Nodes().Patch(w.ctx, h.Name(), types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, word), metav1.PatchOptions{})
	kit.Must(w.t, err)
}

// Nodes in each mode, chosen by label or lowered by annotation, with machines that are on and off. What would be done
// is reported, and nothing is done that the mode does not allow. Then the mode is fence, and what was reported happens.
func TestModes(t *testing.T) {
	modes := []string{"shadow", "shadow", "disabled", "fence"}
	w := newWorld(t, plan{nodes: 8, node: func(i int, o *cluster.NodeOptions) {
		if i < len(modes) {
			o.Labels["mode"] = modes[i]
		}
	}})
	off, on, disabled, lowered := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	silent := w.hosts[:len(modes)]
	for _, h := range silent {
		w.create(w.bare("app-"+h.Name(), h))
	}
	w.annotate(lowered, fence.ModeAnnotation, "observe")
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(silent)))
	items := func(shadow string) string {
		return fmt.Sprintf("modes:\n- {selector: mode=shadow, mode: %s}\n- {selector: mode=disabled, mode: "+
			"disabled}\n- {selector: mode=fence, mode: fence}\n- {selector: mode=nowhere, mode: fence}", shadow)
	}
	fencings := w.fencingClient()
	w.kubectl("apply", "--server-side", "-f", definitionFile)
	c := w.start(settings{Top: items("shadow")})
	w.untilPinned(off, on, lowered)
	w.until("condition of the disabled node", func() bool {
		for _, cond := range w.node(disabled).Status.Conditions {
			if cond.Type == taint.FenceableCondition {
				return cond.Status == corev1.ConditionFalse && cond.Reason == "ModeDisabled" &&
					strings.Contains(cond.Message, "mode=disabled")
			}
		}
		return false
	})
	w.until("word of the selector that selects nothing",
		func() bool { return c.log.has("selects no node", "modes[3].selector") })

	off.cut()
	disabled.cut()
	on.partition()
	lowered.partition()
	if told := w.untilEvent("Node", off.Name(), "WouldRecover"); !strings.Contains(told, "1 pod bound") ||
		!strings.Contains(told, `said Off ("Off")`) {
		t.Errorf("told %q, want what would be moved, and the evidence", told)
	}
	if told := w.untilEvent("Node", on.Name(), "WouldPowerOff"); !strings.Contains(told, on.bmc.URL()) ||
		!strings.Contains(told, `said On ("On")`) {
		t.Errorf("told %q, want through whom, and the evidence", told)
	}
	w.untilEvent("Node", disabled.Name(), "ModeDisabled")
	w.untilEvent("Node", lowered.Name(), "PoweredOnNotReady")
	c.untilMetric(`forcefence_shadow_decisions_total{decision="power_off"}`, 1)
	c.untilMetric(`forcefence_shadow_decisions_total{decision="recover"}`, 1)
	c.untilMetric(`forcefence_node_mode{mode="shadow"}`, 2)
	c.untilMetric(`forcefence_node_mode{mode="disabled"}`, 1)
	for _, h := range silent {
		kit.Must(t, w.alone(h))
		if n := h.resets(); n != 0 || !w.has("app-"+h.Name()) {
			kit.Harm(t, "%s: got %d power-offs, its pod is there: %v", h.Name(), n, w.has("app-"+h.Name()))
		}
	}
	if n := disabled.askedSince(time.Time{}); n != 0 {
		t.Errorf("mode disabled: its BMC got %d questions", n)
	}

	for h, want := range map[*host]string{off: "WouldRecover", on: "WouldPowerOff"} {
		s := w.untilFencing(fencings, h, "what would have been done",
			func(f api.Fencing) bool { return f.Spec.Shadow && f.Status.Result == want }).Status
		if s.Phase != "Done" || s.Pods.Ended != 0 || s.Pods.Would != 1 || len(s.Pods.Names) != 1 ||
			s.Pods.Names[0].Name != "app-"+h.Name() || len(s.Evidence) == 0 {
			t.Errorf("Fencing of %s: got %+v, want its pod, which was not touched, and the evidence", h.Name(), s)
		}
	}
	table := w.kubectl("get", "fcg", "-o", "wide")
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 ||
		!strings.Contains(lines[0], "SHADOW") || strings.Count(table, " true ") != 2 {
		t.Errorf("kubectl get fcg -o wide: got\n%s\nwant two, marked as shadow", table)
	}

	c.configure(settings{Top: items("fence")})
	for _, h := range []*host{off, on} {
		w.untilDone(h, taint.ResultEvicted)
	}
	if a, b := off.resets(), on.resets(); a != 0 || b != 1 {
		kit.Harm(t, "power-offs: got %d of the machine that was off and %d of the one that was on", a, b)
	}
	w.annotate(lowered, fence.ModeAnnotation, "")
	w.untilDone(lowered, taint.ResultEvicted)
	kit.Must(t, w.alone(disabled))
	if got := c.metric(`forcefence_shadow_decisions_total{decision="power_off"}`); got != 1 {
		t.Errorf("power-offs that would have been: got %v, want one in that life", got)
	}
}
