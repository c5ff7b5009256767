package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forcefence/forcefence/providers"
)

const (
	uuid    = "38947555-7742-3448-3784-823347823834"
	swapped = "55759438-4277-4834-3784-823347823834" // uuid in the other SMBIOS byte order
	other   = "11111111-2222-3333-4444-555555555555"
)

// scripted answers State with one function; its power calls are not used here.
type scripted func(ctx context.Context, t providers.Target) (providers.Observation, error)

func (f scripted) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	return f(ctx, t)
}
func (scripted) PowerOff(context.Context, providers.Target, func() error) error {
	return errors.New("not scripted")
}
func (scripted) PowerOn(context.Context, providers.Target, func() error) error {
	return errors.New("not scripted")
}

func TestAsk(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	boom := errors.New("boom")
	tests := []struct {
		name  string
		node  string // the node's system UUID
		obs   providers.Observation
		after time.Duration // At, counted from the moment Ask was called
		err   error
		panic any
		want  providers.PowerState
		class error // nil: no error
	}{
		{name: "off", node: uuid, obs: providers.Observation{State: providers.PowerOff, SystemUUID: uuid},
			want: providers.PowerOff},
		{name: "off, other byte order", node: uuid,
			obs: providers.Observation{State: providers.PowerOff, SystemUUID: swapped}, want: providers.PowerOff},
		{name: "off, device cannot tell", node: uuid, obs: providers.Observation{State: providers.PowerOff},
			want: providers.PowerOff},
		{name: "off, node never said", obs: providers.Observation{State: providers.PowerOff, SystemUUID: uuid},
			want: providers.PowerOff},
		{name: "off of another machine", node: uuid,
			obs: providers.Observation{State: providers.PowerOff, SystemUUID: other}, class: providers.ErrIdentity},
		{name: "off from before", node: uuid, obs: providers.Observation{State: providers.PowerOff},
			after: -time.Millisecond, class: providers.ErrStale},
		{name: "off of no time", node: uuid, obs: providers.Observation{State: providers.PowerOff},
			after: -start.Sub(time.Time{}), class: providers.ErrStale},
		{name: "off with an error", node: uuid, obs: providers.Observation{State: providers.PowerOff, Raw: "Off"},
			err: boom, class: boom},
		{name: "a state out of range", node: uuid, obs: providers.Observation{State: providers.PowerChanging + 1}},
		{name: "panic", panic: "nil map", class: providers.ErrPermanent},
		{name: "changing", node: uuid, obs: providers.Observation{State: providers.PowerChanging},
			want: providers.PowerChanging},
		{name: "on", node: uuid, obs: providers.Observation{State: providers.PowerOn}, want: providers.PowerOn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := scripted(func(context.Context, providers.Target) (providers.Observation, error) {
				if tt.panic != nil {
					panic(tt.panic)
				}
				tt.obs.At = providers.InstantOf(start.Add(tt.after))
				return tt.obs, tt.err
			})
			a := providers.Ask(t.Context(), p, "rack-a", providers.Target{Node: "n1", SystemUUID: tt.node},
				func() providers.Instant { return providers.InstantOf(start) })
			if a.State != tt.want {
				t.Errorf("state: got %s, want %s", a.State, tt.want)
			}
			if !errors.Is(a.Err, tt.class) {
				t.Errorf("error: got %v, want %v", a.Err, tt.class)
			}
			if a.At.Before(providers.InstantOf(start)) || a.Got.IsZero() || a.By != "rack-a" {
				t.Errorf("got At %s, Got %s, By %q", a.At, a.Got, a.By)
			}
		})
	}
}

// The run that a device reports counts only in a valid answer.
func TestAskRun(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		uuid  string
		after time.Duration
		err   error
		want  string
	}{
		{"reported", uuid, 0, nil, "1"},
		{"by another machine", other, 0, nil, ""},
		{"before the question", uuid, -time.Millisecond, nil, ""},
		{"beside an error", uuid, 0, errors.New("boom"), ""},
	} {
		a := providers.Ask(t.Context(),
			scripted(func(context.Context, providers.Target) (providers.Observation, error) {
				return providers.Observation{State: providers.PowerOff, SystemUUID: tt.uuid, Run: "1",
					At: providers.InstantOf(start.Add(tt.after))}, tt.err
			}), "p", providers.Target{SystemUUID: uuid}, func() providers.Instant { return providers.InstantOf(start) })
		if a.Run != tt.want {
			t.Errorf("%s: got run %q, want %q", tt.name, a.Run, tt.want)
		}
	}
}

// No two states have one name.
func TestParsePowerState(t *testing.T) {
	for _, s := range providers.PowerStates() {
		if got, ok := providers.ParsePowerState(s.String()); got != s || !ok {
			t.Errorf("%s: got %s, %t after parsing its name", s, got, ok)
		}
	}
	if got, ok := providers.ParsePowerState("off"); got != providers.PowerUnknown || ok {
		t.Errorf("off: got %s, %t; want no state", got, ok)
	}
}

