package fence

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// fenced is a node whose machine we powered off, and whose fence has been done for two minutes.
func fenced(change ...func(*View)) View {
	return dead(append([]func(*View){noWork, recorded(taint.PhaseDone, taint.ResultEvicted, 2*time.Minute), func(v *View) {
		v.After = AfterFence{PowerOn: true, Delay: time.Minute, PerDay: 2, Again: time.Hour}
		r := v.Look.Record
		r.Since, r.PowerOff, r.OffBy = ago(4*time.Minute).Wall, true, proof.Speakers(v.Devices)
	}}, change...)...)
}

// ons are power-ons that were announced so long ago, the first first.
func ons(after taint.After, d ...time.Duration) func(*View) {
	return func(v *View) {
		v.Look.Record.After = after
		for _, d := range d {
			v.Look.Record.PowerOns = append(v.Look.Record.PowerOns, ago(d).Wall)
		}
	}
}

// mine is the last of them: this process wrote it down, and has not sent it.
func mine(v *View) { v.Announced = v.Look.Record.LastPowerOn() }

func wasOn(d time.Duration) func(*View) { return func(v *View) { v.LastOn = ago(d) } }

// onAt makes a device report On by itself, that long ago.
func onAt(d time.Duration) func(*View) { return func(v *View) { v.Fleet.OnAt = ago(d) } }

func becomes(after taint.After, why reason.Reason) Decision {
	return Decision{Act: Write, Why: why, Record: taint.Record{After: after}}
}

