package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// node is n4 as the changes left it.
func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n4", UID: "u4", Annotations: map[string]string{}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration, why,
	message string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		at := metav1.NewTime(ago(since))
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: at, LastHeartbeatTime: at, Reason: why,
				Message: message})
	}
}

// answered is condition with what the devices answered, as a drill writes both.
func answered(status corev1.ConditionStatus, since time.Duration, why, message, power string,
	devices ...drill.DeviceAnswer) func(*corev1.Node) {
	return func(n *corev1.Node) {
		condition(taint.FenceableCondition, status, since, why, message)(n)
		n.Annotations[taint.DrillAnnotation] = drill.Answers{Word: power, Devices: devices}.Encode(ago(since))
	}
}

// inShadow writes into the drill's answers that the node's mode was shadow.
func inShadow(n *corev1.Node) {
	a := drill.AnswersIn(n)
	a.Shadow = true
	n.Annotations[taint.DrillAnnotation] = a.Encode(a.At)
}

func annotation(key, text string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = text }
}

func record(r taint.Record) func(*corev1.Node) {
	if r.NodeUID = "u4"; r.By == "" {
		r.By = "ff-1"
	}
	if r.ID == "" {
		r.ID = "f-1"
	}
	return annotation(taint.RecordAnnotation, r.Encode())
}

func marked(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "manual", Effect: corev1.TaintEffectNoSchedule}}
}

var (
	ready         = condition(corev1.NodeReady, corev1.ConditionTrue, time.Hour, "", "")
	silent        = condition(corev1.NodeReady, corev1.ConditionUnknown, time.Minute, "", "")
	silentForLong = condition(corev1.NodeReady, corev1.ConditionUnknown, 6*time.Minute, "", "")
	disabled      = condition(taint.FenceableCondition, corev1.ConditionFalse, time.Hour, string(reason.ModeDisabled),
		"Its mode is disabled (config.yaml): no device is asked, and this node is not fenced.")
	racksSaysOn = drill.DeviceAnswer{Device: "racks/1", Power: "On"}
	answersNow  = answered(corev1.ConditionTrue, 30*time.Second, "MachineAnswers", "The machine is On (racks/1: On).",
		"On", racksSaysOn)
	answers = answered(corev1.ConditionTrue, 3*time.Hour, "MachineAnswers", "The machine is On (racks/1: On).", "On",
		racksSaysOn)
	changing = answered(corev1.ConditionTrue, 15*time.Second, "MachineAnswers",
		"The machine is Changing (racks/1: Changing).", "Changing", drill.DeviceAnswer{Device: "racks/1", Power: "Changing"})
	refused = condition(taint.FenceableCondition, corev1.ConditionFalse, 3*time.Hour, "MachineNotAnswering",
		"No answer that counts: racks/1: denied.")
)

// ownEvents returns the Events as forcefence sent them.
func ownEvents(events ...Event) []Event {
	for i := range events {
		events[i].From = "forcefence"
	}
	return events
}

func answer(since time.Duration, from, state string) taint.Evidence {
	return taint.Evidence{At: ago(since), From: from, State: state}
}