func TestAskTimes(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := start
	now := func() providers.Instant { return providers.InstantOf(clock) }
	for _, tt := range []struct {
		name     string
		at, want time.Duration
	}{
		{"the moment of the question is kept", time.Second, time.Second},
		{"a question from the future counts as sent with the call", time.Hour, 0},
	} {
		clock = start
		a := providers.Ask(t.Context(),
			scripted(func(context.Context, providers.Target) (providers.Observation, error) {
				clock = start.Add(2 * time.Second)
				return providers.Observation{State: providers.PowerOff, At: providers.InstantOf(start.Add(tt.at))}, nil
			}), "p", providers.Target{}, now)
		if got := a.At.Sub(providers.InstantOf(start)); got != tt.want || a.State != providers.PowerOff ||
			!a.Got.Equal(providers.InstantOf(clock)) {
			t.Errorf("%s: got At +%s, state %s, Got %s; want +%s", tt.name, got, a.State, a.Got, tt.want)
		}
	}
}

func TestAskClipsTheWord(t *testing.T) {
	a := providers.Ask(t.Context(), scripted(func(context.Context, providers.Target) (providers.Observation, error) {
		return providers.Observation{Raw: strings.Repeat("\xffx", 1<<16), At: providers.Now()}, nil
	}), "p", providers.Target{}, providers.Now)
	if len(a.Raw) > 256 || strings.Contains(a.Raw, "\xff") {
		t.Errorf("got a word of %d bytes", len(a.Raw))
	}
}

func TestSameMachine(t *testing.T) {
	tests := []struct {
		name, node, device string
		want               error
	}{
		{"equal", uuid, uuid, nil},
		{"other byte order", uuid, swapped, nil},
		{"case, braces, no dashes", uuid, "{" + strings.ToUpper(strings.ReplaceAll(uuid, "-", "")) + "}", nil},
		{"different", uuid, other, providers.ErrIdentity},
		{"node never said", "", other, nil},
		{"device cannot tell", uuid, "", nil},
		{"zeros", uuid, "00000000-0000-0000-0000-000000000000", nil},
		{"ones", uuid, "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", nil},
		{"maker wrote none", uuid, "03000200-0400-0500-0006-000700080009", nil},
		{"maker wrote none, other byte order", uuid, "00020003-0004-0005-0006-000700080009", nil},
		{"no UUID", uuid, "To be filled by O.E.M.", nil},
	}
	for _, tt := range tests {
		if err := providers.SameMachine(tt.node, tt.device); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err := providers.SameMachine(tt.device, tt.node); !errors.Is(err, tt.want) {
			t.Errorf("%s, turned round: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

func FuzzParseUUID(f *testing.F) {
	for _, s := range []string{
		uuid, swapped, "", "-", "{}", strings.Repeat("0", 32), strings.Repeat("f", 32),
		"03000200-0400-0500-0006-000700080009", "\x00" + uuid} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, ok := providers.ParseUUID(s)
		if !ok {
			if u != [16]byte{} {
				t.Fatalf("%q is no UUID and left %x", s, u)
			}
			return
		}
		canonical := fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
		if again, ok := providers.ParseUUID(canonical); !ok || again != u {
			t.Errorf("%q: round trip got %x, %t; want %x", s, again, ok, u)
		}
		if back := providers.SwapUUID(providers.SwapUUID(u)); back != u {
			t.Errorf("%q: swapped twice got %x, want %x", s, back, u)
		}
		w := providers.SwapUUID(u)
		if err := providers.SameMachine(s, fmt.Sprintf("%x", w)); err != nil {
			t.Errorf("other byte order: %v", err)
		}
	})
}

func TestIdentify(t *testing.T) {
	const a, b, zeros = "4c4c4544-0042-4a10-8056-b4c04f384631", "5c4c4544-0042-4a10-8056-b4c04f384631",
		"00000000-0000-0000-0000-000000000000"
	for _, tt := range []struct {
		name, node, reported string
		claimed              bool
		want                 error
	}{
		{"same", a, a, true, nil},
		{"same, the other byte order", a, "44454c4c-4200-104a-8056-b4c04f384631", true, nil},
		{"another machine", a, b, false, providers.ErrIdentity},
		{"another machine, claimed", a, b, true, providers.ErrIdentity},
		{"the device reports none", a, "", false, nil},
		{"the device reports none, claimed", a, "", true, providers.ErrIdentity},
		{"the node reports none", "", b, false, nil},
		{"the node reports none, claimed", "", b, true, providers.ErrIdentity},
		{"zeros on both sides, claimed", zeros, zeros, true, providers.ErrIdentity},
		{"the node's are zeros, claimed", zeros, b, true, providers.ErrIdentity},
		{"the device's are zeros, claimed", a, zeros, true, providers.ErrIdentity},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := providers.Target{Node: "n1", SystemUUID: tt.node, Claimed: tt.claimed}
			if err := target.VerifyIdentity(providers.Observation{SystemUUID: tt.reported}); !errors.Is(err, tt.want) ||
				(err == nil) != (tt.want == nil) {
				t.Errorf("VerifyIdentity(%q) = %v, want %v", tt.reported, err, tt.want)
			}
		})
	}
}

