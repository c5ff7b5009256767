package proof

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

var now = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// answer is one that was asked for a second ago and took the time.
func answer(s providers.PowerState, took time.Duration) providers.Answer {
	at := now.Add(-time.Second)
	return providers.Answer{Observation: providers.Observation{State: s, Raw: s.String(), At: at}, By: "rack",
		Got: at.Add(took)}
}

const (
	on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown
)

// devices are named a, b, c, and stand in these levels.
func devices(levels ...int) []Device {
	out := make([]Device, len(levels))
	for i, l := range levels {
		out[i] = Device{Name: string(rune('a' + i)), Level: l,
			Machine: taint.MachineRef{Provider: "rack", ID: string(rune('a' + i))}}
	}
	return out
}

// Answers decide once those still missing can add nothing that is worth the wait. What only feeds the machine decides
// by an Off alone.
func TestDecided(t *testing.T) {
	feeds := func(d []Device, which ...int) []Device {
		for _, i := range which {
			d[i].Feeds = true
		}
		return d
	}
	bmcAndOutlets := feeds(devices(0, 1, 1), 1, 2)
	const none = providers.PowerState(99) // no answer yet
	for _, tt := range []struct {
		name string
		of   []Device
		say  []providers.PowerState
		want bool
	}{
		{"no device has answered", devices(0, 1), []providers.PowerState{none, none}, false},
		{"a device failed", devices(0, 1), []providers.PowerState{unknown, none}, false},
		{"off", devices(0, 1), []providers.PowerState{off, none}, true},
		{"on", devices(0, 1), []providers.PowerState{none, on}, true},
		{"changing", devices(0, 1), []providers.PowerState{changing, none}, true},
		{"a disagreement, and a third is missing", devices(0, 1, 2), []providers.PowerState{off, on, none}, true},
		{"a level with one missing", devices(0, 0), []providers.PowerState{off, none}, false},
		{"a level with one missing, and another that is off", devices(0, 0, 1),
			[]providers.PowerState{off, none, off}, true},

		{"an outlet is on", bmcAndOutlets, []providers.PowerState{none, on, none}, false},
		{"both outlets are on", bmcAndOutlets, []providers.PowerState{none, on, on}, false},
		{"both outlets are on, and the BMC failed", bmcAndOutlets, []providers.PowerState{unknown, on, on}, false},
		{"an outlet is off", bmcAndOutlets, []providers.PowerState{none, off, none}, false},
		{"one outlet is off, the other on", bmcAndOutlets, []providers.PowerState{none, off, on}, false},
		{"both outlets are off", bmcAndOutlets, []providers.PowerState{none, off, off}, true},
		{"both outlets are changing", bmcAndOutlets, []providers.PowerState{none, changing, changing}, false},
		{"the BMC says on, and no outlet answers", bmcAndOutlets, []providers.PowerState{on, none, none}, true},
		{"the BMC says off, and an outlet is on", bmcAndOutlets, []providers.PowerState{off, on, none}, true},
		{"outlets in two levels, one is on", feeds(devices(0, 1), 0, 1), []providers.PowerState{on, none}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := make([]providers.Answer, len(tt.say))
			for i, s := range tt.say {
				if s != none {
					said[i] = answer(s, time.Second)
				}
			}
			if got := IsDecided(tt.of, said); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if late := answer(off, TTL+1); IsDecided(devices(0, 1), []providers.Answer{late, {}}) {
		t.Error("an Off that was too long on its way decides")
	}
}

// Of several levels the first that says anything proves, unless another gainsays it. Of one level, Off takes every
// device.
func TestVerdict(t *testing.T) {
	feeds := func(d []Device, which ...int) []Device {
		for _, i := range which {
			d[i].Feeds = true
		}
		return d
	}
	for _, tt := range []struct {
		name string
		of   []Device
		say  []providers.PowerState // of devices a, b, c
		want providers.PowerState
		by   string // whose answer it is, where it is one's
		odds bool   // they disagree
	}{
		{name: "one, off", of: devices(0), say: []providers.PowerState{off}, want: off, by: "a"},
		{name: "one, on", of: devices(0), say: []providers.PowerState{on}, want: on, by: "a"},
		{name: "one, unknown", of: devices(0), say: []providers.PowerState{unknown}, want: unknown},

		{name: "both off", of: devices(0, 1), say: []providers.PowerState{off, off}, want: off, by: "a"},
		{name: "the first is down", of: devices(0, 1), say: []providers.PowerState{unknown, off}, want: off, by: "b"},
		{name: "the second is down", of: devices(0, 1), say: []providers.PowerState{off, unknown}, want: off, by: "a"},
		{name: "both are down", of: devices(0, 1), say: []providers.PowerState{unknown, unknown}, want: unknown},
		{name: "the second was not asked", of: devices(0, 1), say: []providers.PowerState{off}, want: off, by: "a"},
		{name: "off and on", of: devices(0, 1), say: []providers.PowerState{off, on}, want: unknown, odds: true},
		{name: "on and off", of: devices(0, 1), say: []providers.PowerState{on, off}, want: unknown, odds: true},
		{name: "on and off behind one that is down", of: devices(0, 1, 2),
			say: []providers.PowerState{unknown, on, off}, want: unknown, odds: true},
		{name: "two off, the third on", of: devices(0, 1, 2), say: []providers.PowerState{off, off, on}, want: unknown,
			odds: true},
		{name: "off and changing", of: devices(0, 1), say: []providers.PowerState{off, changing}, want: changing,
			by: "b"},
		{name: "changing and off", of: devices(0, 1), say: []providers.PowerState{changing, off}, want: changing,
			by: "a"},
		{name: "on and changing", of: devices(0, 1), say: []providers.PowerState{on, changing}, want: on, by: "a"},
		{name: "on behind one that is down", of: devices(0, 1), say: []providers.PowerState{unknown, on}, want: on,
			by: "b"},

		{name: "its feed is on", of: feeds(devices(0, 1), 1), say: []providers.PowerState{off, on}, want: off, by: "a"},
		{name: "its feed is on, and first", of: feeds(devices(0, 1), 0), say: []providers.PowerState{on, off},
			want: off, by: "b"},
		{name: "its feed is off", of: feeds(devices(0, 1), 1), say: []providers.PowerState{unknown, off}, want: off,
			by: "b"},
		{name: "its feed is off, and it says on", of: feeds(devices(0, 1), 1), say: []providers.PowerState{on, off},
			want: unknown, odds: true},
		{name: "only its feed answers: on", of: feeds(devices(0, 1), 1), say: []providers.PowerState{unknown, on},
			want: on, by: "b"},
		{name: "its feed is on, and it is changing", of: feeds(devices(0, 1), 0),
			say: []providers.PowerState{on, changing}, want: changing, by: "b"},

		{name: "a level, both off", of: devices(0, 0), say: []providers.PowerState{off, off}, want: off},
		{name: "a level, one not asked", of: devices(0, 0), say: []providers.PowerState{off}, want: unknown},
		{name: "a level, one unknown", of: devices(0, 0), say: []providers.PowerState{off, unknown}, want: unknown},
		{name: "a level, one changing", of: devices(0, 0), say: []providers.PowerState{off, changing}, want: changing},
		{name: "a level, one outlet is off", of: devices(0, 0), say: []providers.PowerState{off, on}, want: on},
		{name: "a level, on and unknown", of: devices(0, 0), say: []providers.PowerState{unknown, on}, want: on},
		{name: "a level, two off", of: devices(0, 0, 0), say: []providers.PowerState{off, off, unknown}, want: unknown},
		{name: "a level, three off", of: devices(0, 0, 0), say: []providers.PowerState{off, off, off}, want: off},
		{name: "a level that proves nothing, and another", of: devices(0, 0, 1),
			say: []providers.PowerState{off, unknown, off}, want: off, by: "c"},
		{name: "a level that is half off, and another that is off", of: devices(0, 0, 1),
			say: []providers.PowerState{off, on, off}, want: unknown, odds: true},
		{name: "outlets that are half off, and a BMC that says off", of: feeds(devices(0, 1, 1), 1, 2),
			say: []providers.PowerState{off, off, on}, want: off, by: "a"},
		{name: "outlets that are off, and a BMC that says on", of: feeds(devices(0, 1, 1), 1, 2),
			say: []providers.PowerState{on, off, off}, want: unknown, odds: true},
		{name: "outlets that are half off, and a BMC that is silent", of: feeds(devices(0, 1, 1), 1, 2),
			say: []providers.PowerState{unknown, off, on}, want: on},
		{name: "a level, on and changing", of: devices(0, 0), say: []providers.PowerState{changing, on}, want: on},
		{name: "a level, changing and unknown", of: devices(0, 0), say: []providers.PowerState{changing, unknown},
			want: unknown},
		{name: "off, and a level after it that is half on", of: devices(0, 1, 1),
			say: []providers.PowerState{off, on, unknown}, want: unknown, odds: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a Answers
			a.SetDevices(tt.of...)
			if !a.Answer.Got.IsZero() || a.State(0) != unknown || a.State(7) != unknown {
				t.Error("no device was asked, and there is an answer")
			}
			var said []providers.Answer
			for i, s := range tt.say { // each asked a little later, and answered in the end
				one := answer(s, 0)
				one.At, one.Got = one.At.Add(time.Duration(i)*time.Millisecond),
					one.Got.Add(time.Duration(i+1)*100*time.Millisecond)
				said = append(said, one)
			}
			a.ApplyAnswers(said...)
			v := a.Answer
			if v.State != tt.want || a.HasDisagreement() != tt.odds || (v.Err != nil) != tt.odds {
				t.Errorf("got %s, %v, want %s, a disagreement: %v", v.State, v.Err, tt.want, tt.odds)
			}
			if last := said[len(said)-1].Got; !v.Got.Equal(last) {
				t.Errorf("there at %s, want %s", v.Got, last)
			}
			if i := strings.Index("abc", tt.by); tt.by != "" && !v.At.Equal(said[i].At) {
				t.Errorf("asked at %s, want when %s was", v.At, tt.by)
			}
			for i, s := range tt.say {
				if a.State(i) != s {
					t.Errorf("device %d: %s, want %s", i, a.State(i), s)
				}
			}
			e := a.Evidence()
			if len(e) != len(tt.of) {
				t.Fatalf("%d pieces of evidence, want one of each device", len(e))
			}
			for i := range e {
				if want := tt.of[i].Name; len(e) > 1 && e[i].From != want || len(e) == 1 && e[i].From != "rack" {
					t.Errorf("evidence %d is from %s", i, e[i].From)
				}
				if len(e) > 1 && !strings.Contains(v.Raw, e[i].From+": ") {
					t.Errorf("%q does not name %s", v.Raw, e[i].From)
				}
			}
		})
	}
}

// A verdict proves for as long as the answer that it rests on: a device that is slow or down beside it neither shortens
// nor lengthens it.
func TestVerdictIsAsOldAsItsAnswer(t *testing.T) {
	old, young := answer(off, time.Millisecond), answer(off, time.Millisecond)
	old.At, old.Got = old.At.Add(-time.Minute), old.Got.Add(-time.Minute)
	for _, tt := range []struct {
		name string
		of   []Device
		say  []providers.Answer
		want providers.Instant
	}{
		{"the first's", devices(0, 1), []providers.Answer{young, old}, young.At},
		{"the first's, which is old", devices(0, 1), []providers.Answer{old, young}, old.At},
		{"of one level the oldest", devices(0, 0), []providers.Answer{young, old}, old.At},
	} {
		var a Answers
		a.SetDevices(tt.of...)
		if a.ApplyAnswers(tt.say...); !a.Answer.At.Equal(tt.want) || !a.Answer.Got.Equal(young.Got) {
			t.Errorf("%s: asked at %s, there at %s", tt.name, a.Answer.At, a.Answer.Got)
		}
	}
}

// Other devices speak for the machine: what those said that are gone does not count, and neither does what was asked of
// fewer.
func TestExpect(t *testing.T) {
	var a Answers
	a.SetDevices(devices(0)...)
	a.ApplyAnswers(answer(off, 0))
	a.SetDevices(devices(0)...)
	if a.Answer.State != off {
		t.Error("the same devices: the answer is forgotten")
	}
	before := a
	a.SetDevices(devices(0, 1)...)
	if !a.Answer.Got.IsZero() || a.State(0) != unknown {
		t.Errorf("another device speaks, too, and the answer is %s", a.Answer.State)
	}
	if before.Answer.State != off || before.State(0) != off {
		t.Error("a copy was changed")
	}
	// A round in which a device is not asked leaves nothing of its last answer.
	a.ApplyAnswers(answer(unknown, 0), answer(off, 0))
	if a.ApplyAnswers(answer(unknown, 0)); a.Answer.State != unknown {
		t.Errorf("got %s from a device that was not asked", a.Answer.State)
	}
}

// What proved in the middle and what proved the beginning both stand in the record in the end, of several devices.
func TestOffs(t *testing.T) {
	var a Answers
	a.SetDevices(devices(0, 1, 2)...)
	a.ApplyAnswers(answer(off, 0), answer(unknown, 0), answer(unknown, 0))
	rec := taint.Record{}.WithEvidence(a.Evidence()...)
	a.ApplyAnswers(answer(unknown, 0), answer(off, 0), answer(unknown, 0))
	more := a.OffEvidence(&rec)
	if len(more) != 1 || more[0].From != "b" || more[0].State != "Off" {
		t.Errorf("got %+v, want b's Off", more)
	}
	if got := len(a.OffEvidence(nil)); got != 2 {
		t.Errorf("without a record: %d Offs, want a's and b's", got)
	}
	before := a
	if a.ResetHistory(); len(a.OffEvidence(nil)) != 0 {
		t.Error("another life, and the Offs of the one before stand")
	}
	if len(before.OffEvidence(nil)) != 2 {
		t.Error("a copy was changed")
	}
	var one Answers
	one.SetDevices(devices(0)...)
	if one.ApplyAnswers(answer(off, 0)); len(one.OffEvidence(&taint.Record{})) != 0 {
		t.Error("a device alone: the record names it already")
	}
}

func TestBackoff(t *testing.T) {
	var a Answers
	a.SetDevices(devices(0)...)
	for i, tt := range []struct {
		say   providers.PowerState
		after time.Duration
	}{
		{unknown, time.Second}, {unknown, 2 * time.Second}, {changing, 4 * time.Second}, {unknown, 8 * time.Second},
		{unknown, 16 * time.Second},
		{unknown, 30 * time.Second}, {unknown, 30 * time.Second}, {on, time.Second}, {unknown, time.Second},
		{unknown, 2 * time.Second}, {off, time.Second},
	} {
		if a.ApplyAnswers(answer(tt.say, 0)); a.Backoff() != tt.after {
			t.Errorf("answer %d, %s: again after %s, want %s", i, tt.say, a.Backoff(), tt.after)
		}
	}
	for range 5 {
		a.ApplyAnswers(answer(unknown, 0))
	}
	if a.ResetHistory(); a.Backoff() != time.Second {
		t.Errorf("again: after %s", a.Backoff())
	}
}

// A write gets Sending. Behind a slow device it gets what is left of the answer, while that is worth a try.
func TestTimeToSend(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name      string
		say       providers.PowerState
		took, age time.Duration // the answer's, when it arrived and when the write is to be sent
		want      time.Duration
	}{
		{"quick", off, 50 * ms, 50 * ms, Sending},
		{"quick, just in time", off, 50 * ms, 4500 * ms, Sending},
		{"quick, later: another answer is taken", off, 50 * ms, 4501 * ms, Sending},
		{"takes 4 s", off, 4000 * ms, 4500 * ms, Sending},
		{"takes 4 s, later", off, 4000 * ms, 4501 * ms, Sending},
		{"takes 4.2 s", off, 4200 * ms, 4200 * ms, Sending},
		{"takes 4.2 s, half of the rest is left", off, 4200 * ms, 4600 * ms, 400 * ms},
		{"takes 4.2 s, less is left", off, 4200 * ms, 4601 * ms, Sending},
		{"takes 4.7 s", off, 4700 * ms, 4700 * ms, 300 * ms},
		{"takes 4.7 s, half of the rest is left", off, 4700 * ms, 4850 * ms, 150 * ms},
		{"takes 4.7 s, less is left", off, 4700 * ms, 4851 * ms, Sending},
		{"takes 4.94 s", off, 4940 * ms, 4940 * ms, 60 * ms},
		{"takes 4.94 s, the least is left", off, 4940 * ms, 4950 * ms, 50 * ms},
		{"takes 4.94 s, less is left", off, 4940 * ms, 4951 * ms, Sending},
		{"takes too long", off, 4951 * ms, 4951 * ms, Sending},
		{"is over", off, 4700 * ms, 5001 * ms, Sending},
		{"proves nothing", unknown, 4700 * ms, 4700 * ms, Sending}, // a person's word counts from the look
		{"on", on, 4700 * ms, 4700 * ms, Sending},
	} {
		a := answer(tc.say, tc.took)
		got := TimeToSend(a, a.At.Add(tc.age))
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if late := tc.age+got > TTL; late != (got == Sending && tc.age+Sending > TTL) {
			t.Errorf("%s: a write that begins within %s may begin %s after the question", tc.name, got, tc.age+got)
		}
	}
}

