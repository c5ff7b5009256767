package explain

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	// readyLasts is how long a silent node stays Ready (kube-controller-manager's node-monitor-grace-period).
	readyLasts = 50 * time.Second
	blink      = time.Millisecond // how long a read, or a question to a device, takes
	tick       = time.Second      // between two looks while nothing is reported
	// longest is added to the configured times: Kubernetes' own eviction, and six minutes until it detaches.
	longest  = 20 * time.Minute
	maxSteps = 100_000
	grace    = 30 * time.Second // grace period of a pod that Kubernetes' own eviction deletes
)

// play is one scenario: the executor, and a model of the node's surroundings. Other nodes do what they do now: live
// nodes stay live, silent nodes stay silent. Volumes are detached once nothing keeps them.
type play struct {
	Snapshot
	supposed providers.PowerState
	off      []bool // for each device: we sent a power-off through it
	began    providers.Instant
	until    providers.Instant // the play ends here
	node     *corev1.Node
	rv       int
	pods     []action.Pod
	atts     []action.Attachment

	course    decide.Node
	fleet     fleet.Fleet
	livePeers []peer

	lastReason reason.Reason
	out        Scenario
}

// peer is another node that is live: its kubelet renews its Lease every quarter of the duration.
type peer struct {
	node     string
	duration time.Duration
	next     providers.Instant
}

// playScenario returns what would happen if all devices of the node gave that answer from now on, and the node stayed
// silent.
func playScenario(s Snapshot, supposed providers.PowerState) Scenario {
	p := play{
		Snapshot: s, supposed: supposed, off: make([]bool, len(s.Facts.Devices)),
		node: s.Node.DeepCopy(), pods: slices.Clone(s.Pods), atts: slices.Clone(s.Attachments),
		out: Scenario{
			DeviceState: supposed.String(), Outcome: Nothing,
			Steps: []Event{}, Moved: []string{}, Policy: []PolicyEnded{}, Detach: []string{},
		},
	}
	p.Facts.NewID = cmp.Or(p.Facts.NewID, "f-explain")
	p.Facts.By = "explain"
	p.loadFleet()
	p.runToEnd()
	switch l := p.readLook(); {
	case p.out.Outcome != Nothing:
	case l.Mark != nil || l.Record.IsOpen():
		p.out.Outcome = Hangs
	}
	if p.out.Outcome != Nothing {
		for _, a := range evict.UnusedAttachments(s.Pods, s.Attachments, true) {
			p.out.Detach = append(p.out.Detach, cmp.Or(a.PV, a.Name))
		}
	}
	return p.out
}

// loadFleet sets up the fleet as a controller knows it that has led for a while.
func (p *play) loadFleet() {
	p.fleet.SetLimits(p.Limits)
	p.began = p.Now.Add(-p.LeaseAge[p.node.Name])
	type lease struct {
		node string
		at   providers.Instant
	}
	var all []lease
	for i := range p.Nodes {
		name := p.Nodes[i].Name
		age, renewed := p.LeaseAge[name]
		if !renewed {
			age = fleet.MaxDuration
		}
		all = append(all, lease{name, p.Now.Add(-age)})
	}
	slices.SortFunc(all, func(a, b lease) int { return a.at.Compare(b.at) })
	for _, l := range all {
		p.fleet.AddNode(l.node, l.at)
		if o := p.Leases[l.node]; o != nil {
			p.fleet.ApplyLease(l.node, o.ResourceVersion, taint.LeaseDuration(o), l.at)
		}
	}
	for i := range p.Nodes {
		p.fleet.ApplyLook(taint.NewLook(&p.Nodes[i], nil, p.Key, p.Now, p.Now), p.Now)
	}
	p.fleet.Tick(p.Now)
	for name, l := range p.Leases {
		if name != p.node.Name && !p.fleet.View(name, p.Now).Stale {
			p.livePeers = append(p.livePeers, peer{name, cmp.Or(taint.LeaseDuration(l), fleet.DefaultDuration), p.Now})
		}
	}
}

// readLook returns a live look at the node.
func (p *play) readLook() taint.Look {
	return taint.NewLook(p.node, p.Leases[p.node.Name], p.Key, p.Now, p.Now)
}

func (p *play) bumpVersion() { p.rv++; p.node.ResourceVersion = strconv.Itoa(p.rv) }