// Once a device has named the machine, an answer that does not name it may be about another one: it proves nothing, and
// the machine's power is not touched. That holds for an operator's list, too. On and Changing remain beside the error,
// because they may contradict another device's Off. Those of a machine with another name do not.
func TestAnswerWithoutTheName(t *testing.T) {
	const zeros, ones = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	for _, tt := range []struct {
		name, node string
		identified bool
		obs        providers.Observation
		want       bool
	}{
		{"named again", uuid, true, providers.Observation{SystemUUID: uuid}, true},
		{"named again, the other byte order", uuid, true, providers.Observation{SystemUUID: swapped}, true},
		{"never named, names none", uuid, false, providers.Observation{}, true},
		{"never named, zeros", uuid, false, providers.Observation{SystemUUID: zeros}, true},
		{"names none", uuid, true, providers.Observation{}, false},
		{"zeros", uuid, true, providers.Observation{SystemUUID: zeros}, false},
		{"ones", uuid, true, providers.Observation{SystemUUID: ones}, false},
		{"no UUID", uuid, true, providers.Observation{SystemUUID: "null"}, false},
		{"an address alone", uuid, true, providers.Observation{Addresses: "10.0.0.1"}, false},
		{"another machine's", uuid, true, providers.Observation{SystemUUID: other}, false},
		{"the node's is gone", "", true, providers.Observation{SystemUUID: other}, false},
		{"the node's are zeros", zeros, true, providers.Observation{SystemUUID: zeros}, false},
	} {
		for _, state := range append(providers.PowerStates(), 9) {
			target := providers.Target{Node: "n1", ID: "m1", SystemUUID: tt.node, Addresses: "10.0.0.1",
				Identified: tt.identified}
			p := scripted(func(context.Context, providers.Target) (providers.Observation, error) {
				o := tt.obs
				o.State, o.At = state, providers.Now()
				return o, nil
			})
			a := providers.Ask(t.Context(), p, "p", target, providers.Now)
			act := providers.ConfirmIdentity(t.Context(), p, target, providers.Now)
			counts := tt.want || (state == providers.PowerOn || state == providers.PowerChanging) &&
				tt.name != "another machine's"
			want := providers.PowerUnknown
			if counts && state <= providers.PowerChanging {
				want = state
			}
			if a.State != want || errors.Is(a.Err, providers.ErrIdentity) == tt.want || (act == nil) != tt.want {
				t.Errorf("%s, %s: got %s, %v, power action %v; want %s, and no error: %t", tt.name, state, a.State,
					a.Err, act, want, tt.want)
			}
		}
	}
	err := providers.Target{Node: "n1", SystemUUID: uuid, Identified: true}.VerifyIdentity(providers.Observation{})
	if text := providers.ErrorText(err); !strings.HasSuffix(text, "remove the Node's label "+providers.NamedLabel) {
		t.Errorf("a person does not see what to do: %q", text)
	}
}

// A node that is called after another machine gets neither a proof of that machine nor its power. Its system UUID must
// be the device's, if the device reports one. A list is the operator's word, and a device that reports none cannot be
// compared.
func TestNodeByAnotherName(t *testing.T) {
	const zeros = "00000000-0000-0000-0000-000000000000"
	for _, tt := range []struct {
		name, node, reported string
		named, claimed       bool
		proves, acts         bool
	}{
		{"by name, the same", uuid, uuid, true, false, true, true},
		{"by name, the other byte order", uuid, swapped, true, false, true, true},
		{"by name, another machine's", uuid, other, true, false, false, false},
		{"by name, the node reports none", "", other, true, false, false, false},
		{"by name, the node reports zeros", zeros, other, true, false, false, false},
		{"by name, the node reports no UUID", "n1", other, true, false, false, false},
		{"by name, the device reports none", uuid, "", true, false, true, true},
		{"by name, the device reports zeros", "", zeros, true, false, true, true},
		{"by a label in a template, the node reports none", "", other, true, true, false, false},
		{"by a label in a template, the device reports none", uuid, "", true, true, true, false},
		{"by an annotation, the node reports none", "", other, false, true, true, false},
		{"in a list, the node reports none", "", other, false, false, true, true},
		{"in a list, another machine's", uuid, other, false, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := providers.Target{Node: "n1", ID: "m1", SystemUUID: tt.node, Named: tt.named, Claimed: tt.claimed}
			p := scripted(func(context.Context, providers.Target) (providers.Observation, error) {
				return providers.Observation{State: providers.PowerOff, SystemUUID: tt.reported, At: providers.Now()},
					nil
			})
			a := providers.Ask(t.Context(), p, "p", target, providers.Now)
			if (a.State == providers.PowerOff) != tt.proves || errors.Is(a.Err, providers.ErrIdentity) == tt.proves {
				t.Errorf("asked: got %s, %v; want a proof %t", a.State, a.Err, tt.proves)
			}
			if err := providers.ConfirmIdentity(t.Context(), p, target, providers.Now); (err == nil) != tt.acts ||
				err != nil && !errors.Is(err, providers.ErrIdentity) {
				t.Errorf("before a power action: got %v, want one %t", err, tt.acts)
			}
		})
	}
}

