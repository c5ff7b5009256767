package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// A hypervisor falls silent, and with it the devices of all guests that may be there. That proves nothing, until the
// BMC of its host says Off: then the guest that no other hypervisor has is off. The one that runs elsewhere is left
// alone, silent as its node is.
func TestGuestIsOffWithItsHost(t *testing.T) {
	a, b := hypervisor.New(t, hypervisor.Options{}), hypervisor.New(t, hypervisor.Options{})
	guests := []*hypervisor.Domain{a.Guest(t, "dies", hypervisor.Guest{}), b.Guest(t, "has-moved", hypervisor.Guest{})}
	w := newWorld(t, plan{nodes: 5, node: func(i int, o *cluster.NodeOptions) {
		if i < len(guests) {
			o.SystemUUID = guests[i].UUID()
			o.Labels["room"] = "guests"
		}
	}})
	dies, moved := w.hosts[0], w.hosts[1]
	w.fill(dies, 3, w.volumes("db", 2), w.plain("web", 1))
	before := w.podsOn(dies)

	serverA, serverB := w.dc.AddMachine(w.ns+"-a"), w.dc.AddMachine(w.ns+"-b")
	bmcA, bmcB := w.dc.AddBMC(serverA), w.dc.AddBMC(serverB)
	c := w.start(settings{
		Mode: "fence", Selector: "world=" + w.ns + ",room!=guests",
		Providers: fmt.Sprintf("- name: group\n  timeout: 2s\n  libvirt: {uris: [%q, %q]}", a.URI(), b.URI()),
		Rules: fmt.Sprintf(`- name: guests
  provider: group
  machine: {from: list, list: [{node: %s, id: %s}, {node: %s, id: %s}]}
  within:
  - {hypervisor: %q, provider: racks, id: %q, systemUUID: %s}
  - {hypervisor: %q, provider: cellar, id: %q}`,
			dies.Name(), guests[0].UUID(), moved.Name(), guests[1].UUID(), a.URI(), bmcA.URL(), serverA.SystemUUID(),
			b.URI(), bmcB.URL()),
	})
	c.untilMetric(`forcefence_machines{result="ok"}`, 5)

	a.FreezeDaemon() // as a machine without power: it refuses nothing
	for _, h := range []*host{dies, moved} {
		h.partition()
	}
	asked := func() int { return len(bmcA.Requests()) }
	w.until("the host's BMC is asked", func() bool { n := asked(); return !w.ready(dies) && n > 0 })
	n := asked()
	w.until("it is asked again", func() bool { return asked() > n+4 })
	for _, h := range []*host{dies, moved} {
		kit.Must(t, w.alone(h))
	}
	kit.Must(t, guests[0].Kill())
	dies.Node.PowerOff()
	serverA.CutPower()

	rec := w.untilDone(dies, taint.ResultEvicted)
	w.untilReplaced(dies, before)
	i := slices.IndexFunc(rec.Evidence, func(e taint.Evidence) bool { return e.State == "Off" })
	if i < 0 || rec.Evidence[i].From != "group/within/"+guests[0].UUID() ||
		!strings.Contains(rec.Evidence[i].Raw, "racks/"+bmcA.URL()) ||
		!strings.HasSuffix(rec.Evidence[i].Raw, " is Off, not on uris[1]") {
		t.Errorf("evidence: got %+v, want which host is off, and where else the guest is not", rec.Evidence)
	}
	w.during(3*time.Second, "a guest that runs on another hypervisor", func() error { return w.alone(moved) })
	if n := resets(serverA, bmcA) + resets(serverB, bmcB); n > 0 {
		kit.Harm(t, "%d power-offs of hosts, for their guests", n)
	}
	if !guests[1].Running() {
		kit.Harm(t, "a guest that lives was powered off")
	}
}