func TestOf(t *testing.T) {
	phase := func(p taint.Phase, res taint.Result, since time.Duration) taint.Record {
		return taint.Record{Device: "racks/1"}.EnterPhase(p, res, ago(since))
	}
	waits, lied, again, off := phase(taint.PhaseEvicting, "", 0),
		phase(taint.PhaseDone, taint.ResultNeverPoweredOff, 0), phase(taint.PhaseDone, taint.ResultEvicted, 0),
		phase(taint.PhaseEvicting, "", 10*time.Second)
	waits.Detaching, again.AfterFence = []taint.Detaching{{PV: "pv-7"}}, taint.AfterFenceFencedAgain
	off.Evidence = []taint.Evidence{answer(20*time.Second, "racks", "On"), answer(10*time.Second, "racks", "Off"),
		answer(time.Second, "nobody", "None")}
	stays := off.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now)
	stays.Staying.Pods = []taint.StayingPod{{Pod: "shop/tol-0", Why: taint.ExemptTolerate}}
	leftOff := off.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now)
	leftOff.PowerOff, leftOff.PowerOffTo = true, []taint.DeviceRef{{Device: "racks/1"}}
	old := off.EnterPhase(taint.PhaseDone, taint.ResultEvicted, ago(4*time.Hour))
	old.Evidence = []taint.Evidence{answer(4*time.Hour, "racks", "Off")}
	person := off.EnterPhase(taint.PhaseEvicting, "", ago(5*time.Second))
	notAsked := answer(9*time.Second, "people", "Unknown")
	person.Evidence = []taint.Evidence{answer(10*time.Second, "racks", "Off"), notAsked}
	noAnswer := person
	noAnswer.Evidence = []taint.Evidence{answer(10*time.Second, "racks", "Unknown"), notAsked}
	mute := ownEvents(Event{At: ago(4 * time.Minute), Reason: string(reason.Unknown), Text: "Its device is mute."})
	onAgain := off
	onAgain.Evidence = append(slices.Clone(off.Evidence), answer(time.Second, "racks", "On"))
	vouched := phase(taint.PhaseArmed, "", 0)
	vouched.By = taint.ByPerson
	poweredOn := phase(taint.PhaseDone, taint.ResultEvicted, 5*time.Minute)
	poweredOn.AfterFence, poweredOn.PowerOns = taint.AfterFencePowerOn, []time.Time{ago(time.Minute)}
	notBack := poweredOn
	notBack.AfterFence, notBack.PowerOns = taint.AfterFencePoweredOn, []time.Time{ago(10 * time.Minute)}
	for _, tt := range []struct {
		name  string
		seen  NodeFacts
		state State
		next  string // part of it; "" for none at all
		power string // state, by, from
	}{
		{"nothing is known", NodeFacts{Node: node(ready)}, StateUnfenceable, "No controller", "Unknown  "},
		{"fine", NodeFacts{Node: node(ready, answers)}, StateFine, "", "On racks/1 drill"},
		{"fine since its fence", NodeFacts{Node: node(ready, answers, record(old))}, StateFine, "", "On racks/1 drill"},
		{"one of two devices is down",
			NodeFacts{Node: node(ready,
				answered(corev1.ConditionTrue, time.Hour, "MachineAnswers",
					"The machine is On (racks/1: denied, pdus/2: On).", "On",
					drill.DeviceAnswer{Device: "racks/1", Power: "Unknown", Problem: "denied"},
					drill.DeviceAnswer{Device: "pdus/2", Power: "On"}))},
			StateFine, "Some of its devices give no answer that counts: racks/1: denied, pdus/2: On. " +
				"Look at the device", "On racks/1: denied, pdus/2: On drill"},
		{"not fenceable", NodeFacts{Node: node(ready, refused)}, StateUnfenceable,
			"racks/1: denied. Look at the device, and at the network", "Unknown  drill"},
		{"paused", NodeFacts{Node: node(ready, answers, annotation(fence.PausedAnnotation, "new disk"))},
			StateLeftAlone, `"new disk"`, "On racks/1 drill"},
		{"excluded by the configuration, and without a device", NodeFacts{Node: node(ready), NoDevice: "no rule",
			Excluded: "excludeSelector pool=cattle"}, StateLeftAlone, "excludeSelector pool=cattle", "Unknown  "},
		{"silent for long, and excluded", NodeFacts{Node: node(silentForLong),
			Excluded: "excludeSelector pool=cattle"}, StateNotReady, "excludeSelector pool=cattle", "Unknown  "},
		{"all nodes are paused", NodeFacts{Node: node(ready, answers), Paused: "a ConfigMap"}, StateLeftAlone,
			"paused for all nodes", "On racks/1 drill"},
		{"all nodes are paused, and it is silent for long", NodeFacts{Node: node(silentForLong), Paused: "a ConfigMap"},
			StateNeedsPerson, "paused for all nodes. Nothing proves", "Unknown  "},
		{"all nodes are paused, and its Event says it", NodeFacts{Node: node(silentForLong), Paused: "a ConfigMap",
			Events: ownEvents(Event{At: ago(time.Second), Reason: string(reason.Excluded), Text: "It is excluded."})},
			StateNeedsPerson, "paused for all nodes. Nothing proves", "Unknown  "},
		{"all nodes are paused, and it is silent", NodeFacts{Node: node(silent), Paused: "a ConfigMap"},
			StateNotReady, "No fence begins, because fencing is paused for all nodes.", "Unknown  "},
		{"all nodes are paused, and its last drill failed", NodeFacts{Node: node(silentForLong, refused),
			Paused: "a ConfigMap"}, StateNeedsPerson, "all nodes. No answer that counts: racks/1: denied.",
			"Unknown  drill"},
		{"all nodes are paused, and it was fenced before", NodeFacts{Node: node(silent, record(leftOff)),
			Paused: "a ConfigMap"}, StateNotReady, "left it off", "Off racks fence"},
		{"no controller leads", NodeFacts{Node: node(ready, answers), Leaderless: true}, StateLeftAlone,
			"No fence begins, because no controller leads.", "On racks/1 drill"},
		{"no controller leads, and its last drill failed", NodeFacts{Node: node(ready, refused), Leaderless: true},
			StateUnfenceable, "racks/1: denied.", "Unknown  drill"},
		{"no controller leads, and it is silent for long", NodeFacts{Node: node(silentForLong), Leaderless: true},
			StateNeedsPerson, "No fence begins, because no controller leads. Nothing proves", "Unknown  "},
		{"no controller leads, and it is silent", NodeFacts{Node: node(silent), Leaderless: true},
			StateNotReady, "No fence begins, because no controller leads.", "Unknown  "},
		{"no controller leads, and its fence is open", NodeFacts{Node: node(silent, record(waits)), Leaderless: true},
			StateFencing, "Its fence waits, because no controller leads.", "Unknown  "},
		{"no controller leads, and its fence is open for long", NodeFacts{Node: node(silentForLong, record(phase(
			taint.PhasePoweringOff, "", 6*time.Minute))), Leaderless: true}, StateNeedsPerson,
			"Its fence waits, because no controller leads.", "Unknown  "},
		{"no controller leads, and a person marked it", NodeFacts{Node: node(silent, marked), Leaderless: true},
			StateFencing, "Its fence waits, because no controller leads.", "Unknown  "},
		{"in mode shadow", NodeFacts{Node: node(ready, answered(corev1.ConditionTrue, time.Hour, "MachineAnswers", "",
			"On", racksSaysOn), inShadow)}, StateLeftAlone, "shadow: forcefence says what it would do", "On racks/1 drill"},
		{"its configuration changed since", NodeFacts{Node: node(ready, answers), ConfigSince: now}, StateFine,
			"were last asked before the configuration changed", "On racks/1 drill"},
		{"its configuration changed since, and its drill failed before", NodeFacts{Node: node(ready, refused),
			ConfigSince: now}, StateUnfenceable, "were last asked before the configuration changed", "Unknown  drill"},
		{"its configuration changed since, and it was in mode shadow", NodeFacts{Node: node(ready, answers, inShadow),
			ConfigSince: now}, StateFine, "were last asked before the configuration changed", "On racks/1 drill"},
		{"silent for long, and its mode was disabled before", NodeFacts{Node: node(silentForLong, disabled),
			ConfigSince: now}, StateNeedsPerson, "Nothing proves", "Unknown  drill"},
		{"no controller leads, and its machine was to be powered on", NodeFacts{Node: node(silent, record(poweredOn)),
			Leaderless: true}, StateNotReady, "may stay off, because no controller leads", "Unknown  "},
		{"silent for long, in mode shadow", NodeFacts{Node: node(silentForLong, answers, inShadow)}, StateNeedsPerson,
			"Its mode is shadow: forcefence does nothing, and its pods wait.", "Unknown racks/1 drill"},
		{"silent for long, in mode shadow by its annotation", NodeFacts{Node: node(silentForLong,
			annotation(fence.ModeAnnotation, "shadow"))}, StateNeedsPerson, "Its mode is shadow", "Unknown  "},
		{"silent for long, disabled by its annotation", NodeFacts{Node: node(silentForLong,
			annotation(fence.ModeAnnotation, "disabled"))}, StateNotReady, "An annotation keeps its mode at disabled.",
			"Unknown  "},
		{"silent for long, and its power-on is held up on purpose", NodeFacts{Node: node(silentForLong),
			Events: ownEvents(Event{At: ago(time.Second), Reason: string(reason.PowerOnHeldUp),
				Text: "It is paused."})},
			StateNeedsPerson, "It is paused. No action if intended. Otherwise", "Unknown  "},
		{"paused, and that is over",
			NodeFacts{Node: node(ready, answers,
				annotation(fence.PausedAnnotation, "new disk; until=2026-03-01T11:00:00Z"))}, StateFine,
			`pauses nothing any more: "new disk" until 2026-03-01T11:00:00Z. To remove it: forcefence resume n`,
			"On racks/1 drill"},
		{"mode lowered", NodeFacts{Node: node(ready, answers, annotation(fence.ModeAnnotation, "shadow"))},
			StateLeftAlone, "shadow", "On racks/1 drill"},

		{"off, and a person was not asked", NodeFacts{Node: node(silent, record(person))}, StateFencing,
			"Its pods are ended", "Off racks fence"},
		{"no device knows", NodeFacts{Node: node(silent, record(noAnswer))}, StateFencing, "Its pods are ended",
			"Unknown people fence"},
		{"silent", NodeFacts{Node: node(silent, answers)}, StateNotReady, "asks its devices", "Unknown racks/1 drill"},
		{"silent, and told why",
			NodeFacts{Node: node(silent, answers),
				Events: ownEvents(Event{At: ago(30 * time.Second), Reason: string(reason.Unknown),
					Text: "Its device is mute."})}, StateNotReady,
			"Its device is mute. Look at the device", "Unknown racks/1 drill"},
		{"silent for long, and told why", NodeFacts{Node: node(silentForLong, answers), Events: mute}, StateNeedsPerson,
			"Its device is mute. Look at the device", "Unknown racks/1 drill"},
		{"silent for long, and a drill's Event is newer",
			NodeFacts{Node: node(silentForLong, answers), Events: append(ownEvents(
				Event{At: now, Reason: string(reason.NotAnswering), Text: "A drill found it."},
				Event{At: now, Reason: string(reason.Answers), Text: "A drill found it."}), mute...)}, StateNeedsPerson,
			"Its device is mute. Look at the device", "Unknown racks/1 drill"},
		{"silent for long, and only a drill sent Events",
			NodeFacts{Node: node(silentForLong, answers),
				Events: ownEvents(Event{At: now, Reason: string(reason.Answers), Text: "A drill found it."})},
			StateNeedsPerson, "Nothing proves", "Unknown racks/1 drill"},
		{"silent for long, and told what usually ends by itself",
			NodeFacts{Node: node(silentForLong, answers),
				Events: ownEvents(Event{At: now, Reason: string(reason.CoolDown), Text: "A limit was hit."})},
			StateNeedsPerson, "A limit was hit.", "Unknown racks/1 drill"},
		{"silent for long, told by another writer",
			NodeFacts{Node: node(silentForLong, answers),
				Events: []Event{{At: now, From: "kubelet", Reason: string(reason.InGrace), Text: "All is well."}}},
			StateNeedsPerson, "Nothing proves", "Unknown racks/1 drill"},
		{"silent for long, and seen Off since",
			NodeFacts{Node: node(silentForLong, answered(corev1.ConditionTrue, time.Minute,
				"MachineAnswers", "The machine is Off (racks/1: Off).", "Off",
				drill.DeviceAnswer{Device: "racks/1", Power: "Off"}))}, StateNotReady, "asks its devices",
			"Off racks/1 drill"},
		{"silent, told of an earlier silence",
			NodeFacts{Node: node(silent, answers),
				Events: ownEvents(Event{At: ago(time.Hour), Reason: string(reason.Unknown),
					Text: "Its device is mute."})},
			StateNotReady,
			"asks its devices", "Unknown racks/1 drill"},
		{"silent, and its device says On since", NodeFacts{Node: node(silent, answersNow)}, StateNotReady,
			"asks its devices", "On racks/1 drill"},
		{"an older controller wrote no answers", NodeFacts{Node: node(ready, condition(taint.FenceableCondition,
			corev1.ConditionTrue, 3*time.Hour, "MachineAnswers", "The machine is On (racks/1: On)."))}, StateFine, "",
			"Unknown  drill"},
		{"silent for long, and its device says On since an Event",
			NodeFacts{Node: node(silentForLong, answersNow),
				Events: ownEvents(Event{At: ago(2 * time.Minute), Reason: string(reason.Unknown), Text: "It is mute."})},
			StateNeedsPerson, "but its machine is on", "On racks/1 drill"},
		{"silent and on since an Event",
			NodeFacts{Node: node(silent,
				condition(taint.PoweredOnCondition, corev1.ConditionTrue, 30*time.Second, "", "")),
				Events: ownEvents(Event{At: ago(40 * time.Second), Reason: string(reason.Unknown), Text: "It is mute."})},
			StateNeedsPerson, "but its machine is on", "On  fence"},
		{"silent and on",
			NodeFacts{Node: node(silent, answers,
				condition(taint.PoweredOnCondition, corev1.ConditionTrue, 30*time.Second, "", ""))}, StateNeedsPerson,
			"its machine is on", "On  fence"},
		{"silent, was on, and its device no longer answers",
			NodeFacts{Node: node(silent,
				condition(taint.PoweredOnCondition, corev1.ConditionTrue, 30*time.Second, "", ""),
				condition(taint.FenceableCondition, corev1.ConditionUnknown, 10*time.Second, "MachineNotAnswering",
					"No answer that counts: racks/1: unreachable."))}, StateNotReady, "asks its devices", "Unknown  drill"},
		{"silent for long, its device does not answer",
			NodeFacts{Node: node(silentForLong, condition(taint.FenceableCondition, corev1.ConditionUnknown,
				10*time.Second, "MachineNotAnswering", "No answer that counts: racks/1: unreachable."))}, StateNeedsPerson,
			"If you see that the machine is off, say so: kubectl taint node n4 " +
				"forcefence.io/node-shutdown=manual:NoSchedule", "Unknown  drill"},
		{"silent, and its machine is changing since an Event",
			NodeFacts{Node: node(silent, changing),
				Events: ownEvents(Event{At: ago(30 * time.Second), Reason: string(reason.Unknown), Text: "It is mute."})},
			StateNotReady, "Its machine is going on or off (by racks/1). Its devices are asked again.",
			"Changing racks/1 drill"},
		{"silent for long, and its machine is changing since an Event",
			NodeFacts{Node: node(silentForLong, changing),
				Events: ownEvents(Event{At: ago(30 * time.Second), Reason: string(reason.Unknown), Text: "It is mute."})},
			StateNeedsPerson, "Its machine is going on or off (by racks/1). If that lasts, reset the BMC",
			"Changing racks/1 drill"},
		{"silent for long, and its machine was changing before an Event",
			NodeFacts{Node: node(silentForLong, changing),
				Events: ownEvents(Event{At: now, Reason: string(reason.Unknown), Text: "It is mute."})},
			StateNeedsPerson, "It is mute.", "Changing racks/1 drill"},
		{"silent, and its last drill failed", NodeFacts{Node: node(silent, refused)}, StateNeedsPerson,
			"racks/1: denied.", "Unknown  drill"},
		{"silent for long, and nothing is known", NodeFacts{Node: node(silentForLong, answers)}, StateNeedsPerson,
			"Nothing proves", "Unknown racks/1 drill"},
		{"silent, without a device", NodeFacts{Node: node(silent), NoDevice: "no rule matches the node"},
			StateNeedsPerson, "No device: no rule matches the node. Add or correct its rule", "Unknown  "},
		{"ready, without a device", NodeFacts{Node: node(ready), NoDevice: "no rule matches the node"},
			StateUnfenceable, "No device: no rule matches the node. Add or correct its rule", "Unknown  "},
		{"silent, by a mode that was chosen", NodeFacts{Node: node(silentForLong, disabled)}, StateNotReady,
			"Its mode is disabled", "Unknown  drill"},
		{"ready, by a mode that was chosen", NodeFacts{Node: node(ready, disabled)}, StateLeftAlone,
			"Its mode is disabled", "Unknown  drill"},
		{"silent and paused", NodeFacts{Node: node(silent, answers, annotation(fence.PausedAnnotation, "new disk"))},
			StateNotReady, `"new disk"`, "Unknown racks/1 drill"},
		{"fenced, and not back",
			NodeFacts{Node: node(silent, record(off.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now)))},
			StateNotReady, "Its pods were freed. Look at", "Off racks fence"},
		{"fenced, and a pod stays", NodeFacts{Node: node(silent, record(stays))}, StateNotReady,
			"Its other pods were freed. 1 pod stays: shop/tol-0 (tolerates the mark). Delete what is to run " +
				"elsewhere. Look at", "Off racks fence"},
		{"fenced by a power-off, and not back", NodeFacts{Node: node(silent, record(leftOff)),
			Events: ownEvents(Event{At: now, Reason: string(reason.PoweredOff),
				Text: "These devices accepted a power-off."})},
			StateNotReady, "left it off", "Off racks fence"},
		{"fenced by a power-off, and on again", NodeFacts{Node: node(silent, record(leftOff),
			condition(taint.PoweredOnCondition, corev1.ConditionTrue, 0, "", ""))}, StateNotReady, "Look at its " +
			"machine",
			"On  fence"},
		{"fenced, and told so",
			NodeFacts{Node: node(silent, record(off.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now))),
				Events: ownEvents(Event{At: now, Reason: string(reason.Finished),
					Text: "All is gone."})}, StateNotReady,
			"were freed",
			"Off racks fence"},
		{"told what needs no person",
			NodeFacts{Node: node(silent, answers),
				Events: ownEvents(Event{At: now, Reason: string(reason.InGrace), Text: "It waits."})},
			StateNotReady, "It waits.", "Unknown racks/1 drill"},
		{"released, and not back",
			NodeFacts{Node: node(silent, record(phase(taint.PhaseDone, taint.ResultReleased, 0)))}, StateNotReady,
			"released", "Unknown  "},

		{"powering off", NodeFacts{Node: node(silent, record(phase(taint.PhasePoweringOff, "", 0)))}, StateFencing,
			"being powered off; the fence waits until racks/1 says Off", "Unknown  "},
		{"armed", NodeFacts{Node: node(silent, record(phase(taint.PhaseArmed, "", 0)))}, StateFencing,
			"asked once more", "Unknown  "},
		{"evicting", NodeFacts{Node: node(silent, answers, record(off))}, StateFencing, "pods are ended",
			"Off racks fence"},
		{"evicting, volumes are left", NodeFacts{Node: node(silent, record(waits))}, StateFencing,
			"It waits for 1 volume to detach: pv-7.", "Unknown  "},
		{"evicting, and told what is wrong",
			NodeFacts{Node: node(silent, record(off)),
				Events: ownEvents(Event{At: now, Reason: string(reason.ProofLost),
					Text: "The machine is no longer proven off."})}, StateFencing,
			"no longer proven off. Look at the device.", "Off racks fence"},
		{"evicting, and its device says On", NodeFacts{Node: node(silent, record(onAgain))}, StateNeedsPerson,
			"no longer proven off: a device says On. Look at the device.", "On racks fence"},
		{"powering off for long", NodeFacts{Node: node(silentForLong, record(phase(taint.PhasePoweringOff, "",
			5*time.Minute)))}, StateNeedsPerson, "more than 5 minutes. Find out what racks/1 says.", "Unknown  "},
		{"marked by a person, and its device says On",
			NodeFacts{Node: node(silent, answersNow, record(vouched))}, StateNeedsPerson,
			"but racks/1 says that its machine is on. Power the machine off", "On racks/1 drill"},
		{"powered on, and not back", NodeFacts{Node: node(silentForLong, record(notBack))}, StateNeedsPerson,
			"its node has not come back", "Unknown  "},
		{"powered on just now", NodeFacts{Node: node(silentForLong, record(poweredOn))}, StateNotReady,
			"being powered on", "Unknown  "},
		{"evicting, told of before",
			NodeFacts{Node: node(silent, record(off)),
				Events: ownEvents(Event{At: ago(time.Minute), Reason: string(reason.Unknown),
					Text: "mute"})}, StateFencing,
			"pods are ended",
			"Off racks fence"},
		{"marked by hand", NodeFacts{Node: node(silent, marked)}, StateFencing, "A person marked it", "Unknown  "},
		{"marked by hand, in mode shadow", NodeFacts{Node: node(silent, marked, answered(corev1.ConditionTrue, time.Second,
			"MachineAnswers", "", "On", drill.DeviceAnswer{Device: "racks/1", Power: "On"}), inShadow)}, StateNeedsPerson,
			"its mode begins nothing. Use a mode that acts, or remove the mark: kubectl taint node n4 " +
				"forcefence.io/node-shutdown-", "On racks/1 drill"},
		{"marked by hand, in mode disabled", NodeFacts{Node: node(silentForLong, marked, disabled)}, StateNeedsPerson,
			"its mode begins nothing.", "Unknown  drill"},
		{"marked by hand, and Ready", NodeFacts{Node: node(ready, answers, marked)}, StateNeedsPerson,
			"take the mark off", "On racks/1 drill"},

		{"needs a person, by its Fencing",
			NodeFacts{Node: node(silent, record(off)), NeedsPerson: "volume pv-7 does not detach"}, StateNeedsPerson,
			"volume pv-7", "Off racks fence"},
		{"a device lied", NodeFacts{Node: node(ready, answers, record(lied))}, StateNeedsPerson,
			"forcefence release n4 --yes", "On racks/1 drill"},
		{"fenced again", NodeFacts{Node: node(silent, record(again))}, StateNeedsPerson, "", "Unknown  "},
		{"no record", NodeFacts{Node: node(ready, annotation(taint.RecordAnnotation, "{"))}, StateNeedsPerson,
			"cannot be read", "Unknown  "},
		{"a newer version's phase",
			NodeFacts{Node: node(ready,
				annotation(taint.RecordAnnotation, `{"id":"f-1","phase":"Verifying","nodeUID":"u4","by":"x"}`))},
			StateNeedsPerson, `unknown phase "Verifying"`, "Unknown  "},
		{"Off before it was Ready again", NodeFacts{Node: node(ready, record(old))}, StateUnfenceable, "No controller",
			"Unknown  "},
		{"silent for long, with an Event whose remedy is to wait", NodeFacts{Node: node(silentForLong, answers),
			Events: ownEvents(Event{At: ago(time.Minute), Reason: string(reason.PowerOffLimit), Text: "Others first."})},
			StateNeedsPerson, "Others first. It should have gone on by itself", "Unknown racks/1 drill"},
		{"Off since it is Ready: another machine's device",
			NodeFacts{Node: node(ready, answered(corev1.ConditionFalse, time.Minute, "SaysOff",
				"The machine is Off (racks/1: Off).", "Off", drill.DeviceAnswer{Device: "racks/1", Power: "Off"}))}, StateUnfenceable, "Off", "Off racks/1 drill"},
		{"a drill's unknown is newer than the fence's Off", NodeFacts{Node: node(ready, refused, record(old))},
			StateUnfenceable, "denied", "Unknown  drill"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.Key, tt.seen.Now = taint.DefaultKey, now
			n := NodeOf(tt.seen)
			if n.State != tt.state || !strings.Contains(n.Next, tt.next) ||
				tt.next == "" && n.State != StateNeedsPerson && n.Next != "" {
				t.Errorf("got %s, %q, want %s, %q", n.State, n.Next, tt.state, tt.next)
			}
			leftOff := n.State == StateNotReady && strings.Contains(n.Next, "left it off") // a person may power it on
			if (n.State == StateNeedsPerson) != (n.Runbook != "" && n.Command != "" &&
				n.State != StateUnfenceable && n.State != StateFine && !leftOff) {
				t.Errorf("state %s: got section %q and command %q", n.State, n.Runbook, n.Command)
			}
			if got := n.Machine.Power + " " + n.Machine.By + " " + n.Machine.From; got != tt.power {
				t.Errorf("machine: got %q, want %q", got, tt.power)
			}
		})
	}
}

