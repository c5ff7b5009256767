package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// proofTTL is the design's bound, on purpose not fence.ProofTTL.
const proofTTL = 5 * time.Second

// stockSoon is step 8's bound.
const stockSoon = 30 * time.Second

// checker holds what the invariants need beyond the stored state. It judges by its own reading of the design, not by
// the code under test.
type checker struct {
	w        *World
	byPerson map[string]bool      // values of marks that a person put or edited
	marked   map[string]time.Time // node/id -> when the mark was committed
	phases   map[string]bool      // id/phase that was committed
	ended    map[string]tomb      // by pod UID
	fooled   map[string]string    // node -> fence and boot: we ended pods of a machine that ran, on its device's word
	late     map[string]bool      // UIDs of pods that a stale scheduler bound to a marked node
	alerts   map[string][]string
	freed    map[string]map[corev1.UniqueVolumeName]bool // node -> volumes of pods that a policy ended there
	powered  map[string]bool                             // fences whose power-off was sent
	cutOff   map[string]cutOff                           // by node: whom a process had its storage cut off
	recorded map[string]time.Time                        // when a fence was first on its Node
	accepted map[string][]taint.DeviceRef                // the devices that accepted one, by the fence's id
	offs     map[string]offSent                          // by node
	sends    map[[2]string]*sends                        // by process and node

	announced map[string]bool        // UID of the Node/when a power-on was announced, as committed
	sentOn    map[string][]time.Time // UID of the Node -> the announcements of which power-ons were sent
}

// tomb is a tombstone of ours.
type tomb struct {
	fence string
	at    time.Time // when it was sent
	ready bool      // the node was Ready on the look: a policy's, for its storage's sake
	led   time.Time // since when the process that sent it leads
}

func (c *checker) begin() {
	c.byPerson, c.marked, c.phases = map[string]bool{}, map[string]time.Time{}, map[string]bool{}
	c.late, c.fooled = map[string]bool{}, map[string]string{}
	c.ended, c.alerts = map[string]tomb{}, map[string][]string{}
	c.freed = map[string]map[corev1.UniqueVolumeName]bool{}
	c.accepted = map[string][]taint.DeviceRef{}
	c.powered, c.offs, c.sends = map[string]bool{}, map[string]offSent{}, map[[2]string]*sends{}
	c.cutOff, c.recorded = map[string]cutOff{}, map[string]time.Time{}
	c.announced, c.sentOn = map[string]bool{}, map[string][]time.Time{}
}

func (c *checker) alert(node, why string) {
	if !slices.Contains(c.alerts[node], why) {
		c.w.logf("ALERT %s: %s", node, why)
		c.w.count("alert " + why)
		c.alerts[node] = append(c.alerts[node], why)
	}
}

func ours(by string) bool { return strings.HasPrefix(by, "ff-") }

// nodeWrite is invariant 5 for a Node, and remembers what was committed when.
func (c *checker) nodeWrite(by, rv string, old, n *corev1.Node) {
	w := c.w
	key := func(t corev1.Taint) bool {
		return t.Key == taint.DefaultKey || taint.IsOutOfService([]corev1.Taint{t})
	}
	if ours(by) {
		if rv == "" {
			w.fail("5", "%s writes node %s without a resourceVersion", by, n.Name)
		}
		rest := func(ts []corev1.Taint) []corev1.Taint { return slices.DeleteFunc(slices.Clone(ts), key) }
		if !slices.EqualFunc(rest(old.Spec.Taints), rest(n.Spec.Taints),
			func(a, b corev1.Taint) bool { return a == b }) {
			w.fail("5", "%s changes another taint of %s", by, n.Name)
		}
		unpinned := func(n *corev1.Node) map[string]string {
			l := maps.Clone(n.Labels)
			delete(l, taint.PinLabel)
			return l
		}
		if !maps.Equal(unpinned(old), unpinned(n)) || old.Spec.Unschedulable != n.Spec.Unschedulable {
			w.fail("5", "%s changes labels or cordon of %s", by, n.Name)
		}
		if !isReady(old) && isReady(n) {
			w.fail("5", "%s makes %s Ready", by, n.Name)
		}
		// any node is pinned while it is healthy
		if l := unpinned(old); maps.Equal(n.Labels, old.Labels) || !maps.Equal(l, unpinned(n)) {
			c.untouched(by, n.Name, "Node "+n.Name)
		}
	}
	if m, ok := taint.FindMark(n, taint.DefaultKey, ""); ok {
		if o, had := taint.FindMark(old, taint.DefaultKey, ""); !had || o.Value != m.Value {
			c.marked[n.Name+"/"+m.Value] = w.now
		}
	}
	if r, err := taint.RecordOf(n); err == nil && r != nil {
		c.phases[r.ID+"/"+string(r.Phase)] = true
		if c.recorded[r.ID].IsZero() {
			c.recorded[r.ID] = w.now
		}
		c.announced[string(n.UID)+"/"+r.LastPowerOn().String()] = true
		c.namesAccepted(*r, n.Name)
	}
}

