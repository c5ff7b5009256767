// Package journal makes the Fencing objects (taint/api), which show a person the course of a fence, from what a process
// saw and did.
//
// It is pure. Entry.AddUpdate returns the entry after one more update; Entry.MergeObject joins it with what another
// process wrote. No decision depends on the result. taint/observe writes the objects.
//
// It guarantees: a count is exact even if its list is cut; an update that is added twice counts once; an object that it
// is given never changes.
package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
)

// Update is what is known of a fence at one moment. Only Node, At and Record are required.
type Update struct {
	Node     string
	At       time.Time
	Record   taint.Record // the Node's, as it was read or written; for a shadow decision, what it would be
	Why      string       // what makes the node suspect; "" is not known
	Shadow   bool         // a shadow decision: nothing is changed, and the record is not written
	Would    []api.Pod    // for a shadow decision: the pods that would move
	OnlyRead bool         // the record was read now, not written: if it is Done, it ended before

	Alert    *string   // why a person should look, "" for no reason; nil: unknown
	Ended    []api.Pod // pods that were ended by now; others may have been ended before
	Spared   []api.Pod // likewise
	Left     []api.Pod // ended pods that the fence leaves behind
	Attached *[]string // the volumes that the fence has still to detach; nil: not listed
	Staying  []string  // with Attached: the attached volumes of pods that stay
	// Waiting are, with Alert, the VolumeAttachments because of which a person should look.
	Waiting []api.Attachment
	Gone    bool      // the Node was deleted during the fence
	Step    *api.Step // a step that was done, once; nil: none. Ignored for a shadow decision
}

// The results that no record has, because no controller can write them there.
const (
	ResultNodeGone = "NodeGone" // the Node was deleted during its fence
	ResultUnknown  = "Unknown"  // the Node has another record by now, and how this fence ended was not recorded

	ResultWouldPowerOff = "WouldPowerOff" // a shadow decision: the machine would have been powered off
	ResultWouldRecover  = "WouldRecover"  // a shadow decision: the node would have been marked, and its pods moved
)

// shadowResult returns the result of a shadow decision.
func shadowResult(powerOff bool) string {
	if powerOff {
		return ResultWouldPowerOff
	}
	return ResultWouldRecover
}

// Entry is what a process knows of one fence: the object without limits on its lists. The zero value knows nothing.
type Entry struct {
	Object api.Fencing
	spared map[string]bool // UIDs
	left   map[string]bool
	listed bool // the volumes were listed
	steps  stepsKnown
}

// ownID is an id that forcefence made: unique by itself.
var ownID = regexp.MustCompile(`^f-[0-9a-f]{12}$`)

// maxName is the maximal length of a name; joinName reserves room for the id and a hash.
const maxName = 253

// ObjectName returns the name of a fence's object: the node's name and the id. An id that forcefence did not make may
// be any label value, and equal that of an earlier fence. So a hash of what distinguishes the two follows it.
func ObjectName(node string, r taint.Record) string {
	id := strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		default:
			return '-'
		}
	}, r.ID), "-")
	if r.IsVouchedFor() || !ownID.MatchString(r.ID) {
		id = strings.TrimLeft(id+"-"+hashTexts(r.NodeUID, r.Token()), "-")
	}
	return joinName(node, id)
}

// Name returns the name of the object that the update belongs to: ObjectName of its record. For a shadow decision there
// is one name for each life of the node and each decision, and every process uses the same.
func (t Update) Name() string {
	r, word := t.Record, "would-recover-"
	if !t.Shadow {
		return ObjectName(t.Node, r)
	}
	if r.PowerOff {
		word = "would-power-off-"
	}
	return joinName(t.Node, word+hashTexts(r.NodeUID, r.BootID, r.LeaseRV))
}

// joinName joins both into one name, and shortens the node's name if the result would be too long.
func joinName(node, id string) string {
	if most := maxName - 1 - len(id); len(node) > most {
		node = strings.TrimRight(node[:most-9], ".-") + "-" + hashTexts(node)
	}
	return node + "." + id
}

// hashTexts returns 8 hex digits that distinguish texts.
func hashTexts(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:4])
}

