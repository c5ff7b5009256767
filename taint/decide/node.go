// Package decide decides what to do next about one node, from the first suspicion to the end of its fence. The decision
// is the next read, the next act, or how long to wait. It drives the two state machines: fence before the mark, and
// evict under it. It also holds what one process remembers of the node: looks, lists and their age, answers, and what
// is being tried.
//
// It is pure: it names no client, no clock and no logger. An executor carries out what Next returns, passes the result
// to Apply (Observation), and repeats. taint/controller does so against the API server, the simulation and the stories
// against models. No executor contains a rule.
//
// It promises: every act is decided on a live look that was made after the last act. What a decision depends on is read
// live before it, and nothing more. While pods are written, a proof that grew old is requested again before the next
// write. A sign of life since the look stops these writes (HoldsFor). No power-off is announced without a turn in the
// fleet. What a policy does without proof is written on the Node before it is done.
package decide

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// Facts are what the configuration says about a node at the time of a look. The zero value is a node in mode observe.
type Facts struct {
	fence.Facts
	Evict    evict.Settings
	Policies []policy.Policy          // policies that may end pods without proof, in their order
	Storage  map[string]action.Health // what storage systems report about the node, by their adapters' names
	// StorageFences is how far the storage of a policy has cut the node off, by the policies' names.
	StorageFences map[string]policy.StorageFence
}

// Node is what one process remembers of one node. Safety never depends on it after a restart: the record on the Node
// shows where a new leader continues, and that leader asks for a proof first. The zero value remembers nothing. Its
// methods must not be called concurrently.
type Node struct {
	fence   fence.Memory
	evict   evict.Memory
	policy  policy.Memory
	answers proof.Answers

	// The current look, and what was read after it.
	lookIsFresh    bool // a decision may be based on the look
	look           taint.Look
	sights         taint.Sightings // of the looks' record
	lastLookTook   time.Duration   // how long the previous look took
	facts          Facts
	lastReadAt     providers.Instant // when the last of the reads was answered
	readsTook      time.Duration     // how long all of these reads took
	readBegan      providers.Instant // when Next returned the last of them
	pods           podList
	atts           attachmentList
	storageSetting *string           // the result of StorageSettingRead; nil: not read
	etcdReady      map[string]bool   // the result of EtcdPodsListed; nil: not read
	awaitedClaims  map[string]bool   // claims that pods elsewhere wait for; nil: not read
	boundClaims    map[string]string // the result of ClaimsRead; nil: not read
	evictView      evict.View        // the view of the last decision under a mark
	evictPods      podList           // the list that it was made on
	policyEffects  policy.Effects    // of the policies' last decision
	lastDecision   action.Decision   // what Next returned last
	awaitsRead     bool              // lastDecision is a read whose result has not arrived

	// What is kept from one look to the next.
	work          fence.PendingWork
	worked        providers.Instant // when a list last showed that work
	workTook      time.Duration     // how long its reads took
	workPods      []action.Pod      // the pods that those reads listed
	kept          podList           // a list kept for the next act
	policyHasTurn bool              // a policy has its turn, according to the last StorageReported
}

// podList is a live list of the node's pods.
type podList struct {
	have bool
	pods []action.Pod
	sent providers.Instant // when it was requested
	at   providers.Instant // when it had arrived
}

// attachmentList holds the attachments that name the node.
type attachmentList struct {
	have, live bool
	list       []action.Attachment
}

const (
	// keptHolds is how long a list may be kept for the next act. An API server answers two consistent lists of a
	// resource without writes 100 ms apart. It waits until etcd confirms that its cache is fresh, and asks for that ten
	// times a second (kubernetes 1.36, ConditionalProgressRequester). Where ten nodes are evicted at once, two seconds
	// pass between a list and the act after the next.
	keptHolds = 3 * time.Second
	// waitHolds is how long a list may be kept while waiting for volumes: attachments go one after the other, and each
	// wakes the node. It equals the length of such a wait, so a list follows a wait that nothing ended earlier.
	waitHolds = time.Second
	// policyLook is the maximum age of a look that a policy acts on. Up to five reads follow the look, each of which
	// may take 15 s. If all do, the policy waits.
	policyLook = time.Minute
	// modeRecheck is when to look again at a mark that the mode leaves alone: a mode change wakes no node.
	modeRecheck = 30 * time.Second
	// workHolds is how long found work counts, in addition to twice the time that finding it took. It is a reason to
	// ask and to mark; what a marked node has to do is listed again.
	workHolds = time.Second
)