// namesAccepted holds that a record names every device that accepted a power-off of its fence.
func (c *checker) namesAccepted(r taint.Record, node string) {
	for _, d := range c.accepted[r.ID] {
		if !slices.ContainsFunc(r.PowerOffTo, d.IsSame) {
			c.w.fail("record", "%s accepted a power-off, and the record of %s (%s %s) does not name it", d.Device, node,
				r.Phase, r.Result)
		}
	}
}

// podWrite is invariants 5 and 9 for a pod; p nil is a deletion.
func (c *checker) podWrite(by, uid, rv string, old, p *corev1.Pod) {
	w := c.w
	if !ours(by) {
		return
	}
	if uid == "" || rv == "" {
		w.fail("5", "%s writes pod %s without UID and resourceVersion", by, old.Name)
	}
	c.untouched(by, old.Spec.NodeName, "pod "+old.Name)
	finishes := p == nil && old.DeletionTimestamp != nil // the deletion of another client
	switch exempt, unready := taint.ExemptionOf(old, taint.DefaultKey) != taint.NotExempt, onlyNotReady(old, p); {
	case finishes:
	case exempt && !unready:
		w.fail("9", "%s writes exempt pod %s", by, old.Name)
	case unready && !exempt:
		w.fail("9", "%s sets pod %s not ready, which does not stay", by, old.Name)
	}
	if p != nil && taint.IsTombstone(p) && isTrue(p, corev1.DisruptionTarget) &&
		(isTrue(p, corev1.PodReady) || isTrue(p, corev1.ContainersReady)) {
		w.fail("ready", "%s ends pod %s, and it still reads Ready", by, old.Name)
	}
	if taint.IsTerminal(old) && !taint.IsTombstone(old) && !finishes {
		w.fail("9", "%s writes finished pod %s", by, old.Name)
	}
	if p == nil && !taint.IsTombstone(old) && !finishes {
		w.fail("1", "%s deletes pod %s, which has no tombstone", by, old.Name)
	}
}

// setNotReady reports whether Ready of a pod is False as forcefence writes it.
func setNotReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == taint.TombstoneReason
	})
}

// onlyNotReady reports whether a write of a pod changes Ready from True to False and nothing else.
func onlyNotReady(old, p *corev1.Pod) bool {
	if p == nil || !isTrue(old, corev1.PodReady) || isTrue(p, corev1.PodReady) {
		return false
	}
	want := old.DeepCopy()
	setPodCondition(want, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse,
		Reason: taint.TombstoneReason})
	return equality.Semantic.DeepEqual(want, p)
}

// grounds are what a step was decided on.
type grounds struct {
	action.Decision
	look   taint.Look
	answer providers.Answer
	pods   []action.Pod // listed last, with their volumes
	atts   []action.Attachment
	said   []providers.PowerState // by each device, when they were asked last
	device bool                   // one speaks for the node
	trust  bool                   // in a person's word
	by     *Process
	hinted bool // something besides the device's answers reported the machine's end
}

// begun is the record before the act.
func (c *checker) begun(g grounds, what string) {
	if r := g.look.Record; !r.IsOpen() || !c.phases[r.ID+"/"+string(taint.PhaseEvicting)] {
		c.w.fail("record", "%s on %s before the record says Evicting", what, g.look.Name)
	}
}

// proof is invariant 1 for one destructive act, or its announcement, at the moment it is sent.
func (c *checker) proof(g grounds, what string) {
	w, node, r, a := c.w, g.look.Name, g.look.Record, g.answer
	c.noTwin(node, what)
	m := w.machine(node)
	on := slices.Contains(g.said, providers.PowerOn)
	gainsaid := g.device && (on && !g.trust || a.State == providers.PowerOff || a.State == providers.PowerChanging)
	if r.By == taint.ByPerson && c.byPerson[r.ID] && !gainsaid {
		if m.power && m.excused == "" {
			m.excused = "a person vouched for a machine that is on"
			w.logf("%s: excused: %s", node, m.excused)
		}
		return
	}
	since, ok := c.marked[node+"/"+r.ID]
	switch {
	case a.State != providers.PowerOff:
		w.fail("1", "%s on %s, and the last answer is %s", what, node, a.State)
	case on:
		w.fail("2", "%s on %s, and one of its devices says On", what, node)
	case w.now.Sub(a.At.Wall) > proofTTL:
		w.fail("1", "%s on %s with a proof of %s ago", what, node, w.now.Sub(a.At.Wall))
	case !ok || a.At.Wall.Before(since):
		w.fail("1", "%s on %s with a proof older than the mark", what, node)
	case !w.notReadyBetween(node, since, a.At.Wall):
		w.fail("1", "%s on %s with a proof asked for while Ready was True", what, node)
	}
	if !w.truth[proofKey{node, a.At.Wall}] {
		w.fail("2", "%s on %s, and the machine was not off when it was asked", what, node)
	}
}

