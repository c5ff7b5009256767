package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/journal"
)

// mode is what may be done about a node.
func (p *Config) mode(node *corev1.Node, machine fence.Mode) fence.Chosen {
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

// checkSelectors tells which of the file's selectors of nodes select none: a misspelt label would leave nodes in another mode than was
// meant, and nobody would know before one of them is dead.
func (p *Policies) checkSelectors(ctx context.Context, config *Config) error {
	for _, where := range slices.Sorted(maps.Keys(config.Selectors)) {
		nodes := &corev1.NodeList{}
		selector := config.Selectors[where]
		if err := p.Reconciler.Cache.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		if len(nodes.Items) == 0 {
			p.Reconciler.Log.Warn("A selector of the configuration selects no node of the cluster: is it right?", "key", where, "selector", selector.String())
		}
	}
	return nil
}