// Addresses identify a machine if nothing else does.
func TestIdentifyByAddresses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		node     providers.Target
		reported providers.Observation
		claimed  error // of a claimed one, beside the operator's
		want     error
	}{
		{name: "one in common", node: providers.Target{Addresses: "10.0.0.1 10.0.0.2"},
			reported: providers.Observation{Addresses: "10.0.0.2"}},
		{name: "none in common", node: providers.Target{Addresses: "10.0.0.1 10.0.0.2"},
			reported: providers.Observation{Addresses: "10.0.0.20"}, want: providers.ErrIdentity},
		{name: "the node reports none", reported: providers.Observation{Addresses: "10.0.0.20"},
			want: providers.ErrIdentity},
		{name: "the device reports none", node: providers.Target{SystemUUID: uuid, Addresses: "10.0.0.1"},
			claimed: providers.ErrIdentity},
		{name: "one in common and no UUID of the node", node: providers.Target{Addresses: "10.0.0.1"},
			reported: providers.Observation{SystemUUID: uuid, Addresses: "10.0.0.1"}},
		{name: "one in common and another UUID", node: providers.Target{SystemUUID: uuid, Addresses: "10.0.0.1"},
			reported: providers.Observation{SystemUUID: other, Addresses: "10.0.0.1"}, want: providers.ErrIdentity},
		{name: "none in common and the same UUID", node: providers.Target{SystemUUID: uuid, Addresses: "10.0.0.1"},
			reported: providers.Observation{SystemUUID: uuid, Addresses: "10.0.0.2"}, want: providers.ErrIdentity},
	} {
		for _, claimed := range []bool{false, true} {
			tg, want := tt.node, tt.want
			tg.Named = claimed // a template over labels
			if tg.Claimed = claimed; claimed && want == nil {
				want = tt.claimed
			}
			if err := tg.VerifyIdentity(tt.reported); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s, claimed %t: got %v, want %v", tt.name, claimed, err, want)
			}
			a := providers.Ask(t.Context(),
				scripted(func(context.Context, providers.Target) (providers.Observation, error) {
					tt.reported.State, tt.reported.At = providers.PowerOff, providers.Now()
					return tt.reported, nil
				}), "p", tg, providers.Now)
			if (a.State == providers.PowerOff) != (tt.want == nil) || !errors.Is(a.Err, tt.want) {
				t.Errorf("%s, claimed %t: asked, got %s, %v; want %v", tt.name, claimed, a.State, a.Err, tt.want)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		texts []string
		want  providers.Addresses
	}{
		{nil, ""},
		{[]string{"", "ip-10-0-0-7.eu-west-1.compute.internal", "10.0.0", "10.0.0.7/24"}, ""},
		{[]string{"127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1%eth0", "224.0.0.1",
			"255.255.255.255"}, ""},
		{[]string{"10.0.0.7", " 10.0.0.7 ", "::ffff:10.0.0.7", "FD00:0::7", "10.0.0.11", "fd00::7%eth0"},
			"10.0.0.11 10.0.0.7 fd00::7"},
	} {
		if got := providers.NewAddresses(tt.texts...); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.texts, got, tt.want)
		}
	}
	for _, tt := range []struct {
		a, b providers.Addresses
		want bool
	}{
		{"", "", false}, {"10.0.0.7", "", false}, {"10.0.0.7", "10.0.0.70", false},
		{"10.0.0.1 10.0.0.7", "10.0.0.7 fd00::1", true},
	} {
		if tt.a.HasAnyOf(tt.b) != tt.want || tt.b.HasAnyOf(tt.a) != tt.want {
			t.Errorf("%q and %q: want %t", tt.a, tt.b, tt.want)
		}
	}
}

