package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// ConditionPoweredOn is the Node condition of a node that does not answer while its machine is on, in mode observe.
const ConditionPoweredOn corev1.NodeConditionType = "forcefence.io/PoweredOnNotReady"

// The states of the metric forcefence_nodes.
const (
	stateHealthy     = "healthy"
	stateSuspect     = "suspect"
	statePoweringOff = "powering_off"
	stateArmed       = "armed"
	stateEvicting    = "evicting"
	stateNoMachine   = "no_machine"
	stateExcluded    = "excluded"
	stateDistrusted  = "distrusted"
	stateBroken      = "record_unreadable"
	stateStuck       = "stuck"
)

// fenceSays is what a reason of package fence is told as: an Event where it has a text, and the node's state.
var fenceSays = map[fence.Why]struct {
	warning bool
	state   string
	text    string
}{
	fence.Healthy:         {state: stateHealthy},
	fence.BadRecord:       {true, stateBroken, "The fence's record cannot be read: nothing is done. To start afresh: forcefence release {node} --yes."},
	fence.MarkVanished:    {true, "", "The mark was taken off in the middle of the fence. To end a fence use: forcefence release {node} --yes."},
	fence.NeverOff:        {true, stateDistrusted, "The node is back with the boot id it had when its device {device} said Off: it never was off. The device is not believed of this machine until a person runs: forcefence release {node} --yes."},
	fence.Excluded:        {state: stateExcluded},
	fence.NoMachine:       {true, stateNoMachine, "The node looks dead and no provider can tell whether its machine is off: {detail}."},
	fence.Distrusted:      {true, stateDistrusted, "Device {device} once said Off of a machine that was on; it is not believed until a person runs: forcefence release {detail} --yes."},
	fence.MostStale:       {true, stateSuspect, "The node looks dead ({why}) and its machine is on; fewer than half of the nodes are heard: nobody is powered off until they are."},
	fence.PostsNotReady:   {false, stateSuspect, "The machine's device says Off ({raw}), but the node's own kubelet says NotReady and has not missed a heartbeat: waiting for one to be missed."},
	fence.Rearming:        {true, stateSuspect, "The last fence ended just now without a sign of life from the node: waiting before the next."},
	fence.NotAccepted:     {true, statePoweringOff, "Device {device} did not accept the power-off ({detail}): it is sent again."},
	fence.PowerOffRefused: {true, stateSuspect, "Device {device} refuses the power-off for good ({detail}): nothing is evicted. It is tried again later."},
	fence.AllStale:        {true, stateSuspect, "Every node looks dead at once: nobody is fenced."},
	fence.Released:        {false, stateSuspect, "A person released this node; it is left alone until it comes back."},
	fence.NoWork:          {state: stateSuspect},
	fence.Unknown:         {true, stateSuspect, "The node looks dead ({why}); its device {device} does not tell whether the machine is off: {detail}. Unknown is never off."},
	fence.PoweredOn:       {true, stateSuspect, "The node looks dead ({why}), but its machine is on: nothing is evicted ({detail})."},
	fence.ControlPlane:    {true, stateSuspect, "The node looks dead and its machine is on; a control-plane node is not powered off."},
	fence.StillBeating:    {false, stateSuspect, "The node is NotReady, but its kubelet still renews its Lease: it is not powered off."},
	fence.InGrace:         {false, stateSuspect, "The node looks dead ({why}) and its machine is on: it is powered off after the grace."},
	fence.OneAtATime:      {false, stateSuspect, "Waiting: another node is being powered off."},
	fence.BackingOff:      {true, stateSuspect, "The last power-off failed; waiting before the next."},
	fence.Announcing:      {true, statePoweringOff, "The node looks dead ({why}) and its machine is on: powering it off through {device}."},
	fence.AwaitingOff:     {false, statePoweringOff, "Power-off was sent; waiting until {device} says Off."},
	fence.PowerOffFailed:  {true, stateSuspect, "The machine did not come to Off in time: nothing is evicted. It is tried again later."},
	fence.Recovered:       {false, "", "The node shows life: the power-off is cancelled."},
	fence.ModeObserve:     {false, "", "The mode is observe now: the power-off is cancelled."},
	fence.ProvenOff:       {true, stateArmed, "Device {device} says that the machine is off ({raw}): marking the node."},
}

