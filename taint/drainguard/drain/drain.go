// Package drain keeps `kubectl drain` from taking the last copies of a volume away: which PodDisruptionBudgets stand before a storage
// system's own pods, which replicas are to leave a cordoned node first, and what holds a drain up.
//
// It is pure: it names no client, no clock and no logger. The controller's executor and a model of it in the tests run the same functions.
//
// It promises: while the policy protects a volume's data, the pod before a healthy copy of it has a budget of ours, whichever nodes are
// cordoned, one after the other or at once. What is not known lets go of nothing. A pod never gets a second budget, because the eviction API
// refuses such a pod. An eviction is taken back only where it was asked for by us and nobody else wants it.
package drain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/reason"
)

// Do is what an act does.
type Do uint8

// The acts. The zero value does nothing.
const (
	Nothing         Do = iota
	Protect            // make Pod's budget
	Restore            // give Budget, which is ours, what it has from Guard.BudgetFor(Pod): somebody changed it
	DeleteBudget       // delete Budget, which is ours. Only after DecideNode has said so of a live look
	RequestEviction    // ask for Replica's eviction, and note in the same write that it is ours. Only after a live look, too
	CancelEviction     // take the request and the note off Replica; or the note alone, where somebody took the request back. The same
)

func (d Do) String() string {
	return [...]string{"nothing", "protect", "restore", "let go", "ask", "take back"}[d]
}

// CanBePaused reports whether the act begins something. A pause or an exclusion stops such acts; what was begun before still
// ends.
func (d Do) CanBePaused() bool { return d == Protect || d == Restore || d == RequestEviction }

// NeedsLiveLook reports that the act must be found by a live look again before it is done.
func (d Do) NeedsLiveLook() bool { return d >= DeleteBudget }

// Act is one thing to do.
type Act struct {
	Do      Do
	Pod     Pod
	Budget  Budget
	Replica storage.Replica
}

// IsSameAs reports that two acts do the same to the same object, whatever version of it.
func (a Act) IsSameAs(b Act) bool {
	return a.Do == b.Do && a.Pod.UID == b.Pod.UID && a.Budget.UID == b.Budget.UID && a.Replica.UID == b.Replica.UID
}

// Blocker is a replica that holds its node's drain up, and why.
type Blocker struct {
	Replica storage.Replica
	Why     string
}

// Oddity is what a person should know of a node: nothing is done about it.
type Oddity struct {
	Reason reason.Reason
	Detail string
}

// Decision is what to do about one node.
type Decision struct {
	Acts     []Act
	Blockers []Blocker // why the node's drain is held up; none: nothing holds it up. Of a cordoned node alone
	Held     bool      // a budget of ours holds it up, or is about to
	Unknown  string    // "" or why nothing is known of the storage: that holds a drain up, and no replica is touched
	Seen     bool      // the node's replicas were seen: Auto is known
	Auto     bool      // a replica on the node is being evicted because of us
	Oddities []Oddity
}

// IsBlocked reports that the node must not lose its storage pods.
func (d Decision) IsBlocked() bool { return len(d.Blockers) > 0 || d.Unknown != "" }

