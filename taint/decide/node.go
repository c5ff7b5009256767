// Package decide decides one node's course from the first suspicion to the end of its fence: which read the next decision needs, or
// which act comes next, or how long to wait. It drives the two machines, fence before the mark and evict under it, and holds all that
// one process remembers of the node: looks, lists and how old they are, answers, what is being tried.
//
// It is pure: it names no client, no clock and no logger. An executor does what Next says, tells Apply what became of
// it (Observation), and comes again; taint/controller does so against the API server, the simulation and the
// stories against models. No rule stands in an executor.
//
// It promises: every act is decided on a live look that was made after the last act; what a decision hangs on is read live before it, and
// no more than that; while pods are written a proof that grew old is asked for again before the next write, and a
// sign of life since the look ends them (HoldsFor); no power-off is announced
// without a turn in the fleet; and what a policy does without proof is written on the Node before it is done.
package decide

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/reason"
)

// Facts are what the configuration says of a node when it is looked at. The zero value is a node in mode observe.
type Facts struct {
	fence.Facts
	Evict    evict.Settings
	Policies []policy.Policy           // those that may end pods without proof, in their order
	Storage  map[string]storage.Health // what storage systems say of the node, by their adapters' names
}

// Node is what one process remembers of one node. It is never needed for safety after a restart: the record on the Node tells where a
// new leader goes on, which asks for a proof first. The zero value remembers nothing. Its methods must not be called at the same time.
type Node struct {
	fence   fence.Memory
	evict   evict.Memory
	policy  policy.Memory
	answers proof.Answers

	// This look, and what was read after it.
	lookIsFresh    bool // it may be decided on
	look           taint.Look
	sights         taint.Sightings // of the looks' record
	lastLookTook   time.Duration   // how long the look before took
	facts          Facts
	lastReadAt     providers.Instant // when the last of the reads was answered
	readsTook      time.Duration     // how long all of them took
	readBegan      providers.Instant // when Next said the last of them
	pods           podList
	atts           attachmentList
	storageSetting *string           // what RivalRead told; nil: not read
	etcdReady      map[string]bool   // what MembersRead told; nil: not read
	awaitedClaims  map[string]bool   // claims that pods wait for elsewhere; nil: not read
	boundClaims    map[string]string // what ClaimsRead told; nil: not read
	evictView      evict.View        // what was decided on last, under a mark
	policyEffects  policy.Effects    // of the last decision of the policies
	lastDecision   action.Decision   // what Next returned last
	awaitsRead     bool              // it is a read, and its result is not here yet

	// What is kept from look to look.
	work          fence.PendingWork
	worked        providers.Instant // when a list last showed that work
	workTook      time.Duration     // how long its reads took
	workPods      []action.Pod      // what they listed
	kept          podList           // a list for the next act
	policyHasTurn bool              // a policy has its turn, by the last StorageHeard
}

// podList is a live list of the node's pods.
type podList struct {
	have bool
	pods []action.Pod
	at   providers.Instant // when it was there
}

// attachmentList are the attachments that name the node.
type attachmentList struct {
	have, live bool
	list       []action.Attachment
}

const (
	// keptHolds is how long a list may be kept for the next act. An API server answers two consistent lists of a resource that nobody
	// writes to 100 ms apart: it waits for etcd's word that its cache is fresh, and asks for that ten times a second (kubernetes 1.36,
	// ConditionalProgressRequester). Where ten nodes are evicted at once, two seconds lie between a list and the act after the next.
	keptHolds = 3 * time.Second
	// waitHolds is how long a list may be kept to go on waiting for volumes: attachments go one after the other, and each wakes the node. It is
	// how long such a wait is, so that one which nothing ends earlier is followed by a list.
	waitHolds = time.Second
	// policyLook is how old a look may be that a policy acts on: up to five reads follow it, each of which may take 15 s. Where all do, it waits.
	policyLook = time.Minute
	// modeRecheck is when a mark that the mode leaves alone is looked at again: a mode that changes wakes nobody.
	modeRecheck = 30 * time.Second
	// workHolds is how long work that was found counts, beside twice the time that finding it took: it is a reason to ask and to mark,
	// and what a mark finds to do is listed anew.
	workHolds = time.Second
)

// Fleet is what is known across nodes: *fleet.Fleet, or what it said once.
type Fleet interface {
	ApplyLease(name, rv string, duration time.Duration, now providers.Instant) (renewed bool)
	ApplyLook(l taint.Look, now providers.Instant)
	ApplyAnswer(name string, a providers.Answer)
	View(name string, now providers.Instant) fleet.View
	ReserveTurn(name string, now providers.Instant) bool
	ReleaseTurn(name string)
	DistrustingNode(m taint.Machine, device, of string) (node string)
}

