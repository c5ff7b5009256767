package controller

import (
	"time"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// across lends the memory across nodes to f, which must not block.
func (r *Reconciler) across(f func(*fleet.Fleet)) {
	r.fleetMu.Lock()
	defer r.fleetMu.Unlock()
	f(&r.fleet)
}

// WithFleet lends the memory across nodes to f, which must not block. It blocks while somebody else has it.
func (r *Reconciler) WithFleet(f func(*fleet.Fleet)) { r.across(f) }

// fleetView says what is known of a node now.
func (r *Reconciler) fleetView(name string) (v fleet.View) {
	r.across(func(f *fleet.Fleet) { v = f.View(name, r.now()) })
	return v
}

// liar names the node whose record keeps a device from being believed; "" for none.
func (r *Reconciler) liar(m machine.Machine) (by string) {
	r.across(func(f *fleet.Fleet) { by = f.Distrusted(m.Identity, m.Device, m.Target.Node) })
	return by
}

// ShouldList reports whether it is time to list the nodes, which were listed at some time before now: they may have
// moved since.
func (r *Reconciler) ShouldList(listed, now time.Time) bool { return r.moved.Since(listed, now) }