// Fleet is what is known across nodes: *fleet.Fleet, or a recording of its answers.
type Fleet interface {
	ApplyLease(name, rv string, duration time.Duration, now providers.Instant) (renewed bool)
	ApplyLook(l taint.Look, now providers.Instant)
	ApplyAnswer(name string, a providers.Answer)
	View(name string, now providers.Instant) fleet.View
	ReserveTurn(name string, now providers.Instant) bool
	ReleaseTurn(name string)
	ApplyStorageFences(name string, shutOut bool, now providers.Instant)
	DistrustingNode(m taint.MachineRef, device, of string) (node string)
}

// NewIdleNode returns an idle Node with the memory that PolicyMemory returned.
func NewIdleNode(kept policy.Memory) Node { return Node{policy: kept} }

// PolicyMemory returns what is kept of an idle node.
func (n *Node) PolicyMemory() policy.Memory { return n.policy }

// Look returns the last look; the zero Look before the first one.
func (n *Node) Look() taint.Look { return n.look }

// Devices returns the devices that speak for the node, according to the last look.
func (n *Node) Devices() []proof.Device { return n.facts.Devices }

// Attachments returns the node's listed attachments: those that the fence of a marked node detaches, and those of pods
// that stay. A pod stays if it is exempt, or if the fence spared it. It returns false if they are not listed.
func (n *Node) Attachments() (leaving, staying []action.Attachment, listed bool) {
	pods := n.pods.pods
	if !n.pods.have {
		pods = n.kept.pods
	}
	rec := n.look.Record
	pods = slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool {
		return p.ShouldMove() && (rec == nil || p.Spared != rec.Token())
	})
	unused := evict.UnusedAttachments(pods, n.atts.list, false)
	for _, a := range n.atts.list {
		if !slices.Contains(unused, a) {
			staying = append(staying, a)
		}
	}
	leaving, _ = evict.View{Now: n.look.Got, Look: n.look, Seen: n.sights, Memory: n.evict, Answers: n.answers,
		Settings: n.facts.Evict, Pods: pods}.HoldingAttachments(unused)
	return leaving, staying, n.atts.have
}

// FenceBegan returns when the fence of the look's record began, by this process's clocks. Without an open record it
// returns when the look was sent.
func (n *Node) FenceBegan() providers.Instant {
	if !n.look.Record.IsOpen() {
		return n.look.Sent
	}
	return n.sights.InstantOf(n.look.Record.Since, n.look.Got)
}

// ReadDuration returns how long the last look and the reads after it took, without the questions to devices between
// them.
func (n *Node) ReadDuration() time.Duration { return n.readsTook }

// Answer returns the combined last answer of the machine's devices; the zero Answer if they were not asked.
func (n *Node) Answer() providers.Answer { return n.answers.Answer }

// IsIdle reports whether the node needs no look; a healthy node costs no more than this check. The look may come from a
// cache; v is the fleet's view of the node. A node is not idle while pods that a policy ended were not seen gone, nor
// while its storage gives a policy a turn.
func (n *Node) IsIdle(l taint.Look, v fleet.View) bool {
	if n.policy.OwesDeletes() || n.policyHasTurn {
		return false
	}
	r := l.Record
	done := r == nil || r.Phase == taint.PhaseDone && (r.BootID != l.BootID || r.Restart != "" || !l.IsReady() ||
		r.Result != taint.ResultEvicted && r.Result != taint.ResultReturned)
	return v.Suspicion(l) == "" && l.Mark == nil && l.RecordErr == nil && done && !l.PoweredOn &&
		len(l.OrdersToWithdraw()) == 0
}

// Apply folds in what was observed at now. It never blocks. It does not use f for StorageReported and NodeIdle.
func (n *Node) Apply(now providers.Instant, f Fleet, o Observation) {
	switch o := o.(type) {
	case NodeRead:
		n.applyNodeRead(o.Look, o.Facts, f)
	case DevicesAnswered:
		n.applyAnswers(o.Answers, now, f)
	case ActionDone:
		n.applyActionDone(o, now, f)
	case StorageReported:
		n.policyHasTurn = n.policy.ApplyStorage(o.Policies, o.Health, now)
	case NodeIdle:
		n.policy.ApplyLook(o.Look)
		*n = Node{policy: n.policy}
	case nil, ReadFailed:
	default:
		n.applyRead(o, now)
	}
}

