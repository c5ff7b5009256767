package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// forge writes another machine's identity into a Node, with its own kubelet's credential.
func (w *world) forge(h *host, bmc, uuid string) {
	w.t.Helper()
	kubelet, err := kubernetes.NewForConfig(w.RESTConfigFor("system:node:"+h.Name(), "system:nodes"))
	kit.Must(w.t, err)
	_, err = kubelet.CoreV1().Nodes().Patch(w.ctx, h.Name(), types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, bmcAnnotation, bmc), metav1.PatchOptions{})
	kit.Must(w.t, err)
	_, err = kubelet.CoreV1().Nodes().Patch(w.ctx, h.Name(), types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"nodeInfo":{"systemUUID":%q}}}`, uuid), metav1.PatchOptions{}, "status")
	kit.Must(w.t, err)
}

// untilPinned waits until the node's machine is pinned.
func (w *world) untilPinned(hosts ...*host) {
	w.t.Helper()
	for _, h := range hosts {
		w.until("pin of "+h.Name(), func() bool { return w.node(h).Labels[taint.PinLabel] != "" })
	}
}

// A kubelet's credential cuts no other machine's power: not by another node's BMC and system UUID, from the start or
// later, and not by a BMC of no node with a system UUID that compares with nothing.
func TestKubeletCannotPowerOffOthers(t *testing.T) {
	w := newWorld(t, plan{nodes: 6, node: func(i int, o *cluster.NodeOptions) {
		switch i {
		case 0:
			o.Labels["late"] = ""
		case 1:
			o.SystemUUID = "00000000-0000-0000-0000-000000000000"
		}
	}})
	joins, zeros, turns, victim := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	alien := w.dc.AddMachine(w.ns + "-alien")
	alienBMC := w.dc.AddBMC(alien)
	w.forge(zeros, alienBMC.URL(), zeros.SystemUUID())
	for _, h := range []*host{joins, zeros, turns} {
		w.create(w.bare("app-"+strings.TrimPrefix(h.Name(), w.ns+"-"), h))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, 3))
	w.start(settings{Mode: "fence", Selector: "!late,world=" + w.ns})
	w.untilPinned(zeros, turns, victim)

	joins.partition()
	w.forge(joins, victim.bmc.URL()+"/", victim.SystemUUID())
	w.kubectl("label", "node", joins.Name(), "late-")
	turns.partition()
	w.forge(turns, victim.bmc.URL()+"/", victim.SystemUUID())
	zeros.partition()

	for _, h := range []*host{joins, turns} {
		if told := w.untilEvent("Node", h.Name(), "NoMachine"); !strings.Contains(told, "(since ") {
			t.Errorf("%s: told %q, want since when its machine is not believed", h.Name(), told)
		}
	}
	if told := w.untilEvent("Node", joins.Name(), "NoMachine"); !strings.Contains(told,
		"pinned to node "+victim.Name()) {
		t.Errorf("told %q, want whose machine it is", told)
	}
	w.untilEvent("Node", zeros.Name(), "PowerOffRefused")
	w.during(12*time.Second, "machines of others", func() error {
		if n := alienBMC.Count(http.MethodPost,
			"/redfish/v1/Systems/"+alien.Name()+"/Actions/ComputerSystem.Reset"); n != 0 || !alien.Running() {
			return fmt.Errorf("the BMC of no node got %d resets, runs %v", n, alien.Running())
		}
		for _, h := range w.hosts {
			if n := h.resets(); n != 0 || !h.machine.Running() {
				return fmt.Errorf("the BMC of %s got %d resets, runs %v", h.Name(), n, h.machine.Running())
			}
		}
		return w.alone(victim)
	})
}

// A fence under way ends with the machine that it began with, even if its node's annotation and system UUID become
// those of another node that is heard.
func TestRedirectedFence(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, powerOffDelay: 3 * time.Second})
	h, victim := w.hosts[0], w.hosts[1]
	w.fill(h, 2, w.volumes("db", 2))
	before := w.podsOn(h)
	w.start(settings{Mode: "fence"})
	w.untilPinned(h, victim)
	h.partition()
	w.untilPhase(h, taint.PhasePoweringOff)
	w.forge(h, victim.bmc.URL()+"/", victim.SystemUUID())
	rec := w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	if rec.Machine == nil || rec.Machine.ID != h.bmc.URL() || rec.Machine.Provider != "racks" {
		t.Errorf("machine of the record: got %+v, want the one at %s", rec.Machine, h.bmc.URL())
	}
	if h.resets() != 1 || victim.resets() != 0 || !victim.machine.Running() {
		kit.Harm(t, "power-offs: %d of %s, %d of %s", h.resets(), h.Name(), victim.resets(), victim.Name())
	}
	kit.Must(t, w.othersAlone(h))
}