// AddUpdate returns the entry with the update added.
func (e Entry) AddUpdate(t Update) Entry {
	f, r := *e.Object.DeepCopy(), t.Record
	if t.Shadow { // it is over at once
		r = r.EnterPhase(taint.PhaseDone, taint.Result(shadowResult(r.PowerOff)), r.At)
	}
	if f.Name == "" {
		f.Name = t.Name()
		f.Spec = api.FencingSpec{
			Node: t.Node, NodeUID: r.NodeUID, BootID: r.BootID, ID: r.ID, By: r.By, Device: r.Device,
			StartedAt: toMicroTime(r.Since), PowerOff: r.PowerOff, Shadow: t.Shadow,
		}
		f.Labels = map[string]string{}
		for key, value := range map[string]string{api.NodeLabel: t.Node, api.FenceLabel: r.ID} {
			if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
				f.Labels[key] = value
			}
		}
	}
	if why := t.Why; f.Spec.Why == "" {
		if r.IsVouchedFor() {
			why = "marked by " + markedBy(r.By)
		}
		f.Spec.Why = why
	}
	s := &f.Status
	s.Timeline = normalizeTimeline(append(s.Timeline,
		api.PhaseEntered{Phase: string(r.Phase), Result: string(r.Result), At: toMicroTime(r.At)}))
	last := s.Timeline[len(s.Timeline)-1] // a look that a write overtook has a phase that is over
	s.Phase, s.Result = last.Phase, last.Result
	if r.Phase == taint.PhaseDone { // an update that comes late is older
		s.AfterFence = cmp.Or(string(r.AfterFence), s.AfterFence)
		s.PowerOffTo = addDevices(nil, r.PowerOffTo)
	} else if IsOpen(&f) {
		s.PowerOffTo = addDevices(s.PowerOffTo, r.PowerOffTo)
	}
	for _, v := range r.Evidence {
		s.Evidence = append(s.Evidence, api.Answer{At: toMicroTime(v.At), From: v.From, State: v.State, Raw: v.Raw})
	}
	s.Evidence = normalizeEvidence(s.Evidence)
	s.Proof = laterProof(s.Proof, r.Proof)
	next := Entry{
		Object: f,
		spared: addUIDs(e.spared, t.Spared),
		left:   addUIDs(e.left, t.Left),
		listed: e.listed || t.Attached != nil,
		steps:  e.steps,
	}
	s = &next.Object.Status
	if t.Step != nil && !t.Shadow {
		next.steps = e.steps.addStep(*t.Step)
		s.Steps = next.steps.mergedSteps()
	}
	before := len(s.Pods.Names)
	s.Pods.Names = addPods(s.Pods.Names, t.Ended)
	s.Pods.Ended += int32(len(s.Pods.Names) - before)
	if t.Shadow {
		s.Pods.Names, s.Pods.Would = addPods(nil, t.Would), int32(len(t.Would))
	}
	s.Pods.Spared, s.Pods.Left = max(s.Pods.Spared, int32(len(next.spared))), max(s.Pods.Left, int32(len(next.left)))
	if t.Attached != nil {
		s.Volumes = joinVolumes(s.Volumes, api.Volumes{
			Names: *t.Attached, Left: addNames(nil, *t.Attached), Staying: addNames(nil, t.Staying),
			Waiting: s.Volumes.Waiting,
		})
	}
	if t.Gone && r.IsOpen() {
		next.setEnd(ResultNodeGone, t.At)
	}
	next.setDerivedFields(t)
	return next
}

// firstWaiting returns the attachments that a Fencing names: the first by name, so that the list changes seldom.
func firstWaiting(all []api.Attachment) []api.Attachment {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b api.Attachment) int { return strings.Compare(a.Name, b.Name) })
	return all[:min(len(all), api.MaxWaiting)]
}

// laterProof returns the proof of two that goes further. An update that comes late has an earlier one.
func laterProof(a, b string) string {
	last, other := lastLink(b), lastLink(a)
	if last.After(other) || last.Equal(other) && !last.IsZero() && len(b) > len(a) {
		return b
	}
	return a
}

// lastLink returns when the last link of a proof was made (package signing); zero for a text that is no proof.
func lastLink(text string) time.Time {
	var p struct {
		Links []struct {
			At time.Time `json:"at"`
		} `json:"links"`
	}
	if len(text) > taint.MaxProof || json.Unmarshal([]byte(text), &p) != nil || len(p.Links) == 0 {
		return time.Time{}
	}
	return p.Links[len(p.Links)-1].At
}

// joinVolumes returns what is known of a fence's volumes after the later of two reports. A volume whose pod stays is
// not counted, also if the earlier report counted it.
func joinVolumes(earlier, later api.Volumes) api.Volumes {
	cut := max(earlier.Attached-int32(len(earlier.Names)), later.Attached-int32(len(later.Names))) > 0
	most := max(earlier.Attached, later.Attached)
	later.Names = slices.DeleteFunc(addNames(earlier.Names, later.Names), func(name string) bool {
		return slices.Contains(later.Staying, name)
	})
	if later.Attached = int32(len(later.Names)); cut { // a new name may be one that is counted without its name
		later.Attached = max(later.Attached, most)
	}
	later.Detached = later.Attached - int32(len(later.Left))
	return later
}

