package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// A machine is dead, and its device says anything but its exact Off: nothing is ended, however long that lasts. Once
// the device works the node is fenced.
func TestFaultyDevices(t *testing.T) {
	faults := []struct {
		name   string
		bmc    datacenter.Fault
		secret bool   // the password is wrong
		asked  string // the metric's result that it shows up as
	}{
		{name: "connection dropped", bmc: datacenter.Fault{Drop: true}, asked: "unreachable"},
		{name: "503", bmc: datacenter.Fault{Status: 503}, asked: "unreachable"},
		{name: "hangs", bmc: datacenter.Fault{Silent: true}, asked: "unreachable"},
		{name: "hangs in TLS", bmc: datacenter.Fault{HangTLS: true}, asked: "unreachable"},
		{name: "half an answer that says Off", bmc: datacenter.Fault{SlowBody: true}, asked: "unreachable"},
		{name: "no answer in 204", bmc: datacenter.Fault{Empty: true}, asked: "unreachable"},
		{name: "no state", bmc: datacenter.Fault{NoPowerWord: true}, asked: "unknown"},
		{name: "unknown word", bmc: datacenter.Fault{PowerWord: "off"}, asked: "unknown"},
		{name: "paused", bmc: datacenter.Fault{PowerWord: "Paused"}, asked: "on"},
		{name: "powering off for ever", bmc: datacenter.Fault{PowerWord: "PoweringOff"}, asked: "changing"},
		{name: "another machine's UUID", bmc: datacenter.Fault{SystemUUID: "6f0c8f4e-3c34-4f0b-9a0e-1f7cf1b0a6d5"},
			asked: "off"},
		{name: "wrong password", secret: true, asked: "denied"},
	}
	w := newWorld(t, plan{nodes: len(faults) + 3, node: func(i int, o *cluster.NodeOptions) {
		if i < len(faults) && faults[i].secret {
			o.Labels["locked"] = ""
		}
	}})
	locked := filepath.Join(w.dir, "locked")
	kit.Must(t, os.WriteFile(locked, []byte("not the password"), 0o600))
	for i := range faults {
		w.create(w.bare(fmt.Sprintf("pod-%d", i), w.hosts[i]))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(faults)))
	before := w.pods()
	for i, f := range faults {
		w.hosts[i].bmc.SetFault(f.bmc)
		w.hosts[i].cut()
	}
	c := w.start(settings{
		Selector: "!locked,world=" + w.ns,
		Providers: fmt.Sprintf("- name: locked\n  timeout: 2s\n  redfish: {username: fence, passwordFile: %q, "+
			"caFile: %q}",
			locked, filepath.Join(w.dir, "ca.pem")),
		Rules: fmt.Sprintf("- name: locked\n  selector: locked,world=%s\n  provider: locked\n  machine: {from: "+
			"annotation, annotation: %s, allow: [127.0.0.1]}", w.ns, bmcAnnotation),
	})
	for i, f := range faults {
		w.until("NotReady: "+f.name, func() bool { return !w.ready(w.hosts[i]) })
		c.untilMetric(fmt.Sprintf(`forcefence_provider_calls_total{call="state",result=%q,type="redfish"}`, f.asked), 1)
		reason := "PowerUnknown"
		switch f.asked {
		case "on":
			reason = "PoweredOnNotReady"
		case "changing":
			continue // no news: it is asked again in a moment
		}
		w.untilEvent("Node", w.hosts[i].Name(), reason)
	}
	c.untilMetric(`forcefence_nodes{state="unproven"}`, 1)
	w.during(5*time.Second, "nothing is proven", func() error {
		for _, h := range w.hosts {
			if err := w.alone(h); err != nil {
				return err
			}
		}
		return untouched(before, w.pods())
	})
	kit.Must(t, os.WriteFile(locked, []byte(w.dc.Password()), 0o600))
	for i := range faults {
		w.hosts[i].bmc.SetFault(datacenter.Fault{})
	}
	for i, f := range faults {
		rec := w.untilDone(w.hosts[i], taint.ResultEvicted)
		for _, e := range rec.Evidence {
			if e.State != "Off" {
				t.Errorf("%s: evidence: got %+v, want Off alone", f.name, rec.Evidence)
			}
		}
	}
	if n := len(w.pods()); n != 0 {
		t.Errorf("pods of dead nodes: got %d, want none", n)
	}
	if c.log.has(w.dc.Password()) || c.log.has("not the password") {
		t.Error("the log holds a password")
	}
}

