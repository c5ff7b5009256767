// Package drain keeps `kubectl drain` from evicting the storage pods that hold the last copies of a volume. It decides
// which PodDisruptionBudgets protect a storage system's pods, which replicas must leave a cordoned node first, and what
// holds a drain up.
//
// It is pure: it names no client, no clock and no logger. The controller's executor and a model of it in the tests run
// the same functions.
//
// It promises: while the policy protects a volume's data, the pod of a healthy copy has a budget of ours. This holds
// whichever nodes are cordoned, one after the other or at once. What is not known releases nothing. A pod never gets a
// second budget, because the eviction API refuses such a pod. An eviction is canceled only if we requested it and no
// other client wants it.
//
// The policies are those of Longhorn's document about its setting node-drain-policy, with five differences:
//   - The document's test with one volume of one replica and one of three expects two Events EvictionAutomatic and one
//     EvictionCanceled, and no request on the volume of three. Here each replica that is asked has one
//     EvictionAutomatic, and each request that is taken back one EvictionCanceled. So that test sees one and none.
//   - Current Longhorn takes a request back once a copy elsewhere is healthy. Here it stays until the replica is gone:
//     otherwise the storage system would choose which of the two it drops.
//   - Current Longhorn counts a replica that is being built as one without data, and one that is being evicted as safe.
//     A model of nodes that are cordoned and drained in any order found a lost volume with each rule.
//   - Longhorn waits until all volumes of the node are detached. Here the drain evicts the pods that use them.
//   - The document's node.status.autoEvicting is an annotation of the Node, because the storage system's objects are
//     not ours.
package drain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/reason"
)

// Do is the kind of an act.
type Do uint8

// The acts. The zero value does nothing.
const (
	Nothing      Do = iota
	Protect         // create Pod's budget
	Restore         // reset Budget, which is ours and was changed, to Guard.BudgetFor(Pod)
	DeleteBudget    // delete Budget, which is ours; only after DecideNode returned this for a live look
	// RequestEviction requests Replica's eviction, and marks the request as ours in the same write. It needs a live
	// look, too.
	RequestEviction
	// CancelEviction removes the request and our mark from Replica, or only the mark if another client removed the
	// request. It needs a live look, too.
	CancelEviction
)

func (d Do) String() string {
	return [...]string{"none", "create budget", "restore budget", "delete budget", "request eviction",
		"cancel eviction"}[d]
}

// CanBePaused reports whether the act begins something. A pause or an exclusion stops such acts; what was begun before
// still ends.
func (d Do) CanBePaused() bool { return d == Protect || d == Restore || d == RequestEviction }

// NeedsLiveLook reports whether a live look must lead to the act again before it is done.
func (d Do) NeedsLiveLook() bool { return d >= DeleteBudget }

// Act is one thing to do.
type Act struct {
	Do      Do
	Pod     Pod
	Budget  Budget
	Replica storage.Replica
}

// IsSameAs reports whether two acts do the same to the same object (by UID), in any version of it.
func (a Act) IsSameAs(b Act) bool {
	return a.Do == b.Do && a.Pod.UID == b.Pod.UID && a.Budget.UID == b.Budget.UID && a.Replica.UID == b.Replica.UID
}

// Blocker is a replica that holds up its node's drain, with the reason.
type Blocker struct {
	Replica storage.Replica
	Why     string
}

// Oddity is a fact about a node that a person should know. No act follows from it.
type Oddity struct {
	Reason reason.Reason
	Detail string
}

// Decision is what to do about one node, and what holds up its drain.
type Decision struct {
	Policy   Policy // the policy that decided
	Acts     []Act
	Blockers []Blocker // the replicas that hold up the node's drain; empty unless the node is cordoned
	Held     bool      // a budget of ours holds up the drain, or is about to
	Unknown  string    // "" or why the storage's state is unknown: that holds up a drain, and no replica is touched
	Seen     bool      // the node's replicas were seen: Auto is known
	Auto     bool      // a replica on the node is being evicted at our request
	Oddities []Oddity
}

// IsBlocked reports whether the node must keep its storage pods.
func (d Decision) IsBlocked() bool { return len(d.Blockers) > 0 || d.Unknown != "" }

