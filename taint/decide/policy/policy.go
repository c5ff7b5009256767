// Package policy decides which pods of a node that looks dead are ended although nothing proves that its machine is off: what storage
// systems and operators do for workloads of their own, for those who accept what that may cost. A policy says which pods, when, and in
// whose name it does without proof. It is asked only while no fence of the node is under way, and a fence that begins takes its place.
//
// It is pure: Step is a function from a View to a Decision. The caller looks live before each, and gives it the pods listed after that
// look.
//
// It promises: A policy without a word for WithoutProof ends nothing. No policy ends anything while fewer than half of
// all nodes are heard, or one of the node's failure domains is lost. A node that is Ready loses no pod, nor does one
// that was not seen Ready where the trigger is the change. What is deleted was ended before. Exempt pods are left
// alone, and so are pods that Kubernetes' own eviction is about to delete by name (F2).
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/storage"
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
	Owners       []string        // kinds that control the pod, or the ReplicaSet that does; none: any, and no owner at all
	Drivers      []string        // a volume of the pod's claims is of one of these CSI drivers; none: volumes do not matter
	AllVolumes   bool            // not only one volume, but all of the pod's claims
	Terminating  bool            // only pods whose deletionTimestamp has passed
	Yields       bool            // it ends nothing while a setting of the storage's own may do the same
	Replaced     bool            // only pods that were deleted, and for one of whose volumes of Drivers a pod of a ReplicaSet waits
	Keep         bool            // its pods are ended and not deleted, and only where that frees their volumes of Drivers
	Detach       bool            // the attachments of ended pods' volumes of Drivers are deleted
	Storage      string          // StorageUnhealthy: the adapter of the storage system that is asked; its drivers are in Drivers
	Intervals    Intervals       // StorageUnhealthy
	WithoutProof WithoutProof
}

// Memory is what one process remembers of one node for its policies. The zero value has seen nothing: a process that has just begun to
// lead replays nothing.
type Memory struct {
	ready                  bool              // it was seen Ready last
	fell                   int               // how often it was seen to become NotReady
	done                   map[string]int    // what fell was when a policy had nothing left to do
	since, looked, resumed providers.Instant // not Ready, by the looks; the last look; the first after a gap
	lost                   providers.Instant // the last look before that gap

	seen evict.TaintTimes

	again map[string]providers.Instant // by UID: when a refused write may be sent again
	small map[string]bool              // UIDs of pods that are too large to take a whole tombstone
	owed  map[string]bool              // UIDs of pods that were ended to be deleted, and may still be there
	freed map[string]bool              // UIDs of ended pods whose volumes were set loose
	loose map[string]string            // volumes whose attachments are to be deleted, with the policy's name
	told  map[string]bool              // policies that named the pods which tolerate the mark, since the node is not Ready

	spells map[string]spell // by policy: of those whose trigger is StorageUnhealthy
	failed map[string]bool  // by UID: what was refused since the last of them began
	free   []freed          // volumes of pods that these ended
	boot   string           // the node's, at the last look
}

// Saw folds a look in, live or a cache's.
func (m *Memory) Saw(l taint.Look) {
	if !m.looked.IsZero() && m.looked.Age(l.Sent) > evict.Blind {
		m.resumed, m.lost = l.Got, m.looked
	}
	m.looked, m.seen = l.Got, m.seen.See(l)
	switch {
	case l.IsReady():
		m.since = providers.Instant{}
	case m.since.IsZero():
		m.since = l.Got
	}
	ready := l.Exists && l.IsReady()
	if m.ready && !ready {
		m.fell++
	}
	m.clone()
	if m.ready = ready; ready {
		m.told = nil
	}
	maps.DeleteFunc(m.loose, func(_, policy string) bool { // its kubelet unmounts them, or the fence detaches them
		return l.Mark != nil || ready && !m.spells[policy].open
	})
	m.sawVolumes(l)
}

// Stock is what the stock eviction controller knows of the node, by a look.
func (m Memory) Stock(l taint.Look) evict.Stock {
	return evict.Stock{Taints: l.Taints, Seen: m.seen, From: m.since, Resumed: m.resumed, Lost: m.lost}
}

