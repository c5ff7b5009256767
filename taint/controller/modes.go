package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/journal"
)

// ChooseMode returns what may be done about a node; machine is the mode of its machine.
func (p *Config) ChooseMode(node *corev1.Node, machine fence.Mode) fence.Chosen {
	if p.Mode == nil {
		return fence.Chosen{Mode: machine}
	}
	return p.Mode(node)
}

// inMode reports the node's mode.
func (r *Reconciler) inMode(st *nodeState, m fence.Mode) { r.setMode(st, m.String()) }

// setMode moves the node from one mode to another in the metric of nodes by mode; "" is none.
func (r *Reconciler) setMode(st *nodeState, mode string) {
	if st.told.mode == mode {
		return
	}
	if st.told.mode != "" {
		r.Metrics.modes.WithLabelValues(st.told.mode).Dec()
	}
	if mode != "" {
		r.Metrics.modes.WithLabelValues(mode).Inc()
	}
	st.told.mode = mode
}

// decisions are the names of what shadow mode would do, in its metric.
var decisions = map[string]string{"Write": "power_off", "Arm": "recover"}

// tellWould counts what would have been done, lists whom it would have moved, and has it recorded.
func (r *Reconciler) tellWould(st *nodeState, d action.Decision) {
	if d.Would.Action == nil {
		return
	}
	would := decisions[action.Name(d.Would.Action)]
	r.Metrics.shadowed.WithLabelValues(would).Inc()
	pods, told := make([]string, len(d.Would.Pods)), journal.Told{Record: action.RecordOf(d.Would.Action), Shadow: true}
	for i, p := range d.Would.Pods {
		pods[i] = p.Namespace + "/" + p.Name
		told.Would = append(told.Would, named(p))
	}
	l := st.course.Look()
	r.chronicle(l.Name, st, told)
	r.Log.Warn("Shadow decision", "node", l.Name, "decision", would, "device", st.course.Speakers(), "suspicion", st.suspect,
		"evidence", d.Detail, "bootID", l.BootID, "pods", pods)
}
