package observe

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// fences reports a node's fences, for Fencing objects.
type fences struct {
	*subject

	open  *taint.Record // the fence that was last seen open, until its end is reported; nil: there is none
	asked *api.Step     // the last question before a fence; nil: there was none
}

// steps are the actions that are steps in Fencing objects, under the same names.
var steps = []string{
	api.StepSetMark, api.StepRemoveMark, api.StepPowerOff, api.StepPowerOn, api.StepEndPods, api.StepClearVolumes,
	api.StepDeletePods, api.StepSparePods, api.StepSetPodsNotReady, api.StepDeleteAttachments,
}

// reportAction reports what an action did to a fence, and when it began and ended. A policy's action does nothing to
// one.
func (n *fences) reportAction(s decide.StepDone, o decide.ActionDone) {
	a, rec := s.Decision.Action, s.Look.Record
	if action.IsByPolicy(a) {
		return
	}
	t := journal.Update{Step: stepOf(s, o)}
	if written := action.RecordOf(a); o.Err == nil && written.ID != "" {
		written.Proof = o.Proof
		rec = &written // the fence may begin with it, or end
	} else if t.Step == nil || !rec.IsOpen() {
		return
	}
	t.Record = *rec
	switch a := a.(type) {
	case action.SetMark:
		if n.asked != nil {
			n.reportFence(journal.Update{Record: *rec, Step: n.asked})
		}
	case action.EndPods:
		t.Ended = toAPIPods(madePods(a, o.Writes))
	case action.DeletePods: // those with a tombstone were reported when they got it
		t.Ended = toAPIPods(slices.DeleteFunc(madePods(a, o.Writes),
			func(p action.Pod) bool { return !p.HasUnfinishedDeletion() }))
	case action.SparePods:
		t.Spared = toAPIPods(madePods(a, o.Writes))
	case action.RemoveMark:
		if o.Err == nil {
			t.Left, t.Spared = toAPIPods(a.HeldPods), toAPIPods(a.Spared)
			for _, p := range s.Decision.Stuck {
				t.Left = append(t.Left, toAPIPods([]action.Pod{p.Pod})...)
			}
		}
	}
	n.reportFence(t)
}

// stepOf returns an action's step in a Fencing; nil: it has none.
func stepOf(s decide.StepDone, o decide.ActionDone) *api.Step {
	name := action.Name(s.Decision.Action)
	if !slices.Contains(steps, name) {
		return nil
	}
	step := api.Step{Step: name, Error: failureClass(o), Objects: int32(len(o.Writes.Made))}
	if clear, is := s.Decision.Action.(action.ClearVolumes); is && o.Err == nil {
		step.Objects = int32(len(s.Look.InUse) - len(clear.InUse) + len(s.Look.Attached) - len(clear.Attached))
	}
	return withTimes(step, s.Began.Wall, s.Ended.Wall)
}

// questionOf returns when the devices were asked, and answered; nil: none answered.
func questionOf(all []providers.Answer) *api.Step {
	var began, ended time.Time
	for _, a := range all {
		if a.Got.IsZero() { // the other answers decided before it answered
			continue
		}
		if began.IsZero() || a.At.Wall.Before(began) {
			began = a.At.Wall
		}
		if a.Got.Wall.After(ended) {
			ended = a.Got.Wall
		}
	}
	if ended.IsZero() {
		return nil
	}
	return withTimes(api.Step{Step: api.StepAskDevices}, began, ended)
}

// reportQuestion reports a question of the open fence.
func (n *fences) reportQuestion(asked *api.Step) {
	if rec := n.course.Look().Record; rec.IsOpen() && asked != nil {
		n.reportFence(journal.Update{Record: *rec, Step: asked})
	}
}

func withTimes(s api.Step, began, ended time.Time) *api.Step {
	s.Began, s.Ended = metav1.NewMicroTime(began), metav1.NewMicroTime(ended)
	return &s
}