// WithEnd returns the entry of a fence that ended and left no record of how. A shadow decision, whose process wrote
// only the decision itself, has its own result.
func (e Entry) WithEnd(result string, now time.Time) Entry {
	if e.Object.Spec.Shadow {
		result = shadowResult(e.Object.Spec.PowerOff)
	}
	e.Object = *e.Object.DeepCopy()
	e.setEnd(result, now)
	e.setDerivedFields(Update{At: now})
	return e
}

func (e *Entry) setEnd(result string, now time.Time) {
	s := &e.Object.Status
	s.Phase, s.Result = string(taint.PhaseDone), result
	s.Timeline = normalizeTimeline(append(s.Timeline,
		api.PhaseEntered{Phase: s.Phase, Result: result, At: toMicroTime(now)}))
}

// IsOpen reports whether the fence is still going on, as far as the object knows.
func IsOpen(f *api.Fencing) bool { return f.Status.Phase != string(taint.PhaseDone) }

// setDerivedFields sets what follows from the rest: when the fence ended, how long it lasted, the conditions.
func (e *Entry) setDerivedFields(t Update) {
	s := &e.Object.Status
	set := func(kind string, status metav1.ConditionStatus, why, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: why, Message: message,
			LastTransitionTime: metav1.NewTime(t.At.UTC().Truncate(time.Second)),
		})
	}
	if IsOpen(&e.Object) {
		set(api.Finished, metav1.ConditionFalse, cmp.Or(s.Phase, "Begun"), "")
	} else {
		for _, p := range s.Timeline { // the first end: a false Off may be found out days later
			if end := p.At; p.Phase == string(taint.PhaseDone) {
				if s.FinishedAt = &end; !e.Object.Spec.Shadow { // which has no duration
					s.Duration = FormatDuration(end.Sub(e.Object.Spec.StartedAt.Time))
				}
				break
			}
		}
		text := resultTexts[s.Result]
		if after := afterFenceTexts[taint.AfterFence(s.AfterFence)]; after != "" {
			text += "; " + after
		}
		had := meta.FindStatusCondition(s.Conditions, api.Finished)
		if staying := t.Record.Staying.String(); staying != "" && s.Result == string(taint.ResultEvicted) {
			text += "; " + staying
		} else if had != nil && had.Reason == s.Result && t.Record.Phase != taint.PhaseDone {
			text = had.Message // the update comes late, and its record does not know yet
		}
		set(api.Finished, metav1.ConditionTrue, cmp.Or(s.Result, ResultUnknown), text)
	}
	off := slices.IndexFunc(s.Evidence, func(a api.Answer) bool { return a.State == "Off" })
	switch {
	case s.Result == string(taint.ResultNeverPoweredOff):
		set(api.Proven, metav1.ConditionFalse, s.Result, resultTexts[s.Result])
	case off >= 0:
		set(api.Proven, metav1.ConditionTrue, "MachineOff", s.Evidence[off].From+" said that the machine is off")
	case s.Pods.Ended > 0 || s.Phase == string(taint.PhaseEvicting):
		set(api.Proven, metav1.ConditionFalse, "NoProof",
			"no device said that the machine is off; "+markedBy(e.Object.Spec.By)+" vouches for it")
	default:
		set(api.Proven, metav1.ConditionUnknown, "NoProof", "no device said that the machine is off")
	}
	if !IsOpen(&e.Object) || t.Alert != nil {
		s.Volumes.Waiting = firstWaiting(t.Waiting)
	}
	switch had := meta.FindStatusCondition(s.Conditions, api.NeedsPerson); {
	case IsOpen(&e.Object) && t.Alert != nil && *t.Alert != "":
		set(api.NeedsPerson, metav1.ConditionTrue, "Alert", *t.Alert)
	case had != nil && (!IsOpen(&e.Object) || t.Alert != nil):
		set(api.NeedsPerson, metav1.ConditionFalse, "Over", "")
	}
}