// applyRead folds in the answer, which arrived at that time, of the read that Next returned after the look.
func (n *Node) applyRead(o Observation, at providers.Instant) {
	n.readsTook += at.Sub(n.readBegan)
	n.lastReadAt, n.awaitsRead = at, false
	switch o := o.(type) {
	case PodsListed:
		n.pods = podList{have: true, pods: o.Pods, sent: n.readBegan, at: at}
		n.policy.ApplyPods(o.Pods)
		n.evict.ApplyPods(o.Pods, at)
	case VolumesRead:
		n.applyVolumes(o.ByPod)
	case AttachmentsListed:
		n.atts = attachmentList{have: true, live: o.Live, list: o.Attachments}
		if o.Live {
			n.evict.ListedAt = at
			n.policy.ApplyAttachments(o.Attachments)
		}
	case OwnersRead:
		n.applyOwners(o.ByPod)
	case StorageSettingRead:
		n.storageSetting = &o.Why
	case AwaitedClaimsRead:
		n.awaitedClaims = notNil(o.Claims)
	case ClaimsRead:
		n.applyBoundClaims(o.ByVolume)
	case EtcdPodsListed:
		n.etcdReady = notNil(o.Ready)
	}
}

// notNil returns an empty map for nil, which means that nothing was read.
func notNil[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

// applyNodeRead folds in a live look at the Node and its Lease, and what the configuration says about the node now.
func (n *Node) applyNodeRead(l taint.Look, facts Facts, f Fleet) {
	now := l.Got
	f.ApplyLease(l.Name, l.LeaseRV, l.LeaseDuration, now)
	if l.Exists {
		f.ApplyLook(l, now)
		if out, known := policy.IsShutOut(facts.StorageFences); known {
			f.ApplyStorageFences(l.Name, out, now)
		}
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
	n.pods, n.atts, n.storageSetting, n.awaitedClaims, n.etcdReady, n.evictView =
		podList{}, attachmentList{}, nil, nil, nil, evict.View{}
	n.evictPods, n.boundClaims = podList{}, nil
	if len(facts.Devices) == 0 {
		n.answers.SetDevices(proof.Device{}) // no device: Next gives its answer
	} else {
		n.answers.SetDevices(facts.Devices...)
	}
}

// applyOwners folds in what controls the owners of the requested pods, by the pods' UIDs.
func (n *Node) applyOwners(of map[string]action.Owner) {
	n.pods.pods = slices.Clone(n.pods.pods)
	for i := range n.pods.pods {
		if owner, ok := of[n.pods.pods[i].UID]; ok {
			owner.Direct = n.pods.pods[i].Owner.Kind
			n.pods.pods[i].Owner = owner
		}
	}
}

// applyVolumes folds in the volumes of pods' claims, by the pods' UIDs. A pod that is missing there has none.
func (n *Node) applyVolumes(of map[string][]action.Volume) {
	asked, _ := n.lastDecision.Action.(action.ReadVolumes)
	n.pods.pods = slices.Clone(n.pods.pods)
	for i := range n.pods.pods {
		p := &n.pods.pods[i]
		if p.Claims && slices.ContainsFunc(asked.Pods, func(q action.Pod) bool { return q.UID == p.UID }) {
			p.Volumes, p.Claims = of[p.UID], false
		}
	}
}

// applyBoundClaims folds in the claims, as namespace/name, of the requested volumes. The claim is "" for an unbound
// volume, and action.UnreadClaim for one that could not be read.
func (n *Node) applyBoundClaims(of map[string]string) {
	n.boundClaims = notNil(maps.Clone(n.boundClaims))
	asked, _ := n.lastDecision.Action.(action.ReadClaims)
	for _, pv := range asked.PVs {
		n.boundClaims[pv] = of[pv]
	}
	n.evict.ApplyBoundClaims(n.boundClaims)
	n.pods.pods, n.workPods = addClaimVolumes(n.pods.pods, of), addClaimVolumes(n.workPods, of)
}

// addClaimVolumes adds to each pod with an unread claim the PersistentVolumes that are, or may be, bound to that claim.
func addClaimVolumes(pods []action.Pod, of map[string]string) []action.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		for _, vol := range p.Volumes {
			for _, pv := range slices.Sorted(maps.Keys(of)) {
				mine := of[pv] == p.Namespace+"/"+vol.Claim || of[pv] == action.UnreadClaim ||
					vol.Claim == action.UnreadClaim && strings.HasPrefix(of[pv], p.Namespace+"/")
				if vol.Unread && vol.PV == "" && mine {
					p.Volumes = append(slices.Clip(p.Volumes), action.Volume{PV: pv, Claim: vol.Claim, Unread: true})
				}
			}
		}
	}
	return pods
}

// applyAnswers folds in the answers of the machine's devices, one of each in the order of Facts.Devices. Where the API
// server or the device is slow, the next decision may use the same look (keepsLook). Normally another look follows, but
// then the answer would always be too old on its arrival. The API server still refuses every write whose object
// changed.
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