// proven reports whether the machine is proven off now, as invariant 1 has it.
func (c *checker) proven(g grounds) bool {
	since, ok := c.marked[g.look.Name+"/"+g.look.Record.ID]
	return g.answer.State == providers.PowerOff && c.w.now.Sub(g.answer.At.Wall) <= proofTTL && ok &&
		!g.answer.At.Wall.Before(since) &&
		c.w.notReadyBetween(g.look.Name, since, g.answer.At.Wall)
}

// notReadyBetween reports whether Ready was not True at some time in the span.
func (w *World) notReadyBetween(node string, from, to time.Time) bool {
	for i := len(w.api.past) - 1; i >= 0; i-- {
		s := &w.api.past[i]
		if s.at.After(to) {
			continue
		}
		if n := s.node(node); n == nil || !isReady(n) {
			return true
		}
		if s.at.Before(from) {
			break
		}
	}
	return false
}

// sentNotReady checks invariant 1 for a pod that stays, as for a pod that goes. A person's word never takes Ready from
// a pod.
func (c *checker) sentNotReady(g grounds, p action.Pod) {
	what := "Ready False on " + p.Name
	c.begun(g, what)
	if g.answer.State != providers.PowerOff {
		c.w.fail("1", "%s on %s, and the last answer is %s", what, g.look.Name, g.answer.State)
	}
	c.proof(g, what)
	c.lifeless(g.look, what)
}

// notReady holds that no pod of a machine that runs loses Ready, but where the machine was started since it was proven
// off, or lied.
func (c *checker) notReady(g grounds, m *machine, p action.Pod) {
	if m.power && m.switched.Before(g.answer.At.Wall) && !m.lied {
		c.w.fail("1", "%s loses Ready, and %s has been on since before it was asked", p.Name, m.name)
	}
	if m.power {
		c.w.count("pod set not ready after a boot")
	}
}

func (c *checker) sent(g grounds, p action.Pod) {
	if action.IsByPolicy(g.Action) {
		c.byPolicy(g, "tombstone of "+p.Name)
		if c.w.pool != nil {
			c.endedFor(p)
		}
		return
	}
	c.begun(g, "tombstone of "+p.Name)
	c.proof(g, "tombstone of "+p.Name)
	c.lifeless(g.look, "tombstone of "+p.Name)
}

// lifeless holds that nothing is taken from a node that showed life on the look, however young the proof is.
func (c *checker) lifeless(l taint.Look, what string) {
	if l.IsReady() || l.IsAliveSince(l.Record) {
		c.w.fail("life", "%s on %s, which shows life", what, l.Name)
	}
}

// byPolicy is what holds of an act without proof: a policy that accepts duplicates is in force, and on its look the
// node was neither Ready nor any fence's.
func (c *checker) byPolicy(g grounds, what string) {
	w, l := c.w, g.look
	c.begins(l, what)
	c.inStorm(g, what)
	switch {
	case w.Scenario != Accepting && w.near == nil:
		w.fail("1", "%s on %s by a policy, and none is in force", what, l.Name)
	case l.IsReady() && w.pool == nil || l.Mark != nil ||
		l.Record.IsOpen() && (w.near == nil || l.Record.Phase != taint.PhasePoweringOff):
		w.fail("1", "%s on %s by a policy, and the node is Ready, marked or being fenced", what, l.Name)
	case !slices.ContainsFunc(l.Unproven, func(u taint.Unproven) bool {
		return "policy "+u.Policy+", without proof: "+u.WithoutProof == action.PolicyOf(g.Action) &&
			u.NodeUID == l.UID && u.Since.Equal(l.ReadySince)
	}):
		w.fail("record", "%s on %s by a policy that the Node does not tell of: %v", what, l.Name, l.Unproven)
	case w.now.Sub(l.Got.Wall) > time.Minute: // reads follow the look
		w.fail("1", "%s on %s by a policy, on a look of %s ago", what, l.Name, w.now.Sub(l.Got.Wall))
	}
	if w.pool != nil {
		c.byStorage(g, what)
	}
	if w.near != nil {
		c.isShutOut(g, what)
	}
	w.count("ended by a policy")
}

