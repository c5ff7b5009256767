package controller

import (
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// powerOffRefusal is what the last look at a node said about one more power-off.
type powerOffRefusal struct {
	life taint.Life
	at   providers.Instant
	why  string // "": it may be powered off
}

// refusalHolds is how long what one look said counts: each node whose power-off failed is looked at more often.
const refusalHolds = time.Minute

// noteRefusal notes whether the machine might be powered off once more, if a power-off of it failed.
func (r *Reconciler) noteRefusal(st *nodeState) {
	l := st.course.Look()
	if l.Record == nil || l.Record.Result != taint.ResultPowerOffFailed {
		st.refusal.Store(nil)
		return
	}
	now := r.Now.Instant()
	note := &powerOffRefusal{life: l.Life(), at: now}
	r.WithFleet(func(f *fleet.Fleet) { note.why = st.course.PowerOffRefusal(now, f) })
	st.refusal.Store(note)
}

// PowerOffRefusal returns why the machine of a node, whose power-off failed, must not be ended in another way either.
// It is "" if it may. l is a live look. All that a power-off requires must have held at a look of the last minute at
// the same life. It does not block.
func (r *Reconciler) PowerOffRefusal(l taint.Look) string {
	r.mu.Lock()
	st := r.nodes[l.Name]
	r.mu.Unlock()
	if st == nil {
		return "this controller has not looked at the node"
	}
	switch note := st.refusal.Load(); {
	case note == nil || !note.life.StillHolds(l) || note.at.Age(r.Now.Instant()) > refusalHolds:
		return "this controller has not looked at the node since"
	default:
		return note.why
	}
}