// keepsLook reports whether the next decision may use the look from before the question. An earlier question may have
// delayed the reads of this look: then the look may be older by its duration, by TTL at most.
func (n *Node) keepsLook(now providers.Instant) bool {
	questions := min(n.lastReadAt.Sub(n.look.Sent)-n.readsTook, proof.TTL)
	return (n.readsTook > time.Second || n.offEndsSoon(now)) &&
		n.look.Sent.Age(now) <= 2*n.readsTook+proof.TTL+questions
}

// offEndsSoon reports whether the device of a marked node answered Off so late that another look would outlast the
// proof.
func (n *Node) offEndsSoon(now providers.Instant) bool {
	a := n.answers.Answer
	late := a.State == providers.PowerOff && a.At.Age(now)+2*n.readsTook+proof.Shortest > proof.TTL
	return late && n.look.Mark != nil
}

// distrustingNode returns the node whose record distrusts the first of the machine's devices, if every device is
// distrusted; "" otherwise.
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

// applyActionDone folds in how the last act that Next returned ended. In any case the node is looked at again.
func (n *Node) applyActionDone(o ActionDone, now providers.Instant, f Fleet) {
	n.lookIsFresh = false
	if o.Withheld {
		if action.Is[action.FenceStorage](n.lastDecision) {
			f.ApplyStorageFences(n.look.Name, false, now)
		}
		return
	}
	n.evict.ApplyAct(n.lastDecision.Action)
	switch a := n.lastDecision.Action.(type) {
	case action.WriteRecord:
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
		n.fence.PowerOffs.ApplySent(o.SentAt, n.facts.Devices, a.Move, o.Err)
	case action.FenceStorage: // the next look shows it
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
			n.policy.ApplyWrites(a, n.policyEffects, o.Results, now)
			return
		}
		n.evict.ForcedAt = now
	default:
		n.applyPodWrites(o.Results, now)
	}
}

// applyPodWrites folds in how the pod writes of the last action ended, if it has any.
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

// Next returns the next decision. It may be called repeatedly. The node is looked at again after Wait and NoAction. It
// is also looked at again after a read without a result: the read failed, the retry is later, and a heartbeat may have
// come meanwhile.
func (n *Node) Next(now providers.Instant, f Fleet) action.Decision {
	if n.awaitsRead {
		n.lookIsFresh = false
	}
	d := n.decideNext(now, f)
	if action.Is[action.AskDevices](d) && n.facts.NoDeviceErr != nil { // no device to ask: that is the answer
		for range 2 { // an answer that proves nothing is followed by a wait
			noDevice := providers.Answer{
				Observation: providers.Observation{At: now}, Got: now, Err: n.facts.NoDeviceErr,
			}
			n.answers.ApplyAnswers(noDevice)
			if d = n.decideNext(now, f); !action.Is[action.AskDevices](d) {
				break
			}
		}
	}
	if action.Is[action.Wait](d) || action.Is[action.NoAction](d) || action.Is[action.ReadNode](d) {
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
		return n.withdrawFirst(n.decideMarked(now, f.View(n.look.Name, now).Twin))
	default:
		return n.decideUnmarked(now, f)
	}
}

// withdrawFirst returns the decision to take back the orders that must not be carried out any more, if the decision
// would let the node rest. So a device that cannot be reached delays nothing that the node's fence has to do.
func (n *Node) withdrawFirst(d action.Decision) action.Decision {
	void := n.look.OrdersToWithdraw()
	if len(void) == 0 || !action.LetsRest(d.Action) {
		return d
	}
	var names []string
	for _, o := range void {
		names = append(names, o.Device)
	}
	return action.Decision{
		Action: action.WithdrawOrders{Orders: void, Record: n.look.Record.WithoutOrders(void)},
		Reason: reason.OrderWithdrawn, Detail: strings.Join(names, ", "),
	}
}

// leftOn holds the reasons for which a machine that is on is left on, no matter what other nodes do. The guard of the
// out-of-service taint relies on the condition that follows.
var leftOn = []reason.Reason{reason.PoweredOn, reason.ControlPlane, reason.VMHost, reason.KeptOn}

// fenceView returns what a fence without a mark is decided on.
func (n *Node) fenceView(now providers.Instant, f Fleet) fence.View {
	l := n.look
	v := fence.View{
		Facts: n.facts.Facts, Now: now, Look: l, Seen: n.sights, Memory: n.fence, Answers: n.answers,
		Fleet: f.View(l.Name, now), DistrustingNode: n.distrustingNode(f),
		EtcdPods: n.etcdReady,
	}
	v.ControlPlane, _ = fleet.IsControlPlane(l.Labels)
	v.VMHost = fence.IsVMHost(l.Labels)
	return v
}

