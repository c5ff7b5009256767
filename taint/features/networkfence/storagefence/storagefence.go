// Package storagefence decides how CSI-Addons' NetworkFence objects cut a node off from its storage, and let it in
// again. It has no client, clock or log.
//
// It promises: nothing is cut off unless each address is one host's, is reported for this node by its CSI driver, and
// is of no other node. A fence holds only for the life in which it was made, and only if the storage reported success
// for an object that was never changed since. A node that was cut off is let in again only after its machine has
// booted, and only if no other fence shuts out one of its addresses: storage has one list of addresses for all classes.
//
// The contract is that of kubernetes-csi-addons v0.14.0 (docs/networkfence.md).
package storagefence

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/writes"
)

// Clients is a CSIAddonsNode: which addresses a driver's clients on a node have.
type Clients struct {
	Name    string // namespace/name
	Driver  string
	NodeID  string
	ByClass map[string][]string // CIDRs by the NetworkFenceClass
}

// Class is a NetworkFenceClass.
type Class struct{ Name, Driver string }

// Node is what counts of another Node. A kubelet's credential can write all of it.
type Node struct {
	Name      string
	Addresses []string // all of its status
	PodCIDRs  []string
}

// Fence is a NetworkFence.
type Fence struct {
	Name       string
	Generation int64
	Class      string
	CIDRs      []string
	State      string // Fenced or Unfenced
	Result     string
	Message    string
	Deleting   bool
	CreatedAt  time.Time

	Owned     bool     // forcefence made it; the rest is known only then
	Made      []string // the CIDRs that it was made with
	Node      string
	Life      taint.Life // of the node, when it was made
	Confirmed bool       // forcefence has seen the storage's success, and may have moved pods since
}

// The values of NetworkFences (api/csiaddons/v1alpha1/networkfence_types.go). No status names the state that it is
// about: only the message does.
const (
	Fenced   = "Fenced"
	Unfenced = "Unfenced"

	succeeded       = "Succeeded"
	fencedMessage   = "fencing operation successful"
	unfencedMessage = "unfencing operation successful"
)

// asMade is the greatest generation of an object whose state and CIDRs have never been others. The manager's first
// write is the second generation: it adds empty fields to the spec (F48). To change a field and change it back takes
// two more.
const asMade = 2

// IsAnswered reports whether the storage has done what the object asks. An object that asks for Fenced counts only as
// it was made: a changed one may show the answer to what it asked before.
func (f Fence) IsAnswered() bool {
	switch {
	case f.Result != succeeded:
		return false
	case f.State == Fenced:
		return f.Message == fencedMessage && f.isAsMade()
	default:
		return f.State == Unfenced && f.Message == unfencedMessage
	}
}

// IsEnded reports whether the storage has let the addresses in.
func (f Fence) IsEnded() bool { return f.State == Unfenced && f.IsAnswered() }

func (f Fence) isAsMade() bool { return f.Generation <= asMade && slices.Equal(f.CIDRs, f.Made) }

// Target is a fence to make.
type Target struct {
	Class string
	CIDRs []string
}

// Cluster is what was read live.
type Cluster struct {
	Look    taint.Look // at the node that is to be cut off
	Others  []Node     // all Nodes; the node's own does not matter
	Classes []Class
	Clients []Clients
	Fences  []Fence // all, others' too
}

