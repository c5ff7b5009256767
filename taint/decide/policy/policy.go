// Package policy decides which pods of a node that looks dead are ended without a proof that its machine is off.
// Storage systems and operators do that for their own workloads; it is for users who accept the possible cost. A policy
// says which pods, when, and in whose name it acts without proof. It decides only while no fence of the node is in
// progress, and a fence that begins replaces it. A policy with FenceClasses also decides while a fence waits for its
// machine to go off.
//
// It is pure: Step is a function from a View to a decision, and to the Effects of that decision on the node's Memory.
// The caller looks live before each, and passes the pods listed after that look.
//
// It promises: a policy without WithoutProof ends nothing. One with FenceClasses ends nothing unless the caller reports
// that its storage has cut a silent node off. No policy ends anything while fewer than half of all nodes are heard, or
// one of the node's failure domains is lost. A node that is Ready loses no pod, nor does one that was not seen Ready if
// the trigger is the change. Only ended pods are deleted. Exempt pods are left alone, and so are pods that Kubernetes'
// own eviction is about to delete by name (F2). Before anything else is written in a policy's name, the Node names that
// policy.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/reason"
)

// Trigger is what makes a policy look at a node's pods.
type Trigger string

// The triggers.
const (
	// NotReady holds for as long as the node's Ready is not True (Unknown, False, missing).
	NotReady       Trigger = "NotReady"
	BecameNotReady Trigger = "BecameNotReady" // this process saw it become not Ready: once for each such change
)

// WithoutProof is why a policy may end pods of a machine that may still run.
type WithoutProof string

// The values of WithoutProof. With the zero value a policy does nothing: its pods wait for a proof, as all others do.
const (
	Never WithoutProof = ""
	// StorageFences means that the storage cuts such a node off by itself, so that a second copy cannot write.
	StorageFences WithoutProof = "storage-fences"
	// AcceptDuplicates means that a pod may run twice for as long as its node is only cut off.
	AcceptDuplicates WithoutProof = "accept-duplicates"
)

// Policy is one rule of the configuration.
type Policy struct {
	Name       string
	When       Trigger
	Nodes      labels.Selector // nil: all
	Namespaces []string        // none: all
	Pods       labels.Selector // nil: all
	Owners     []string        // kinds that control the pod, or its ReplicaSet; none: any, and no owner at all
	// Drivers requires that a volume of the pod's claims is of one of these CSI drivers; none: volumes do not matter.
	Drivers     []string
	AllVolumes  bool // all of the pod's claims must match Drivers, not only one
	Terminating bool // only pods whose deletionTimestamp has passed
	Yields      bool // it ends nothing while a setting of the storage system may do the same
	// Replaced selects only deleted pods, if a pod of a ReplicaSet waits for one of their volumes of Drivers.
	Replaced bool
	// Keep means that pods are ended and not deleted, and only if that frees their volumes of Drivers.
	Keep   bool
	Detach bool // delete the attachments of ended pods' volumes of Drivers
	// Storage is, for StorageUnhealthy, the adapter of the storage system; its drivers are in Drivers.
	Storage      string
	Intervals    Intervals // StorageUnhealthy
	WithoutProof WithoutProof
	// FenceClasses are the classes of NetworkFences by which forcefence first has the storage cut the node off,
	// FenceDelay after it became not Ready. Such a policy also acts while its fence waits for a proof.
	FenceClasses []string      `json:",omitempty"`
	FenceDelay   time.Duration `json:",omitempty"`
}

// NeedsFence reports whether the policy ends pods only once forcefence has had the storage cut the node off.
func (p Policy) NeedsFence() bool { return len(p.FenceClasses) > 0 }

// StorageFence is what is known of the fence by which the storage of a policy cuts a node off.
type StorageFence struct {
	State StorageFenceState `json:"state,omitempty"`
	// Detail is, for FenceAbsent, which addresses the storage would cut off; for the others why no pod is ended yet.
	Detail string `json:"detail,omitempty"`
}

// StorageFenceState is the state of a StorageFence.
type StorageFenceState string

