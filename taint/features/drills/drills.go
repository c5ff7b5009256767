// Package drills asks every node's devices regularly while nothing is wrong, and reports what changed. So a BMC that is
// down, a password that expired and a node without a machine are known before they matter. Package taint/view/drill
// decides who is asked when, and what an answer is worth. Drills write one condition of healthy Nodes. They also write
// which devices named a node's machine (taint.NamedLabel). Their answers prove nothing.
package drills

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// Options is all that Drills are made of. Every field is required, except where noted.
type Options struct {
	Live    client.Reader // reads from the API server, not from a cache
	Cache   client.Reader // the informers
	Client  client.Client // writes
	Events  events.EventRecorder
	Log     *slog.Logger
	Metrics *Metrics
	Config  func() *controller.Config
	// ConfigSince returns when the configuration was put in force. Conditions that are older are written again.
	ConfigSince func() time.Time
	Leading     func() error // nil while this process is sure to be the leader
	// WithFleet lends the memory across nodes to a function, which must not block.
	WithFleet func(func(*fleet.Fleet))
	// ShouldList reports whether it is time to list the nodes again, which were last listed at listed.
	ShouldList func(listed, now time.Time) bool
	Key        string // the mark's
	Now        providers.Clock
	every      time.Duration // how often a node is drilled; after a failure it waits a tenth of that. 0: 5m
}

// Drills ask the nodes' devices, one node after the other. They report what changed in the condition
// taint.FenceableCondition, once in the log, and as an Event on the Node. The metrics count the rest. The answers are
// not kept. A node that is being fenced is left out: its devices are being asked already.
//
// A connection to a device stays open for a while in case it is needed again: a thousand at once cost 45 MB
// (measured once), and a management network is not made for them. So the plan has a pace.
type Drills struct {
	Options
	writer kube.Writer

	listed time.Time // when the nodes were; nextNode alone uses it

	mu    sync.Mutex // guards what follows
	plan  drill.Plan
	found map[string]found
}

// found is what the last drill of a node found. The metrics forget it before they count the next.
type found struct {
	result    string
	shown     string      // the result of which people were last informed: none of a node that is not Ready
	led       string      // describeDevices
	fenceable string      // the label of forcefence_node_fenceable
	devices   [][2]string // the labels of forcefence_drill_devices
}

// New returns Drills.
func New(o Options) *Drills {
	if o.every <= 0 {
		o.every = 5 * time.Minute
	}
	return &Drills{
		Options: o, writer: kube.Writer{Client: o.Client, Key: o.Key, Leading: o.Leading, Now: o.Now},
		plan: drill.Plan{Every: o.every, RetryEvery: o.every / 10}, found: map[string]found{},
	}
}

