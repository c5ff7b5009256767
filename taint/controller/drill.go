package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// Drills asks every node's devices now and then, while nothing is wrong, so that a BMC that is down, a password that expired or a
// node that nobody knows is told before it is needed. Its answers prove nothing and are not kept. It tells what changed: in the condition
// taint.FenceableCondition, once in the log and as an Event on the Node; the metrics count the rest. Who is asked when, and what an answer
// is worth, package drill decides. A node that is being fenced is left out: its devices are being asked already.
//
// A connection to a device stays open for a while in case it is needed again: a thousand at once cost 45 MB (make bench RUN=memory), and a
// management network is not made for them. So the plan has a pace.
type Drills struct {
	Reconciler *Reconciler
	Every      time.Duration // default 5m; after a failure a tenth of it

	listed time.Time // when the nodes were: next's alone

	mu    sync.Mutex // guards what follows
	plan  drill.Plan
	found map[string]found
}

// found is what the last drill of a node told, for the Events and the metrics that it is to be taken out of.
type found struct {
	result  string
	devices [][2]string // the labels of forcefence_drill_devices
}

// Start blocks until ctx ends and what it began has returned. It runs on the leader.
func (p *Drills) Start(ctx context.Context) error {
	p.init()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		name, wait := p.next(ctx)
		if name != "" {
			work.Go(func() { p.drill(ctx, name) })
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (p *Drills) init() {
	if p.Every <= 0 {
		p.Every = 5 * time.Minute
	}
	p.plan, p.found = drill.Plan{Every: p.Every, Again: p.Every / 10}, map[string]found{}
}

// next returns the node whose turn it is, or "" and how long to wait.
func (p *Drills) next(ctx context.Context) (string, time.Duration) {
	r := p.Reconciler
	if now := r.Now(); r.moved.Since(p.listed, now) {
		if err := p.list(ctx); err != nil {
			if ctx.Err() == nil {
				r.Log.Warn("Cannot list nodes", "error", err)
			}
			return "", p.Every / 10
		}
		p.listed = now
	}
	if ctx.Err() != nil {
		return "", 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan.Next(r.Now())
}

// list tells the plan who is there, and forgets what was found of nodes that are gone.
func (p *Drills) list(ctx context.Context) error {
	nodes, err := kube.CachedNodes(ctx, p.Reconciler.Cache)
	if err != nil {
		return err
	}
	names := make([]string, len(nodes))
	there := make(map[string]bool, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
		there[n.Name] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan.Nodes(names)
	for name := range p.found {
		if !there[name] {
			p.count(name, found{})
		}
	}
	return nil
}

// drill asks one node's devices and tells what it found.
func (p *Drills) drill(ctx context.Context, name string) {
	r := p.Reconciler
	ok := true
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.plan.Done(name, ok, r.Now())
	}()
	var node corev1.Node
	if r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node) != nil || taint.IsFenced(&node, r.Key) {
		return // deleted meanwhile, or being fenced
	}
	seen := r.Config().Drill(ctx, &node, r.liar, r.now)
	if ctx.Err() != nil {
		return
	}
	if len(seen.Devices) > 0 {
		r.across(func(f *fleet.Fleet) { f.Reached(name, seen.Verdict) })
	}
	f := drill.Judge(seen)
	ok = f.OK()
	now := found{result: f.Result}
	for _, d := range seen.Devices {
		now.devices = append(now.devices, [2]string{d.Answer.By, d.Result()})
		r.Metrics.drillTook.WithLabelValues(d.Answer.By).Observe(d.Took.Seconds())
	}
	p.mu.Lock()
	before := p.found[name].result
	p.count(name, now)
	p.mu.Unlock()
	p.tell(&node, before, f)
	if err := p.write(ctx, &node, f); err != nil {
		ok = false
		if !errors.Is(err, kube.ErrAgain) && ctx.Err() == nil {
			r.Log.Warn("Could not write whether a node can be fenced", "node", name, "error", err)
		}
	}
}

// liar names the node whose record keeps a device from being believed; "" for none.
func (r *Reconciler) liar(m machine.Machine) (by string) {
	r.across(func(f *fleet.Fleet) { by = f.Distrusted(m.Identity, m.Device, m.Target.Node) })
	return by
}

// Drill asks every device that speaks for the node, all at once, each for as long as it may take. liar names the node whose record keeps a
// device from being believed. It blocks for the devices alone.
func (p *Config) Drill(
	ctx context.Context, node *corev1.Node, liar func(machine.Machine) string, now func() providers.Instant,
) drill.Seen {
	rec, _ := taint.RecordOf(node) // one that cannot be read leads nowhere
	led, _ := p.Machines.Led(node) // its mode is the rule's, also where the machine's power may not be touched
	mode := p.mode(node, led.Mode)
	if mode.Mode == fence.Disabled {
		return drill.Seen{Disabled: cmp.Or(mode.By, "mode disabled")}
	}
	m, err := p.Machines.Find(node, rec)
	s := drill.Seen{None: err, NotBelieved: errors.Is(err, machine.ErrNotBelieved), PowerOff: mode.Mode == fence.Fence || mode.Mode == fence.Shadow}
	if fence.IsVMHost(node.Labels) && !p.Fence.VMHosts {
		s.KeptOn = "it is a host of KubeVirt (stormGuard.kubeVirtHosts: never)"
	}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == taint.FenceableCondition:
			s.Before = c.Status
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			if _, b, _ := p.Machines.Believe(node, rec, true); b.Pin != "" {
				m.NoPower = "" // its pin is about to be written
			}
		}
	}
	if err != nil {
		return s
	}
	devices := m.Devices()
	s.Devices = make([]drill.Device, len(devices))
	answers := make([]providers.Answer, len(devices))
	var wait sync.WaitGroup
	for i, d := range devices {
		wait.Go(func() {
			begun := time.Now() // how long it took is no matter of the protocol's clock
			a := providers.Ask(providers.ForDrill(ctx), d.Provider, d.Name, d.Target, now)
			s.Devices[i] = drill.Device{
				Name: d.Device, Target: d.Target, NoPower: d.NoPower, Feeds: d.Feeds, Liar: liar(d), Answer: a,
				Took: time.Since(begun),
			}
			if answers[i] = a; s.Devices[i].Liar != "" {
				answers[i] = proof.Distrusted(a)
			}
		})
	}
	wait.Wait()
	all := s.Devices
	s.Devices = nil
	for i, d := range all { // a person who says nothing is no fault beside a device that answers
		if !devices[i].Quiet || d.Answer.Err != nil || m.AllQuiet() {
			s.Devices = append(s.Devices, d)
		}
	}
	s.Verdict = m.Verdict(answers)
	return s
}

