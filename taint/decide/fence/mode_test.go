package fence

import (
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/google/go-cmp/cmp"
)

// The modes in their order: of two, the one that does less is in force. An unknown mode does least.
func TestSafer(t *testing.T) {
	order := []Mode{9, Disabled, Shadow, Observe, OnRequest, Fence}
	for i, a := range order {
		for j, b := range order {
			if got := SaferMode(a, b); got != order[min(i, j)] {
				t.Errorf("%s and %s: got %s, want %s", a, b, got, order[min(i, j)])
			}
		}
	}
	for _, m := range order[1:] {
		if back, ok := ParseMode(m.String()); !ok || back != m {
			t.Errorf("%s: reads back as %s, %v", m, back, ok)
		}
	}
	if m, ok := ParseMode("mode 9"); ok {
		t.Errorf("got %s, want no mode of that name", m)
	}
}

// A Node's annotation may only make its mode safer. What is no mode was meant to hold something up.
func TestLowered(t *testing.T) {
	for _, tc := range []struct {
		mode Mode
		text string
		want Mode
		by   string
	}{
		{Fence, "observe", Observe, "annotation forcefence.io/mode"},
		{Fence, " shadow\n", Shadow, "annotation forcefence.io/mode"},
		{Fence, "fence", Fence, "the file"},
		{Fence, "onRequest", OnRequest, "annotation forcefence.io/mode"},
		{OnRequest, "fence", OnRequest, "the file"},
		{OnRequest, "observe", Observe, "annotation forcefence.io/mode"},
		{Observe, "onRequest", Observe, "the file"},
		{Fence, "onrequest", Disabled, `annotation forcefence.io/mode, whose value "onrequest" is not a mode`},
		{Observe, "fence", Observe, "the file"},
		{Shadow, "observe", Shadow, "the file"},
		{Disabled, "fence", Disabled, "the file"},
		{Observe, "disabled", Disabled, "annotation forcefence.io/mode"},
		{Fence, "off\x1b[2J", Disabled, `annotation forcefence.io/mode, whose value "off [2J" is not a mode`},
		{Fence, "", Disabled, `annotation forcefence.io/mode, whose value "" is not a mode`},
		{Fence, "Fence", Disabled, `annotation forcefence.io/mode, whose value "Fence" is not a mode`},
		{Fence, strings.Repeat("x", 300000), Disabled,
			`annotation forcefence.io/mode, whose value "` + strings.Repeat("x", 197) + `..." is not a mode`},
	} {
		c := ChosenMode{Mode: tc.mode, By: "the file", PowerOffAfter: time.Minute}
		if got := c.LoweredBy(map[string]string{ModeAnnotation: tc.text}); got.Mode != tc.want || got.By != tc.by ||
			got.PowerOffAfter != time.Minute {
			t.Errorf("%s under %.40q: got %+v, want %s by %s", tc.mode, tc.text, got, tc.want, tc.by)
		}
	}
	if c := (ChosenMode{Mode: Fence}); c.LoweredBy(map[string]string{"forcefence.io/modes": "disabled"}) != c {
		t.Error("a node without the annotation is lowered")
	}
}