// outOfService is the taint that makes stock controllers end pods: none is there that they would end, by what was read
// or by name (F2).
func (c *checker) outOfService(g grounds) {
	w, node := c.w, g.look.Name
	c.proof(g, "out of service")
	at := w.api.asOf(g.look.Got.Wall)
	for _, p := range at.podsOn(node) {
		if _, ends := patience(p.Spec.Tolerations, []corev1.Taint{taint.OutOfService(w.now)}); ends &&
			p.DeletionTimestamp == nil {
			w.fail("9", "%s is taken out of service, which ends pod %s", node, p.Name)
		}
	}
	if mark, ok := taint.FindMark(w.api.node(node), taint.DefaultKey, ""); !ok || mark.Value != g.look.Record.ID {
		return // the write is refused: the Node changed
	}
	w.count("out of service")
}

// detach is the deletion of an attachment, as it reaches the API server: no pod that stood on the node when it was
// looked at goes on using the volume. Another that a scheduler with an old cache binds there gets a new one.
func (c *checker) detach(g grounds, a action.Attachment) {
	w := c.w
	for _, p := range w.api.asOf(g.look.Got.Wall).podsOn(g.look.Name) {
		now := w.api.pod(p.Name)
		if now != nil && now.UID == p.UID && !taint.IsTerminal(now) && slices.Contains(volumesOf(now), a.PV) {
			w.fail("9", "attachment %s is deleted, and pod %s goes on using the volume", a.Name, p.Name)
		}
	}
}

func (c *checker) tombstoned(g grounds, p action.Pod, sent time.Time) {
	if action.IsByPolicy(g.Action) {
		c.ended[p.UID] = tomb{"policy", sent, g.look.IsReady(), g.by.since}
		c.replaceable(g, p)
		c.free(g.look.Name, p)
		return
	}
	c.ended[p.UID] = tomb{g.look.Record.ID, sent, false, g.by.since}
	r := g.look.Record
	if m := c.w.machine(g.look.Name); m.lied && m.power &&
		(m.bootID == r.BootID && r.Run == "" || m.run == r.Run && r.Run != "") && r.By != taint.ByPerson {
		c.fooled[m.name] = r.ID + "/" + m.run
	}
}

// replaceable holds that a policy ends no pod of a node that is not Ready while the scheduler may still bind its
// replacement there.
func (c *checker) replaceable(g grounds, p action.Pod) {
	n := c.w.api.asOf(g.look.Got.Wall).node(g.look.Name)
	if n == nil || isReady(n) || g.look.IsReady() { // Ready, when the look was answered
		return
	}
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule && !toleratesAll(p.Tolerations, t)
	}) {
		c.w.fail("policy", "%s of %s, which is not Ready, is ended, and its replacement may be bound there", p.Name,
			n.Name)
	}
}

// sentDelete is invariant 1 for a deletion: with a proof, or on a node that shows life.
func (c *checker) sentDelete(g grounds, p action.Pod) {
	if !p.Tombstone && !p.HasUnfinishedDeletion() {
		c.w.fail("1", "delete of %s, which has no tombstone, and no other client deleted it", p.Name)
	}
	if !p.Tombstone && action.NeedsNoProof(g.Action) {
		c.w.fail("1", "delete of %s without a proof, which only its kubelet may finish", p.Name)
	}
	if action.IsByPolicy(g.Action) {
		return // what was ended cannot start again
	}
	if !action.NeedsNoProof(g.Action) {
		c.proof(g, "delete of "+p.Name)
		return
	}
	spared := func(p action.Pod) bool { return p.Spared == g.look.Record.Token() }
	if l := g.look; !l.IsReady() && !l.IsAliveSince(l.Record) && g.answer.State != providers.PowerOn &&
		!slices.ContainsFunc(g.pods, spared) {
		c.w.fail("1", "delete of %s as if the node had returned, and it shows no life", p.Name)
	}
}

// clear is step 10: only entries of pods that go, with a proof.
func (c *checker) clear(g grounds) {
	c.begun(g, "clearing of volumes")
	c.proof(g, "clearing of volumes")
	for _, p := range g.pods {
		if p.Terminal || p.Exempt == taint.NotExempt || p.HasUnfinishedDeletion() {
			continue
		}
		for _, vol := range p.Volumes {
			was := slices.Contains(g.look.InUse, vol.Unique)
			if was && !slices.Contains(g.Action.(action.ClearVolumes).InUse, vol.Unique) {
				c.w.fail("9", "the volume of exempt pod %s is taken out of volumesInUse", p.Name)
			}
			has := func(a corev1.AttachedVolume) bool { return a.Name == vol.Unique }
			if slices.ContainsFunc(g.look.Attached, has) &&
				!slices.ContainsFunc(g.Action.(action.ClearVolumes).Attached, has) {
				c.w.fail("9", "the volume of exempt pod %s is taken out of volumesAttached", p.Name)
			}
		}
	}
}

