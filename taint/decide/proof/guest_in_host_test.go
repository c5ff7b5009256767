package proof

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// place is what a hypervisor said when it was asked that many milliseconds after the question began, 10 ms later.
func place(ms int, p providers.Placement, err error) providers.PlaceAnswer {
	p.At = now.Add(time.Duration(ms) * time.Millisecond)
	return providers.PlaceAnswer{Placement: p, Got: p.At.Add(10 * time.Millisecond), Err: err}
}

// hostSays is what the device of a host said when it was asked then, 100 ms later.
func hostSays(ms int, s providers.PowerState) providers.Answer {
	at := now.Add(time.Duration(ms) * time.Millisecond)
	return providers.Answer{Observation: providers.Observation{State: s, At: at}, Got: at.Add(100 * time.Millisecond)}
}

func TestWithin(t *testing.T) {
	gone := func(ms int) providers.PlaceAnswer {
		return place(ms, providers.Placement{Absent: true, Raw: "not on it"}, nil)
	}
	there := func(ms int) providers.PlaceAnswer { return place(ms, providers.Placement{Raw: "shut off"}, nil) }
	silent := func(ms int) providers.PlaceAnswer { return place(ms, providers.Placement{}, providers.ErrUnreachable) }
	dead := Host{Hypervisor: "x", Device: "bmcs/x", First: silent(0), Off: hostSays(20, off)}
	lives := Host{Hypervisor: "y", Device: "bmcs/y", First: gone(0), Second: gone(130)}
	with := func(h Host, edit func(*Host)) Host { edit(&h); return h }
	for _, tt := range []struct {
		name string
		of   []Host
		want providers.PowerState
		raw  string
		at   int // milliseconds after the question began
		err  error
	}{
		{"none", nil, unknown, "", 0, providers.ErrNotFound},
		{"the only host is off", []Host{dead}, off, "bmcs/x is Off", 20, nil},
		{"and its hypervisor was never heard", []Host{with(dead, func(h *Host) { h.First = providers.PlaceAnswer{} })},
			off, "bmcs/x is Off", 20, nil},
		{"one of two", []Host{dead, lives}, off, "bmcs/x is Off, not on it", 0, nil},
		{"one of three", []Host{lives, dead, lives}, off, "bmcs/x is Off, not on it, not on it", 0, nil},
		{"two of three", []Host{dead, dead, lives}, off, "bmcs/x is Off, bmcs/x is Off, not on it", 0, nil},
		{"all of two", []Host{dead, with(dead, func(h *Host) { h.Off = hostSays(10, off) })}, off,
			"bmcs/x is Off, bmcs/x is Off", 10, nil},

		{"none is off", []Host{lives, lives}, unknown, "", 0, providers.ErrNotFound},
		{"its host is on", []Host{with(dead, func(h *Host) { h.Off = hostSays(20, on) }), lives}, unknown, "", 0,
			providers.ErrUnreachable},
		{"its host is changing", []Host{with(dead, func(h *Host) { h.Off = hostSays(20, changing) }), lives}, unknown,
			"", 0, providers.ErrUnreachable},
		{"its host's device is silent",
			[]Host{with(dead, func(h *Host) { h.Off.State, h.Off.Err = unknown, providers.ErrUnreachable }), lives},
			unknown, "", 0, providers.ErrUnreachable},
		{"its host's device took too long", []Host{with(dead, func(h *Host) { h.Off.Got = h.Off.At.Add(TTL + 1) })},
			unknown, "", 0, providers.ErrUnreachable},
		{"one of two hosts is off, and both are silent",
			[]Host{dead, with(dead, func(h *Host) { h.Off = hostSays(20, on) })}, unknown, "", 0,
			providers.ErrUnreachable},

		{"another has it", []Host{dead, with(lives, func(h *Host) { h.Second = there(130) })}, unknown, "shut off", 0,
			nil},
		{"another had it", []Host{dead, with(lives, func(h *Host) { h.First = there(0) })}, unknown, "shut off", 0,
			nil},
		{"it is where it was, and the host's device cannot tell",
			[]Host{with(lives,
				func(h *Host) {
					h.First, h.Off = there(0), providers.Answer{Err: providers.ErrDenied}
				})}, unknown, "shut off", 0, providers.ErrDenied},
		{"another is silent", []Host{dead, with(lives, func(h *Host) { h.Second = silent(130) })}, unknown, "", 0,
			providers.ErrUnreachable},
		{"another was silent", []Host{dead, with(lives, func(h *Host) { h.First = silent(0) })}, unknown, "", 0,
			providers.ErrUnreachable},
		{"another was not asked again", []Host{dead, with(lives, func(h *Host) { h.Second = providers.PlaceAnswer{} })},
			unknown, "", 0, providers.ErrUnreachable},
		{"another was asked before the host was off", []Host{dead, with(lives, func(h *Host) { h.Second = gone(119) })},
			unknown, "", 0, providers.ErrStale},
		{"another was asked before the other had answered",
			[]Host{dead, lives, with(lives, func(h *Host) { h.First = gone(121) })}, unknown, "", 0,
			providers.ErrStale},

		{"its hypervisor answers: absent", []Host{with(dead, func(h *Host) { h.First = gone(0) }), lives}, unknown, "",
			0, errMisplaced},
		{"its hypervisor answers: there", []Host{with(dead, func(h *Host) { h.First = there(0) }), lives}, unknown, "",
			0, errMisplaced},
		{"its hypervisor answers late", []Host{with(dead, func(h *Host) { h.Second = gone(130) }), lives}, unknown, "",
			0, errMisplaced},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := VerdictOfHosts(tt.of)
			if got.State != tt.want || got.Raw != tt.raw || !errors.Is(err, tt.err) {
				t.Errorf("got %s %q, %v; want %s %q, %v", got.State, got.Raw, err, tt.want, tt.raw, tt.err)
			}
			if want := now.Add(time.Duration(tt.at) * time.Millisecond); tt.want == off && !got.At.Equal(want) {
				t.Errorf("got %s, want that of the oldest answer, %s", got.At, want)
			}
		})
	}
}