// The states. Only FenceHolds lets a policy end pods.
const (
	FenceUnknown StorageFenceState = ""
	FenceAbsent  StorageFenceState = "absent"  // there is none, and it may be made
	FencePending StorageFenceState = "pending" // it was made, and the storage has not answered
	FenceRefused StorageFenceState = "refused" // none can be made
	FenceHolds   StorageFenceState = "holds"   // the storage reported that it has cut the node off
)

// IsShutOut reports whether the storage of one of the policies shuts the node out, or was asked to. known is false if
// that is not known: a fence could not be read, or does not have the addresses that the node has now.
func IsShutOut(of map[string]StorageFence) (out, known bool) {
	known = true
	for _, f := range of {
		switch f.State {
		case FencePending, FenceHolds:
			return true, true
		case FenceAbsent:
		default:
			known = false
		}
	}
	return false, known
}

// Memory is what one process remembers of one node for its policies. The zero value has seen nothing, so a process that
// just became leader replays nothing.
type Memory struct {
	ready         bool              // it was Ready at the last look
	notReadyCount int               // how often it was seen to become not Ready
	done          map[string]int    // notReadyCount when a policy had no work left
	since         providers.Instant // since when the node is not Ready, by the looks
	looks         evict.Looks

	retryAt     map[string]providers.Instant // by UID: when a refused write may be sent again
	small       map[string]bool              // UIDs of pods that are too large for a whole tombstone
	owedDeletes map[string]bool              // UIDs of pods that were ended to be deleted, and may still exist
	freedPods   map[string]bool              // UIDs of ended pods whose volumes were marked loose
	loose       map[string]string            // volumes whose attachments are to be deleted, with the policy's name
	// reportedPolicies are the policies that named the pods which tolerate the mark, since the node became not Ready.
	reportedPolicies map[string]bool

	spells       map[string]spell // by policy: of those whose trigger is StorageUnhealthy
	failed       map[string]bool  // by UID: what was refused since the last spell began
	freedVolumes []freedVolume    // volumes of pods that these policies ended
	boot         string           // the node's boot id at the last look
}

// ApplyLook folds in a look, live or of a cache.
func (m *Memory) ApplyLook(l taint.Look) {
	m.looks = m.looks.WithLook(l)
	switch {
	case l.IsReady():
		m.since = providers.Instant{}
	case m.since.IsZero():
		m.since = l.Got
	}
	ready := l.Exists && l.IsReady()
	if m.ready && !ready {
		m.notReadyCount++
	}
	m.cloneMaps()
	if m.ready = ready; ready {
		m.reportedPolicies = nil
	}
	maps.DeleteFunc(m.loose, func(_, policy string) bool { // its kubelet unmounts them, or the fence detaches them
		return l.Mark != nil || ready && !m.spells[policy].open
	})
	m.forgetVolumes(l)
}

// StockEviction returns what the stock eviction controller knows of the node, given a look.
func (m Memory) StockEviction(l taint.Look) evict.StockEviction {
	return evict.StockEviction{Taints: l.Taints, Looks: m.looks, From: m.since}
}

// ApplyPods folds in what is bound to the node.
func (m *Memory) ApplyPods(pods []action.Pod) {
	gone := func(uid string, _ bool) bool {
		return !slices.ContainsFunc(pods, func(p action.Pod) bool { return p.UID == uid })
	}
	m.cloneMaps()
	maps.DeleteFunc(m.owedDeletes, func(uid string, _ bool) bool {
		return !slices.ContainsFunc(pods, func(p action.Pod) bool { return p.UID == uid && needsDelete(p) })
	})
	maps.DeleteFunc(m.small, gone)
	maps.DeleteFunc(m.freedPods, gone)
}

// cloneMaps gives m its own maps: a View holds the previous ones.
func (m *Memory) cloneMaps() {
	m.retryAt, m.small, m.owedDeletes, m.freedPods, m.loose = maps.Clone(m.retryAt), maps.Clone(m.small),
		maps.Clone(m.owedDeletes), maps.Clone(m.freedPods), maps.Clone(m.loose)
	m.spells, m.failed, m.freedVolumes, m.reportedPolicies =
		maps.Clone(m.spells), maps.Clone(m.failed), slices.Clone(m.freedVolumes), maps.Clone(m.reportedPolicies)
}

// needsDelete reports whether a pod must still be deleted.
func needsDelete(p action.Pod) bool { return p.Tombstone && !p.IsTombstoneHeld() }

