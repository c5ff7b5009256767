package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
)

// reported is what was told of a node.
type reported struct {
	said       reason.Reason // the last reason that was logged and sent as an Event
	state      reason.State  // of the last decision
	shown      reason.State  // in the metric of nodes by state
	mode       string        // for the metric of nodes by mode
	protection string        // for the metric of nodes by protection
	alerted    string        // what a person was called for
	aside      action.Aside  // why policies end nothing
	unread     string        // why claims could not be read
	answered   string        // the last answers that were logged
	later      []later       // Events of the Node that wait for the writes that they tell of
	pods       []later       // Events of pods, which wait for the fence's end
	oddLease   bool          // the Lease's duration is out of bounds
	openFence  *taint.Record // the fence that was last seen open, until its end is reported; nil if there is none
	slow       time.Time     // when it was last told that the API server is slow
}

// alert calls for a person, once for each reason. The node's state says so for as long as it stands.
func (r *Reconciler) alert(st *nodeState, d action.Decision) {
	alert := d.Alert
	if alert == string(reason.Stuck) {
		alert += ": " + stuckPods(d.Stuck)
	}
	if state := reason.Of(d.Reason).State; alert != "" && state != "" {
		r.setState(st, reason.StateStuck)
	} else {
		r.setState(st, cmp.Or(state, st.told.state))
	}
	before := st.told.alerted
	if st.told.alerted = alert; alert == "" || alert == before {
		return
	}
	l := st.course.Look()
	r.Log.Error("Fence needs a person", "node", l.Name, "fence", l.Record.IDOr(action.RecordOf(d.Action).ID), "why", alert)
	r.event(st.node, reason.NeedsPerson, "Alert", "{node}", l.Name, "{detail}", alert)
}

// tell says a reason once, when it becomes the node's: a line in the log, an Event. What a step did it tells with it.
func (r *Reconciler) tell(st *nodeState, d action.Decision) {
	l, row := st.course.Look(), reason.Of(d.Reason)
	id := cmp.Or(action.RecordOf(d.Action).ID, l.Record.IDOr(""))
	switch {
	case action.Is[action.Arm](d):
		r.Log.Info("Marked node", "node", l.Name, "fence", id, "device", action.RecordOf(d.Action).Device)
	case action.Is[action.Unmark](d):
		r.Metrics.phase("evict", r.now().Sub(st.course.Began()))
		r.Log.Info("Removed mark", "node", l.Name, "fence", id, "result", action.RecordOf(d.Action).Result)
		r.tellKept(st, d)
		r.flush(&st.told.pods, true)
	case action.Is[action.Leave](d) && l.Mark == nil:
		r.flush(&st.told.pods, true) // somebody else took the mark off
	}
	if settled(st, d) {
		r.flush(&st.told.later, true)
	}
	if action.RecordOf(d.Action).Phase == taint.PhaseDone && writes(d.Action) && (l.Record.Open() || d.Reason == reason.NeverOff) { // not what is added to one that ended before
		r.Metrics.fences.WithLabelValues(string(action.RecordOf(d.Action).Result)).Inc()
	}
	r.tellWould(st, d)
	if st.told.said == d.Reason || action.Is[action.Ask](d) { // a question between two waits for the same reason is no news
		return
	}
	st.told.said = d.Reason
	level := map[reason.Severity]slog.Level{reason.Debug: slog.LevelDebug, reason.Info: slog.LevelInfo, reason.Warning: slog.LevelWarn}[row.Severity]
	r.Log.Log(context.Background(), level, "Decided", "node", l.Name, "fence", id, "why", string(d.Reason), "act", action.Name(d.Action), "detail", cmp.Or(d.Detail, st.course.Said()), "suspicion", st.suspect)
	if !r.refused(d) {
		return
	}
	r.soon(st, d, d.Reason, action.Name(d.Action), st.course.Words(d, st.suspect)...)
	if d.Reason == reason.Confirmed || d.Reason == reason.Vouched {
		r.tellNoHook(st, d, id)
	}
}

