package fence

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// Mode says what may be done about a node that does not answer. The zero value observes.
type Mode uint8

// The modes.
const (
	Observe   Mode = iota // recover from a machine that is off; report one that is on, and keep watching
	Fence                 // power off a machine that is on after the grace period, and recover from it
	Shadow                // decide as in Fence, report what would be done, and begin nothing
	Disabled              // ask no device, and begin nothing
	OnRequest             // as Fence while a request for the node counts, else as Observe
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Observe, OnRequest, Fence, Shadow, Disabled} }

// modesBySafety lists the modes, from the one that does the least.
var modesBySafety = []Mode{Disabled, Shadow, Observe, OnRequest, Fence}

// String returns the mode's name in the configuration.
func (m Mode) String() string {
	switch m {
	case Observe:
		return "observe"
	case Fence:
		return "fence"
	case Shadow:
		return "shadow"
	case Disabled:
		return "disabled"
	case OnRequest:
		return "onRequest"
	default:
		return "mode " + strconv.Itoa(int(m))
	}
}

// ParseMode returns the mode of that name, and whether there is one.
func ParseMode(name string) (Mode, bool) {
	i := slices.IndexFunc(modesBySafety, func(m Mode) bool { return m.String() == name })
	if i < 0 {
		return 0, false
	}
	return modesBySafety[i], true
}

// SaferMode returns the mode that does less. A mode that this version does not know does the least: nothing is done in
// it, which is reported.
func SaferMode(a, b Mode) Mode {
	if slices.Index(modesBySafety, a) < slices.Index(modesBySafety, b) {
		return a
	}
	return b
}

// MayAct reports whether anything may begin in this mode: a mark, a power-off, a policy's act, or the fence of a
// person's mark.
func (m Mode) MayAct() bool { return m == Observe || m == Fence || m == OnRequest }

// MayPowerOff reports whether a machine that is on may ever be powered off in this mode.
func (m Mode) MayPowerOff() bool { return m == Fence || m == OnRequest }

// EffectiveMode returns the mode that counts now. OnRequest is Fence while a request for the node counts, and Observe
// otherwise. A request permits a power-off; it proves nothing.
func (f Facts) EffectiveMode() Mode {
	switch {
	case f.Mode != OnRequest:
		return f.Mode
	case f.RequestedBy != "":
		return Fence
	default:
		return Observe
	}
}

// whyObserved says why a machine that is on is only watched, for a person.
func (f Facts) whyObserved() string {
	if f.Mode == OnRequest {
		return "mode onRequest waits for a request"
	}
	return "mode observe"
}

// ModeAnnotation lowers the mode of its Node. It cannot raise it: a Node's own kubelet can write it.
const ModeAnnotation = "forcefence.io/mode"

// ChosenMode is a node's mode.
type ChosenMode struct {
	Mode          Mode
	By            string        // what chose it, for a person
	PowerOffAfter time.Duration // zero: that of Settings
}

// ModeRule chooses the mode of the nodes that it matches.
type ModeRule struct {
	Matches func(*corev1.Node) bool
	ChosenMode
}

// LoweredBy returns the mode as the Node's annotations lower it. An unknown word was meant to prevent something, so
// nothing is done, as in Disabled.
func (c ChosenMode) LoweredBy(annotations map[string]string) ChosenMode {
	text, ok := annotations[ModeAnnotation]
	if !ok {
		return c
	}
	m, known := ParseMode(strings.TrimSpace(text))
	by := "annotation " + ModeAnnotation
	if !known {
		m, by = Disabled, fmt.Sprintf("%s, whose value %s is not a mode", by, quoteText(text))
	}
	if now := SaferMode(m, c.Mode); now != c.Mode {
		c.Mode, c.By = now, by
	}
	return c
}

// shadowDecision replaces the first action of a fence by a report that it would be done. What began in another mode is
// ended in any mode.
func (v View) shadowDecision(d action.Decision) action.Decision {
	rec := action.RecordOf(d.Action)
	rec.ID = "" // no fence begins
	why, would := reason.WouldRecover, action.Action(action.SetMark{Record: rec})
	switch {
	case action.Is[action.WriteRecord](d) && rec.Phase == taint.PhasePoweringOff:
		why, would = reason.WouldPowerOff, action.WriteRecord{Record: rec}
	case !action.Is[action.SetMark](d):
		return d
	}
	if slices.Contains(v.Memory.Reported, why) {
		why = reason.Shadowed
	}
	return action.Decision{
		Action: action.Wait{}, Reason: why, Detail: evidenceText(rec.Evidence), RequeueAfter: pollOn,
		Would: action.ShadowDecision{Action: would},
	}
}

// evidenceText returns evidence in words.
func evidenceText(all []taint.Evidence) string {
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s said %s (%q) at %s",
			e.From, e.State, e.Raw, e.At.UTC().Format(time.TimeOnly)))
	}
	return strings.Join(out, ", ")
}

// quoteText quotes text that any client may have written on a Node, for an Event.
func quoteText(text string) string { return strconv.Quote(providers.ErrorText(errors.New(text))) }
