package drainguard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// decision is one guard's decision about a node.
type decision struct {
	g     drain.Guard
	d     drain.Decision
	blind bool // there is no decision: the reported progress stays as it is
}

// reportDrains updates the Nodes' annotations, the Events and the metrics.
func (k *Controller) reportDrains(ctx context.Context, nodes *corev1.NodeList, decided map[string][]decision) {
	k.Metrics.nodes.Reset()
	k.Metrics.left.Reset()
	k.annotated = map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := drain.ProgressOf(node)
		after := map[string]*drain.Progress{}
		auto, known := false, true
		for _, t := range decided[node.Name] {
			if t.blind { // without a view the reported progress stays as it is
				after[t.g.Name], known = before[t.g.Name], false
				continue
			}
			known = known && t.d.Seen
			auto = auto || t.d.Auto
			if p := drain.NextProgress(before[t.g.Name], t.g.Name, t.d, k.Now()); p != nil {
				after[t.g.Name] = p
			}
			k.Metrics.countNode(t)
			k.reportOddities(node, t)
		}
		notes := map[string]string{
			taint.DrainAnnotation:        drain.EncodeProgress(after),
			taint.AutoEvictingAnnotation: node.Annotations[taint.AutoEvictingAnnotation],
		}
		if known {
			notes[taint.AutoEvictingAnnotation] = ""
		}
		if auto {
			notes[taint.AutoEvictingAnnotation] = "true"
		}
		if notes[taint.DrainAnnotation] != "" || notes[taint.AutoEvictingAnnotation] != "" {
			k.annotated[node.Name] = true
		}
		if hasAnnotations(node, notes) {
			continue
		}
		k.retry = true // until the cache has the write
		if err := k.annotateNode(ctx, node.Name, notes); err != nil {
			k.annotated[node.Name] = true
			if !errors.Is(err, kube.ErrAgain) {
				k.warnOnce(ctx, "", "Cannot write the progress of a drain", err)
			}
			continue
		}
		k.reportProgress(node, before, after)
	}
	maps.DeleteFunc(k.reported, func(key, _ string) bool {
		name, _, _ := strings.Cut(key, "\n")
		return decided[name] == nil
	})
}

// hasAnnotations reports whether the Node has these annotations. An empty text means that the annotation is absent or
// empty.
func hasAnnotations(node *corev1.Node, notes map[string]string) bool {
	for key, text := range notes {
		if node.Annotations[key] != text {
			return false
		}
	}
	return true
}

// annotateNode writes the annotations to the live Node. An empty text removes the annotation.
func (k *Controller) annotateNode(ctx context.Context, name string, notes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var live corev1.Node
	if err := k.Live.Get(ctx, client.ObjectKey{Name: name}, &live); err != nil {
		return fmt.Errorf("node %s: reading it live: %w", name, err)
	}
	if hasAnnotations(&live, notes) {
		return nil
	}
	if err := k.writer.AnnotateNode(ctx, &live, notes); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

// reportProgress sends an Event to the Node when its drain starts or stops to be held up, and logs it.
func (k *Controller) reportProgress(node *corev1.Node, before, after map[string]*drain.Progress) {
	for name, p := range after {
		if old := before[name]; old == nil || old.Unknown != p.Unknown || old.Policy != p.Policy ||
			old.NoBudget != p.NoBudget {
			k.Log.Info("Drain is held up",
				"node", node.Name, "guard", name, "policy", string(p.Policy), "left", p.Left, "why", p.Summary())
			if !p.NoBudget {
				k.sendEvent(node, nil, reason.DrainHeld, "Drain",
					"{node}", node.Name, "{by}", name+", policy "+string(p.Policy), "{detail}", p.Summary())
			}
		}
	}
	for name, p := range before {
		if after[name] == nil && node.Spec.Unschedulable {
			took := k.Now().Sub(p.Since).Round(time.Second)
			k.Log.Info("Drain is no longer held up", "node", node.Name, "guard", name, "after", took)
			k.sendEvent(node, nil, reason.DrainAllowed, "Drain",
				"{by}", name, "{detail}", fmt.Sprintf("it waited for %s; replicas: %d", took, p.Total))
		}
	}
}

// reportOddities sends an Event to the Node about each oddity, once until the oddity changes.
func (k *Controller) reportOddities(node *corev1.Node, t decision) {
	now := map[reason.Reason]string{reason.DrainNotOurs: "", reason.DrainNotGuarded: ""}
	for _, o := range t.d.Oddities {
		now[o.Reason] = o.Detail
	}
	for why, detail := range now {
		key := strings.Join([]string{node.Name, t.g.Name, string(why)}, "\n")
		if k.reported[key] != detail && detail != "" {
			k.Log.Warn("Drain is not guarded",
				"node", node.Name, "guard", t.g.Name, "why", string(why), "detail", detail)
			k.sendEvent(node, nil, why, "Drain", "{detail}", detail)
		}
		if k.reported[key] = detail; detail == "" {
			delete(k.reported, key)
		}
	}
}

// countNode adds one guard's decision about a node to the metrics.
func (m *Metrics) countNode(t decision) {
	add := func(state string, is bool) {
		n := 0.0
		if is {
			n = 1
		}
		m.nodes.WithLabelValues(t.g.Name, state).Add(n)
	}
	add("held", t.d.IsBlocked() && t.d.Held)
	add("auto_evicting", t.d.Auto)
	add("not_guarded", len(t.d.Oddities) > 0)
	m.left.WithLabelValues(t.g.Name).Add(float64(len(t.d.Blockers)))
}