// Start blocks until ctx ends and what it began has returned. It runs on the leader.
func (d *Drills) Start(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		name, wait := d.nextNode(ctx)
		if name != "" {
			work.Go(func() { d.drillNode(ctx, name) })
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// nextNode returns the node whose turn it is, or "" and how long to wait.
func (d *Drills) nextNode(ctx context.Context) (string, time.Duration) {
	if now := d.Now(); d.ShouldList(d.listed, now) {
		if err := d.listNodes(ctx); err != nil {
			if ctx.Err() == nil {
				d.Log.Warn("Cannot list nodes", "error", err)
			}
			return "", d.every / 10
		}
		d.listed = now
	}
	if ctx.Err() != nil {
		return "", 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.Next(d.Now())
}

// ObserveUpdate takes an update of a Node. A node that is Ready again is drilled at once, as soon as no fence is open:
// what was last seen of its machine is from before. So is a node that is led to another machine or device: until then
// all that is shown of it is about the one before. It does not block.
func (d *Drills) ObserveUpdate(before, now *corev1.Node) {
	if !taint.IsFenced(now, d.Key) && mayLeadElsewhere(before, now) {
		d.bringChangedFirst(now)
	}
	if d.mayDrill(before) || !d.mayDrill(now) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan.BringForward(now.Name, d.Now())
}

// ObserveConfig takes a change of the configuration: every node is drilled as soon as the pace allows, because its
// devices may be others now. Nodes with another machine or device come first. It does not block.
func (d *Drills) ObserveConfig() {
	d.mu.Lock()
	d.plan.BringAllForward(d.Now())
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // memory alone, once the informer has started
	defer cancel()
	nodes, err := kube.CachedNodes(ctx, d.Cache)
	if err != nil {
		d.Log.Warn("Cannot list nodes", "error", err)
		return
	}
	d.bringChangedFirst(nodes...)
}

// mayLeadElsewhere reports whether something changed of a Node by which a configuration finds its machine.
func mayLeadElsewhere(before, now *corev1.Node) bool {
	return !maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations) ||
		before.Spec.ProviderID != now.Spec.ProviderID ||
		before.Status.NodeInfo.SystemUUID != now.Status.NodeInfo.SystemUUID ||
		!slices.Equal(before.Status.Addresses, now.Status.Addresses)
}

// bringChangedFirst drills those nodes before all others whose devices are not those of their last drill.
func (d *Drills) bringChangedFirst(nodes ...*corev1.Node) {
	config := d.Config()
	for _, n := range nodes {
		led := describeDevices(config, n)
		d.mu.Lock()
		if found, asked := d.found[n.Name]; asked && found.led != led {
			d.plan.BringFirst(n.Name, d.Now())
		}
		d.mu.Unlock()
	}
}

// describeDevices returns a text that changes if a node's mode or devices do, or why it has none.
func describeDevices(config *controller.Config, node *corev1.Node) string {
	rec, _ := taint.RecordOf(node) // one that cannot be read leads nowhere
	m, err := config.Machines.FindMachine(node, rec)
	parts := []string{config.Mode(node).Mode.String(), providers.ErrorText(err)}
	if err == nil {
		for _, device := range m.Devices() {
			parts = append(parts, device.Device, device.Target.ID)
		}
	}
	return strings.Join(parts, "\n")
}

// mayDrill reports whether a Node is Ready and not being fenced.
func (d *Drills) mayDrill(node *corev1.Node) bool {
	return isReady(node) && !taint.IsFenced(node, d.Key)
}

// isReady reports whether the API server has the node as Ready.
func isReady(node *corev1.Node) bool {
	return taint.Condition(node, corev1.NodeReady).Status == corev1.ConditionTrue
}

// listNodes updates the plan's nodes, and forgets what was found of nodes that are gone.
func (d *Drills) listNodes(ctx context.Context) error {
	nodes, err := kube.CachedNodes(ctx, d.Cache)
	if err != nil {
		return err
	}
	names := make([]string, len(nodes))
	there := make(map[string]bool, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
		there[n.Name] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan.SetNodes(names)
	for name := range d.found {
		if !there[name] {
			d.countNode(name, found{})
		}
	}
	return nil
}

// drillNode asks one node's devices and reports what it found.
func (d *Drills) drillNode(ctx context.Context, name string) {
	ok := true
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.plan.FinishDrill(name, ok, d.Now())
	}()
	var node corev1.Node
	if d.Cache.Get(ctx, client.ObjectKey{Name: name}, &node) != nil || taint.IsFenced(&node, d.Key) {
		return // deleted meanwhile, or being fenced
	}
	config := d.Config()
	seen := AskDevices(ctx, config, &node, machine.DistrustedBy(d.WithFleet), d.Now.Instant)
	if ctx.Err() != nil {
		return
	}
	if config != d.Config() {
		ok = false // these are the devices of the former configuration
		return
	}
	if len(seen.Devices) > 0 {
		d.WithFleet(func(f *fleet.Fleet) { f.ApplyReachability(name, seen.Verdict) })
	}
	f := drill.FindingOf(seen)
	ok = f.OK()
	now := found{result: f.Result, led: describeDevices(config, &node), fenceable: fenceableWord(f)}
	for _, device := range seen.Devices {
		now.devices = append(now.devices, [2]string{device.Answer.By, device.Result()})
		d.Metrics.seconds.WithLabelValues(device.Answer.By).Observe(device.Duration.Seconds())
	}
	d.mu.Lock()
	before := d.found[name].shown
	if now.shown = before; isReady(&node) {
		now.shown = f.Result
	}
	d.countNode(name, now)
	d.mu.Unlock()
	d.reportFinding(&node, before, f)
	conflicts := func(err error) bool { return errors.Is(err, kube.ErrAgain) }
	if err := retry.OnError(retry.DefaultRetry, conflicts, func() error {
		return errors.Join(d.writeNamed(ctx, &node, seen), d.writeCondition(ctx, &node, f, drill.AnswersOf(seen)))
	}); err != nil {
		ok = false
		if !conflicts(err) && ctx.Err() == nil {
			d.Log.Warn("Cannot write what a drill of a node found", "node", name, "error", err)
		}
	}
}

// fenceableWord returns the label of a finding in the metric of nodes by what their drill proved.
func fenceableWord(f drill.Finding) string {
	switch {
	case f.Result == drill.Disabled:
		return "disabled"
	case f.Fenceable == corev1.ConditionTrue:
		return "yes"
	case f.Fenceable == corev1.ConditionFalse:
		return "no"
	default:
		return "unknown"
	}
}

// countNode removes from the metrics what was found of a node before, and adds what was found now. The zero found is a
// node that is gone. The caller holds mu.
func (d *Drills) countNode(name string, now found) {
	m := d.Metrics
	before, had := d.found[name]
	if had {
		m.machines.WithLabelValues(before.result).Dec()
		m.fenceable.WithLabelValues(before.fenceable).Dec()
	}
	for _, labels := range before.devices {
		m.devices.WithLabelValues(labels[0], labels[1]).Dec()
	}
	if now.result == "" {
		delete(d.found, name)
		return
	}
	m.machines.WithLabelValues(now.result).Inc()
	m.fenceable.WithLabelValues(now.fenceable).Inc()
	for _, labels := range now.devices {
		m.devices.WithLabelValues(labels[0], labels[1]).Inc()
	}
	d.found[name] = now
}

// reportFinding reports what changed since the last drill that people were informed of, whose result is before; "" is
// none. It reports nothing of a node that is not Ready: an Event would hide the fence's own, which says why a person is
// needed. What is still wrong once the node is Ready is reported then.
func (d *Drills) reportFinding(node *corev1.Node, before string, f drill.Finding) {
	to := kube.Events{To: d.Events, Leading: d.Leading}
	switch {
	case !isReady(node):
	case before == f.Result, before == "" && f.OK():
	case f.Result == drill.Disabled:
		d.Log.Info("Drills of a node are disabled", "node", node.Name, "why", f.Detail)
	case f.OK():
		d.Log.Info("Machine answers again", "node", node.Name)
		to.Send(node, nil, reason.Answers, "Probe", "{detail}", f.Detail)
	default:
		d.Log.Warn("Machine does not answer", "node", node.Name, "why", f.Result, "detail", f.Detail)
		to.Send(node, nil, reason.NotAnswering, "Probe", "{detail}", f.Detail)
	}
}

// writeCondition updates the condition, and the answers beside it. It reads and writes only if the cached ones differ,
// and not while the node is fenced.
func (d *Drills) writeCondition(ctx context.Context, node *corev1.Node, f drill.Finding, answers drill.Answers) error {
	since := d.ConfigSince()
	if hasFinding(node, f, answers, since) {
		return nil
	}
	live, l, err := kube.ReadNode(ctx, d.Live, node.Name, d.Key, d.Now)
	switch {
	case err != nil:
		return err
	case !l.Exists, taint.IsFenced(live, d.Key), hasFinding(live, f, answers, since):
		return nil
	}
	at := d.Now()
	if err := d.writer.SetFenceable(ctx, l, at, f.Fenceable, string(f.Reason), f.Message,
		answers.Encode(at)); err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	return nil
}

// writeNamed adds the devices that named the node's machine just now to its label, so that every later leader knows. It
// reads and writes only if one is missing there, and not while the node is fenced. A device that names no machine any
// more is not taken off: a person decides that.
func (d *Drills) writeNamed(ctx context.Context, node *corev1.Node, seen drill.Facts) error {
	var machines, named []taint.MachineRef
	for _, device := range seen.Devices {
		m := taint.MachineRef{Provider: device.Answer.By, ID: device.Target.ID,
			SystemUUID: providers.CanonicalUUID(device.Target.SystemUUID)}
		machines = append(machines, m)
		if device.Answer.Err == nil && device.Target.IsNamedBy(device.Answer.Observation) {
			named = append(named, m)
		}
	}
	missing := func(n *corev1.Node) bool {
		label := n.Labels[taint.NamedLabel]
		return taint.AddNamed(label, machines, named) != label
	}
	if !missing(node) {
		return nil
	}
	live, l, err := kube.ReadNode(ctx, d.Live, node.Name, d.Key, d.Now)
	switch {
	case err != nil:
		return err
	case !l.Exists, live.UID != node.UID, taint.IsFenced(live, d.Key), !missing(live):
		return nil
	}
	label := taint.AddNamed(live.Labels[taint.NamedLabel], machines, named)
	if err := d.writer.NameMachine(ctx, l, label); err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	return nil
}

// hasFinding reports whether a Node has this finding and these answers, written after the node's last fence, after it
// became not Ready, and since the configuration is in force. A condition from before the fence is about a machine that
// has been off since. One from before the outage does not say what a device answers now.
func hasFinding(node *corev1.Node, f drill.Finding, answers drill.Answers, configured time.Time) bool {
	rec, _ := taint.RecordOf(node)
	c := taint.Condition(node, taint.FenceableCondition)
	return c.Status == f.Fenceable && c.Reason == string(f.Reason) && c.Message == f.Message &&
		drill.AnswersIn(node).IsSame(answers) && !drill.IsOlder(c, configured) && !isFromBefore(node, c) &&
		(rec == nil || !c.LastHeartbeatTime.Time.Before(rec.At.Truncate(time.Second)))
}

// isFromBefore reports whether a node is not Ready, and the condition is older than that.
func isFromBefore(node *corev1.Node, c corev1.NodeCondition) bool {
	ready := taint.Condition(node, corev1.NodeReady)
	return ready.Status != "" && ready.Status != corev1.ConditionTrue &&
		c.LastHeartbeatTime.Before(&ready.LastTransitionTime)
}