// runToEnd plays until the fence is over, or nothing can change any more.
func (p *play) runToEnd() {
	p.bumpVersion()
	p.until = p.Now.Add(p.Facts.PowerOffAfter + p.Facts.PowerOffTimeout + p.Facts.Evict.DetachTimeout + longest)
	by := decide.Driver{
		World: p, WithFleet: func(do func(decide.Fleet)) { do(&p.fleet) },
		Now: func() providers.Instant { return p.Now }, OnStep: p.reportStep,
	}
	for range maxSteps {
		if p.Now.After(p.until) {
			return
		}
		if l := p.readLook(); p.course.IsIdle(l, p.fleet.View(p.node.Name, p.Now)) {
			p.course.Apply(l.Got, &p.fleet, decide.NodeIdle{Look: l})
			p.advanceTime(tick)
			continue // a controller does not look
		}
		if p.advanceAfter(decide.Step(context.Background(), &p.course, by)) {
			return
		}
	}
}

// reportStep adds what the controller would report, once.
func (p *play) reportStep(s decide.StepDone) {
	d, after := s.Decision, s.Began.Sub(p.began).Round(time.Second).Seconds()
	if action.IsRead(d.Action) || action.Is[action.AskDevices](d) {
		return
	}
	if a, ends := d.Action.(action.EndPods); ends && a.Policy != "" {
		p.out.Policy = append(p.out.Policy, PolicyEnded{after, a.Policy, podNames(a.Pods)})
	}
	if a := d.PolicyBlock; a.Why != "" {
		p.addStep(after, a.Why, reason.RowOf(a.Why).EventNote("{detail}", a.Detail))
	}
	if d.Reason == p.lastReason || d.Reason == "" {
		return
	}
	p.lastReason = d.Reason
	suspicion := p.fleet.View(p.node.Name, p.Now).Suspicion(s.Look)
	text := reason.RowOf(d.Reason).EventNote(p.course.NoteFields(d, suspicion)...)
	if text == "" {
		return
	}
	p.addStep(after, d.Reason, text)
	p.out.Reason, p.out.Text = string(d.Reason), text
}

// addStep adds a reason once. after is the time since the last heartbeat, in seconds.
func (p *play) addStep(after float64, why reason.Reason, text string) {
	if !slices.ContainsFunc(p.out.Steps, func(e Event) bool { return e.Reason == string(why) }) {
		p.out.Steps = append(p.out.Steps, Event{after, string(why), text})
	}
}

// waitForChange lets time pass, for at most d, until the node changes, which wakes a controller.
func (p *play) waitForChange(d time.Duration) {
	for rv := p.rv; d > 0 && p.rv == rv && !p.Now.After(p.until); d -= tick {
		p.advanceTime(min(d, tick))
	}
}

// advanceTime lets d pass, which is at most tick.
func (p *play) advanceTime(d time.Duration) {
	p.Now = p.Now.Add(d)
	for i := range p.livePeers {
		if o := &p.livePeers[i]; !o.next.After(p.Now) {
			p.fleet.ApplyLease(o.node, strconv.FormatInt(p.Now.Wall.UnixNano(), 10), o.duration, p.Now)
			o.next = p.Now.Add(o.duration / 4)
		}
	}
	p.fleet.Tick(p.Now)
	if p.readLook().IsReady() && p.Now.Sub(p.began) > readyLasts {
		p.markUnreachable()
	}
	p.runKubernetes()
}

// markUnreachable does what the node lifecycle controller does about a silent node, and about one whose Ready we set.
func (p *play) markUnreachable() {
	for i := range p.node.Status.Conditions {
		if c := &p.node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(p.Now.Wall)
		}
	}
	at := metav1.NewTime(p.Now.Wall)
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		p.node.Spec.Taints = append(p.node.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &at})
	}
	p.bumpVersion()
}

// runKubernetes does what Kubernetes' own eviction and its attach/detach controller do meanwhile.
func (p *play) runKubernetes() {
	for i := range p.pods {
		for _, t := range p.node.Spec.Taints {
			if t.Effect != corev1.TaintEffectNoExecute || t.TimeAdded == nil || p.pods[i].Deleting ||
				p.pods[i].Terminal {
				continue
			}
			if due, ends := evict.StockEnds(p.pods[i].Tolerations, t, t.TimeAdded.Time); ends &&
				!due.After(p.Now.Wall) {
				p.pods[i].Deleting, p.pods[i].Grace = true, int64(grace.Seconds())
				p.pods[i].DeleteAt = p.Now.Wall.Add(grace)
			}
		}
	}
	if p.readLook().Mark == nil { // an attached volume that no pod uses hangs
		return
	}
	inUse := map[string]bool{} // PersistentVolumes that are still on the node's list
	for _, pod := range p.Pods {
		for _, v := range pod.Volumes {
			inUse[v.PV] = slices.Contains(p.node.Status.VolumesInUse, v.Unique)
		}
	}
	for _, a := range evict.UnusedAttachments(p.pods, p.atts, false) {
		if !inUse[a.PV] {
			p.atts = slices.DeleteFunc(p.atts, func(o action.Attachment) bool { return o.UID == a.UID })
		}
	}
}

