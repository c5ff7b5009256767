package controller

import "github.com/forcefence/forcefence/taint/decide/fleet"

// across lends the memory across nodes to f, which must not block.
func (r *Reconciler) across(f func(*fleet.Fleet)) {
	r.fleetMu.Lock()
	defer r.fleetMu.Unlock()
	f(&r.fleet)
}

// fleetView says what is known of a node now.
func (r *Reconciler) fleetView(name string) (v fleet.View) {
	r.across(func(f *fleet.Fleet) { v = f.View(name, r.now()) })
	return v
}