// lodging is a guest and three hosts. One host loses its power, and the guest may migrate once, at any moment of a
// question. A step is one event; events are a millisecond apart.
type lodging struct {
	rng    *rand.Rand
	hosts  []Host
	on     [3]bool // has power
	has    [3]bool // has the guest, in any state
	at     int     // where it runs; -1: nowhere
	to     int     // where it migrates to; -1: it does not
	handed bool    // it runs there already
	moved  bool    // once is enough
	died   bool    // a host has
	step   int
}

func (l *lodging) time() providers.Instant { return now.Add(time.Duration(l.step) * time.Millisecond) }

// happens is a step of the world.
func (l *lodging) happens() {
	switch l.rng.IntN(6) {
	case 0:
		if x := l.rng.IntN(3); !l.died && l.rng.IntN(3) == 0 {
			l.on[x], l.has[x], l.died = false, false, true
			if l.at == x {
				l.at = -1
			}
			if l.to == x && !l.handed {
				l.to = -1
			}
		}
	case 1:
		if !l.moved && l.at >= 0 {
			if to := l.rng.IntN(3); to != l.at && l.on[to] {
				l.to, l.has[to], l.moved = to, true, true
			}
		}
	case 2:
		if l.to >= 0 && l.at >= 0 && !l.handed {
			l.at, l.handed = l.to, true
		}
	case 3:
		for i := range l.has { // the end of a migration, or of one that failed
			if i != l.at && (l.to < 0 || l.handed || l.at < 0) {
				l.has[i] = false
			}
		}
	}
}

// TestNoMigrationIsMissed plays many histories of a question while the guest migrates and a host dies: every Off is
// right. The questions come in any order, so the rule must refuse answers to questions that were asked too early.
func TestNoMigrationIsMissed(t *testing.T) {
	proven, raced, refused := 0, 0, 0
	for seed := range uint64(200_000) {
		l := &lodging{rng: rand.New(rand.NewPCG(seed, 0)), hosts: make([]Host, 3), on: [3]bool{true, true, true},
			to: -1}
		l.at = l.rng.IntN(3)
		l.has[l.at] = true
		pause := func() {
			for range l.rng.IntN(4) {
				l.step++
				l.happens()
			}
		}
		look := func(i int) (p providers.PlaceAnswer) {
			p.At = l.time()
			pause()
			if p.Absent = !l.has[i]; !l.on[i] {
				p.Absent, p.Err = false, providers.ErrUnreachable
			}
			pause()
			p.Got = l.time()
			return p
		}
		power := func(i int) (a providers.Answer) {
			a.At = l.time()
			pause()
			if a.State = on; !l.on[i] {
				a.State = off
			}
			pause()
			a.Got = l.time()
			return a
		}
		var asks []func()
		for i := range l.hosts {
			h := &l.hosts[i]
			asks = append(asks, func() { h.First = look(i) }, func() {
				if !h.First.HasAnswer() {
					h.Off = power(i)
				}
			}, func() {
				if h.Off.State != off {
					h.Second = look(i)
				}
			})
		}
		if l.rng.IntN(3) > 0 { // first the one, then the other, then the third; else anyhow
			asks = []func(){asks[0], asks[3], asks[6], asks[1], asks[4], asks[7], asks[2], asks[5], asks[8]}
		} else {
			l.rng.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		}
		for _, ask := range asks {
			pause()
			ask()
		}
		got, err := VerdictOfHosts(l.hosts)
		switch {
		case got.State == off && l.at >= 0:
			t.Fatalf("seed %d: Off, and the guest runs on host %d: %+v", seed, l.at, l.hosts)
		case got.State == off:
			proven++
		case errors.Is(err, providers.ErrStale):
			refused++
		}
		if l.handed && l.died && l.at >= 0 {
			raced++
		}
	}
	t.Logf("proven %d, asked too early %d, migrated beside a host that died %d", proven, refused, raced)
	if proven < 1000 || refused < 1000 || raced < 1000 {
		t.Error("the histories do not reach what they are there to judge")
	}
}
