package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
)

// lastReset is when the machine's BMC was asked last to change its power.
func (h *host) lastReset() (at time.Time) {
	for _, r := range h.bmc.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/Actions/ComputerSystem.Reset") {
			at = r.At
		}
	}
	return at
}

// A node is cut off, powered off and recovered. Its machine is powered on after the delay, and the node is back. Cut
// off once more soon after that it is fenced, and stays off. So does one that lost its power: forcefence did not turn
// it off.
func TestPoweredOnAfterItsFence(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, powerOffDelay: time.Second})
	h, lost := w.hosts[0], w.hosts[1]
	w.oneEach(h, lost)
	before := w.podsOn(h)
	c := w.start(settings{Mode: "fence", Top: "afterFence: powerOn\nfencedAgainWithin: 1h"})
	w.untilPinned(h, lost)
	lost.cut()
	if rec := w.untilDone(lost, taint.ResultEvicted); len(rec.OffBy) != 0 {
		t.Errorf("record: got %+v, want no device that was asked for a power-off", rec)
	}
	h.partition()
	first := w.untilDone(h, taint.ResultEvicted)
	if len(first.OffBy) != 1 || first.OffBy[0].Device != first.Device || len(first.PowerOns) != 0 {
		t.Errorf("record of the fence: got %+v, want the device that took the power-off, and no power-on", first)
	}
	w.untilReplaced(h, before)
	w.until("power-on", func() bool { return h.machine.State() == datacenter.On })
	w.untilEvent("Node", h.Name(), "PoweringOn")
	rec := w.record(h)
	if rec.ID != first.ID || len(rec.PowerOns) != 1 || rec.PowerOns[0].Sub(first.At) < time.Minute ||
		h.lastReset().Before(rec.PowerOns[0]) {
		t.Errorf("power-on: announced by %+v, sent at %s, want it in the record of %s, 1m after its end, and then sent",
			rec, h.lastReset(), first.ID)
	}
	w.until("Ready", func() bool { return w.ready(h) })
	w.create(w.bare("again", h))
	w.until("a pod that runs on the node", func() bool { return len(h.Running()) == 1 })
	if now := w.record(h); now.Result != taint.ResultEvicted || w.marked(h) || h.resets() != 2 {
		t.Errorf("back: got %+v, marked %t, after %d resets, want a clean node after two", now, w.marked(h), h.resets())
	}
	c.untilMetric(`forcefence_fences_total{result="Evicted"}`, 2)

	h.partition()
	w.until("another fence",
		func() bool { rec = w.record(h); return rec.ID != first.ID && rec.Phase == taint.PhaseDone })
	w.untilEvent("Node", h.Name(), "FencedAgainStaysOff")
	if rec = w.record(h); rec.Result != taint.ResultEvicted || rec.AfterFence != taint.AfterFenceFencedAgain ||
		len(rec.PowerOns) != 1 {
		t.Errorf("record of the second fence: got %+v", rec)
	}
	w.during(12*time.Second, "it stays off", func() error {
		if h.machine.State() != datacenter.Off || h.resets() != 3 {
			return fmt.Errorf("machine %s after %d resets", h.machine.State(), h.resets())
		}
		return nil
	})
	c.untilMetric(`forcefence_fences_total{result="Evicted"}`, 3)
	if lost.machine.State() != datacenter.Off || lost.resets() != 0 { // the delay of power-ons is long over
		t.Errorf("the machine that lost its power: %s after %d resets, want it left off", lost.machine.State(),
			lost.resets())
	}
}
