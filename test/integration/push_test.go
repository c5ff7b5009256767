package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

// noLines keeps connections to nodes from noticing a power cut before a device reports it.
const noLines = "lines: {port: 0}"

// noticed checks that a device's own word made us suspect so many nodes whose machines are off, and not a heartbeat
// that was missed.
func (w *world) noticed(c *child, nodes float64) {
	w.t.Helper()
	if n := c.metric(`forcefence_noticed_total{by="push"}`); n != nodes {
		w.t.Errorf("noticed by a push: got %v, want %v", n, nodes)
	}
}

// A hypervisor reports that a guest has ended. A kubelet's stock heartbeats show that only after 25 s: the fence has
// begun before that. A guest that is only paused is on, and nothing is done about its node.
func TestHypervisorReportsPowerCut(t *testing.T) {
	hv := hypervisor.New(t, hypervisor.Options{})
	guests := []*hypervisor.Domain{hv.Guest(t, "dies", hypervisor.Guest{}), hv.Guest(t, "pauses", hypervisor.Guest{})}
	w := newWorld(t, plan{nodes: 4, own: &cluster.Options{}, node: func(i int, o *cluster.NodeOptions) {
		if i < len(guests) {
			o.SystemUUID = guests[i].UUID()
			o.Labels["power"] = "libvirt"
		}
	}})
	dies, pauses := w.hosts[0], w.hosts[1]
	w.busy(dies)
	before := w.pods()
	c := w.start(settings{
		Selector:  "world=" + w.ns + ",power!=libvirt",
		Top:       noLines,
		Providers: fmt.Sprintf("- name: hv\n  libvirt: {uri: %q}", hv.URI()),
		Rules: fmt.Sprintf("- name: guests\n  selector: %q\n  provider: hv\n  machine: {from: systemUUID}",
			"power=libvirt,world="+w.ns),
	})
	c.untilMetric(`forcefence_machines{result="ok"}`, 4) // the leader has asked all: it watches, too

	kit.Must(t, guests[1].Pause(t.Context()))
	kit.Must(t, guests[0].Kill())
	dies.Node.PowerOff()
	rec := w.untilDone(dies, taint.ResultEvicted)
	w.noticed(c, 1)
	if rec.Device != "hv/"+guests[0].UUID() || len(rec.Evidence) < 2 || rec.Evidence[0].State != "Off" {
		t.Errorf("record: got %+v, want device hv/%s and its answers", rec, guests[0].UUID())
	}
	c.untilMetric(`forcefence_device_events_total{state="Off"}`, 1)
	w.untilReplaced(dies, before)
	w.during(3*time.Second, "a guest that is paused", func() error { return w.alone(pauses) })
}

// EventBridge reports through a queue that an instance stops. A kubelet's stock heartbeats show that only after 25 s:
// the fence is over before that. A client that may send to the queue can claim that about a running instance, or claim
// anything else, and nothing comes of it.
func TestCloudReportsStop(t *testing.T) {
	const stops, runs = 0, 1
	w := inCloudAs(t, plan{nodes: 4, own: &cluster.Options{}, node: func(int, *cluster.NodeOptions) {}})
	q := w.cloud.AddQueue("eu-west-1", "forcefence")
	q.Follow(100 * time.Millisecond)
	h, other := w.hosts[stops], w.hosts[runs]
	w.busy(h)
	w.create(w.bare("stays", other))
	all := len(w.pods())
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, all))
	stays := w.podsOn(other)
	set := w.settings
	set.Top = noLines
	set.Providers = fmt.Sprintf("- name: aws\n  ec2: {regions: [eu-west-1], endpoint: %q, queues: [%q]}", w.cloud.URL(),
		q.URL())
	c := w.start(set)
	c.untilMetric(`forcefence_machines{result="ok"}`, 4)
	w.until("a reader of the queue", func() bool { return q.Polls() > 0 }) // the leader

	for _, lie := range []string{
		q.Event(w.instances[runs].ID(), "stopped", time.Now()), "nothing",
		q.Event("i-0ffffffffffffffff", "stopped", time.Now())} {
		q.Send(lie)
	}
	w.instances[stops].CutPower()
	h.Node.PowerOff()
	rec := w.untilDone(h, taint.ResultEvicted)
	w.noticed(c, 1)
	if rec.Device != "aws/"+providerID(stops) || len(rec.Evidence) < 2 || rec.Evidence[0].Raw != "stopped" {
		t.Errorf("record: got %+v, want the evidence of aws/%s", rec, providerID(stops))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, all))
	w.until("an empty queue", func() bool { return q.Len() == 0 })
	w.during(3*time.Second, "a lie about an instance that runs",
		func() error { return errors.Join(w.alone(other), untouched(stays, w.podsOn(other))) })
}