// ApplyEffects folds in what a decision found out besides its action.
func (m *Memory) ApplyEffects(e Effects) {
	m.cloneMaps()
	m.done = maps.Clone(m.done)
	for _, name := range e.Done {
		if m.done == nil {
			m.done = map[string]int{}
		}
		m.done[name] = m.notReadyCount
	}
	m.applySpells(e)
	for uid, volumes := range e.Found {
		m.markLoose(uid, volumes)
	}
	for _, pv := range e.Settled {
		delete(m.loose, pv)
	}
	for _, name := range e.Reported {
		if m.reportedPolicies == nil {
			m.reportedPolicies = map[string]bool{}
		}
		m.reportedPolicies[name] = true
	}
}

// OwesDeletes reports whether ended pods were not yet seen gone: they are deleted, whatever happens to the node.
func (m Memory) OwesDeletes() bool { return len(m.owedDeletes) > 0 }

// retry is how long a pod, or an attachment, waits after the API server refused a write of it. It delays no other
// (invariant 16).
const retry = 5 * time.Second

// ApplyWrites folds in how the writes of an action's pods or attachments ended, by UID. e are the effects that came
// with the action.
func (m *Memory) ApplyWrites(
	a action.Action, e Effects, how map[string]action.WriteResult, now providers.Instant,
) {
	m.cloneMaps()
	if m.retryAt == nil {
		m.retryAt = map[string]providers.Instant{}
	}
	maps.DeleteFunc(m.retryAt, func(_ string, at providers.Instant) bool { return !at.After(now) })
	_, ending := a.(action.EndPods)
	for uid, why := range how {
		switch {
		case why == action.Accepted && ending:
			m.markLoose(uid, e.Frees[uid])
			if m.owedDeletes == nil {
				m.owedDeletes = map[string]bool{}
			}
			if !e.Policy.Keep {
				m.owedDeletes[uid] = true
			}
		case why == action.TooLarge && ending && !m.small[uid]: // at once, in its small form
			if m.small == nil {
				m.small = map[string]bool{}
			}
			m.small[uid] = true
		case why != action.Accepted && why != action.Changed:
			m.retryAt[uid] = now.Add(e.Policy.retryDelay())
		}
	}
	m.applyRefusals(a, e, how)
	if d, ok := a.(action.DeleteAttachments); ok {
		for _, a := range d.Attachments {
			if why, tried := how[a.UID]; tried && why == action.Accepted {
				delete(m.loose, a.PV)
			}
		}
	}
}

// View is all that Step decides on.
type View struct {
	Now      providers.Instant
	Look     taint.Look // live, read after the last act
	Memory   Memory     // after ApplyLook
	Policies []Policy
	Storm    action.PolicyBlock // why no policy may end anything now: more than this node looks dead

	// StorageSetting is why a policy that yields must end nothing; "" if it may; nil: not read after Look.
	StorageSetting *string
	Listed         bool         // Pods were listed after Look
	Pods           []action.Pod // all that are bound to the node

	// AwaitedClaims has the claims, as namespace/name, that Pending pods of ReplicaSets elsewhere wait for; nil: not
	// read after Look.
	AwaitedClaims map[string]bool
	Attached      bool                // the API server listed Attachments after Look
	Attachments   []action.Attachment // all that name the node

	Storage map[string]action.Health // by adapter: what its storage system reports about the node
	Silent  bool                     // its Lease is not renewed
	Fences  map[string]StorageFence  // by policy, as read with Look
}

// Effects are what a decision changes in a node's Memory, besides the action itself. The zero Effects change nothing.
type Effects struct {
	// For ApplyEffects, at once.
	Done     []string                     // policies that have no work left for this change of the node
	Begun    map[string]providers.Instant // policies whose spells begin
	Found    map[string]map[string]string // as Frees, of pods that any process ended before
	Settled  []string                     // volumes that are no longer loose
	Reported []string                     // policies whose Decision.Notes name the pods that tolerate the mark

	// For ApplyWrites, once the action's writes have been answered.
	Policy Policy // the policy that acts; zero: DeletePods, or nothing is written
	// Frees has, for EndPods, by the pods' UIDs, the volumes then loose, with a policy's name.
	Frees map[string]map[string]string
}