// A person begins with a command for that node, which kubectl alone can run.
func TestCommand(t *testing.T) {
	const inPod = "kubectl -n home exec deploy/forcefence -- /ko-app/forcefence "
	gone := taint.Record{}.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now)
	gone.PowerOffTo = []taint.DeviceRef{{Device: "racks/1"}}
	for _, tt := range []struct {
		name    string
		facts   NodeFacts
		section reason.Section
		want    string
	}{
		{"fine", NodeFacts{Node: node(ready, answers)}, "", ""},
		{"a drill failed", NodeFacts{Node: node(ready, refused)}, reason.SectionDrillFailing, inPod + "explain n4"},
		{"no proof", NodeFacts{Node: node(silent, refused)}, reason.SectionUnproven, inPod + "explain n4"},
		{"a volume hangs", NodeFacts{Node: node(silent, record(taint.Record{Phase: taint.PhaseEvicting})),
			NeedsPerson: "pv-7 hangs"}, reason.SectionMarkStuck, "forcefence timeline n4"},
		{"held back", NodeFacts{Node: node(silentForLong, answers),
			Events: ownEvents(Event{At: now, Reason: string(reason.DomainLost),
				Text: "Zone a is lost."})}, reason.SectionStorm,
			inPod + "explain n4"},
		{"its machine is left on", NodeFacts{Node: node(silent, answers,
			condition(taint.PoweredOnCondition, corev1.ConditionTrue, 30*time.Second, "", ""))}, reason.SectionLeftOn,
			inPod + "explain n4"},
		{"a wrong mark", NodeFacts{Node: node(ready, answers, marked)}, reason.SectionNothing,
			"forcefence release n4"},
		{"left off", NodeFacts{Node: node(silent, record(gone))}, reason.SectionNothing, inPod + "power on n4 --yes"},
	} {
		tt.facts.Key, tt.facts.Now, tt.facts.Namespace = taint.DefaultKey, now, "home"
		if got := NodeOf(tt.facts); got.Runbook != tt.section || got.Command != tt.want {
			t.Errorf("%s: got %q, %q, want %q, %q", tt.name, got.Runbook, got.Command, tt.section, tt.want)
		}
	}
}