// arm is steps 2 to 5: the mark is set on an Off that was true, and nothing showed life since it was asked for.
func (c *checker) arm(g grounds) {
	w, l, a := c.w, g.look, g.answer
	c.alive(g)
	c.work(l)
	if a.State != providers.PowerOff || !w.truth[proofKey{l.Name, a.At.Wall}] {
		w.fail("2", "%s is marked, and the machine was not off when it was asked", l.Name)
	}
	then := w.api.asOf(a.At.Wall)
	n, lease := then.node(l.Name), then.lease(l.Name)
	if n == nil || lease == nil ||
		string(n.UID) != l.UID || n.Status.NodeInfo.BootID != l.BootID || lease.ResourceVersion != l.LeaseRV ||
		!readyOf(n).LastHeartbeatTime.Time.Equal(l.Heartbeat) {
		w.fail("1", "%s is marked on an answer older than its last sign of life", l.Name)
	}
}

// alive holds that a kubelet which itself says NotReady missed a renewal before the mark, unless its device told of the
// end by itself.
func (c *checker) alive(g grounds) {
	w, l := c.w, g.look
	then := w.api.asOf(l.Sent.Wall) // a heartbeat after the look is met by the question that follows the mark
	n, lease := then.node(l.Name), then.lease(l.Name)
	if n == nil || lease == nil || g.hinted || l.Ready != corev1.ConditionFalse {
		return
	}
	if quiet := w.now.Sub(lease.Spec.RenewTime.Time); quiet < renewEvery {
		w.fail("alive", "%s is marked %s after a heartbeat of a kubelet that says NotReady", l.Name, quiet)
	}
}

// renewEvery is a kubelet's pace, and staleAfter when its Lease is stale.
const (
	renewEvery = 10 * time.Second
	staleAfter = 25 * time.Second
)

// work holds that there was something to do: a pod to move, or an attachment, at some time of the last half minute.
func (c *checker) work(l taint.Look) {
	w := c.w
	for i := len(w.api.past) - 1; i >= 0; i-- {
		s := &w.api.past[i]
		if len(s.attachmentsOf(l.Name)) > 0 || slices.ContainsFunc(s.podsOn(l.Name), func(p *corev1.Pod) bool {
			return p.DeletionTimestamp != nil || taint.ExemptionOf(p, taint.DefaultKey) == taint.NotExempt &&
				(!taint.IsTerminal(p) || taint.IsTombstone(p))
		}) {
			return
		}
		if w.now.Sub(s.at) > 30*time.Second+8*w.limits.api {
			break
		}
	}
	w.fail("work", "%s is marked, and there is nothing to do on it", l.Name)
}

// expire is step 5: a stale Ready may be ended only with an Off in hand and under a mark.
func (c *checker) expire(g grounds) {
	if g.look.Mark == nil || g.answer.State != providers.PowerOff || c.w.now.Sub(g.answer.At.Wall) > proofTTL {
		c.w.fail("1", "Ready of %s is ended without mark or proof", g.look.Name)
	}
	if !c.w.truth[proofKey{g.look.Name, g.answer.At.Wall}] {
		c.w.fail("2", "Ready of %s is ended, and the machine was not off", g.look.Name)
	}
}

// unmark is invariant 11: by what the look saw, no tombstoned pod is left but such as finalizers keep, and no
// attachment but such as a bound pod needs; or this fence tombstoned nothing at all.
func (c *checker) unmark(g grounds) {
	w, r := c.w, g.look.Record
	if n := w.api.node(g.look.Name); n == nil || n.ResourceVersion != g.look.ResourceVersion {
		return // a conflict: a leader of before has looked long ago
	}
	if r.Phase == taint.PhaseArmed && action.RecordOf(g.Action).Result != taint.ResultLifted ||
		action.RecordOf(g.Action).Phase != taint.PhaseDone {
		w.fail("11", "the mark of %s goes in phase %s with result %s", g.look.Name, r.Phase,
			action.RecordOf(g.Action).Result)
	}
	used := c.allEnded(g)
	if r.Phase == taint.PhaseArmed {
		return
	}
	for _, a := range g.atts {
		if !used[a.PV] && !a.NeverAttached && c.usedUnderMark(g, a.PV) {
			w.fail("11", "the mark of %s goes (%s), and attachment %s is still there", g.look.Name, g.Reason, a.Name)
		}
	}
	if g.Reason == reason.Finished && c.proven(g) {
		c.listed(g)
	}
}