// PowerOffRefusal is fence.View.PowerOffRefusal at the last look, as a text; "" if the machine may be powered off.
func (n *Node) PowerOffRefusal(now providers.Instant, f Fleet) string {
	why, detail := n.fenceView(now, f).PowerOffRefusal()
	return strings.TrimSuffix(string(why)+": "+detail, ": ")
}

// decideUnmarked decides before the mark is set.
func (n *Node) decideUnmarked(now providers.Instant, f Fleet) action.Decision {
	l, v := n.look, n.fenceView(now, f)
	if l.Exists && v.Fleet.Suspicion(l) != "" && (v.Facts.Mode != fence.Disabled || l.Record.IsOpen()) {
		work, read := n.findPendingWork(now)
		if read != nil {
			return action.Decision{Action: read}
		}
		v.PendingWork = work
	}
	d := n.withdrawFirst(fence.Step(v))
	switch d.Reason {
	case reason.NoWork:
		d.Detail = describeStayingPods(n.workPods)
	case reason.Rearming:
		d.Detail = describeReturnedPods(n.workPods, l.Taints)
	}
	if d.Would.Action != nil {
		if d.Reason != reason.Shadowed {
			n.fence.Reported = append(n.fence.Reported, d.Reason)
			d.Would.Pods = PodsToMove(n.workPods)
		} else {
			d.Would = action.ShadowDecision{}
		}
	}
	// The condition appears while the node looks dead and its machine is left on. It goes when the node is back.
	if on := slices.Contains(leftOn, d.Reason) && v.Facts.Mode.MayAct(); on != l.PoweredOn &&
		(on || v.Fleet.Suspicion(l) == "") {
		return action.Decision{Action: action.SetPoweredOnCondition{On: on}, Reason: d.Reason, Detail: d.Detail}
	}
	switch a := d.Action.(type) {
	case action.WriteRecord:
		announces := a.Record.Phase == taint.PhasePoweringOff && !l.Record.IsOpen()
		if announces && !f.ReserveTurn(l.Name, now) {
			return action.Decision{Action: action.Wait{}, Reason: reason.PowerOffLimit, RequeueAfter: time.Second}
		}
	case action.Wait, action.NoAction:
		return n.decideByPolicy(now, v, f, d)
	}
	return d
}

// decideByPolicy lets the policies decide while a fence only waits, or leaves the node.
func (n *Node) decideByPolicy(now providers.Instant, v fence.View, all Fleet, fenced action.Decision) action.Decision {
	f := v.Fleet
	if n.facts.Excluded != "" || !n.facts.Mode.MayAct() || n.look.IsReleased() {
		return fenced
	}
	d, effects := policy.Step(policy.View{
		Now: now, Look: n.look, Memory: n.policy, Policies: n.facts.Policies, Storm: findStorm(f, now),
		StorageSetting: n.storageSetting, Listed: n.pods.have, Pods: n.pods.pods,
		AwaitedClaims: n.awaitedClaims, Attached: n.atts.have && n.atts.live, Attachments: n.atts.list,
		Storage: n.facts.Storage, Silent: f.Stale, Fences: n.facts.StorageFences,
	})
	if action.Is[action.FenceStorage](d) {
		if block, refused := limitStorageFence(now, v, all); refused {
			d = action.Decision{Action: action.Wait{}, PolicyBlock: block, RequeueAfter: pollLimits}
			effects = policy.Effects{}
		}
	}
	n.policy.ApplyEffects(effects)
	n.policyEffects = effects
	switch d.Action.(type) {
	case action.Wait:
		fenced.PolicyBlock = d.PolicyBlock
		if action.Is[action.NoAction](fenced) || d.RequeueAfter < fenced.RequeueAfter {
			fenced.Action, fenced.RequeueAfter = action.Wait{}, d.RequeueAfter
		}
	case action.NoAction:
	default:
		return d
	}
	fenced.Notes = d.Notes
	return fenced
}

// pollLimits is how often a policy that the limits refuse is decided on again.
const pollLimits = 5 * time.Second

// limitStorageFence returns why storage must not shut the node out now. That is bound by the limits of power-offs: the
// machine runs on, and nothing on it can use its volumes until it boots. Else it takes a turn: the storage may do it
// even if no answer arrives, so only the next look releases the turn.
func limitStorageFence(now providers.Instant, v fence.View, f Fleet) (b action.PolicyBlock, refused bool) {
	if why, detail, once := v.StorageFenceRefusal(); why != "" {
		return action.PolicyBlock{
			Why: reason.PolicyWaits, Detail: cmp.Or(detail, string(why)), ReportOnceKey: once}, true
	}
	if !f.ReserveTurn(v.Look.Name, now) {
		return action.PolicyBlock{Why: reason.PolicyWaits, Detail: string(reason.PowerOffLimit)}, true
	}
	f.ApplyStorageFences(v.Look.Name, true, now)
	return action.PolicyBlock{}, false
}

