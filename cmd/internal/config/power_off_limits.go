package config

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// StormGuard limits new power-offs. It delays neither a fence in progress nor the recovery of a machine that is off.
type StormGuard struct {
	// power-offs at once; rounded down, never below 1; default 1+5%
	MaxPowerOffs fleet.Amount `yaml:"maxPowerOffs"`
	// healthy nodes that a power-off needs; rounded up; default 50%
	MinHealthy fleet.Amount `yaml:"minHealthy"`
	// failure domains, by labels; default topology.kubernetes.io/zone
	Domains []FailureDomain `yaml:"domains"`
	// whether control-plane nodes are powered off; default never
	ControlPlane ControlPlanePolicy `yaml:"controlPlane"`
	// whether nodes with the label kubevirt.io/schedulable are powered off; default never
	KubeVirtHosts KubeVirtPolicy `yaml:"kubeVirtHosts"`
}

// FailureDomain are the nodes with one value of a label, such as a zone or a rack.
type FailureDomain struct {
	Label      string        `yaml:"label"`      // nodes with the same value are one domain
	MinHealthy *fleet.Amount `yaml:"minHealthy"` // of the domain's nodes; rounded up; default 50%
}

// ControlPlanePolicy says whether control-plane nodes may be powered off.
type ControlPlanePolicy string

// The policies.
const (
	Never  ControlPlanePolicy = "never"
	Quorum ControlPlanePolicy = "quorum" // if etcd keeps a majority of healthy members without it
)

// KubeVirtPolicy says whether hosts of KubeVirt may be powered off. Their virtual machines may serve while their
// kubelet is dead.
type KubeVirtPolicy string

// The policies. A machine that is off is recovered under each of them.
const (
	KubeVirtNever    KubeVirtPolicy = "never"
	KubeVirtPowerOff KubeVirtPolicy = "powerOff"
)

func defaultStorm() StormGuard {
	l := fleet.DefaultLimits()
	g := StormGuard{
		MaxPowerOffs: l.MaxPowerOffs, MinHealthy: l.MinHealthy, ControlPlane: Never, KubeVirtHosts: KubeVirtNever,
	}
	for _, d := range l.Domains {
		g.Domains = append(g.Domains, FailureDomain{Label: d.Label, MinHealthy: &d.MinHealthy})
	}
	return g
}

func (g StormGuard) powerOffLimits() *fleet.Limits {
	l := &fleet.Limits{
		MaxPowerOffs: g.MaxPowerOffs, MinHealthy: g.MinHealthy, CoolDown: fleet.DefaultLimits().CoolDown,
	}
	for _, d := range g.Domains {
		floor := fleet.Amount{Percent: 50}
		if d.MinHealthy != nil {
			floor = *d.MinHealthy
		}
		l.Domains = append(l.Domains, fleet.Domain{Label: d.Label, MinHealthy: floor, Fixed: !kubeletWrites(d.Label)})
	}
	return l
}

// checkStorm checks the limits. Only the controller, which sees the Nodes, can warn of a floor above their number.
func (r *reader) checkStorm(c *Config) {
	const path = "stormGuard"
	g := c.StormGuard
	r.reportIf(g.MaxPowerOffs == fleet.Amount{}, path+".maxPowerOffs", "must be more than 0: mode observe powers "+
		"nothing off")
	oneOf(r, path+".controlPlane", g.ControlPlane, Never, Quorum)
	oneOf(r, path+".kubeVirtHosts", g.KubeVirtHosts, KubeVirtNever, KubeVirtPowerOff)
	if g.MaxPowerOffs.Percent == 100 {
		r.warn(c, path+".maxPowerOffs", "100% is no limit: all nodes may be powered off at once. Write the share that "+
			"the cluster can lose")
	}
	r.floor(path+".minHealthy", g.MinHealthy)
	r.warnOfNoFloor(c, path+".minHealthy", g.MinHealthy)
	for i, d := range g.Domains {
		at := item(path+".domains", i)
		switch {
		case d.Label == "":
			r.report(at+".label", "missing: the label whose value names a node's domain, such as "+
				"topology.kubernetes.io/zone")
		case len(validation.IsQualifiedName(d.Label)) > 0:
			r.report(at+".label", "no label can have this key")
		}
		for j, e := range g.Domains[:i] {
			r.reportIf(e.Label == d.Label && d.Label != "", at+".label", "is already the label of %s, on line %d",
				item(path+".domains", j), r.lines[item(path+".domains", j)])
		}
		if d.MinHealthy != nil {
			r.floor(at+".minHealthy", *d.MinHealthy)
			r.warnOfNoFloor(c, at+".minHealthy", *d.MinHealthy)
		}
	}
}

// warnOfVMHosts warns if machines are powered off, a selector names a label of KubeVirt, and the file does not say
// whether its hosts are powered off. Without such a selector the file gives no hint of KubeVirt; then the drill, which
// sees the Nodes, names each host that is kept on.
func (r *reader) warnOfVMHosts(c *Config) {
	const path = "stormGuard.kubeVirtHosts"
	if given := r.given(path); given || !c.fences() || !c.selectsVMHosts() {
		return
	}
	const problem = "warning: nodes that run virtual machines of KubeVirt (label kubevirt.io/schedulable) are not " +
		"powered off unless this is powerOff. Their virtual machines may serve while the kubelet is dead. " +
		"Write never or powerOff"
	c.warnings = append(c.warnings,
		Error{File: r.file, Line: max(r.lines["stormGuard"], 1), Path: path, Problem: problem})
}

// selectsVMHosts reports whether a selector of nodes names a label of KubeVirt.
func (c *Config) selectsVMHosts() bool {
	all := append(mapList(c.Modes, func(m ModeItem) string { return m.Selector }),
		mapList(c.Nodes, func(n NodeRule) string { return n.Selector })...)
	return strings.Contains(strings.Join(all, " "), "kubevirt.io/")
}

// warnOfNoFloor warns of a minHealthy that refuses no power-off.
func (r *reader) warnOfNoFloor(c *Config, path string, a fleet.Amount) {
	if a == (fleet.Amount{}) {
		r.warn(c, path, "0 is no limit: machines may be powered off until no node is healthy. Write the share that "+
			"must stay")
	}
}

// floor checks a minHealthy. A floor of 100 % would refuse every power-off, because the node itself is not healthy.
func (r *reader) floor(path string, a fleet.Amount) {
	switch {
	case a.Number > 0 && a.Percent > 0:
		r.report(path, "must be a whole number of nodes (3) or a share of them (50%%), not both")
	case a.Percent == 100:
		r.report(path, "must be below 100%%: the node to power off is unhealthy, so no power-off would be allowed")
	}
}
