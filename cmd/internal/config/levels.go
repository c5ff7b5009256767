package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// Level is one way to prove that a machine is off and to power it off. All its devices must say Off, such as those of
// the two outlets that feed a server.
type Level struct {
	Devices []Device `yaml:"devices"`
	// the wait before the first power-off: after the announcement, or after the previous level gave up; default 0s
	Delay time.Duration `yaml:"delay"`
	// how long the level may then take until the machine is off, before the next level begins; default an equal share
	// of the rest of powerOffTimeout
	Timeout time.Duration `yaml:"timeout"`
	// power-offs through each device before the level gives up; 1 to 10; default 1
	Attempts int `yaml:"attempts"`
}

// Device is a further device of a rule. No kubelet may choose it: its machine is from a list, or from a template over
// the node's name alone.
type Device struct {
	Provider string `yaml:"provider"` // the name of one of providers
	Machine  Source `yaml:"machine"`
}

// further returns the devices of the levels that know the node, in their order. It leaves out a level if one of its
// devices does not know the node: the other devices of that level prove nothing alone.
func (n *NodeRule) further(node *corev1.Node) []Assignment {
	var out []Assignment
	for i, l := range n.Levels {
		of := make([]Assignment, 0, len(l.Devices))
		for j := range l.Devices {
			d := &l.Devices[j]
			m, err := d.Machine.machine(node, d.Provider)
			if err != nil {
				of = nil
				break
			}
			m.Level, m.Limits = i+1, n.limits[i+1]
			of = append(of, m)
		}
		out = append(out, of...)
	}
	return out
}

// whole leaves out the levels that repeat a device of an earlier level or of their own. A repeated device counts once,
// and the other devices of its level must not prove anything alone.
func whole(all []Assignment) []Assignment {
	twice := map[int]bool{}
	for i, m := range all {
		same := func(o Assignment) bool {
			return !twice[o.Level] && o.Provider != "" && o.Provider == m.Provider && o.Target.ID == m.Target.ID
		}
		if slices.ContainsFunc(all[:i], same) {
			twice[m.Level] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m Assignment) bool { return twice[m.Level] })
}

// devices returns the devices of all levels.
func (n *NodeRule) devices() []*Device {
	var out []*Device
	for i := range n.Levels {
		for j := range n.Levels[i].Devices {
			out = append(out, &n.Levels[i].Devices[j])
		}
	}
	return out
}

// checkLevels checks the devices of a rule.
func (r *reader) checkLevels(c *Config, i int) {
	n, path := &c.Nodes[i], item("nodes", i)
	own := r.given(path+".provider") || r.given(path+".machine") || len(n.Levels) == 0 // else all are under levels
	count := len(n.devices())
	if len(n.Within) > 0 {
		count++
	}
	if own {
		count++
		r.checkMachine(c, n, n.Provider, &n.Machine, path)
		r.checkOwn(c, n, path)
		r.checkClaim(n, path)
	}
	r.reportIf(count > taint.MaxDevices, path+".levels", "%d devices for one node: at most %d are supported",
		count, taint.MaxDevices)
	for j := range n.Levels {
		r.checkLevel(c, n, j, item(path+".levels", j))
	}
	r.checkWithin(c, n, path)
	r.shareTimeout(c, n, path+".levels", own)
	if !r.bad[path+".levels"] {
		r.noteSharedPower(c, n, path, own)
	}
}

// checkLevel checks one level: it must be possible that all its devices say Off, and each must prove something.
func (r *reader) checkLevel(c *Config, n *NodeRule, j int, path string) {
	l, at := &n.Levels[j], path+".devices"
	r.reportIf(len(l.Devices) == 0, at, "missing: a level without a device would count as off")
	r.reportIf(l.Delay < 0, path+".delay", "must not be negative")
	if r.given(path + ".timeout") {
		r.atLeast(path+".timeout", l.Timeout, shortestTurn)
	}
	r.reportIf(r.given(path+".attempts") && (l.Attempts < 1 || l.Attempts > 10), path+".attempts",
		"must be from 1 to 10")
	for k := range l.Devices {
		d, at := &l.Devices[k], item(at, k)
		r.checkMachine(c, n, d.Provider, &d.Machine, at)
		r.reportIf(d.Machine.isRead() && (&NodeRule{Machine: d.Machine, selector: n.selector}).claimed(), at+".machine",
			"a kubelet could choose this device, by its labels or its own status. Only one device may be found so: "+
				"write it as provider and machine of the rule itself, not under levels. Or use a list, or from: "+
				"name and a selector of labels that kubelets cannot write (node-restriction.kubernetes.io/...)")
		if m, ok := c.settings(d.Provider).(providers.Mute); ok && m.NeverOff() && len(l.Devices) > 1 {
			r.report(at+".provider", "never says Off with these settings, so this level could never be off: use a "+
				"level of its own")
		}
		for e := range k {
			o := &l.Devices[e]
			if o.Provider == d.Provider && o.Machine.tmpl != nil && d.Machine.tmpl != nil &&
				o.Machine.tmpl.written == d.Machine.tmpl.written {
				r.report(at, "is the same device as on line %d: the level would be off when that one is",
					r.lines[item(path+".devices", e)])
			}
			if node := unlisted(&o.Machine, &d.Machine); node != "" {
				r.report(at+".machine.list", "%s is in the list of only one of this level's devices, so the level "+
					"would not apply to it", oneLine(node))
			}
		}
	}
}