// findStorm returns why policies must wait, as power-offs do: the apparent death of this node is more likely a
// partition, or a fault of this process.
func findStorm(f fleet.View, now providers.Instant) action.PolicyBlock {
	switch {
	case f.AllSilent():
		return action.PolicyBlock{
			Why: reason.PolicyWaits, Detail: "no other node renews its Lease", ReportOnceKey: "heard",
		}
	case !f.Heard:
		return action.PolicyBlock{
			Why: reason.PolicyWaits, Detail: "fewer than half of the nodes renew their Leases", ReportOnceKey: "heard",
		}
	case !f.IsSettled(now): // after a start, or an outage: not reported
		return action.PolicyBlock{Detail: "it is not known yet which nodes are silent"}
	}
	for _, p := range f.Storm.Parts {
		if !p.Lost.IsZero() {
			return action.PolicyBlock{Why: reason.PolicyWaits, Detail: p.LossText(), ReportOnceKey: p.IncidentKey()}
		}
	}
	return action.PolicyBlock{}
}

// PodsToMove returns the pods that a fence would move.
func PodsToMove(pods []action.Pod) []action.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool {
		return p.Terminal || p.Exempt != taint.NotExempt
	})
}

// findPendingWork returns whether a fence would have work to do, or which read is needed first. A nil Action means that
// no read is needed.
func (n *Node) findPendingWork(now providers.Instant) (fence.PendingWork, action.Action) {
	if n.atts.live { // a stale cache would mark the node for nothing, again and again
		if read := n.neededClaimRead(n.workPods); read != nil {
			return fence.WorkNone, read
		}
		if n.work = fence.WorkNone; evict.HasWork(n.workPods, n.atts.list, n.look.InUse) {
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
	case evict.HasWork(n.workPods, nil, nil):
		n.work = fence.WorkConfirmed
	case evict.HasWork(n.workPods, n.atts.list, n.look.InUse):
		n.work = fence.WorkCached
	}
	if n.work != fence.WorkNone {
		n.worked, n.workTook = n.lastReadAt, n.lastReadAt.Sub(n.look.Got)
		n.kept = n.pods
	}
	return n.work, nil
}

// describeStayingPods names the pods that stay on a dead node by their own tolerations. A blanket toleration keeps a
// StatefulSet down with its node.
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

// nextListing returns the next read: pods, the volumes of those that stay, or attachments; nil if all are read. Volumes
// matter only for pods that stay, and cost two reads each.
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

// neededClaimRead returns the read that finds which attachments belong to unread claims: a PersistentVolume also names
// its claim. Without it, the fence would wait for the volume of a pod that stays, and keep the mark.
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

// neededVolumeRead returns the read of unknown volumes of unfinished exempt pods; nil if all are known.
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

// decideMarked decides for a marked node. twin is fleet.View.Twin.
func (n *Node) decideMarked(now providers.Instant, twin string) action.Decision {
	n.work, n.workPods = fence.WorkNone, nil // this fence does that work; the next one needs its own list
	if n.kept.have {                         // it may have been listed before the mark
		n.evict.ApplyPods(n.kept.pods, n.kept.at)
	}
	if !n.facts.Mode.MayAct() && !n.look.Record.IsOpen() && n.look.RecordErr == nil {
		return action.Decision{
			Action: action.Wait{}, Reason: reason.MarkNotTaken, Detail: n.facts.Mode.String(),
			RequeueAfter: modeRecheck,
		}
	}
	v := evict.View{
		Now: now, Look: n.look, Seen: n.sights, Memory: n.evict, Answers: n.answers, Settings: n.facts.Evict,
		Reads:   n.readsTook,
		Devices: n.facts.Devices, By: n.facts.By, Twin: twin,
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
	n.evictView, n.evictPods = v, n.pods
	n.evict.ApplyDecision(d, now)
	return d
}

// decideByKeptList decides on the kept list if that is new enough. The decision must be to end pods or to delete ended
// ones. Each of these writes names a UID and a resourceVersion, so the API server refuses a changed pod, which is
// looked at again. The next list finds a missing pod. Waiting on for volumes is harmless, and needs a younger list. Any
// other decision needs its own list.
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
	case action.EndPods:
	case action.DeletePods:
		if a.Returned {
			return action.Decision{}, false
		}
	default:
		if !waitsForVolumes(d) || kept.at.Age(v.Now) >= waitHolds {
			return action.Decision{}, false
		}
		n.kept = kept
	}
	n.evictView, n.evictPods = v, kept
	n.evict.ApplyDecision(d, v.Now)
	return d, true
}