// SawPods folds in what is bound to the node.
func (m *Memory) SawPods(pods []action.Pod) {
	gone := func(uid string, _ bool) bool {
		return !slices.ContainsFunc(pods, func(p action.Pod) bool { return p.UID == uid })
	}
	m.clone()
	maps.DeleteFunc(m.owed, func(uid string, _ bool) bool {
		return !slices.ContainsFunc(pods, func(p action.Pod) bool { return p.UID == uid && ended(p) })
	})
	maps.DeleteFunc(m.small, gone)
	maps.DeleteFunc(m.freed, gone)
}

// clone makes maps of its own: a View holds those that were there.
func (m *Memory) clone() {
	m.again, m.small, m.owed, m.freed, m.loose = maps.Clone(m.again), maps.Clone(m.small), maps.Clone(m.owed), maps.Clone(m.freed), maps.Clone(m.loose)
	m.spells, m.failed, m.free, m.told = maps.Clone(m.spells), maps.Clone(m.failed), slices.Clone(m.free), maps.Clone(m.told)
}

// ended reports a pod that is still to be deleted.
func ended(p action.Pod) bool { return p.Tombstone && !p.Kept() }

// Decided folds in what a decision found out beside what is to be done.
func (m *Memory) Decided(d Decision) {
	m.clone()
	m.done = maps.Clone(m.done)
	for _, name := range d.Done {
		if m.done == nil {
			m.done = map[string]int{}
		}
		m.done[name] = m.fell
	}
	m.decided(d)
	for uid, volumes := range d.Found {
		m.set(uid, volumes)
	}
	for _, pv := range d.Settled {
		delete(m.loose, pv)
	}
	for _, name := range d.Told {
		if m.told == nil {
			m.told = map[string]bool{}
		}
		m.told[name] = true
	}
}

// Owes reports that pods were ended and not yet seen gone: they are deleted, whatever became of the node.
func (m Memory) Owes() bool { return len(m.owed) > 0 }

// retry is how long a pod, or an attachment, rests after the API server refused a write of it. It holds up no other (invariant 16).
const retry = 5 * time.Second

// Wrote folds in how the writes of a decision's pods or attachments ended, by UID.
func (m *Memory) Wrote(d Decision, how map[string]action.Refusal, now providers.Instant) {
	m.clone()
	if m.again == nil {
		m.again = map[string]providers.Instant{}
	}
	maps.DeleteFunc(m.again, func(_ string, at providers.Instant) bool { return !at.After(now) })
	ending := d.Act == Tombstone
	for uid, why := range how {
		switch {
		case why == action.Accepted && ending:
			m.set(uid, d.Frees[uid])
			if m.owed == nil {
				m.owed = map[string]bool{}
			}
			if !d.Policy.Keep {
				m.owed[uid] = true
			}
		case why == action.TooLarge && ending && !m.small[uid]: // at once, in its small form
			if m.small == nil {
				m.small = map[string]bool{}
			}
			m.small[uid] = true
		case why != action.Accepted && why != action.Changed:
			m.again[uid] = now.Add(d.Policy.rest())
		}
	}
	m.wrote(d, how)
	for _, a := range d.Attachments {
		if why, tried := how[a.UID]; tried && why == action.Accepted {
			delete(m.loose, a.PV)
		}
	}
}

// View is all that Step decides on.
type View struct {
	Now      providers.Instant
	Look     taint.Look // live, read after the last act
	Memory              // after Saw
	Policies []Policy
	Storm    action.Aside // why no policy may end anything now: it is not this node alone that looks dead

	Rival  *string      // why a policy that yields must end nothing, "" where it may; nil: not read after Look
	Listed bool         // Pods were listed after Look
	Pods   []action.Pod // all that are bound to the node

	Waiting     map[string]bool     // claims, as namespace/name, that Pending pods of ReplicaSets wait for elsewhere; nil: nobody looked after Look
	Attached    bool                // Attachments were listed by the API server after Look
	Attachments []action.Attachment // all that name the node

	Storage map[string]storage.Health // by adapter: what its system says of the node
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
	ReadRival              // read whether a setting of the storage's own does what a policy does
	Tombstone              // end Decision.Pods
	Delete                 // delete Decision.Pods, which were ended, with grace 0

	ReadWaiting       // read what Pending pods of the namespaces of Decision.Pods wait for
	ReadAttachments   // list the node's attachments, live
	DeleteAttachments // delete Decision.Attachments, of volumes that no unfinished pod of the node uses, each with UID and resourceVersion
	ClearVolumes      // PATCH volumesInUse to Decision.InUse with the Look's resourceVersion
)

