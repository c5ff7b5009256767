package fence

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// fenced is a node whose machine we powered off, and whose fence has been done for two minutes.
func fenced(change ...func(*View)) View {
	return dead(
		append([]func(*View){noWork, recorded(taint.PhaseDone, taint.ResultEvicted, 2*time.Minute), func(v *View) {
			v.Facts.AfterFence = AfterFence{PowerOn: true, Delay: time.Minute, PerDay: 2, Again: time.Hour}
			r := v.Look.Record
			r.Since, r.PowerOff, r.OffBy = ago(4*time.Minute).Wall, true, proof.SpeakersOf(v.Facts.Devices)
		}}, change...)...)
}

// ons are power-ons that were announced so long ago, the first first.
func ons(after taint.AfterFence, d ...time.Duration) func(*View) {
	return func(v *View) {
		v.Look.Record.AfterFence = after
		for _, d := range d {
			v.Look.Record.PowerOns = append(v.Look.Record.PowerOns, ago(d).Wall)
		}
	}
}

// mine is the last of them: this process wrote it down, and has not sent it.
func mine(v *View) { v.Memory.PowerOns.Announced = v.Look.Record.LastPowerOn() }

func wasOn(d time.Duration) func(*View) { return func(v *View) { v.Memory.PowerOns.LastOn = ago(d) } }

// onAt makes a device report On by itself, that long ago.
func onAt(d time.Duration) func(*View) { return func(v *View) { v.Fleet.OnAt = ago(d) } }

func becomes(after taint.AfterFence, why reason.Reason) action.Decision {
	return action.Decision{Action: action.WriteRecord{Record: taint.Record{AfterFence: after}}, Reason: why}
}

