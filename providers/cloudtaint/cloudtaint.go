// Package cloudtaint takes the cloud controller manager's word for whether a node's machine is off: its taint
// node.cloudprovider.kubernetes.io/shutdown. It imports the contract and asks no cloud: it reads the Node.
//
// It promises: no taint is ever an On, and the taint is an Off only where the configuration trusts the cloud controller manager, on a node
// that is not Ready, and only if this process saw the same life of the node (UID and boot) not Ready without the taint before it saw it
// with it. A taint that was there before proves nothing: it may be left over from an earlier shutdown, or be the kubelet's own, which may
// register with any. The API server tells no time at which a taint of this effect was put on.
package cloudtaint

import (
	"context"
	"errors"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// The taint that k8s.io/cloud-provider's node lifecycle controller puts on a node that is not Ready and whose instance is shut down,
// and takes off once the node is Ready.
const (
	taintKey    = "node.cloudprovider.kubernetes.io/shutdown"
	taintEffect = "NoSchedule"
)

// Trust is whose taint is a proof.
type Trust string

// Who may be trusted. There is no default: whether a shutdown taint proves anything is a decision.
const (
	TrustNobody Trust = "nobody"                   // the taint is a reason to ask other devices, and no proof
	TrustCCM    Trust = "cloud-controller-manager" // its taint, put on after the node stopped being Ready, is an Off
)

// Config is the provider's part of the configuration file.
type Config struct {
	// nobody: the taint is no proof, only a reason to ask other devices. cloud-controller-manager: the taint is an Off if it was put on after the node stopped being Ready. No default
	Trust Trust `yaml:"trust"`
}

// Type returns the type for the registry.
func Type() providers.Type {
	return providers.Type{
		Name: "cloudtaint", NewConfig: func() providers.Config { return &Config{} },
		Off:      "the cloud controller manager's shutdown taint, put on after the node stopped being Ready, where it is trusted",
		Identity: "none",
	}
}

// Validate returns every fault.
func (c *Config) Validate() []providers.Problem {
	switch c.Trust {
	case TrustNobody, TrustCCM:
		return nil
	case "":
		return []providers.Problem{providers.Problemf("trust", "missing: %s if its taint is to prove that a machine is off, else %s", TrustCCM, TrustNobody)}
	default:
		return []providers.Problem{providers.Problemf("trust", "must be %s or %s", TrustNobody, TrustCCM)}
	}
}

// NeverOff implements providers.Mute: a taint that nobody trusts only makes others be asked.
func (c *Config) NeverOff() bool { return c.Trust != TrustCCM }

// New makes the provider. It reads nothing yet.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	return &provider{opts: o.WithDefaults(), trusted: c.Trust == TrustCCM, untainted: map[string]life{}}, nil
}

type provider struct {
	opts    providers.Options
	trusted bool

	mu        sync.Mutex // guards bare
	untainted map[string]life
}

// life is one boot of one Node, by its name seen not Ready and without the taint.
type life struct{ uid, boot string }

// State reads the Node. It never says On: a node without the taint may be anything.
func (p *provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: providers.InstantOf(p.opts.Now())}
	if p.opts.Node == nil {
		return obs, providers.WithClass(providers.ErrPermanent, errors.New("there is no API server to read the Node from"))
	}
	n, err := p.opts.Node(ctx, t.Node)
	if err != nil {
		if errors.Is(err, providers.ErrNotFound) {
			p.forgetNode(t.Node)
		}
		return obs, err
	}
	obs.State, obs.Raw = p.evaluateNode(t.Node, n)
	return obs, nil
}

// evaluateNode is what a Node as it was read proves, and in which words.
func (p *provider) evaluateNode(name string, n providers.Node) (providers.PowerState, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := life{n.UID, n.BootID}
	before, seen := p.untainted[name]
	notReady := n.Ready == "False" || n.Ready == "Unknown" // a Node without the condition never was Ready
	if seen && before != now || !notReady {
		delete(p.untainted, name)
		seen = false
	}
	shut := false
	for _, t := range n.Taints {
		shut = shut || t.Key == taintKey && t.Effect == taintEffect
	}
	switch {
	case !notReady:
		return providers.PowerUnknown, "the node is Ready, or never was"
	case !shut:
		p.untainted[name] = now
		return providers.PowerUnknown, "no shutdown taint"
	case !p.trusted:
		return providers.PowerUnknown, "shutdown taint, not trusted"
	case !seen:
		return providers.PowerUnknown, "shutdown taint of unknown age"
	default:
		return providers.PowerOff, "shutdown taint"
	}
}

func (p *provider) forgetNode(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.untainted, name)
}

// errNoPower refuses power actions.
var errNoPower = providers.WithClass(providers.ErrPermanent, errors.New("a taint moves no power: give the node another device, too"))

// Quiet tells that a node without the taint may be anything.
func (*provider) Quiet() {}

// PowerOff refuses: a taint moves no power.
func (*provider) PowerOff(context.Context, providers.Target, func() error) error { return errNoPower }

// PowerOn refuses.
func (*provider) PowerOn(context.Context, providers.Target, func() error) error { return errNoPower }