// What becomes of a machine once its fence is done.
func TestAfterwards(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown
	set := func(f func(*View)) func(*View) { return f }
	rests := Decision{Act: Wait, Why: reason.StaysDead, After: recheck}
	fresh := saying(off, 100*time.Millisecond)
	heldUp := func(why string) Decision {
		return Decision{Act: Wait, Why: reason.PowerOnHeldUp, Detail: why, After: recheck}
	}
	announce := becomes(taint.AfterPowerOn, reason.PoweringOn)
	send := Decision{Act: PowerOn, Why: reason.PoweringOn, Devices: []int{0}}
	sentFor := func(d time.Duration) func(*View) { return ons(taint.AfterPowerOn, d) }
	limit := Decision{Act: Wait, Why: reason.PowerOnLimit, Detail: "2 times in the last 24 hours", After: recheck}
	for _, tt := range []struct {
		name string
		view View
		want Decision // of Record only After is compared
	}{
		{"nothing asked since", fenced(), Decision{Act: Ask, Why: reason.Asking}},
		{"asked before its end", fenced(saying(off, 121*time.Second)), Decision{Act: Ask, Why: reason.Asking}},
		{"off", fenced(fresh), announce},
		{"off too long ago", fenced(saying(off, proof.TTL)), Decision{Act: Ask, Why: reason.Asking}},
		{"changing", fenced(saying(changing, 500*time.Millisecond)), Decision{Act: Ask, Why: reason.Changing}},
		{"unknown", fenced(saying(unknown, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.Unknown, After: 900 * time.Millisecond}},
		{"before the delay is over",
			fenced(fresh, set(func(v *View) { v.Look.Record.At = ago(50 * time.Second).Wall })),
			Decision{Act: Wait, Why: reason.PowerOnDelay, After: 10 * time.Second}},

		// Who is left off.
		{"by default", fenced(fresh, set(func(v *View) { v.After = AfterFence{} })), rests},
		{"not turned off by us", fenced(fresh, set(func(v *View) { v.Look.Record.OffBy = nil })), rests},
		{"somebody else's mark", fenced(fresh, set(func(v *View) { v.Look.Record.By = taint.ByPerson })), rests},
		{"mode observe", fenced(fresh, observe), rests},
		{"mode shadow", fenced(fresh, set(func(v *View) { v.Mode = Shadow })), rests},
		{"mode disabled", fenced(fresh, set(func(v *View) { v.Mode = Disabled })), Decision{Act: Wait, Why: reason.ModeDisabled, After: recheck}},
		{"excluded", fenced(fresh, excluded), Decision{Act: Wait, Why: reason.Excluded, Detail: "maintenance", After: recheck}},
		{"distrusted", fenced(fresh, distrusted), Decision{Act: Wait, Why: reason.Distrusted, Detail: "n7", After: recheck}},
		{"released", fenced(fresh, set(func(v *View) { v.Look.Record.Result = taint.ResultReleased })), Decision{Act: Wait, Why: reason.Released, After: recheck}},
		{"marked again", fenced(fresh, set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "kim"} })), Decision{Act: Leave, Why: reason.Marked}},
		{"no Node", fenced(fresh, set(func(v *View) { v.Look = taint.Look{} })), Decision{Act: Leave, Why: reason.Gone}},
		{"alive since", fenced(fresh, heartbeat), Decision{Act: Wait, Why: reason.NoWork, After: recheck}},
		{"work to do", fenced(saying(off, 15*time.Millisecond), set(func(v *View) { v.Work = SomeToDo })), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"cordoned", fenced(fresh, set(func(v *View) { v.KeptOn = "it is cordoned" })), heldUp("it is cordoned")},
		{"its power must not be touched", fenced(fresh, noPower), rests},
		{"another machine by now", fenced(fresh, set(func(v *View) { v.Look.Record.OffBy[0].Machine = &taint.Machine{Provider: "rack-a", ID: "8"} })),
			heldUp("it was turned off through rack-a/7, which does not speak for the node's machine any more")},
		{"another device by now", fenced(fresh, set(func(v *View) { v.Look.Record.OffBy[0].Device = "rack-b/7" })),
			heldUp("it was turned off through rack-b/7, which does not speak for the node's machine any more")},
		{"a word of a newer version", fenced(fresh, ons("Cooled")), rests},

		// Somebody else turned it on.
		{"on", fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond)), becomes(taint.AfterCameOn, reason.CameOn)},
		{"on, and off again", fenced(fresh, wasOn(time.Minute)), becomes(taint.AfterCameOn, reason.CameOn)},
		{"on before its end", fenced(fresh, wasOn(3*time.Minute)), announce},
		{"started and ended since, by its run", fenced(set(func(v *View) {
			v.Look.Record.Run, v.Look.Record.RunBy = "r1", "rack-a/7"
			a := answer(off, 100*time.Millisecond)
			a.Run = "r2"
			heard(v, a)
		})), becomes(taint.AfterCameOn, reason.CameOn)},
		{"it stays on", fenced(fresh, ons(taint.AfterCameOn)), rests},

		// Announced: it is sent once, on a look and an answer of now, and then looked at.
		{"announced: send", fenced(fresh, sentFor(time.Second), mine), send},
		{"announced: looked before the answer", fenced(saying(off, 15*time.Millisecond), sentFor(time.Second), mine), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"announced: off too long ago", fenced(saying(off, proof.TTL), sentFor(6*time.Second), mine), Decision{Act: Ask, Why: reason.Asking}},
		{"announced: on by now", fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond), sentFor(time.Second), mine), becomes(taint.AfterPoweredOn, reason.CameUp)},
		{"announced: a device told of On since the answer", fenced(fresh, sentFor(time.Second), mine, onAt(50*time.Millisecond)),
			Decision{Act: Ask, Why: reason.Asking}},
		{"announced: a device told of On before the answer",
			fenced(fresh, sentFor(time.Second), mine, onAt(time.Second)), send},
		{"announced: excluded since", fenced(fresh, sentFor(time.Second), mine, excluded), Decision{Act: Wait, Why: reason.Excluded, Detail: "maintenance", After: recheck}},
		{"announced: the mode changed since", fenced(fresh, sentFor(time.Second), mine, observe), rests},
		{"announced long ago by us, not sent", fenced(fresh, sentFor(5*time.Minute), mine), announce},
		{"announced by another process", fenced(fresh, sentFor(time.Second)), Decision{Act: Wait, Why: reason.PoweringOn, After: 4900 * time.Millisecond}},
		{"sent: asked", fenced(saying(off, 5*time.Second), sentFor(time.Minute)), Decision{Act: Ask, Why: reason.PoweringOn}},
		{"sent: refused", fenced(fresh, sentFor(time.Minute), set(func(v *View) { v.PowerOnErr = providers.ErrDenied })),
			Decision{Act: Wait, Why: reason.PowerOnRefused, Detail: "denied: access denied", After: 4900 * time.Millisecond}},
		{"sent: on", fenced(saying(on, 100*time.Millisecond), wasOn(200*time.Millisecond), sentFor(time.Minute)), becomes(taint.AfterPoweredOn, reason.CameUp)},
		{"sent: still off", fenced(fresh, sentFor(5*time.Minute)), announce},
		{"sent: still off, and work to do", fenced(fresh, sentFor(time.Minute), set(func(v *View) { v.Work = SomeToDo })), Decision{Act: Wait, Why: reason.PoweringOn, After: 4900 * time.Millisecond}},
		{"it boots", fenced(fresh, ons(taint.AfterPoweredOn, time.Minute)), Decision{Act: Wait, Why: reason.CameUp, After: 4 * time.Minute}},
		{"it boots, and work to do", fenced(saying(on, 100*time.Millisecond), ons(taint.AfterPoweredOn, time.Minute), set(func(v *View) { v.Work = SomeToDo })),
			Decision{Act: Wait, Why: reason.CameUp, After: 4 * time.Minute}},
		{"it did not come back", fenced(fresh, ons(taint.AfterPoweredOn, 5*time.Minute)), Decision{Act: Wait, Why: reason.NotBack, After: recheck}},
		{"it did not come back, and work to do", fenced(saying(on, time.Second), ons(taint.AfterPoweredOn, 5*time.Minute), set(func(v *View) { v.Work = SomeToDo })), announced},

		// As often as is allowed in a day, and not soon after each other.
		{"still off, too often", fenced(fresh, ons(taint.AfterPowerOn, time.Hour, 5*time.Minute)), limit},
		{"still off, too often since yesterday", fenced(fresh, ons(taint.AfterPowerOn, 24*time.Hour, 5*time.Minute)), announce},
		{"the other clock's count",
			fenced(fresh, ons(taint.AfterPowerOn, 6*time.Minute, 5*time.Minute),
				set(func(v *View) { v.Look.Record.PowerOns[0] = now.Add(time.Hour).Wall })), limit},
		{"fenced again just within", fenced(fresh, ons("", 64*time.Minute-time.Second)), becomes(taint.AfterFencedAgain, reason.FencedAgain)},
		{"fenced again, later", fenced(fresh, ons("", 64*time.Minute)), announce},
		{"fenced again, in mode observe", fenced(fresh, ons("", 10*time.Minute), observe), rests},
		{"fenced again: it stays off", fenced(fresh, ons(taint.AfterFencedAgain, 10*time.Minute)), rests},
	} {
		got := Step(tt.view)
		if got.Record.After != tt.want.Record.After {
			t.Errorf("%s: got after %q, want %q", tt.name, got.Record.After, tt.want.Record.After)
		}
		if got.Act == Write && got.Record.Phase == taint.PhaseDone && (got.Record.ID != "f1" || !got.Record.At.Equal(tt.view.Look.Record.At) || got.Record.Result != taint.ResultEvicted) {
			t.Errorf("%s: got record %+v, want the fence's own", tt.name, got.Record)
		}
		if got.Why == reason.PoweringOn && got.Act == Write && !got.Record.LastPowerOn().Equal(now.Wall) {
			t.Errorf("%s: got power-ons %v, want that of now", tt.name, got.Record.PowerOns)
		}
		got.Record, tt.want.Record = taint.Record{}, taint.Record{}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Of several devices it is powered on through all that it was turned off through, those that feed it first: off went through all of them
// before.
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
		"both outlets":                  {[]providers.PowerState{unknown, off, off}, []int{1, 2}, []int{1, 2}},
		"the BMC, of which all say off": {[]providers.PowerState{off, off, off}, []int{0}, []int{0}},
		"all, the outlets first":        {[]providers.PowerState{off, off, off}, []int{0, 1, 2}, []int{1, 2, 0}},
		"the BMC is to follow":          {[]providers.PowerState{unknown, off, off}, []int{0, 1, 2}, []int{1, 2}},
		"the BMC follows":               {[]providers.PowerState{off, on, on}, []int{0, 1, 2}, []int{0}},
	} {
		v := fenced(func(v *View) {
			for _, id := range []string{"1", "2"} {
				v.Devices = append(v.Devices, proof.Device{Name: "strip/" + id, Machine: taint.Machine{Provider: "strip", ID: id}, Level: 1, Feeds: true})
			}
			v.Look.Record.OffBy = nil
			for _, i := range tt.offBy {
				v.Look.Record.OffBy = append(v.Look.Record.OffBy, proof.Speakers(v.Devices)[i])
			}
		}, ons(taint.AfterPowerOn, time.Second), mine, say(tt.states...))
		if d := Step(v); d.Act != PowerOn || !slices.Equal(d.Devices, tt.want) {
			t.Errorf("%s: got %s (%s) through %v, want %v", name, d.Act, d.Why, d.Devices, tt.want)
		}
	}
}

