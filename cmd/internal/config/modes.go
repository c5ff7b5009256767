package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Mode is the name of a fence.Mode.
type Mode string

var modes = mapList(fence.Modes(), func(m fence.Mode) Mode { return Mode(m.String()) })

// mayPowerOff reports whether a machine that is on may be powered off in that mode.
func (m Mode) mayPowerOff() bool { return m.is(fence.Fence) || m.is(fence.OnRequest) }

// is reports whether the word names that mode.
func (m Mode) is(mode fence.Mode) bool { return string(m) == mode.String() }

// leastGrace is the least powerOffAfter: two renewals of a Lease. By default a kubelet renews it every 10 s.
const leastGrace = 20 * time.Second

// ModeItem is the mode of the nodes that its selector matches. No node can match two.
type ModeItem struct {
	Selector      string        `yaml:"selector"`      // label selector, not ""
	Mode          Mode          `yaml:"mode"`          // must be set
	PowerOffAfter time.Duration `yaml:"powerOffAfter"` // not with observe and disabled; default powerOffAfter of all

	selector labels.Selector
}

// NodeSelectors returns, by their paths, the selectors that should each match some node of the cluster.
func (c *Config) NodeSelectors() map[string]labels.Selector {
	out := map[string]labels.Selector{}
	for i := range c.Modes {
		out[item("modes", i)+".selector"] = c.Modes[i].selector
	}
	return out
}

// grace checks a powerOffAfter.
func (r *reader) grace(path string, d time.Duration) {
	r.reportIf(d < leastGrace, path, "must be at least %s: a healthy kubelet may miss two renewals of its Lease",
		short(leastGrace))
}

// checkModes checks modes, and whether there is anything to fence.
func (r *reader) checkModes(c *Config) {
	fences := c.Mode.mayPowerOff()
	for i := range c.Modes {
		fences = fences || c.Modes[i].Mode.mayPowerOff()
		r.checkMode(c, i)
	}
	for i := range c.Nodes {
		if path := item("nodes", i) + ".mode"; len(c.Modes) > 0 && c.Nodes[i].Mode != "" {
			r.report(path, "conflicts with modes, on line %d: write the modes of nodes only there", r.lines["modes"])
		}
	}
	if fences && len(c.Nodes) == 0 && !r.bad["nodes"] {
		path := "mode"
		if !c.Mode.mayPowerOff() {
			path = "modes"
		}
		r.report(path, "nothing to fence: no rule under nodes says how to find a node's machine")
	}
}

// checkMode checks one item of modes.
func (r *reader) checkMode(c *Config, i int) {
	m, path := &c.Modes[i], item("modes", i)
	if m.Mode == "" && !r.bad[path+".mode"] {
		r.report(path+".mode", "missing: %s", either(spelled(modes)))
	} else {
		oneOf(r, path+".mode", m.Mode, modes...)
	}
	switch at := path + ".powerOffAfter"; {
	case !r.given(at):
	case m.Mode.is(fence.Observe), m.Mode.is(fence.Disabled):
		r.report(at, `belongs to "mode: fence", "mode: onRequest" and "mode: shadow"`)
	default:
		r.grace(at, m.PowerOffAfter)
	}
	at := path + ".selector"
	if strings.TrimSpace(m.Selector) == "" {
		r.report(at, "missing: a label selector of nodes. The key mode, at the top level of the file, sets the "+
			"mode of all nodes")
		return
	}
	faults := len(r.errs)
	if m.selector = r.selector(at, m.Selector, labels.Nothing()); len(r.errs) > faults {
		m.selector = nil // matches no node, and overlaps with no other
		return
	}
	if apart(m.selector, labels.Everything()) {
		r.report(at, "selects no node: its requirements contradict each other")
		return
	}
	for j, o := range c.Modes[:i] {
		if o.selector != nil && !apart(m.selector, o.selector) {
			r.report(at, "a node can match both this and the selector of %s, on line %d: make them exclude each "+
				"other, for example by zone=a and zone!=a",
				item("modes", j), cmp.Or(r.lines[item("modes", j)+".selector"], r.lines[item("modes", j)]))
			return
		}
	}
}