// NewIdleNode is a node that is idle and of which this is kept: what PolicyMemory returned of one.
func NewIdleNode(kept policy.Memory) Node { return Node{policy: kept} }

// PolicyMemory is what is kept of an idle node.
func (n *Node) PolicyMemory() policy.Memory { return n.policy }

// Look is the last look; the zero Look before there was one.
func (n *Node) Look() taint.Look { return n.look }

// Devices are those that speak for the node, by the last look.
func (n *Node) Devices() []proof.Device { return n.facts.Devices }

// FenceBegan is when the fence of the look's record began, by this process's clocks; without an open record when the look
// was sent.
func (n *Node) FenceBegan() providers.Instant {
	if !n.look.Record.IsOpen() {
		return n.look.Sent
	}
	return n.sights.InstantOf(n.look.Record.Since, n.look.Got)
}

// ReadDuration is how long the last look, and what was read after it, took, without the questions to devices between them.
func (n *Node) ReadDuration() time.Duration { return n.readsTook }

// Answer is what the machine's devices together said last; the zero Answer if they were not asked.
func (n *Node) Answer() providers.Answer { return n.answers.Answer }

// IsIdle reports that there is nothing to look at: that is what a healthy node costs. The look may be a cache's; v is its fleet's view.
// A node is not idle while pods that a policy ended were not seen gone, nor while its storage gives a policy its turn.
func (n *Node) IsIdle(l taint.Look, v fleet.View) bool {
	if n.policy.OwesDeletes() || n.policyHasTurn {
		return false
	}
	r := l.Record
	done := r == nil || r.Phase == taint.PhaseDone && (r.BootID != l.BootID || r.Restart != "" || !l.IsReady() ||
		r.Result != taint.ResultEvicted && r.Result != taint.ResultReturned)
	return v.Suspicion(l) == "" && l.Mark == nil && l.RecordErr == nil && done && !l.PoweredOn
}

// Apply takes in what was observed at now. It blocks for nobody. f is not asked for StorageHeard and Rested.
func (n *Node) Apply(now providers.Instant, f Fleet, o Observation) {
	switch o := o.(type) {
	case NodeRead:
		n.applyNodeRead(o.Look, o.Facts, f)
	case PodsListed:
		n.applyPods(o.Pods, now)
	case VolumesRead:
		n.applyVolumes(o.Of, now)
	case AttachmentsListed:
		n.applyAttachments(o.Attachments, o.Live, now)
	case OwnersRead:
		n.applyOwners(o.Of, now)
	case RivalRead:
		n.applyStorageSetting(o.Why, now)
	case WaitingRead:
		n.applyAwaitedClaims(o.Claims, now)
	case ClaimsRead:
		n.applyBoundClaims(o.Of, now)
	case MembersRead:
		n.applyEtcdPods(o.Ready, now)
	case DevicesAnswered:
		n.applyAnswers(o.Answers, now, f)
	case ActionDone:
		n.applyActionDone(o, now, f)
	case StorageHeard:
		n.policyHasTurn = n.policy.ApplyStorage(o.Policies, o.Says, now)
	case Rested:
		n.policy.ApplyLook(o.Look)
		*n = Node{policy: n.policy}
	}
}

// applyNodeRead folds a live look at the Node and its Lease in, and what the configuration says of the node now.
func (n *Node) applyNodeRead(l taint.Look, facts Facts, f Fleet) {
	now := l.Got
	f.ApplyLease(l.Name, l.LeaseRV, l.LeaseDuration, now)
	if l.Exists {
		f.ApplyLook(l, now)
	}
	if n.fence.ApplyLook(l) {
		n.answers.ResetHistory()
	}
	if n.evict.ApplyLook(l) {
		n.answers.ResetHistory()
	}
	n.policy.ApplyLook(l)
	n.policy.ApplyStorage(facts.Policies, facts.Storage, now)
	n.lastLookTook, n.sights = n.look.Got.Sub(n.look.Sent), n.sights.WithRecord(l.Record, now)
	n.lookIsFresh, n.awaitsRead, n.look, n.facts, n.lastReadAt = true, false, l, facts, l.Got
	n.readsTook = l.Got.Sub(l.Sent)
	n.pods, n.atts, n.storageSetting, n.awaitedClaims, n.etcdReady, n.evictView = podList{}, attachmentList{}, nil, nil, nil, evict.View{}
	n.boundClaims = nil
	if len(facts.Devices) == 0 {
		n.answers.SetDevices(proof.Device{}) // nobody, whose answer Next gives
	} else {
		n.answers.SetDevices(facts.Devices...)
	}
}

// finishRead notes when the read was answered that Next said.
func (n *Node) finishRead(at providers.Instant) {
	n.readsTook += at.Sub(n.readBegan)
	n.lastReadAt, n.awaitsRead = at, false
}