// A BMC reports that its machine has lost its power, by a stream or by a request to us. With stock heartbeats the fence
// is over before any other signal. If a BMC says so about a machine that runs, we only ask.
func TestBMCReportsPowerCut(t *testing.T) {
	ways := []string{"sse", "push"}
	w := newWorld(t, plan{nodes: 4, own: &cluster.Options{}, node: func(i int, o *cluster.NodeOptions) {
		if i < len(ways) {
			o.Labels["events"] = ways[i]
		}
	}})
	listen, file := kit.FreeAddress(t), func(name string) string { return filepath.Join(w.dir, name) }
	kit.Must(t, kit.NewAuthority("forcefence").Server("127.0.0.1").Write(file("tls.crt"), file("tls.key")))
	bmcs := fmt.Sprintf("username: fence, passwordFile: %q, caFile: %q", file("password"), file("ca.pem"))
	rule := "- name: %[1]s\n  selector: %[2]q\n  provider: %[1]s\n  machine: {from: annotation, annotation: %[3]s, " +
		"allow: [127.0.0.1]}\n"
	rules := ""
	for _, way := range ways {
		rules += fmt.Sprintf(rule, way, "events="+way+",world="+w.ns, bmcAnnotation)
	}
	c := w.start(settings{
		Selector: "world=" + w.ns + ",!events",
		Top:      noLines,
		Providers: fmt.Sprintf("- name: sse\n  redfish: {%s, events: sse}\n- name: push\n  redfish: {%s, events: "+
			"push, push: {listen: %q, destination: %q, certFile: %q, keyFile: %q}}",
			bmcs, bmcs, listen, "https://"+listen, file("tls.crt"), file("tls.key")),
		Rules: rules,
	})
	c.untilMetric(`forcefence_machines{result="ok"}`, 4) // the leader has asked all: it watches, too
	sse, push := w.hosts[0], w.hosts[1]
	w.until("the stream", func() bool { return sse.bmc.Streams() == 1 })
	w.until("the subscription", func() bool { return len(push.bmc.Subscriptions()) == 1 })
	if n := sse.bmc.Streams() + push.bmc.Streams() + len(sse.bmc.Subscriptions()) +
		len(w.hosts[3].bmc.Subscriptions()); n != 1 {
		t.Errorf("%d streams and subscriptions where there should be one stream", n)
	}

	sse.bmc.SendEvent("ResourceEvent.1.3.0.ResourcePoweredOff", "/redfish/v1/Systems/"+sse.machine.Name()) // a lie
	c.untilMetric(`forcefence_device_events_total{state="Off"}`, 1)
	w.during(3*time.Second, "a machine that runs", func() error { return w.alone(sse) })

	w.busy(sse)
	before := w.pods()
	w.create(w.bare("alone", push))
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(before)+1))
	for i, h := range []*host{sse, push} {
		h.cut()
		h.Node.PowerOff()
		rec := w.untilDone(h, taint.ResultEvicted)
		w.noticed(c, float64(i+1))
		if len(rec.Evidence) < 2 || rec.Evidence[0].State != "Off" || !strings.Contains(rec.Device, h.bmc.URL()) {
			t.Errorf("record: got %+v, want device %s and its answers", rec, h.bmc.URL())
		}
	}
	w.untilReplaced(sse, before)
}

// A BMC sends a trap when its machine has lost its power; neither its format nor its sender is ours. With stock
// heartbeats the fence is over before any other signal. The same trap, forged while the machine runs, only makes us
// ask; from another host not even that.
func TestBMCTrapsOnPowerCut(t *testing.T) {
	ipmisim.NeedTrap(t)
	sim := ipmisim.New(t, ipmisim.Options{})
	kit.Must(t, sim.SetPower(t.Context(), true))
	w := newWorld(t, plan{nodes: 3, own: &cluster.Options{}, node: func(i int, o *cluster.NodeOptions) {
		if i == 0 {
			o.SystemUUID = sim.UUID()
			o.Labels["power"] = "ipmi"
			o.Annotations[bmcAnnotation] = "ipmi://" + sim.Address()
		}
	}})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	address := kit.FreeAddress(t)
	c := w.start(settings{
		Selector: "world=" + w.ns + ",power!=ipmi",
		Top:      noLines,
		Providers: fmt.Sprintf("- name: rack\n  ipmi: {username: %s, passwordFile: %q, traps: %q, cipherSuites: [%d]}",
			ipmisim.Operator, sim.PasswordFile(), address, ipmisim.CipherSuite),
		Rules: fmt.Sprintf("- name: rack\n  selector: %q\n  provider: rack\n  machine: {from: annotation, "+
			"annotation: %s, allow: [127.0.0.1]}", "power=ipmi,world="+w.ns, bmcAnnotation),
	})
	c.untilMetric(`forcefence_machines{result="ok"}`, 3) // the leader has asked all: it watches, too
	quiet := func(what string) (asked int) {
		w.during(3*time.Second, what, func() error { return w.alone(h) })
		return sim.Asked()
	}
	first := quiet("a machine that runs")
	ipmisim.SendTrap(t, "127.0.0.2", address)
	if n := quiet("a stranger's trap"); n != first {
		t.Errorf("the BMC was asked %d times because of a stranger's trap", n-first)
	}
	ipmisim.SendTrap(t, "127.0.0.1", address)
	w.until("a question because of a forged trap", func() bool { return sim.Asked() > first })
	if n := quiet("a forged trap") - first; n > 10 {
		t.Errorf("the BMC was asked %d times because of a forged trap", n)
	}
	kit.Must(t, untouched(before, w.pods()))
	if n := c.metric(`forcefence_device_events_total{state="Off"}`); n != 0 {
		t.Errorf("%v events of a machine that runs", n)
	}

	kit.Must(t, sim.SetPower(w.ctx, false))
	h.Node.PowerOff()
	ipmisim.SendTrap(t, "127.0.0.1", address)
	rec := w.untilDone(h, taint.ResultEvicted)
	w.noticed(c, 1)
	if rec.Device != "rack/ipmi://"+sim.Address() || len(rec.Evidence) < 2 || rec.Evidence[0].State != "Off" {
		t.Errorf("record: got %+v, want device rack/ipmi://%s and its answers", rec, sim.Address())
	}
	w.untilReplaced(h, before)
}