// Decision is one act and its reason.
type Decision struct {
	Act    Act
	Why    reason.Reason
	Detail string
	After  time.Duration
	Pods   []action.Pod
	Policy Policy       // Tombstone, DeleteAttachments: in whose name
	Aside  action.Aside // Wait
	Done   []string     // policies that have nothing left to do about this change of the node

	Attachments []action.Attachment          // DeleteAttachments
	Frees       map[string]map[string]string // Tombstone: by the pods' UIDs, the volumes that are loose once it is written, with a policy's name
	Found       map[string]map[string]string // the same of pods that were ended before, by whatever process
	Settled     []string                     // volumes that are loose no more

	InUse []corev1.UniqueVolumeName    // ClearVolumes
	Begun map[string]providers.Instant // policies whose spells begin
	Notes []action.Note                // of those that are done, or leave pods alone
	Told  []string                     // policies whose Notes name the pods that tolerate the mark
}

const (
	resync    = 5 * time.Second        // between two lists of a dead node's pods: nobody watches them, and their deletion has a timer of its own
	pollStock = 200 * time.Millisecond // while Kubernetes itself is about to delete a pod by name, or to close the node to new pods
	quiet     = 30 * time.Second       // where no pod of it can ever match
)

// Step returns the next act for an unmarked node.
func Step(v View) Decision {
	due := v.due()
	held := len(due) > 0 && v.Storm != (action.Aside{})
	switch {
	case len(due) == 0 && !v.Owes():
		return Decision{Act: Leave}
	case held && !v.Owes(): // no reads: this may be so of thousands of nodes
		return Decision{Act: Wait, After: resync, Aside: v.Storm}
	case !v.Listed:
		return Decision{Act: ReadPods}
	}
	found, bury, read := v.tombs(due)
	if read.Act != Leave {
		return read
	}
	v.Memory.Decided(Decision{Found: found})
	d := Decision{Act: Wait, After: quiet, Found: found}
	left := v.where(func(p action.Pod) bool { return ended(p) && bury[p.UID] })
	if ready := slices.DeleteFunc(slices.Clone(left), v.rests); len(ready) > 0 {
		d.Act, d.Why, d.Pods = Delete, reason.PolicyDeleting, ready
		return d
	}
	for _, pod := range left {
		d.After = min(d.After, v.again[pod.UID].Sub(v.Now))
	}
	if held {
		d.After, d.Aside = min(d.After, resync), v.Storm
		return d
	}
	for _, p := range due {
		step := v.step
		if p.When == StorageUnhealthy {
			step = v.spell
		}
		one := step(p)
		d.Begun = one.begins(d.Begun)
		if one.Act == Tombstone {
			frees, read := v.frees(due, one.Pods)
			if read.Act != Leave {
				return read
			}
			one.Frees = frees
		}
		switch {
		case one.Act > Wait:
			one.Found, one.Begun = found, d.Begun
			return one
		case one.Act == Wait:
			d.After, d.Aside = min(d.After, one.After), cmp.Or(d.Aside, one.Aside)
		case p.When != NotReady:
			d.Done, d.Notes = append(d.Done, p.Name), append(d.Notes, one.Notes...)
		}
	}
	one := v.clear(due)
	if one.Act == Leave {
		one = v.detach(due)
	}
	d.Settled = one.Settled
	if one.Act == Wait {
		d.Notes = nil // they are not done
	}
	d.Notes = append(d.Notes, one.Notes...)
	switch {
	case one.Act > Wait:
		one.Found = found // and no policy is done before its volumes' attachments are
		return one
	case one.Act == Wait:
		d.After = min(d.After, one.After)
		d.Done = nil
	}
	return v.nameTolerating(due, d)
}

// nameTolerating adds to a wait the pods that policies would end if they did not tolerate the mark: once while the node
// is not Ready. A policy with a spell names them when that is done.
func (v View) nameTolerating(due []Policy, wait Decision) Decision {
	for _, p := range due {
		if p.When == StorageUnhealthy || v.told[p.Name] {
			continue
		}
		pods, read := v.tolerating(p)
		if read.Act != Leave {
			return read
		}
		wait.Notes, wait.Told = append(wait.Notes, note(reason.PolicySkipped, p, pods)...), append(wait.Told, p.Name)
	}
	return wait
}

