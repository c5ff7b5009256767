package proof

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
)

// habit is how a device takes power-offs.
type habit string

// The habits. Each device of a drama speaks of a part of its own: an outlet, a system.
const (
	obeys    habit = "obeys"    // and its part is off
	idle     habit = "idle"     // accepts and does nothing
	refuses  habit = "refuses"  // for the moment
	never    habit = "never"    // refuses for good
	hangs    habit = "hangs"    // accepts, and changes for ever
	down     habit = "down"     // never answers
	obeysDay habit = "obeysDay" // the day after: it refuses once
)

// drama plays a power-off through levels: of each the habits of its devices, named a, b, c... in their order. The
// machine is off once all of one level are. It returns the devices that a power-off was sent through, with a bar where
// a level gave way, and how it ended.
func drama(levels [][]habit, limits []Limits, deadline time.Duration) string {
	var devices []Device
	var habits []habit
	for l, of := range levels {
		for _, h := range of {
			d := Device{Name: string(rune('a' + len(devices))), Level: l}
			if l < len(limits) {
				d.Limits = limits[l]
			}
			devices, habits = append(devices, d), append(habits, h)
		}
	}
	state := make([]providers.PowerState, len(devices))
	for i, h := range habits {
		if state[i] = on; h == down {
			state[i] = unknown
		}
	}
	var p PowerOffs
	var out strings.Builder
	for now := announced; now.Sub(announced) < deadline; {
		var a Answers
		a.SetDevices(devices...)
		var say []providers.Answer
		for _, s := range state {
			say = append(say, providers.Answer{Observation: providers.Observation{State: s, At: now}, Got: now})
		}
		a.ApplyAnswers(say...)
		for l := range levels {
			all := true
			for i, d := range devices {
				all = all && (d.Level != l || state[i] == off)
			}
			if all {
				return strings.TrimSpace(fmt.Sprintf("%s off %s", out.String(), now.Sub(announced)))
			}
		}
		if p.IsExhausted(devices) {
			return out.String() + " exhausted"
		}
		m := p.NextMove(now, announced, devices, a)
		if m.Wait > 0 {
			now = now.Add(min(m.Wait, 250*time.Millisecond))
			continue
		}
		if m.Why != "" {
			out.WriteString("|")
		}
		i := m.Device
		out.WriteString(devices[i].Name)
		var err error
		switch habits[i] {
		case obeys:
			state[i] = off
		case hangs:
			state[i] = changing
		case refuses, down:
			err = providers.ErrUnreachable
		case obeysDay:
			err, habits[i] = providers.ErrUnreachable, obeys
		case never:
			err = providers.ErrPermanent
		}
		p.ApplySent(now, devices, m, err)
	}
	return out.String() + " failed"
}

var announced = now

