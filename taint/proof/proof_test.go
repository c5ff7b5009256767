package proof

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// answer is one that was asked for a second ago and took the time.
func answer(s providers.PowerState, took time.Duration) providers.Answer {
	at := now.Add(-time.Second)
	return providers.Answer{Observation: providers.Observation{State: s, Raw: s.String(), At: at}, By: "rack", Got: at.Add(took)}
}

const (
	on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown
)

// Off takes every device, each with an Off of its own; what was asked for first is as old as the verdict is.
func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  []providers.PowerState // of devices a, b, c
		want providers.PowerState
		none bool // no verdict yet
		err  bool
	}{
		{name: "one, off", say: []providers.PowerState{off}, want: off},
		{name: "one, on", say: []providers.PowerState{on}, want: on},
		{name: "two, both off", say: []providers.PowerState{off, off}, want: off},
		{name: "two, one off, one not asked", say: []providers.PowerState{off, 99}, none: true},
		{name: "two, one off, one unknown", say: []providers.PowerState{off, unknown}, want: unknown},
		{name: "two, one off, one changing", say: []providers.PowerState{off, changing}, want: changing},
		{name: "two, they disagree", say: []providers.PowerState{off, on}, want: unknown, err: true},
		{name: "two, on and unknown", say: []providers.PowerState{unknown, on}, want: on},
		{name: "three, two off", say: []providers.PowerState{off, off, unknown}, want: unknown},
		{name: "three, off", say: []providers.PowerState{off, off, off}, want: off},
		{name: "three, off, on and unknown", say: []providers.PowerState{off, on, unknown}, want: unknown, err: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a Answers
			names := []string{"a", "b", "c"}[:len(tt.say)]
			a.Expect(names...)
			for i, s := range tt.say {
				if s != 99 {
					a.Answered(names[i], answer(s, time.Duration(i+1)*100*time.Millisecond))
				}
			}
			v := a.Answer
			if got := v.Got.IsZero(); got != tt.none {
				t.Fatalf("no verdict: %v, want %v", got, tt.none)
			}
			if v.State != tt.want || (v.Err != nil) != tt.err {
				t.Errorf("got %s, %v, want %s, an error: %v", v.State, v.Err, tt.want, tt.err)
			}
			last := now.Add(-time.Second + time.Duration(len(tt.say))*100*time.Millisecond)
			if !tt.none && (!v.At.Equal(now.Add(-time.Second)) || !v.Got.Equal(last)) {
				t.Errorf("asked at %s, there at %s", v.At, v.Got)
			}
			if n := len(a.Evidence()); n != len(tt.say) {
				t.Errorf("%d pieces of evidence, want one of each device", n)
			}
		})
	}
}

// A verdict is as old as its oldest answer: that one was true when the others were asked for, perhaps.
func TestVerdictIsAsOldAsItsOldest(t *testing.T) {
	var a Answers
	a.Expect("a", "b")
	old, young := answer(off, time.Millisecond), answer(off, time.Millisecond)
	old.At, old.Got = old.At.Add(-time.Minute), old.Got.Add(-time.Minute)
	a.Answered("a", young)
	a.Answered("b", old)
	if !a.Answer.At.Equal(old.At) || !a.Answer.Got.Equal(young.Got) {
		t.Errorf("asked at %s, there at %s", a.Answer.At, a.Answer.Got)
	}
}

// Other devices speak for the machine: what the one that is gone said does not count.
func TestExpect(t *testing.T) {
	var a Answers
	a.Expect("a")
	a.Answered("a", answer(off, 0))
	a.Expect("a")
	if a.Answer.State != off {
		t.Error("the same devices: the answer is forgotten")
	}
	before := a
	a.Expect("b")
	if !a.Answer.Got.IsZero() {
		t.Errorf("another device, and its answer is %s", a.Answer.State)
	}
	a.Expect("a", "b")
	a.Answered("b", answer(off, 0))
	if a.Answer.State == off {
		t.Error("off, and one of the two was not asked since it speaks again")
	}
	if before.Answer.State != off {
		t.Error("a copy was changed")
	}
}

func TestBackoff(t *testing.T) {
	var a Answers
	for i, tt := range []struct {
		say   providers.PowerState
		after time.Duration
	}{
		{unknown, time.Second}, {unknown, 2 * time.Second}, {changing, 4 * time.Second}, {unknown, 8 * time.Second}, {unknown, 16 * time.Second},
		{unknown, 30 * time.Second}, {unknown, 30 * time.Second}, {on, time.Second}, {unknown, time.Second}, {unknown, 2 * time.Second}, {off, time.Second},
	} {
		if a.Answered("a", answer(tt.say, 0)); a.Backoff() != tt.after {
			t.Errorf("answer %d, %s: again after %s, want %s", i, tt.say, a.Backoff(), tt.after)
		}
	}
	for range 5 {
		a.Answered("a", answer(unknown, 0))
	}
	if a.Anew(); a.Backoff() != time.Second {
		t.Errorf("anew: after %s", a.Backoff())
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
		if a.Answered("a", answer(tt.say, tt.took)); a.Answer.State != tt.want {
			t.Errorf("%s after %s: got %s, want %s", tt.say, tt.took, a.Answer.State, tt.want)
		}
	}
	for say, want := range map[providers.PowerState]providers.PowerState{off: unknown, on: on, changing: changing} {
		if got := Distrusted(answer(say, 0)); got.State != want || errors.Is(got.Err, ErrDistrusted) != (say == off) {
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
		if got := NeverOff(l, &r); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
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
		{"answer", providers.Answer{Observation: providers.Observation{State: providers.PowerOff, Raw: "Off", At: now}, By: "a"}, taint.Evidence{At: now, From: "a", State: "Off", Raw: "Off"}},
		{"an error's class, never its text", providers.Answer{Observation: providers.Observation{At: now, Raw: "x"}, By: "a", Err: secret}, taint.Evidence{At: now, From: "a", State: "Unknown", Raw: "denied"}},
		{"time-out", providers.Answer{Observation: providers.Observation{At: now}, By: "a", Err: context.DeadlineExceeded}, taint.Evidence{At: now, From: "a", State: "Unknown", Raw: "unreachable"}},
	} {
		if got := Evidence(tt.in); got != tt.want {
			t.Errorf("%s: Evidence = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
