package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// A guest of KubeVirt on a host that lost its power. This cluster is its host cluster, too: the hosts are other nodes,
// which no rule leads to. The host's silence proves nothing, nor does another host's loss of power. The host's own BMC
// does.
func TestKubeVirtGuestIsOffWithItsHost(t *testing.T) {
	const group, guest = "kubevirt.io", "guest-1"
	room := []string{"guests", "hosts", "hosts", "other", "other"}
	w := newWorld(t, plan{nodes: len(room), node: func(i int, o *cluster.NodeOptions) { o.Labels["room"] = room[i] }})
	dies, on, other := w.hosts[0], w.hosts[1], w.hosts[2]
	w.fill(dies, 3, w.volumes("db", 2), w.plain("web", 1))
	before := w.podsOn(dies)

	w.kubectlApply(crd(group, "v1", "virtualmachines", "VirtualMachine", "Namespaced") + "---\n" +
		crd(group, "v1", "virtualmachineinstances", "VirtualMachineInstance", "Namespaced"))
	const kind = "virtualmachineinstances." + group
	w.kubectl("wait", "--for=condition=Established", "--timeout=5m", "crd/virtualmachines."+group, "crd/"+kind)
	instance := func(status string) {
		t.Helper()
		w.kubectlApply(fmt.Sprintf(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance,
metadata: {name: %s, namespace: %s}, spec: {domain: {firmware: {uuid: %s}}}, status: %s}`,
			guest, w.ns, w.node(dies).Status.NodeInfo.SystemUUID, status))
	}
	instance("{phase: Scheduling}")
	launcher := w.bare("virt-launcher-"+guest, on)
	launcher.Labels = map[string]string{
		"kubevirt.io/created-by": w.kubectl("-n", w.ns, "get", kind, guest, "-o", "jsonpath={.metadata.uid}"),
	}
	launcher.Spec.Containers[0].Name = "compute"
	w.create(launcher)
	var pod corev1.Pod
	w.until("the launcher pod runs", func() bool {
		pods := w.pods()
		pod = pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == launcher.Name })]
		return pod.Status.Phase == corev1.PodRunning
	})
	instance(fmt.Sprintf("{phase: Running, nodeName: %s, activePods: {%s: %s}}", on.Name(), pod.UID, on.Name()))

	c := w.start(settings{
		Selector: "world=" + w.ns + ",room=other",
		Providers: fmt.Sprintf("- {name: guests, kubevirt: {kubeconfig: %q, namespace: %s, hosts: [%s, %s]}}",
			w.Kubeconfig(), w.ns, on.Name(), other.Name()),
		Rules: fmt.Sprintf(`- name: guests
  provider: guests
  machine: {from: list, list: [{node: %s, id: %s}]}
  within:
  - {hypervisor: %s, provider: racks, id: %q, systemUUID: %s}
  - {hypervisor: %s, provider: racks, id: %q}`,
			dies.Name(), guest, on.Name(), on.bmc.URL(), on.machine.SystemUUID(), other.Name(), other.bmc.URL()),
	})
	if out, status := w.forcefence("check-config", c.config); status != 0 {
		t.Fatalf("check-config: got status %d, want 0:\n%s", status, out)
	}
	c.untilMetric(`forcefence_machines{result="ok"}`, 3)

	other.cut()
	dies.partition()
	on.partition()
	asked := func() int { return len(on.bmc.Requests()) }
	w.until("the host's BMC is asked", func() bool {
		n := asked()
		return !w.ready(dies) && !w.ready(on) && !w.ready(other) && n > 0
	})
	n := asked()
	w.until("it is asked again", func() bool { return asked() > n+4 })
	other.boot()
	w.until("the other host is back", func() bool { return w.ready(other) })
	kit.Must(t, w.alone(dies))
	dies.Node.PowerOff()
	on.cut()

	rec := w.untilDone(dies, taint.ResultEvicted)
	w.untilReplaced(dies, before)
	i := slices.IndexFunc(rec.Evidence, func(e taint.Evidence) bool { return e.State == "Off" })
	if i < 0 || rec.Evidence[i].From != "guests/within/"+w.ns+"/"+guest ||
		rec.Evidence[i].Raw != "racks/"+on.bmc.URL()+" is Off, no launcher pod on "+other.Name() {
		t.Errorf("evidence: got %+v, want which host is off, and where else the guest is not", rec.Evidence)
	}
	if n := on.resets() + other.resets(); n > 0 {
		kit.Harm(t, "%d power-offs of hosts, for their guest", n)
	}
}
