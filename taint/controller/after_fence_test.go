package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
)

// socket is off until somebody turns it on, and notes by its name when that is asked.
type socket struct {
	oneMachine
	name   string
	asked  *[]string
	broken error
}

func (o *socket) PowerOn(context.Context, providers.Target, func() error) error {
	*o.asked = append(*o.asked, o.name)
	return o.broken
}

// powering is a node whose machine was turned off through two outlets; its fence is done, and the power-on is
// announced. What is asked of the outlets is noted.
func powering(t *testing.T, broken error) (x *midst, asked *[]string, s action.Decision) {
	t.Helper()
	asked = &[]string{}
	a, b := &socket{name: "a", asked: asked, broken: broken}, &socket{name: "b", asked: asked}
	x = inMidst(t, &a.oneMachine, taint.PhaseDone)
	a.state, b.state, b.now = providers.PowerOff, providers.PowerOff, x.c.Now
	var m machine.Machine
	for _, o := range []*socket{b, a} {
		m = machine.Machine{
			Provider: o, Name: o.name, Device: o.name + "/n1", Target: providers.Target{Node: "n1", ID: "n1"},
			Feeds:    true,
			Identity: taint.MachineRef{Provider: o.name, ID: "n1"}, Further: m.Devices(),
		}
	}
	config := x.Config()
	config.Machines.Led = func(*corev1.Node) (machine.Machine, error) { return m, nil }
	config.Fence.AfterFence = fence.AfterFence{PowerOn: true, PerDay: 1}
	x.Config = func() *Config { return config }
	rec := taint.Record{
		ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test", Since: x.c.now, PowerOff: true,
		OffBy: proof.SpeakersOf(m.ProofDevices()),
	}.EnterPhase(taint.PhaseDone, taint.ResultEvicted, x.c.now)
	write := func(r taint.Record) {
		x.live.node = x.live.node.DeepCopy()
		x.cached.node = x.live.node
		x.live.node.Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
	}
	write(rec)
	x.pass(time.Minute)
	said := x.upTo("WriteRecord")
	x.tells(said, decide.ActionDone{})
	write(action.RecordOf(said.Action))
	x.WithFleet(func(f *fleet.Fleet) { x.st.course.Apply(providers.InstantOf(x.Now()), f, decide.ActionDone{}) })
	return x, asked, x.upTo("PowerOn")
}

// The power is given only by a leader, and only right after a look; through all devices that the step names, whatever
// one of them says.
func TestPowerOnNeedsLeaderAndLook(t *testing.T) {
	refused := errors.New("refused")
	for _, tc := range []struct {
		name            string
		age             time.Duration // of the look
		leading, broken error
		want            []string
		err             error
		late            bool
	}{
		{"leader, fresh look", 0, nil, nil, []string{"a", "b"}, nil, false},
		{"the first does not take it", 0, nil, refused, []string{"a", "b"}, refused, false},
		{"stopped for a while since the look", 6 * time.Second, nil, nil, nil, providers.ErrNotSent, true},
		{"no leader any more", 0, errStale, nil, nil, errStale, true},
		{"what changes before the second stops it", 0, nil, providers.ErrNotSent, []string{"a"}, providers.ErrNotSent,
			true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x, asked, s := powering(t, tc.broken)
			x.Leading = func() error { return tc.leading }
			x.c.now = x.c.now.Add(tc.age)
			if o := x.act(t.Context(), s); !slices.Equal(*asked, tc.want) || o.Withheld != tc.late ||
				!errors.Is(o.Err, tc.err) {
				t.Errorf("got power-ons of %v, outcome %+v, want %v, %v, late %v", *asked, o, tc.want, tc.err, tc.late)
			}
		})
	}
}

// What is written of a machine after its fence is told, and counts as no other fence.
func TestAfterwardsIsNoFence(t *testing.T) {
	x, _, _ := powering(t, nil)
	if got := told(x.events); len(got) != 1 {
		t.Errorf("got Events %q, want one of the power-on", got)
	}
	if n := x.heard.count(t, "forcefence_fences_total", string(taint.ResultEvicted)); n != 0 {
		t.Errorf("got %v fences that ended, want none of an announcement", n)
	}
	again := *x.st.course.Look().Record
	again.Result = taint.ResultNeverPoweredOff
	x.tells(action.Decision{Action: action.WriteRecord{Record: again}, Reason: reason.NeverOff}, decide.ActionDone{})
	if n := x.heard.count(t, "forcefence_fences_total", string(taint.ResultNeverPoweredOff)); n != 1 {
		t.Errorf("got %v fences of a machine that was never off, want one", n)
	}
}