// What ConfirmIdentity lets through is what a power action may be sent for.
func TestConfirm(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	boom := providers.WithClass(providers.ErrUnreachable, errors.New("503 Service Unavailable"))
	for _, tt := range []struct {
		name     string
		node     string
		claimed  bool
		reported string
		at       providers.Addresses // that the device reports; the node has 10.0.0.1
		before   time.Duration       // the answer is of so long before the call
		err      error
		want     error
	}{
		{name: "same", node: uuid, claimed: true, reported: swapped},
		{name: "the device cannot tell", node: uuid},
		{name: "the device cannot tell, claimed", node: uuid, claimed: true, want: providers.ErrIdentity},
		{name: "another machine", node: uuid, reported: other, want: providers.ErrIdentity},
		{name: "no answer", node: uuid, err: boom, want: boom},
		{name: "no answer, and a placeholder", node: uuid, reported: "00000000-0000-0000-0000-000000000000", err: boom,
			want: boom},
		{name: "who it is, but not its power", node: uuid, claimed: true, reported: uuid, err: boom},
		{name: "another machine, and not its power", node: uuid, reported: other, err: boom,
			want: providers.ErrIdentity},
		{name: "its address, but not its power", at: "10.0.0.1", err: boom},
		{name: "another address, and not its power", at: "10.0.0.2", err: boom, want: providers.ErrIdentity},
		{name: "who it was", node: uuid, reported: uuid, before: time.Millisecond, want: providers.ErrStale},
		{name: "who it was, and not its power", node: uuid, reported: uuid, before: time.Millisecond, err: boom,
			want: providers.ErrStale},
	} {
		p := scripted(func(context.Context, providers.Target) (providers.Observation, error) {
			return providers.Observation{SystemUUID: tt.reported, Addresses: tt.at,
				At: providers.InstantOf(start.Add(-tt.before))}, tt.err
		})
		target := providers.Target{Node: "n1", SystemUUID: tt.node, Addresses: "10.0.0.1", Claimed: tt.claimed}
		if err := providers.ConfirmIdentity(t.Context(), p, target,
			func() providers.Instant { return providers.InstantOf(start) }); !errors.Is(err, tt.want) ||
			(err == nil) != (tt.want == nil) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// batch answers all that it has an answer for, and ends with err.
type batch struct {
	scripted
	answers map[string]providers.Observation
	err     error
	panics  bool
}

func (b batch) States(context.Context, []providers.Target) (map[string]providers.Observation, error) {
	if b.panics {
		panic("nil map")
	}
	return b.answers, b.err
}
func (batch) MaxStates() int { return 10 }

// Each answer of a batch is under the rules of Ask, and none fails because of another.
func TestAskAll(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	off := func(word, uuid string, at time.Time) providers.Observation {
		return providers.Observation{State: providers.PowerOff, Raw: word, SystemUUID: uuid,
			At: providers.InstantOf(at)}
	}
	answers := map[string]providers.Observation{
		"a": off("Off", uuid, start), uuid: off("Off", swapped, start), "n3": off("Off", "", start),
		"liar":    off("Off", other, start),
		"late":    off("Off", uuid, start.Add(-time.Millisecond)),
		"strange": {State: providers.PowerChanging + 1, Raw: strings.Repeat("x", 1000), At: providers.InstantOf(start)},
		"no name": off("Off", uuid, start),
	}
	boom := providers.WithClass(providers.ErrDenied, errors.New("403 Forbidden"))
	zone := providers.WithClass(providers.ErrUnreachable, errors.New("zone impaired"))
	targets := []providers.Target{
		{Node: "n1", ID: "a", SystemUUID: uuid}, {Node: "n2", SystemUUID: uuid}, {Node: "n3"},
		{Node: "n4", ID: "liar", SystemUUID: uuid},
		{Node: "n5", ID: "late"}, {Node: "n6", ID: "strange"}, {Node: "n7", ID: "missing"},
		{Node: "n8", ID: "a", SystemUUID: other},
	}
	for _, tt := range []struct {
		name    string
		p       providers.Provider
		missing error
		none    error // of all, where there is no answer at all
	}{
		{name: "one is left out", p: batch{answers: answers}, missing: providers.ErrNotFound},
		{name: "one is left out, with the call's error", p: batch{answers: answers, err: boom}, missing: boom},
		{name: "one has an error of its own",
			p: batch{answers: answers, err: providers.Unanswered{"missing": zone, "x": boom}}, missing: zone},
		{name: "others have errors", p: batch{answers: answers, err: providers.Unanswered{"x": boom}},
			missing: providers.ErrNotFound},
		{name: "the call failed", p: batch{err: boom}, none: boom},
		{name: "panic", p: batch{panics: true}, none: providers.ErrPermanent},
		{name: "without batches", missing: boom,
			p: scripted(func(_ context.Context, t providers.Target) (providers.Observation, error) {
				if t.ID == "missing" {
					return providers.Observation{}, boom
				}
				return answers[t.Key()], nil
			})},
	} {
		got := providers.AskAll(t.Context(), tt.p, "rack-a", targets,
			func() providers.Instant { return providers.InstantOf(start) })
		for i, want := range []struct {
			state providers.PowerState
			err   error
		}{
			{state: providers.PowerOff}, {state: providers.PowerOff}, {state: providers.PowerOff},
			{err: providers.ErrIdentity},
			{err: providers.ErrStale}, {}, {err: tt.missing}, {err: providers.ErrIdentity},
		} {
			if tt.none != nil {
				want.state, want.err = providers.PowerUnknown, tt.none
			}
			a := got[i]
			if a.State != want.state || !errors.Is(a.Err, want.err) || (a.Err == nil) != (want.err == nil) ||
				a.By != "rack-a" || a.At.Before(providers.InstantOf(start)) || len(a.Raw) > 240 {
				t.Errorf("%s: %s: got %+v, want %s, %v", tt.name, targets[i].Node, a, want.state, want.err)
			}
		}
	}
	if got := providers.AskAll(t.Context(), batch{panics: true}, "p", nil, providers.Now); len(got) != 0 {
		t.Errorf("no targets: got %v", got)
	}
	if err := error(providers.Unanswered{"b": zone, "a": boom}); !errors.Is(err, providers.ErrDenied) ||
		!errors.Is(err, providers.ErrUnreachable) ||
		err.Error() != "targets without an answer: 2, the first: 403 Forbidden" {
		t.Errorf("got %v", err)
	}
}

// known reports that one of the answers knows something.
func known(answers []providers.Answer) bool {
	return slices.ContainsFunc(answers, func(a providers.Answer) bool { return a.State != providers.PowerUnknown })
}

// takes is a device that answers after a while.
func takes(d time.Duration, s providers.PowerState, err error) scripted {
	return func(ctx context.Context, _ providers.Target) (providers.Observation, error) {
		at := time.Now()
		select {
		case <-time.After(d):
			return providers.Observation{State: s, At: providers.InstantOf(at)}, err
		case <-ctx.Done():
			return providers.Observation{}, ctx.Err()
		}
	}
}

// Several devices of one machine are asked at the same time. A slow or hanging one delays the others' answers only as
// long as they may wait.
func TestAskEach(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	down := providers.ErrUnreachable
	for _, tc := range []struct {
		name string
		of   []scripted
		want []providers.PowerState
		errs []error
		took time.Duration
	}{
		{"one alone may take its time", []scripted{takes(4*time.Second, off, nil)}, []providers.PowerState{off},
			[]error{nil}, 4 * time.Second},
		{"both", []scripted{takes(100*time.Millisecond, off, nil), takes(time.Second, on, nil)},
			[]providers.PowerState{off, on}, []error{nil, nil}, time.Second},
		{"the second hangs", []scripted{takes(100*time.Millisecond, off, nil), takes(time.Hour, on, nil)},
			[]providers.PowerState{off, unknown}, []error{nil, down}, providers.Patience},
		{"the first hangs", []scripted{takes(time.Hour, off, nil), takes(time.Second, on, nil)},
			[]providers.PowerState{unknown, on}, []error{down, nil}, providers.Patience},
		{"the first is slow, the second hangs", []scripted{takes(3*time.Second, off, nil), takes(time.Hour, on, nil)},
			[]providers.PowerState{off, unknown}, []error{nil, down}, 3 * time.Second},
		{"the first refuses, the second is slow",
			[]scripted{takes(0, off, providers.ErrDenied), takes(3*time.Second, off, nil)},
			[]providers.PowerState{unknown, off}, []error{providers.ErrDenied, nil}, 3 * time.Second},
		{"both fail", []scripted{takes(0, off, providers.ErrDenied), takes(4*time.Second, off, down)},
			[]providers.PowerState{unknown, unknown}, []error{providers.ErrDenied, down}, 4 * time.Second},
		{"both hang", []scripted{takes(time.Hour, off, nil), takes(time.Hour, off, nil)},
			[]providers.PowerState{unknown, unknown}, []error{context.DeadlineExceeded, context.DeadlineExceeded},
			5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var qs []providers.Question
				for i, p := range tc.of {
					qs = append(qs,
						providers.Question{Provider: p, By: fmt.Sprintf("p%d", i),
							Target: providers.Target{Node: "n1"}})
				}
				begun := time.Now()
				got := providers.AskEach(ctx, qs, known, providers.Now)
				if took := time.Since(begun); took != tc.took || len(got) != len(tc.want) {
					t.Fatalf("%d answers after %s, want %d after %s", len(got), took, len(tc.want), tc.took)
				}
				for i, a := range got {
					if a.State != tc.want[i] || !errors.Is(a.Err, tc.errs[i]) || a.By != qs[i].By ||
						!a.At.Equal(providers.InstantOf(begun)) || a.Got.Before(providers.InstantOf(begun)) ||
						a.Got.After(providers.Now()) {
						t.Errorf("answer %d: got %+v, want %s, %v", i, a, tc.want[i], tc.errs[i])
					}
				}
			})
		})
	}
}

