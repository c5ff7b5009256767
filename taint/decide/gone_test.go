package decide

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// A deleted Node's attachments are deleted if no pod uses their volumes and a fresh look follows a fresh Off. Each
// condition alone keeps them.
func TestGoneNode(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) providers.Instant { return providers.InstantOf(began.Add(d)) }
	answer := func(state providers.PowerState) func(*GoneNode) {
		return func(g *GoneNode) { g.Answer.State = state }
	}
	released := func(boot string) *taint.Record {
		return &taint.Record{Phase: taint.PhaseDone, Result: taint.ResultReleased, NodeUID: "u1", BootID: boot,
			LeaseRV: "7"}
	}
	for name, tc := range map[string]struct {
		change func(*GoneNode)
		want   string // what is asked or deleted
		says   string
	}{
		"proven off": {func(*GoneNode) {}, "delete free, other", "racks/n1: Off"},
		"not asked":  {func(g *GoneNode) { g.Answer = providers.Answer{} }, "ask", ""},
		"on":         {answer(providers.PowerOn), "", "racks/n1: On"},
		"unknown":    {answer(providers.PowerUnknown), "", "racks/n1: Unknown"},
		"changing":   {answer(providers.PowerChanging), "", "racks/n1"},
		"no answer": {func(g *GoneNode) {
			g.Answer.State, g.Answer.Err = providers.PowerUnknown, providers.ErrUnreachable
		}, "", "unreachable"},
		"an Off too old":        {func(g *GoneNode) { g.Now = at(64 * time.Second) }, "", ""},
		"no look after the Off": {func(g *GoneNode) { g.Sent = g.Answer.Got }, "", ""},
		"a Node of that name":   {func(g *GoneNode) { g.Exists = true }, "", ""},
		"none attached":         {func(g *GoneNode) { g.Attachments = nil }, "", ""},
		"just deleted":          {func(g *GoneNode) { g.Since = at(55 * time.Second) }, "", ""},
		"never seen":            {func(g *GoneNode) { g.Look = taint.Look{} }, "", "no controller that runs"},
		"shadow":                {func(g *GoneNode) { g.Mode = fence.Shadow }, "", "mode"},
		"disabled":              {func(g *GoneNode) { g.Mode = fence.Disabled }, "", "mode"},
		"excluded":              {func(g *GoneNode) { g.Excluded = "paused" }, "", "excluded: paused"},
		"no machine": {func(g *GoneNode) { g.NoMachineErr = errors.New("two rules") }, "",
			"two rules"},
		"a twin":          {func(g *GoneNode) { g.Twin = "n2" }, "", "node n2 is heard"},
		"not switched on": {func(g *GoneNode) { g.MayDetach = false }, "", "onDetachTimeout"},
		"claims not read": {func(g *GoneNode) { g.Unread = true }, "", "cannot be read"},
		"another life's":  {func(g *GoneNode) { g.Older["u-free"] = true }, "delete other", ""},
		"released": {func(g *GoneNode) {
			g.Look.Record = released("b1")
		}, "", "a person released it"},
		"released on the boot before": {func(g *GoneNode) {
			g.Look.Record = released("b0")
		}, "delete free, other", ""},
		"a record that cannot be read": {func(g *GoneNode) {
			g.Look.RecordErr = errors.New("fence record does not parse")
		}, "", "does not parse"},
		"all used": {func(g *GoneNode) {
			g.Used["pv-free"], g.Used["pv-other"], g.Answer = true, true, providers.Answer{}
		}, "", "its pods still use them"},
	} {
		t.Run(name, func(t *testing.T) {
			g := GoneNode{
				Now: at(60 * time.Second), Since: at(0), Sent: at(59 * time.Second),
				Look: taint.Look{Exists: true, UID: "u1", BootID: "b1"},
				Mode: fence.Observe, MayDetach: true, Device: "racks/n1",
				Answer: providers.Answer{Observation: providers.Observation{
					State: providers.PowerOff, At: at(58 * time.Second)}, Got: at(58500 * time.Millisecond)},
				Attachments: []action.Attachment{{Name: "free", UID: "u-free", PV: "pv-free"},
					{Name: "used", UID: "u-used", PV: "pv-used"}, {Name: "other", UID: "u-other", PV: "pv-other"},
					{Name: "deleting", UID: "u-deleting", PV: "pv-deleting", Deleting: true},
					{Name: "inline", UID: "u-inline"},
					{Name: "never", UID: "u-never", PV: "pv-never", NeverAttached: true}},
				Used: map[string]bool{"pv-used": true, "": true}, Older: map[string]bool{},
			}
			tc.change(&g)
			s := g.Next()
			var names []string
			for _, a := range s.Delete {
				names = append(names, a.Name)
			}
			got := ""
			if s.Ask {
				got = "ask"
			}
			if len(names) > 0 {
				got += "delete " + strings.Join(names, ", ")
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !strings.Contains(s.Detail, tc.says) {
				t.Errorf("got detail %q, want %q in it", s.Detail, tc.says)
			}
			if _, may := g.MaySend(g.Now); len(s.Delete) > 0 && !may {
				t.Error("what is decided may not be sent")
			}
			if _, may := g.MaySend(at(63 * time.Second)); may {
				t.Error("the deletion may be sent after the Off is too old")
			}
		})
	}
	if goneGrace <= proof.TTL {
		t.Errorf("an answer of before the deletion may prove: goneGrace is %s, proof.TTL %s", goneGrace, proof.TTL)
	}
	first := GoneNode{Now: at(time.Second), Since: at(0), Attachments: []action.Attachment{{Name: "a", PV: "pv"}}}
	if s := first.Next(); s.Detail != "" || s.Again != 9*time.Second {
		t.Errorf("got %+v at once, want to wait for 9s", s)
	}
	never := first
	never.Attachments = []action.Attachment{{Name: "a", PV: "pv", NeverAttached: true}}
	if s := never.Next(); !s.Over || s.Detail != "" || s.Again != goneLate {
		t.Errorf("got %+v for what was never attached, want that it is over", s)
	}
	first.Now = at(time.Hour)
	if s := first.Next(); s.Detail == "" || s.Again != goneLate {
		t.Errorf("got %+v after an hour, want a report and %s", s, goneLate)
	}
	many := slices.Repeat(first.Attachments, 200)
	if first.Attachments = many; len(first.Next().Detail) > 200 {
		t.Errorf("got %q, want few names", first.Next().Detail)
	}
}