// Decide returns how far the policy's storage has cut the node off, and which fences are to be made if the state is
// FenceAbsent.
func (c Cluster) Decide(p policy.Policy) (policy.StorageFence, []Target) {
	var missing []Target
	var absent, pending []string
	for _, name := range p.FenceClasses {
		target, refusal := c.plan(name, p.Drivers)
		made := c.fenceOf(name)
		switch {
		case made == nil && refusal != "":
			return policy.StorageFence{State: policy.FenceRefused, Detail: refusal}, nil
		case made == nil:
			missing = append(missing, target)
			absent = append(absent, fmt.Sprintf("%s by class %s", strings.Join(target.CIDRs, ", "), name))
		case !covers(made.CIDRs, target.CIDRs):
			return policy.StorageFence{State: policy.FenceRefused, Detail: fmt.Sprintf("NetworkFence %s has other "+
				"addresses than the driver reports now (%s)", made.Name, strings.Join(target.CIDRs, ", "))}, nil
		case !made.IsAnswered() || !made.Confirmed:
			pending = append(pending, made.describe())
		}
		cidrs := target.CIDRs
		if made != nil {
			cidrs = made.CIDRs
		}
		if name := c.unfencing(cidrs); name != "" {
			return policy.StorageFence{State: policy.FencePending, Detail: fmt.Sprintf("NetworkFence %s lets one of "+
				"the addresses in: delete it once its message is %q", name, unfencedMessage)}, nil
		}
	}
	switch {
	case len(missing) > 0:
		return policy.StorageFence{State: policy.FenceAbsent, Detail: strings.Join(absent, "; ")}, missing
	case len(pending) > 0:
		return policy.StorageFence{State: policy.FencePending, Detail: strings.Join(pending, "; ")}, nil
	}
	return policy.StorageFence{State: policy.FenceHolds}, nil
}

func (f Fence) describe() string {
	switch {
	case f.State == Fenced && !f.isAsMade():
		return fmt.Sprintf("NetworkFence %s was changed after it was made: delete it", f.Name)
	case f.Result == "":
		return fmt.Sprintf("NetworkFence %s has no answer yet", f.Name)
	}
	return fmt.Sprintf("NetworkFence %s: %s, %q", f.Name, f.Result, f.Message)
}

// fenceOf returns our fence of that class for the node's present life; nil: there is none. One of an earlier life says
// nothing: its success may be that of another outage, and the node may have been let in since.
func (c Cluster) fenceOf(class string) *Fence {
	for i := range c.Fences {
		f := &c.Fences[i]
		if f.Owned && f.Life.StillHolds(c.Look) && f.Class == class && f.State == Fenced && !f.Deleting {
			return f
		}
	}
	return nil
}

// unfencing returns the name of a fence that lets one of the addresses in, or has done so; "" if there is none. Which
// of two fences the storage obeys last is unknown.
func (c Cluster) unfencing(cidrs []string) string {
	for _, f := range c.Fences {
		if f.State == Unfenced && f.overlaps(Fence{CIDRs: cidrs}) {
			return f.Name
		}
	}
	return ""
}

// plan returns the fence of a class to make for the node. refusal is why there can be none.
func (c Cluster) plan(name string, drivers []string) (t Target, refusal string) {
	t.Class = name
	i := slices.IndexFunc(c.Classes, func(k Class) bool { return k.Name == name })
	switch {
	case c.Look.BootID == "":
		return t, "the node has no boot id, by which forcefence would know that its machine has booted"
	case i < 0:
		return t, fmt.Sprintf("there is no NetworkFenceClass %s", name)
	case !slices.Contains(drivers, c.Classes[i].Driver):
		return t, fmt.Sprintf("NetworkFenceClass %s is of driver %s, which is not one of the policy's drivers", name,
			c.Classes[i].Driver)
	}
	for _, d := range drivers {
		if !slices.ContainsFunc(c.Classes, func(k Class) bool { return k.Driver == d }) {
			return t, fmt.Sprintf("none of the policy's NetworkFenceClasses is of driver %s", d)
		}
	}
	driver, known := c.Classes[i].Driver, false
	for _, k := range c.Clients {
		if k.Driver != driver || k.NodeID != c.Look.Name {
			continue
		}
		known = true
		for _, cidr := range k.ByClass[name] {
			if why := c.refuse(cidr); why != "" {
				return t, fmt.Sprintf("CSIAddonsNode %s: %s", k.Name, why)
			}
			t.CIDRs = append(t.CIDRs, cidr)
		}
	}
	slices.Sort(t.CIDRs)
	t.CIDRs = slices.Compact(t.CIDRs)
	switch {
	case !known:
		return t, fmt.Sprintf("no CSIAddonsNode of driver %s has the nodeID %s", driver, c.Look.Name)
	case len(t.CIDRs) == 0:
		return t, fmt.Sprintf("the CSIAddonsNode of driver %s reports no client of class %s", driver, name)
	}
	return t, ""
}

