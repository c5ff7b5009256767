package app

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/machine"
)

// machineFinder finds the machines of nodes by one configuration.
type machineFinder struct {
	cfg    *config.Config
	made   map[string]openProvider
	hosts  map[string]*machine.Within // by the rules' names
	claims func(*corev1.Node) (*taint.Claims, *nodeLookup, error)
}

// makeHosts makes the providers of the rules whose nodes are within hosts. Rules share them, and the questions to them.
func makeHosts(cfg *config.Config, made map[string]openProvider) map[string]*machine.Within {
	out := map[string]*machine.Within{}
	known := map[config.Host]*machine.Host{}
	for _, n := range cfg.Nodes {
		if len(n.Within) == 0 {
			continue
		}
		w := &machine.Within{Guests: made[n.Provider].guarded, Now: providers.Now}
		for _, h := range n.Within {
			if known[h] == nil {
				t := providers.Target{Node: "host of " + h.Hypervisor, ID: h.ID, SystemUUID: h.SystemUUID}
				by := made[h.Provider].guarded
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

// claimedMachine finds the machine that a node leads to now, and the other nodes that claim it. The caller must not
// change the result: it is computed once for a version of the Node, as long as all claims stay the same.
func (f machineFinder) claimedMachine(node *corev1.Node) (machine.Machine, error) {
	all, lead, err := f.claims(node)
	if err != nil || !lead.isForVersion(node) {
		m, noMachine := f.cfg.FindMachine(node)
		if err != nil && (noMachine == nil || len(m.Further) > 0) {
			return machine.Machine{}, err
		}
		return f.buildMachine(node, m, noMachine, all)
	}
	if l := lead.last.Load(); l != nil && l.all == all {
		return l.machine, l.noMachine
	}
	m, noMachine := f.buildMachine(node, lead.machine, lead.noMachine, all)
	lead.last.Store(&foundMachine{all: all, machine: m, noMachine: noMachine})
	return m, noMachine
}

// buildMachine makes the controller's machine from the file's machine of a node.
func (f machineFinder) buildMachine(
	node *corev1.Node,
	m config.Machine,
	noMachine error,
	all *taint.Claims,
) (machine.Machine, error) {
	if noMachine != nil && len(m.Further) == 0 {
		return machine.Machine{}, noMachine
	}
	buildLevel := func(of config.Machine) machine.Machine {
		out := f.hostedMachine(m.Rule, of)
		if of.Within == nil {
			out = f.deviceMachine(of.Provider, of.Target)
		}
		out.Identity, out.Fixed, out.Level, out.Limits = of.Identity(), of.Fixed, of.Level, of.Limits
		out.Clash = all.FindClash(taint.Claim{
			Node:    node.Name,
			Machine: out.Identity,
			Claimed: of.Target.Claimed,
			Pin:     node.Labels[taint.PinLabel],
		})
		return out
	}
	out := machine.Machine{}
	if noMachine == nil {
		out = buildLevel(m)
	}
	for _, other := range m.Further {
		out.Further = append(out.Further, buildLevel(other))
	}
	mode, known := fence.ParseMode(string(m.Mode))
	if !known { // the configuration may know a newer mode: it must not pass for another
		return machine.Machine{}, fmt.Errorf("mode %q is not known here", m.Mode)
	}
	out.Mode = mode
	return out, noMachine
}

// recordedMachine finds the machine that an open fence began with, as long as the provider exists and a rule may name
// the machine. The caller sets its mode.
func (f machineFinder) recordedMachine(node *corev1.Node, m taint.Machine) (machine.Machine, error) {
	if _, ok := f.made[m.Provider]; !ok {
		return machine.Machine{}, fmt.Errorf(
			"the fence began with machine %s, and the configuration has no such provider any more", m,
		)
	}
	if !f.cfg.MayNameMachine(node, m.Provider, m.ID) {
		return machine.Machine{}, fmt.Errorf(
			"the fence began with machine %s, and no rule of the configuration may name it any more for this node", m,
		)
	}
	uuid := node.Status.NodeInfo.SystemUUID
	if providers.CanonicalUUID(uuid) != m.SystemUUID {
		uuid = m.SystemUUID
	}
	out := f.deviceMachine(m.Provider, providers.Target{
		Node:       node.Name,
		ID:         m.ID,
		SystemUUID: uuid,
		Addresses:  config.AddressesOf(node),
		Claimed:    true,
	})
	out.Identity = m
	return out, nil
}

func (f machineFinder) deviceMachine(provider string, t providers.Target) machine.Machine {
	p := f.made[provider]
	m := machine.Machine{
		Provider: p.guarded,
		Name:     provider,
		Device:   provider + "/" + p.guarded.DeviceOf(t),
		Target:   t,
		Mode:     fence.Observe,
		Poll:     machine.Polling{Every: p.from.Poll, PerSecond: p.from.RatePerSecond},
	}
	m.Watcher, _ = p.inner.(providers.Watcher) // a Watch lasts: the guard's limits are for questions
	_, m.Feeds = p.inner.(providers.Feeder)
	_, m.Quiet = p.inner.(providers.Quiet)
	return m
}

// hostedMachine returns the machine as the hosts of its hypervisors report it.
func (f machineFinder) hostedMachine(rule string, m config.Machine) machine.Machine {
	return machine.Machine{
		Provider: f.hosts[rule],
		Name:     m.Provider,
		Device:   m.Provider + "/" + m.Target.Key(),
		Target:   m.Target,
		Mode:     fence.Observe,
		Quiet:    true,
		NoPower:  machine.NoHostPower,
	}
}