// applyPods folds in what is bound to the node, without the volumes of pods that have claims; at is when the list was there.
func (n *Node) applyPods(pods []action.Pod, at providers.Instant) {
	n.pods = podList{have: true, pods: pods, at: at}
	n.finishRead(at)
	n.policy.ApplyPods(pods)
	n.evict.ApplyPods(pods, at)
}

// applyOwners folds in what controls the owners of the pods that were asked about, by the pods' UIDs.
func (n *Node) applyOwners(of map[string]action.Owner, at providers.Instant) {
	n.pods.pods = slices.Clone(n.pods.pods)
	for i := range n.pods.pods {
		if owner, ok := of[n.pods.pods[i].UID]; ok {
			owner.Direct = n.pods.pods[i].Owner.Kind
			n.pods.pods[i].Owner = owner
		}
	}
	n.finishRead(at)
}

// applyStorageSetting folds in why a setting of the storage's own keeps policies from ending pods, "" if none does.
func (n *Node) applyStorageSetting(why string, at providers.Instant) {
	n.storageSetting = &why
	n.finishRead(at)
}

// applyVolumes folds in the volumes that pods' claims lead to, by the pods' UIDs. A pod that has none there has none.
func (n *Node) applyVolumes(of map[string][]action.Volume, at providers.Instant) {
	asked, _ := n.lastDecision.Action.(action.ReadVolumes)
	n.pods.pods = slices.Clone(n.pods.pods)
	for i := range n.pods.pods {
		p := &n.pods.pods[i]
		if p.Claims && slices.ContainsFunc(asked.Pods, func(q action.Pod) bool { return q.UID == p.UID }) {
			p.Volumes, p.Claims = of[p.UID], false
		}
	}
	n.finishRead(at)
}

// applyAttachments folds in the attachments that name the node; live tells that the API server listed them.
func (n *Node) applyAttachments(atts []action.Attachment, live bool, at providers.Instant) {
	n.atts = attachmentList{have: true, live: live, list: atts}
	n.finishRead(at)
	if live {
		n.evict.ListedAt = at
		n.policy.ApplyAttachments(atts)
	}
}

// applyAwaitedClaims folds in the claims, as namespace/name, that Pending pods of ReplicaSets wait for elsewhere.
func (n *Node) applyAwaitedClaims(claims map[string]bool, at providers.Instant) {
	if n.awaitedClaims = claims; n.awaitedClaims == nil {
		n.awaitedClaims = map[string]bool{}
	}
	n.finishRead(at)
}

// applyBoundClaims folds in the claims, as namespace/name, of the volumes that were asked about. It is "" for an unbound
// volume, and evict.UnreadClaim for one that could not be read.
func (n *Node) applyBoundClaims(of map[string]string, at providers.Instant) {
	n.boundClaims = maps.Clone(n.boundClaims)
	if n.boundClaims == nil {
		n.boundClaims = map[string]string{}
	}
	asked, _ := n.lastDecision.Action.(action.ReadClaims)
	for _, pv := range asked.PVs {
		n.boundClaims[pv] = of[pv]
	}
	n.pods.pods, n.workPods = addClaimVolumes(n.pods.pods, of), addClaimVolumes(n.workPods, of)
	n.finishRead(at)
}

// addClaimVolumes adds to each pod with an unread claim the PersistentVolumes that are bound to that claim, or may be.
func addClaimVolumes(pods []action.Pod, of map[string]string) []action.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		for _, vol := range p.Volumes {
			for _, pv := range slices.Sorted(maps.Keys(of)) {
				if vol.Unread && vol.PV == "" && (of[pv] == p.Namespace+"/"+vol.Claim || of[pv] == action.UnreadClaim) {
					p.Volumes = append(slices.Clip(p.Volumes), action.Volume{PV: pv, Claim: vol.Claim, Unread: true})
				}
			}
		}
	}
	return pods
}

// applyEtcdPods folds in the nodes on which a pod of etcd is bound, and whether it is Ready.
func (n *Node) applyEtcdPods(ready map[string]bool, at providers.Instant) {
	if n.etcdReady = ready; n.etcdReady == nil {
		n.etcdReady = map[string]bool{}
	}
	n.finishRead(at)
}

// applyAnswers folds in what the machine's devices answered, one answer of each in the order of Facts.Devices. Where the
// API server or the device is slow the next decision may be made on the same look (keepsLook). Another is the rule, but
// the answer would be too old by the time that it is there, for ever. Every write is still refused if its object changed.
func (n *Node) applyAnswers(answers []providers.Answer, now providers.Instant, f Fleet) {
	answers = slices.Clone(answers)
	for i, d := range n.facts.Devices {
		if i < len(answers) && n.facts.NoDeviceErr == nil && f.DistrustingNode(d.Machine, d.Name, n.look.Name) != "" {
			answers[i] = proof.WithoutOff(answers[i])
		}
	}
	n.answers.ApplyAnswers(answers...)
	if n.answers.IsRunning() {
		n.fence.PowerOns.LastOn = n.answers.Answer.At
	}
	f.ApplyAnswer(n.look.Name, n.answers.Answer)
	n.lookIsFresh = n.lookIsFresh && n.keepsLook(now) && !f.View(n.look.Name, now).Alive.After(n.look.Sent)
}

