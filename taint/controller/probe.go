package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// Probe asks every node's machine now and then, while nothing is wrong, so that a BMC that is down, a password that expired or a
// node that nobody knows is told before it is needed. Its answers prove nothing and are not kept. It tells what changed: once in
// the log and as an Event on the Node; forcefence_machines counts the rest.
type Probe struct {
	Reconciler *Reconciler
	Every      time.Duration // default 5m; a round with failures is repeated after a tenth of it
	told       map[string]string
}

// probers is how many machines are asked at the same time, and probeRate how many in a second once as many were. A connection to a
// device stays open for a while in case it is needed again: a thousand at once cost 45 MB (make bench RUN=memory), and a management
// network is not made for them.
const (
	probers   = 8
	probeRate = 2
)

// Start blocks until ctx ends. It runs on the leader.
func (p *Probe) Start(ctx context.Context) error {
	if p.Every <= 0 {
		p.Every = 5 * time.Minute
	}
	p.told = map[string]string{}
	for {
		wait := p.Every
		if bad := p.round(ctx); bad > 0 {
			wait = p.Every / 10
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// round asks every machine once and returns how many cannot be asked.
func (p *Probe) round(ctx context.Context) int {
	r := p.Reconciler
	var nodes corev1.NodeList
	if err := r.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Warn("Cannot list nodes", "error", err)
		return 1
	}
	names := make([]string, len(nodes.Items))
	for i := range nodes.Items {
		names[i] = nodes.Items[i].Name
	}
	var mu sync.Mutex // guards results
	results := map[string]string{}
	pace := rate.NewLimiter(probeRate, probers)
	var g errgroup.Group
	g.SetLimit(probers)
	for _, name := range names {
		if pace.Wait(ctx) != nil {
			break
		}
		g.Go(func() error {
			var node corev1.Node
			if r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node) != nil {
				return nil // deleted meanwhile
			}
			class, text := p.one(ctx, &node)
			mu.Lock()
			defer mu.Unlock()
			results[name] = class
			p.tell(&node, class, text)
			return nil
		})
	}
	_ = g.Wait() // one returns no error
	if ctx.Err() != nil {
		return 0
	}
	maps.DeleteFunc(p.told, func(n, _ string) bool { _, ok := results[n]; return !ok })
	r.Metrics.machines.Reset()
	bad := 0
	for _, class := range results {
		r.Metrics.machines.WithLabelValues(class).Inc()
		if class != "ok" {
			bad++
		}
	}
	return bad
}

// one asks one machine and returns a word of a closed set and a text.
func (p *Probe) one(ctx context.Context, node *corev1.Node) (class, text string) {
	r := p.Reconciler
	rec, _ := taint.RecordOf(node) // one that cannot be read leads nowhere
	m, err := r.Config().Believed(node, rec)
	if err != nil {
		return "no_machine", fmt.Sprintf("No provider can say whether this node's machine is off: %v. This node will not be fenced.", err)
	}
	all := m.Ask(ctx, r.Now)
	v := m.Verdict(all)
	if errors.Is(v.Err, proof.ErrDisagree) {
		return "disagree", fmt.Sprintf("The devices of this node contradict each other (%s). This node could not be fenced at present.", v.Raw)
	}
	// One that does not answer is told, though another does: it is found out now, and not when it is the last.
	could := "This node could not be fenced at present."
	if v.State != providers.PowerUnknown {
		could = "Another device of this node answers."
	}
	texts := []string{}
	for i, d := range m.Devices() {
		switch a := all[i]; {
		case a.Err != nil:
			return providers.Class(a.Err), fmt.Sprintf("Device %s cannot say whether the machine is on (%s). %s", d.Device, providers.Cause(a.Err), could)
		case a.State == providers.PowerUnknown:
			return "unknown", fmt.Sprintf("Device %s answers with an unknown word (%q). %s", d.Device, a.Raw, could)
		default:
			texts = append(texts, fmt.Sprintf("Device %s answers: %s.", d.Device, a.State))
		}
	}
	return "ok", strings.Join(texts, " ")
}

// tell says what changed.
func (p *Probe) tell(node *corev1.Node, class, text string) {
	before := p.told[node.Name]
	if before == class || before == "" && class == "ok" {
		p.told[node.Name] = class
		return
	}
	p.told[node.Name] = class
	if class == "ok" {
		p.Reconciler.Log.Info("Machine answers again", "node", node.Name)
		p.Reconciler.event(node, reason.Answers, "Probe", "{detail}", text)
		return
	}
	p.Reconciler.Log.Warn("Machine does not answer", "node", node.Name, "why", class, "detail", text)
	p.Reconciler.event(node, reason.NotAnswering, "Probe", "{detail}", text)
}