// maxPowerOns is how many power-ons a day a record has room for.
const maxPowerOns = 10

// checkAfterFence checks what happens to machines after a fence. Only a machine that was powered off is powered on.
func (r *reader) checkAfterFence(c *Config) {
	oneOf(r, "afterFence", c.AfterFence, LeaveOff, PowerOn)
	r.reportIf(c.FencedAgainWithin < 0 || c.FencedAgainWithin > taint.Day, "fencedAgainWithin",
		"must be from 0s to 24h")
	r.reportIf(c.MaxPowerOnsPerDay < 1 || c.MaxPowerOnsPerDay > maxPowerOns, "maxPowerOnsPerDay",
		"must be from 1 to %d", maxPowerOns)
	if c.AfterFence == LeaveOff {
		for _, key := range []string{"maxPowerOnsPerDay", "fencedAgainWithin"} {
			r.reportIf(r.given(key), key, `belongs to "afterFence: powerOn"`)
		}
	}
	r.reportIf(c.AfterFence == PowerOn && !c.fences() && !r.bad["mode"] && !r.bad["modes"] && !r.bad["nodes"],
		"afterFence", "powerOn needs mode fence: forcefence powers on only machines that it powered off, and no "+
			"node's mode is fence or onRequest")
}

// apart reports whether no labels can match both selectors, because their requirements for one label contradict each
// other.
func apart(a, b labels.Selector) bool {
	demands := map[string][]labels.Requirement{}
	for _, s := range []labels.Selector{a, b} {
		all, selectable := s.Requirements()
		if !selectable {
			return true
		}
		for _, q := range all {
			demands[q.Key()] = append(demands[q.Key()], q)
		}
	}
	for key, all := range demands {
		if !slices.ContainsFunc(candidates(key, all), func(set labels.Set) bool {
			return !slices.ContainsFunc(all, func(q labels.Requirement) bool { return !q.Matches(set) })
		}) {
			return true
		}
	}
	return false
}

// candidates returns values of the label key. If any value meets all requirements, one of these does: no label, the
// named values, the numbers next to them, and a value that no requirement names.
func candidates(key string, all []labels.Requirement) []labels.Set {
	out, other := []labels.Set{nil}, "x"
	for _, q := range all {
		for v := range q.Values() {
			out = append(out, labels.Set{key: v})
			other += v
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				out = append(out, labels.Set{key: fmt.Sprint(n + 1)}, labels.Set{key: fmt.Sprint(n - 1)})
			}
		}
	}
	return append(out, labels.Set{key: other})
}

// powersOffThrough reports whether a rule whose nodes may be powered off has a device of that provider.
func (c *Config) powersOffThrough(provider string) bool {
	inModes := slices.ContainsFunc(c.Modes, func(m ModeItem) bool { return m.Mode.mayPowerOff() })
	return slices.ContainsFunc(c.Nodes, func(n NodeRule) bool {
		has := n.Provider == provider ||
			slices.ContainsFunc(n.devices(), func(d *Device) bool { return d.Provider == provider })
		return has && (inModes || cmp.Or(n.Mode, c.Mode).mayPowerOff())
	})
}

// fences reports whether the machine of any node may be powered off.
func (c *Config) fences() bool { return c.hasMode(Mode.mayPowerOff) }

// hasMode reports whether any node may have such a mode.
func (c *Config) hasMode(is func(Mode) bool) bool {
	return is(c.Mode) ||
		slices.ContainsFunc(c.Modes, func(m ModeItem) bool { return is(m.Mode) }) ||
		slices.ContainsFunc(c.Nodes, func(n NodeRule) bool { return is(n.Mode) })
}