// advanceAfter lets time pass as the step demands, and reports whether the course is over.
func (p *play) advanceAfter(s decide.StepDone) (over bool) {
	d := s.Decision
	switch {
	case action.Is[action.NoAction](d):
		p.advanceTime(tick)
	case action.Is[action.Wait](d) && d.Would.Action != nil:
		p.out.Outcome = ShadowOnly
		return true
	case action.Is[action.Wait](d):
		p.waitForChange(max(d.RequeueAfter, blink))
	case action.Is[action.ReadNode](d):
		p.Now = p.Now.Add(blink)
	case action.RecordOf(d.Action).Result == taint.ResultEvicted && action.Is[action.RemoveMark](d):
		p.out.Outcome = Moves
		return true
	}
	return false
}

// checkStillHolds is a controller's last check before a power action.
func (p *play) checkStillHolds() error {
	return p.course.StillHolds(p.Now, decide.Recheck{
		Seen: p.readLook(), Facts: p.Facts.Facts, Fleet: p.fleet.View(p.node.Name, p.Now),
	})
}

// The model is the World of the course. A read takes a moment (blink).

func (p *play) ReadNode(context.Context) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.NodeRead{Look: p.readLook(), Facts: p.Facts}
}

func (p *play) ListPods(context.Context) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.PodsListed{Pods: slices.Clone(p.pods)}
}

func (p *play) ReadOwners(_ context.Context, a action.ReadOwners) decide.Observation {
	p.Now = p.Now.Add(blink)
	of := map[string]action.Owner{}
	for _, pod := range a.Pods {
		of[pod.UID] = action.Owner{Kind: pod.Owner.Kind, Name: pod.Owner.Name, Known: true}
		if o, read := p.Owners[pod.UID]; read {
			of[pod.UID] = o
		}
	}
	return decide.OwnersRead{ByPod: of}
}

func (p *play) ReadStorageSetting(context.Context) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.StorageSettingRead{Why: p.Rival}
}

func (p *play) ReadAwaitedClaims(context.Context, action.ReadAwaitedClaims) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.AwaitedClaimsRead{Claims: p.waitingClaims()}
}

func (p *play) ListEtcdPods(context.Context) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.EtcdPodsListed{Ready: maps.Clone(p.Members)}
}

func (p *play) ListAttachments(_ context.Context, a action.ListAttachments) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.AttachmentsListed{Attachments: slices.Clone(p.atts), Live: a.Live}
}

// ReadClaims returns the claims of the volumes that the snapshot's pods use.
func (p *play) ReadClaims(_ context.Context, a action.ReadClaims) decide.Observation {
	p.Now = p.Now.Add(blink)
	of := map[string]string{}
	for _, pv := range a.PVs {
		of[pv] = action.UnreadClaim
	}
	for _, pod := range p.Pods {
		for _, v := range pod.Volumes {
			if _, asked := of[v.PV]; asked {
				of[v.PV] = pod.Namespace + "/" + v.Claim
			}
		}
	}
	return decide.ClaimsRead{ByVolume: of}
}

// ReadVolumes returns none: the pods of the snapshot have their volumes already.
func (p *play) ReadVolumes(context.Context, action.ReadVolumes) decide.Observation {
	p.Now = p.Now.Add(blink)
	return decide.VolumesRead{}
}

func (p *play) AskDevices(context.Context) decide.Observation {
	p.Now = p.Now.Add(blink)
	answers := p.deviceAnswers()
	p.Now = p.Now.Add(blink)
	return decide.DevicesAnswered{Answers: answers}
}