// Answers that are not enough wait for the other devices, each until its own deadline.
func TestAskEachWaitsForEnough(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	const quick, late = 50 * time.Millisecond, 4500 * time.Millisecond
	anOff := func(answers []providers.Answer) bool {
		return slices.ContainsFunc(answers, func(a providers.Answer) bool { return a.State == off })
	}
	for _, tt := range []struct {
		name string
		of   []scripted
		want []providers.PowerState
		took time.Duration
	}{
		{"a slow one makes it enough", []scripted{takes(late, off, nil), takes(quick, on, nil)},
			[]providers.PowerState{off, on}, late},
		{"one hangs", []scripted{takes(time.Hour, off, nil), takes(quick, on, nil)},
			[]providers.PowerState{unknown, on}, 5 * time.Second},
		{"one hangs, another makes it enough",
			[]scripted{takes(time.Hour, on, nil), takes(quick, on, nil), takes(3*time.Second, off, nil)},
			[]providers.PowerState{unknown, on, off}, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var qs []providers.Question
				for _, p := range tt.of {
					qs = append(qs, providers.Question{Provider: p, By: "p", Target: providers.Target{Node: "n1"}})
				}
				begun := time.Now()
				var got []providers.PowerState
				for _, a := range providers.AskEach(ctx, qs, anOff, providers.Now) {
					got = append(got, a.State)
				}
				if took := time.Since(begun); !slices.Equal(got, tt.want) || took != tt.took {
					t.Errorf("got %v after %s, want %v after %s", got, took, tt.want, tt.took)
				}
			})
		})
	}
}

// slow is a scripted device that takes its time.
type slow struct {
	scripted
	takes time.Duration
}

func (s slow) TimeToOff() time.Duration { return s.takes }