// What becomes of a machine once its fence is done.
func TestAfterwards(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging,
		providers.PowerUnknown
	set := func(f func(*View)) func(*View) { return f }
	rests := waits(reason.StaysDead, recheckEvery)
	fresh := saying(off, 100*time.Millisecond)
	heldUp := func(why string) action.Decision {
		return detailed(waits(reason.PowerOnHeldUp, recheckEvery), why)
	}
	announce := becomes(taint.AfterFencePowerOn, reason.PoweringOn)
	send := action.Decision{Action: action.PowerOn{Devices: []int{0}}, Reason: reason.PoweringOn}
	sentFor := func(d time.Duration) func(*View) { return ons(taint.AfterFencePowerOn, d) }
	limit := detailed(waits(reason.PowerOnLimit, recheckEvery), "2 times in the last 24 hours")
	for _, tt := range []struct {
		name string
		view View
		want action.Decision // of Record only AfterFence is compared
	}{
		{"nothing asked since", fenced(), asks(reason.Asking)},
		{"asked before its end", fenced(saying(off, 121*time.Second)), asks(reason.Asking)},
		{"off", fenced(fresh), announce},
		{"off too long ago", fenced(saying(off, proof.TTL)), asks(reason.Asking)},
		{"changing", fenced(saying(changing, 500*time.Millisecond)), asks(reason.Changing)},
		{"unknown", fenced(saying(unknown, 100*time.Millisecond)), waits(reason.Unknown, 900*time.Millisecond)},
		{"before the delay is over",
			fenced(fresh, set(func(v *View) { v.Look.Record.At = ago(50 * time.Second).Wall })),
			waits(reason.PowerOnDelay, 10*time.Second)},

		// Who is left off.
		{"by default", fenced(fresh, set(func(v *View) { v.Facts.AfterFence = AfterFence{} })), rests},
		{"not turned off by us", fenced(fresh, set(func(v *View) { v.Look.Record.OffBy = nil })), rests},
		{"a person's mark", fenced(fresh, set(func(v *View) { v.Look.Record.By = taint.ByPerson })), rests},
		{"mode observe", fenced(fresh, observe), rests},
		{"mode shadow", fenced(fresh, set(func(v *View) { v.Facts.Mode = Shadow })), rests},
		{"mode disabled", fenced(fresh, set(func(v *View) { v.Facts.Mode = Disabled })),
			waits(reason.ModeDisabled, recheckEvery)},
		{"excluded", fenced(fresh, excluded), detailed(waits(reason.Excluded, recheckEvery), "maintenance")},
		{"distrusted", fenced(fresh, distrusted), detailed(waits(reason.Distrusted, recheckEvery), "n7")},
		{"released", fenced(fresh, set(func(v *View) { v.Look.Record.Result = taint.ResultReleased })),
			waits(reason.Released, recheckEvery)},
		{"marked again", fenced(fresh, set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "kim"} })),
			leaves(reason.Marked)},
		{"no Node", fenced(fresh, set(func(v *View) { v.Look = taint.Look{} })), leaves(reason.Gone)},
		{"alive since", fenced(fresh, heartbeat), waits(reason.NoWork, recheckEvery)},
		{"work to do", fenced(saying(off, 15*time.Millisecond), set(func(v *View) { v.PendingWork = WorkConfirmed })),
			looks(reason.LookedTooEarly)},
		{"cordoned", fenced(fresh, set(func(v *View) { v.Facts.KeptOn = "the node is cordoned" })),
			heldUp("the node is cordoned")},
		{"its power must not be touched", fenced(fresh, noPower), rests},
		{"another machine by now",
			fenced(fresh,
				set(func(v *View) { v.Look.Record.OffBy[0].Machine = &taint.MachineRef{Provider: "rack-a", ID: "8"} })),
			heldUp("it was powered off through rack-a/7, which no longer speaks for the node's machine")},
		{"another device by now", fenced(fresh, set(func(v *View) { v.Look.Record.OffBy[0].Device = "rack-b/7" })),
			heldUp("it was powered off through rack-b/7, which no longer speaks for the node's machine")},
		{"a word of a newer version", fenced(fresh, ons("Cooled")), rests},

		// A person or another program turned it on.
		{"on", fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond)),
			becomes(taint.AfterFenceCameOn, reason.CameOn)},
		{"on, and off again", fenced(fresh, wasOn(time.Minute)), becomes(taint.AfterFenceCameOn, reason.CameOn)},
		{"on before its end", fenced(fresh, wasOn(3*time.Minute)), announce},
		{"started and ended since, by its run", fenced(set(func(v *View) {
			v.Look.Record.Run, v.Look.Record.RunBy = "r1", "rack-a/7"
			a := answer(off, 100*time.Millisecond)
			a.Run = "r2"
			heard(v, a)
		})), becomes(taint.AfterFenceCameOn, reason.CameOn)},
		{"it stays on", fenced(fresh, ons(taint.AfterFenceCameOn)), rests},

		// Announced: it is sent once, on a look and an answer of now, and then looked at.
		{"announced: send", fenced(fresh, sentFor(time.Second), mine), send},
		{"announced: looked before the answer", fenced(saying(off, 15*time.Millisecond), sentFor(time.Second), mine),
			looks(reason.LookedTooEarly)},
		{"announced: off too long ago", fenced(saying(off, proof.TTL), sentFor(6*time.Second), mine),
			asks(reason.Asking)},
		{"announced: on by now",
			fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond), sentFor(time.Second), mine),
			becomes(taint.AfterFencePoweredOn, reason.CameUp)},
		{"announced: a device reported On after the answer",
			fenced(fresh, sentFor(time.Second), mine, onAt(50*time.Millisecond)),
			asks(reason.Asking)},
		{"announced: a device reported On before the answer",
			fenced(fresh, sentFor(time.Second), mine, onAt(time.Second)), send},
		{"announced: excluded since", fenced(fresh, sentFor(time.Second), mine, excluded),
			detailed(waits(reason.Excluded, recheckEvery), "maintenance")},
		{"announced: the mode changed since", fenced(fresh, sentFor(time.Second), mine, observe), rests},
		{"announced long ago by us, not sent", fenced(fresh, sentFor(5*time.Minute), mine), announce},
		{"announced by another process", fenced(fresh, sentFor(time.Second)),
			waits(reason.PoweringOn, 4900*time.Millisecond)},
		{"sent: asked", fenced(saying(off, 5*time.Second), sentFor(time.Minute)), asks(reason.PoweringOn)},
		{"sent: refused",
			fenced(fresh, sentFor(time.Minute), set(func(v *View) { v.Memory.PowerOns.Err = providers.ErrDenied })),
			detailed(waits(reason.PowerOnRefused, 4900*time.Millisecond), "denied: access denied")},
		{"sent: on", fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond), sentFor(time.Minute)),
			becomes(taint.AfterFencePoweredOn, reason.CameUp)},
		{"sent: still off", fenced(fresh, sentFor(5*time.Minute)), announce},
		{"sent: still off, and work to do",
			fenced(fresh, sentFor(time.Minute), set(func(v *View) { v.PendingWork = WorkConfirmed })),
			waits(reason.PoweringOn, 4900*time.Millisecond)},
		{"it boots", fenced(fresh, ons(taint.AfterFencePoweredOn, time.Minute)), waits(reason.CameUp, 4*time.Minute)},
		{"it boots, and work to do",
			fenced(saying(on, 100*time.Millisecond), ons(taint.AfterFencePoweredOn, time.Minute),
				set(func(v *View) { v.PendingWork = WorkConfirmed })),
			waits(reason.CameUp, 4*time.Minute)},
		{"it did not come back", fenced(fresh, ons(taint.AfterFencePoweredOn, 5*time.Minute)),
			waits(reason.NotBack, recheckEvery)},
		{"it did not come back, and work to do",
			fenced(saying(on, time.Second), ons(taint.AfterFencePoweredOn, 5*time.Minute),
				set(func(v *View) { v.PendingWork = WorkConfirmed })), announced},

		// As often as is allowed in a day, and not soon after each other.
		{"still off, too often", fenced(fresh, ons(taint.AfterFencePowerOn, time.Hour, 5*time.Minute)), limit},
		{"still off, too often since yesterday",
			fenced(fresh, ons(taint.AfterFencePowerOn, 24*time.Hour, 5*time.Minute)), announce},
		{"the other clock's count",
			fenced(fresh, ons(taint.AfterFencePowerOn, 6*time.Minute, 5*time.Minute),
				set(func(v *View) { v.Look.Record.PowerOns[0] = now.Add(time.Hour).Wall })), limit},
		{"fenced again just within", fenced(fresh, ons("", 64*time.Minute-time.Second)),
			becomes(taint.AfterFenceFencedAgain, reason.FencedAgain)},
		{"fenced again, later", fenced(fresh, ons("", 64*time.Minute)), announce},
		{"fenced again, in mode observe", fenced(fresh, ons("", 10*time.Minute), observe), rests},
		{"fenced again: it stays off", fenced(fresh, ons(taint.AfterFenceFencedAgain, 10*time.Minute)), rests},
	} {
		got := Step(tt.view)
		rec := recordOf(got)
		if want := recordOf(tt.want).AfterFence; rec.AfterFence != want {
			t.Errorf("%s: got after %q, want %q", tt.name, rec.AfterFence, want)
		}
		if action.Is[action.WriteRecord](got) && rec.Phase == taint.PhaseDone &&
			(rec.ID != "f1" || !rec.At.Equal(tt.view.Look.Record.At) || rec.Result != taint.ResultEvicted) {
			t.Errorf("%s: got record %+v, want the fence's own", tt.name, rec)
		}
		if got.Reason == reason.PoweringOn && action.Is[action.WriteRecord](got) && !rec.LastPowerOn().Equal(now.Wall) {
			t.Errorf("%s: got power-ons %v, want that of now", tt.name, rec.PowerOns)
		}
		got, tt.want = withRecord(got, taint.Record{}), withRecord(tt.want, taint.Record{})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Of several devices it is powered on through all that it was turned off through, those that feed it first: off went
// through all of them before.
func TestPoweredOnThrough(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	say := func(states ...providers.PowerState) func(*View) {
		return func(v *View) {
			var all []providers.Answer
			for _, s := range states {
				all = append(all, answer(s, 100*time.Millisecond))
			}
			heard(v, all...)
		}
	}
	for name, tt := range map[string]struct {
		states []providers.PowerState // of the BMC and two outlets of another level
		offBy  []int
		want   []int
	}{
		"both outlets":             {[]providers.PowerState{unknown, off, off}, []int{1, 2}, []int{1, 2}},
		"the BMC, and all say off": {[]providers.PowerState{off, off, off}, []int{0}, []int{0}},
		"all, the outlets first":   {[]providers.PowerState{off, off, off}, []int{0, 1, 2}, []int{1, 2, 0}},
		"the BMC is to follow":     {[]providers.PowerState{unknown, off, off}, []int{0, 1, 2}, []int{1, 2}},
		"the BMC follows":          {[]providers.PowerState{off, on, on}, []int{0, 1, 2}, []int{0}},
	} {
		v := fenced(func(v *View) {
			for _, id := range []string{"1", "2"} {
				v.Facts.Devices = append(v.Facts.Devices,
					proof.Device{Name: "strip/" + id, Machine: taint.MachineRef{Provider: "strip", ID: id}, Level: 1,
						Feeds: true})
			}
			v.Look.Record.OffBy = nil
			for _, i := range tt.offBy {
				v.Look.Record.OffBy = append(v.Look.Record.OffBy, proof.SpeakersOf(v.Facts.Devices)[i])
			}
		}, ons(taint.AfterFencePowerOn, time.Second), mine, say(tt.states...))
		d := Step(v)
		if a, ok := d.Action.(action.PowerOn); !ok || !slices.Equal(a.Devices, tt.want) {
			t.Errorf("%s: got %s (%s) through %v, want %v", name, kind(d), d.Reason, a.Devices, tt.want)
		}
	}
}

// After a power-on through outlets that do not answer now, a BMC's Off may be that of a machine that did not boot. It is
// powered on through nothing else.
func TestOutletsDoNotAnswer(t *testing.T) {
	for after, want := range map[taint.AfterFence]reason.Reason{
		"": reason.Unknown, taint.AfterFencePowerOn: reason.NotBack,
	} {
		v := fenced(two, func(v *View) {
			v.Look.Record.OffBy = proof.SpeakersOf(v.Facts.Devices)[1:]
			v.Facts.Devices[1].Level = 1
		}, both(providers.PowerOff, providers.PowerUnknown, 100*time.Millisecond), func(v *View) {
			if after != "" {
				ons(after, 5*time.Minute)(v)
			}
		})
		if d := Step(v); !action.Is[action.Wait](d) || d.Reason != want {
			t.Errorf("after %q: got %s (%s), want to wait (%s)", after, kind(d), d.Reason, want)
		}
	}
}

// Where one of the devices that it was turned off through must not touch the machine by now, none is used: another
// device that may does not make up for that.
func TestNotPoweredOnThrough(t *testing.T) {
	v := fenced(two, func(v *View) {
		v.Look.Record.OffBy = proof.SpeakersOf(v.Facts.Devices)
		v.Facts.Devices[1].NoPower = "never pinned"
	}, both(providers.PowerOff, providers.PowerOff, 100*time.Millisecond))
	if v.Facts.NoPower() != "" {
		t.Fatal("no device may touch the machine: that is another case")
	}
	if d := Step(v); !action.Is[action.Wait](d) || d.Reason != reason.PowerOnHeldUp || d.Detail != "never pinned" {
		t.Errorf("got %s (%s, %s), want it held up", kind(d), d.Reason, d.Detail)
	}
}

// The record names the devices that powered the machine off, if that is how it went off, and keeps them while the
// machine stays off.
func TestRecordNamesPowerOffDevices(t *testing.T) {
	const off = providers.PowerOff
	offBy := func(v *View) {
		v.Look.Record.OffBy, v.Look.Record.AfterFence = proof.SpeakersOf(v.Facts.Devices), taint.AfterFenceFencedAgain
		v.Look.Record.PowerOns = []time.Time{ago(time.Hour).Wall}
	}
	earlier := func(res taint.Result) func(*View) { return recorded(taint.PhaseDone, res, 10*time.Minute) }
	for name, tt := range map[string]struct {
		view View
		want int // how many
	}{
		"accepted": {dead(powering, sent(time.Second), saying(off, 100*time.Millisecond)), 1},
		"not accepted": {
			dead(powering, refusedAt(0, time.Second), saying(off, 100*time.Millisecond)), 0},
		"never sent": {dead(powering, saying(off, 100*time.Millisecond)), 0},
		"one accepted, one lost": {
			dead(two, oneLevel, powering, sent(time.Second), refusedAt(1, time.Second),
				both(off, off, 100*time.Millisecond)), 2},
		"one accepted, one refused for good": {
			dead(two, oneLevel, powering, sent(time.Second), forGood(1, time.Second),
				both(off, off, 100*time.Millisecond)), 1},
		"accepted, and then not": {
			dead(powering, sent(20*time.Second), forGood(0, time.Second), saying(off, 100*time.Millisecond)), 1},
		"by itself":                  {dead(saying(off, 100*time.Millisecond)), 0},
		"off since an earlier fence": {dead(earlier(taint.ResultEvicted), offBy, saying(off, 100*time.Millisecond)), 1},
		"off since a lifted one":     {dead(earlier(taint.ResultLifted), offBy, saying(off, 100*time.Millisecond)), 1},
		"on since then": {
			dead(earlier(taint.ResultLifted), offBy, wasOn(time.Minute), saying(off, 100*time.Millisecond)), 0},
		"alive since then": {dead(earlier(taint.ResultEvicted), offBy, heartbeat, saying(off, 100*time.Millisecond)),
			0},
	} {
		d := Step(tt.view)
		if !action.Is[action.SetMark](d) || len(recordOf(d).OffBy) != tt.want {
			t.Errorf("%s: got %s (%s), off by %v, want %d", name, kind(d), d.Reason, recordOf(d).OffBy, tt.want)
		}
		if old := tt.view.Look.Record; old != nil && len(old.PowerOns) != len(recordOf(d).PowerOns) {
			t.Errorf("%s: got power-ons %v, want those of the earlier fence", name, recordOf(d).PowerOns)
		}
		if kept := recordOf(d).
			AfterFence != ""; kept != (tt.view.Look.Record != nil && tt.view.Look.Record.AfterFence != "" &&
			tt.want > 0) {
			t.Errorf("%s: got after %q", name, recordOf(d).AfterFence)
		}
	}
	d := Step(dead(earlier(taint.ResultEvicted), offBy, saying(providers.PowerOn, time.Second)))
	if d.Reason != reason.Announcing || recordOf(d).OffBy != nil || recordOf(d).AfterFence != "" ||
		len(recordOf(d).PowerOns) != 1 {
		t.Errorf("announced again: got %s (%s) with %+v, want nothing of before but the power-ons", kind(d), d.Reason,
			recordOf(d))
	}
}