// unlisted returns a node that only one of two lists has; "" if there is none, or one of them is no list.
func unlisted(a, b *Source) string {
	if a.From != FromList || b.From != FromList {
		return ""
	}
	for _, e := range slices.Concat(a.List, b.List) {
		if a.listed(e.Node) == nil || b.listed(e.Node) == nil {
			return e.Node
		}
	}
	return ""
}

// shortestTurn is the shortest timeout of a level: a BMC takes seconds to power a machine off.
const shortestTurn = 5 * time.Second

// shareTimeout shares powerOffTimeout among the levels.
func (r *reader) shareTimeout(c *Config, n *NodeRule, path string, own bool) {
	levels := n.Levels
	n.limits = []proof.Limits{{}}
	left, without, given := c.PowerOffTimeout, time.Duration(0), false
	if own {
		without++
	}
	for _, l := range levels {
		n.limits = append(n.limits, proof.Limits{Delay: l.Delay, Timeout: l.Timeout, Attempts: l.Attempts})
		left -= l.Delay + l.Timeout
		given = given || l.Delay > 0 || l.Timeout > 0
		if l.Timeout == 0 {
			without++
		}
	}
	r.reportIf(given && left < without*shortestTurn, path, "the levels' delays and timeouts add up to %s, which "+
		"exceeds powerOffTimeout (%s)", short(c.PowerOffTimeout-left+without*shortestTurn), short(c.PowerOffTimeout))
	// a single level has no next level
	if without == 0 || own && len(levels) == 0 || !own && len(levels) == 1 {
		return
	}
	share := left / without
	for j := range n.limits {
		if n.limits[j].Timeout == 0 {
			n.limits[j].Timeout = share
		}
	}
}

// noteSharedPower keeps the path of a rule if all its devices, and those of its guests' hosts, say no Off when their
// machines lose their power. Outlets say Off once they are switched off, which mode observe does not do.
func (r *reader) noteSharedPower(c *Config, n *NodeRule, path string, own bool) {
	all := mapList(n.devices(), func(d *Device) string { return d.Provider })
	if own {
		all = append(all, n.Provider)
	}
	for _, h := range n.Within {
		all = append(all, h.Provider)
	}
	inModes := slices.ContainsFunc(c.Modes, func(m ModeItem) bool { return !m.Mode.is(fence.Observe) })
	observes := !inModes && cmp.Or(n.Mode, c.Mode).is(fence.Observe)
	for _, name := range all {
		settings := c.settings(name)
		shares, _ := settings.(providers.SharesPower)
		feeds, _ := settings.(providers.Feeds)
		if (shares == nil || !shares.SharesPower()) && !(observes && feeds != nil && feeds.OnlyFeeds()) {
			return
		}
	}
	r.sharedPower = append(r.sharedPower, path)
}

// warnOfSharedPower warns once of all rules whose devices lose their power together with their machines.
func (r *reader) warnOfSharedPower(c *Config) {
	if len(r.sharedPower) == 0 {
		return
	}
	also := ""
	if others := r.sharedPower[1:]; len(others) > 0 {
		also = ". The same is true of " + strings.Join(others, ", ")
	}
	r.warn(c, r.sharedPower[0], "if a machine, or the host of a guest, loses its power, no device of this rule "+
		"says Off. Add a person as the last level (type confirm). In mode fence, outlets that feed the machine work, "+
		"too"+also)
}

// Warnings returns what is valid in the file, but risky, by line. Each begins with "warning: ".
func (c *Config) Warnings() Errors { return c.warnings }