// The time to send is what the older clock leaves: a suspended process, or a clock that was set, lengthens none.
func TestTimeToSendByBothClocks(t *testing.T) {
	a := answer(off, 4700*time.Millisecond)
	now := a.Got
	now.Wall = now.Wall.Add(100 * time.Millisecond)
	if got, want := TimeToSend(a, now), 200*time.Millisecond; got != want {
		t.Errorf("the wall clock was set forward: got %s, want %s", got, want)
	}
}

// An Off that was on its way for too long is none, and neither is one of a device that lied.
func TestCounted(t *testing.T) {
	for _, tt := range []struct {
		say  providers.PowerState
		took time.Duration
		want providers.PowerState
	}{
		{off, TTL, off}, {off, TTL + 1, unknown}, {on, TTL + 1, on}, {changing, TTL + 1, changing},
	} {
		var a Answers
		a.SetDevices(devices(0)...)
		if a.ApplyAnswers(answer(tt.say, tt.took)); a.Answer.State != tt.want {
			t.Errorf("%s after %s: got %s, want %s", tt.say, tt.took, a.Answer.State, tt.want)
		}
	}
	for say, want := range map[providers.PowerState]providers.PowerState{off: unknown, on: on, changing: changing} {
		if got := WithoutOff(answer(say, 0)); got.State != want || errors.Is(got.Err, ErrDistrusted) != (say == off) {
			t.Errorf("a liar says %s: got %s, %v", say, got.State, got.Err)
		}
	}
}