// What Pacemaker documents of fencing topologies (Pacemaker Explained, "Fencing Topologies" and "Remapping Reboots"),
// and what its regression tests of the fencer hold (cts/cts-fencing, the topology cases), as far as it is about
// switching off. Where we differ, the case says so.
func TestPacemakerTopology(t *testing.T) {
	const minute = time.Minute
	for _, tc := range []struct {
		name, source string
		levels       [][]habit
		limits       []Limits
		want         string
	}{
		{"one device", "topology_simple", [][]habit{{obeys}}, nil, "a off 0s"},
		{"the first level fails, the second has its turn", "topology_device_fails", [][]habit{{refuses}, {obeys}}, nil,
			"a|b off 0s"},
		{"two levels fail, each at another of its devices; a device that failed ends its level",
			"topology_multi_level_fails",
			[][]habit{{refuses, obeys}, {obeys, refuses}, {obeys, obeys}}, nil, "a|cd|ef off 0s"},
		{"a device that is not there ends its level", "topology_missing_devices",
			[][]habit{{down, obeys}, {obeys, down}, {obeys, obeys}}, nil, "ef off 0s"},
		{"its timeout ends a device's turn, and its level's", "topology_device_fails with a device that hangs",
			[][]habit{{hangs}, {obeys}}, []Limits{{Timeout: 5 * time.Second}}, "a|b off 5s"},
		{"levels in the order of their index", "Each level is attempted in ascending order",
			[][]habit{{obeys}, {obeys}, {obeys}}, nil, "a off 0s"},
		{"no other level is tried after one that passed", "finished when a level has passed",
			[][]habit{{refuses}, {obeys}, {obeys}}, nil, "a|b off 0s"},
		{"all devices of a level", "Dual-Layer, Dual-Device", [][]habit{{obeys, obeys}}, nil, "ab off 0s"},
		{"IPMI fails, and both power switches do it", "Dual-Layer, Dual-Device", [][]habit{{down}, {obeys, obeys}}, nil,
			"bc off 0s"},
		{"one of the power switches fails: back to IPMI, and round",
			"Dual-Layer, Dual-Device: fencing loops back to the first", [][]habit{{obeysDay}, {obeys, refuses}}, nil,
			"a|bc|a off 1s"},
		{"all have failed", "or all levels have been attempted (failed)", [][]habit{{never}, {never}}, nil,
			"a|b exhausted"},
		{"all off before any is on: the second is not kept waiting for the first", "Remapping Reboots",
			[][]habit{{idle, obeys}, {obeys}}, nil, "ab|c off 10s"},
		{"attempts of one device before it fails", "pcmk_off_retries", [][]habit{{obeysDay}, {obeys}},
			[]Limits{{Attempts: 2}}, "aa off 1s"},
		{"a delay before a level, for a kernel dump", "Wait up to a certain time for a kernel dump to complete, then " +
			"cut power", [][]habit{{never}, {obeys}}, []Limits{{}, {Delay: 20 * time.Second}}, "a|b off 20s"},

		// Ours.
		{"a delay before the first", "", [][]habit{{obeys}}, []Limits{{Delay: 7 * time.Second}}, "a off 7s"},
		{"a delay is waited for once", "", [][]habit{{obeysDay}, {refuses}},
			[]Limits{{Delay: 7 * time.Second}, {Delay: 3 * time.Second}}, "a|b|a off 11s"},
		{"one that refuses for good is not asked again", "", [][]habit{{never}, {obeysDay}}, nil, "a|bb off 1s"},
		{"one that refuses for good ends its level at once", "", [][]habit{{never, obeys}, {obeys}},
			[]Limits{{Attempts: 5}}, "a|c off 0s"},
		{"no effect", "", [][]habit{{idle}, {obeys}}, nil, "a|b off 10s"},
		{"no effect, twice", "", [][]habit{{idle}, {obeys}}, []Limits{{Attempts: 2}}, "aa|b off 20s"},
		{"no effect, twice, and its time is over", "", [][]habit{{idle}, {obeys}},
			[]Limits{{Attempts: 2, Timeout: 12 * time.Second}}, "aa|b off 12s"},
		{"alone, refused again and again: after 1, 2, 4, 8, 10 s", "", [][]habit{{refuses}}, nil, "aaaaaaaaa failed"},
		{"alone, without effect", "", [][]habit{{idle}}, nil, "aaaaaa failed"},
		{"alone, changing for ever", "", [][]habit{{hangs}}, nil, "a failed"},
		{"two refuse again and again: both at once, then a pause", "", [][]habit{{refuses}, {refuses}}, nil,
			"a|b|a|b|a|b|a|b|a|b|a|b|a|b|a|b|a|b failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := drama(tc.levels, tc.limits, minute); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.source, got, tc.want)
			}
		})
	}
}

