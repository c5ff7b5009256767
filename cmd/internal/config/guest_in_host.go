package config

import (
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// Host is a hypervisor on which the nodes of a rule may run, and the device of the host that it runs on.
type Host struct {
	Hypervisor string `yaml:"hypervisor"` // as in the settings of the rule's provider
	Provider   string `yaml:"provider"`   // the name of one of providers
	ID         string `yaml:"id"`         // that provider's name of the host
	SystemUUID string `yaml:"systemUUID"` // of the host; a device that reports another one is refused; "": unknown
}

// hostsOf ends the name of the device that is made of all hosts of a provider's guests. No provider can have such a
// name.
const hostsOf = "/within"

// within returns the hosts of the rule's own machine as one device, in a level after all others.
func (n *NodeRule) within(own Assignment) Assignment {
	return Assignment{Provider: own.Provider + hostsOf, Target: own.Target, Level: len(n.Levels) + 1, Within: n.Within}
}

// checkWithin checks the hosts of a rule: there is one for each hypervisor, and no host is a guest of its own.
func (r *reader) checkWithin(c *Config, n *NodeRule, path string) {
	at := path + ".within"
	settings := c.settings(n.Provider)
	of, ok := settings.(providers.Hypervisors)
	switch {
	case !r.given(at):
		return
	case n.Provider == "":
		r.report(at, "needs the rule's provider and machine: they identify the guest and its possible hypervisors")
		return
	case settings == nil: // already reported
		return
	case !ok:
		r.report(at, "the provider %s has no hypervisors, so it cannot prove that a guest is on none of the others: "+
			"only guests of libvirt and kubevirt can be within hosts", n.Provider)
		return
	}
	r.reportIf(n.Machine.isRead() && n.claimed(), path+".machine", "a kubelet could choose this guest, by its labels "+
		"or its own status, and a guest that does not exist is on no hypervisor: with within, use a list, or a "+
		"template over {name} and a selector of labels that kubelets cannot write")
	missing := slices.Clone(of.Hypervisors())
	if len(n.Within) == 0 && !r.bad[at] {
		r.report(at, "missing: a host for each of the hypervisors of %s", n.Provider)
		return
	}
	for i := range n.Within {
		r.checkHost(c, n, i, at, of.Hypervisors())
		missing = slices.DeleteFunc(missing, func(h string) bool { return h == n.Within[i].Hypervisor })
	}
	r.reportIf(len(missing) > 0 && !r.bad[at], at, "missing a host for %s: a guest may be there, so nothing can be "+
		"proven when it does not answer", strings.Join(missing, ", "))
}

func (r *reader) checkHost(c *Config, n *NodeRule, i int, at string, known []string) {
	h, path := &n.Within[i], item(at, i)
	switch {
	case h.Hypervisor == "":
		r.report(path+".hypervisor", "missing: a hypervisor of provider %s", n.Provider)
	case !slices.Contains(known, h.Hypervisor):
		r.report(path+".hypervisor", "is not a hypervisor of provider %s%s", n.Provider,
			didYouMean(h.Hypervisor, known))
	}
	r.checkProviderName(c, h.Provider, path+".provider")
	if _, ok := providers.ParseUUID(h.SystemUUID); h.SystemUUID != "" && !ok {
		r.report(path+".systemUUID", "must be the machine's UUID, not a placeholder")
	}
	if h.ID = strings.TrimSpace(h.ID); h.ID == "" && h.SystemUUID == "" {
		r.report(path+".id", "missing: the provider's name of the host, or systemUUID if the provider finds machines "+
			"by it")
	}
	if line := r.ownLine(c, h.Provider); line > 0 {
		r.report(path+".provider", "uses credentials by the Node's name (line %d), which a host does not have: use "+
			"another provider for the hosts", line)
	}
	settings := c.settings(h.Provider)
	if ids, ok := settings.(providers.IDs); ok && h.ID != "" {
		if id, _, err := ids.CanonicalID(h.ID); err != nil {
			r.report(path+".id", "%s", oneLine(err.Error()))
		} else {
			h.ID = id
		}
	}
	if m, ok := settings.(providers.Mute); ok && m.NeverOff() {
		r.report(path+".provider", "never says Off with these settings, so it can prove nothing")
	}
	if loop := c.loop(n.Provider, h.Provider); loop != "" {
		r.report(path+".provider", "is a loop (%s): a host cannot be a guest of its own hypervisor", loop)
	}
	for j, o := range n.Within[:i] {
		switch {
		case o.Hypervisor == h.Hypervisor && h.Hypervisor != "":
			r.report(path+".hypervisor", "already has a host, on line %d", r.lines[item(at, j)])
		case o.Provider == h.Provider && h.Provider != "" &&
			(o.ID == h.ID && h.ID != "" ||
				h.SystemUUID != "" && providers.CanonicalUUID(o.SystemUUID) == providers.CanonicalUUID(h.SystemUUID)):
			r.report(path, "is the same host as on line %d: if that is off, a guest of another hypervisor would "+
				"count as off, too", r.lines[item(at, j)])
		}
	}
}

// loop returns a loop that exists if provider host has the hosts of provider guests, as "guests within outer within
// guests"; "" if there is none.
func (c *Config) loop(guests, host string) string {
	seen := map[string]bool{}
	var walk func(at string) string
	walk = func(at string) string {
		if c.sameHypervisor(guests, at) {
			return at
		}
		if seen[at] {
			return ""
		}
		seen[at] = true
		for _, n := range c.Nodes {
			for _, h := range n.Within {
				if n.Provider != at {
					continue
				}
				if way := walk(h.Provider); way != "" {
					return at + " within " + way
				}
			}
		}
		return ""
	}
	if way := walk(host); way != "" {
		return guests + " within " + way
	}
	return ""
}

// sameHypervisor reports whether two providers are one, or have a hypervisor in common.
func (c *Config) sameHypervisor(a, b string) bool {
	if a == b {
		return true
	}
	one, ok1 := c.settings(a).(providers.Hypervisors)
	two, ok2 := c.settings(b).(providers.Hypervisors)
	return ok1 && ok2 &&
		slices.ContainsFunc(one.Hypervisors(), func(h string) bool { return slices.Contains(two.Hypervisors(), h) })
}