// Where one of the devices that it was turned off through must not touch the machine by now, none is used: another device that may does not
// make up for that.
func TestNotPoweredOnThrough(t *testing.T) {
	v := fenced(two, func(v *View) {
		v.Look.Record.OffBy = proof.Speakers(v.Devices)
		v.Devices[1].NoPower = "never pinned"
	}, both(providers.PowerOff, providers.PowerOff, 100*time.Millisecond))
	if v.NoPower() != "" {
		t.Fatal("no device may touch the machine: that is another case")
	}
	if d := Step(v); d.Act != Wait || d.Why != reason.PowerOnHeldUp || d.Detail != "never pinned" {
		t.Errorf("got %s (%s, %s), want it held up", d.Act, d.Why, d.Detail)
	}
}

// The record names whom a power-off of ours went through, where that is how the machine went off, and keeps it while the machine stays off.
func TestOffBy(t *testing.T) {
	const off = providers.PowerOff
	offBy := func(v *View) {
		v.Look.Record.OffBy, v.Look.Record.After = proof.Speakers(v.Devices), taint.AfterFencedAgain
		v.Look.Record.PowerOns = []time.Time{ago(time.Hour).Wall}
	}
	earlier := func(res taint.Result) func(*View) { return recorded(taint.PhaseDone, res, 10*time.Minute) }
	for name, tt := range map[string]struct {
		view View
		want int // how many
	}{
		"accepted":                           {dead(powering, sent(time.Second), saying(off, 100*time.Millisecond)), 1},
		"not accepted":                       {dead(powering, refusedAt(0, time.Second), saying(off, 100*time.Millisecond)), 0},
		"never sent":                         {dead(powering, saying(off, 100*time.Millisecond)), 0},
		"one accepted, one lost":             {dead(two, oneLevel, powering, sent(time.Second), refusedAt(1, time.Second), both(off, off, 100*time.Millisecond)), 2},
		"one accepted, one refused for good": {dead(two, oneLevel, powering, sent(time.Second), forGood(1, time.Second), both(off, off, 100*time.Millisecond)), 1},
		"accepted, and then not":             {dead(powering, sent(20*time.Second), forGood(0, time.Second), saying(off, 100*time.Millisecond)), 1},
		"by itself":                          {dead(saying(off, 100*time.Millisecond)), 0},
		"off since an earlier fence":         {dead(earlier(taint.ResultEvicted), offBy, saying(off, 100*time.Millisecond)), 1},
		"off since a lifted one":             {dead(earlier(taint.ResultLifted), offBy, saying(off, 100*time.Millisecond)), 1},
		"on since then":                      {dead(earlier(taint.ResultLifted), offBy, wasOn(time.Minute), saying(off, 100*time.Millisecond)), 0},
		"alive since then":                   {dead(earlier(taint.ResultEvicted), offBy, heartbeat, saying(off, 100*time.Millisecond)), 0},
	} {
		d := Step(tt.view)
		if d.Act != Arm || len(d.Record.OffBy) != tt.want {
			t.Errorf("%s: got %s (%s), off by %v, want %d", name, d.Act, d.Why, d.Record.OffBy, tt.want)
		}
		if old := tt.view.Look.Record; old != nil && len(old.PowerOns) != len(d.Record.PowerOns) {
			t.Errorf("%s: got power-ons %v, want those of the earlier fence", name, d.Record.PowerOns)
		}
		if kept := d.Record.After != ""; kept != (tt.view.Look.Record != nil && tt.view.Look.Record.After != "" && tt.want > 0) {
			t.Errorf("%s: got after %q", name, d.Record.After)
		}
	}
	d := Step(dead(earlier(taint.ResultEvicted), offBy, saying(providers.PowerOn, time.Second)))
	if d.Why != reason.Announcing || d.Record.OffBy != nil || d.Record.After != "" || len(d.Record.PowerOns) != 1 {
		t.Errorf("announced anew: got %s (%s) with %+v, want nothing of before but the power-ons", d.Act, d.Why, d.Record)
	}
}