// refuse returns why an address must not be cut off; "" if it may.
func (c Cluster) refuse(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	switch a := p.Addr(); {
	case err != nil:
		return fmt.Sprintf("%.60q is not a CIDR", cidr)
	case !p.IsSingleIP():
		return fmt.Sprintf("%s is more than one address", cidr)
	case a.Is4In6() || a.Zone() != "":
		return fmt.Sprintf("%s is written in a way that storage may read otherwise", cidr)
	case !a.IsGlobalUnicast():
		return fmt.Sprintf("%s is no address of one machine", cidr)
	}
	if why := c.whyOthers(p.Addr()); why != "" {
		return cidr + " " + why
	}
	return ""
}

// whyOthers says which other node has an address, or a pod with it; "" if none has. A node and its driver's pod say
// this of themselves, and may be hostile. So a node that says it of the addresses of two others, or more, is the fault,
// and does not count. It cannot keep every other node from being cut off.
func (c Cluster) whyOthers(a netip.Addr) string {
	for _, k := range c.Clients {
		if k.NodeID != c.Look.Name && claims(k.all(), a) && c.sharers(k.NodeID, k.all()) < 2 {
			return fmt.Sprintf("is also an address of node %s (CSIAddonsNode %s)", k.NodeID, k.Name)
		}
	}
	for _, n := range c.Others {
		if n.Name != c.Look.Name && claims(n.all(), a) && c.sharers(n.Name, n.all()) < 2 {
			return fmt.Sprintf("is an address of node %s, or of its pods", n.Name)
		}
	}
	return ""
}

// sharers returns of how many other nodes' clients a node says that it has an address.
func (c Cluster) sharers(node string, all []string) int {
	of := map[string]bool{}
	for _, k := range c.Clients {
		if k.NodeID != node && slices.ContainsFunc(k.all(), func(text string) bool {
			p, ok := prefixOf(text)
			return ok && p.IsSingleIP() && claims(all, p.Addr())
		}) {
			of[k.NodeID] = true
		}
	}
	return len(of)
}

// claims reports whether one of these addresses and CIDRs has the address.
func claims(all []string, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(text string) bool {
		p, ok := prefixOf(text)
		return ok && p.Contains(a)
	})
}

func (k Clients) all() []string { return slices.Concat(slices.Collect(maps.Values(k.ByClass))...) }

func (n Node) all() []string { return slices.Concat(n.Addresses, n.PodCIDRs) }

// overlap reports whether two addresses or CIDRs share an address. What cannot be read overlaps with nothing.
func overlap(a, b string) bool {
	p, ok := prefixOf(a)
	q, okToo := prefixOf(b)
	return ok && okToo && p.Overlaps(q)
}

func prefixOf(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			return netip.PrefixFrom(a.Unmap(), p.Bits()-96), true
		}
		return p, true
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), true
}