// usedUnderMark reports whether a pod that the node had when its eviction began used the volume.
func (c *checker) usedUnderMark(g grounds, pv string) bool {
	past := c.w.api.past
	used := false
	for i := len(past) - 1; i >= 0; i-- {
		n := past[i].node(g.look.Name)
		if n == nil {
			continue
		}
		if r, _ := taint.RecordOf(n); r == nil || r.ID != g.look.Record.ID || r.Phase != taint.PhaseEvicting {
			return used
		}
		used = slices.ContainsFunc(past[i].podsOn(g.look.Name), func(p *corev1.Pod) bool {
			return slices.Contains(volumesOf(p), pv)
		})
	}
	return used
}

// names is that same moment for the pods that use no volume that the record names: it names all that is still there.
func (c *checker) names(g grounds) {
	w := c.w
	if n := w.api.node(g.look.Name); n == nil || n.ResourceVersion != g.look.ResourceVersion {
		return
	}
	w.count("volumes named")
	named := map[string]bool{}
	for _, d := range action.RecordOf(g.Action).Detaching {
		named[d.Claim] = true
	}
	used := c.allEnded(g)
	for _, a := range g.atts {
		if len(named) > 0 && !named["default/"+a.PV] && (!used[a.PV] || a.Deleting) && !a.NeverAttached &&
			c.usedUnderMark(g, a.PV) {
			w.fail("11", "the record of %s names %v, and attachment %s is still there", g.look.Name,
				action.RecordOf(g.Action).Detaching, a.Name)
		}
	}
	if l := g.look; !l.IsAliveSince(l.Record) {
		w.fail("11", "the record of %s names volumes, and the node shows no life", l.Name)
	}
}

// allEnded holds that no pod that was ended is still there, and returns the volumes that the others use.
func (c *checker) allEnded(g grounds) map[string]bool {
	w, r, used := c.w, g.look.Record, map[string]bool{}
	for _, p := range g.pods {
		kept := p.Deleting && p.Grace == 0 && len(p.Finalizers) > 0
		if p.Tombstone && !kept && (r.Phase != taint.PhaseArmed || c.ended[p.UID].fence == r.ID) {
			w.fail("11", "%s is let go (%s), and tombstoned pod %s is still there", g.look.Name, g.Reason, p.Name)
		}
		if g.Reason == reason.Finished && p.Exempt == taint.NotExempt && !p.Terminal {
			w.fail("11", "%s is let go (%s), and pod %s was not moved", g.look.Name, g.Reason, p.Name)
		}
		for _, vol := range p.Volumes {
			used[vol.PV] = used[vol.PV] || !p.Terminal
		}
	}
	return used
}

// listed is the end of step 10: nothing is left in volumesAttached that attach/detach wrote back and does not know
// attached any more.
func (c *checker) listed(g grounds) {
	for _, a := range g.look.Attached {
		detached := !slices.ContainsFunc(c.w.api.attachmentsOf(g.look.Name), func(x *storagev1.VolumeAttachment) bool {
			return unique(*x.Spec.Source.PersistentVolumeName) == a.Name
		})
		user := slices.ContainsFunc(g.pods, func(p action.Pod) bool {
			return !p.Terminal &&
				slices.ContainsFunc(p.Volumes, func(v action.Volume) bool { return v.Unique == a.Name })
		})
		if detached && !user {
			c.w.fail("F5", "the mark of %s goes, and volumesAttached lists %s, which is detached", g.look.Name, a.Name)
		}
	}
}

// powerOff is step 3: the record stands before the power-off is sent.
func (c *checker) powerOff(l taint.Look, p *Process) {
	w := c.w
	c.noTwin(l.Name, "powered off")
	c.silent(l, p, "powered off")
	if l.Record == nil || !c.phases[l.Record.ID+"/"+string(taint.PhasePoweringOff)] {
		c.w.fail("record", "%s is powered off before the record says so", l.Name)
	}
	if l.IsAliveSince(l.Record) {
		w.fail("6", "%s is powered off, which shows life", l.Name)
	}
}

// silent holds that a node which is powered off, or ended in another way, was silent by its look, and most others were
// not.
func (c *checker) silent(l taint.Look, p *Process, what string) {
	w := c.w
	if n := w.api.asOf(l.Sent.Wall).node(l.Name); n != nil && readyOf(n) != nil {
		if quiet := w.now.Sub(readyOf(n).LastHeartbeatTime.Time); quiet < staleAfter {
			w.fail("15", "%s is %s %s after its kubelet wrote a status", l.Name, what, quiet)
		}
	}
	if lease := w.api.asOf(l.Sent.Wall).lease(l.Name); lease != nil {
		last := lease.Spec.RenewTime.Time
		if quiet := w.now.Sub(last); quiet < staleAfter {
			w.fail("15", "%s is %s %s after a heartbeat, and only silence counts", l.Name, what, quiet)
		}
		if m := w.machine(l.Name); m.k != nil && !m.hung && !m.cut && !m.leaseless && m.troubled.Before(last) {
			w.fail("15", "%s is %s, and its kubelet beats as ever: it was not heard for %s", l.Name, what,
				w.now.Sub(last))
		}
	}
	if fresh, all := w.heard(); 2*fresh < all && w.leader == p.index {
		w.fail("15", "%s is %s while %d of %d nodes are heard", l.Name, what, fresh, all)
	}
}