// waitingClaims returns the claims that replacements wait for. A ReplicaSet creates a replacement as soon as its pod is
// deleted.
func (p *play) waitingClaims() map[string]bool {
	out := map[string]bool{}
	for _, pod := range p.pods {
		for _, v := range pod.Volumes {
			if pod.Deleting && pod.Owner.Kind == "ReplicaSet" {
				out[pod.Namespace+"/"+v.Claim] = true
			}
		}
	}
	return out
}

// deviceAnswers returns the devices' answers.
func (p *play) deviceAnswers() []providers.Answer {
	var out []providers.Answer
	for i, d := range p.Facts.Devices {
		a := providers.Answer{
			Observation: providers.Observation{State: p.deviceState(i), At: p.Now},
			By:          d.Name,
			Got:         p.Now.Add(blink),
		}
		if a.Raw = a.State.String(); a.State == providers.PowerUnknown && !p.isQuiet(i) {
			a.Raw, a.Err = "", providers.WithClass(providers.ErrUnreachable, errors.New("as supposed"))
		}
		out = append(out, a)
	}
	return out
}

// deviceState returns the answer of one device. A machine that we powered off is Off for all devices but those that
// feed it: each of these reports its own outlet.
func (p *play) deviceState(i int) providers.PowerState {
	switch {
	case p.off[i], p.isMachineOff() && !p.Facts.Devices[i].Feeds && !p.isQuiet(i):
		return providers.PowerOff
	case p.isQuiet(i) && p.supposed == providers.PowerOn:
		return providers.PowerUnknown
	default:
		return p.supposed
	}
}

func (p *play) isQuiet(i int) bool { return i < len(p.Quiet) && p.Quiet[i] }

// isMachineOff reports whether our power-offs ended the machine: one through a device that is no feed, or those of all
// outlets of a level.
func (p *play) isMachineOff() bool {
	for i, d := range p.Facts.Devices {
		if !p.off[i] {
			continue
		}
		if !d.Feeds {
			return true
		}
		whole := true
		for j, o := range p.Facts.Devices {
			whole = whole && (o.Level != d.Level || p.off[j])
		}
		if whole {
			return true
		}
	}
	return false
}

// changeCluster makes in the model the change that a controller would make in the cluster.
func (p *play) changeCluster(do func()) decide.ActionDone {
	o := decide.ActionDone{SentAt: p.Now}
	p.Now = p.Now.Add(blink)
	do()
	p.runKubernetes()
	p.bumpVersion()
	return o
}

// sendPower sends a power action, unless its conditions do not hold any more.
func (p *play) sendPower(send func()) decide.Observation {
	if err := p.checkStillHolds(); err != nil {
		o := decide.ActionDone{Err: err, SentAt: p.Now, Withheld: true}
		p.advanceTime(tick)
		return o
	}
	return p.changeCluster(send)
}

// writePods writes each of the pods, then does what follows from all of it.
func (p *play) writePods(pods []action.Pod, write func(*action.Pod), then func()) decide.Observation {
	how := map[string]action.WriteResult{}
	o := p.changeCluster(func() {
		for _, pod := range pods {
			how[pod.UID] = action.Accepted
			p.changePod(pod.UID, write)
		}
		then()
	})
	o.Results = how
	return o
}

func (p *play) WriteRecord(_ context.Context, a action.WriteRecord) decide.Observation {
	return p.changeCluster(func() { p.writeRecord(a.Record) })
}

func (p *play) SetMark(_ context.Context, a action.SetMark) decide.Observation {
	return p.changeCluster(func() {
		p.writeRecord(a.Record)
		p.node.Spec.Taints = taint.WithMark(p.node.Spec.Taints, p.Key, a.Record.ID, p.Now.Wall)
	})
}

func (p *play) RemoveMark(_ context.Context, a action.RemoveMark) decide.Observation {
	return p.changeCluster(func() {
		p.writeRecord(a.Record)
		p.node.Spec.Taints = taint.WithoutMark(p.node.Spec.Taints, p.Key, a.Record.ID)
	})
}

func (p *play) AddOutOfServiceTaint(context.Context) decide.Observation {
	return p.changeCluster(func() { p.node.Spec.Taints = append(p.node.Spec.Taints, taint.OutOfService(p.Now.Wall)) })
}

func (p *play) RemoveOutOfServiceTaint(context.Context) decide.Observation {
	return p.changeCluster(func() { p.node.Spec.Taints = taint.WithoutOutOfService(p.node.Spec.Taints) })
}

