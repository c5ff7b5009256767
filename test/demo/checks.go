package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/cluster"
)

// settled is how long a check may take to come true: the API server's view follows what the machines do.
const settled = 30 * time.Second

// check is what must hold after a round. test returns "" if it does, else what is wrong.
type check struct {
	claim string
	test  func(context.Context) string
}

// checks are those of the exit status.
func (w *World) checks(r *round) []check {
	all := []check{
		{fmt.Sprintf("each of the %d pods runs exactly once: the machines' own account agrees with the API server's",
			allPods),
			func(context.Context) string { return w.Discrepancy(namespace, apps) }},
		{"at no moment did two copies of a StatefulSet's pod run, or two machines write to or hold a volume",
			func(context.Context) string {
				if v := w.Ledger().Violations(); len(v) > 0 {
					return fmt.Sprintf("%s (%d in all)", v[0], len(v))
				}
				return ""
			}},
		{fmt.Sprintf("all old volume attachments are gone: there are %d, each where its pod is", dbPods),
			w.checkAttachments},
		{fmt.Sprintf("the mark is off, and the record on %s says %s", r.node, r.result),
			func(ctx context.Context) string { return w.checkMark(ctx, r) }},
		{fmt.Sprintf("forcefence has asked %s's %s again since its node is Ready: On", r.node, w.Power.Device()),
			func(ctx context.Context) string { return w.checkPower(ctx, r) }},
		{"forcefence ran through without a restart",
			func(context.Context) string {
				if n := w.fence.Restarts(); n > 0 || w.fence.PID() == 0 {
					return fmt.Sprintf("it ended %d times", n)
				}
				return ""
			}},
	}
	if w.asks {
		all = append(all, check{"NodeHealthCheck has taken its request back", w.checkRequests})
	}
	return all
}

// eventually repeats a test until it says "" or the time is over, and returns its last word.
func eventually(ctx context.Context, test func(context.Context) string) (problem string) {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	err := cluster.Until(ctx, func(ctx context.Context) (bool, error) {
		if p := test(ctx); p == "" || ctx.Err() == nil { // a test that was cut off says nothing
			problem = p
		}
		return problem == "", nil
	})
	if err != nil && problem == "" {
		return err.Error()
	}
	return problem
}

func (w *World) checkAttachments(ctx context.Context) string {
	attachments, err := w.Attachments(ctx)
	if err != nil {
		return err.Error()
	}
	nodes := map[string]string{}
	for _, p := range w.Pods(namespace) {
		nodes[p.Name] = p.Spec.NodeName
	}
	for _, a := range attachments {
		switch {
		case a.Deleting:
			return fmt.Sprintf("that of %s's volume to %s is still going", a.Pod, a.Node)
		case nodes[a.Pod] != a.Node:
			return fmt.Sprintf("the volume of %s, which is on %s, is attached to %s", a.Pod, nodes[a.Pod], a.Node)
		}
	}
	if len(attachments) != dbPods {
		return fmt.Sprintf("there are %d", len(attachments))
	}
	return ""
}

func (w *World) checkMark(ctx context.Context, r *round) string {
	nodes, err := w.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if marked(n) {
			return n.Name + " is marked"
		}
		if n.Name != r.node {
			continue
		}
		rec, err := taint.RecordOf(n)
		switch {
		case err != nil:
			return err.Error()
		case rec == nil:
			return "there is no record"
		case rec.Phase != taint.PhaseDone || rec.Result != r.result:
			return fmt.Sprintf("it says %s %s", rec.Phase, rec.Result)
		}
	}
	return ""
}

func (w *World) checkPower(ctx context.Context, r *round) string {
	n, err := w.Client().CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	machine := view.NodeOf(view.NodeFacts{Node: n, Key: taint.DefaultKey, Now: time.Now()}).Machine
	if machine.Power != "On" || machine.At.Before(r.zero) {
		return fmt.Sprintf("it is shown as %s of %s", machine.Power, machine.At)
	}
	return ""
}

func marked(n *corev1.Node) bool {
	_, ok := taint.FindMark(n, taint.DefaultKey, "")
	return ok
}

func isTrue(n *corev1.Node, t corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}