const (
	// resync is the time between two lists of a dead node's pods: no watch reports them, and their deletion has a timer
	// of its own.
	resync = 5 * time.Second
	// pollStock applies while Kubernetes itself is about to delete a pod by name, or to close the node to new pods.
	pollStock = 200 * time.Millisecond
	quiet     = 30 * time.Second // if none of its pods can ever match
)

// Step returns the next decision for an unmarked node, and its effects. A write in the name of a policy that the Node
// does not name yet is announced on the Node instead.
func Step(v View) (action.Decision, Effects) {
	d, e := v.decideNext()
	if action.PolicyOf(d.Action) != "" && !v.Look.HasAnnounced(e.Policy.Name, string(e.Policy.WithoutProof)) {
		return v.announcePolicy(d, e.Policy), e
	}
	return d, e
}

// announcePolicy returns the decision to write on the Node what d would do in the policy's name.
func (v View) announcePolicy(d action.Decision, p Policy) action.Decision {
	a := action.AnnouncePolicy{
		Note: v.Look.EncodeAnnouncement(p.Name, string(p.WithoutProof), v.Now.Wall),
		Pods: action.PodsOf(d.Action),
	}
	if of, ok := d.Action.(action.DeleteAttachments); ok {
		a.Attachments = of.Attachments
	}
	d.Action = a
	return d
}

// decideNext returns the next decision, announced or not.
func (v View) decideNext() (action.Decision, Effects) {
	due := v.duePolicies()
	held := len(due) > 0 && v.Storm != (action.PolicyBlock{})
	switch {
	case len(due) == 0 && !v.Memory.OwesDeletes():
		return action.Decision{Action: action.NoAction{}}, Effects{}
	case held && !v.Memory.OwesDeletes(): // no reads: thousands of nodes may be in this state
		return action.Decision{Action: action.Wait{}, RequeueAfter: resync, PolicyBlock: v.Storm}, Effects{}
	case !v.Listed:
		return action.Decision{Action: action.ListPods{}}, Effects{}
	}
	found, bury, read := v.findEndedPods(due)
	if read != nil {
		return action.Decision{Action: read}, Effects{}
	}
	d, e := action.Decision{Action: action.Wait{}, RequeueAfter: quiet}, Effects{Found: found}
	v.Memory.ApplyEffects(e)
	left := v.filterPods(func(p action.Pod) bool { return needsDelete(p) && bury[p.UID] })
	if ready := slices.DeleteFunc(slices.Clone(left), v.isBackingOff); len(ready) > 0 {
		a := action.DeletePods{Pods: ready, Returned: true, ByPolicy: true}
		return action.Decision{Action: a, Reason: reason.PolicyDeleting}, e
	}
	for _, pod := range left {
		d.RequeueAfter = min(d.RequeueAfter, v.Memory.retryAt[pod.UID].Sub(v.Now))
	}
	if held {
		d.RequeueAfter, d.PolicyBlock = min(d.RequeueAfter, resync), v.Storm
		return d, e
	}
	for _, p := range due {
		step := v.decidePolicy
		if p.When == StorageUnhealthy {
			step = v.decideSpell
		}
		one, its := step(p)
		e.Begun = its.mergeBegun(e.Begun)
		if a, ok := one.Action.(action.EndPods); ok {
			if its.Frees, read = v.freedVolumes(due, a.Pods); read != nil {
				return action.Decision{Action: read}, Effects{}
			}
		}
		switch one.Action.(type) {
		case action.NoAction:
			if p.When != NotReady {
				e.Done, d.Notes = append(e.Done, p.Name), append(d.Notes, one.Notes...)
			}
		case action.Wait:
			d.RequeueAfter, d.PolicyBlock = min(d.RequeueAfter, one.RequeueAfter),
				cmp.Or(d.PolicyBlock, one.PolicyBlock)
		default:
			its.Found, its.Begun = found, e.Begun
			return one, its
		}
	}
	one, its := v.clearVolumes(due)
	if action.Is[action.NoAction](one) {
		one, its = v.detachVolumes(due)
	}
	e.Settled = its.Settled
	switch one.Action.(type) {
	case action.NoAction:
	case action.Wait: // the policies are not done
		d.RequeueAfter, d.Notes = min(d.RequeueAfter, one.RequeueAfter), nil
		e.Done = nil
	default:
		its.Found = found // no policy is done before its volumes' attachments are
		return one, its
	}
	d.Notes = append(d.Notes, one.Notes...)
	return v.nameTolerating(due, d, e)
}