// Once no device says On any more, the question moves to the next level when the time of the current one is over, and
// not before.
func TestNextLevelWhenTimeIsOver(t *testing.T) {
	two := []Device{{Name: "a", Limits: Limits{Timeout: 5 * time.Second}}, {Name: "b", Level: 1}}
	half := []Device{two[0], {Name: "b", Level: 1}, {Name: "c", Level: 1}}
	var silent, offBeside, oneOff, bothOff Answers
	silent.SetDevices(two...)
	oneOff.SetDevices(half...)
	oneOff.ApplyAnswers(answer(unknown, 0), answer(off, 0), answer(on, 0))
	bothOff.SetDevices(half...)
	bothOff.ApplyAnswers(answer(unknown, 0), answer(off, 0), answer(off, 0))
	offBeside.SetDevices(two...)
	offBeside.ApplyAnswers(answer(unknown, 0), answer(off, 0))
	sent := func(devices []Device, err error) (p PowerOffs) {
		p.ApplySent(now, devices, Move{Turn: true}, err)
		return p
	}
	for _, tc := range []struct {
		name    string
		p       PowerOffs
		devices []Device
		a       Answers
		at      time.Duration
		want    bool
	}{
		{"none was sent", PowerOffs{}, two, silent, time.Hour, false},
		{"in time", sent(two, nil), two, silent, 5*time.Second - 1, false},
		{"over", sent(two, nil), two, silent, 5 * time.Second, true},
		{"over, and there is no other", sent(two[:1], nil), two[:1], silent, 5 * time.Second, false},
		{"over, and the other is off already", sent(two, nil), two, offBeside, 5 * time.Second, false},
		{"over, and one of the other's two is on", sent(half[:1], nil), half, oneOff, 5 * time.Second, true},
		{"over, and the other's two are off", sent(half[:1], nil), half, bothOff, 5 * time.Second, false},
		{"over, and the other's power must not be touched", sent(two, nil),
			[]Device{two[0], {Name: "b", Level: 1, NoPower: "no"}}, silent, 5 * time.Second, false},
		{"no limit", sent(two[1:], nil), []Device{{Name: "c"}, two[1]}, silent, time.Hour, false},
	} {
		if got := tc.p.IsOverdue(now.Add(tc.at), tc.devices, tc.a); got != tc.want {
			t.Errorf("%s: got %v", tc.name, got)
		}
	}
}

// What sending again does not cure is not sent again; what may pass is.
func TestRefusedForGood(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{providers.ErrUnreachable, false},
		{providers.ErrNotSent, false},
		{errors.New("503"), false},
		{providers.ErrPermanent, true},
		{providers.ErrDenied, true},
		{providers.ErrNotFound, true},
		{providers.ErrIdentity, true},
		{providers.ErrUntrusted, true},
	} {
		err := tc.err
		if err != nil {
			err = fmt.Errorf("power off node n1: %w", err)
		}
		ds := devices(0)
		var p PowerOffs
		p.ApplySent(now, ds, Move{Turn: true}, err)
		if got := isPermanentRefusal(err); got != tc.want || p.IsExhausted(ds) != tc.want {
			t.Errorf("%v: got %t, exhausted %t, want %t", err, got, p.IsExhausted(ds), tc.want)
		}
	}
}

// A power-off remembered by a copy is the copy's; devices that are gone from the configuration since hold nothing up.
func TestPowerOffsAreValues(t *testing.T) {
	ds := devices(0, 1)
	var p, none PowerOffs
	p.ApplySent(now, ds, Move{Turn: true}, providers.ErrDenied)
	before := p
	p.ApplySent(now, ds, Move{Device: 1, Turn: true}, providers.ErrDenied)
	if !p.IsExhausted(ds) || before.IsExhausted(ds) || none.IsExhausted(ds) {
		t.Error("a copy was changed, or what was refused is forgotten")
	}
	var a Answers
	a.SetDevices(ds[:1]...)
	if m := p.NextMove(now, now, []Device{{Name: "new", Level: 7}}, a); m.Wait != 0 || m.Device != 0 || !m.Turn {
		t.Errorf("another device since: got %+v, want it tried", m)
	}
	if m := p.NextMove(now, now, nil, Answers{}); m.Wait == 0 {
		t.Errorf("no device: got %+v", m)
	}
	p.ApplySent(now, nil, Move{}, nil)
	if diff := cmp.Diff(true, p.IsExhausted(ds)); diff != "" {
		t.Error("a power-off through a device that is gone counts")
	}
	if CanPowerOff([]Device{{NoPower: "no"}, {Level: 1}, {Level: 1, NoPower: "no"}}) ||
		!CanPowerOff([]Device{{NoPower: "no"}, {Level: 1}}) {
		t.Error("a level is powered off only through all of its devices")
	}
}

// A turn counts its own power-offs: those of the turn before count no more.
func TestTurnCountsItsOwn(t *testing.T) {
	ds := devices(0, 1)
	var p PowerOffs
	p.ApplySent(now, ds, Move{Turn: true}, nil)
	p.ApplySent(now, ds, Move{}, nil)
	if got := p.tried[ds[0].Name].sent; got != 2 {
		t.Errorf("in one turn: got %d, want 2", got)
	}
	p.ApplySent(now, ds, Move{Device: 1, Turn: true}, nil)
	if first, second := p.tried[ds[0].Name].sent, p.tried[ds[1].Name].sent; first != 0 || second != 1 {
		t.Errorf("in the next turn: got %d and %d, want 0 and 1", first, second)
	}
}