// A device that needs time before it reports Off is waited for, and those that do not are asked when it is about to
// answer: no answer is old when all are there.
func TestAskEachWithASlowDevice(t *testing.T) {
	const off, unknown = providers.PowerOff, providers.PowerUnknown
	pause := func(ctx context.Context, d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	now := func(s providers.PowerState) scripted {
		return func(ctx context.Context, _ providers.Target) (providers.Observation, error) {
			at := time.Now()
			pause(ctx, 100*time.Millisecond)
			return providers.Observation{State: s, At: providers.InstantOf(at)}, nil
		}
	}
	hangs := scripted(func(ctx context.Context, _ providers.Target) (providers.Observation, error) {
		<-ctx.Done()
		return providers.Observation{}, ctx.Err()
	})
	twice := func(d time.Duration) slow { // as ec2 asks
		return slow{func(ctx context.Context, tg providers.Target) (providers.Observation, error) {
			pause(ctx, d)
			return now(off)(ctx, tg)
		}, d}
	}
	type said struct {
		state providers.PowerState
		at    time.Duration // when it was asked
	}
	for _, tc := range []struct {
		name string
		of   []providers.Provider
		want []said
		took time.Duration
	}{
		{"it says Off", []providers.Provider{twice(3 * time.Second), now(off)},
			[]said{{off, 3 * time.Second}, {off, 3 * time.Second}}, 3100 * time.Millisecond},
		{"it comes second", []providers.Provider{now(off), twice(3 * time.Second)},
			[]said{{off, 3 * time.Second}, {off, 3 * time.Second}}, 3100 * time.Millisecond},
		{"it knows at once", []providers.Provider{slow{now(unknown), 3 * time.Second}, now(off)},
			[]said{{unknown, 0}, {off, 100 * time.Millisecond}}, 200 * time.Millisecond},
		{"it hangs", []providers.Provider{slow{hangs, 3 * time.Second}, now(off)},
			[]said{{unknown, 0}, {off, 3 * time.Second}}, 3*time.Second + providers.Patience},
		{"it knows at once, and the other hangs", []providers.Provider{slow{now(off), 3 * time.Second}, hangs},
			[]said{{off, 0}, {unknown, 0}},
			100*time.Millisecond + providers.Patience},
		{"two do", []providers.Provider{twice(2 * time.Second), twice(4 * time.Second), now(off)},
			[]said{{off, 2 * time.Second}, {off, 4 * time.Second}, {off, 4 * time.Second}}, 4100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var qs []providers.Question
				for i, p := range tc.of {
					qs = append(qs,
						providers.Question{Provider: p, By: fmt.Sprintf("p%d", i),
							Target: providers.Target{Node: "n1"}})
				}
				begun := time.Now()
				got := providers.AskEach(ctx, qs, known, providers.Now)
				if took := time.Since(begun); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				for i, a := range got {
					if at := a.At.Sub(providers.InstantOf(begun)); a.State != tc.want[i].state ||
						a.State != unknown && at != tc.want[i].at {
						t.Errorf("answer %d: got %s of %s, %v; want %s of %s", i, a.State, at, a.Err, tc.want[i].state,
							tc.want[i].at)
					}
				}
			})
		})
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const value = "hunter2"
	s := providers.NewSecret(value)
	if got := s.Reveal(); got != value {
		t.Fatalf("Reveal: got %q", got)
	}
	if got := (providers.Secret{}).Reveal(); got != "" {
		t.Errorf("zero Secret reveals %q", got)
	}
	holders := []any{
		s, &s, []providers.Secret{s}, map[string]providers.Secret{"a": s},
		struct{ Password providers.Secret }{s}, struct{ password providers.Secret }{s}, &struct {
			inner struct{ password *providers.Secret }
		}{},
		fmt.Errorf("wrapped: %v", s),
	}
	var out bytes.Buffer
	for _, h := range holders {
		for _, verb := range []string{
			"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%10.3s", "%!"} {
			fmt.Fprintf(&out, verb+"\n", h)
		}
		fmt.Fprintln(&out, h)
		if b, err := json.Marshal(h); err == nil {
			out.Write(b)
		}
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", h)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", h)
	}
	for _, leak := range []string{value, "68756e746572", "68756E746572", "hun"} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q leaked:\n%s", leak, out.String())
		}
	}
}