// sentOff notes a power-off.
func (c *checker) sentOff(l taint.Look, p *Process) {
	c.powered[l.Record.ID] = true
	c.offs[l.Name] = offSent{p, p.life, l.Record.ID}
}

// acceptedOff notes that a device accepted a power-off, and holds that the Node's record names it by then.
func (c *checker) acceptedOff(l taint.Look, by speaker) {
	c.accepted[l.Record.ID] = append(c.accepted[l.Record.ID], proof.SpeakersOf([]proof.Device{by.Device})...)
	if n := c.w.api.node(l.Name); n != nil {
		if r, err := taint.RecordOf(n); err == nil && r != nil && r.ID == l.Record.ID {
			c.namesAccepted(*r, l.Name)
		}
	}
}

// powerOn holds that a machine is powered on only after a fence that is done, in the middle of nothing, if we turned it
// off; that it was written down before, that each announcement is sent once, and as many as are allowed.
func (c *checker) powerOn(l taint.Look, m *machine) {
	w, r := c.w, l.Record
	last, lease := r.LastPowerOn(), w.api.asOf(l.Sent.Wall).lease(l.Name)
	switch {
	case r == nil || r.Phase != taint.PhaseDone || r.Result != taint.ResultEvicted || l.Mark != nil ||
		!c.phases[r.ID+"/"+string(taint.PhaseDone)]:
		w.fail("after", "%s is powered on before its fence is done", l.Name)
	case last.IsZero() || !c.announced[l.UID+"/"+last.String()]:
		w.fail("record", "%s is powered on before the record says so", l.Name)
	case slices.Contains(c.sentOn[l.UID], last):
		w.fail("after", "%s is powered on twice on one announcement", l.Name)
	case lease == nil || !m.ordered.After(lease.Spec.RenewTime.Time):
		w.fail("after", "%s is powered on, and it was not we who turned it off", l.Name)
	case m.contained && !m.power && m.run != m.orderedIn && len(c.sentOn[l.UID]) == 0:
		w.fail("after", "%s is powered on, and it was started since we turned it off, as its device tells", l.Name)
	}
	if m.run != m.orderedIn {
		w.count("started and off again before the power-on")
	}
	c.sentOn[l.UID] = append(c.sentOn[l.UID], last)
	if most := w.storm.after.PerDay; len(c.sentOn[l.UID]) > most {
		w.fail("after", "%s is powered on %d times, and %d are allowed in a day", l.Name, len(c.sentOn[l.UID]), most)
	} else if len(c.sentOn[l.UID]) > 1 {
		w.count("powered on again")
	}
}

// accused is a device found to have lied: it must have, and no other is accused with it.
func (c *checker) accused(m *machine, r taint.Record) {
	c.w.count("never off")
	if m.contained {
		c.w.count("never off, by its run")
	}
	if !m.lied {
		c.w.fail("never-off", "an honest device of %s is accused", m.name)
	}
	if !m.second {
		return
	}
	for _, l := range r.DistrustedDevices() {
		if want := []string{"bmc/", "alt/"}[m.liar] + m.name; l.Device != want {
			c.w.fail("never-off", "%s lied, and %s is accused: %+v", want, l.Device, r)
		}
		c.w.count("one of two is accused")
	}
}

// stockDelete is F2: the stock controller must not hit the replacement of a pod that we ended when it was due within
// half a minute. What it queued under a taint that has gone since, or for a pod it had deleted already, cannot be known
// to anybody, nor can a taint that lands when a policy has looked at a node that was Ready. A process that begins to
// lead after the taint landed has only the controller-manager's clock (docs/promises.md, "Kubernetes' own eviction").
// If that is wrong, the case is counted.
func (c *checker) stockDelete(p *corev1.Pod, t *timer) {
	if string(p.UID) == t.uid {
		return
	}
	c.w.count("stock deletes by name")
	n := c.w.api.node(t.node)
	same := func(x corev1.Taint) bool {
		return x.Effect == corev1.TaintEffectNoExecute && x.TimeAdded.Equal(&t.since)
	}
	ended, ours := c.ended[t.uid]
	if ended.ready {
		c.w.count("became NotReady after a policy's look")
		return
	}
	if landed := t.since.Add(-c.w.skew); c.w.skew != 0 && ended.led.After(landed) {
		c.w.count("stock eviction under a wrong clock, which a new leader cannot know")
		return
	}
	if ours && !t.again && t.due.Sub(ended.at) <= stockSoon && n != nil && slices.ContainsFunc(n.Spec.Taints, same) {
		c.w.fail("F2", "taint-eviction queued %s (%s) and deletes its replacement %s", p.Name, t.uid, p.UID)
	}
}