// tellAside reports once why policies end nothing that they would end otherwise. If it is the same for many nodes, only
// the first has the Event.
func (r *Reconciler) tellAside(st *nodeState, d action.Decision) {
	a, before := d.Aside, st.told.aside
	st.told.aside = a
	same := a.Once != "" && a.Why == before.Why && a.Once == before.Once // though a count in Detail differs
	if a == before || a.Why == "" || same {
		return
	}
	r.Log.Warn("Policy skipped", "node", st.node.Name, "reason", string(a.Why), "why", a.Detail)
	if a.Once == "" || r.firstToTell(a.Why, a.Once) {
		r.event(st.node, a.Why, "Evict", "{detail}", a.Detail)
	}
}

// tellUnread logs once why claims of the node's pods cannot be read: their pods keep all entries of the volume lists.
func (r *Reconciler) tellUnread(st *nodeState, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	before := st.told.unread
	if st.told.unread = text; err == nil || text == before {
		return
	}
	r.Log.Warn("Cannot read volume claims: all entries of the volume lists stay", "node", st.node.Name, "error", err)
}

// later is an Event, or several, that wait.
type later struct {
	at   time.Time
	send func()
}

// tellWithin is how long Events may wait for the pod writes that are under way, on any node (F37). Those of ended pods wait for the fence's end,
// too: a hundred of them would otherwise compete at the API server with what they tell of, the deletions, the detaching and the
// replacements' start. A process that ends before that has told of the fence on the Node, and leaves the pods' own Events out.
const tellWithin = 10 * time.Second

// soon sends an Event of the Node at once, or once the writes that it tells of are done.
func (r *Reconciler) soon(st *nodeState, d action.Decision, why reason.Reason, action string, words ...string) {
	node := st.node
	st.told.later = append(st.told.later, later{r.Now(), func() { r.event(node, why, action, words...) }})
	if settled(st, d) {
		r.flush(&st.told.later, true)
	}
}

// settled reports that the step is not one of those that write pods one after the other.
func settled(st *nodeState, d action.Decision) bool {
	return st.course.Look().Mark == nil || action.Is[action.Wait](d) || action.Is[action.Leave](d) || action.Is[action.Unmark](d)
}

// flush sends the Events of a list in their order: those of a node that is settled if no pods are being written, others once they are old.
func (r *Reconciler) flush(list *[]later, settled bool) {
	if len(*list) == 0 || r.Now().Sub((*list)[0].at) < tellWithin && (!settled || r.batches.Load() > 0) {
		return
	}
	r.send(list)
}

func (r *Reconciler) send(list *[]later) {
	all := *list
	*list = nil
	for _, e := range all {
		e.send()
	}
}

// tellRest leaves what waits for pod writes on other nodes to whoever ends these, so that nobody comes to a node, and looks at it, for that.
// It returns when to come again for what a fence still has to tell; 0 is never.
func (r *Reconciler) tellRest(st *nodeState) time.Duration {
	waits := len(st.told.later)+len(st.told.pods) > 0
	switch {
	case !waits:
		return 0
	case st.course.Look().Mark != nil:
		return time.Second
	}
	r.mu.Lock()
	r.rest = slices.Concat(r.rest, st.told.later, st.told.pods)
	r.mu.Unlock()
	st.told.later, st.told.pods = nil, nil
	r.tellOthers()
	return 0
}

// tellOthers sends what tellRest left: if no pods are being written, or it is old. Each run of pod writes does, at its end, and tellLate meanwhile.
func (r *Reconciler) tellOthers() {
	busy := r.batches.Load() > 0
	r.mu.Lock()
	var now, wait []later
	for _, e := range r.rest {
		if busy && r.Now().Sub(e.at) < tellWithin {
			wait = append(wait, e)
		} else {
			now = append(now, e)
		}
	}
	r.rest = wait
	r.mu.Unlock()
	r.send(&now)
}

