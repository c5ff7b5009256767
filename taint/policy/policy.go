// Package policy decides which pods of a node that looks dead are ended although nothing proves that its machine is off: what storage
// systems and operators do for workloads of their own, for those who accept what that may cost. A policy says which pods, when, and in
// whose name it does without proof. It is asked only while no fence of the node is under way, and a fence that begins takes its place.
//
// It is pure: Step is a function from a View to a Decision. The caller looks live before each, and gives it the pods listed after that
// look.
//
// It promises: a policy without a word for WithoutProof ends nothing; a node that is Ready, or that was not seen Ready where the trigger
// is the change, loses no pod; what is deleted was ended before; exempt pods are left alone, and so are pods that Kubernetes' own eviction is about to
// delete by name (F2).
package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/reason"
)

// Trigger is what makes a policy look at a node's pods.
type Trigger string

// The triggers.
const (
	NotReady       Trigger = "NotReady"       // the node's Ready is not True (Unknown, False, missing), for as long as that lasts
	BecameNotReady Trigger = "BecameNotReady" // this process saw it Ready, and then not: once for each such change
)

// WithoutProof is the word by which a policy may end pods of a machine that may run.
type WithoutProof string

// The words. The zero value lets a policy do nothing: its pods wait for a proof, with all others.
const (
	Never            WithoutProof = ""
	StorageFences    WithoutProof = "storage-fences"    // the storage cuts such a node off by itself, so that a second copy cannot write
	AcceptDuplicates WithoutProof = "accept-duplicates" // a pod may run twice for as long as its node is only cut off
)

// Policy is one rule of the configuration.
type Policy struct {
	Name         string
	When         Trigger
	Nodes        labels.Selector // nil: all
	Namespaces   []string        // none: all
	Pods         labels.Selector // nil: all
	Owners       []string        // kinds that control the pod, a ReplicaSet of a Deployment as Deployment; none: any, and no owner at all
	Drivers      []string        // a volume of the pod's claims is of one of these CSI drivers; none: volumes do not matter
	Terminating  bool            // only pods whose deletionTimestamp has passed
	WithoutProof WithoutProof
}

// Memory is what one process remembers of one node for its policies. The zero value has seen nothing: a process that has just begun to
// lead replays nothing.
type Memory struct {
	ready                  bool           // it was seen Ready last
	fell                   int            // how often it was seen to become NotReady
	done                   map[string]int // what fell was when a policy had nothing left to do
	since, looked, resumed time.Time      // not Ready, as far as looks tell; the last look; the first after none for long

	again map[string]time.Time // by UID: a write of the pod was refused, and is not sent again before that
	small map[string]bool      // UIDs of pods that are too large to take a whole tombstone
	owed  bool                 // pods were ended, and may still be there
}

// Saw folds a look in, live or a cache's.
func (m *Memory) Saw(l taint.Look) {
	if !m.looked.IsZero() && l.Sent.Sub(m.looked) > evict.Blind {
		m.resumed = l.Got
	}
	m.looked = l.Got
	switch {
	case l.IsReady():
		m.since = time.Time{}
	case m.since.IsZero():
		m.since = l.Got
	}
	ready := l.Exists && l.IsReady()
	if m.ready && !ready {
		m.fell++
	}
	m.ready = ready
}

// SawPods folds in what is bound to the node.
func (m *Memory) SawPods(pods []evict.Pod) {
	m.owed = m.owed && slices.ContainsFunc(pods, ended)
	gone := func(uid string) bool {
		return !slices.ContainsFunc(pods, func(p evict.Pod) bool { return p.UID == uid })
	}
	m.again, m.small = maps.Clone(m.again), maps.Clone(m.small) // a View holds the maps that were there
	maps.DeleteFunc(m.again, func(uid string, _ time.Time) bool { return gone(uid) })
	maps.DeleteFunc(m.small, func(uid string, _ bool) bool { return gone(uid) })
}