// DecideNode decides about one node. The node may have been deleted; it then counts as down.
func DecideNode(v View, name string) Decision {
	if v.index == nil {
		v = v.WithIndex()
	}
	n, exists := v.Nodes[name]
	n.Down = n.Down || !exists
	d := Decision{Policy: v.policyOn(n)}
	var replicas []storage.Replica
	switch {
	case v.Storage == nil:
		d.Unknown = "the state of the storage system is unknown"
	default:
		d.Unknown = v.Storage.MissingReason()
	}
	if d.Unknown == "" {
		replicas, d.Seen = v.Storage.ReplicasOn(name), true
	}
	if d.Policy == AlwaysAllow {
		d.Unknown = "" // this policy reads no storage
	}
	if !n.Cordoned {
		d.Unknown = "" // a node that is not drained needs none either
	}
	for _, r := range replicas {
		why := ""
		if n.Cordoned {
			why = v.whyBlocks(r)
		}
		if why != "" {
			d.Blockers = append(d.Blockers, Blocker{r, why})
		}
		d.Auto = d.Auto || r.Ours && r.Evicting
		if act := v.decideEviction(n, r, why != ""); act != Nothing {
			d.Acts = append(d.Acts, Act{Do: act, Replica: r})
		}
	}
	v.decideBudgets(name, n, &d)
	return d
}

// decideEviction returns the act for the eviction of a replica: Nothing, RequestEviction or CancelEviction.
func (v View) decideEviction(n Node, r storage.Replica, blocks bool) Do {
	// While the node is cordoned the request stays. Canceling it once the new copy is healthy would let the storage
	// system choose which of the two copies to drop.
	want := n.Cordoned && !n.Down && v.policyOn(n).ShouldEvict() && (blocks || r.Ours)
	switch {
	case r.Unknown != "": // it is unknown whether the request exists, and who wants it
		return Nothing
	case want && !r.Evicting && !r.Ours: // our mark without a request: another client canceled it, and we accept that
		return RequestEviction
	case !want && r.Ours && !(r.Evicting && r.Wanted):
		return CancelEviction
	}
	return Nothing
}

// whyBlocks returns why a replica on a cordoned node holds up its drain, or "" if it does not.
func (v View) whyBlocks(r storage.Replica) string {
	policy := v.policyOn(v.Nodes[r.Node])
	if r.Unknown != "" && policy != AlwaysAllow {
		return "some of its state is unknown: " + r.Unknown
	}
	switch policy {
	case AlwaysAllow:
		return ""
	case BlockForEviction:
		switch {
		case r.Ours && !r.Evicting:
			return "another client canceled its eviction"
		case v.Nodes[r.Node].Down:
			return "its node is down, so nothing can be copied from it"
		}
		return "it has not left yet"
	case AllowIfStopped:
		if !r.Running {
			return ""
		}
	case BlockIfLast, BlockForEvictionIfLast:
	default:
		return fmt.Sprintf("unknown policy %q", policy)
	}
	if r.Volume == "" {
		return "its volume is unknown"
	}
	all := v.Storage.ReplicasOf(r.Volume)
	// A replica that was never started holds no data, unless it is being built from another.
	if !r.Started && !slices.ContainsFunc(all, func(o storage.Replica) bool { return o.Started }) {
		return ""
	}
	why := "no other replica of the volume is healthy"
	for _, o := range all {
		if o.Node == r.Node || o.Node == "" || !o.Healthy || !o.Started || o.Unknown != "" {
			continue
		}
		open := v.whyUnsafe(o.Node)
		if o.Evicting { // it goes once its copy is ready, and that copy may be the one on the drained node
			open = "it is being evicted"
		}
		if open == "" {
			return ""
		}
		why = "the volume's replica on node " + o.Node + " is not safe either: " + open
	}
	return why
}

// whyUnsafe returns why a healthy replica on that node could be lost as well, or "" if it stays until we release it.
func (v View) whyUnsafe(name string) string {
	n, exists := v.Nodes[name]
	switch {
	case !exists:
		return "the node does not exist"
	case n.Cordoned:
		return "the node is cordoned, too"
	case n.Down:
		return "the node is down"
	}
	pods := v.podsOn(name)
	if len(pods) == 0 {
		return "no pod of the storage system is on it"
	}
	for _, p := range pods {
		if !p.Ready {
			return fmt.Sprintf("its pod %s/%s is not ready", p.Namespace, p.Name)
		}
		if c := v.budgetsOf(p); !c.ok {
			return fmt.Sprintf("its pod %s/%s has no PodDisruptionBudget of ours", p.Namespace, p.Name)
		}
	}
	return ""
}