// nameTolerating adds to a wait the pods that policies would end if they did not tolerate the mark. It does so once
// while the node is not Ready. A policy with a spell names them when the spell is done.
func (v View) nameTolerating(due []Policy, wait action.Decision, e Effects) (action.Decision, Effects) {
	for _, p := range due {
		if p.When == StorageUnhealthy || v.Memory.reportedPolicies[p.Name] {
			continue
		}
		pods, read := v.toleratingPods(p)
		if read != nil {
			return action.Decision{Action: read}, Effects{}
		}
		wait.Notes, e.Reported = append(wait.Notes, notesOf(reason.PolicySkipped, p, pods)...),
			append(e.Reported, p.Name)
	}
	return wait, e
}

// toleratingPods returns, as text, the policy's pods that it leaves alone because they tolerate the mark. read is the
// read that is needed first; nil: none.
func (v View) toleratingPods(p Policy) (pods []string, read action.Action) {
	stay := v.filterPods(func(pod action.Pod) bool { return !pod.Terminal && pod.Exempt == taint.ExemptTolerate })
	for i := range stay {
		stay[i].Exempt = taint.NotExempt // resolvePods passes over exempt pods
	}
	mine, read := p.resolvePods(stay)
	for _, pod := range mine {
		pods = append(pods, fmt.Sprintf("pod %s/%s tolerates the mark", pod.Namespace, pod.Name))
	}
	return pods, read
}

// isBackingOff reports whether a write of the pod was refused a moment ago.
func (v View) isBackingOff(p action.Pod) bool { return v.Memory.retryAt[p.UID].After(v.Now) }

// duePolicies returns the policies whose trigger holds.
func (v View) duePolicies() []Policy {
	l := v.Look
	if !l.Exists || l.Mark != nil || l.RecordErr != nil {
		return nil
	}
	waits := l.Record.IsOpen() && l.Record.Phase == taint.PhasePoweringOff // before a mark
	var out []Policy
	for _, p := range v.Policies {
		switch {
		case p.WithoutProof == Never:
		case p.NeedsFence() && !v.Silent:
		case l.Record.IsOpen() && !(p.NeedsFence() && waits):
		case p.Nodes != nil && !p.Nodes.Matches(labels.Set(l.Labels)):
		case p.When == StorageUnhealthy && !v.hasStorageTurn(p):
		case p.When != StorageUnhealthy && l.IsReady():
		case p.When == BecameNotReady && v.Memory.done[p.Name] >= v.Memory.notReadyCount:
		default:
			out = append(out, p)
		}
	}
	return out
}

// decidePolicy returns one policy's next decision. NoAction: none of its pods is left.
func (v View) decidePolicy(p Policy) (action.Decision, Effects) {
	mine, read := p.resolvePods(v.filterPods(func(pod action.Pod) bool { return !pod.Terminal }))
	if read != nil {
		return action.Decision{Action: read}, Effects{}
	}
	if len(mine) == 0 {
		return action.Decision{Action: action.NoAction{}}, Effects{}
	}
	return v.endPods(p, mine)
}