// resultTexts describes for a person how a fence ended.
var resultTexts = map[string]string{
	string(taint.ResultEvicted):        "the moved pods are gone, their volumes detached",
	string(taint.ResultReturned):       "the machine came back while the pods were being ended",
	string(taint.ResultLifted):         "the node showed life, or the proof was lost, before any pod was changed",
	string(taint.ResultCancelled):      "the node recovered, or was excluded, before the power-off",
	string(taint.ResultPowerOffFailed): "none of the devices reported the machine off in time",
	string(taint.ResultMarkRemoved):    "another client removed the mark during the fence",
	string(taint.ResultReleased):       "a person ran forcefence release",
	string(taint.ResultNeverPoweredOff): "the node came back with the same boot id: its machine was never off, " +
		"although its device said so",
	ResultNodeGone: "the Node was deleted during the fence",
	ResultWouldPowerOff: "mode shadow: the machine would have been powered off, and then the pods moved; " +
		"nothing was done",
	ResultWouldRecover: "mode shadow: the node would have been marked, and the pods moved; nothing was done",
	ResultUnknown:      "its result is unknown: the Node now has the record of another fence, or none",
}

// ResultText returns, for a person, how a fence with that result ended; "" for a result that this version does not
// know.
func ResultText(result string) string { return resultTexts[result] }

// afterFenceTexts describes for a person what happened to the machine afterwards.
var afterFenceTexts = map[taint.AfterFence]string{
	taint.AfterFencePowerOn:     "then the machine was powered on",
	taint.AfterFencePoweredOn:   "then the machine was powered on, and was on",
	taint.AfterFenceCameOn:      "then the machine was powered on, but not by forcefence",
	taint.AfterFenceHandedOver:  "then Karpenter was told to replace the machine",
	taint.AfterFenceFencedAgain: "the machine stays off, because the node needed this fence soon after a power-on",
}

func markedBy(by string) string {
	if by == taint.ByPerson {
		return "a person"
	}
	return by
}

// FormatDuration formats a duration for a table.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// MergeObject returns the entry joined with the object that was found, which another process may have written. A field
// that only one process can know comes from this entry. A shadow decision that another leader reports again stays as it
// was reported first.
func (e Entry) MergeObject(found *api.Fencing) Entry {
	if e.Object.Spec.Shadow {
		if IsOpen(found) { // created, but its status was never written
			return e
		}
		return EntryOf(found)
	}
	o := *e.Object.DeepCopy()
	s, b := &o.Status, found.DeepCopy().Status
	if why := found.Spec.Why; why != "" && !found.Spec.StartedAt.IsZero() { // the first one saw what made it suspect
		o.Spec.Why = why
	}
	s.AfterFence = cmp.Or(s.AfterFence, b.AfterFence)
	switch {
	case IsOpen(&o) && !IsOpen(found):
		s.PowerOffTo = b.PowerOffTo
	case IsOpen(&o):
		s.PowerOffTo = addNames(b.PowerOffTo, s.PowerOffTo)
	}
	s.Timeline, s.Evidence = normalizeTimeline(append(b.Timeline, s.Timeline...)),
		normalizeEvidence(append(b.Evidence, s.Evidence...))
	// Ours may or may not be among the pods that it counts but does not name.
	cut := int(b.Pods.Ended) > len(b.Pods.Names)
	s.Proof = laterProof(b.Proof, s.Proof)
	s.Pods.Names = addPods(b.Pods.Names, s.Pods.Names)
	if s.Pods.Ended = max(s.Pods.Ended, b.Pods.Ended); !cut {
		s.Pods.Ended = max(s.Pods.Ended, int32(len(s.Pods.Names)))
	}
	s.Pods.Spared, s.Pods.Left = max(s.Pods.Spared, b.Pods.Spared), max(s.Pods.Left, b.Pods.Left)
	e.steps = e.steps.addWritten(b.Steps)
	s.Steps = e.steps.mergedSteps()
	if !e.listed { // this process has not listed them
		s.Volumes.Left, s.Volumes.Staying = b.Volumes.Left, b.Volumes.Staying
		s.Volumes.Waiting = b.Volumes.Waiting
	}
	s.Volumes = joinVolumes(b.Volumes, s.Volumes)
	conditions := b.Conditions
	for _, c := range s.Conditions {
		meta.SetStatusCondition(&conditions, c)
	}
	s.Conditions = conditions
	e.Object = o
	return e
}

// EntryOf returns the entry of an object that another process wrote.
func EntryOf(found *api.Fencing) Entry {
	o := *found.DeepCopy()
	return Entry{Object: o, steps: stepsKnown{}.addWritten(o.Status.Steps)}
}