// started is invariant 10 for identities.
func (c *checker) started(m *machine, p *corev1.Pod) {
	w := c.w
	for _, o := range w.machines {
		for _, r := range o.running {
			if r.name != p.Name || r.uid == string(p.UID) && o == m {
				continue
			}
			if o.excused != "" || m.excused != "" || o.lied || m.lied {
				w.count("excused double")
				continue
			}
			if w.Scenario == Accepting && (w.pool == nil || len(r.volumes) > 0) {
				w.count("accepted double")
				continue
			}
			if w.near != nil && len(r.volumes) > 0 { // writers holds that one of the two writes
				w.count("double of a node that is shut out")
				continue
			}
			w.fail("10", "%s runs on %s (%s) and now on %s (%s) too", p.Name, o.name, r.uid, m.name, p.UID)
		}
	}
	c.writers()
}

// writers is invariant 10 for volumes: a machine writes to a volume if a container there uses it, or if it is mounted
// there and the storage still serves that node.
func (c *checker) writers() {
	w := c.w
	by := map[string]*machine{}
	var kept []string
	for _, m := range w.machines {
		var vols []string
		for _, r := range m.running {
			vols = append(vols, r.volumes...)
		}
		for _, v := range m.mounted {
			if a := w.api.attachment(attachmentName(v, m.name)); a != nil && a.Status.Attached {
				vols = append(vols, v)
			}
		}
		for _, v := range vols {
			if w.pool.keeps(m, v) || w.near.keeps(m) {
				kept = append(kept, v)
				continue
			}
			o := by[v]
			if o == nil || o == m {
				by[v] = m
				continue
			}
			if o.excused != "" || m.excused != "" || o.lied || m.lied {
				continue
			}
			if w.Scenario == Accepting && (w.pool == nil || !w.pool.fences) {
				if w.count("accepted second writer"); w.pool != nil &&
					w.pool.rule.WithoutProof == policy.StorageFences {
					w.count("second writer by a storage that lies")
				}
				continue
			}
			w.fail("10", "volume %s has writers on %s and %s", v, o.name, m.name)
		}
	}
	for _, v := range kept {
		if by[v] != nil {
			w.count("kept from writing")
		}
	}
}

// hung finds pods that cannot mount what is attached because volumesAttached does not list it, and lets attach/detach
// write it whole, as its restart would (F5). A replacement may hang so that came back to the marked node: it was bound
// after its predecessor's entries were cleared and before the volume was detached. The scheduler had an old cache, or a
// person took the mark off in the middle.
func (c *checker) hung() {
	w := c.w
	for _, p := range w.api.pods {
		n := w.api.node(p.Spec.NodeName)
		if n == nil || !isReady(n) || taint.IsTerminal(p) {
			continue
		}
		for _, v := range volumesOf(p) {
			a := w.api.attachment(attachmentName(v, n.Name))
			listed := func(x corev1.AttachedVolume) bool { return x.Name == unique(v) }
			if a == nil || !a.Status.Attached || a.DeletionTimestamp != nil ||
				slices.ContainsFunc(n.Status.VolumesAttached, listed) {
				continue
			}
			if !c.late[string(p.UID)] && w.machine(n.Name).excused == "" {
				w.fail("F5", "%s hangs on %s: %s is attached and not listed", p.Name, n.Name, v)
			}
			w.count("hung replacement (F5)")
			w.writeAttached(n.Name, nil)
		}
	}
}

// unnoticed reports a machine that ran all the time, was evicted on its device's word, and came back without anybody
// saying so. A boot in between makes it look like any other, and a later fence's record hides it.
func (c *checker) unnoticed(n *corev1.Node) bool {
	m := c.w.machine(n.Name)
	r, _ := taint.RecordOf(n)
	return r != nil && m.power && m.excused == "" && c.fooled[m.name] == r.ID+"/"+m.run &&
		r.Result != taint.ResultNeverPoweredOff
}

// atEnd is what must have come true once the world is calm.
func (c *checker) atEnd() {
	w := c.w
	for _, m := range w.machines {
		if n := w.api.node(m.name); n != nil {
			r, err := taint.RecordOf(n)
			if err != nil {
				w.fail("11", "the record of %s is still broken", m.name)
			}
			if r != nil && r.Result == taint.ResultNeverPoweredOff {
				c.accused(m, *r)
			}
		}
	}
}
