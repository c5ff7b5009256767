package line

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestUsable(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.7": true, "192.168.1.1": true, "203.0.113.9": true, "2001:db8::7": true, "fd00::7": true,
		"::ffff:10.0.0.7": true,
		"127.0.0.1":       false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false,
		"2001:db8::7%eth0": false,
		"0.0.0.0":          false, "::": false, "::ffff:0.0.0.0": false, "224.0.0.1": false, "ff02::1": false,
		"255.255.255.255": false,
	} {
		if got := IsUsable(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
	if IsUsable(netip.Addr{}) {
		t.Error("no address is one")
	}
}

// Which story of a line is told as its end: once, when nobody answers any more where somebody did. A refusal is an
// answer, and what fails on our side says nothing.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		story []outcome
		want  int // how often the break is reported
		state State
	}{
		{"nobody ever accepted", []outcome{silent, refused, silent, failedLocally, silent}, 0, Never},
		{"open", []outcome{accepted}, 0, Open},
		{"open, and then silent", []outcome{accepted, silent}, 1, Broken},
		{"silent for long", []outcome{accepted, silent, silent, failedLocally, silent}, 1, Broken},
		{"its kubelet restarts", []outcome{accepted, refused, refused, accepted}, 0, Open},
		{"its kubelet is gone, and then the machine", []outcome{accepted, refused, silent, silent}, 1, Broken},
		{"we have no descriptors", []outcome{accepted, failedLocally, failedLocally}, 0, Broken},
		{"we had none, and then nobody answers", []outcome{accepted, failedLocally, silent}, 1, Broken},
		{"twice", []outcome{accepted, silent, accepted, silent}, 2, Broken},
		{"back without its kubelet, and gone again", []outcome{accepted, silent, refused, silent}, 2, Broken},
	} {
		c, told := conn{}, 0
		for i, o := range tt.story {
			tell, rest := c.applyOutcome(o, start.Add(time.Duration(i)*time.Minute))
			if tell {
				told++
			}
			if c.state = resting; o == accepted {
				c.state = open
			}
			if (rest == 0) != (o == accepted) {
				t.Errorf("%s: after %d the next attempt is in %s", tt.name, i, rest)
			}
		}
		if told != tt.want || c.stateOf() != tt.state {
			t.Errorf("%s: told %d times, %s; want %d times, %s", tt.name, told, c.stateOf(), tt.want, tt.state)
		}
	}
}

// A line that ends after a while is made again at once; one that ends again and again, ever later.
func TestEnded(t *testing.T) {
	c := conn{opened: start}
	if wait := c.noteEnd(start.Add(stable)); wait != 0 {
		t.Errorf("after %s: it is made again in %s", stable, wait)
	}
	var last time.Duration
	for i := range 20 {
		c.opened = start
		wait := c.noteEnd(start.Add(time.Second))
		if i == 0 && wait != 0 || i > 0 && wait < last || wait > restMost {
			t.Errorf("end %d: it is made again in %s, before that in %s", i, wait, last)
		}
		last = wait
	}
	if last != restMost {
		t.Errorf("one that ends again and again is made again in %s, want %s", last, restMost)
	}
	if c.noteEnd(start.Add(stable)) != 0 || c.noteEnd(start.Add(time.Second)) != 0 {
		t.Error("one that lasted for long is not made again at once")
	}
	for _, tt := range []struct {
		was  bool
		want time.Duration
	}{{true, restMost}, {false, restOfNever}} {
		c := conn{wasOpen: tt.was}
		for range 40 {
			last = c.nextRest()
		}
		if last != tt.want {
			t.Errorf("was open %v: the rest between attempts grows to %s, want %s", tt.was, last, tt.want)
		}
	}
}

func TestAtMost(t *testing.T) {
	l := New(Options{Log: slog.New(slog.DiscardHandler)})
	want := map[string]netip.Addr{"c": {}, "a": {}, "b": {}}
	for room, out := range map[int]int{3: 0, 4: 0, 2: 1, 0: 3, -1: 3} {
		kept, left := l.limitLines(room, want)
		if left != out || len(kept) != 3-out {
			t.Errorf("room for %d: %d are left out, %d kept", room, left, len(kept))
		}
		if _, ok := kept["a"]; out < 3 && !ok {
			t.Errorf("room for %d: a is left out", room)
		}
	}
}