// evictSays is the same for package evict.
var evictSays = map[evict.Why]struct {
	warning bool
	state   string
	text    string
}{
	evict.BadRecord:       {true, stateBroken, "The fence's record cannot be read: the mark stays and nothing is evicted. To take it off: forcefence release {node} --yes."},
	evict.Adopting:        {true, stateArmed, "A person marked the node as shut down."},
	evict.Refused:         {true, stateArmed, "A person marked the node as shut down, but device {device} says that its machine is on: nothing is evicted."},
	evict.StillReady:      {true, stateArmed, "A person marked the node as shut down; it still reads Ready: waiting for a heartbeat (the mark goes) or for NotReady."},
	evict.Confirmed:       {true, stateEvicting, "The machine is off ({raw}, asked after the mark), the node gave no sign of life: evicting its pods."},
	evict.Vouched:         {true, stateEvicting, "Evicting without proof: a person vouches that the machine is off ({detail})."},
	evict.NotConfirmed:    {true, "", "The machine was not confirmed off after the mark ({detail}): the mark goes, nothing was evicted."},
	evict.Alive:           {true, "", "The node is alive: the mark goes, nothing was evicted."},
	evict.Tombstoning:     {true, stateEvicting, "Ending {pods} pods."},
	evict.StockEviction:   {false, stateEvicting, "Waiting for Kubernetes' own eviction to reach pods that it is about to delete."},
	evict.Clearing:        {true, stateEvicting, "Clearing the node's volume lists of the pods that go."},
	evict.Deleting:        {true, stateEvicting, "Deleting {pods} pods."},
	evict.ProofLost:       {true, stateEvicting, "The machine is no longer proven off ({detail}): no more pods are ended until it is."},
	evict.Sparing:         {true, stateEvicting, "The machine is back: {pods} pods that were not ended yet live on; they start when the mark goes."},
	evict.Returned:        {true, stateEvicting, "The machine is back: no more pods are ended; those already ended are deleted, then the mark goes."},
	evict.Retrying:        {true, stateEvicting, "Some pods could not be ended or deleted, and are tried again; all others are done."},
	evict.WaitingDetach:   {false, stateEvicting, "All pods are gone; waiting until their volumes are detached."},
	evict.Finished:        {true, "", "All pods are gone and their volumes detached: the mark goes."},
	evict.FinishedReturn:  {true, "", "The node came back; all ended pods are gone and their volumes detached: the mark goes."},
	evict.NeverPoweredOff: {true, stateDistrusted, "The node is back with the boot id it had when its device {device} said Off: it never was off. The device is not believed of this machine until a person runs: forcefence release {node} --yes."},
}

func (t *turn) tellFence(d fence.Decision) {
	says := fenceSays[d.Why]
	t.tell(string(d.Why), d.Act.String(), says.warning, says.state, says.text, d.Detail, 0, d.Record.ID, "")
}

func (t *turn) tellEvict(v evict.View, d evict.Decision) {
	says := evictSays[d.Why]
	alert := d.Alert
	if alert == string(evict.Stuck) {
		alert += ": " + stuckPods(d.Stuck)
	}
	begins := (d.Why == evict.Confirmed || d.Why == evict.Vouched) && t.st.said != string(d.Why)
	id := v.Look.Record.IDOr(d.Record.ID)
	t.tell(string(d.Why), d.Act.String(), says.warning, says.state, says.text, d.Detail, len(d.Pods), id, alert)
	if begins {
		t.tellNoHook(id)
	}
}

// tellNoHook warns, when an eviction begins, that nothing on the node would hold its pods if its machine came up now.
func (t *turn) tellNoHook(id string) {
	guard, why := taint.Guard(t.node)
	if guard == corev1.ConditionTrue {
		return
	}
	t.Log.Warn("Evicting a node without a hook", "node", t.look.Name, "fence", id, "guard", protection(guard, why))
	t.event(corev1.EventTypeWarning, "NoHookOnNode", "Evict", "This node has no hook that holds its pods: if its machine boots before the "+
		"mark is off, they start again beside their replacements. Keep it from powering on by itself until then (the BMC's power restore "+
		"policy); to be safe the next time, install the hook.")
}

// stuckNames is how many stuck pods an Event names.
const stuckNames = 3

