package drainguard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Metrics are the Controller's; no label holds a node's name.
type Metrics struct {
	nodes     *prometheus.GaugeVec
	left      *prometheus.GaugeVec
	evictions *prometheus.CounterVec
	delegated *prometheus.GaugeVec
}

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_nodes", Help: "Nodes by drain guard and state: held (a drain waits), auto_evicting (replicas leave because forcefence asked), not_guarded.",
		}, []string{"guard", "state"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_replicas_left", Help: "Replicas that hold drains up, by drain guard.",
		}, []string{"guard"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_drain_evictions_total", Help: "Requests for a replica's eviction, by drain guard and result: asked, taken_back.",
		}, []string{"guard", "result"}),
		delegated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_delegated", Help: "1 if the storage system's own setting is the drain guard's policy, 0 if it is not.",
		}, []string{"guard"}),
	}
	reg.MustRegister(m.nodes, m.left, m.evictions, m.delegated)
	return m
}

// event sends the Event about an object, unless another process leads by now.
func (k *Controller) event(about, related runtime.Object, why reason.Reason, action string, words ...string) {
	row := reason.Of(why)
	if k.Leading() != nil {
		return
	}
	kind := corev1.EventTypeNormal
	if row.Severity == reason.Warning {
		kind = corev1.EventTypeWarning
	}
	k.Events.Eventf(about, related, kind, string(why), action, "%s", row.Note(words...))
}

// tell brings the Nodes' annotations, the Events and the metrics up to date.
func (k *Controller) tell(ctx context.Context, nodes *corev1.NodeList, decided map[string][]told) {
	k.Metrics.nodes.Reset()
	k.Metrics.left.Reset()
	k.drained = map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := drain.ProgressOf(node)
		after := map[string]*drain.Progress{}
		auto, known := false, true
		for _, t := range decided[node.Name] {
			if t.blind { // as long as nothing is seen what was told stands
				after[t.g.Name], known = before[t.g.Name], false
				continue
			}
			known = known && t.d.Seen
			auto = auto || t.d.Auto
			if p := drain.Follow(before[t.g.Name], t.g, t.d, k.Now()); p != nil {
				after[t.g.Name] = p
			}
			k.count(t)
			k.tellOdd(node, t)
		}
		notes := map[string]string{taint.DrainAnnotation: drain.Encode(after), taint.AutoEvictingAnnotation: node.Annotations[taint.AutoEvictingAnnotation]}
		if known {
			notes[taint.AutoEvictingAnnotation] = ""
		}
		if auto {
			notes[taint.AutoEvictingAnnotation] = "true"
		}
		if notes[taint.DrainAnnotation] != "" || notes[taint.AutoEvictingAnnotation] != "" {
			k.drained[node.Name] = true
		}
		if noted(node, notes) {
			continue
		}
		k.again = true // until the cache has it
		if err := k.annotate(ctx, node.Name, notes); err != nil {
			k.drained[node.Name] = true
			if !errors.Is(err, kube.ErrAgain) {
				k.say(ctx, "", "Could not write what holds up a drain", err)
			}
			continue
		}
		k.tellProgress(node, before, after)
	}
	maps.DeleteFunc(k.odd, func(key, _ string) bool {
		name, _, _ := strings.Cut(key, "\n")
		return decided[name] == nil
	})
}

func noted(node *corev1.Node, notes map[string]string) bool {
	for key, text := range notes {
		if node.Annotations[key] != text {
			return false
		}
	}
	return true
}

// annotate writes the annotations; an empty one goes.
func (k *Controller) annotate(ctx context.Context, name string, notes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var live corev1.Node
	if err := k.Live.Get(ctx, client.ObjectKey{Name: name}, &live); err != nil {
		return fmt.Errorf("node %s: reading it live: %w", name, err)
	}
	if noted(&live, notes) {
		return nil
	}
	if err := k.writer.Annotate(ctx, &live, notes); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

// tellProgress says on the Node that a drain is held up, and that it is not any more.
func (k *Controller) tellProgress(node *corev1.Node, before, after map[string]*drain.Progress) {
	for name, p := range after {
		if old := before[name]; old == nil || old.Unknown != p.Unknown || old.Policy != p.Policy || old.Bare != p.Bare {
			k.Log.Info("Drain is held up", "node", node.Name, "guard", name, "policy", string(p.Policy), "left", p.Left, "why", p.Summary())
			if !p.Bare {
				k.event(node, nil, reason.DrainHeld, "Drain", "{node}", node.Name, "{by}", name+", policy "+string(p.Policy), "{detail}", p.Summary())
			}
		}
	}
	for name, p := range before {
		if after[name] == nil && node.Spec.Unschedulable {
			took := k.Now().Sub(p.Since).Round(time.Second)
			k.Log.Info("Drain is held up no more", "node", node.Name, "guard", name, "after", took)
			k.event(node, nil, reason.DrainAllowed, "Drain", "{by}", name, "{detail}", fmt.Sprintf("%d replicas held it up, for %s", p.Total, took))
		}
	}
}

// tellOdd says on the Node what a person should know, once.
func (k *Controller) tellOdd(node *corev1.Node, t told) {
	now := map[reason.Reason]string{reason.DrainNotOurs: "", reason.DrainNotGuarded: ""}
	for _, o := range t.d.Odd {
		now[o.Reason] = o.Detail
	}
	for why, detail := range now {
		key := strings.Join([]string{node.Name, t.g.Name, string(why)}, "\n")
		if k.odd[key] != detail && detail != "" {
			k.Log.Warn("Drain is not guarded", "node", node.Name, "guard", t.g.Name, "why", string(why), "detail", detail)
			k.event(node, nil, why, "Drain", "{detail}", detail)
		}
		if k.odd[key] = detail; detail == "" {
			delete(k.odd, key)
		}
	}
}

func (k *Controller) count(t told) {
	add := func(state string, is bool) {
		n := 0.0
		if is {
			n = 1
		}
		k.Metrics.nodes.WithLabelValues(t.g.Name, state).Add(n)
	}
	add("held", t.d.Blocked() && t.d.Held)
	add("auto_evicting", t.d.Auto)
	add("not_guarded", len(t.d.Odd) > 0)
	k.Metrics.left.WithLabelValues(t.g.Name).Add(float64(len(t.d.Blockers)))
}