// count takes what was found of a node before out of the metrics, and puts this in. The caller holds mu.
func (p *Drills) count(name string, now found) {
	m := p.Reconciler.Metrics
	before, had := p.found[name]
	if had {
		m.machines.WithLabelValues(before.result).Dec()
	}
	for _, d := range before.devices {
		m.drilled.WithLabelValues(d[0], d[1]).Dec()
	}
	if now.result == "" {
		delete(p.found, name)
		return
	}
	m.machines.WithLabelValues(now.result).Inc()
	for _, d := range now.devices {
		m.drilled.WithLabelValues(d[0], d[1]).Inc()
	}
	p.found[name] = now
}

// tell says what changed.
func (p *Drills) tell(node *corev1.Node, before string, f drill.Finding) {
	switch {
	case before == f.Result, before == "" && f.OK():
	case f.Result == drill.Disabled:
		p.Reconciler.Log.Info("Machine is not asked any more", "node", node.Name, "why", f.Detail)
	case f.OK():
		p.Reconciler.Log.Info("Machine answers again", "node", node.Name)
		p.Reconciler.event(node, reason.Answers, "Probe", "{detail}", f.Detail)
	default:
		p.Reconciler.Log.Warn("Machine does not answer", "node", node.Name, "why", f.Result, "detail", f.Detail)
		p.Reconciler.event(node, reason.NotAnswering, "Probe", "{detail}", f.Detail)
	}
}

// write brings the condition up to date. It reads and writes only where that differs from the cache, and not while the node is fenced.
func (p *Drills) write(ctx context.Context, node *corev1.Node, f drill.Finding) error {
	r := p.Reconciler
	if says(node, f) {
		return nil
	}
	live, l, err := kube.Look(ctx, r.Live, node.Name, r.Key, r.Now)
	switch {
	case err != nil:
		return err
	case !l.Exists, taint.IsFenced(live, r.Key), says(live, f):
		return nil
	}
	if err := r.writer.Fenceable(ctx, l, f.Fenceable, string(f.Reason), f.Message); err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	return nil
}

// says reports that the condition of a Node is this finding, and of after its last fence: what stood there before was of a machine that
// has been off since.
func says(node *corev1.Node, f drill.Finding) bool {
	rec, _ := taint.RecordOf(node)
	for _, c := range node.Status.Conditions {
		if c.Type == taint.FenceableCondition {
			return c.Status == f.Fenceable && c.Reason == string(f.Reason) && c.Message == f.Message &&
				(rec == nil || !c.LastHeartbeatTime.Time.Before(rec.At.Truncate(time.Second)))
		}
	}
	return false
}