// stuckPods names pods and what could not be done with them.
func stuckPods(pods []evict.StuckPod) string {
	verbs := map[evict.Act]string{evict.Tombstone: "ended", evict.Delete: "deleted", evict.Spare: "spared"}
	var names []string
	for i, p := range pods {
		if i == stuckNames {
			return strings.Join(names, "; ") + fmt.Sprintf("; and %d more", len(pods)-i)
		}
		names = append(names, fmt.Sprintf("pod %s/%s cannot be %s (%s)", p.Namespace, p.Name, verbs[p.Act], p.Why))
	}
	return strings.Join(names, "; ")
}

// tell says a reason once, when it becomes the node's: a line in the log, an Event, the node's state. An alert is said once more.
func (t *turn) tell(why, act string, warning bool, state, text, detail string, pods int, id, alert string) {
	if state != "" {
		if alert != "" {
			state = stateStuck
		}
		t.setState(t.st, state)
	}
	if alert != "" && t.st.alerted != alert {
		t.st.alerted = alert
		t.Log.Error("Fence needs a person", "node", t.look.Name, "fence", id, "why", alert)
		t.event(corev1.EventTypeWarning, "FenceNeedsPerson", "Alert",
			"The fence does not come to its end by itself (%s). The mark stays. To take it off: forcefence release %s --yes.", alert, t.look.Name)
	} else if alert == "" {
		t.st.alerted = ""
	}
	if t.st.said == why {
		return
	}
	if act == "Ask" { // a question between two waits for the same reason is no news
		return
	}
	t.st.said = why
	level := slog.LevelInfo
	if warning {
		level = slog.LevelWarn
	}
	if text == "" {
		level = slog.LevelDebug
	}
	if detail == "" {
		detail = t.answerDetail()
	}
	t.Log.Log(context.Background(), level, "Decided", "node", t.look.Name, "fence", id, "why", why, "act", act, "detail", detail, "suspicion", t.st.suspect)
	if text == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	t.event(kind, why, act, "%s", strings.NewReplacer("{node}", t.look.Name, "{device}", t.deviceName(), "{detail}", detail,
		"{why}", t.st.suspect, "{raw}", strconv.Quote(t.st.evict.Answer.Raw), "{pods}", strconv.Itoa(pods)).Replace(text))
}

func (t *turn) deviceName() string {
	if t.machine.Device == "" {
		return "(none)"
	}
	return t.machine.Device
}

// answerDetail is the last answer in words that may be shown.
func (t *turn) answerDetail() string {
	a := t.st.evict.Answer
	switch {
	case t.machineErr != nil:
		return t.machineErr.Error()
	case a.Got.IsZero():
		return "not asked"
	case a.Err != nil:
		return providers.Cause(a.Err)
	default:
		return fmt.Sprintf("%s (%q)", a.State, a.Raw)
	}
}

// logAnswer tells of an answer that differs from the one before.
func (t *turn) logAnswer(a providers.Answer) {
	word := a.State.String() + " " + a.Raw + " " + providers.Class(a.Err)
	if t.st.answered == word {
		return
	}
	t.st.answered = word
	id := ""
	if t.look.Record.Open() {
		id = t.look.Record.ID
	}
	args := []any{"node", t.look.Name, "fence", id, "device", t.machine.Device, "state", a.State.String(), "raw", a.Raw}
	if a.Err != nil {
		args = append(args, "error", a.Err)
	}
	t.Log.Info("Machine answered", args...)
}

// event sends an Event about the Node, unless another process leads by now: its decision would be news of what nobody does.
func (t *turn) event(kind, reason, action, format string, args ...any) {
	if t.Leading() != nil {
		return
	}
	t.Events.Eventf(t.node, nil, kind, reason, action, format, args...)
}

// untold are pods that one act ended, and what was known when it did.
type untold struct {
	at        time.Time
	pods      []evict.Pod
	id, proof string
}

// tellWithin is how long the Events of ended pods may wait for the fence's end. A hundred of them would otherwise compete at the API
// server with what they tell of: the deletions, the detaching and the replacements' start.
const tellWithin = 10 * time.Second

// tellPods sends an Event with the evidence to each pod that was ended at least that long ago and not told of yet. A process that
// ends before that has told of the fence on the Node, and leaves the pods' own Events out.
func (t *turn) tellPods(age time.Duration) {
	list := t.st.untold
	if len(list) == 0 || t.Now().Sub(list[0].at) < age {
		return
	}
	t.st.untold = nil
	if t.Leading() != nil {
		return
	}
	for _, u := range list {
		for _, p := range u.pods {
			t.Events.Eventf(reference(p), t.node, corev1.EventTypeWarning, taint.TombstoneReason, "Evict",
				"The machine of node %s is off (%s): the pod was ended so that it can run elsewhere (fence %s).",
				t.look.Name, u.proof, u.id)
		}
	}
}