// tolerating returns the policy's pods that it leaves alone because they tolerate the mark, as text. read is what to
// read before that can be said; Leave: nothing.
func (v View) tolerating(p Policy) (pods []string, read Decision) {
	stay := v.where(func(pod action.Pod) bool { return !pod.Terminal && pod.Exempt == taint.ExemptTolerate })
	for i := range stay {
		stay[i].Exempt = taint.NotExempt // resolve passes over exempt pods
	}
	mine, read := p.resolve(stay)
	for _, pod := range mine {
		pods = append(pods, fmt.Sprintf("pod %s/%s tolerates the mark", pod.Namespace, pod.Name))
	}
	return pods, read
}

// rests reports that a write of the pod was refused a moment ago.
func (v View) rests(p action.Pod) bool { return v.again[p.UID].After(v.Now) }

// due are the policies whose trigger is there.
func (v View) due() []Policy {
	l := v.Look
	if !l.Exists || l.Mark != nil || l.Record.Open() || l.RecordErr != nil {
		return nil
	}
	var out []Policy
	for _, p := range v.Policies {
		switch {
		case p.WithoutProof == Never:
		case p.Nodes != nil && !p.Nodes.Matches(labels.Set(l.Labels)):
		case p.When == StorageUnhealthy && !v.unhealthy(p):
		case p.When != StorageUnhealthy && l.IsReady():
		case p.When == BecameNotReady && v.done[p.Name] >= v.fell:
		default:
			out = append(out, p)
		}
	}
	return out
}

// step is one policy's next act. Leave: none of its pods is left.
func (v View) step(p Policy) Decision {
	mine, read := p.resolve(v.where(func(pod action.Pod) bool { return !pod.Terminal }))
	if read.Act != Leave {
		return read
	}
	if len(mine) == 0 {
		return Decision{Act: Leave}
	}
	return v.end(p, mine)
}

// end ends those of the policy's pods whose time has come.
func (v View) end(p Policy, mine []action.Pod) (d Decision) {
	d = Decision{Act: Wait, After: resync, Policy: p}
	if !v.Look.IsReady() && !v.Look.Closed() { // a replacement could be bound to this very node, and would hang there
		d.After = pollStock
		return d
	}
	var end []action.Pod
	stock := v.Stock(v.Look)
	for _, pod := range mine {
		switch {
		case v.rests(pod):
			d.After = min(d.After, v.again[pod.UID].Sub(v.Now))
		case stock.Due(pod, v.Now):
			d.After = min(d.After, pollStock)
		case p.Replaced && !pod.Deleting:
		case !p.Terminating:
			end = append(end, pod)
		case pod.DeleteAt.IsZero(): // nobody deleted it yet
		case pod.DeleteAt.After(v.Now.Wall):
			d.After = min(d.After, pod.DeleteAt.Sub(v.Now.Wall))
		default:
			end = append(end, pod)
		}
	}
	if p.Replaced && len(end) > 0 {
		if v.Waiting == nil {
			return Decision{Act: ReadWaiting, Pods: end}
		}
		end = slices.DeleteFunc(end, func(pod action.Pod) bool { return !v.claimed(p, pod) })
	}
	if p.Keep {
		var read Decision
		if end, read = v.together(p, end); read.Act != Leave {
			return read
		}
	}
	if len(end) == 0 {
		return d
	}
	switch {
	case !p.Yields:
	case v.Rival == nil:
		return Decision{Act: ReadRival}
	case *v.Rival != "":
		d.After = quiet
		d.Aside = action.Aside{Why: reason.PolicyYields, Detail: fmt.Sprintf("policy %s: %s", p.Name, *v.Rival)}
		return d
	}
	for i := range end {
		end[i].Small = v.small[end[i].UID]
	}
	return Decision{Act: Tombstone, Why: reason.PolicyEnding, Detail: p.String(), Pods: end, Policy: p}
}

func (p Policy) matches(pod action.Pod) bool { return p.Pods.Matches(labels.Set(pod.Labels)) }

func (p Policy) owns(pod action.Pod) bool {
	return len(p.Owners) == 0 || slices.Contains(p.Owners, pod.Owner.Kind) || slices.Contains(p.Owners, pod.Owner.Direct)
}

func (p Policy) stores(pod action.Pod) bool {
	of := len(p.drives(pod))
	return of > 0 && !unread(pod) && (!p.AllVolumes || of == len(pod.Volumes))
}

func (v View) where(ok func(action.Pod) bool) []action.Pod {
	return slices.DeleteFunc(slices.Clone(v.Pods), func(p action.Pod) bool { return !ok(p) })
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