func (p *play) PowerOff(_ context.Context, a action.PowerOff) decide.Observation {
	return p.sendPower(func() {
		p.off[a.Move.Device] = true
		p.out.Through = append(p.out.Through, p.Facts.Devices[a.Move.Device].Name)
	})
}

// PowerOn does nothing to the model: what becomes of a machine after its fence is not played.
func (p *play) PowerOn(context.Context, action.PowerOn) decide.Observation {
	return p.sendPower(func() {})
}

// WithdrawOrders does nothing to the model but what it writes.
func (p *play) WithdrawOrders(_ context.Context, a action.WithdrawOrders) decide.Observation {
	return p.changeCluster(func() { p.writeRecord(a.Record) })
}

func (p *play) SetPoweredOnCondition(_ context.Context, a action.SetPoweredOnCondition) decide.Observation {
	return p.changeCluster(func() {
		status := corev1.ConditionFalse
		if a.On {
			status = corev1.ConditionTrue
		}
		p.node.Status.Conditions = append(slices.DeleteFunc(p.node.Status.Conditions,
			func(c corev1.NodeCondition) bool {
				return c.Type == taint.PoweredOnCondition
			}), corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: status})
	})
}

func (p *play) ExpireReady(context.Context) decide.Observation {
	return p.changeCluster(p.markUnreachable)
}

func (p *play) AnnouncePolicy(_ context.Context, a action.AnnouncePolicy) decide.Observation {
	return p.changeCluster(func() { setAnnotation(p.node, taint.PolicyAnnotation, a.Note) })
}

func (p *play) ClearVolumes(_ context.Context, a action.ClearVolumes) decide.Observation {
	return p.changeCluster(func() { p.node.Status.VolumesInUse, p.node.Status.VolumesAttached = a.InUse, a.Attached })
}

// FenceStorage supposes that the storage does as it is asked.
func (p *play) FenceStorage(_ context.Context, a action.FenceStorage) decide.Observation {
	return p.changeCluster(func() {
		p.Facts.StorageFences = maps.Clone(p.Facts.StorageFences)
		p.Facts.StorageFences[a.Name] = policy.StorageFence{State: policy.FenceHolds}
	})
}

func (p *play) EndPods(_ context.Context, a action.EndPods) decide.Observation {
	if a.Policy == "" {
		p.out.Moved = append(p.out.Moved, podNames(a.Pods)...)
	}
	return p.writePods(a.Pods, func(o *action.Pod) { o.Tombstone, o.Terminal = true, true }, func() {})
}

func (p *play) DeletePods(_ context.Context, a action.DeletePods) decide.Observation {
	p.out.Moved = append(p.out.Moved, podNames(slices.DeleteFunc(slices.Clone(a.Pods),
		func(o action.Pod) bool { return !o.HasUnfinishedDeletion() }))...)
	return p.writePods(a.Pods, func(o *action.Pod) { o.Deleting, o.Grace = true, 0 }, func() {
		p.pods = slices.DeleteFunc(p.pods, func(o action.Pod) bool {
			return o.Deleting && o.Grace == 0 && len(o.Finalizers) == 0
		})
	})
}

func (p *play) SparePods(_ context.Context, a action.SparePods) decide.Observation {
	return p.writePods(a.Pods, func(o *action.Pod) { o.Spared = p.readLook().Record.Token() }, func() {})
}

func (p *play) SetPodsNotReady(_ context.Context, a action.SetPodsNotReady) decide.Observation {
	return p.writePods(a.Pods, func(o *action.Pod) { o.Ready = false }, func() {})
}

func (p *play) DeleteAttachments(_ context.Context, a action.DeleteAttachments) decide.Observation {
	how := map[string]action.WriteResult{}
	o := p.changeCluster(func() {
		for _, att := range a.Attachments {
			how[att.UID] = action.Accepted
			p.atts = slices.DeleteFunc(p.atts, func(o action.Attachment) bool { return o.UID == att.UID })
		}
	})
	o.Results = how
	return o
}

func (p *play) writeRecord(r taint.Record) { setAnnotation(p.node, taint.RecordAnnotation, r.Encode()) }

func (p *play) changePod(uid string, change func(*action.Pod)) {
	for i := range p.pods {
		if p.pods[i].UID == uid {
			change(&p.pods[i])
			p.pods[i].ResourceVersion += "'"
		}
	}
}

func setAnnotation(node *corev1.Node, key, value string) {
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[key] = value
}

func podNames(pods []action.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, podName(p))
	}
	return out
}