// Proof is that a node's machine was off, and what the API server knew of its pods then.
type Proof struct {
	Node  string
	Asked providers.Instant // when the devices were asked
	// Since is when the pods' list was requested, or the devices were asked, whichever came first.
	Since providers.Instant
	Pods  []action.Pod // all that were bound to the node
}

// Proof returns the proof that the last decision to end pods is based on. A person's word is none, nor is a policy.
func (n *Node) Proof(now providers.Instant) (p Proof, ok bool) {
	a, ends := n.lastDecision.Action.(action.EndPods)
	v := n.evictView
	v.Memory, v.Answers = n.evict, n.answers
	if !ends || a.Policy != "" || !n.evictPods.have || !v.IsProvenOff(now) {
		return Proof{}, false
	}
	p = Proof{Node: n.look.Name, Asked: n.answers.Answer.At, Since: n.evictPods.sent, Pods: n.evictPods.pods}
	if p.Asked.Before(p.Since) {
		p.Since = p.Asked
	}
	return p, true
}

// waitsForVolumes reports whether only volumes that are not detached are left of a dead node.
func waitsForVolumes(d action.Decision) bool {
	return d.Action == action.Wait{} && d.Reason == reason.WaitingDetach
}

// Hold says whether an act may still be done.
type Hold uint8

// The results of HoldsFor and MaySend. The zero value is no.
const (
	HoldNo       Hold = iota
	HoldYes           // now
	HoldAskFirst      // the proof grew old: ask the device; then HoldYes, or HoldNo
	HoldSkipPod       // HoldsFor: this pod is left to the next look; other writes of the step may be sent
)

// Recheck is what an executor knows right before it sends a power action, besides the look of the decision.
type Recheck struct {
	Leading error       // why this process may have lost leadership; nil: it is the leader
	Paused  string      // "" or why fencing is paused for all nodes, as read after the look
	Seen    taint.Look  // the cached Node; the zero Look: the cache has none
	Facts   fence.Facts // from the newer of Seen and the look's Node, and the configuration and requests
	Fleet   fleet.View  // what the fleet knows of the node
}

// StillHolds returns why the power action that Next returned last must not be sent at now; nil: it may be sent.
// Providers call it through the executor right before each request that acts. It only reads n, so it may be called on a
// copy.
func (n *Node) StillHolds(now taint.Instant, r Recheck) error {
	off := action.Is[action.PowerOff](n.lastDecision)
	switch {
	case !off && !action.Is[action.PowerOn](n.lastDecision):
		return errors.New("the action is not a power action")
	case r.Leading != nil:
		return fmt.Errorf("%w: %w", errNotLeading, r.Leading)
	case n.lastActionHolds(now) != HoldYes:
		return fmt.Errorf("the look at the node is too old: it was requested %s ago",
			n.look.Sent.Age(now).Round(time.Millisecond))
	case r.Fleet.Alive.After(n.look.Sent), off && !r.Fleet.Stale:
		return errors.New("the node showed life since the look")
	case off && r.Fleet.Twin != "":
		return fmt.Errorf("node %s is heard, and may be the same machine", r.Fleet.Twin)
	case off && !r.Fleet.Heard:
		return errors.New("most nodes are silent")
	case !off && r.Fleet.OnAt.After(n.look.Sent):
		return errors.New("a device answered On since the look")
	case r.Paused != "":
		return fmt.Errorf("fencing is paused: %s", r.Paused)
	case !r.Seen.Exists:
		return errors.New("the Node is not in the cache")
	case n.AheadOf(r.Seen):
		return checkPowerAllowed(r.Facts)
	}
	return n.checkNodeUnchanged(r)
}

// AheadOf reports whether the look is newer than the cached Node.
func (n *Node) AheadOf(seen taint.Look) bool {
	return taint.IsOlder(seen.ResourceVersion, n.look.ResourceVersion)
}

// checkNodeUnchanged returns why a Node that is at least as new as the look forbids the power action; nil: it does not.
func (n *Node) checkNodeUnchanged(r Recheck) error {
	was, is := n.look.Record, r.Seen.Record
	switch {
	case r.Seen.UID != n.look.UID || r.Seen.BootID != n.look.BootID || r.Seen.IsReady() && !n.look.IsReady():
		return errors.New("the node shows life since the look")
	case r.Seen.Mark != nil:
		return errors.New("the node was marked since the look")
	case is == nil || is.ID != was.ID || is.Phase != was.Phase || is.Result != was.Result ||
		is.AfterFence != was.AfterFence:
		return errors.New("the record of the fence changed since the look")
	}
	return checkPowerAllowed(r.Facts)
}

