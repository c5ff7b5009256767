package config

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Settings returns what the file says about nodes, apart from their devices. namespace is the controller's own: some
// policy presets look there for their system's pods.
func (c *Config) Settings(namespace string) decide.Settings {
	return decide.Settings{
		Fence: fence.Settings{
			PowerOffAfter: c.PowerOffAfter, PowerOffTimeout: c.PowerOffTimeout, Retry: 5 * c.PowerOffTimeout,
			Cordoned: c.ExcludeCordoned, Quorum: c.StormGuard.ControlPlane == Quorum,
			VMHosts: c.StormGuard.KubeVirtHosts == KubeVirtPowerOff,
			AfterFence: fence.AfterFence{
				PowerOn: c.AfterFence == PowerOn,
				Delay:   PowerOnDelay,
				PerDay:  c.MaxPowerOnsPerDay,
				Again:   c.FencedAgainWithin,
			},
		},
		Evict: evict.Settings{
			DetachTimeout:   c.DetachTimeout,
			OnDetachTimeout: onDetachTimeout(c.OnDetachTimeout),
			TrustPerson:     c.ManualMarks == Trust,
		},
		Policies:        c.policyRules(namespace),
		Limits:          c.StormGuard.powerOffLimits(),
		EvictFirst:      c.evictFirst,
		ExcludeSelector: c.excluded,
		ExcludedBy:      "excludeSelector " + c.ExcludeSelector + " matches its labels",
		Modes:           c.modeRules(),
	}
}

// onDetachTimeout returns the choice of that name. An unknown name forces nothing.
func onDetachTimeout(name DetachAction) evict.OnDetachTimeout {
	i := slices.Index(detachActions, name)
	if i < 0 {
		return evict.Alert
	}
	return evict.OnDetachTimeouts()[i]
}

// modeRules returns the modes of nodes, in order of precedence: the items of modes, the rules, the file's mode.
func (c *Config) modeRules() []fence.ModeRule {
	var out []fence.ModeRule
	add := func(matches func(*corev1.Node) bool, m Mode, by string, powerOffAfter time.Duration) {
		mode, known := fence.ParseMode(string(m))
		if !known {
			mode = fence.Disabled
		}
		out = append(out, fence.ModeRule{
			Matches: matches, ChosenMode: fence.ChosenMode{Mode: mode, By: by, PowerOffAfter: powerOffAfter},
		})
	}
	for i := range c.Modes {
		m := &c.Modes[i]
		matches := func(n *corev1.Node) bool { return m.selector.Matches(labels.Set(n.Labels)) }
		add(matches, m.Mode, fmt.Sprintf("modes, selector %q", m.Selector), m.PowerOffAfter)
	}
	for i := len(c.Nodes) - 1; i >= 0; i-- { // of two rules that claim a node, the last counts
		if n := &c.Nodes[i]; n.Mode != "" {
			add(n.claims, n.Mode, "mode of the rule "+n.Name, 0)
		}
	}
	add(func(*corev1.Node) bool { return true }, c.Mode, "mode of the configuration", 0)
	return out
}
