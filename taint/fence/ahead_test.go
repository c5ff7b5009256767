package fence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/proof"
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
		v.Seen = v.Seen.Saw(r, ago(seen))
	}
}

// What counts from a time of the record counts from when this process saw it first, where the clock that wrote it runs ahead.
func TestRecordOfAClockThatRunsAhead(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	delayed := func(v *View) { v.Devices[0].Limits.Delay = 5 * time.Second }
	failed := recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 0)
	lifted := recorded(taint.PhaseDone, taint.ResultLifted, 0)
	fresh := saying(off, 100*time.Millisecond)
	wait := func(why reason.Reason, after time.Duration) Decision {
		return Decision{Act: Wait, Why: why, After: after}
	}
	for _, tt := range []struct {
		name string
		view View
		want Decision // of Record nothing is compared
	}{
		{"the power-off has time", dead(powering, sent(5*time.Second), saying(on, 0), ahead(59*time.Second)), wait(reason.AwaitingOff, pollOff)},
		{"the power-off times out", dead(powering, sent(5*time.Second), saying(on, 0), ahead(61*time.Second)), Decision{Act: Write, Why: reason.PowerOffFailed}},
		{"the level's delay", dead(delayed, powering, saying(on, 0), ahead(3*time.Second)), wait(reason.LevelDelay, 2*time.Second)},
		{"the level's delay is over", dead(delayed, powering, saying(on, time.Second), ahead(6*time.Second)), Decision{Act: PowerOff, Why: reason.SendingOff}},
		{"a power-off that failed rests", dead(failed, saying(on, 0), ahead(5*time.Minute-time.Second)), wait(reason.BackingOff, time.Second)},
		{"a power-off that failed has rested", dead(failed, saying(on, 0), ahead(5*time.Minute+time.Second)), Decision{Act: Write, Why: reason.Announcing}},
		{"the mark was lifted lately", dead(lifted, fresh, ahead(rearm-time.Second)), wait(reason.Rearming, time.Second)},
		{"the mark was lifted before", dead(lifted, fresh, ahead(rearm)), Decision{Act: Arm, Why: reason.ProvenOff}},
		{"the power-on's delay", fenced(fresh, ahead(59*time.Second)), wait(reason.PowerOnDelay, time.Second)},
		{"the power-on's delay is over", fenced(fresh, ahead(2*time.Minute)), Decision{Act: Write, Why: reason.PoweringOn}},
		{"somebody turned it on since", fenced(fresh, wasOn(time.Minute), ahead(2*time.Minute)), Decision{Act: Write, Why: reason.CameOn}},
		{"it was on before", fenced(fresh, wasOn(3*time.Minute), ahead(2*time.Minute)), Decision{Act: Write, Why: reason.PoweringOn}},
		{"it may be booting", fenced(fresh, ons(taint.AfterPoweredOn, time.Minute), ahead(5*time.Minute-time.Second)), wait(reason.CameUp, time.Second)},
		{"it did not come back", fenced(fresh, ons(taint.AfterPoweredOn, time.Minute), ahead(5*time.Minute)), wait(reason.NotBack, recheck)},
		{"as many power-ons as a day may have", fenced(fresh, ons(taint.AfterPowerOn, 2, 1), ahead(23*time.Hour)),
			detailed(wait(reason.PowerOnLimit, recheck), "2 times in the last 24 hours")},
		{"they were a day ago", fenced(fresh, ons(taint.AfterPowerOn, 2, 1), ahead(24*time.Hour)), Decision{Act: Write, Why: reason.PoweringOn}},
		{"it is off since that fence", dead(fresh, recorded(taint.PhaseDone, taint.ResultEvicted, 0), wasOn(3*time.Minute), ahead(2*time.Minute), func(v *View) {
			v.Look.Record.OffBy = proof.Speakers(v.Devices)
		}), Decision{Act: Arm, Why: reason.ProvenOff}},
	} {
		got := Step(tt.view)
		rec := got.Record
		got.Record, got.Move, got.Devices = taint.Record{}, proof.Move{}, nil
		if !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		switch tt.name {
		case "they were a day ago":
			if len(rec.PowerOns) != 1 || !rec.PowerOns[0].Equal(now.Wall) {
				t.Errorf("%s: the record has power-ons of %v, want the new one", tt.name, rec.PowerOns)
			}
		case "it is off since that fence":
			if len(rec.OffBy) != 1 {
				t.Errorf("%s: the record forgot what turned it off", tt.name)
			}
		}
	}
}