// tellNoHook warns, when an eviction begins, that nothing on the node would hold its pods if its machine came up now.
func (r *Reconciler) tellNoHook(st *nodeState, d action.Decision, id string) {
	status, why := taint.ProtectionOf(st.node)
	if status == corev1.ConditionTrue {
		return
	}
	r.Log.Warn("Evicting a node without a hook", "node", st.node.Name, "fence", id, "protection", protectionWord(status, why))
	r.soon(st, d, reason.NoHook, "Evict")
}

// slowRead is how long the reads of a look may take before it is told.
const slowRead = 2 * time.Second

// reads tells at most every ten seconds of an API server that is slow: a fence that gets nowhere for that says what it waits for.
func (r *Reconciler) reads(st *nodeState) {
	took := st.course.Reads()
	if now := r.Now(); took > slowRead && now.Sub(st.told.slow) > 10*time.Second {
		st.told.slow = now
		l := st.course.Look()
		r.Log.Warn("Recovery waits: the API server answers slowly", "node", l.Name, "fence", l.Record.IDOr(""),
			"took", took.Round(time.Millisecond).String())
	}
}

// logAnswers tells of answers that differ from those before.
func (r *Reconciler) logAnswers(st *nodeState, all []providers.Answer) {
	word := ""
	for _, a := range all {
		word += a.State.String() + " " + a.Raw + " " + providers.Class(a.Err) + "\n"
	}
	if st.told.answered == word {
		return
	}
	st.told.answered = word
	for i, d := range st.machine.Devices() {
		r.logAnswer(st, d, all[i])
	}
}

func (r *Reconciler) logAnswer(st *nodeState, by machine.Machine, a providers.Answer) {
	l := st.course.Look()
	id := ""
	if l.Record.Open() {
		id = l.Record.ID
	}
	args := []any{"node", l.Name, "fence", id, "device", by.Device, "state", a.State.String(), "raw", a.Raw}
	if a.Err != nil {
		args = append(args, "error", a.Err)
	}
	r.Log.Info("Machine answered", args...)
}

// event sends a reason's Event about the Node, with the words in its braces replaced, if it has a text.
func (r *Reconciler) event(node *corev1.Node, why reason.Reason, action string, words ...string) {
	r.eventOn(node, nil, why, action, words...)
}