// keepsLook reports whether the next decision may be made on the look before the question. What was read after an
// earlier question may take this one: then the look may be older by that one, by TTL at most.
func (n *Node) keepsLook(now providers.Instant) bool {
	questions := min(n.lastReadAt.Sub(n.look.Sent)-n.readsTook, proof.TTL)
	return (n.readsTook > time.Second || n.offEndsSoon(now)) && n.look.Sent.Age(now) <= 2*n.readsTook+proof.TTL+questions
}

// offEndsSoon reports that the device of a marked node answered Off so late that another look would outlast the proof.
func (n *Node) offEndsSoon(now providers.Instant) bool {
	a := n.answers.Answer
	late := a.State == providers.PowerOff && a.At.Age(now)+2*n.readsTook+proof.Shortest > proof.TTL
	return late && n.look.Mark != nil
}

// distrustingNode is the node whose record says that the first of the machine's devices is not to be believed, where none of them is.
func (n *Node) distrustingNode(f Fleet) (by string) {
	if n.facts.NoDeviceErr != nil {
		return ""
	}
	for _, d := range slices.Backward(n.facts.Devices) {
		if by = f.DistrustingNode(d.Machine, d.Name, n.look.Name); by == "" {
			return ""
		}
	}
	return by
}

// applyActionDone folds in how the act that Next said last ended. Whatever it was, the node is looked at again.
func (n *Node) applyActionDone(o ActionDone, now providers.Instant, f Fleet) {
	n.lookIsFresh = false
	if o.Late {
		return
	}
	switch a := n.lastDecision.Action.(type) {
	case action.Write:
		if o.Err != nil {
			f.ReleaseTurn(n.look.Name)
		}
		if on := a.Record.LastPowerOn(); o.Err == nil && !on.Equal(n.look.Record.LastPowerOn()) {
			n.fence.PowerOns.Announced = on
		}
		if o.Err == nil && a.Record.Phase == taint.PhasePoweringOff && !n.look.Record.IsOpen() {
			n.fence.ApplyAnnouncement(n.look, a.Record)
		}
	case action.PowerOn:
		n.fence.PowerOns.ApplySent(o.Err)
	case action.PowerOff:
		n.fence.PowerOffs.ApplySent(o.Sent, n.facts.Devices, a.Move, o.Err)
	case action.ClearVolumes:
		switch {
		case o.Err != nil:
		case a.Policy != "":
			n.policy.ApplyCleared(a.InUse)
		default:
			n.evict.Cleared++
			n.kept = n.pods
		}
	case action.DeleteAttachments:
		if a.Policy != "" {
			n.policy.ApplyWrites(a, n.policyEffects, o.How, now)
			return
		}
		n.evict.ForcedAt = now
	default:
		n.applyPodWrites(o.How, now)
	}
}

// applyPodWrites folds in how the writes of the last action's pods ended, if it has any.
func (n *Node) applyPodWrites(how map[string]action.WriteResult, now providers.Instant) {
	write, pods, is := action.PodWriteOf(n.lastDecision.Action)
	switch {
	case !is:
	case action.IsByPolicy(n.lastDecision.Action):
		n.policy.ApplyWrites(n.lastDecision.Action, n.policyEffects, how, now)
	default:
		n.evict.ApplyPodWrites(write, pods, how, now)
	}
}

// Next returns the next decision. It may be called as often as one likes. After a Wait or a Leave the node is looked at again, and after a
// read that brought nothing: it failed, it is tried again later, and a heartbeat may have come meanwhile.
func (n *Node) Next(now providers.Instant, f Fleet) action.Decision {
	if n.awaitsRead {
		n.lookIsFresh = false
	}
	d := n.decideNext(now, f)
	if action.Is[action.Ask](d) && n.facts.NoDeviceErr != nil { // nobody to ask: that is the answer
		for range 2 { // an answer that proves nothing is followed by a wait
			noDevice := providers.Answer{Observation: providers.Observation{At: now}, Got: now, Err: n.facts.NoDeviceErr}
			n.answers.ApplyAnswers(noDevice)
			if d = n.decideNext(now, f); !action.Is[action.Ask](d) {
				break
			}
		}
	}
	if action.Is[action.Wait](d) || action.Is[action.Leave](d) || action.Is[action.ReadNode](d) {
		n.lookIsFresh = false
	}
	n.lastDecision, n.awaitsRead, n.readBegan = d, action.IsRead(d.Action), now
	return d
}