// endPods ends those of the policy's pods that are due.
func (v View) endPods(p Policy, mine []action.Pod) (action.Decision, Effects) {
	d := action.Decision{Action: action.Wait{}, RequeueAfter: resync}
	// A replacement could be bound to this very node, and would hang there.
	if !v.Look.IsReady() && !v.Look.IsUnschedulable() {
		d.RequeueAfter = pollStock
		return d, Effects{}
	}
	var end []action.Pod
	stock := v.Memory.StockEviction(v.Look)
	for _, pod := range mine {
		switch {
		case v.isBackingOff(pod):
			d.RequeueAfter = min(d.RequeueAfter, v.Memory.retryAt[pod.UID].Sub(v.Now))
		case stock.IsAboutToDelete(pod, v.Now):
			d.RequeueAfter = min(d.RequeueAfter, pollStock)
		case p.Replaced && !pod.Deleting:
		case !p.Terminating:
			end = append(end, pod)
		case pod.DeleteAt.IsZero(): // not deleted yet
		case pod.DeleteAt.After(v.Now.Wall):
			d.RequeueAfter = min(d.RequeueAfter, pod.DeleteAt.Sub(v.Now.Wall))
		default:
			end = append(end, pod)
		}
	}
	if p.Replaced && len(end) > 0 {
		if v.AwaitedClaims == nil {
			return action.Decision{Action: action.ReadAwaitedClaims{Pods: end}}, Effects{}
		}
		end = slices.DeleteFunc(end, func(pod action.Pod) bool { return !v.isVolumeAwaited(p, pod) })
	}
	if p.Keep {
		var read action.Action
		if end, read = v.podsFreeingVolumes(p, end); read != nil {
			return action.Decision{Action: read}, Effects{}
		}
	}
	if len(end) == 0 {
		return d, Effects{}
	}
	switch {
	case !p.Yields:
	case v.StorageSetting == nil:
		return action.Decision{Action: action.ReadStorageSetting{}}, Effects{}
	case *v.StorageSetting != "":
		d.RequeueAfter = quiet
		d.PolicyBlock = action.PolicyBlock{
			Why: reason.PolicyYields, Detail: fmt.Sprintf("policy %s: %s", p.Name, *v.StorageSetting),
		}
		return d, Effects{}
	}
	if p.NeedsFence() {
		if d, ready := v.fenceStorage(p, end); !ready {
			return d, Effects{Policy: p}
		}
	}
	for i := range end {
		end[i].Small = v.Memory.small[end[i].UID]
	}
	a := action.EndPods{Pods: end, Policy: p.String()}
	return action.Decision{Action: a, Reason: reason.PolicyEnding, Detail: p.String()}, Effects{Policy: p}
}

// fenceStorage has the policy's storage cut the node off before the pods are ended. ready reports that it has.
func (v View) fenceStorage(p Policy, end []action.Pod) (d action.Decision, ready bool) {
	fence := v.Fences[p.Name]
	if due := v.Memory.since.Add(p.FenceDelay); fence.State != FenceHolds && due.After(v.Now) {
		return action.Decision{Action: action.Wait{}, RequeueAfter: due.Sub(v.Now)}, false
	}
	switch fence.State {
	case FenceHolds:
		return action.Decision{}, true
	case FenceAbsent:
		return action.Decision{
			Action: action.FenceStorage{Pods: end, Name: p.Name, Policy: p.String()},
			Reason: reason.PolicyFencing, Detail: fence.Detail + " (" + p.String() + ")",
		}, false
	}
	return action.Decision{Action: action.Wait{}, RequeueAfter: resync, PolicyBlock: action.PolicyBlock{
		Why: reason.StorageNotFenced, Detail: fmt.Sprintf("policy %s: %s", p.Name,
			cmp.Or(fence.Detail, "the storage's fence was not read")),
	}}, false
}

func (p Policy) matchesLabels(pod action.Pod) bool { return p.Pods.Matches(labels.Set(pod.Labels)) }

func (p Policy) matchesOwner(pod action.Pod) bool {
	return len(p.Owners) == 0 || slices.Contains(p.Owners, pod.Owner.Kind) ||
		slices.Contains(p.Owners, pod.Owner.Direct)
}

func (p Policy) matchesVolumes(pod action.Pod) bool {
	of := len(p.driverVolumes(pod))
	return of > 0 && !hasUnreadVolume(pod) && (!p.AllVolumes || of == len(pod.Volumes))
}

func (v View) filterPods(ok func(action.Pod) bool) []action.Pod {
	return slices.DeleteFunc(slices.Clone(v.Pods), func(p action.Pod) bool { return !ok(p) })
}

// String returns the policy and its WithoutProof, for Events and logs.
func (p Policy) String() string {
	return fmt.Sprintf("policy %s, without proof: %s", p.Name, p.WithoutProof)
}

// mustParseSelector parses a selector of a preset.
func mustParseSelector(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err) // the first test finds a preset that cannot be parsed
	}
	return s
}
