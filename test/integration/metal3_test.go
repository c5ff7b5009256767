package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/metal3"
)

// Nodes that are hosts of Metal3, found by their providerIDs. A silent one is powered off by the operator at our
// request, is recovered once its own BMC says Off, and is powered on by the removal of our annotation; a stranger's
// stays. One that must not be powered off is left on. One in servicing is left alone, though its BMC says Off.
func TestMetal3(t *testing.T) {
	w := newWorld(t, plan{nodes: 6, node: func(i int, o *cluster.NodeOptions) {
		if o.Labels["room"] = "other"; i < 3 {
			o.Labels["room"] = "metal3"
			o.ProviderID = fmt.Sprintf("metal3://%s/host-%d/machine-%d", o.Labels["world"], i, i)
		}
	}})
	dies, kept, serviced := w.hosts[0], w.hosts[1], w.hosts[2]
	w.fill(dies, 3, w.volumes("db", 2), w.plain("web", 1))
	before := w.podsOn(dies)
	w.fill(kept, 4, w.plain("kept", 1))
	w.fill(serviced, 5, w.plain("serviced", 1))

	w.kubectlApply(metal3.CRD)
	w.kubectl("wait", "--for=condition=Established", "--timeout=5m", "crd/baremetalhosts.metal3.io")
	w.kubectlApply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: bmc, namespace: %s}, "+
		"stringData: {username: %q, password: %q}}", w.ns, w.dc.Username(), w.dc.Password()))
	operated := map[string]metal3.Machine{}
	for i, h := range w.hosts[:3] {
		name := fmt.Sprintf("host-%d", i)
		operated[name] = h.machine
		w.kubectlApply(fmt.Sprintf(`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: %s, namespace: %s}, spec: {online: true, disablePowerOff: %t,
bmc: {address: %q, credentialsName: bmc}, consumerRef: {kind: Metal3Machine, name: machine-%d, namespace: %s}}}`,
			name, w.ns, h == kept, strings.Replace(h.bmc.URL(), "https", "redfish", 1), i, w.ns))
		w.kubectl("-n", w.ns, "patch", "bmh", name, "--subresource=status", "--type=merge", "-p",
			`{"status":{"operationalStatus":"OK","poweredOn":true,"provisioning":{"state":"provisioned"}}}`)
	}
	api, err := dynamic.NewForConfig(w.RESTConfig())
	kit.Must(t, err)
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- metal3.Run(ctx, api, w.ns, operated) }()
	t.Cleanup(func() {
		stop()
		kit.Must(t, <-ended)
	})
	annotation := func(of, key string) string {
		return w.kubectl("-n", w.ns, "get", "bmh", of, "-o",
			"jsonpath={.metadata.annotations."+strings.ReplaceAll(key, ".", `\.`)+"}")
	}
	const ours, strangers = "reboot.metal3.io/forcefence", "reboot.metal3.io/stranger"

	c := w.start(settings{
		Mode: "fence", Selector: "world=" + w.ns + ",room=other",
		Providers: fmt.Sprintf(
			"- {name: hosts, metal3: {kubeconfig: %q, namespaces: [%s], caFile: %q, powerOff: request}}",
			w.Kubeconfig(), w.ns, filepath.Join(w.dir, "ca.pem")),
		Rules: fmt.Sprintf("- {name: hosts, selector: 'world=%s,room=metal3', provider: hosts, machine: {from: "+
			"providerID}}", w.ns),
		Timeout: "30s", Top: "afterFence: powerOn",
	})
	if out, status := w.forcefence("check-config", c.config); status != 0 {
		t.Fatalf("check-config: got status %d, want 0:\n%s", status, out)
	}
	c.untilMetric(`forcefence_machines{result="ok"}`, 6)
	for _, h := range w.hosts[:3] {
		w.until("a pin of "+h.Name(), func() bool { return w.node(h).Labels[taint.PinLabel] != "" })
	}

	dies.partition()
	w.until("our request", func() bool { return annotation("host-0", ours) == `{"mode":"hard"}` })
	w.kubectl("-n", w.ns, "annotate", "bmh", "host-0", strangers+"=")
	rec := w.untilDone(dies, taint.ResultEvicted)
	w.untilReplaced(dies, before)
	if !rec.HasOff("hosts") {
		t.Errorf("evidence: got %+v, want Off from the host's BMC", rec.Evidence)
	}
	if n := dies.resets(); n > 0 {
		t.Errorf("power-offs by the BMC: got %d, want none", n)
	}
	if dies.machine.Running() {
		kit.Harm(t, "the machine runs during its fence")
	}
	w.until("the power-on", func() bool { return annotation("host-0", ours) == "" })
	w.during(time.Second, "the other client keeps the host off", func() error {
		if dies.machine.Running() {
			return fmt.Errorf("the machine runs")
		}
		return nil
	})
	w.kubectl("-n", w.ns, "annotate", "bmh", "host-0", strangers+"-")
	w.until("the machine runs", dies.machine.Running)
	w.until("its node is back", func() bool { return w.ready(dies) })
	if len(rec.Orders) != 1 {
		t.Errorf("orders: got %+v in the record, want the request", rec.Orders)
	}
	w.until("its record names no order", func() bool {
		rec, err := taint.RecordOf(w.node(dies))
		return err == nil && rec != nil && len(rec.Orders) == 0
	})

	kept.partition()
	if note := w.untilEvent("Node", kept.Name(), "PowerOffRefused"); !strings.Contains(note,
		"BareMetalHost "+w.ns+"/host-1 has disablePowerOff") {
		t.Errorf("Event: got %q, want the host and why", note)
	}
	if !kept.machine.Running() || annotation("host-1", ours) != "" {
		kit.Harm(t, "a host with disablePowerOff was asked to power off")
	}

	w.kubectl("-n", w.ns, "patch", "bmh", "host-2", "--subresource=status", "--type=merge", "-p",
		`{"status":{"operationalStatus":"servicing"}}`)
	w.until("the serviced node is not ready", func() bool {
		if serviced.machine.Running() { // also if the operator had read its host before the servicing
			serviced.cut()
		}
		return !w.ready(serviced)
	})
	asked := serviced.askedSince(time.Time{})
	w.until("its BMC is asked again", func() bool { return serviced.askedSince(time.Time{}) > asked+4 })
	kit.Must(t, w.alone(serviced))
	if annotation("host-2", ours) != "" {
		t.Error("a host in servicing was asked to power off")
	}
}