// ended reports a pod that is still to be deleted.
func ended(p evict.Pod) bool { return p.Tombstone && !p.Kept() }

// Finished folds in that these policies have nothing left to do about the last change of the node.
func (m *Memory) Finished(names []string) {
	m.done = maps.Clone(m.done) // a View holds the map that was there
	for _, name := range names {
		if m.done == nil {
			m.done = map[string]int{}
		}
		m.done[name] = m.fell
	}
}

// Owes reports that pods were ended and not yet seen gone: they are deleted, whatever became of the node.
func (m Memory) Owes() bool { return m.owed }

// retry is how long a pod rests after the API server refused a write of it. It holds up no other (invariant 16).
const retry = 5 * time.Second

// Wrote folds in how writes of pods ended, by UID.
func (m *Memory) Wrote(ending bool, how map[string]evict.Refusal, now time.Time) {
	m.again, m.small = maps.Clone(m.again), maps.Clone(m.small)
	if m.again == nil {
		m.again, m.small = map[string]time.Time{}, map[string]bool{}
	}
	for uid, why := range how {
		switch {
		case why == evict.Accepted && ending:
			m.owed = true
		case why == evict.TooLarge && ending && !m.small[uid]: // at once, in its small form
			m.small[uid] = true
		case why != evict.Accepted && why != evict.Changed:
			m.again[uid] = now.Add(retry)
		}
	}
}

// View is all that Step decides on.
type View struct {
	Now      time.Time
	Look     taint.Look // live, read after the last act
	Memory              // after Saw
	Policies []Policy
	Alone    bool // every other node looks dead, too: it is the API server's fault, or ours

	Listed bool        // Pods were listed after Look
	Pods   []evict.Pod // all that are bound to the node
}

// Act is what the caller does next.
type Act uint8

// The acts.
const (
	Leave       Act = iota // nothing, until something changes
	Wait                   // nothing; look again after Decision.After
	ReadPods               // list the node's pods, live
	ReadOwners             // read who controls the owners of Decision.Pods
	ReadVolumes            // read the volumes of Decision.Pods
	Tombstone              // end Decision.Pods
	Delete                 // delete Decision.Pods, which were ended, with grace 0
)

// Decision is one act and its reason.
type Decision struct {
	Act    Act
	Why    reason.Reason
	Detail string
	After  time.Duration
	Pods   []evict.Pod
	Policy Policy   // Tombstone: in whose name
	Done   []string // policies that have nothing left to do about this change of the node
}

const (
	resync    = 5 * time.Second        // between two lists of a dead node's pods: nobody watches them, and their deletion has a timer of its own
	pollStock = 200 * time.Millisecond // while Kubernetes' own eviction is about to delete a pod by name
	quiet     = 30 * time.Second       // where no pod of it can ever match
)

// Step returns the next act for an unmarked node.
func Step(v View) Decision {
	due := v.due()
	switch {
	case len(due) == 0 && !v.owed:
		return Decision{Act: Leave}
	case !v.Listed:
		return Decision{Act: ReadPods}
	}
	d := Decision{Act: Wait, After: quiet}
	if v.owed {
		left := v.where(ended)
		if ready := slices.DeleteFunc(slices.Clone(left), v.rests); len(ready) > 0 {
			return Decision{Act: Delete, Why: reason.PolicyDeleting, Pods: ready}
		}
		for _, pod := range left {
			d.After = min(d.After, v.again[pod.UID].Sub(v.Now))
		}
	}
	for _, p := range due {
		one := v.step(p)
		switch {
		case one.Act > Wait:
			return one
		case one.Act == Wait:
			d.After = min(d.After, one.After)
		case p.When == BecameNotReady:
			d.Done = append(d.Done, p.Name)
		}
	}
	return d
}

// rests reports that a write of the pod was refused a moment ago.
func (v View) rests(p evict.Pod) bool { return v.again[p.UID].After(v.Now) }