// decideBudgets adds to d what to do about the budgets of the node's storage pods.
func (v View) decideBudgets(name string, n Node, d *Decision) {
	keep := v.policyOn(n) != AlwaysAllow && (!n.Cordoned || d.IsBlocked())
	odd := map[reason.Reason][]string{}
	for _, p := range v.podsOn(name) {
		c := v.budgetsOf(p)
		who := p.Namespace + "/" + p.Name
		drop := c.ours // the budgets of ours to delete
		switch {
		case !keep:
		case len(c.foreign) > 0:
			odd[reason.DrainNotOurs] = append(odd[reason.DrainNotOurs],
				fmt.Sprintf("%s (PodDisruptionBudget %s)", who, c.foreign[0].Name))
			// If our budget came first and the node's data would be lost, both budgets stay. The eviction API refuses a
			// pod with two, so nothing is lost.
			if d.IsBlocked() {
				d.Held, drop = d.Held || len(c.ours) > 0, nil
			}
		case p.Daemon:
			drop = nil
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded],
				who+" belongs to a DaemonSet, and no drain evicts it")
		case v.Guard.Identity.valuesOf(p) == nil:
			drop = nil
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded],
				fmt.Sprintf("%s lacks a label that identifies it (%s)", who,
					strings.Join(v.Guard.Identity, ", ")))
		case v.podWithSameLabels(p) != "":
			drop = nil // a pod may be in the middle of its replacement
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded],
				who+" has the same labels as "+v.podWithSameLabels(p))
		case c.ok:
			d.Held, drop = true, nil
		case len(c.ours) == 0 && c.sameName == nil:
			d.Held, drop = true, nil
			d.Acts = append(d.Acts, Act{Do: Protect, Pod: p})
		case len(c.ours) == 0 && c.sameName.Guard != v.Guard.Name:
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded],
				fmt.Sprintf("%s needs a PodDisruptionBudget named %s, and another client has one", who,
					c.sameName.Name))
		case len(c.ours) == 0: // another client changed our budget's selector
			d.Held, drop = true, nil
			if !c.sameName.Deleting {
				d.Acts = append(d.Acts, Act{Do: Restore, Pod: p, Budget: *c.sameName})
			}
		default: // one of ours is enough; a budget that is being deleted makes room for the next
			d.Held, drop = true, c.ours[1:]
			if b := c.ours[0]; !b.Deleting && !b.isIntact(p) {
				d.Acts = append(d.Acts, Act{Do: Restore, Pod: p, Budget: b.Budget})
			}
		}
		for _, b := range drop {
			if !b.Deleting {
				d.Acts = append(d.Acts, Act{Do: DeleteBudget, Pod: p, Budget: b.Budget})
			}
		}
	}
	for _, r := range []reason.Reason{reason.DrainNotOurs, reason.DrainNotGuarded} {
		if len(odd[r]) > 0 {
			d.Oddities = append(d.Oddities, Oddity{r, strings.Join(odd[r], "; ")})
		}
	}
}

// DecideLeftovers returns the deletions of our budgets that are not needed any more. Such a budget selects no pod, and
// its node was deleted or has another budget, or the policy there is AlwaysAllow. A budget whose pod is away for a
// moment stays, so that the pod is never without one.
func DecideLeftovers(v View) (out []Act) {
	if v.index == nil {
		v = v.WithIndex()
	}
	for _, b := range v.index.budgets {
		if b.Guard != v.Guard.Name || b.Deleting || len(b.pods) > 0 {
			continue
		}
		n, exists := v.Nodes[b.Node]
		another := slices.ContainsFunc(v.podsOn(b.Node), func(p Pod) bool { return v.budgetsOf(p).ok })
		if !exists || another || v.policyOn(n) == AlwaysAllow {
			out = append(out, Act{Do: DeleteBudget, Budget: b.Budget})
		}
	}
	return out
}