func TestSecretRef(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Setenv("FORCEFENCE_TEST_SECRET", "from env")
	t.Setenv("FORCEFENCE_TEST_EMPTY", "")
	tests := []struct {
		name string
		ref  providers.SecretRef
		want string // "": an error
	}{
		{"file", providers.SecretRef{File: file("a", "pass word\n")}, "pass word"},
		{"file, carriage return", providers.SecretRef{File: file("b", "p\r\n")}, "p"},
		{"file with blanks kept", providers.SecretRef{File: file("c", " p ")}, " p "},
		{"empty file", providers.SecretRef{File: file("d", "\n")}, ""},
		{"no such file", providers.SecretRef{File: filepath.Join(dir, "none")}, ""},
		{"environment", providers.SecretRef{Env: "FORCEFENCE_TEST_SECRET"}, "from env"},
		{"empty environment", providers.SecretRef{Env: "FORCEFENCE_TEST_EMPTY"}, ""},
		{"both", providers.SecretRef{File: file("e", "x"), Env: "FORCEFENCE_TEST_SECRET"}, ""},
		{"neither", providers.SecretRef{}, ""},
	}
	for _, tt := range tests {
		s, err := tt.ref.ReadSecret()
		if got := s.Reveal(); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// A password in the place of its file's or variable's name is refused, and not repeated.
func TestMisplacedSecret(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tc := range []struct {
		ref       providers.SecretRef
		path      string
		elsewhere bool // it may be a file on another host
	}{
		{providers.SecretRef{Env: "hunter2!"}, "passwordEnv", false},
		{providers.SecretRef{Env: "{name}"}, "passwordEnv", false},
		{providers.SecretRef{File: "hunter2"}, "passwordFile", false},
		{providers.SecretRef{File: "hunter2", Env: "hunter2!"}, "passwordFile", false},
		{providers.SecretRef{File: "hunter2/=="}, "passwordFile", true},
		{providers.SecretRef{File: "/none/password"}, "passwordFile", true},
	} {
		got := tc.ref.Validate("password")
		if len(got) != 1 || got[0].Path != tc.path || errors.Is(got[0].Err, fs.ErrNotExist) != tc.elsewhere ||
			strings.Contains(got[0].Text, "hunter2") {
			t.Errorf("%+v: got %+v, want one fault at %s", tc.ref, got, tc.path)
		}
	}
	for _, ref := range []providers.SecretRef{{Env: "BMC_PASSWORD"}, {Env: "bmc.rack-1"}} {
		if got := ref.Validate("password"); len(got) > 0 {
			t.Errorf("%+v: got %+v, want none", ref, got)
		}
	}
}

func TestClass(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{errors.New("x"), "error"},
		{fmt.Errorf("asking: %w", providers.ErrNotFound), "not_found"},
		{providers.ErrDenied, "denied"},
		{providers.ErrUnreachable, "unreachable"},
		{providers.ErrPermanent, "permanent"},
		{providers.ErrUntrusted, "untrusted"},
		{providers.ErrIdentity, "identity"},
		{providers.ErrStale, "stale"},
		{context.DeadlineExceeded, "unreachable"},
		{context.Canceled, "canceled"},
		{providers.WithClass(providers.ErrDenied, errors.New("401 Unauthorized")), "denied"},
		{errors.Join(providers.ErrUnreachable, providers.ErrIdentity), "identity"},
	}
	for _, tt := range tests {
		if got := providers.ErrorClass(tt.err); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
		if listed := slices.Contains(providers.ErrorClasses(), tt.want); listed != (tt.err != nil) {
			t.Errorf("ErrorClasses has %q: got %t, want %t", tt.want, listed, tt.err != nil)
		}
	}
}

func TestWithClass(t *testing.T) {
	cause := errors.New("503 Service Unavailable")
	err := providers.WithClass(providers.ErrUnreachable, cause)
	if err.Error() != cause.Error() || !errors.Is(err, cause) || !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if err := providers.WithClass(providers.ErrDenied, nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// A device's error is shown in Events: as one bounded line, with the cause only.
func TestText(t *testing.T) {
	licence := providers.WithClass(providers.ErrDenied, errors.New("403 Forbidden (SMC.v1_0_0.OemLicenseNotPassed)"))
	long := strings.Repeat("ä", 300)
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"no class", errors.New("boom"), "boom"},
		{"the cause alone", fmt.Errorf("ask state of node n1 (redfish rack-a https://10.0.0.7): %w", licence),
			"403 Forbidden (SMC.v1_0_0.OemLicenseNotPassed)"},
		{"the outermost class",
			fmt.Errorf("x: %w", providers.WithClass(providers.ErrDenied, fmt.Errorf("reading chassis: %w", licence))),
			"reading chassis: 403 Forbidden (SMC.v1_0_0.OemLicenseNotPassed)"},
		{"a class of its own text", fmt.Errorf("%w: the device spoke of another", providers.ErrIdentity),
			"identity mismatch: the device spoke of another"},
		{"lines, escapes, bad UTF-8", errors.New("a\r\n\tb\x1b[31m\x00c\u202ed\u2028e\xff\xfef "), "a b [31m c d e f"},
		{"credentials in an address", errors.New("GET https://root:geh@eim@10.0.0.7/x: no route"),
			"GET https://10.0.0.7/x: no route"},
		{"long", errors.New(long), strings.Repeat("ä", 98) + "..."},
		{"endless", errors.New(strings.Repeat("x", 1<<20)), strings.Repeat("x", 197) + "..."},
	} {
		if got := providers.ErrorText(tt.err); got != tt.want || len(got) > 200 {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\nb \xff ://u:p@h")
	f.Fuzz(func(t *testing.T, s string) {
		got := providers.ErrorText(errors.New(s))
		bad := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
		if len(got) > 200 || !utf8.ValidString(got) || bad >= 0 {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func TestRegistry(t *testing.T) {
	r := providers.Registry{{Name: "redfish"}, {Name: "ec2"}}
	if got := fmt.Sprint(r.TypeNames()); got != "[ec2 redfish]" {
		t.Errorf("names: got %s", got)
	}
	if _, ok := r.FindType("redfish"); !ok {
		t.Error("redfish was not found")
	}
	if _, ok := r.FindType("Redfish"); ok {
		t.Error("a name that differs in case was found")
	}
}

func TestCanonicalUUID(t *testing.T) {
	const want = "11223344-5566-7788-99aa-bbccddeeff00" // the other order begins with 44
	for in, want := range map[string]string{
		want: want, "44332211-6655-8877-99aa-bbccddeeff00": want, "{112233445566778899AABBCCDDEEFF00}": want,
		"": "", "n1": "", "00000000-0000-0000-0000-000000000000": "", "03000200-0400-0500-0006-000700080009": "",
	} {
		if got := providers.CanonicalUUID(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// An error that was named by its class is of that class again, and of no other.
func TestOfClass(t *testing.T) {
	for _, err := range []error{
		nil, providers.ErrIdentity, providers.ErrStale, providers.ErrNotFound, providers.ErrDenied,
		providers.ErrUntrusted, providers.ErrPermanent,
		providers.ErrUnreachable, context.DeadlineExceeded, context.Canceled, errors.New("of no class"),
	} {
		class := providers.ErrorClass(err)
		if again := providers.ErrorOfClass(class, "x"); providers.ErrorClass(again) != class ||
			again != nil && again.Error() != "x" {
			t.Errorf("%s: got %v of class %s", class, again, providers.ErrorClass(again))
		}
	}
}
