package fence

import (
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// names are the devices' names.
func names(all []taint.DeviceRef) (out []string) {
	for _, s := range all {
		out = append(out, s.Device)
	}
	return out
}

// seenBy is a process that looked at the fence before, and has sent these power-offs since.
func seenBy(announced bool, sends ...func(*View)) func(*View) {
	return func(v *View) {
		before := v.Look
		if announced {
			old := v.Look
			old.Record = nil
			v.Memory.ApplyAnnouncement(old, *v.Look.Record)
		} else {
			v.Memory.ApplyLook(before)
		}
		for _, send := range sends {
			send(v)
		}
		v.Memory.ApplyLook(v.Look)
	}
}

// cameBack is a heartbeat that the live look shows.
func cameBack(v *View) {
	v.Look.LeaseRV = "8"
	healthy(v)
	v.Memory.ApplyLook(v.Look)
}

// A fence that ends names every device that accepted a power-off, or may have. A device that refused permanently is not
// named.
func TestPowerOffTo(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	ends := func(f func(*View)) func(*View) { return f }
	mine := func(sends ...func(*View)) func(*View) { return seenBy(true, sends...) }
	others := func(sends ...func(*View)) func(*View) { return seenBy(false, sends...) }
	late := func(v *View) { v.Look.Record.At = ago(time.Hour).Wall }
	for _, tt := range []struct {
		name   string
		view   View
		result taint.Result // "" is a mark
		want   []string
	}{
		{"one accepted, one refused, and the node came back",
			dead(two, oneLevel, powering, mine(sent(time.Second), forGood(1, time.Second)), cameBack),
			taint.ResultCancelled, []string{"rack-a/7"}},
		{"both accepted, and the node came back",
			dead(two, oneLevel, powering, mine(sent(time.Second), sentBy(1, time.Second, nil)), cameBack),
			taint.ResultCancelled, []string{"rack-a/7", "rack-b/7"}},
		{"one accepted, the other did not answer",
			dead(two, oneLevel, powering, mine(sent(time.Second), refusedAt(1, time.Second)), cameBack),
			taint.ResultCancelled, []string{"rack-a/7", "rack-b/7"}},
		{"accepted, and then refused for good",
			dead(powering, mine(sent(2*time.Second), forGood(0, time.Second)), cameBack), taint.ResultCancelled,
			[]string{"rack-a/7"}},
		{"nothing was sent", dead(powering, mine(), cameBack), taint.ResultCancelled, nil},
		{"refused for good", dead(powering, mine(forGood(0, time.Second)), cameBack), taint.ResultCancelled, nil},
		{"excluded before anything was sent", dead(powering, mine(), excluded), taint.ResultCancelled, nil},
		{"it gave up: one accepted",
			dead(two, powering, mine(sentBy(0, 15*time.Second, nil), forGood(0, 5*time.Second),
				forGood(1, time.Second)), both(on, on, 0)), taint.ResultPowerOffFailed, []string{"rack-a/7"}},
		{"it timed out", dead(powering, mine(sent(time.Second)), saying(on, 0), late), taint.ResultPowerOffFailed,
			[]string{"rack-a/7"}},
		{"it is off", dead(two, oneLevel, powering, mine(sent(time.Second), forGood(1, time.Second)),
			both(off, off, 100*time.Millisecond)), "", []string{"rack-a/7"}},
		{"another process announced it", dead(two, oneLevel, powering, others(), cameBack), taint.ResultCancelled,
			[]string{"rack-a/7", "rack-b/7"}},
		{"another process announced it, and this one is refused",
			dead(two, oneLevel, powering, others(forGood(1, time.Second)), cameBack), taint.ResultCancelled,
			[]string{"rack-a/7", "rack-b/7"}},
		{"the mark was removed",
			dead(powering, recorded(taint.PhaseEvicting, "", time.Second),
				ends(func(v *View) { v.Look.Record.PowerOffTo = proof.SpeakersOf(v.Facts.Devices) })),
			taint.ResultMarkRemoved,
			[]string{"rack-a/7"}},
		{"the configuration names it no more", dead(powering, mine(sent(time.Second)), noMachine),
			taint.ResultCancelled, []string{"rack-a/7"}},
	} {
		d := Step(tt.view)
		if recordOf(d).Result != tt.result || !action.Is[action.WriteRecord](d) && !action.Is[action.SetMark](d) {
			t.Errorf("%s: got %s (%s) with result %q, want %q", tt.name, kind(d), d.Reason, recordOf(d).Result,
				tt.result)
		}
		if got := names(recordOf(d).PowerOffTo); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got power-off to %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Every device is named in the record before a power-off is sent through it, so that a leader which dies in between
// loses none.
func TestNamedBeforePowerOff(t *testing.T) {
	const on = providers.PowerOn
	d := Step(dead(two, oneLevel, both(on, on, 100*time.Millisecond)))
	if want := []string{"rack-a/7", "rack-b/7"}; d.Reason != reason.Announcing ||
		!slices.Equal(names(recordOf(d).PowerOffTo), want) {
		t.Errorf("announcing: got %s (%s) naming %v, want %v", kind(d), d.Reason, names(recordOf(d).PowerOffTo), want)
	}
	d = Step(dead(two, both(providers.PowerUnknown, on, 100*time.Millisecond)))
	if want := []string{"rack-b/7"}; d.Reason != reason.Announcing ||
		!slices.Equal(names(recordOf(d).PowerOffTo), want) {
		t.Errorf("announcing, and the first does not answer: got %s (%s) naming %v, want %v", kind(d), d.Reason,
			names(recordOf(d).PowerOffTo), want)
	}
	only := func(v *View) { v.Look.Record.PowerOffTo = proof.SpeakersOf(v.Facts.Devices[:1]) }
	v := dead(two, powering, only, forGood(0, time.Second), both(on, on, 100*time.Millisecond))
	d = Step(v)
	if want := []string{"rack-a/7", "rack-b/7"}; !action.Is[action.WriteRecord](d) || d.Reason != reason.NextLevel ||
		recordOf(d).Phase != taint.PhasePoweringOff ||
		!recordOf(d).At.Equal(v.Look.Record.At) || !slices.Equal(names(recordOf(d).PowerOffTo), want) {
		t.Errorf("next level: got %s (%s) of %s naming %v, want %v", kind(d), d.Reason, recordOf(d).At,
			names(recordOf(d).PowerOffTo), want)
	}
	v.Look.Record.PowerOffTo = proof.SpeakersOf(v.Facts.Devices)
	d = Step(v)
	if a, ok := d.Action.(action.PowerOff); !ok || a.Move.Device != 1 {
		t.Errorf("next level, named: got %s (%s), want the power-off", kind(d), d.Reason)
	}
	other := v.Look.Record.PowerOffTo[1]
	other.Machine = &taint.MachineRef{Provider: "rack-b", ID: "8"}
	v.Look.Record.PowerOffTo[1] = other
	if d = Step(v); !action.Is[action.WriteRecord](d) {
		t.Errorf("next level, named for another machine: got %s (%s), want it named", kind(d), d.Reason)
	}
}

// The next fence of the same life still names what an earlier one turned off; a sign of life ends that.
func TestPowerOffToOfAnEarlierFence(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	earlier := func(v *View) {
		recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Hour)(v)
		v.Look.Record.PowerOffTo = []taint.DeviceRef{{Device: "strip/7"}}
	}
	if d := Step(dead(earlier, saying(on, 100*time.Millisecond))); d.Reason != reason.Announcing ||
		!slices.Equal(names(recordOf(d).PowerOffTo), []string{"strip/7", "rack-a/7"}) {
		t.Errorf("announced again: got %s (%s) naming %v", kind(d), d.Reason, names(recordOf(d).PowerOffTo))
	}
	if d := Step(dead(earlier, saying(off, 100*time.Millisecond))); !action.Is[action.SetMark](d) ||
		!slices.Equal(names(recordOf(d).PowerOffTo), []string{"strip/7"}) {
		t.Errorf("off by itself: got %s (%s) naming %v", kind(d), d.Reason, names(recordOf(d).PowerOffTo))
	}
	if d := Step(dead(earlier, heartbeat, saying(off, 100*time.Millisecond))); !action.Is[action.SetMark](d) ||
		len(recordOf(d).PowerOffTo) > 0 {
		t.Errorf("alive since: got %s (%s) naming %v", kind(d), d.Reason, names(recordOf(d).PowerOffTo))
	}
	v := dead(earlier)
	v.Memory.ApplyLook(v.Look)
	announced := recordOf(Step(dead(earlier, saying(on, 100*time.Millisecond))))
	v.Memory.ApplyAnnouncement(v.Look, announced)
	v.Look.Record = &announced
	v.Memory.ApplyLook(v.Look)
	forGood(0, time.Second)(&v)
	cameBack(&v)
	if d := Step(v); recordOf(d).Result != taint.ResultCancelled ||
		!slices.Equal(names(recordOf(d).PowerOffTo), []string{"strip/7"}) {
		t.Errorf("refused in the next fence: got %s (%s) naming %v", kind(d), d.Reason, names(recordOf(d).PowerOffTo))
	}
}
