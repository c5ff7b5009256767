package sim

import (
	"errors"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// actDeadline bounds a power action from its last check until the device has it: a guard's timeout.
const actDeadline = 5 * time.Second

// errNotSent is a power action whose last check failed.
var errNotSent = errors.New("nothing was sent")

// wires draws how long power actions take. It has a generator of its own.
type wires struct{ dice }

// busy is how long a provider needs before it asks for the last check: its turn, the machine's identity, a failed
// attempt. The process may be stopped in the middle of it, until another leads.
func (x wires) busy(k *worker) time.Duration {
	d, held := x.held(k, 0.5, 10*time.Second, "power action held up before its last check")
	if stopped := x.between(5*time.Second, 25*time.Second); held && x.chance(0.2) {
		k.w.after(x.between(0, d), func() { k.pause(stopped) })
	}
	return d
}

// way is how long the request takes to reach the device after the last check.
func (x wires) way(k *worker) time.Duration {
	d, _ := x.held(k, 0.4, actDeadline, "power action held up on its way")
	return d
}

// held is a moment, or with that chance up to the longest time. In that time the node may come back.
func (x wires) held(k *worker, chance float64, longest time.Duration, what string) (d time.Duration, held bool) {
	w, share := k.w, 0.0
	if !w.calm {
		share = x.share(chance)
	}
	if share == 0 {
		return x.between(time.Millisecond, 25*time.Millisecond), false
	}
	w.count(what)
	d = time.Duration(share * float64(longest))
	if x.usual(0.4) { // and meanwhile the node is back
		w.after(x.between(0, d), func() { w.heal(k.m) })
	}
	return d, true
}

// lastCheck is a power action as it was when its last check allowed it.
type lastCheck struct {
	by    *Process
	look  taint.Look
	at    time.Time
	heard time.Time // when the process' watches had brought the last news by then
	what  string
}

// allowed checks that the last check knew nothing against the power action. It knows what the look saw, what the
// watches had brought, and the pause of all nodes, which it reads once more.
func (c *checker) allowed(k lastCheck) {
	w, l := c.w, k.look
	c.keptOn(l, k.what)
	for _, o := range w.words {
		known := !o.away && !o.from.After(k.heard) || o.by == "ConfigMap" && !w.down
		if known && (o.node == l.Name || o.node == "") && (o.till.IsZero() || o.till.After(k.at)) {
			w.fail("8", "%s of %s, which %s keeps from it since the look", k.what, l.Name, o.by)
		}
	}
	n := w.api.asOf(k.heard).node(l.Name)
	if n == nil || taint.IsOlder(n.ResourceVersion, l.ResourceVersion) {
		return
	}
	r, err := taint.RecordOf(n)
	if err != nil || r.IDOr("") != l.Record.ID || r.Phase != l.Record.Phase || r.Result != l.Record.Result {
		w.fail("record", "%s of %s, whose record says something else since the look", k.what, l.Name)
	}
	if n.Status.NodeInfo.BootID != l.BootID {
		w.fail("power", "%s of %s, which booted since the look", k.what, l.Name)
	}
}

// arrives judges a power action when the device gets it. What happened after the last check is no fault, nor what
// happened so shortly before it that no watch had brought it. It is counted. The age of the look and the deadline bound
// it.
func (c *checker) arrives(k lastCheck) {
	w, l := c.w, k.look
	if way := w.now.Sub(k.at); way > actDeadline {
		w.fail("power", "%s of %s arrives %s after its last check", k.what, l.Name, way)
	}
	if i := w.leader; i >= 0 && i != k.by.index {
		if !w.procs[i].since.After(k.at) {
			w.fail("power", "%s of %s by %s, while %s leads", k.what, l.Name, k.by.name, w.procs[i].name)
		}
		w.count(k.what + ": leadership lost after the last check")
	}
	beat := func(by time.Time) bool {
		lease := w.api.asOf(by).lease(l.Name)
		return lease != nil && taint.IsOlder(l.LeaseRV, lease.ResourceVersion)
	}
	age := k.at.Sub(l.Sent.Wall)
	switch {
	case beat(k.heard):
		w.fail("power", "%s of %s, whose heartbeat since the look was heard", k.what, l.Name)
	case age > proofTTL+l.Got.Sub(l.Sent):
		w.fail("power", "%s of %s on a look that was %s old at its last check", k.what, l.Name, age)
	case beat(k.at):
		w.count(k.what + ": a heartbeat that no watch had brought at the last check")
	case beat(w.now):
		w.count(k.what + ": a heartbeat after the last check")
	default:
		w.count(k.what + ": nothing since the look")
	}
}