func (n *Node) decideNext(now providers.Instant, f Fleet) action.Decision {
	switch {
	case !n.lookIsFresh:
		return action.Decision{Action: action.ReadNode{}}
	case n.look.Mark != nil:
		return n.decideMarked(now)
	default:
		return n.decideUnmarked(now, f)
	}
}

// decideUnmarked is the course before the mark.
func (n *Node) decideUnmarked(now providers.Instant, f Fleet) action.Decision {
	l := n.look
	v := fence.View{
		Facts: n.facts.Facts, Now: now, Look: l, Seen: n.sights, Memory: n.fence, Answers: n.answers,
		Fleet: f.View(l.Name, now), DistrustingNode: n.distrustingNode(f),
		Members: n.etcdReady,
	}
	v.ControlPlane, _ = fleet.IsControlPlane(l.Labels)
	v.VMHost = fence.IsVMHost(l.Labels)
	if l.Exists && v.Fleet.Suspicion(l) != "" && (v.Facts.Mode != fence.Disabled || l.Record.IsOpen()) {
		work, read := n.findPendingWork(now)
		if read != nil {
			return action.Decision{Action: read}
		}
		v.PendingWork = work
	}
	d := fence.Step(v)
	if d.Reason == reason.NoWork {
		d.Detail = describeStayingPods(n.workPods)
	}
	if d.Would.Action != nil {
		if d.Reason != reason.Shadowed {
			n.fence.Reported = append(n.fence.Reported, d.Reason)
			d.Would.Pods = PodsToMove(n.workPods)
		} else {
			d.Would = action.ShadowDecision{}
		}
	}
	// The condition appears while the node looks dead and its machine is on, and goes when the node is back.
	if on := d.Reason == reason.PoweredOn && v.Facts.Mode.MayAct(); l.Exists && on != l.PoweredOn && (on || v.Fleet.Suspicion(l) == "") {
		return action.Decision{Action: action.Condition{On: on}, Reason: d.Reason, Detail: d.Detail}
	}
	switch a := d.Action.(type) {
	case action.Write:
		announces := a.Record.Phase == taint.PhasePoweringOff && !l.Record.IsOpen()
		if announces && !f.ReserveTurn(l.Name, now) {
			return action.Decision{Action: action.Wait{}, Reason: reason.PowerOffLimit, RequeueAfter: time.Second}
		}
	case action.Wait, action.Leave:
		return n.decideByPolicy(now, v.Fleet, d)
	}
	return d
}

// decideByPolicy is the turn of the policies, while a fence has nothing to do but to wait, or to leave the node.
func (n *Node) decideByPolicy(now providers.Instant, f fleet.View, fenced action.Decision) action.Decision {
	if n.facts.Excluded != "" || !n.facts.Mode.MayAct() {
		return fenced
	}
	d, effects := policy.Step(policy.View{
		Now: now, Look: n.look, Memory: n.policy, Policies: n.facts.Policies, Storm: findStorm(f, now),
		Rival: n.storageSetting, Listed: n.pods.have, Pods: n.pods.pods,
		Waiting: n.awaitedClaims, Attached: n.atts.have && n.atts.live, Attachments: n.atts.list, Storage: n.facts.Storage,
	})
	n.policy.ApplyEffects(effects)
	n.policyEffects = effects
	switch d.Action.(type) {
	case action.Wait:
		fenced.PolicyBlock = d.PolicyBlock
		if action.Is[action.Leave](fenced) || d.RequeueAfter < fenced.RequeueAfter {
			fenced.Action, fenced.RequeueAfter = action.Wait{}, d.RequeueAfter
		}
	case action.Leave:
	default:
		d.Notes = nil // they are told of a wait alone
		return d
	}
	fenced.Notes = d.Notes
	return fenced
}

// findStorm returns why policies must wait, as power-offs do: what looks like a dead node is more likely a partition,
// or our own fault.
func findStorm(f fleet.View, now providers.Instant) action.PolicyBlock {
	switch {
	case f.AllSilent():
		return action.PolicyBlock{Why: reason.PolicyWaits, Detail: "no other node is heard", ReportOnceKey: "heard"}
	case !f.Heard:
		return action.PolicyBlock{Why: reason.PolicyWaits, Detail: "fewer than half of the nodes are heard", ReportOnceKey: "heard"}
	case !f.IsSettled(now): // after a start, or an outage: that is no news
		return action.PolicyBlock{Detail: "which nodes are silent is not known yet"}
	}
	for _, p := range f.Storm.Parts {
		if !p.Lost.IsZero() {
			return action.PolicyBlock{Why: reason.PolicyWaits, Detail: p.LossText(), ReportOnceKey: p.IncidentKey()}
		}
	}
	return action.PolicyBlock{}
}