// ownFinalizers are those that stock controllers take off an ended pod by themselves, moments later: the Job controller's once it has
// counted the pod, the garbage collector's once dependents are gone or orphaned.
var ownFinalizers = []string{"batch.kubernetes.io/job-tracking", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}

// tellKept sends an Event to each pod that the fence leaves behind: other people's finalizers keep it, and are never stripped, or the API
// server let nobody delete or spare it.
func (t *turn) tellKept(v evict.View, d evict.Decision) {
	id := v.Look.Record.ID
	for _, p := range v.Pods {
		theirs := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return slices.Contains(ownFinalizers, f) })
		if !p.Kept() || len(theirs) == 0 {
			continue
		}
		finalizers := strings.Join(theirs, ", ")
		t.Log.Warn("Finalizers keep an ended pod", "node", t.look.Name, "fence", id, "pod", p.Namespace+"/"+p.Name, "finalizers", finalizers)
		t.Events.Eventf(reference(p), t.node, corev1.EventTypeWarning, "FinalizersKeepPod", "Evict",
			"The pod was ended and deleted, and can never start again; its name stays taken until its finalizers are removed: %s.", finalizers)
	}
	for _, s := range d.Stuck {
		t.Log.Warn("Left a pod behind", "node", t.look.Name, "fence", id, "pod", s.Namespace+"/"+s.Name, "act", s.Act.String(), "why", s.Why.String())
		text := "The pod was ended and can never start again, but cannot be deleted (%s)."
		if s.Act == evict.Spare {
			text = "The node came back and the pod lives on, but could not be marked as spared (%s)."
		}
		t.Events.Eventf(reference(s.Pod), t.node, corev1.EventTypeWarning, "PodLeftBehind", "Evict", text, s.Why)
	}
}

func reference(p evict.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
}

func hasCondition(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == ConditionPoweredOn && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// reportPoweredOn keeps the condition of a node that does not answer while its machine is on.
func (t *turn) reportPoweredOn(ctx context.Context, on bool) error {
	if on == hasCondition(t.node) || (t.st.suspect != "" && !on) {
		return nil // while the node looks dead the condition only appears; it goes when the node is back
	}
	now := metav1.NewTime(t.Now())
	c := corev1.NodeCondition{Type: ConditionPoweredOn, Status: corev1.ConditionFalse, LastTransitionTime: now, LastHeartbeatTime: now,
		Reason: "NodeAnswers", Message: "The node answers."}
	if on {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "PoweredOnNotReady", "The node does not answer, and its machine is on: nothing is evicted."
	}
	if err := t.writer.condition(ctx, t.look, "setting condition", c); err != nil {
		return err
	}
	return errAgain // the look's resourceVersion is spent
}

// setState moves the node from one state to another in the metric of nodes by state; "" is none.
func (r *Reconciler) setState(st *nodeState, state string) {
	if st.state == state {
		return
	}
	if st.state != "" {
		r.Metrics.nodes.WithLabelValues(st.state).Dec()
	}
	if state != "" {
		r.Metrics.nodes.WithLabelValues(state).Inc()
	}
	st.state = state
}

// tellOddLease tells once of a Lease whose duration is not believed.
func (r *Reconciler) tellOddLease(node *corev1.Node, st *nodeState, v fleet.View) {
	if v.OddLease == st.oddLease {
		return
	}
	if st.oddLease = v.OddLease; !v.OddLease {
		return
	}
	r.Log.Warn("Lease names a duration out of bounds", "node", node.Name, "min", fleet.MinDuration.String(), "max", fleet.MaxDuration.String())
	if r.Leading() == nil {
		r.Events.Eventf(node, nil, corev1.EventTypeWarning, "LeaseDurationOutOfBounds", "Detect",
			"The node's Lease names a duration that is not between %s and %s: %s is taken for it (nodeLeaseDurationSeconds of its kubelet).",
			fleet.MinDuration, fleet.MaxDuration, fleet.DefaultDuration)
	}
}