// Mode shadow decides as mode fence up to the first act that begins something, says that with its evidence, once, and
// goes on watching.
func TestShadow(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	for name, view := range map[string]View{
		"off": dead(saying(off, 100*time.Millisecond)), "on": dead(saying(on, time.Second)),
		"unknown": dead(saying(unknown, 0)), "not asked": dead(),
		"excluded": dead(saying(off, 0), excluded), "busy": dead(busy, saying(on, 0)),
		"in its grace":         dead(justNow, saying(on, 0)),
		"a control-plane node": dead(controlPlane, saying(on, 0)), "healthy": dead(healthy),
		"no work":        dead(noWork, saying(off, 0)),
		"a cache's work": dead(saying(off, 100*time.Millisecond), func(v *View) { v.PendingWork = WorkCached }),
		"never pinned":   dead(saying(on, time.Second), func(v *View) { v.Facts.Devices[0].NoPower = "never pinned" }),
	} {
		fenced := Step(view)
		view.Facts.Mode = Shadow
		got := Step(view)
		want := fenced
		rec := recordOf(fenced)
		rec.ID = ""
		switch fenced.Action.(type) {
		case action.SetMark:
			want = detailed(waits(reason.WouldRecover, pollOn), `rack-a said Off ("Off") at 11:59:59`)
			want.Would.Action = action.SetMark{Record: rec}
		case action.WriteRecord:
			want = detailed(waits(reason.WouldPowerOff, pollOn), `rack-a said On ("On") at 11:59:58`)
			want.Would.Action = action.WriteRecord{Record: rec}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if want.Would.Action == nil {
			continue
		}
		if rec.NodeUID != view.Look.UID || rec.LeaseRV != view.Look.LeaseRV ||
			rec.PowerOff != action.Is[action.WriteRecord](fenced) || len(rec.Evidence) == 0 {
			t.Errorf("%s: got record %+v, want that of the fence", name, rec)
		}
		view.Memory.Reported = append(view.Memory.Reported, got.Reason)
		want.Reason = reason.Shadowed
		if diff := cmp.Diff(want, Step(view)); diff != "" {
			t.Errorf("%s, said already (-want +got):\n%s", name, diff)
		}
		view.Memory.ApplyLook(func() taint.Look { l := view.Look; l.LeaseRV = "8"; return l }())
		if len(view.Memory.Reported) != 0 {
			t.Errorf("%s: what was reported in one life counts in the next: %v", name, view.Memory.Reported)
		}
	}
}

// Mode onRequest decides as mode fence while a request counts, and as mode observe otherwise. In no other mode does a
// request change anything.
func TestOnRequest(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	for name, view := range map[string]View{
		"off": dead(saying(off, 100*time.Millisecond)), "on": dead(saying(on, time.Second)),
		"unknown": dead(saying(unknown, 0)), "not asked": dead(), "excluded": dead(saying(on, 0), excluded),
		"in its grace": dead(justNow, saying(on, 0)), "busy": dead(busy, saying(on, 0)), "healthy": dead(healthy),
		"a control-plane node": dead(controlPlane, saying(on, 0)),
		"never pinned":         dead(saying(on, 0), func(v *View) { v.Facts.Devices[0].NoPower = "never pinned" }),
		"announced":            dead(powering, saying(on, 0)),
		"sent, off":            dead(powering, sent(time.Second), saying(off, 100*time.Millisecond)),
		"sent, on":             dead(powering, sent(11*time.Second), saying(on, 0)),
	} {
		for _, by := range []string{"", "ForcefenceRemediation ns/n1"} {
			stated := view
			stated.Facts.Mode, stated.Facts.RequestedBy = OnRequest, by
			got := Step(stated)
			stated.Facts.Mode = Observe
			if by != "" {
				stated.Facts.Mode = Fence
			}
			want := Step(stated)
			if want.Detail == "mode observe" {
				want.Detail = "mode onRequest waits for a request"
			}
			if want.Reason == reason.ModeObserve {
				want.Reason = reason.RequestGone
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, requested by %q (-want +got):\n%s", name, by, diff)
			}
		}
	}
	for _, m := range []Mode{Observe, Fence, Shadow, Disabled, 9} {
		if got := (Facts{Mode: m, RequestedBy: "x"}).EffectiveMode(); got != m {
			t.Errorf("mode %s with a request: got %s, want it unchanged", m, got)
		}
	}
}

// A machine that is on is powered off in mode onRequest only while the request counts: it is announced, cancelled if
// the request goes before the power-off is sent, and recovered if it goes afterwards.
func TestRequestGoesInTheMiddle(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	requested := func(v *View) { v.Facts.Mode, v.Facts.RequestedBy = OnRequest, "ForcefenceRemediation ns/n1" }
	gone := func(v *View) { v.Facts.Mode = OnRequest }
	for name, tc := range map[string]struct {
		view View
		act  action.Action
		why  reason.Reason
	}{
		"requested":     {dead(requested, saying(on, time.Second)), action.WriteRecord{}, reason.Announcing},
		"not requested": {dead(gone, saying(on, time.Second)), action.Wait{}, reason.PoweredOn},
		"never pinned": {dead(requested, saying(on, time.Second), func(v *View) {
			v.Facts.Devices[0].NoPower = "never pinned"
		}), action.Wait{}, reason.PoweredOn},
		"unproven":  {dead(requested, saying(providers.PowerUnknown, 0)), action.Wait{}, reason.Unknown},
		"announced": {dead(powering, gone, saying(on, 0)), action.WriteRecord{}, reason.RequestGone},
		"sent, off": {dead(powering, sent(time.Second), gone, saying(off, 100*time.Millisecond)), action.SetMark{},
			reason.ProvenOff},
		"sent, still on": {dead(powering, sent(11*time.Second), gone, saying(on, 100*time.Millisecond)), action.Wait{},
			reason.AwaitingOff},
		"sent, requested": {dead(powering, sent(11*time.Second), requested, saying(on, 100*time.Millisecond)),
			action.PowerOff{}, reason.SendingOff},
	} {
		if d := Step(tc.view); kind(d) != action.Name(tc.act) || d.Reason != tc.why {
			t.Errorf("%s: got %s (%s), want %s (%s)", name, kind(d), d.Reason, action.Name(tc.act), tc.why)
		}
	}
}

// What was begun before the mode changed is ended: before the power-off it is cancelled, after it the node is
// recovered.
func TestModeChangesInTheMiddle(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	for _, m := range []Mode{Shadow, Disabled} {
		mode := func(v *View) { v.Facts.Mode = m }
		cancelled := map[Mode]reason.Reason{Shadow: reason.ModeObserve, Disabled: reason.ModeDisabled}[m]
		for name, tc := range map[string]struct {
			view View
			act  action.Action
			why  reason.Reason
		}{
			"announced": {dead(powering, mode, saying(on, 0)), action.WriteRecord{}, cancelled},
			"sent, off": {dead(powering, sent(time.Second), mode, saying(off, 100*time.Millisecond)),
				action.SetMark{}, reason.ProvenOff},
			"sent, on": {dead(powering, sent(11*time.Second), mode, saying(on, 0)), action.Wait{},
				reason.AwaitingOff},
			"sent, on for long": {dead(recorded(taint.PhasePoweringOff, "", 2*time.Minute), sent(2*time.Minute), mode,
				saying(on, 0)), action.WriteRecord{}, reason.PowerOffFailed},
			"mark vanished": {dead(recorded(taint.PhaseArmed, "", time.Second), mode), action.WriteRecord{},
				reason.MarkVanished},
		} {
			if d := Step(tc.view); kind(d) != action.Name(tc.act) || d.Reason != tc.why {
				t.Errorf("mode %s, %s: got %s (%s), want %s (%s)", m, name, kind(d), d.Reason, action.Name(tc.act),
					tc.why)
			}
		}
	}
}

// In mode disabled no device is asked, whatever the node's state.
func TestDisabled(t *testing.T) {
	for name, v := range map[string]View{
		"not asked": dead(), "off": dead(saying(providers.PowerOff, 0)),
		"on": dead(saying(providers.PowerOn, time.Minute)), "no machine": dead(noMachine),
	} {
		v.Facts.Mode, v.Facts.ModeBy = Disabled, "the file"
		if d := Step(v); !action.Is[action.Wait](d) || d.Reason != reason.ModeDisabled || d.Detail != "the file" ||
			d.RequeueAfter != recheckEvery {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	v := dead(healthy, recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute), func(v *View) {
		v.Look.Record.Run, v.Look.Record.RunBy, v.Look.LeaseRV = "run-1", v.Facts.Devices[0].Name, "8"
	})
	if v.Facts.Mode = Observe; Step(v).Reason != reason.Explaining {
		t.Fatalf("got %+v, want a question that mode disabled can keep from being asked", Step(v))
	}
	if v.Facts.Mode = Disabled; action.Is[action.AskDevices](Step(v)) {
		t.Errorf("got %+v", Step(v))
	}
}

// In mode shadow what began in another mode is ended: only the first record of a power-off is replaced by a report.
func TestShadowEndsWhatBegan(t *testing.T) {
	for _, phase := range []taint.Phase{taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone} {
		d := action.Decision{Action: action.WriteRecord{Record: taint.Record{Phase: phase}}, Reason: reason.Recovered}
		if diff := cmp.Diff(d, dead().shadowDecision(d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

// Only a fence that is done has moved its pods.
func TestMovedPods(t *testing.T) {
	for _, tt := range []struct {
		rec  *taint.Record
		want bool
	}{
		{nil, false},
		{&taint.Record{Phase: taint.PhaseDone, Result: taint.ResultEvicted}, true},
		{&taint.Record{Phase: taint.PhaseDone, Result: taint.ResultReturned}, true},
		{&taint.Record{Phase: taint.PhaseDone, Result: taint.ResultCancelled}, false},
		{&taint.Record{Phase: taint.PhaseEvicting, Result: taint.ResultEvicted}, false},
	} {
		if got := movedPods(tt.rec); got != tt.want {
			t.Errorf("%+v: got %v, want %v", tt.rec, got, tt.want)
		}
	}
}