// failureClass returns the class of what failed in an action; "": nothing did.
func failureClass(o decide.ActionDone) string {
	err := cmp.Or(o.Err, o.Writes.FirstErr)
	switch {
	case err == nil:
		return ""
	case len(o.Power) > 0:
		return providers.ErrorClass(err)
	case errors.Is(err, kube.ErrAgain):
		return "conflict"
	default:
		return cmp.Or(string(apierrors.ReasonForError(err)), "no answer")
	}
}

// reportEndedBefore reports the listed pods that an earlier process ended.
func (n *fences) reportEndedBefore(pods []action.Pod) {
	l := n.course.Look()
	if l.Mark == nil || !l.Record.IsOpen() || l.Record.Phase != taint.PhaseEvicting {
		return
	}
	var ended []action.Pod
	for _, p := range pods {
		if p.Tombstone && p.Message == taint.FenceMessage(l.Record.ID) {
			ended = append(ended, p)
		}
	}
	if len(ended) > 0 {
		n.reportFence(journal.Update{Record: *l.Record, Ended: toAPIPods(ended)})
	}
}

// reportAttached reports the volumes that are attached to a marked node. Which of them stay is known for certain once
// the volumes of the pods that stay are read, so each of these reads is followed by a report.
func (n *fences) reportAttached() {
	l := n.course.Look()
	leaving, staying, listed := n.course.Attachments()
	if l.Mark == nil || !l.Record.IsOpen() || !listed {
		return
	}
	names := volumeNames(leaving)
	n.reportFence(journal.Update{Record: *l.Record, Attached: &names, Staying: volumeNames(staying)})
}

// toAPIAttachments converts attachments to what a Fencing says of them.
func toAPIAttachments(attachments []action.Attachment) (out []api.Attachment) {
	for _, a := range attachments {
		out = append(out, api.Attachment{Name: a.Name, Volume: a.PV, Driver: a.Attacher})
	}
	return out
}

// volumeNames returns the PersistentVolumes of attachments; for an inline volume the VolumeAttachment.
func volumeNames(attachments []action.Attachment) []string {
	names := []string{}
	for _, a := range attachments {
		names = append(names, cmp.Or(a.PV, a.Name))
	}
	return names
}

// toAPIPods converts pods to their names in a Fencing.
func toAPIPods(pods []action.Pod) (out []api.Pod) {
	for _, p := range pods {
		out = append(out, api.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
	}
	return out
}

// reportPowerOffs reports once, when a fence has ended, which devices accepted a power-off of it. It does not matter
// who ended the fence: a device that is off stays off. It reports only fences that this process saw open, so a new
// leader does not repeat it.
func (n *fences) reportPowerOffs(node *corev1.Node, rec *taint.Record) {
	before := n.open
	n.open = nil
	if rec.IsOpen() {
		n.open = rec
	}
	switch {
	case before == nil:
	case rec != nil && before.Token() == rec.Token():
		if !rec.IsOpen() {
			n.sendPowerOffs(node, rec, string(rec.Result))
		}
	case !rec.IsOpen() || len(rec.PowerOffTo) == 0:
		// Otherwise a fence by a person's mark took its place, and names the devices at its own end.
		n.sendPowerOffs(node, before, journal.ResultUnknown)
	}
}

// sendPowerOffs sends the Event that names the record's powered-off devices, if there are any.
func (n *fences) sendPowerOffs(node *corev1.Node, rec *taint.Record, result string) {
	var names []string
	for _, d := range rec.PowerOffTo {
		names = append(names, providers.ErrorText(errors.New(d.Device))) // the Node's kubelet can write it
	}
	if len(names) == 0 {
		return
	}
	detail := strings.Join(names, ", ")
	n.Log.Warn("Devices accepted a power-off", "node", node.Name, "fence", rec.ID, "result", result, "devices", detail)
	n.sendEvent(n.at, node, nil, reason.PoweredOff, "PowerOff", "{fence}", rec.ID, "{why}", result, "{detail}", detail)
}
