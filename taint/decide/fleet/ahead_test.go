package fleet

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// A clock that runs ahead wrote the record of a turn. The turn still ends as long after its first sight as any other.
func TestTurnOfAClockThatRunsAhead(t *testing.T) {
	c := newCluster(t, 3)
	rec := taint.Record{ID: "f1", NodeUID: "u", By: "me", PowerOff: true}
	rec = rec.EnterPhase(taint.PhaseEvicting, "", c.now.Wall.Add(time.Hour))
	c.f.ApplyRecord("n1", "10", &rec, c.now)
	c.now = c.now.Add(turnTTL)
	c.f.ApplyRecord("n1", "11", &rec, c.now)
	if got := c.view("n2").Busy; got != "n1" {
		t.Errorf("busy: %q, want n1", got)
	}
	c.now = c.now.Add(time.Second)
	c.f.ApplyRecord("n1", "12", &rec, c.now)
	if got := c.view("n2").Busy; got != "" {
		t.Errorf("busy: %q, %s after the record was first seen", got, turnTTL+time.Second)
	}
}