// BoundedObject returns the object in the form that is written: lists are cut, counts are not. It keeps what others
// wrote into the metadata.
func (e Entry) BoundedObject(found *api.Fencing) *api.Fencing {
	o := e.Object.DeepCopy()
	o.ObjectMeta = *found.ObjectMeta.DeepCopy()
	o.Name, o.TypeMeta = e.Object.Name, found.TypeMeta
	for key, value := range e.Object.Labels {
		metav1.SetMetaDataLabel(&o.ObjectMeta, key, value)
	}
	s := &o.Status
	s.Pods.Names = cutList(s.Pods.Names)
	s.PowerOffTo = s.PowerOffTo[:min(len(s.PowerOffTo), api.MaxDevices)]
	s.Volumes.Names, s.Volumes.Left = cutList(s.Volumes.Names), cutList(s.Volumes.Left)
	s.Volumes.Staying = cutList(s.Volumes.Staying)
	s.Steps = s.Steps[:min(len(s.Steps), api.MaxSteps)]
	return o
}

func cutList[T any](list []T) []T { return list[:min(len(list), api.MaxNames)] }

// phases are all phases, in the order in which a fence enters them.
var phases = []string{
	string(taint.PhasePoweringOff),
	string(taint.PhaseArmed),
	string(taint.PhaseEvicting),
	string(taint.PhaseDone),
}

// normalizeTimeline sorts the list and keeps each phase once. If there are too many, it keeps the first and the newest.
func normalizeTimeline(list []api.PhaseEntered) []api.PhaseEntered {
	list = dropDuplicates(list, func(a, b api.PhaseEntered) bool {
		return a.Phase == b.Phase && a.Result == b.Result && a.At.Time.Equal(b.At.Time)
	})
	slices.SortStableFunc(list, func(a, b api.PhaseEntered) int { // the clocks of two controllers may differ
		return cmp.Or(slices.Index(phases, a.Phase)-slices.Index(phases, b.Phase), a.At.Compare(b.At.Time))
	})
	return keepNewest(list, api.MaxTimeline)
}

func normalizeEvidence(list []api.Answer) []api.Answer {
	list = dropDuplicates(list, func(a, b api.Answer) bool {
		return a.From == b.From && a.State == b.State && a.Raw == b.Raw && a.At.Time.Equal(b.At.Time)
	})
	slices.SortStableFunc(list, func(a, b api.Answer) int { return a.At.Compare(b.At.Time) })
	return keepNewest(list, api.MaxEvidence)
}

func keepNewest[T any](list []T, most int) []T {
	if len(list) > most {
		list = append(list[:1], list[len(list)-most+1:]...)
	}
	return list
}

func dropDuplicates[T any](list []T, same func(a, b T) bool) []T {
	var out []T
	for _, v := range list {
		if !slices.ContainsFunc(out, func(o T) bool { return same(o, v) }) {
			out = append(out, v)
		}
	}
	return out
}

// addPods adds the pods that are missing.
func addPods(have, more []api.Pod) []api.Pod {
	return dropDuplicates(slices.Concat(have, more), func(a, b api.Pod) bool { return a.UID == b.UID })
}

// addDevices adds the devices' names.
func addDevices(have []string, more []taint.DeviceRef) []string {
	var all []string
	for _, d := range more {
		all = append(all, d.Device)
	}
	return addNames(have, all)
}

func addNames(have, more []string) []string {
	have = append(slices.Clone(have), more...)
	slices.Sort(have)
	return slices.Compact(have)
}

func addUIDs(have map[string]bool, more []api.Pod) map[string]bool {
	out := map[string]bool{}
	for uid := range have {
		out[uid] = true
	}
	for _, p := range more {
		out[p.UID] = true
	}
	return out
}

func toMicroTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

// Retention is how many objects are kept, and for how long. The zero value keeps none.
type Retention struct {
	Count int
	Age   time.Duration // since the fence's end
}

// DefaultRetention keeps the fences that ended in the last 90 days, in 4 MB of etcd at most.
var DefaultRetention = Retention{Count: 100, Age: 90 * 24 * time.Hour}

// FindExpired returns the objects to delete at now: ended ones beyond the newest Count, and those that ended too long
// ago. It never returns an open one.
func (k Retention) FindExpired(all []api.Fencing, now time.Time) []api.Fencing {
	ended := slices.DeleteFunc(slices.Clone(all), func(f api.Fencing) bool { return IsOpen(&f) })
	end := func(f api.Fencing) time.Time {
		if f.Status.FinishedAt != nil {
			return f.Status.FinishedAt.Time
		}
		return f.CreationTimestamp.Time
	}
	slices.SortFunc(ended, func(a, b api.Fencing) int {
		return cmp.Or(end(b).Compare(end(a)), strings.Compare(a.Name, b.Name))
	})
	var out []api.Fencing
	for i, f := range ended {
		if i >= k.Count || now.Sub(end(f)) > k.Age {
			out = append(out, f)
		}
	}
	return out
}
