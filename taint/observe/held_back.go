package observe

import (
	"maps"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// HeldBack is which nodes the storm guard holds back now, as the metric of nodes by state counts them. The zero value:
// none.
type HeldBack struct {
	Rule   reason.Reason // of several, the first in reason.LimitReasons
	Detail string        // the rule's numbers, of its first node by name
	Nodes  []string      // by name
	Since  time.Time     // when this process began to hold back any node without a break
}

// refused is why a node's machine is not powered off.
type refused struct {
	rule   reason.Reason
	detail string
}

// HeldBack returns which nodes the storm guard holds back now.
func (o *Observer) HeldBack() HeldBack {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := HeldBack{Nodes: slices.Sorted(maps.Keys(o.held)), Since: o.heldSince}
	for _, rule := range reason.LimitReasons {
		for _, name := range out.Nodes {
			if o.held[name].rule == rule {
				out.Rule, out.Detail = rule, o.held[name].detail
				return out
			}
		}
	}
	return HeldBack{}
}

// noteHeldBack notes that a decision holds a node back. A decision that leaves the node's state as it is changes
// nothing.
func (o *Observer) noteHeldBack(name string, d action.Decision) {
	if reason.RowOf(d.Reason).State != reason.StateHeldBack {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.held) == 0 {
		o.held, o.heldSince = map[string]refused{}, o.Now()
	}
	o.held[name] = refused{d.Reason, d.Detail}
}

// endHeldBack notes that a node is not held back any more.
func (o *Observer) endHeldBack(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.held, name); len(o.held) == 0 {
		o.heldSince = time.Time{}
	}
}