// due are the policies whose trigger is there.
func (v View) due() []Policy {
	l := v.Look
	if !l.Exists || l.IsReady() || l.Mark != nil || l.Record.Open() || l.RecordErr != nil || v.Alone {
		return nil
	}
	var out []Policy
	for _, p := range v.Policies {
		switch {
		case p.WithoutProof == Never:
		case p.Nodes != nil && !p.Nodes.Matches(labels.Set(l.Labels)):
		case p.When == BecameNotReady && v.done[p.Name] >= v.fell:
		default:
			out = append(out, p)
		}
	}
	return out
}

// step is one policy's next act. Leave: none of its pods is left.
func (v View) step(p Policy) Decision {
	mine := v.where(p.selects)
	if slices.Contains(p.Owners, "Deployment") {
		unknown := slices.DeleteFunc(slices.Clone(mine), func(pod evict.Pod) bool { return pod.Owner.Kind != "ReplicaSet" || pod.Owner.Known })
		if len(unknown) > 0 {
			return Decision{Act: ReadOwners, Pods: unknown}
		}
	}
	mine = slices.DeleteFunc(mine, func(pod evict.Pod) bool { return !p.owns(pod) })
	if len(p.Drivers) > 0 {
		unknown := slices.DeleteFunc(slices.Clone(mine), func(pod evict.Pod) bool { return !pod.Claims })
		if len(unknown) > 0 {
			return Decision{Act: ReadVolumes, Pods: unknown}
		}
		mine = slices.DeleteFunc(mine, func(pod evict.Pod) bool { return !p.stores(pod) })
	}
	if len(mine) == 0 {
		return Decision{Act: Leave}
	}
	d := Decision{Act: Wait, After: resync, Policy: p}
	var end []evict.Pod
	stock := evict.Stock{Taints: v.Look.Taints, From: v.since, Resumed: v.resumed}
	for _, pod := range mine {
		switch {
		case v.rests(pod):
			d.After = min(d.After, v.again[pod.UID].Sub(v.Now))
		case stock.Due(pod, v.Now):
			d.After = min(d.After, pollStock)
		case !p.Terminating:
			end = append(end, pod)
		case pod.DeleteAt.IsZero(): // nobody deleted it yet
		case pod.DeleteAt.After(v.Now):
			d.After = min(d.After, pod.DeleteAt.Sub(v.Now))
		default:
			end = append(end, pod)
		}
	}
	if len(end) == 0 {
		return d
	}
	for i := range end {
		end[i].Small = v.small[end[i].UID]
	}
	return Decision{Act: Tombstone, Why: reason.PolicyEnding, Detail: p.String(), Pods: end, Policy: p}
}

// selects is what a pod's own words tell of it: it is unfinished, and not exempt (invariant 9).
func (p Policy) selects(pod evict.Pod) bool {
	return !pod.Terminal && pod.Exempt == taint.NotExempt &&
		(len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, pod.Namespace)) &&
		(p.Pods == nil || p.Pods.Matches(labels.Set(pod.Labels)))
}

func (p Policy) owns(pod evict.Pod) bool {
	return len(p.Owners) == 0 || slices.Contains(p.Owners, pod.Owner.Kind)
}

func (p Policy) stores(pod evict.Pod) bool {
	return slices.ContainsFunc(pod.Volumes, func(v evict.Volume) bool { return slices.Contains(p.Drivers, v.Driver) })
}

func (v View) where(ok func(evict.Pod) bool) []evict.Pod {
	return slices.DeleteFunc(slices.Clone(v.Pods), func(p evict.Pod) bool { return !ok(p) })
}

// String names the policy and its word, for Events and logs.
func (p Policy) String() string {
	return fmt.Sprintf("policy %s, without proof: %s", p.Name, p.WithoutProof)
}

// selector parses a selector of the presets'.
func selector(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err) // a preset that cannot be parsed is found by the first test
	}
	return s
}