// PodsToMove are the pods that a fence would move.
func PodsToMove(pods []action.Pod) []action.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool { return p.Terminal || p.Exempt != taint.NotExempt })
}

// findPendingWork says whether a fence would have something to do, or what to read first; a nil Action: nothing.
func (n *Node) findPendingWork(now providers.Instant) (fence.PendingWork, action.Action) {
	if n.atts.live { // a cache that missed an event would have the node marked for nothing, again and again
		if read := n.neededClaimRead(n.workPods); read != nil {
			return fence.WorkNone, read
		}
		if n.work = fence.WorkNone; evict.HasWork(n.workPods, n.atts.list) {
			n.work = fence.WorkConfirmed
		}
		return n.work, nil
	}
	if n.work != fence.WorkNone && n.worked.Age(now) < workHolds+2*n.workTook {
		return n.work, nil
	}
	if read := n.nextListing(); read != nil {
		return fence.WorkNone, read
	}
	n.workPods, n.work = n.pods.pods, fence.WorkNone
	switch {
	case evict.HasWork(n.workPods, nil):
		n.work = fence.WorkConfirmed
	case evict.HasWork(n.workPods, n.atts.list):
		n.work = fence.WorkCached
	}
	if n.work != fence.WorkNone {
		n.worked, n.workTook = n.lastReadAt, n.lastReadAt.Sub(n.look.Got)
		n.kept = n.pods
	}
	return n.work, nil
}

