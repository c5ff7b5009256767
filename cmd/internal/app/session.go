package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/features/drills"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// Session lets a person's commands ask devices. It follows the same rules of the configuration, the same identity
// checks and the same limiters as the controller. It uses the Nodes as they were when it was opened. It writes nothing
// to the API server.
type Session struct {
	client client.Client
	wait   time.Duration
	confs  *configs
	key    string
	nodes  []corev1.Node
}

// OpenSession reads all Nodes, because the assignment of machines by the configuration depends on all of them. c reads
// from the API server. It asks no device.
func OpenSession(ctx context.Context, cfg *config.Config, c client.Client, log *slog.Logger) (*Session, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	d := &Session{client: c, wait: cfg.PowerOffTimeout, key: cfg.TaintKey, nodes: list.Items}
	o := Options{Log: log, Namespace: leaderNamespace(ctx, c)}
	var err error
	if d.confs, err = newConfigs(o, prometheus.NewRegistry(), listedNodes(d.nodes)); err != nil {
		return nil, err
	}
	d.confs.providers.live = c
	return d, d.confs.applyConfig(cfg)
}

// leaderNamespace returns the controller's namespace, by its Lease, or this process's own if that names none.
func leaderNamespace(ctx context.Context, c client.Reader) string {
	if l, err := ReadLeader(ctx, c, time.Now()); err == nil && l.Namespace != "" {
		return l.Namespace
	}
	return podNamespace()
}

// LostLeader reports whether the controllers' Lease has no leader now. It is false if the Lease is missing or cannot be
// read: a controller without leader election has none.
func (d *Session) LostLeader(ctx context.Context) bool {
	l, err := ReadLeader(ctx, d.client, time.Now())
	return err == nil && l.Lease != "" && !l.Leads
}

// Close releases the devices' sessions and connections.
func (d *Session) Close() { d.confs.providers.closeAll() }

// NodeNames returns the names of all nodes.
func (d *Session) NodeNames() (out []string) {
	for i := range d.nodes {
		out = append(out, d.nodes[i].Name)
	}
	return out
}

// MissingNodes warns of items in the configuration's lists that name no node.
func (d *Session) MissingNodes() config.Errors {
	return d.confs.activeFile().MissingNodes(d.NodeNames())
}

// OwnFiles returns the files with a node's own secrets for a provider.
func (d *Session) OwnFiles(provider, node string) []config.OwnFile {
	return d.confs.activeFile().OwnFiles(provider, node)
}

// falseOffNode returns the node whose record says that a device must not be believed; "" if there is none.
func (d *Session) falseOffNode(m machine.Machine) string {
	for i := range d.nodes {
		node := &d.nodes[i]
		rec, _ := taint.RecordOf(node)
		if rec.DistrustsDevice(m.Identity, m.Device, node.Name == m.Target.Node) {
			return node.Name
		}
	}
	return ""
}

func errNoNode(name string) error {
	return fmt.Errorf("node %s does not exist: `kubectl get nodes` lists the nodes", name)
}

// DrillNode asks a node's devices as the controller does while nothing is wrong. It blocks for the devices alone. A
// node that does not exist is an error.
func (d *Session) DrillNode(ctx context.Context, name string) (drill.Facts, error) {
	for i := range d.nodes {
		if node := &d.nodes[i]; node.Name == name {
			return drills.AskDevices(ctx, d.confs.activeConfig(), node, d.falseOffNode, providers.Now), nil
		}
	}
	return drill.Facts{}, errNoNode(name)
}

// FindStaying reads from the API server which pods a fence of the node would leave there although a user may expect
// that they move.
func (d *Session) FindStaying(ctx context.Context, name string) (taint.Staying, error) {
	list, err := kube.ListPods(ctx, d.client, name)
	if err != nil {
		return taint.Staying{}, err
	}
	pods := kube.SeePods(list, d.key, d.confs.activeConfig().EvictFirst)
	list = slices.DeleteFunc(list, func(p corev1.Pod) bool { return taint.ExemptionOf(&p, d.key) == taint.NotExempt })
	of, unread, err := kube.ReadVolumes(ctx, d.client, list)
	for i := range pods {
		pods[i].Volumes = of[pods[i].UID]
	}
	return evict.FindStaying(pods), cmp.Or(err, unread)
}

// NodePower is one node whose machine a person powers off or on.
type NodePower struct {
	Node    string
	Ready   bool
	Fence   string // why the node's fence is not over: its mark, its record; "" if it has none
	Machine machine.Machine
	Timeout time.Duration // powerOffTimeout of the configuration
	life    providers.Life
	session *Session
}

// ReadNodePower reads a node from the API server, and finds its machine. An error says why it has no machine that can
// be trusted.
func (d *Session) ReadNodePower(ctx context.Context, name string) (*NodePower, error) {
	node, l, err := d.readNode(ctx, name, time.Now)
	if err != nil {
		return nil, err
	}
	p := &NodePower{Node: name, Ready: l.Ready == corev1.ConditionTrue, Timeout: d.wait,
		life: providers.Life{NodeUID: l.UID, BootID: l.BootID}, session: d}
	p.Fence = describeFence(node, d.key)
	p.Machine, err = d.confs.activeConfig().Machines.FindMachine(node, l.Record)
	return p, err
}