// A person may say that the machine of a silent node is off, unless a device says On.
func TestOfferMark(t *testing.T) {
	event := func(why reason.Reason) []Event {
		return ownEvents(Event{At: now, Reason: string(why), Text: "."})
	}
	const mark = "kubectl taint node n4 forcefence.io/node-shutdown=manual:NoSchedule"
	for _, tt := range []struct {
		name  string
		facts NodeFacts
		want  string
	}{
		{"its device is mute", NodeFacts{Node: node(silentForLong, answers), Events: event(reason.Unknown)}, mark},
		{"its device is mute, and a person's word is read", NodeFacts{Node: node(silentForLong, answers),
			Events: event(reason.Unknown), ReadsConfirmation: true}, "forcefence confirm-off n4 --reason TEXT"},
		{"no device", NodeFacts{Node: node(silent), NoDevice: "no rule matches the node"}, mark},
		{"its device is mute, for a minute", NodeFacts{Node: node(silent, answers), Events: event(reason.Unknown)}, ""},
		{"its devices disagree", NodeFacts{Node: node(silentForLong, answers), Events: event(reason.Disagree)}, ""},
		{"it did not go off", NodeFacts{Node: node(silentForLong, answers), Events: event(reason.PowerOffFailed)}, ""},
		{"its device says On since", NodeFacts{Node: node(silentForLong, answersNow)}, ""},
		{"its device was mute, and says On since", NodeFacts{Node: node(silentForLong, answersNow),
			Events: ownEvents(Event{At: ago(time.Minute), Reason: string(reason.Unknown), Text: "."})}, ""},
		{"its device said On, and is mute since", NodeFacts{Node: node(silentForLong, answersNow),
			Events: event(reason.Unknown)}, mark},
		{"in mode shadow", NodeFacts{Node: node(silentForLong, answers, inShadow), Events: event(reason.Unknown)}, ""},
		{"ready", NodeFacts{Node: node(ready, refused)}, ""},
	} {
		tt.facts.Key, tt.facts.Now = taint.DefaultKey, now
		if got := NodeOf(tt.facts).verdict.then.Line; got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Policies that ended pods without proof are shown while the node is not Ready.
func TestPolicies(t *testing.T) {
	n := node(silent)
	n.Annotations[taint.PolicyAnnotation] = taint.NewLook(n, nil, taint.DefaultKey, providers.InstantOf(now),
		providers.InstantOf(now)).EncodeAnnouncement("longhorn", "accept-duplicates", now)
	if got := NodeOf(NodeFacts{Node: n, Key: taint.DefaultKey, Now: now}).Policies; len(got) != 1 ||
		got[0] != "longhorn" {
		t.Errorf("got %q", got)
	}
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	if got := NodeOf(NodeFacts{Node: n, Key: taint.DefaultKey, Now: now}).Policies; len(got) != 0 {
		t.Errorf("not Ready again: got %q", got)
	}
}

// A state has its own beginning: that of the outage, of the fence's phase, of the drill that failed, or of the moment
// from which on a person is needed.
func TestSince(t *testing.T) {
	evicting := taint.Record{}.EnterPhase(taint.PhaseEvicting, "", ago(10*time.Second))
	done := evicting.EnterPhase(taint.PhaseDone, taint.ResultEvicted, ago(5*time.Second))
	isOn := condition(taint.PoweredOnCondition, corev1.ConditionTrue, 20*time.Second, "", "")
	failed := condition(taint.FenceableCondition, corev1.ConditionFalse, 2*time.Minute, "MachineNotAnswering", "No.")
	for _, tt := range []struct {
		name  string
		facts NodeFacts
		want  time.Duration // before now; 0: unknown
	}{
		{"fine since it is Ready", NodeFacts{Node: node(ready, answers)}, time.Hour},
		{"a drill failed while it is Ready", NodeFacts{Node: node(ready, failed)}, 2 * time.Minute},
		{"left alone: no fact says since when", NodeFacts{Node: node(ready, answers,
			annotation(fence.PausedAnnotation, "new disk"))}, 0},
		{"silent", NodeFacts{Node: node(silent, answers)}, time.Minute},
		{"fenced in this outage", NodeFacts{Node: node(silent, record(done))}, 5 * time.Second},
		{"under way", NodeFacts{Node: node(silent, record(evicting))}, 10 * time.Second},
		{"silent for long", NodeFacts{Node: node(silentForLong, answers)}, time.Minute},
		{"silent and on", NodeFacts{Node: node(silent, answers, isOn)}, 20 * time.Second},
	} {
		tt.facts.Key, tt.facts.Now = taint.DefaultKey, now
		got := NodeOf(tt.facts).Since
		if tt.want == 0 && got != nil || tt.want != 0 && (got == nil || !got.Equal(ago(tt.want))) {
			t.Errorf("%s: got %v, want %s ago", tt.name, got, tt.want)
		}
	}
}

// forcefence notices a silent node by its Lease, before the node becomes not Ready, and says why once. That explains
// the outage. What was before the kubelet's last status does not.
func TestExplanationBeforeNotReady(t *testing.T) {
	n := node(silentForLong, answers)
	n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(ago(7 * time.Minute))
	for since, want := range map[time.Duration]string{
		6*time.Minute + 20*time.Second: "Its device is mute.", 8 * time.Minute: "Nothing proves",
	} {
		got := NodeOf(NodeFacts{Node: n, Key: taint.DefaultKey, Now: now, Events: ownEvents(
			Event{At: ago(since), Reason: string(reason.Unknown), Text: "Its device is mute."})})
		if !strings.Contains(got.Next, want) {
			t.Errorf("an Event of %s ago: got %q, want %q", since, got.Next, want)
		}
	}
}

// A Fencing whose alert is a reason alone: the reason's Event says what it means, or else the remedy what to do.
func TestAlertOfAReason(t *testing.T) {
	evicting := taint.Record{}.EnterPhase(taint.PhaseEvicting, "", ago(10*time.Minute))
	lost := Event{At: ago(9 * time.Minute), Reason: string(reason.ProofLost), Text: "It is no longer proven off."}
	newer := Event{At: ago(4 * time.Minute), Reason: string(reason.NeedsPerson), Text: "It cannot end by itself."}
	for _, tt := range []struct {
		alert   string
		events  []Event
		section reason.Section
		want    string
	}{
		{"WaitingForDetach: a volume stays: pv-1", nil, reason.SectionMarkStuck,
			"A person should look: a volume stays: pv-1"},
		{"a volume: it stays", nil, reason.SectionMarkStuck, "A person should look: a volume: it stays"},
		{"ProofLost", ownEvents(lost, newer), reason.SectionProofLost,
			"It is no longer proven off. Look at the device."},
		{"ProofLost", nil, reason.SectionProofLost, "The machine is no longer proven off: no more pods are ended until it is. Look at the device."},
	} {
		got := NodeOf(NodeFacts{Node: node(silent, record(evicting)), Key: taint.DefaultKey, Now: now,
			NeedsPerson: tt.alert, Events: tt.events})
		if got.Next != tt.want || got.Runbook != tt.section {
			t.Errorf("got %q (%s), want %q (%s)", got.Next, got.Runbook, tt.want, tt.section)
		}
	}
}

// A person is needed since the Fencing says so, since the false Off was noticed, or since the mark was set.
func TestNeedsPersonSince(t *testing.T) {
	evicting := taint.Record{}.EnterPhase(taint.PhaseEvicting, "", ago(10*time.Minute))
	lied := evicting.EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, ago(3*time.Minute))
	marked := node(ready, answers)
	marked.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "manual", ago(time.Minute))
	for _, tt := range []struct {
		facts NodeFacts
		want  time.Duration
	}{
		{NodeFacts{Node: node(silent, record(evicting)), NeedsPerson: "a volume stays",
			NeedsPersonSince: ago(2 * time.Minute)}, 2 * time.Minute},
		{NodeFacts{Node: node(ready, record(lied))}, 3 * time.Minute},
		{NodeFacts{Node: marked}, time.Minute},
	} {
		tt.facts.Key, tt.facts.Now = taint.DefaultKey, now
		got := NodeOf(tt.facts)
		if got.State != StateNeedsPerson || got.Since == nil || !got.Since.Equal(ago(tt.want)) {
			t.Errorf("got %s since %v, want it %s ago", got.State, got.Since, tt.want)
		}
	}
}

