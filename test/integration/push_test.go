package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
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
