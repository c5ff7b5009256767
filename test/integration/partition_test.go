package integration

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// poweredOn is the status of the condition for a node that does not answer while its machine is on.
func (w *world) poweredOn(h *host) corev1.ConditionStatus {
	w.t.Helper()
	for _, c := range w.node(h).Status.Conditions {
		if c.Type == "forcefence.io/PoweredOnNotReady" {
			return c.Status
		}
	}
	return ""
}

// intact checks that a node which is only cut off lost nothing: no mark, no record, no power-off, no pod.
func (w *world) intact(h *host, before []corev1.Pod) func() error {
	return func() error {
		if n := h.resets(); n != 0 {
			return fmt.Errorf(kit.HarmPrefix+"power-offs of %s: got %d, want 0", h.Name(), n)
		}
		return errors.Join(w.alone(h), untouched(before, w.pods()))
	}
}

// A node is silent and its machine is on. Mode observe says so, and touches nothing; when the node is back it says
// that, too.
func TestPartitionIsObserved(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	// The machine is found by a template over the node's labels, here.
	_, port, _ := strings.Cut(strings.TrimPrefix(h.bmc.URL(), "https://"), ":")
	w.kubectl("label", "node", h.Name(), "bmc-port="+port)
	w.start(settings{Selector: "bmc-port",
		Machine: `{from: template, template: 'https://127.0.0.1:{label:bmc-port}', allow: [127.0.0.1]}`})
	h.partition()
	w.until("condition True", func() bool { return w.poweredOn(h) == corev1.ConditionTrue })
	w.untilEvent("Node", h.Name(), "PoweredOnNotReady")
	w.until("NotReady", func() bool { return !w.ready(h) })
	w.during(4*time.Second, "a node that is only silent", w.intact(h, before))
	h.ResumeHeartbeats()
	w.until("condition False", func() bool { return w.poweredOn(h) == corev1.ConditionFalse })
	w.during(time.Second, "a node that is back", w.intact(h, before))
}

// Two nodes are silent in mode fence: each is powered off after the grace, one after the other, and recovered.
func TestPartitionIsFenced(t *testing.T) {
	w := newWorld(t, plan{nodes: 5, powerOffDelay: time.Second})
	a, b := w.hosts[0], w.hosts[1]
	w.fill(a, 2, w.volumes("db", 2))
	w.fill(b, 4, w.volumes("kv", 2))
	before := w.pods()
	list := fmt.Sprintf("{from: list, list: [{node: %s, id: %q}, {node: %s, id: %q}]}", a.Name(), a.bmc.URL(), b.Name(),
		b.bmc.URL())
	c := w.start(settings{Mode: "fence", Machine: list})
	silent := time.Now()
	a.partition()
	b.partition()
	for _, h := range []*host{a, b} {
		rec := w.untilDone(h, taint.ResultEvicted)
		w.untilReplaced(h,
			slices.DeleteFunc(slices.Clone(before), func(p corev1.Pod) bool { return p.Spec.NodeName != h.Name() }))
		want := []taint.Phase{taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
		if got := w.seen.phases(h.Name(), rec.ID); !slices.Equal(got, want) {
			t.Errorf("phases of %s: got %v, want %v", h.Name(), got, want)
		}
		if n := h.resets(); n != 1 {
			kit.Harm(t, "power-offs of %s: got %d, want 1", h.Name(), n)
		}
		if rec.Since.Sub(silent) < 20*time.Second {
			t.Errorf("power-off of %s began %s after it fell silent, want the grace of 20s", h.Name(),
				rec.Since.Sub(silent))
		}
		w.untilEvent("Node", h.Name(), "PoweringOff")
	}
	w.seen.mu.Lock()
	crowded := w.seen.crowded
	w.seen.mu.Unlock()
	if len(crowded) > 0 {
		t.Errorf("powered off at the same time: got %v, want one at a time", crowded)
	}
	c.untilMetric(`forcefence_fences_total{result="Evicted"}`, 2)
}

// A BMC accepts the power-off and does nothing. The fence fails and says so, nothing is evicted, and the next node's is
// not held up.
func TestPowerOffThatDoesNothing(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	a, b := w.hosts[0], w.hosts[1]
	w.fill(a, 2, w.volumes("db", 2))
	w.fill(b, 4, w.volumes("kv", 2))
	onA, onB := w.podsOn(a), w.podsOn(b)
	a.bmc.SetFault(datacenter.Fault{StaysOn: true})
	c := w.start(settings{Mode: "fence"})
	w.untilPinned(a, b)
	a.partition()
	w.untilPhase(a, taint.PhasePoweringOff)
	b.partition()
	rec := w.untilDone(a, taint.ResultPowerOffFailed)
	if err := untouched(onA, w.pods()); err != nil {
		t.Error(err)
	}
	w.untilEvent("Node", a.Name(), "PowerOffFailed")
	c.untilMetric(`forcefence_fences_total{result="PowerOffFailed"}`, 1)
	c.untilMetric(`forcefence_nodes{state="power_off_failed"}`, 1)

	w.untilDone(b, taint.ResultEvicted)
	w.untilReplaced(b, onB)
	if err := untouched(onA, w.pods()); err != nil {
		t.Error(err)
	}
	// It leaves the first one alone for a while, then tries again: the BMC works now.
	a.bmc.SetFault(datacenter.Fault{})
	w.until("another attempt", func() bool { return w.record(a).ID != rec.ID })
	if again, least := w.record(a).Since.Sub(rec.At), 25*time.Second; again < least {
		t.Errorf("next power-off: got %s after the failed one, want at least %s", again, least)
	}
	// On a busy machine the second attempt may have failed before the fault was gone.
	w.until("a fence that works", func() bool { return w.record(a).Result == taint.ResultEvicted })
	w.untilReplaced(a, onA)
}

// The configuration changes while a node is silent: a bad file is refused and the old one stays in force, a good one
// applies.
func TestReload(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	c := w.start(settings{})
	w.untilPinned(h)
	h.partition()
	w.untilEvent("Node", h.Name(), "PoweredOnNotReady")

	bad := settings{Mode: "fence", Top: "powerOfAfter: 1s"}
	c.configure(bad)
	w.until("refusal", func() bool { return c.metric("forcefence_config_last_reload_successful") == 0 })
	c.untilMetric(`forcefence_config_reloads_total{result="refused"}`, 1)
	text, err := os.ReadFile(c.config)
	kit.Must(t, err)
	line := 1 + strings.Count(string(text[:strings.Index(string(text), "powerOfAfter")]), "\n")
	if want := fmt.Sprintf("%s:%d: powerOfAfter", c.config, line); !c.log.has("Changed configuration refused", want) {
		t.Errorf("log: got no refusal that names %s", want)
	}
	if note := w.untilEvent("Lease", "forcefence", "ConfigurationRejected"); !strings.Contains(note, "powerOfAfter") {
		t.Errorf("Event: got %q, want the faulty key", note)
	}
	// powerOffAfter is over by the end of this: the bad file's mode is not in force.
	w.during(22*time.Second, "old configuration in force", w.intact(h, before))

	c.configure(settings{Mode: "fence"})
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	if got := c.metric("forcefence_config_last_reload_successful"); got != 1 {
		t.Errorf("forcefence_config_last_reload_successful: got %v, want 1", got)
	}
	c.untilMetric(`forcefence_config_reloads_total{result="ok"}`, 1)
	if n := h.resets(); n != 1 {
		kit.Harm(t, "power-offs: got %d, want 1", n)
	}
}
