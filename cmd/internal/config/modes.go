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

var modes = wordsOf[Mode](fence.Modes())

// is reports whether the word names that mode.
func (m Mode) is(mode fence.Mode) bool { return string(m) == mode.String() }

// wordsOf returns the names of values, as the file writes them.
func wordsOf[W ~string, T fmt.Stringer](all []T) []W {
	out := make([]W, len(all))
	for i, v := range all {
		out[i] = W(v.String())
	}
	return out
}

// leastGrace is the least powerOffAfter: two renewals of a Lease, which a kubelet renews every 10 s where it is not
// told otherwise.
const leastGrace = 20 * time.Second

// ModeItem is the mode of the nodes that its selector matches. No node can match two.
type ModeItem struct {
	Selector      string        `yaml:"selector"`      // label selector, not ""
	Mode          Mode          `yaml:"mode"`          // must be said
	PowerOffAfter time.Duration `yaml:"powerOffAfter"` // of Fence and Shadow; default Config.PowerOffAfter

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
	if d < leastGrace {
		r.report(path, "must be at least %s: a healthy kubelet may miss two renewals of its Lease", short(leastGrace))
	}
}

// checkModes checks modes, and whether there is anything to fence.
func (r *reader) checkModes(c *Config) {
	fences := c.Mode.is(fence.Fence)
	for i := range c.Modes {
		m, path := &c.Modes[i], item("modes", i)
		given := func(key string) bool { _, ok := r.lines[path+"."+key]; return ok }
		if m.Mode == "" && !r.bad[path+".mode"] {
			r.report(path+".mode", "missing: %s", either(spelled(modes)))
		} else {
			oneOf(r, path+".mode", m.Mode, modes...)
		}
		fences = fences || m.Mode.is(fence.Fence)
		switch {
		case !given("powerOffAfter"):
		case m.Mode.is(fence.Observe), m.Mode.is(fence.Disabled):
			r.report(path+".powerOffAfter", `belongs to "mode: fence" and "mode: shadow"`)
		default:
			r.grace(path+".powerOffAfter", m.PowerOffAfter)
		}
		at := path + ".selector"
		if strings.TrimSpace(m.Selector) == "" {
			r.report(at, "missing: a label selector of nodes. The key mode, at the top level of the file, sets the "+
				"mode of all nodes")
			continue
		}
		faults := len(r.errs)
		if m.selector = r.selector(at, m.Selector, labels.Nothing()); len(r.errs) > faults {
			m.selector = nil // matches no node, and overlaps with no other
			continue
		}
		if apart(m.selector, labels.Everything()) {
			r.report(at, "selects no node: its requirements contradict each other")
			continue
		}
		for j := range c.Modes[:i] {
			if o := c.Modes[j].selector; o != nil && !apart(m.selector, o) {
				r.report(at, "a node can match both this and the selector of %s, on line %d: make them exclude each "+
					"other, for example by zone=a and zone!=a",
					item("modes", j), cmp.Or(r.lines[item("modes", j)+".selector"], r.lines[item("modes", j)]))
				break
			}
		}
	}
	for i := range c.Nodes {
		if path := item("nodes", i) + ".mode"; len(c.Modes) > 0 && c.Nodes[i].Mode != "" {
			r.report(path, "conflicts with modes, on line %d: write the modes of nodes only there", r.lines["modes"])
		}
	}
	if fences && len(c.Nodes) == 0 && !r.bad["nodes"] {
		path := "mode"
		if !c.Mode.is(fence.Fence) {
			path = "modes"
		}
		r.report(path, "nothing to fence: no rule under nodes says how to find a node's machine")
	}
}

// maxPowerOns is how many power-ons a day a record has room for.
const maxPowerOns = 10

// checkPostFence checks what happens to machines after a fence. Only a machine that was powered off is powered on.
func (r *reader) checkPostFence(c *Config) {
	oneOf(r, "afterFence", c.PostFence, LeaveOff, PowerOn)
	if c.FencedAgainWithin < 0 || c.FencedAgainWithin > taint.Day {
		r.report("fencedAgainWithin", "must be from 0s to 24h")
	}
	if c.MaxPowerOnsPerDay < 1 || c.MaxPowerOnsPerDay > maxPowerOns {
		r.report("maxPowerOnsPerDay", "must be from 1 to %d", maxPowerOns)
	}
	if c.PostFence == LeaveOff {
		for _, key := range []string{"maxPowerOnsPerDay", "fencedAgainWithin"} {
			if _, given := r.lines[key]; given {
				r.report(key, `belongs to "afterFence: powerOn"`)
			}
		}
	}
	if c.PostFence == PowerOn && !c.fences() && !r.bad["mode"] && !r.bad["modes"] && !r.bad["nodes"] {
		r.report("afterFence", "powerOn needs mode fence: forcefence powers on only machines that it powered off, "+
			"and no node's mode is fence")
	}
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
		if !slices.ContainsFunc(candidates(all), func(value *string) bool {
			set := labels.Set{}
			if value != nil {
				set[key] = *value
			}
			return !slices.ContainsFunc(all, func(q labels.Requirement) bool { return !q.Matches(set) })
		}) {
			return true
		}
	}
	return false
}

// candidates are values of a label such that, if any value satisfies all of the demands, one of these does: no label at
// all, the values that are named, their neighbours among the numbers, and one that no item names.
func candidates(all []labels.Requirement) []*string {
	out := []*string{nil}
	add := func(s string) { out = append(out, &s) }
	other := "x"
	for _, q := range all {
		for v := range q.Values() {
			add(v)
			other += v
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				add(strconv.FormatInt(n+1, 10))
				add(strconv.FormatInt(n-1, 10))
			}
		}
	}
	add(other)
	return out
}

// fences reports whether the mode of any node may be Fence.
func (c *Config) fences() bool {
	return c.Mode.is(fence.Fence) ||
		slices.ContainsFunc(c.Modes, func(m ModeItem) bool { return m.Mode.is(fence.Fence) }) ||
		slices.ContainsFunc(c.Nodes, func(n NodeRule) bool { return n.Mode.is(fence.Fence) })
}
