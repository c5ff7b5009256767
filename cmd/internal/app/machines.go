package app

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/machine"
)

// machineFinder finds the machines of nodes by one configuration.
type machineFinder struct {
	cfg   *config.Config
	open  map[string]openProvider
	hosts map[string]*machine.Within // by the rules' names
	index *nodeIndex
}

// makeHosts makes the providers of the rules whose nodes are within hosts. Rules share them, and the questions to them.
func makeHosts(cfg *config.Config, open map[string]openProvider) map[string]*machine.Within {
	out := map[string]*machine.Within{}
	known := map[config.Host]*machine.Host{}
	for _, n := range cfg.Nodes {
		if len(n.Within) == 0 {
			continue
		}
		w := &machine.Within{Guests: open[n.Provider].limited, Now: providers.Now}
		for _, h := range n.Within {
			if known[h] == nil {
				t := providers.Target{Node: "host of " + h.Hypervisor, ID: h.ID, SystemUUID: h.SystemUUID}
				by := open[h.Provider].limited
				known[h] = &machine.Host{
					Hypervisor: h.Hypervisor, Name: h.Provider + "/" + by.DeviceOf(t),
					Device: providers.Question{Provider: by, By: h.Provider, Target: t},
				}
			}
			w.Hosts = append(w.Hosts, known[h])
		}
		out[n.Name] = w
	}
	return out
}

// claimedMachine finds the machine that a node leads to now, and the other nodes that claim it.
func (f machineFinder) claimedMachine(node *corev1.Node) (machine.Machine, error) {
	m, noMachine := f.index.findMachine(node)
	if noMachine != nil && len(m.Further) == 0 {
		return machine.Machine{}, noMachine
	}
	var out machine.Machine
	if noMachine == nil {
		var err error
		if out, err = f.buildMachine(node, m.Rule, m); err != nil {
			return machine.Machine{}, err
		}
	}
	for _, other := range m.Further {
		further, err := f.buildMachine(node, m.Rule, other)
		if err != nil {
			return machine.Machine{}, err
		}
		out.Further = append(out.Further, further)
	}
	return out, noMachine
}

// buildMachine makes the controller's machine from one of the file's machines of a node. It returns an error if it is
// not known which other nodes claim it.
func (f machineFinder) buildMachine(node *corev1.Node, rule string, m config.Assignment) (machine.Machine, error) {
	out := f.hostedMachine(rule, m)
	if m.Within == nil {
		out = f.deviceMachine(m.Provider, m.Target)
	}
	out.Identity, out.Fixed, out.Level, out.Limits = m.Identity(), m.Fixed, m.Level, m.Limits
	out.Target.Identified = out.Identity.IsNamed(node.Labels[taint.NamedLabel])
	var err error
	out.Clash, err = f.index.findClash(taint.Claim{
		Node:    node.Name,
		Machine: out.Identity,
		Claimed: m.Target.Claimed,
		Pin:     node.Labels[taint.PinLabel],
	})
	return out, err
}

// recordedMachine finds the machine that an open fence began with, as long as the provider exists and a rule may name
// the machine. It returns an error if it is not known which other nodes claim it.
func (f machineFinder) recordedMachine(node *corev1.Node, m taint.MachineRef) (machine.Machine, error) {
	if _, ok := f.open[m.Provider]; !ok {
		return machine.Machine{},
			fmt.Errorf("the fence began with machine %s, and the configuration has no such provider any more", m)
	}
	if !f.cfg.MayNameMachine(node, m.Provider, m.ID) {
		return machine.Machine{}, fmt.Errorf("the fence began with machine %s, and no rule of the configuration may "+
			"name it any more for this node", m)
	}
	uuid := node.Status.NodeInfo.SystemUUID
	if providers.CanonicalUUID(uuid) != m.SystemUUID {
		uuid = m.SystemUUID
	}
	out := f.deviceMachine(m.Provider, providers.Target{
		Node: node.Name, ID: m.ID, SystemUUID: uuid, Addresses: config.AddressesOf(node), Claimed: true,
	})
	out.Identity = m
	out.Target.Identified = m.IsNamed(node.Labels[taint.NamedLabel])
	var err error
	out.Clash, err = f.index.findClash(taint.Claim{
		Node: node.Name, Machine: m, Claimed: true, Pin: node.Labels[taint.PinLabel],
	})
	return out, err
}

func (f machineFinder) deviceMachine(provider string, t providers.Target) machine.Machine {
	p := f.open[provider]
	m := machine.Machine{
		Provider: p.limited,
		Name:     provider,
		Device:   provider + "/" + p.limited.DeviceOf(t),
		Target:   t,
		Poll:     machine.Polling{Every: p.from.Poll, PerSecond: p.from.RatePerSecond},
	}
	m.Watcher, _ = p.inner.(providers.Watcher) // a Watch lasts: the limiter's limits are for questions
	_, m.Feeds = p.inner.(providers.Feeder)
	_, m.Orders = p.inner.(providers.Withdrawer)
	_, m.Quiet = p.inner.(providers.Quiet)
	return m
}

// hostedMachine returns the machine as the hosts of its hypervisors report it.
func (f machineFinder) hostedMachine(rule string, m config.Assignment) machine.Machine {
	return machine.Machine{
		Provider: f.hosts[rule],
		Name:     m.Provider,
		Device:   m.Provider + "/" + m.Target.Key(),
		Target:   m.Target,
		Quiet:    true,
		NoPower:  machine.NoHostPower,
	}
}