// eventOn sends the Event about an object, unless another process leads by now: its decision would be news of what nobody does.
func (r *Reconciler) eventOn(about, related runtime.Object, why reason.Reason, action string, words ...string) {
	row := reason.Of(why)
	if row.Text == "" || r.Leading() != nil {
		return
	}
	kind := corev1.EventTypeNormal
	if row.Severity == reason.Warning {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(about, related, kind, string(why), action, "%s", row.Note(words...))
}

// reportPowerOffs reports once, when a fence has ended, which devices accepted a power-off of it. It does not matter
// who ended the fence: a device that is off stays off. It reports only fences that this process saw open, so that a new
// leader does not repeat it.
func (r *Reconciler) reportPowerOffs(node *corev1.Node, st *nodeState, rec *taint.Record) {
	before := st.told.openFence
	st.told.openFence = nil
	if rec.Open() {
		st.told.openFence = rec
	}
	switch {
	case before == nil:
	case rec != nil && before.Token() == rec.Token():
		if !rec.Open() {
			r.eventPowerOffs(node, rec, string(rec.Result))
		}
	case !rec.Open() || len(rec.PowerOffTo) == 0:
		// Otherwise a fence by a person's mark took its place, and names the devices at its own end.
		r.eventPowerOffs(node, before, journal.ResultUnknown)
	}
}

// eventPowerOffs sends the Event that names the record's powered-off devices, if there are any.
func (r *Reconciler) eventPowerOffs(node *corev1.Node, rec *taint.Record, result string) {
	var names []string
	for _, d := range rec.PowerOffTo {
		names = append(names, providers.Text(errors.New(d.Device))) // the Node's kubelet can write it
	}
	if len(names) == 0 {
		return
	}
	detail := strings.Join(names, ", ")
	r.Log.Warn("Devices accepted a power-off", "node", node.Name, "fence", rec.ID, "result", result, "devices", detail)
	r.event(node, reason.PoweredOff, "PowerOff", "{fence}", rec.ID, "{why}", result, "{detail}", detail)
}

// stuckNames is how many stuck pods an Event names.
const stuckNames = 3

// stuckPods names pods and what could not be done with them.
func stuckPods(pods []action.StuckPod) string {
	verbs := map[action.PodWrite]string{action.Ends: "ended", action.Deletes: "deleted", action.Spares: "spared",
		action.SetsNotReady: "set not ready"}
	var names []string
	for i, p := range pods {
		if i == stuckNames {
			return strings.Join(names, "; ") + fmt.Sprintf("; and %d more", len(pods)-i)
		}
		names = append(names, fmt.Sprintf("pod %s/%s cannot be %s (%s)", p.Namespace, p.Name, verbs[p.Write], p.Why))
	}
	return strings.Join(names, "; ")
}

// tellWritten tells how a batch of pods' writes ended.
func (r *Reconciler) tellWritten(st *nodeState, a action.Action, pods []action.Pod) {
	l := st.course.Look()
	if !action.OfPolicy(a) {
		r.chroniclePods(st, a, pods)
	}
	args := []any{"node", l.Name, "fence", l.Record.IDOr(""), "pods", len(pods)}
	switch a.(type) {
	case action.Spare:
		r.Log.Info("Spared pods", args...)
	case action.Delete:
		r.Log.Info("Deleted pods", args...)
	case action.SetNotReady:
		r.Log.Info("Set pods not ready", args...)
	default:
		if action.PolicyOf(a) != "" {
			r.Log.Warn("Ended pods without proof", append(args, "policy", action.PolicyOf(a))...)
			for _, p := range pods {
				r.eventOn(reference(p), st.node, reason.PolicyEnded, "Evict", "{node}", l.Name, "{detail}", action.PolicyOf(a))
			}
			return
		}
		r.Log.Info("Ended pods", args...)
		node, id, proof := st.node, l.Record.ID, st.course.Said()
		st.told.pods = append(st.told.pods, later{r.Now(), func() {
			for _, p := range pods {
				r.eventOn(reference(p), node, reason.Fenced, "Evict", "{node}", node.Name, "{detail}", proof, "{fence}", id)
			}
		}})
	}
}

// ownFinalizers are those that stock controllers take off an ended pod by themselves, moments later: the Job controller's once it has
// counted the pod, the garbage collector's once dependents are gone or orphaned.
var ownFinalizers = []string{"batch.kubernetes.io/job-tracking", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}

// tellKept tells each pod that the fence leaves behind: other people's finalizers keep it, and are never stripped, or the API
// server let nobody delete or spare it.
func (r *Reconciler) tellKept(st *nodeState, d action.Decision) {
	l := st.course.Look()
	kept, _ := d.Action.(action.Unmark)
	for _, p := range kept.Kept {
		theirs := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return slices.Contains(ownFinalizers, f) })
		if len(theirs) == 0 {
			continue
		}
		finalizers := strings.Join(theirs, ", ")
		r.Log.Warn("Finalizers keep an ended pod", "node", l.Name, "fence", action.RecordOf(d.Action).ID, "pod", p.Namespace+"/"+p.Name, "finalizers", finalizers)
		r.tellPod(st, p, reason.FinalizersKeep, finalizers)
	}
	for _, p := range d.Stuck {
		r.Log.Warn("Left a pod behind", "node", l.Name, "fence", action.RecordOf(d.Action).ID, "pod", p.Namespace+"/"+p.Name, "act", p.Write.String(), "why", p.Why.String())
		text := "The pod was ended and can never start again, but cannot be deleted (%s)."
		switch p.Write {
		case action.Spares:
			text = "The node came back and the pod keeps running, but it could not be marked as spared (%s)."
		case action.SetsNotReady:
			text = "The node's machine is off, but the pod could not be set not ready (%s)."
		}
		r.tellPod(st, p.Pod, reason.LeftBehind, fmt.Sprintf(text, p.Why))
	}
}

