package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// decisions reports what was decided, and why.
type decisions struct {
	*subject
	states *states
	fences *fences

	reason reason.Reason      // the last one that was logged and sent as an Event
	alert  string             // why a person is needed now
	sent   string             // what the last Event about that said; it does not name the attachments
	aside  action.PolicyBlock // why policies end nothing
	unread string             // why claims could not be read
	slow   time.Time          // when slow reads were last reported
}

// resetReported forgets what was reported of a node that is healthy again.
func (n *decisions) resetReported() {
	n.reason, n.alert, n.sent, n.aside = "", "", "", action.PolicyBlock{}
}

// reportStep reports a step's decision, and what the step shows of the node.
func (n *decisions) reportStep(s decide.StepDone) {
	d := s.Decision
	n.reportSlowReads()
	waiting := n.reportAlert(d)
	if s.Look.Record != nil {
		n.reportFence(journal.Update{Record: *s.Look.Record, Alert: &n.alert, Waiting: waiting, OnlyRead: true})
	}
	n.fences.reportPowerOffs(n.node, s.Look.Record)
	n.reportNotes(d.Notes)
	if s.Err() == nil || !writesRecord(d.Action) { // after a conflict the fence was never recorded
		n.reportDecision(d)
	}
}

// writesRecord reports whether an action is one write of the Node that is worth a report.
func writesRecord(a action.Action) bool {
	switch a.(type) {
	case action.WriteRecord, action.AnnouncePolicy, action.SetMark, action.RemoveMark, action.WithdrawOrders:
		return true
	}
	return false
}

// reportAlert alerts a person, once for each reason. The node's state shows the alert as long as it lasts. The alert
// names the attachments that the fence waits for, and their number shrinks: that alone is no further Event. It returns
// these attachments.
func (n *decisions) reportAlert(d action.Decision) (waiting []api.Attachment) {
	alert := d.Alert
	switch {
	case alert == string(reason.Stuck):
		alert += ": " + stuckPods(d.Stuck)
	case alert != "" && d.AlertDetail != "":
		alert += ": " + d.AlertDetail
	}
	about, first := alert, "forcefence timeline "+n.name
	if d.Alert == string(reason.WaitingDetach) {
		refused := n.refusedDetach()
		about += refused
		if left := n.waiting(); len(left) > 0 {
			alert += ": " + describeAttachments(left)
			waiting = toAPIAttachments(left)
			first = cmp.Or(waiting[0].LookCommand(), first)
		}
		alert += refused
	}
	n.noteHeldBack(n.name, d)
	if state := reason.RowOf(d.Reason).State; alert != "" && state != "" {
		n.states.setState(reason.StateStuck)
	} else {
		n.states.setState(cmp.Or(state, n.states.state))
	}
	before := n.sent
	if n.alert, n.sent = alert, about; about == "" || about == before {
		return waiting
	}
	id := n.course.Look().Record.IDOr(action.RecordOf(d.Action).ID)
	n.Log.Error("Fence needs a person", "node", n.name, "fence", id, "why", alert)
	n.sendEvent(n.at, n.node, nil, reason.NeedsPerson, "Alert", "{node}", n.name, "{detail}", alert, "{first}", first)
	return waiting
}