// Nodes without exactly one machine are reported once and never fenced. A BMC that is down at the start is reported
// too, and asked again until it answers. Excluded nodes are left alone.
func TestNodesThatAreNotFenced(t *testing.T) {
	const noMachine, two, twinA, twinB, optedOut, excluded, down, healthy = 0, 1, 2, 3, 4, 5, 6, 7
	w := newWorld(t, plan{nodes: 12, node: func(i int, o *cluster.NodeOptions) {
		switch i {
		case noMachine:
		case two:
			o.Labels["one"], o.Labels["other"] = "", ""
		case optedOut:
			o.Labels["one"], o.Labels["forcefence.io/exclude"] = "", "true"
		case excluded:
			o.Labels["one"], o.Labels["maintenance"] = "", ""
		default:
			o.Labels["one"] = ""
		}
	}})
	h := w.hosts
	w.kubectl("annotate", "--overwrite", "node", h[twinB].Name(), bmcAnnotation+"="+h[twinA].bmc.URL())
	dead := []int{noMachine, two, twinA, optedOut, excluded}
	for _, i := range append(dead, down) {
		w.create(w.bare(fmt.Sprintf("pod-%d", i), h[i]))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(dead)+1))
	before := w.pods()
	h[down].bmc.SetFault(datacenter.Fault{HangTLS: true})
	c := w.start(settings{
		Selector: "one,world=" + w.ns,
		// As many operators write it: every node with the label, and a pool of nodes.
		Exclude: "forcefence.io/exclude",
		Rules: fmt.Sprintf("- name: other\n  selector: other,world=%s\n  provider: racks\n  machine: {from: "+
			"annotation, annotation: %s, allow: [127.0.0.1]}", w.ns, bmcAnnotation),
	})
	kit.Must(t, c.answers("/healthz"))
	for _, i := range []int{noMachine, two, twinA, twinB, down} {
		w.untilEvent("Node", h[i].Name(), "MachineNotAnswering")
	}
	c.untilMetric(`forcefence_machines{result="no_machine"}`, 4)
	c.untilMetric(`forcefence_machines{result="unreachable"}`, 1)
	c.untilMetric(`forcefence_machines{result="ok"}`, 7)
	if n := c.metric(`forcefence_machines{result="ok"}`); n != 7 {
		t.Errorf("machines that can be asked: got %v, want 7", n)
	}
	h[down].bmc.SetFault(datacenter.Fault{})

	w.kubectl("label", "node", h[excluded].Name(), "forcefence.io/exclude=true")
	for _, i := range dead {
		h[i].cut()
	}
	for _, i := range dead {
		w.until("NotReady", func() bool { return !w.ready(h[i]) })
	}
	for _, i := range []int{noMachine, two, twinA} {
		w.untilEvent("Node", h[i].Name(), "NoMachine")
	}
	c.untilMetric(`forcefence_nodes{state="no_machine"}`, 3)
	c.untilMetric(`forcefence_nodes{state="excluded"}`, 2)
	w.during(4*time.Second, "nodes that are not fenced", func() error {
		for _, x := range h {
			if err := w.alone(x); err != nil {
				return err
			}
		}
		return untouched(before, w.pods())
	})
	for i, want := range map[int]string{
		noMachine: "no rule claims", two: "more than one rule claims",
		twinA: "is also claimed by node " + h[twinB].Name()} {
		for _, reason := range []string{"NoMachine", "MachineNotAnswering"} {
			list := w.events("Node", h[i].Name(), reason)
			if len(list) != 1 || list[0].Series != nil || !strings.Contains(list[0].Note, want) {
				t.Errorf("Events %s of node %d: got %+v, want one that says %q", reason, i, list, want)
			}
		}
	}

	// What stood in the way goes.
	w.kubectl("label", "node", h[optedOut].Name(), "forcefence.io/exclude-")
	w.untilDone(h[optedOut], taint.ResultEvicted)
	w.kubectl("label", "node", h[noMachine].Name(), "one=")
	w.untilDone(h[noMachine], taint.ResultEvicted)
	kit.Must(t, w.alone(h[excluded]))
	kit.Must(t, w.alone(h[healthy]))
	w.untilEvent("Node", h[down].Name(), "MachineAnswers")
	if err := untouched(slices.DeleteFunc(before, func(p corev1.Pod) bool { return p.Spec.NodeName != h[down].Name() }),
		w.pods()); err != nil {
		t.Error(err)
	}
}