// tellPod sends an Event to a pod after those that wait.
func (r *Reconciler) tellPod(st *nodeState, p action.Pod, why reason.Reason, detail string) {
	node := st.node
	st.told.pods = append(st.told.pods, later{r.Now(), func() { r.eventOn(reference(p), node, why, "Evict", "{detail}", detail) }})
}

func reference(p action.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
}

// setState moves the node from one state to another in the metric of nodes by state; "" is none. A node whose steps
// fail is shown as stuck until one succeeds.
func (r *Reconciler) setState(st *nodeState, state reason.State) {
	st.told.state = state
	if st.failing.stuck {
		state = reason.StateStuck
	}
	if st.told.shown == state {
		return
	}
	if st.told.shown != "" {
		r.Metrics.nodes.WithLabelValues(string(st.told.shown)).Dec()
	}
	if state != "" {
		r.Metrics.nodes.WithLabelValues(string(state)).Inc()
	}
	st.told.shown = state
}

// stuckAfter is how long a node's steps must have failed before an Event reports it.
const stuckAfter = time.Minute

// failing is what this process knows of a node's steps that fail. The zero value: the last one succeeded.
type failing struct {
	since time.Time // of the first failure of an unbroken row; zero: none, or the API server was away since
	stuck bool      // it was reported, and no step has succeeded since
}

// stepFailed reports once that the node's recovery fails for longer than stuckAfter. An outage is not the node's: where
// the API server gives no answer to the live look, or has no room, the time begins again.
func (r *Reconciler) stepFailed(ctx context.Context, st *nodeState, d action.Decision, err error) {
	look := action.Is[action.ReadNode](d)
	now := r.Now()
	switch {
	case ctx.Err() != nil, errors.Is(err, kube.ErrAgain), errors.Is(err, kube.ErrLate), r.Leading() != nil:
		return // the node is looked at again, or this process ends
	case !kube.Refuses(err) && (look || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown):
		st.failing.since = time.Time{}
		return
	case st.failing.since.IsZero():
		st.failing.since = now
	}
	if st.failing.stuck || now.Sub(st.failing.since) < stuckAfter {
		return
	}
	st.failing.stuck = true
	r.setState(st, st.told.state)
	name := st.course.Name
	r.Log.Error("A recovery step fails again and again", "node", name, "fence", st.course.Look().Record.IDOr(""),
		"act", action.Name(d.Action), "since", st.failing.since, "error", err)
	node := cmp.Or(st.node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	r.event(node, reason.Failing, "Alert", "{detail}", providers.Text(err))
}

// stepSucceeded ends what stepFailed counts.
func (r *Reconciler) stepSucceeded(st *nodeState) {
	stuck := st.failing.stuck
	st.failing = failing{}
	if stuck {
		r.Log.Info("Recovery continues", "node", st.course.Name)
		r.setState(st, st.told.state)
	}
}

// tellOddLease tells once of a Lease whose duration is not believed.
func (r *Reconciler) tellOddLease(node *corev1.Node, st *nodeState, v fleet.View) {
	if v.OddLease == st.told.oddLease {
		return
	}
	if st.told.oddLease = v.OddLease; !v.OddLease {
		return
	}
	r.Log.Warn("Lease names a duration out of bounds", "node", node.Name, "min", fleet.MinDuration.String(), "max", fleet.MaxDuration.String())
	r.event(node, reason.OddLease, "Detect", "{min}", fleet.MinDuration.String(), "{max}", fleet.MaxDuration.String(), "{default}", fleet.DefaultDuration.String())
}
