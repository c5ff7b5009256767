package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// What a look said about one more power-off counts for the same life, and for a minute.
func TestPowerOffRefusalIsOfOneLife(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOn}, taint.PhaseDone)
	r := &Reconciler{base: x.base, nodes: map[string]*nodeState{"n1": x.st}}
	l := taint.Look{Exists: true, Name: "n1", UID: "u", BootID: "b", LeaseRV: "1"}
	if got := r.PowerOffRefusal(l); !strings.Contains(got, "since") {
		t.Errorf("before a look: got %q", got)
	}
	x.st.refusal.Store(&powerOffRefusal{life: l.Life(), at: x.Now.Instant()})
	if got := r.PowerOffRefusal(l); got != "" {
		t.Errorf("right after a look: got %q", got)
	}
	other := l
	other.LeaseRV += "0"
	if got := r.PowerOffRefusal(other); got == "" {
		t.Error("after a heartbeat: it may be powered off")
	}
	if other.Name = "n2"; r.PowerOffRefusal(other) == "" {
		t.Error("another node: it may be powered off")
	}
	x.pass(refusalHolds + time.Second)
	if got := r.PowerOffRefusal(l); got == "" {
		t.Error("later: it may be powered off")
	}
	r.noteRefusal(x.st) // no power-off failed
	if x.st.refusal.Load() != nil {
		t.Error("the fence did not end with a power-off that failed, and is noted")
	}
}
