package view

import (
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/reason"
)

// A banner names the deleted Nodes whose newest own Event says that volumes are attached.
func TestDescribeGone(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(why reason.Reason, after time.Duration, from string) Event {
		return Event{At: began.Add(after), Reason: string(why), Text: "of " + from, From: from}
	}
	events := map[string][]Event{
		"attached": {event(reason.GoneAttached, 0, "forcefence"), event(reason.PoweredOff, time.Second, "forcefence")},
		"detached": {
			event(reason.GoneDetached, time.Second, "forcefence"), event(reason.GoneAttached, 0, "forcefence"),
		},
		"again":   {event(reason.GoneAttached, 0, "forcefence")},
		"claimed": {event(reason.GoneAttached, 0, "another")},
		"plain":   {event(reason.NeedsPerson, 0, "forcefence")},
	}
	got := DescribeGone(events, map[string]bool{"again": true})
	if len(got) != 1 || !strings.HasPrefix(got[0].Text, "1 deleted node: attached. of forcefence") {
		t.Errorf("got %+v, want a banner about the node attached", got)
	}
	got = FleetOf(Snapshot{At: began, Events: events}).Banners
	if len(got) != 1 || got[0].About != PartGone || !strings.HasPrefix(got[0].Text, "2 deleted nodes: again, attached.") {
		t.Errorf("got %+v, want a banner of the fleet about the nodes again and attached", got)
	}
	if got := DescribeGone(nil, nil); got != nil {
		t.Errorf("got %+v without Events, want none", got)
	}
}
