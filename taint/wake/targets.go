package wake

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/wake/line"
)

// targets are the machines and nodes to watch, and how.
type targets struct {
	pushes map[providers.Watcher][]providers.Target // machines whose devices push, in the order of the nodes' names
	polls  map[providers.Provider]*polled
	lines  []line.Node
}

// polled are the machines of one provider to poll.
type polled struct {
	machine.Polling
	provider providers.Provider
	name     string
	machines []machine.Machine // in the order of the nodes' names
}

// findTargets returns what to watch. A node in mode disabled, or without a machine, is not polled and has no line.
func (o *Options) findTargets(ctx context.Context, config *Config) (targets, error) {
	nodes, err := kube.CachedNodes(ctx, o.Cache)
	if err != nil {
		return targets{}, err
	}
	out := targets{pushes: map[providers.Watcher][]providers.Target{}, polls: map[providers.Provider]*polled{}}
	for _, n := range nodes {
		rec, _ := taint.RecordOf(n)
		m, _ := config.Machines.FindMachine(n, rec)
		asks := len(m.Devices()) > 0 && config.Mode(n).Mode != fence.Disabled
		if a := addressOf(n); asks && a.IsValid() {
			out.lines = append(out.lines, line.Node{Name: n.Name, Address: a})
		}
		for _, d := range m.Devices() {
			if d.Watcher != nil {
				t := d.Target
				t.Identified = false // a push proves nothing, and a Watch need not begin again for that
				out.pushes[d.Watcher] = append(out.pushes[d.Watcher], t)
			}
			if asks && d.Poll.Every > 0 && o.mayPoll(config, n) {
				p := out.polls[d.Provider]
				if p == nil {
					p = &polled{provider: d.Provider, name: d.Name, Polling: d.Poll}
					out.polls[d.Provider] = p
				}
				p.machines = append(p.machines, d)
			}
		}
	}
	for _, pushing := range out.pushes {
		slices.SortFunc(pushing, func(a, b providers.Target) int { return cmp.Compare(a.Node, b.Node) })
	}
	for _, p := range out.polls {
		slices.SortFunc(p.machines, func(a, b machine.Machine) int { return cmp.Compare(a.Target.Node, b.Target.Node) })
	}
	return out, nil
}

// mayPoll reports whether a node may be polled: it looks alive, is not being fenced, and is not excluded. Suspect nodes
// are asked in any case.
func (o *Options) mayPoll(config *Config, n *corev1.Node) bool {
	ready := taint.Condition(n, corev1.NodeReady).Status == corev1.ConditionTrue
	return ready && !taint.IsFenced(n, o.Key) && config.Excluded(n) == "" && !o.fleetView(n.Name).Stale
}

// addressOf returns the address for a node's line: its first InternalIP that can be another machine's. The node's
// kubelet writes that.
func addressOf(n *corev1.Node) netip.Addr {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && line.IsUsable(ip) {
			return ip
		}
	}
	return netip.Addr{}
}