// DescribeFence returns why a node's fence was not over when the session began; "" if the node has none.
func (d *Session) DescribeFence(name string) string {
	for i := range d.nodes {
		if d.nodes[i].Name == name {
			return describeFence(&d.nodes[i], d.key)
		}
	}
	return ""
}

// describeFence returns why the node's fence is not over: its record, or its mark; "" if it has none.
func describeFence(node *corev1.Node, key string) string {
	rec, err := taint.RecordOf(node)
	_, marked := taint.FindMark(node, key, "")
	switch {
	case err != nil:
		return "the record of its fence cannot be read"
	case rec.IsOpen():
		return fmt.Sprintf("its fence %s is in phase %s", rec.ID, rec.Phase)
	case marked:
		return "it is marked as shut down"
	}
	return ""
}

// readNode reads a node from the API server. A node that does not exist is an error.
func (d *Session) readNode(ctx context.Context, name string, now func() time.Time) (*corev1.Node, taint.Look, error) {
	node, l, err := kube.ReadNode(ctx, d.client, name, d.key, now)
	if err == nil && !l.Exists {
		err = errNoNode(name)
	}
	return node, l, err
}

// ErrFenced is the refusal to power a machine on while its node is fenced.
var ErrFenced = errors.New("the machine is not powered on: a machine that boots in the middle of its fence " +
	"could run its pods beside their replacements. Wait until the fence is over, or end it with `forcefence release`")

// AskDevices asks all devices at the same time, and returns their answers and the common verdict. It blocks until each
// has answered.
func (p *NodePower) AskDevices(ctx context.Context) (answers []drill.Device, verdict providers.Answer) {
	devices := p.Machine.Devices()
	answers = make([]drill.Device, len(devices))
	states := make([]providers.Answer, len(devices))
	var wait sync.WaitGroup
	for i, d := range devices {
		wait.Go(func() {
			begun := time.Now()
			states[i] = providers.Ask(ctx, d.Provider, d.Name, d.Target, providers.Now)
			answers[i] = drill.Device{
				Name:     d.Device,
				Target:   d.Target,
				NoPower:  d.NoPower,
				FalseOff: p.session.falseOffNode(d),
				Answer:   states[i],
				Duration: time.Since(begun),
			}
			if answers[i].FalseOff != "" {
				states[i] = proof.WithoutOff(states[i])
			}
		})
	}
	wait.Wait()
	return answers, p.Machine.VerdictOf(states)
}

// Sent is one device's result for a power action.
type Sent struct {
	Device string
	Err    error // nil: accepted, which is neither off nor on yet
}

// SendPower powers the machine off or on, through all devices of the first level that accepts. Each device is first
// asked for its machine's identity (providers/limiter). Just before, the node is read once more: a machine is not
// powered on during a fence (ErrFenced). Off is sent at any time, because it cannot harm a fence. SendPower returns
// each device's result, and an error if no level accepted.
func (p *NodePower) SendPower(ctx context.Context, on bool) (sent []Sent, _ error) {
	now, err := p.session.ReadNodePower(ctx, p.Node)
	switch {
	case err != nil:
		return nil, err
	case on && now.Fence != "":
		return nil, now.FencedError()
	}
	var errs []error
	devices, given := now.Machine.Devices(), -1 // the level that gave way last
	for i, d := range devices {
		if d.Level == given {
			continue
		}
		act := d.Provider.PowerOff
		if on {
			act = d.Provider.PowerOn
		}
		err := fmt.Errorf("%w: %s", providers.ErrIdentity, d.NoPower)
		if d.NoPower == "" {
			d.Target.Life = now.life
			err = act(ctx, d.Target, func() error { return p.recheckFence(ctx, on) })
		}
		sent = append(sent, Sent{d.Device, err})
		last := i == len(devices)-1 || devices[i+1].Level != d.Level
		switch {
		case err != nil:
			errs, given = append(errs, err), d.Level
		case last:
			return sent, nil
		}
	}
	return sent, errors.Join(errs...)
}

// recheckFence reads the node once more before a power-on is sent, because a fence may have begun since the first read.
// A power-off needs no second read. It blocks for the API server, by ctx's end at most.
func (p *NodePower) recheckFence(ctx context.Context, on bool) error {
	if !on {
		return nil
	}
	now, err := p.session.ReadNodePower(ctx, p.Node)
	if err == nil && now.Fence != "" {
		err = now.FencedError()
	}
	return err
}

// FencedError returns ErrFenced with the fence.
func (p *NodePower) FencedError() error {
	return fmt.Errorf("node %s: %s: %w", p.Node, p.Fence, ErrFenced)
}
