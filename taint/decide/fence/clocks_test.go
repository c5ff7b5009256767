package fence

import (
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// clocks is now after the process's machine was suspended for so long, or after its wall clock was set by so much.
func clocks(d time.Duration) func(*View) {
	return func(v *View) {
		v.Seen = v.Seen.WithRecord(v.Look.Record, v.Now)
		v.Now.Wall = v.Now.Wall.Add(d)
	}
}

// What must be fresh is as old as the larger age of both clocks. What must have lasted counts only the time in which
// the process ran.
func TestFreshByBothClocks(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	const long = 10 * time.Minute
	lookedSince := func(d time.Duration) func(*View) { // the look was sent after a suspension of d
		return func(v *View) {
			v.Look.Sent.Wall, v.Look.Got.Wall = v.Look.Sent.Wall.Add(d), v.Look.Got.Wall.Add(d)
			clocks(d)(v)
		}
	}
	send := []func(*View){powering, sent(30 * time.Second), saying(on, time.Second)}
	and := func(changes []func(*View), more ...func(*View)) []func(*View) {
		return append(slices.Clone(changes), more...)
	}
	fresh := saying(off, 100*time.Millisecond)
	offSince := func(v *View) { // an Off of after a suspension, on a look of before it
		clocks(long)(v)
		a := answer(off, time.Second)
		a.At.Wall = v.Now.Wall
		heard(v, a)
	}
	for _, tt := range []struct {
		name string
		view View
		act  action.Action
	}{
		{"an Off", dead(fresh), action.SetMark{}},
		{"an Off of before a suspension", dead(fresh, lookedSince(long)), action.AskDevices{}},
		{"an Off of before a short suspension", dead(fresh, lookedSince(10*time.Second)), action.AskDevices{}},
		{"an Off, and the wall clock was set back", dead(fresh, clocks(-long)), action.SetMark{}},
		{"an Off and a look of before a suspension", dead(fresh, clocks(long)), action.AskDevices{}},
		{"an Off without a look since", dead(saying(off, 0), clocks(long)), action.AskDevices{}},
		{"an answer that it must wait after", dead(saying(on, time.Second), observe), action.Wait{}},
		{"an answer of before a suspension", dead(saying(on, time.Second), observe, clocks(long)), action.AskDevices{}},
		{"a power-off", dead(send...), action.PowerOff{}},
		{"a power-off on an On of before a suspension", dead(and(send, lookedSince(long))...), action.AskDevices{}},
		{"a power-off on an On of before a short suspension", dead(and(send, lookedSince(7*time.Second))...),
			action.AskDevices{}},
		{"a power-off on a look of before a suspension", dead(and(send, clocks(long))...), action.ReadNode{}},
		{"a power-off, and the wall clock was set back", dead(and(send, clocks(-long))...), action.PowerOff{}},
		{"a power-on", fenced(fresh, ons(taint.AfterFencePowerOn, time.Second), mine), action.PowerOn{}},
		{"a power-on on a look of before a suspension",
			fenced(ons(taint.AfterFencePowerOn, time.Second), mine, offSince),
			action.ReadNode{}},
		{"the grace does not go by during a suspension", dead(saying(on, 0), justNow, clocks(long)),
			action.AskDevices{}},
	} {
		if d := Step(tt.view); kind(d) != action.Name(tt.act) {
			t.Errorf("%s: got %s (%s), want %s", tt.name, kind(d), d.Reason, action.Name(tt.act))
		}
	}
	v := dead(saying(on, 0), justNow, func(v *View) {
		clocks(long)(v)
		v.Answers.Answer.Got = v.Now
	})
	if d := Step(v); d.Reason != reason.InGrace {
		t.Errorf("a silence of a second before a suspension: got %s (%s), want %s", kind(d), d.Reason, reason.InGrace)
	}
}
