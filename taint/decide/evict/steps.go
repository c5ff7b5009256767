package evict

import (
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// maxStepsTimed is how many steps of one mark get their own time. A fence has about ten. A user who creates pods on the
// node, or a device that changes its answer, can make more: then the last timed step's time goes on, and an alert
// comes.
const maxStepsTimed = 16

// stepTimer is when the step of a mark began that is under way. The zero value: no step was seen yet, and the time
// since the record's phase counts.
type stepTimer struct {
	step  reason.Reason
	began providers.Instant // zero: the first step that this process saw, which may have begun before
	timed int               // how many steps got their own time
}

// stepOf returns the step that a decision belongs to; "": it belongs to the step that is under way. A question and a
// write of the record come between two waits, and a retry follows an act.
func stepOf(d action.Decision) reason.Reason {
	switch d.Action.(type) {
	case action.EndPods, action.ClearVolumes, action.DeletePods, action.SparePods:
		return d.Reason
	case action.Wait:
		if d.Reason == reason.Retrying || d.Reason == reason.StockEviction || d.Reason == reason.Confirming {
			return ""
		}
		return d.Reason
	default:
		return ""
	}
}

// ApplyDecision folds in what was decided under the mark, so that the next step has its own time until an alert.
func (m *Memory) ApplyDecision(d action.Decision, at providers.Instant) {
	step := stepOf(d)
	if m.id == "" || step == "" || step == m.timer.step {
		return
	}
	if m.timer.step != "" && m.timer.timed < maxStepsTimed {
		m.timer.began = at
		m.timer.timed++
	}
	m.timer.step = step
}

// stepAge returns how long the step lasts to which the decision belongs. A step that begins with the decision lasts
// since now.
func (v View) stepAge(d action.Decision) time.Duration {
	t, step := v.Memory.timer, stepOf(d)
	if step != "" && t.step != "" && step != t.step && t.timed < maxStepsTimed {
		return 0
	}
	age := v.ageOf(v.Look.Record.At)
	if !t.began.IsZero() {
		age = min(age, t.began.Lasted(v.Now))
	}
	return age
}

// isOverdue reports whether the step to which the decision belongs lasts so long that a person should look.
func (v View) isOverdue(d action.Decision) bool { return v.stepAge(d) > v.Settings.DetachTimeout }

// overdueStep returns the step that an alert names.
func (v View) overdueStep(d action.Decision) reason.Reason {
	if step := v.Memory.timer.step; stepOf(d) == "" && step != "" {
		return step
	}
	return v.waitingReason(d)
}
