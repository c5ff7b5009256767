package evict

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// TestEachStepHasItsTime plays a fence that waits long for its proof and then goes on. The wait alerts once, and each
// later step only after its own time.
func TestEachStepHasItsTime(t *testing.T) {
	limit := evicting(proven).Settings.DetachTimeout
	var m Memory
	m.id = "f1"
	decide := func(sinceMark time.Duration, change ...with) action.Decision {
		v := evicting(change...)
		r := v.Look.Record.EnterPhase(taint.PhaseEvicting, "", ago(sinceMark).Wall)
		v.Look.Record = &r
		v.Memory.timer = m.timer
		d := Step(v)
		// The table's now is fixed, so the times that the memory has move into the past.
		m.ApplyDecision(d, v.Now)
		return d
	}
	later := func(d time.Duration) {
		if !m.timer.began.IsZero() {
			m.timer.began = m.timer.began.Add(-d)
		}
	}
	lost := []with{saying(providers.PowerUnknown, 1e8), pods(pod("p"))}
	marked := time.Duration(0)
	for _, at := range []struct {
		after time.Duration
		want  string
		view  []with
	}{
		{time.Second, "", lost},
		{limit + time.Second, string(reason.ProofLost), lost},
		{limit + time.Minute, string(reason.ProofLost), lost},
		{time.Second, "", []with{proven, pods(pod("p"))}},
		{time.Second, "", []with{proven, pods(pod("t", tomb)), lists(pvA)}},
		{time.Second, "", []with{proven, attached("a")}},
		{limit - time.Minute, "", []with{proven, attached("a")}},
		{time.Minute + time.Second, string(reason.WaitingDetach), []with{proven, attached("a")}},
	} {
		marked += at.after
		later(at.after)
		if d := decide(marked, at.view...); d.Alert != at.want {
			t.Errorf("%s after %s: got the alert %q, want %q", d.Reason, at.after, d.Alert, at.want)
		}
	}
}