func TestNeverOff(t *testing.T) {
	l := taint.Look{Exists: true, UID: "u", BootID: "b", LeaseRV: "8", Ready: "True"}
	r := taint.Record{NodeUID: "u", BootID: "b", LeaseRV: "7", By: "us"}
	for _, tt := range []struct {
		name   string
		change func(*taint.Look, *taint.Record)
		want   bool
	}{
		{"it is back on its old boot", func(*taint.Look, *taint.Record) {}, true},
		{"on another boot", func(l *taint.Look, _ *taint.Record) { l.BootID = "c" }, false},
		{"another Node", func(l *taint.Look, _ *taint.Record) { l.UID = "v" }, false},
		{"no heartbeat", func(l *taint.Look, _ *taint.Record) { l.LeaseRV = "7" }, false},
		{"not Ready", func(l *taint.Look, _ *taint.Record) { l.Ready = "Unknown" }, false},
		{"a person's", func(_ *taint.Look, r *taint.Record) { r.By = taint.ByPerson }, false},
		{"no boot id was known", func(l *taint.Look, r *taint.Record) { l.BootID, r.BootID = "", "" }, false},
	} {
		l, r := l, r
		tt.change(&l, &r)
		if got := WasNeverOff(l, &r); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Where boot ids tell no boots apart the device is asked which run this is: it may contradict itself.
func TestUnexplained(t *testing.T) {
	l := taint.Look{Exists: true, UID: "u", BootID: "host", LeaseRV: "8", Ready: "True"}
	r := taint.Record{NodeUID: "u", BootID: "host", LeaseRV: "7", By: "us", Run: "1"}
	for _, tt := range []struct {
		name     string
		change   func(*taint.Look, *taint.Record)
		unsaid   bool
		neverOff bool
	}{
		{"it is back", func(*taint.Look, *taint.Record) {}, true, false},
		{"its device reported no run", func(_ *taint.Look, r *taint.Record) { r.Run = "" }, false, true},
		{"started since", func(_ *taint.Look, r *taint.Record) { r.Restart = "2" }, false, false},
		{"a boot id of its own", func(l *taint.Look, _ *taint.Record) { l.BootID = "c" }, false, false},
		{"no heartbeat", func(l *taint.Look, _ *taint.Record) { l.LeaseRV = "7" }, false, false},
		{"not Ready", func(l *taint.Look, _ *taint.Record) { l.Ready = "Unknown" }, false, false},
		{"a person's", func(_ *taint.Look, r *taint.Record) { r.By = taint.ByPerson }, false, false},
	} {
		l, r := l, r
		tt.change(&l, &r)
		if got := NeedsExplanation(l, &r); got != tt.unsaid {
			t.Errorf("%s: unexplained %v", tt.name, got)
		}
		if got := WasNeverOff(l, &r); got != tt.neverOff {
			t.Errorf("%s: never off %v", tt.name, got)
		}
	}
}

// Of several devices the record keeps the first one that reports a run. What that device reports later is compared with
// it, and no other's reports are.
func TestRunOfSeveralDevices(t *testing.T) {
	telling := func(runs ...string) (a Answers) {
		a.SetDevices(devices(0, 1, 2)[:len(runs)]...)
		var all []providers.Answer
		for _, run := range runs {
			one := answer(off, 0)
			one.Run = run
			all = append(all, one)
		}
		a.ApplyAnswers(all...)
		return a
	}
	for _, tt := range []struct{ runs, run, by string }{
		{"", "", ""}, {"1", "1", "a"}, {" 1", "1", "b"}, {"1 2", "1", "a"}, {" 2 3", "2", "b"}, {"  ", "", ""},
	} {
		if run, by := telling(strings.Split(tt.runs, " ")...).MachineRun(); run != tt.run || by != tt.by {
			t.Errorf("%q: run %q by %q", tt.runs, run, by)
		}
	}
	for _, tt := range []struct{ runs, by, want string }{
		{"1", "a", "1"}, {"1", "", "1"}, {"", "a", ""}, {"1", "b", ""}, {"1 2", "a", "1"}, {"1 2", "b", "2"},
		{"1 ", "b", ""}, {"1 2", "", ""}, {"1 2", "c", ""},
	} {
		if got := telling(strings.Split(tt.runs, " ")...).
			RunNow(&taint.Record{Run: "1", RunBy: tt.by}); got != tt.want {
			t.Errorf("%q, reported by %q: run %q now, want %q", tt.runs, tt.by, got, tt.want)
		}
	}
}

func TestEvidence(t *testing.T) {
	secret := fmt.Errorf("login with hunter2: %w", providers.ErrDenied)
	for _, tt := range []struct {
		name string
		in   providers.Answer
		want taint.Evidence
	}{
		{"answer", providers.Answer{Observation: providers.Observation{State: providers.PowerOff, Raw: "Off", At: now},
			By: "a"}, taint.Evidence{At: now.Wall, From: "a", State: "Off", Raw: "Off"}},
		{"an error's class, never its text",
			providers.Answer{Observation: providers.Observation{At: now, Raw: "x"}, By: "a", Err: secret},
			taint.Evidence{At: now.Wall, From: "a", State: "Unknown", Raw: "denied"}},
		{"time-out", providers.Answer{Observation: providers.Observation{At: now}, By: "a",
			Err: context.DeadlineExceeded},
			taint.Evidence{At: now.Wall, From: "a", State: "Unknown", Raw: "unreachable"}},
	} {
		if got := evidenceOf(tt.in); got != tt.want {
			t.Errorf("%s: Evidence = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The On of a device that only feeds the machine contradicts an Off, unless another device knows the machine's state.
func TestWhatContradictsAnOff(t *testing.T) {
	for _, tt := range []struct {
		name        string
		bmc, outlet providers.PowerState
		want        []bool // by device
	}{
		{"a dead server whose outlet is on", providers.PowerOff, providers.PowerOn, []bool{false, false}},
		{"the BMC lost its power, and the outlet was switched on", providers.PowerUnknown, providers.PowerOn,
			[]bool{false, true}},
		{"both are on", providers.PowerOn, providers.PowerOn, []bool{true, false}},
		{"both are off", providers.PowerOff, providers.PowerOff, []bool{false, false}},
	} {
		var a Answers
		a.SetDevices(Device{Name: "bmc"}, Device{Name: "outlet", Level: 1, Feeds: true})
		a.ApplyAnswers(providers.Answer{Observation: providers.Observation{State: tt.bmc, At: now}, Got: now},
			providers.Answer{Observation: providers.Observation{State: tt.outlet, At: now}, Got: now})
		for i, e := range a.Evidence() {
			if e.ContradictsOff() != tt.want[i] {
				t.Errorf("%s: %s contradicts: %t, want %t", tt.name, e.From, e.ContradictsOff(), tt.want[i])
			}
		}
	}
}

// namelessDevice answers with a state, and does not say of which machine.
type namelessDevice struct{ state providers.PowerState }

func (d namelessDevice) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{State: d.state, At: now}, nil
}

func (namelessDevice) PowerOff(context.Context, providers.Target, func() error) error { return nil }

func (namelessDevice) PowerOn(context.Context, providers.Target, func() error) error { return nil }

// A device that has named the machine says On or Changing, and names no machine any more. It may still be this one. So
// another device's Off is no proof, and the record says that an On contradicts it.
func TestOffBesideAnOnWithoutTheName(t *testing.T) {
	for _, tt := range []struct {
		nameless providers.PowerState
		want     providers.PowerState // the verdict beside another device's Off
		disagree bool
	}{
		{providers.PowerOn, providers.PowerUnknown, true},
		{providers.PowerChanging, providers.PowerChanging, false},
		{providers.PowerOff, providers.PowerOff, false}, // by the other device alone
	} {
		target := providers.Target{Node: "n1", SystemUUID: "4c4c4544-0042-3510-8052-b4c04f4d3732", Identified: true}
		clock := func() providers.Instant { return now }
		nameless := providers.Ask(t.Context(), namelessDevice{tt.nameless}, "bmc", target, clock)
		if !errors.Is(nameless.Err, providers.ErrIdentity) || nameless.State == providers.PowerOff {
			t.Errorf("%s without a name: got %s, %v, want an identity error and no Off", tt.nameless, nameless.State,
				nameless.Err)
		}
		off := answer(providers.PowerOff, 0)
		for i, answers := range [][]providers.Answer{{nameless, off}, {off, nameless}} {
			var a Answers
			a.SetDevices(devices(0, 1)...)
			a.ApplyAnswers(answers...)
			if a.Answer.State != tt.want || a.HasDisagreement() != tt.disagree {
				t.Errorf("%s without a name beside an Off: got %s, %v, want %s", tt.nameless, a.Answer.State,
					a.Answer.Err, tt.want)
			}
			if on := a.Evidence()[i]; on.ContradictsOff() != tt.disagree {
				t.Errorf("%s without a name: %+v contradicts: %t, want %t", tt.nameless, on, !tt.disagree, tt.disagree)
			}
		}
	}
}

// A device that leads to no machine is recorded by its name alone.
func TestSpeakersOf(t *testing.T) {
	m := taint.MachineRef{Provider: "racks", ID: "7"}
	all := []Device{{Name: "kim"}, {Name: "racks/7", Machine: m}}
	got := SpeakersOf(all)
	if want := []taint.DeviceRef{{Device: "kim"}, {Device: "racks/7", Machine: &m}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if name, machine := RecordedDevice(all); name != "kim" || machine != nil {
		t.Errorf("the first: got %q, %v, want kim without a machine", name, machine)
	}
}