// checkPowerAllowed returns why the configuration, or the Node itself, forbids power actions; nil: they are allowed.
func checkPowerAllowed(f fence.Facts) error {
	switch allowed := f.EffectiveMode() == fence.Fence; {
	case !allowed && f.Mode == fence.OnRequest:
		return errors.New("no request for the node counts any more (mode onRequest)")
	case !allowed:
		return fmt.Errorf("the node's mode is %s", f.Mode)
	case f.Excluded != "":
		return fmt.Errorf("the node is excluded: %s", f.Excluded)
	case f.KeptOn != "":
		return fmt.Errorf("the machine's power must not be changed: %s", f.KeptOn)
	}
	return nil
}

// MaySend reports whether the write of one of the step's pods or attachments, or of the Node, may be sent at now. v is
// the fleet's view of the node at that time. The basis of the decision holds until within is over: by then the write
// must be on its way.
func (n *Node) MaySend(uid string, now providers.Instant, v fleet.View) (within time.Duration, hold Hold) {
	within = proof.TimeToSend(n.answers.Answer, now)
	return within, n.HoldsFor(uid, now.Add(within), v)
}

// HoldsFor reports whether the write of one of the step's pods or attachments may be sent at now. Executors call it
// before each. It applies lastActionHolds. Once the node showed life since the look, only actions that need no proof
// may be sent (action.NeedsNoProof). A pod that Kubernetes' own eviction is about to delete by name (F2) is left to the
// next look: the write may have waited since it was decided.
func (n *Node) HoldsFor(uid string, now providers.Instant, v fleet.View) Hold {
	if (v.Alive.After(n.look.Sent) || v.Twin != "" && action.PolicyOf(n.lastDecision.Action) == "") &&
		!action.NeedsNoProof(n.lastDecision.Action) {
		return HoldNo
	}
	if a, ends := n.lastDecision.Action.(action.EndPods); ends {
		stock := n.evict.StockEviction(n.look)
		if a.Policy != "" {
			stock = n.policy.StockEviction(n.look)
		}
		if slices.ContainsFunc(a.Pods, func(p action.Pod) bool {
			return p.UID == uid && stock.IsAboutToDelete(p, now)
		}) {
			return HoldSkipPod
		}
	}
	return n.lastActionHolds(now)
}

// questionDuration returns how long the question after the last read took, TTL at most; 0 if there was none. Where the
// API server is slow, a policy acts on the look before that question: a slow or silent device must not make its reads
// too old.
func (n *Node) questionDuration() time.Duration {
	a := n.answers.Answer
	if !a.At.After(n.lastReadAt) {
		return 0
	}
	return min(a.Got.Sub(a.At), proof.TTL)
}

// lastActionHolds reports whether the last action of Next may be carried out at now. Executors call it right before a
// destructive act, for pods through HoldsFor. It keeps a paused process, or a long batch, from acting on old knowledge.
func (n *Node) lastActionHolds(now providers.Instant) Hold {
	switch n.lastDecision.Action.(type) {
	case action.PowerOff, action.PowerOn:
		// A look is as old as its question: the process may have been stopped in the middle of it. If the previous look
		// took as long, the API server is slow, and no look would ever be young enough.
		if took := n.look.Got.Sub(n.look.Sent); n.look.Sent.Age(now) > proof.TTL+min(took, n.lastLookTook) {
			return HoldNo
		}
		return HoldYes
	case action.SparePods, action.RemoveOutOfServiceTaint:
		return HoldYes
	case action.EndPods, action.ClearVolumes, action.DeletePods, action.DeleteAttachments, action.AddOutOfServiceTaint,
		action.SetPodsNotReady, action.FenceStorage:
	default:
		return HoldNo
	}
	// A policy needs no proof. But its look may be no older than the reads make it, nor than a few slow reads do.
	if action.PolicyOf(n.lastDecision.Action) != "" {
		if n.lastReadAt.Age(now) > proof.TTL+n.questionDuration() || n.look.Sent.Age(now) > policyLook {
			return HoldNo
		}
		return HoldYes
	}
	// These are tombstoned pods, which no kubelet can start, of a node that is alive: no proof is needed or possible.
	if action.NeedsNoProof(n.lastDecision.Action) {
		return HoldYes
	}
	v := n.evictView
	v.Memory, v.Answers = n.evict, n.answers
	if action.Is[action.SetPodsNotReady](n.lastDecision) { // a person's confirmation is not enough
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
