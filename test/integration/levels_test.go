package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// A BMC refuses the power-off, so its level gives way to the outlets of two power supplies. One of them is off and the
// other does nothing: the machine runs on, and nothing is proven. Once both are off the node is recovered, and the
// record says which outlet said so, and of whose machine.
func TestLevels(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 2))
	before := w.podsOn(h)

	// An outlet is a machine of the data centre in front of the server: it says the server's UUID, and the server runs
	// while one is on.
	outlet := func(name string) (*datacenter.Machine, *datacenter.BMC) {
		m := w.dc.AddMachine(w.ns + "-" + name)
		b := w.dc.AddBMC(m)
		b.SetFault(datacenter.Fault{SystemUUID: h.machine.SystemUUID()})
		return m, b
	}
	a, stripA := outlet("outlet-a")
	b, stripB := outlet("outlet-b")
	fed := func(_ *datacenter.Machine, on bool) {
		if !on && !a.Running() && !b.Running() {
			h.cut()
			h.bmc.SetFault(datacenter.Fault{Drop: true}) // it has no power, either
		}
	}
	a.OnChange(fed)
	b.OnChange(fed)
	h.bmc.SetFault(datacenter.Fault{ActionStatus: 503})
	stripB.SetFault(datacenter.Fault{SystemUUID: h.machine.SystemUUID(), StaysOn: true})

	list := func(of *datacenter.BMC) string {
		return fmt.Sprintf("{from: list, list: [{node: %s, id: %q}]}", h.Name(), of.URL())
	}
	c := w.start(settings{
		Mode: "fence", Machine: list(h.bmc) + fmt.Sprintf("\n  levels:\n  - devices:\n    - {provider: racks, "+
			"machine: %s}\n    - {provider: cellar, machine: %s}", list(stripA), list(stripB)),
		Env: []string{"FORCEFENCE_POWER_OFF_TIMEOUT=3m"},
	})
	h.partition()
	if note := w.untilEvent("Node", h.Name(), "LevelGaveWay"); !strings.Contains(note, h.bmc.URL()) ||
		!strings.Contains(note, stripA.URL()) {
		t.Errorf("Event: got %q, want which device failed, and which has its turn", note)
	}
	w.until("a power-off through both outlets", func() bool { return !a.Running() && resets(b, stripB) > 0 })
	w.during(4*time.Second, "one outlet is off, and the machine runs on the other",
		func() error { return untouched(before, w.podsOn(h)) })
	if !h.machine.Running() {
		kit.Harm(t, "the machine is off, and one of its outlets is on")
	}
	stripB.SetFault(datacenter.Fault{SystemUUID: h.machine.SystemUUID()})
	rec := w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	for _, strip := range []string{"racks/" + stripA.URL(), "cellar/" + stripB.URL()} {
		if !rec.HasOff(strip) {
			t.Errorf("evidence: got %+v, want Off from %s", rec.Evidence, strip)
		}
	}
	for _, e := range rec.Evidence {
		if e.State == "Off" && !strings.EqualFold(e.SystemUUID, h.machine.SystemUUID()) {
			t.Errorf("evidence: got %+v, want the UUID of the machine that it spoke of", e)
		}
	}
	if n := resets(a, stripA); n != 1 {
		kit.Harm(t, "power-offs through the outlet that was off: got %d, want 1", n)
	}
	if c.log.has(w.dc.Password()) {
		t.Error("the log holds a password")
	}
	kit.Must(t, c.answers("/healthz"))
}

// resets counts the power-offs that were asked of a machine by way of a BMC.
func resets(m *datacenter.Machine, by *datacenter.BMC) int {
	return by.Count(http.MethodPost, "/redfish/v1/Systems/"+m.Name()+"/Actions/ComputerSystem.Reset")
}