// waiting returns the attachments that the fence waits for, by name.
func (n *decisions) waiting() []action.Attachment {
	leaving, _, _ := n.course.Attachments()
	return slices.SortedFunc(slices.Values(leaving), func(a, b action.Attachment) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// refusedDetach returns why the proof guard refuses to detach volumes that the fence waits for; "" if it is not certain
// that it does. The attach/detach controller, which is refused, says so in its log alone. Whether the guard runs is not
// known here.
func (n *decisions) refusedDetach() string {
	if n.node == nil || n.RefusedDetach == nil {
		return ""
	}
	leaving, _, _ := n.course.Attachments()
	for _, a := range leaving {
		if a.Deleting {
			continue
		}
		if why := n.RefusedDetach(n.node, a.Attacher, n.course.Look().LeaseRV); why != nil {
			return fmt.Sprintf("; where the proof guard runs, it refuses to detach those in use (%v)", why)
		}
	}
	return ""
}

// reportDecision reports a reason once, when it becomes the node's, and with it what the step did.
func (n *decisions) reportDecision(d action.Decision) {
	l, rec := n.course.Look(), action.RecordOf(d.Action)
	id := cmp.Or(rec.ID, l.Record.IDOr(""))
	switch d.Action.(type) {
	case action.SetMark:
		n.Log.Info("Marked node", "node", n.name, "fence", id, "device", rec.Device)
	case action.RemoveMark:
		n.Metrics.observePhase("evict", n.Now.Instant().Sub(n.course.FenceBegan()))
		n.Log.Info("Removed mark", "node", n.name, "fence", id, "result", rec.Result)
		n.reportKept(d)
	}
	// What is added to a fence that ended before does not count as another fence.
	ends := rec.Phase == taint.PhaseDone && writesRecord(d.Action)
	if ends && (l.Record.IsOpen() || d.Reason == reason.NeverOff) {
		n.Metrics.fences.WithLabelValues(string(rec.Result)).Inc()
	}
	n.reportShadow(d)
	// A question between two waits for the same reason is no news.
	if n.reason != d.Reason && !action.Is[action.AskDevices](d) {
		n.reportReason(d, id)
	}
	switch d.Action.(type) {
	case action.RemoveMark:
		n.queue.releaseEvents(n.name, true)
	case action.Wait, action.NoAction:
		n.queue.releaseEvents(n.name, l.Mark == nil)
	default:
		if l.Mark == nil {
			n.queue.releaseEvents(n.name, true)
		}
	}
}

// levels are the log levels of the severities.
var levels = map[reason.Severity]slog.Level{
	reason.Debug: slog.LevelDebug, reason.Info: slog.LevelInfo, reason.Warning: slog.LevelWarn,
}

// reportReason reports a reason that is new. A refusal of the power-off limits that is the same for many nodes has one
// Event.
func (n *decisions) reportReason(d action.Decision, id string) {
	n.reason = d.Reason
	n.Log.Log(context.Background(), levels[reason.RowOf(d.Reason).Severity], "Decided", "node", n.name, "fence", id,
		"why", string(d.Reason), "act", action.Name(d.Action), "detail", cmp.Or(d.Detail, n.course.LastAnswerText()),
		"suspicion", n.suspicion)
	if slices.Contains(reason.LimitReasons, d.Reason) {
		n.Metrics.refusals.WithLabelValues(string(d.Reason)).Inc()
		if d.ReportOnceKey != "" && !n.isFirst(d.Reason, d.ReportOnceKey) {
			return
		}
	}
	n.queueEvent(d.Reason, action.Name(d.Action), n.course.NoteFields(d, n.suspicion)...)
	if d.Reason == reason.SharedMachine && d.Detail != "" {
		n.sendEvent(n.at, nodeRef(d.Detail), n.node, reason.MachineOfSilent, action.Name(d.Action), "{detail}", n.name)
	}
	if d.Reason == reason.Confirmed || d.Reason == reason.Vouched {
		n.reportNoHook(id)
	}
}

// reportNoHook warns, when an eviction begins, that nothing on the node would hold its pods if its machine came up now.
func (n *decisions) reportNoHook(id string) {
	status, why := taint.ProtectionOf(n.node)
	if status == corev1.ConditionTrue && why != taint.ProtectionNotAtBoot {
		return
	}
	n.Log.Warn("Evicting a node without a hook that holds pods at a boot",
		"node", n.name, "fence", id, "protection", protectionLabel(status, why))
	n.queueEvent(reason.NoHook, "Evict")
}

// reportShadow counts what would have been done, and lists the pods that would have moved.
func (n *decisions) reportShadow(d action.Decision) {
	if d.Would.Action == nil {
		return
	}
	would := shadowed[action.Name(d.Would.Action)]
	n.Metrics.shadowed.WithLabelValues(would).Inc()
	pods := make([]string, len(d.Would.Pods))
	for i, p := range d.Would.Pods {
		pods[i] = p.Namespace + "/" + p.Name
	}
	n.reportFence(journal.Update{Record: action.RecordOf(d.Would.Action), Shadow: true, Would: toAPIPods(d.Would.Pods)})
	n.Log.Warn("Shadow decision", "node", n.name, "decision", would, "device", n.course.DeviceNames(),
		"suspicion", n.suspicion, "evidence", d.Detail, "bootID", n.course.Look().BootID, "pods", pods)
}

// reportAside reports once why policies end nothing that they would end otherwise. If it is the same for many nodes,
// only the first has the Event.
func (n *decisions) reportAside(a action.PolicyBlock) {
	before := n.aside
	n.aside = a
	// A count in Detail may differ.
	same := a.ReportOnceKey != "" && a.Why == before.Why && a.ReportOnceKey == before.ReportOnceKey
	if a == before || a.Why == "" || same {
		return
	}
	n.Log.Warn("Policy skipped", "node", n.name, "reason", string(a.Why), "why", a.Detail)
	if a.ReportOnceKey == "" || n.isFirst(a.Why, a.ReportOnceKey) {
		n.sendEvent(n.at, n.node, nil, a.Why, "Evict", "{detail}", a.Detail)
	}
}

// reportNotes reports what policies leave undone.
func (n *decisions) reportNotes(notes []action.Note) {
	for _, note := range notes {
		if note.Why == reason.PolicyTimedOut {
			n.Log.Error("Policy gave up", "node", n.name, "detail", note.Detail)
		} else {
			n.Log.Info("Policy leaves pods alone", "node", n.name, "why", string(note.Why), "detail", note.Detail)
		}
		n.sendEvent(n.at, n.node, nil, note.Why, "Evict", "{node}", n.name, "{detail}", note.Detail)
	}
}

// reportUnreadClaims logs once why claims of the node's pods cannot be read: their pods keep all entries of the volume
// lists.
func (n *decisions) reportUnreadClaims(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	before := n.unread
	if n.unread = text; err == nil || text == before {
		return
	}
	n.Log.Warn("Cannot read volume claims: all entries of the volume lists stay", "node", n.name, "error", err)
}

const (
	slowRead  = 2 * time.Second  // how long the reads of a look may take before it is reported
	slowAgain = 10 * time.Second // between two reports of that
)

// reportSlowReads reports a slow API server: a fence that makes no progress for that reason then says what it waits
// for.
func (n *decisions) reportSlowReads() {
	duration := n.course.ReadDuration()
	if now := n.Now(); duration > slowRead && now.Sub(n.slow) > slowAgain {
		n.slow = now
		n.Log.Warn("Recovery waits: the API server answers slowly", "node", n.name,
			"fence", n.course.Look().Record.IDOr(""), "took", duration.Round(time.Millisecond).String())
	}
}

// stuckNames is how many stuck pods an Event names.
const stuckNames = 3

// stuckPods names pods and what could not be done with them.
func stuckPods(pods []action.StuckPod) string {
	verbs := map[action.PodWrite]string{
		action.WritesEnd: "ended", action.WritesDelete: "deleted", action.WritesSpare: "spared",
		action.WritesNotReady: "set not ready",
	}
	var names []string
	for i, p := range pods {
		if i == stuckNames {
			return strings.Join(names, "; ") + fmt.Sprintf("; and %d more", len(pods)-i)
		}
		names = append(names, fmt.Sprintf("pod %s/%s cannot be %s (%s)", p.Namespace, p.Name, verbs[p.Write], p.Why))
	}
	return strings.Join(names, "; ")
}

// leftBehind holds the text about a pod that a fence leaves behind, by what could not be done with it.
var leftBehind = map[action.PodWrite]string{
	action.WritesSpare:    "The node came back and the pod keeps running, but it could not be marked as spared (%s).",
	action.WritesNotReady: "The node's machine is off, but the pod could not be set not ready (%s).",
}

// reportKept reports each pod that the fence leaves behind. Finalizers of other controllers keep it, and are never
// removed, or the API server refused to delete or spare it.
func (n *decisions) reportKept(d action.Decision) {
	log := n.Log.With("node", n.name, "fence", action.RecordOf(d.Action).ID)
	kept, _ := d.Action.(action.RemoveMark)
	for _, p := range kept.HeldPods {
		theirs := p.KeepingFinalizers()
		if len(theirs) == 0 {
			continue
		}
		finalizers := strings.Join(theirs, ", ")
		log.Warn("Finalizers keep an ended pod", "pod", p.Namespace+"/"+p.Name, "finalizers", finalizers)
		n.queuePodEvents([]action.Pod{p}, reason.FinalizersKeep, "{detail}", finalizers)
	}
	if left := describeAttachments(kept.LeftAttachments); left != "" {
		log.Warn("Left attachments of volumes that no pod of the fence used", "attachments", left)
		n.queueEvent(reason.AttachmentLeft, action.Name(d.Action), "{detail}",
			"These attachments stay, and no pod of this fence used their volumes: "+left+".")
	}
	for _, p := range d.Stuck {
		log.Warn("Left a pod behind", "pod", p.Namespace+"/"+p.Name, "act", p.Write.String(), "why", p.Why.String())
		text := leftBehind[p.Write]
		if text == "" {
			text = "The pod was ended and can never start again, but cannot be deleted (%s)."
		}
		n.queuePodEvents([]action.Pod{p.Pod}, reason.LeftBehind, "{detail}", fmt.Sprintf(text, p.Why))
	}
}

// describeAttachments names attachments with their volumes and drivers.
func describeAttachments(attachments []action.Attachment) string {
	const most = 5
	var names []string
	for _, a := range attachments {
		names = append(names, fmt.Sprintf("%s (volume %s, driver %s)", a.Name, cmp.Or(a.PV, "of a pod"), a.Attacher))
	}
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// protectionLabel returns the label of the metric forcefence_node_protection for the protection that a Node's hook
// reports.
func protectionLabel(status corev1.ConditionStatus, why string) string {
	switch {
	case status == corev1.ConditionTrue && why == taint.ProtectionFailClosed:
		return "fail-closed"
	case status == corev1.ConditionTrue && why == taint.ProtectionFailOpen:
		return "fail-open"
	case status == corev1.ConditionTrue && why == taint.ProtectionNotAtBoot:
		return "not-at-boot"
	case status == corev1.ConditionFalse && why == taint.ProtectionNone:
		return "none"
	default:
		return "unknown"
	}
}