// An On from before the outage is shown as what it was, with its age.
func TestPowerFromBeforeTheOutage(t *testing.T) {
	was := answered(corev1.ConditionTrue, 2*time.Minute, "MachineAnswers", "The machine is On (racks/1: On).", "On", racksSaysOn)
	for _, tt := range []struct {
		name          string
		node          *corev1.Node
		power, former string
	}{
		{"silent", node(silent, was), "Unknown", "On"},
		{"ready", node(ready, was), "On", ""},
		{"a fence's On of the outage before", node(silent, condition(taint.PoweredOnCondition, corev1.ConditionTrue,
			2*time.Minute, "", "")), "Unknown", "On"},
		{"a drill's Off", node(silent, answered(corev1.ConditionTrue, 2*time.Minute, "MachineAnswers", "", "Off")),
			"Unknown", ""},
	} {
		m := NodeOf(NodeFacts{Node: tt.node, Key: taint.DefaultKey, Now: now}).Machine
		if m.Power != tt.power || m.Former != tt.former || m.At == nil {
			t.Errorf("%s: got %+v, want %s, formerly %q, with its time", tt.name, m, tt.power, tt.former)
		}
	}
}

// What a person types about the mark names the configured key.
func TestAdviceNamesTheKey(t *testing.T) {
	const key = "example.net/off"
	for _, row := range reason.Table() {
		facts := NodeFacts{Node: node(silent), Key: key, Now: now}
		if got := facts.withAdvice(row.Reason, ""); strings.Contains(got, taint.DefaultKey) {
			t.Errorf("%s: got %q, want the key %s", row.Reason, got, key)
		}
	}
	facts := NodeFacts{Node: node(silent), Key: key, Now: now}
	if got := facts.withAdvice(reason.MarkNotTaken, ""); !strings.HasSuffix(got, "kubectl taint node n4 "+key+"-.") {
		t.Errorf("got %q, want the key %s", got, key)
	}
}
