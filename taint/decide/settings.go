package decide

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// Settings are what a configuration says about nodes, apart from their devices. They do not change.
type Settings struct {
	Fence           fence.Settings
	Evict           evict.Settings
	Policies        []policy.Policy
	Limits          *fleet.Limits    // of power-offs; nil: fleet.DefaultLimits
	EvictFirst      labels.Selector  // pods to evict before the others
	ExcludeSelector labels.Selector  // nodes on which nothing may begin; nil: none
	ExcludedBy      string           // why a node is excluded that ExcludeSelector matches, for a person
	Modes           []fence.ModeRule // the first that matches a node counts; none: it is observed
}

// Mode returns what may be done about a node: the mode of the first rule that matches it, lowered by its annotation.
func (s *Settings) Mode(node *corev1.Node) fence.ChosenMode {
	var chosen fence.ChosenMode
	for _, r := range s.Modes {
		if r.Matches(node) {
			chosen = r.ChosenMode
			break
		}
	}
	return chosen.LoweredBy(node.Annotations)
}

// FenceFor returns the limits and the mode of a node.
func (s *Settings) FenceFor(node *corev1.Node) (fence.Settings, fence.ChosenMode) {
	limits, mode := s.Fence, s.Mode(node)
	if mode.PowerOffAfter > 0 {
		limits.PowerOffAfter = mode.PowerOffAfter
	}
	return limits, mode
}

// Excluded returns why the configuration leaves a node alone; "" if it does not.
func (s *Settings) Excluded(node *corev1.Node) string {
	if s.ExcludeSelector == nil || !s.ExcludeSelector.Matches(labels.Set(node.Labels)) {
		return ""
	}
	return s.ExcludedBy
}
