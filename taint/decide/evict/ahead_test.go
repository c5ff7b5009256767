package evict

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// A record of a clock that runs ahead is overdue once this process has seen it for that long.
func TestRecordOfAClockThatRunsAhead(t *testing.T) {
	ahead := func(seen time.Duration) with {
		return func(v *View) {
			v.Look.Record.At = now.Wall.Add(time.Hour)
			v.Seen = v.Seen.WithRecord(v.Look.Record, ago(seen))
		}
	}
	late := func(change with) View { return onOvertime(ForceDetach, change) }
	for _, tt := range []struct {
		name  string
		view  View
		alert string
		act   action.Action
	}{
		{"seen for five minutes", late(ahead(5 * time.Minute)), "", action.Wait{}},
		{"seen for seven minutes", late(ahead(7 * time.Minute)), string(reason.WaitingDetach),
			action.DeleteAttachments{}},
		{"pods to end, seen for seven minutes", evicting(proven, pods(pod("p")), ahead(7*time.Minute)),
			string(reason.Tombstoning), action.EndPods{}},
		{"seen just now", late(func(v *View) { v.Look.Record.At = now.Wall.Add(time.Hour) }), "", action.Wait{}},
	} {
		d := Step(tt.view)
		if d.Alert != tt.alert || action.Name(d.Action) != action.Name(tt.act) {
			t.Errorf("%s: got %s, alert %q; want %s, %q", tt.name, action.Name(d.Action), d.Alert, action.Name(tt.act),
				tt.alert)
		}
	}
}
