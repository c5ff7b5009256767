package drill

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

const (
	// maxAnswers is how many devices' answers a Node holds: more than any rule has levels and devices.
	maxAnswers = 16
	// maxName bounds the name of a device, and the place of a password, in bytes.
	maxName = 160
	// maxAnnotation bounds the annotation in bytes: maxAnswers answers in JSON.
	maxAnnotation = 8 << 10
)

// Answers is what a node's devices answered in a drill, as the Node's annotation taint.DrillAnnotation holds it. It is
// only shown: no decision reads it, and it proves nothing. A kubelet's credential may have written it.
type Answers struct {
	// At is when the answers were first these: each drill since then got the same ones. It is the heartbeat of the
	// condition taint.FenceableCondition, which the same write sets.
	At      time.Time            `json:"at"`
	Power   providers.PowerState `json:"-"`    // the combined answer
	Word    string               `json:"word"` // Power's name
	Devices []DeviceAnswer       `json:"devices,omitempty"`
	// Shadow says that the node was in mode shadow then: no fence of it would have begun.
	Shadow bool `json:"shadow,omitempty"`
}

// DeviceAnswer is what one device answered.
type DeviceAnswer struct {
	Device string `json:"device"` // provider/device
	Power  string `json:"power"`  // On, Off, Changing or Unknown
	// Problem is why the answer does not count, a word as Device.Result has it; "": it counts.
	Problem string `json:"problem,omitempty"`
	// Refused is where the password is that the device refuses (providers.RefusedPassword); "": it refuses none.
	Refused string `json:"refused,omitempty"`
}

// describe returns the answer as people read it: "racks/1: On", "racks/1: denied".
func (d DeviceAnswer) describe() string {
	switch {
	case d.Refused != "":
		return d.Device + ": refuses the password in " + d.Refused
	case d.Problem != "":
		return d.Device + ": " + d.Problem
	}
	return d.Device + ": " + d.Power
}

// Remedy returns what to do about the first device whose answer does not count; "": look at the device, and at the
// network to it.
func (a Answers) Remedy() string {
	i := slices.IndexFunc(a.Devices, func(d DeviceAnswer) bool { return d.Problem != "" })
	if i < 0 {
		return ""
	}
	switch d := a.Devices[i]; {
	case d.Refused != "":
		return "Write the password that the device accepts into that file's Secret. The next drill sends it."
	case d.Problem == "identity":
		return "The device belongs to another machine: correct the rule, or the cable or slot."
	case d.Problem == "untrusted":
		return "Correct its caFile or fingerprints."
	}
	return ""
}

// AnswersOf returns the answers of a drill, as many as the annotation may hold. At is not set.
func AnswersOf(s Facts) Answers {
	a := Answers{Power: s.Verdict.State, Word: s.Verdict.State.String(), Shadow: s.Shadow}
	for _, d := range s.Devices[:min(len(s.Devices), maxAnswers)] {
		a.Devices = append(a.Devices, d.summarize())
	}
	for len(a.Encode(time.Time{})) > maxAnnotation {
		a.Devices = a.Devices[:len(a.Devices)-1]
	}
	return a
}

// summarize returns the device's answer in bounded words.
func (d Device) summarize() DeviceAnswer {
	a := DeviceAnswer{Device: clipName(d.Name), Power: d.Answer.State.String(), Problem: d.Result()}
	if a.Problem == "ok" {
		a.Problem = ""
	}
	if refused := (*providers.RefusedPassword)(nil); errors.As(d.Answer.Err, &refused) {
		a.Refused = clipName(refused.Place)
	}
	return a
}

// clipName cuts a text to maxName bytes.
func clipName(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxName)], "")
}

// Encode returns the annotation's value for answers that are these since that time.
func (a Answers) Encode(at time.Time) string {
	a.At = at.UTC().Truncate(time.Second)
	text, _ := json.Marshal(a) // never fails: a year that JSON cannot write is no clock's
	return string(text)
}

// AnswersIn reads the answers of a Node's last drill. It returns the zero value, whose power is Unknown, if there are
// none, if they cannot be read, or if another write has changed the condition since: older controllers write the
// condition alone.
func AnswersIn(node *corev1.Node) (a Answers) {
	text := node.Annotations[taint.DrillAnnotation]
	if len(text) > maxAnnotation || json.Unmarshal([]byte(text), &a) != nil || len(a.Devices) > maxAnswers ||
		!a.At.Equal(taint.Condition(node, taint.FenceableCondition).LastHeartbeatTime.Truncate(time.Second)) {
		return Answers{}
	}
	a.Power, _ = providers.ParsePowerState(a.Word)
	for i, d := range a.Devices {
		if power, _ := providers.ParsePowerState(d.Power); power.String() != d.Power {
			a.Devices[i].Power = power.String()
		}
	}
	return a
}

// IsSame reports whether both are the same answers, no matter since when.
func (a Answers) IsSame(b Answers) bool {
	return a.Power == b.Power && a.Shadow == b.Shadow && slices.Equal(a.Devices, b.Devices)
}

// Describe returns the device's name if there is one and it answered, and otherwise the answer of each.
func (a Answers) Describe() string {
	if len(a.Devices) == 1 && a.Devices[0].Problem == "" {
		return a.Devices[0].Device
	}
	var each []string
	for _, d := range a.Devices {
		each = append(each, d.describe())
	}
	return strings.Join(each, ", ")
}

// IsPartial reports whether some of several devices gave no answer that counts.
func (a Answers) IsPartial() bool {
	return len(a.Devices) > 1 &&
		slices.ContainsFunc(a.Devices, func(d DeviceAnswer) bool { return d.Problem != "" })
}
