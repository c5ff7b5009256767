// Package cloudtaint reads the cloud controller manager's taint node.cloudprovider.kubernetes.io/shutdown as a sign
// that a node's machine is off. It imports the contract and asks no cloud: it reads the Node.
//
// It promises that no taint is ever an On. The taint is an Off only if the configuration trusts the cloud controller
// manager and the node is not Ready. Also, this process must have seen the same life of the node (UID and boot) not
// Ready without the taint before it saw the taint. An older taint proves nothing: it may be left from an earlier
// shutdown, or be the kubelet's own, which may register with any. The API server does not record when a taint of this
// effect was added.
package cloudtaint

import (
	"context"
	"errors"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

// The taint that k8s.io/cloud-provider's node lifecycle controller adds to a node that is not Ready and whose instance
// is shut down. It removes the taint once the node is Ready.
const (
	taintKey    = "node.cloudprovider.kubernetes.io/shutdown"
	taintEffect = "NoSchedule"
)

// Trust names whose taint is a proof.
type Trust string

// The values of Trust. There is no default: whether a shutdown taint proves anything is the user's decision.
const (
	TrustNobody Trust = "nobody"                   // the taint is a reason to ask other devices, and no proof
	TrustCCM    Trust = "cloud-controller-manager" // its taint, put on after the node stopped being Ready, is an Off
)

// Config is the provider's part of the configuration file.
type Config struct {
	// one of nobody, cloud-controller-manager; nobody: the taint is no proof, only a reason to ask other devices.
	// cloud-controller-manager: the taint is an Off if it was put on after the node stopped being Ready. It must be set
	Trust Trust `yaml:"trust"`
}

// Type returns the type for the registry.
func Type() providers.Type {
	return providers.Type{
		Name: "cloudtaint", NewConfig: func() providers.Config { return &Config{} },
		Off: "the cloud controller manager's shutdown taint, put on after the node stopped being Ready, where " +
			"it is trusted",
		Identity: "none",
	}
}

// Validate returns every fault.
func (c *Config) Validate() []providers.Problem {
	switch c.Trust {
	case TrustNobody, TrustCCM:
		return nil
	case "":
		return []providers.Problem{providers.Problemf("trust",
			"missing: %s if its taint is to prove that a machine is off, else %s", TrustCCM, TrustNobody)}
	default:
		return []providers.Problem{providers.Problemf("trust", "must be %s or %s", TrustNobody, TrustCCM)}
	}
}

// NeverOff implements providers.Mute: an untrusted taint only causes other devices to be asked.
func (c *Config) NeverOff() bool { return c.Trust != TrustCCM }

// SharesPower implements providers.SharesPower: a cloud reports an instance as running after its host lost its power,
// so that the taint is not put on.
func (c *Config) SharesPower() bool { return true }

// New returns the provider. It reads nothing yet.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	return &provider{opts: o.WithDefaults(), trusted: c.Trust == TrustCCM, untainted: map[string]life{}}, nil
}

type provider struct {
	opts    providers.Options
	trusted bool

	mu        sync.Mutex // guards untainted
	untainted map[string]life
}

// life is one boot of one Node that was seen not Ready and without the taint.
type life struct{ uid, boot string }

// State reads the Node. It never returns On: a node without the taint may be on or off.
func (p *provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: providers.InstantOf(p.opts.Now())}
	if p.opts.Node == nil {
		return obs, providers.Errorf(providers.ErrPermanent, "there is no API server to read the Node from")
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

// evaluateNode returns what a Node that was read proves, and the evidence's words.
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
		return providers.PowerUnknown, "the node is Ready, or was never Ready"
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
var errNoPower = providers.Errorf(providers.ErrPermanent, "a taint cannot change power: give the node another "+
	"device, too")

// Quiet implements providers.Quiet: a node without the taint may be on or off.
func (*provider) Quiet() {}

// PowerOff always fails: a taint cannot change power.
func (*provider) PowerOff(context.Context, providers.Target, func() error) error { return errNoPower }

// PowerOn always fails.
func (*provider) PowerOn(context.Context, providers.Target, func() error) error { return errNoPower }