func covers(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// State is what counts of the node of a fence, as it was just read.
type State struct {
	Look  taint.Look
	Ended bool // a pod that forcefence ended is still bound to it
	// LeftAlone is "" or the pause, exclusion or mode that forbids to begin anything on it. A release is in Look.
	LeftAlone string
}

// Step is what to do with a fence.
type Step string

// The steps.
const (
	Keep    Step = ""
	Confirm Step = "confirm" // note that the storage reported success
	Unfence Step = "unfence" // ask the storage to let the node in
	Delete  Step = "delete"  // the storage has done so
)

// Next returns what to do with a fence of ours now. others are all other fences, and states the nodes of those of ours,
// by fence. why says, for Keep, what a person should do; "" if nothing.
func (f Fence) Next(s State, others []Fence, states map[string]State) (step Step, why string) {
	switch {
	case !f.Owned || f.Deleting:
		return Keep, ""
	case f.IsEnded():
		return Delete, ""
	case f.State != Fenced:
		return Keep, ""
	case f.Life.NodeUID == "":
		return Keep, fmt.Sprintf("NetworkFence %s names no life of its node: an earlier version made it, or it was "+
			"edited", f.Name)
	case !s.Look.Exists || s.Look.UID != f.Life.NodeUID:
		return Keep, fmt.Sprintf("NetworkFence %s: its Node was deleted, so nothing shows whether its machine is off",
			f.Name)
	case f.isVoid(s): // it ends now, as far as the other fences allow
	case f.IsAnswered() && !f.Confirmed && f.Life.StillHolds(s.Look):
		return Confirm, ""
	case !s.isBack():
		return Keep, ""
	case !f.mayEnd(s):
		return Keep, fmt.Sprintf("NetworkFence %s: the node is Ready on the boot on which it was cut off", f.Name)
	}
	for _, o := range others {
		if o.Name != f.Name && o.State == Fenced && f.overlaps(o) && !(o.Owned && o.mayEnd(states[o.Name])) {
			return Keep, fmt.Sprintf("NetworkFence %s: NetworkFence %s shuts out one of its addresses, too", f.Name,
				o.Name)
		}
	}
	return Unfence, ""
}

// isVoid reports whether the storage may still carry out a fence that must not be: the node shows life, is left alone,
// or was released. No pod was moved on its word, so it need not stay.
func (f Fence) isVoid(s State) bool {
	return !f.Confirmed && s.Look.Exists && s.Look.UID == f.Life.NodeUID &&
		(!f.Life.StillHolds(s.Look) || s.LeftAlone != "" || s.Look.IsReleased())
}

// Standing returns what becomes of a fence of ours, by a look at its node.
func (f Fence) Standing(l taint.Look) writes.State {
	switch {
	case f.State != Fenced || f.Deleting:
		return writes.Ending
	case !l.Exists || l.UID != f.Life.NodeUID:
		return writes.NodeGone
	case l.IsReady():
		return writes.Kept
	}
	return writes.Holds
}

// OnRelease says what becomes of a fence of ours once a person releases its node, by a look before; "": nothing new.
func (f Fence) OnRelease(l taint.Look) string {
	switch {
	case !f.Owned || f.Node != l.Name || f.State != Fenced || f.Deleting || !f.Life.StillHolds(l):
		return ""
	case f.Confirmed:
		return fmt.Sprintf("NetworkFence %s stays until the machine has booted: pods may have moved on its word",
			f.Name)
	}
	return fmt.Sprintf("NetworkFence %s is taken back: the storage lets the node in again", f.Name)
}

// mayEnd reports whether the fence need not stay: it is void, or its node is back in another life and its machine has
// booted.
func (f Fence) mayEnd(s State) bool {
	booted := s.Look.BootID != "" && f.Life.BootID != "" && s.Look.BootID != f.Life.BootID
	return f.isVoid(s) ||
		s.isBack() && s.Look.UID == f.Life.NodeUID && !f.Life.StillHolds(s.Look) && booted
}

// Overlapping returns those of our other fences that shut out one of the fence's addresses.
func (f Fence) Overlapping(all []Fence) []Fence {
	return slices.DeleteFunc(slices.Clone(all), func(o Fence) bool {
		return o.Name == f.Name || !o.Owned || o.State != Fenced || !f.overlaps(o)
	})
}

func (f Fence) overlaps(o Fence) bool {
	return slices.ContainsFunc(f.CIDRs, func(a string) bool {
		return slices.ContainsFunc(o.CIDRs, func(b string) bool { return overlap(a, b) })
	})
}

// isBack reports whether the node is Ready and nothing of forcefence is left on it.
func (s State) isBack() bool {
	l := s.Look
	return l.Exists && l.IsReady() && l.Mark == nil && !l.Record.IsOpen() && l.RecordErr == nil && !s.Ended
}
