package fence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// ahead has the record written by a clock that runs an hour ahead, and first seen by this process that long ago.
func ahead(seen time.Duration) func(*View) {
	return func(v *View) {
		r := v.Look.Record
		r.At, r.Since = now.Wall.Add(time.Hour), now.Wall.Add(time.Hour-time.Minute)
		for i := range r.PowerOns {
			r.PowerOns[i] = now.Wall.Add(time.Hour + time.Duration(i))
		}
		v.Seen = v.Seen.WithRecord(r, ago(seen))
	}
}

// What counts from a time of the record counts from when this process saw it first, where the clock that wrote it runs
// ahead.
func TestRecordOfAClockThatRunsAhead(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	const s, m, h = time.Second, time.Minute, time.Hour
	delayed := func(v *View) { v.Facts.Devices[0].Limits.Delay = 5 * time.Second }
	failed := recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 0)
	lifted := recorded(taint.PhaseDone, taint.ResultLifted, 0)
	fresh := saying(off, 100*time.Millisecond)
	write := func(why reason.Reason) action.Decision {
		return action.Decision{Action: action.WriteRecord{}, Reason: why}
	}
	arm := action.Decision{Action: action.SetMark{}, Reason: reason.ProvenOff}
	send := action.Decision{Action: action.PowerOff{}, Reason: reason.SendingOff}
	minutes := func(n int) func(*View) { return ahead(time.Duration(n) * time.Minute) }
	on1, on2 := ons(taint.AfterFencePoweredOn, time.Minute), ons(taint.AfterFencePowerOn, 2, 1)
	limit := detailed(waits(reason.PowerOnLimit, recheckEvery), "2 times in the last 24 hours")
	evicted := recorded(taint.PhaseDone, taint.ResultEvicted, 0)
	offBy := func(v *View) { v.Look.Record.OffBy = proof.SpeakersOf(v.Facts.Devices) }
	announced := []func(*View){powering, sent(5 * time.Second), saying(on, 0)}
	after := func(d time.Duration, changes ...func(*View)) View { return dead(append(changes, ahead(d))...) }
	for _, tt := range []struct {
		name string
		view View
		want action.Decision // of Record nothing is compared
	}{
		{"the power-off has time", after(59*s, announced...), waits(reason.AwaitingOff, pollOff)},
		{"the power-off times out", after(61*s, announced...), write(reason.PowerOffFailed)},
		{"the level's delay", after(3*s, delayed, powering, saying(on, 0)), waits(reason.LevelDelay, 2*s)},
		{"the level's delay is over", after(6*s, delayed, powering, saying(on, s)), send},
		{"a failed power-off rests", after(5*m-s, failed, saying(on, 0)), waits(reason.BackingOff, s)},
		{"a failed power-off has rested", after(5*m+s, failed, saying(on, 0)), write(reason.Announcing)},
		{"the mark was lifted lately", after(rearmDelay-s, lifted, fresh), waits(reason.Rearming, s)},
		{"the mark was lifted before", after(rearmDelay, lifted, fresh), arm},
		{"the power-on's delay", fenced(fresh, ahead(59*s)), waits(reason.PowerOnDelay, s)},
		{"the power-on's delay is over", fenced(fresh, minutes(2)), write(reason.PoweringOn)},
		{"it was turned on since", fenced(fresh, wasOn(m), minutes(2)), write(reason.CameOn)},
		{"it was on before", fenced(fresh, wasOn(3*m), minutes(2)), write(reason.PoweringOn)},
		{"it may be booting", fenced(fresh, on1, ahead(5*m-s)), waits(reason.CameUp, s)},
		{"it did not come back", fenced(fresh, on1, minutes(5)), waits(reason.NotBack, recheckEvery)},
		{"as many power-ons as a day may have", fenced(fresh, on2, ahead(23*h)), limit},
		{"they were a day ago", fenced(fresh, on2, ahead(24*h)), write(reason.PoweringOn)},
		{"it ran since that fence", dead(fresh, evicted, wasOn(m), minutes(2), offBy), arm},
		{"it is off since that fence", dead(fresh, evicted, wasOn(3*m), minutes(2), offBy), arm},
	} {
		got := Step(tt.view)
		rec := recordOf(got)
		switch got = withRecord(got, taint.Record{}); got.Action.(type) {
		case action.PowerOff:
			got.Action = action.PowerOff{}
		case action.PowerOn:
			got.Action = action.PowerOn{}
		}
		if !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		switch tt.name {
		case "they were a day ago":
			if len(rec.PowerOns) != 1 || !rec.PowerOns[0].Equal(now.Wall) {
				t.Errorf("%s: the record has power-ons of %v, want the new one", tt.name, rec.PowerOns)
			}
		case "it ran since that fence":
			if rec.OffBy != nil {
				t.Errorf("%s: the record names %v", tt.name, rec.OffBy)
			}
		case "it is off since that fence":
			if len(rec.OffBy) != 1 {
				t.Errorf("%s: the record forgot what turned it off", tt.name)
			}
		}
	}
}