// describeStayingPods says which pods stay on a dead node by their own tolerations: a blanket one keeps a StatefulSet down with its node.
func describeStayingPods(pods []action.Pod) string {
	var names []string
	for _, p := range pods {
		if p.Exempt == taint.ExemptTolerate && !p.Terminal {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	const most = 5
	switch more := len(names) - most; {
	case len(names) == 0:
		return "no pod has to move"
	case more > 0:
		return fmt.Sprintf("pods that tolerate the mark stay: %s and %d more", strings.Join(names[:most], ", "), more)
	default:
		return "pods that tolerate the mark stay: " + strings.Join(names, ", ")
	}
}

// nextListing is the next read of pods, of the volumes of those that stay, and of attachments; nil if all is there. Volumes matter only
// for pods that stay, and cost two reads each.
func (n *Node) nextListing() action.Action {
	if !n.pods.have {
		return action.ListPods{}
	}
	if read := n.neededVolumeRead(); read != nil {
		return read
	}
	if !n.atts.have {
		return action.ListAttachments{}
	}
	return n.neededClaimRead(n.pods.pods)
}

// neededClaimRead is the read that finds which attachments belong to claims that could not be read: a PersistentVolume
// names its claim, too. Without it the volume of a pod that stays would be waited for, and keep the mark.
func (n *Node) neededClaimRead(pods []action.Pod) action.Action {
	unread := func(v action.Volume) bool { return v.Unread && v.PV == "" }
	uses := func(p action.Pod) bool { return !p.Terminal && slices.ContainsFunc(p.Volumes, unread) }
	if !slices.ContainsFunc(pods, uses) {
		return nil
	}
	var pvs []string
	for _, a := range n.atts.list {
		if _, known := n.boundClaims[a.PV]; !known && a.PV != "" {
			pvs = append(pvs, a.PV)
		}
	}
	if len(pvs) == 0 {
		return nil
	}
	return action.ReadClaims{PVs: pvs}
}

// neededVolumeRead is the read of the volumes of unfinished exempt pods that are not known; nil if all are.
func (n *Node) neededVolumeRead() action.Action {
	var of []action.Pod
	for _, p := range n.pods.pods {
		if p.Claims && !p.Terminal && p.Exempt != taint.NotExempt {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return action.ReadVolumes{Pods: of}
}

// decideMarked is the course of a marked node.
func (n *Node) decideMarked(now providers.Instant) action.Decision {
	n.work, n.workPods = fence.WorkNone, nil // this fence does that work: the next one wants a list of its own
	if !n.facts.Mode.MayAct() && !n.look.Record.IsOpen() && n.look.RecordErr == nil {
		return action.Decision{Action: action.Wait{}, Reason: reason.MarkNotTaken, Detail: n.facts.Mode.String(), RequeueAfter: modeRecheck}
	}
	v := evict.View{
		Now: now, Look: n.look, Seen: n.sights, Memory: n.evict, Answers: n.answers, Settings: n.facts.Evict,
		Reads:   n.readsTook,
		Devices: n.facts.Devices, By: n.facts.By,
	}
	if evict.LooksAtPods(n.look) {
		if d, ok := n.decideByKeptList(v); ok {
			return d
		}
		if read := n.nextListing(); read != nil {
			return action.Decision{Action: read}
		}
	}
	v.Pods, v.Attachments, v.Live, v.Claims = n.pods.pods, n.atts.list, n.atts.live, n.boundClaims
	d := evict.Step(v)
	if action.IsRead(d.Action) {
		return d
	}
	if waitsForVolumes(d) && n.pods.have {
		n.kept = n.pods
	}
	n.evictView = v
	return d
}

// decideByKeptList decides by the list that was kept, if that is new enough and the decision is to end pods or to delete ended ones: each of these
// writes names a UID and a resourceVersion, so a pod that changed since is refused and looked at again, and one that is missing is found
// by the list that follows. To go on waiting for volumes harms nobody, and does with a younger one. Any other decision wants a list of its own.
func (n *Node) decideByKeptList(v evict.View) (_ action.Decision, ok bool) {
	if !n.kept.have || n.pods.have || n.kept.at.Age(v.Now) > keptHolds {
		return action.Decision{}, false
	}
	if !n.atts.have {
		return action.Decision{Action: action.ListAttachments{}}, true
	}
	kept := n.kept
	n.kept = podList{}
	v.Pods, v.Attachments = kept.pods, n.atts.list
	d := evict.Step(v)
	switch a := d.Action.(type) {
	case action.Tombstone:
	case action.Delete:
		if a.Returned {
			return action.Decision{}, false
		}
	default:
		if !waitsForVolumes(d) || kept.at.Age(v.Now) >= waitHolds {
			return action.Decision{}, false
		}
		n.kept = kept
	}
	n.evictView = v
	return d, true
}

// waitsForVolumes reports that nothing is left of a dead node but volumes that are not detached.
func waitsForVolumes(d action.Decision) bool {
	return d.Action == action.Wait{} && d.Reason == reason.WaitingDetach
}

// Hold says whether an act may still be done.
type Hold uint8

// The answers of holds. The zero value is no.
const (
	HoldNo       Hold = iota
	HoldYes           // now
	HoldAskFirst      // the proof grew old: ask the device; then Yes, or No
	HoldSkipPod       // HoldsFor: this pod is left to the next look; other writes of the step may be sent
)

// Recheck is what an executor knows right before a power action is sent, besides the look that the action was decided
// on.
type Recheck struct {
	Leading error       // why this process may not be the leader any more; nil: it is
	Paused  string      // "" or why no node may be fenced, as read after the look
	Seen    taint.Look  // the Node as the cache has it; the zero Look: the cache has none
	Facts   fence.Facts // what the newer of Seen and the look's Node, and the configuration say: Mode, Excluded and KeptOn
	Fleet   fleet.View  // what is known of the node
}

// StillHolds reports why the power action that Next returned last must not be sent at now; nil: it may be sent.
// Providers ask it through the executor right before each request that acts. It only reads n, so it may be called on a
// copy.
func (n *Node) StillHolds(now taint.Instant, r Recheck) error {
	off := action.Is[action.PowerOff](n.lastDecision)
	switch {
	case !off && !action.Is[action.PowerOn](n.lastDecision):
		return errors.New("the step is no power action")
	case r.Leading != nil:
		return fmt.Errorf("%w: %w", errNotLeading, r.Leading)
	case n.lastActionHolds(now) != HoldYes:
		return fmt.Errorf("the look at the node was sent %s ago", n.look.Sent.Age(now).Round(time.Millisecond))
	case r.Fleet.Alive.After(n.look.Sent), off && !r.Fleet.Stale:
		return errors.New("the node showed life since the look")
	case off && !r.Fleet.Heard:
		return errors.New("most nodes are silent")
	case !off && r.Fleet.OnAt.After(n.look.Sent):
		return errors.New("a device says since the look that the machine is on")
	case r.Paused != "":
		return fmt.Errorf("fencing is paused: %s", r.Paused)
	case !r.Seen.Exists:
		return errors.New("the Node is not in the cache")
	case n.AheadOf(r.Seen):
		return checkPowerAllowed(r.Facts)
	}
	return n.checkNodeUnchanged(r)
}

// AheadOf reports whether the look is newer than what a cache has of the Node.
func (n *Node) AheadOf(seen taint.Look) bool {
	return taint.IsOlder(seen.ResourceVersion, n.look.ResourceVersion)
}

// checkNodeUnchanged reports what a Node that is as new as the look, or newer, says against the power action; nil: nothing.
func (n *Node) checkNodeUnchanged(r Recheck) error {
	was, is := n.look.Record, r.Seen.Record
	switch {
	case r.Seen.UID != n.look.UID || r.Seen.BootID != n.look.BootID || r.Seen.IsReady() && !n.look.IsReady():
		return errors.New("the node shows life since the look")
	case r.Seen.Mark != nil:
		return errors.New("the node was marked since the look")
	case is == nil || is.ID != was.ID || is.Phase != was.Phase || is.Result != was.Result || is.PostFence != was.PostFence:
		return errors.New("the record of the fence changed since the look")
	}
	return checkPowerAllowed(r.Facts)
}

// checkPowerAllowed reports why the configuration, or the Node itself, lets no power action be sent; nil: they do.
func checkPowerAllowed(f fence.Facts) error {
	switch {
	case f.Mode != fence.Fence:
		return fmt.Errorf("the node's mode is %s", f.Mode)
	case f.Excluded != "":
		return fmt.Errorf("the node is to be left alone: %s", f.Excluded)
	case f.KeptOn != "":
		return fmt.Errorf("the machine's power is to be left alone: %s", f.KeptOn)
	}
	return nil
}

// MaySend says whether the write of one of the step's pods or attachments, or of the Node, may be sent at now; v is what
// the fleet says of the node then. What it was decided on holds until within is over: by then the write must be on its
// way.
func (n *Node) MaySend(uid string, now providers.Instant, v fleet.View) (within time.Duration, hold Hold) {
	within = proof.TimeToSend(n.answers.Answer, now)
	return within, n.HoldsFor(uid, now.Add(within), v)
}

// HoldsFor says whether the write of one of the step's pods or attachments may be sent at now. Executors ask it before
// each. It does what holds does. Once the node showed life since the look nothing is sent but what a node that came back
// is owed. It also leaves a pod to the next look that Kubernetes' own eviction is about to delete by name (F2): the
// write may have waited since it was decided.
func (n *Node) HoldsFor(uid string, now providers.Instant, v fleet.View) Hold {
	if v.Alive.After(n.look.Sent) && !action.NeedsNoProof(n.lastDecision.Action) {
		return HoldNo
	}
	if a, ends := n.lastDecision.Action.(action.Tombstone); ends {
		stock := n.evict.StockEviction(n.look)
		if a.Policy != "" {
			stock = n.policy.StockEviction(n.look)
		}
		if slices.ContainsFunc(a.Pods, func(p action.Pod) bool { return p.UID == uid && stock.IsAboutToDelete(p, now) }) {
			return HoldSkipPod
		}
	}
	return n.lastActionHolds(now)
}

// questionDuration is how long the question took that followed the last read, TTL at most; 0 if none did. Where the API server
// is slow a policy acts on the look before that question: then a slow or silent device must not make its reads too
// old.
func (n *Node) questionDuration() time.Duration {
	a := n.answers.Answer
	if !a.At.After(n.lastReadAt) {
		return 0
	}
	return min(a.Got.Sub(a.At), proof.TTL)
}

// lastActionHolds reports whether the last step of Next may be carried out at now. Executors ask it right before a destructive
// act, for pods by HoldsFor. A pause of the process, or a long batch, must not let it act on old knowledge.
func (n *Node) lastActionHolds(now providers.Instant) Hold {
	switch n.lastDecision.Action.(type) {
	case action.PowerOff, action.PowerOn:
		// A look is as old as its question: the process may have stood still in the middle of it. Where the one before took as long it is the API
		// server that is slow, and no look would ever do.
		if took := n.look.Got.Sub(n.look.Sent); n.look.Sent.Age(now) > proof.TTL+min(took, n.lastLookTook) {
			return HoldNo
		}
		return HoldYes
	case action.Spare, action.InService:
		return HoldYes
	case action.Tombstone, action.ClearVolumes, action.Delete, action.DeleteAttachments, action.OutOfService, action.SetNotReady:
	default:
		return HoldNo
	}
	if action.PolicyOf(n.lastDecision.Action) != "" { // no proof; but no look that is older than reads make it, either, nor than a few slow ones do
		if n.lastReadAt.Age(now) > proof.TTL+n.questionDuration() || n.look.Sent.Age(now) > policyLook {
			return HoldNo
		}
		return HoldYes
	}
	if action.NeedsNoProof(n.lastDecision.Action) { // tombstoned pods, which no kubelet can start, of a node that is alive: no proof is needed or possible
		return HoldYes
	}
	v := n.evictView
	v.Memory, v.Answers = n.evict, n.answers
	if action.Is[action.SetNotReady](n.lastDecision) { // never on a person's word
		switch {
		case v.IsProvenOff(now):
			return HoldYes
		case v.Answers.Answer.State != providers.PowerOff:
			return HoldNo
		default:
			return HoldAskFirst
		}
	}
	switch {
	case v.MayEndPods(now):
		return HoldYes
	case n.facts.NoDeviceErr != nil:
		return HoldNo
	case v.Answers.Answer.State != providers.PowerOff && len(v.Devices) > 0 && !v.Look.Record.IsVouchedFor():
		return HoldNo
	default:
		return HoldAskFirst
	}
}