// DecideNode decides about one node, one that does not exist any more included.
func DecideNode(v View, name string) Decision {
	if v.index == nil {
		v = v.WithIndex()
	}
	n, exists := v.Nodes[name]
	n.Down = n.Down || !exists
	var d Decision
	var replicas []storage.Replica
	switch {
	case v.Storage == nil:
		d.Unknown = "nothing is known of the storage system"
	default:
		d.Unknown = v.Storage.MissingReason()
	}
	if d.Unknown == "" {
		replicas, d.Seen = v.Storage.ReplicasOn(name), true
	}
	if v.policyOn(n) == AlwaysAllow {
		d.Unknown = "" // it asks nobody
	}
	if !n.Cordoned {
		d.Unknown = "" // nor does a node that nobody drains
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

// decideEviction is what to do about the eviction of a replica.
func (v View) decideEviction(n Node, r storage.Replica, blocks bool) Do {
	// While the node is cordoned a request stands: to take it back because the copy that it led to is healthy would leave it to the storage
	// system which of the two it drops.
	want := n.Cordoned && !n.Down && v.policyOn(n).ShouldEvict() && (blocks || r.Ours)
	switch {
	case r.Unknown != "": // whether it stands, and who wants it
		return Nothing
	case want && !r.Evicting && !r.Ours: // where it is ours and does not stand, somebody took it back: that is not fought
		return RequestEviction
	case !want && r.Ours && !(r.Evicting && r.Wanted):
		return CancelEviction
	}
	return Nothing
}

// whyBlocks is why a replica on a cordoned node holds its drain up; "" if it does not.
func (v View) whyBlocks(r storage.Replica) string {
	policy := v.policyOn(v.Nodes[r.Node])
	if r.Unknown != "" && policy != AlwaysAllow {
		return "not all of it is known: " + r.Unknown
	}
	switch policy {
	case AlwaysAllow:
		return ""
	case BlockForEviction:
		switch {
		case r.Ours && !r.Evicting:
			return "somebody took its eviction back"
		case v.Nodes[r.Node].Down:
			return "the node is down, so that nothing can be copied from it"
		}
		return "it is still there"
	case AllowIfStopped:
		if !r.Running {
			return ""
		}
	case BlockIfLast, BlockForEvictionIfLast:
	default:
		return fmt.Sprintf("the policy %q is not known", v.Guard.Policy)
	}
	if r.Volume == "" {
		return "nobody knows of which volume it is"
	}
	all := v.Storage.ReplicasOf(r.Volume)
	// One that was never started holds no data, unless it is being built from another.
	if !r.Started && !slices.ContainsFunc(all, func(o storage.Replica) bool { return o.Started }) {
		return ""
	}
	why := "no other replica of the volume is healthy"
	for _, o := range all {
		if o.Node == r.Node || o.Node == "" || !o.Healthy || !o.Started || o.Unknown != "" {
			continue
		}
		open := v.whyUnsafe(o.Node)
		if o.Evicting { // it goes as soon as a copy of it is ready, which may be the one on the node that is drained
			open = "it is being evicted"
		}
		if open == "" {
			return ""
		}
		why = "the volume's replica on node " + o.Node + " is not safe either: " + open
	}
	return why
}

// whyUnsafe is why a healthy replica on that node could go as well; "" if nothing takes it before we let go of it.
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
			return fmt.Sprintf("its pod %s/%s does not run", p.Namespace, p.Name)
		}
		if c := v.budgetsOf(p); !c.ok {
			return fmt.Sprintf("its pod %s/%s has no PodDisruptionBudget of ours", p.Namespace, p.Name)
		}
	}
	return ""
}

// decideBudgets decides about the budgets before the node's storage pods.
func (v View) decideBudgets(name string, n Node, d *Decision) {
	keep := v.policyOn(n) != AlwaysAllow && (!n.Cordoned || d.IsBlocked())
	odd := map[reason.Reason][]string{}
	for _, p := range v.podsOn(name) {
		c := v.budgetsOf(p)
		who := p.Namespace + "/" + p.Name
		drop := c.ours // what of ours goes
		switch {
		case !keep:
		case len(c.foreign) > 0:
			odd[reason.DrainNotOurs] = append(odd[reason.DrainNotOurs], fmt.Sprintf("%s (PodDisruptionBudget %s)", who, c.foreign[0].Name))
			// Where ours came first and the node's data would be lost, both stay: the eviction API refuses such a pod, so that nothing is.
			if d.IsBlocked() {
				d.Held, drop = d.Held || len(c.ours) > 0, nil
			}
		case p.Daemon:
			drop = nil
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded], who+" is a DaemonSet's, which no drain evicts")
		case v.Guard.Identity.valuesOf(p) == nil:
			drop = nil
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded],
				fmt.Sprintf("%s has not all of the labels that tell it from others (%s)", who, strings.Join(v.Guard.Identity, ", ")))
		case v.podWithSameLabels(p) != "":
			drop = nil // a pod may be replaced just now
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded], who+" has the same labels as "+v.podWithSameLabels(p))
		case c.ok:
			d.Held, drop = true, nil
		case len(c.ours) == 0 && c.sameName == nil:
			d.Held, drop = true, nil
			d.Acts = append(d.Acts, Act{Do: Protect, Pod: p})
		case len(c.ours) == 0 && c.sameName.Guard != v.Guard.Name:
			odd[reason.DrainNotGuarded] = append(odd[reason.DrainNotGuarded], fmt.Sprintf("%s needs a PodDisruptionBudget named %s, and somebody else has one", who, c.sameName.Name))
		case len(c.ours) == 0: // somebody made ours one for other pods
			d.Held, drop = true, nil
			if !c.sameName.Deleting {
				d.Acts = append(d.Acts, Act{Do: Restore, Pod: p, Budget: *c.sameName})
			}
		default: // one of ours is enough; a budget that is going away makes room for the next
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

// DecideLeftovers are the budgets of ours that nobody needs any more: before no pod, and of a node that is gone or has another. One whose pod is away for
// a moment stays, so that the pod is never without.
func DecideLeftovers(v View) (out []Act) {
	if v.index == nil {
		v = v.WithIndex()
	}
	for _, b := range v.index.budgets {
		if b.Guard != v.Guard.Name || b.Deleting || len(b.pods) > 0 {
			continue
		}
		_, exists := v.Nodes[b.Node]
		another := slices.ContainsFunc(v.podsOn(b.Node), func(p Pod) bool { return v.budgetsOf(p).ok })
		if !exists || another || v.Guard.Policy == AlwaysAllow {
			out = append(out, Act{Do: DeleteBudget, Budget: b.Budget})
		}
	}
	return out
}
