package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// stuck takes a node into the middle of its eviction and keeps it there: all its pods are gone, and no volume is
// detached.
func (w *world) stuck(h *host) taint.Record {
	w.t.Helper()
	w.Attacher().SetDelays(0, forever)
	h.cut()
	rec := w.untilPhase(h, taint.PhaseEvicting)
	w.until("pods gone", func() bool { return len(w.podsOn(h)) == 0 })
	return rec
}

// othersAlone checks that no node but one was touched.
func (w *world) othersAlone(h *host) error {
	for _, o := range w.hosts {
		if o == h {
			continue
		}
		if err := w.alone(o); err != nil {
			return err
		}
		if n := o.resets(); n != 0 {
			return fmt.Errorf(kit.HarmPrefix+"power-offs of %s: got %d, want 0", o.Name(), n)
		}
	}
	return nil
}

// The API server goes away in the middle of an eviction, and comes back. The fence goes on where it was, with a new
// proof. No other node is fenced, though no node was heard for longer than a Lease lasts. forcefence keeps its own
// Lease through that, or it ends and is started again as a Deployment does.
func TestAPIServerGoesAway(t *testing.T) {
	outage(t, "leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 500ms", true)
}

func TestAPIServerGoesAwayAndProcessEnds(t *testing.T) { outage(t, "", false) }

func outage(t *testing.T, lease string, survives bool) {
	// client-go's watches come back up to a minute after the API server.
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	c := w.start(settings{Mode: "fence", Lease: lease, Mortal: true})
	first := w.stuck(h)
	calm := w.containers()

	w.APIServer().Stop()
	w.during(15*time.Second, "outage", func() error {
		if !c.running() {
			if survives {
				return fmt.Errorf("forcefence ended with status %d", c.ExitCode())
			}
			c.launch() // it cannot start yet, either
		}
		return nil
	})
	back := time.Now() // before Start returns: forcefence may find it first
	kit.Must(t, w.APIServer().Start(w.ctx))
	w.until("forcefence runs and knows the cluster", func() bool {
		if !c.running() {
			c.launch()
		}
		_, err := get(c.health("/readyz"))
		return err == nil
	})
	// A pod that is still to be ended: nothing but a new answer allows that.
	w.create(w.bare("late", h))
	w.until("late pod ended", func() bool { return !w.has("late") })
	if h.askedSince(back) == 0 {
		t.Error("questions after the outage: got none, want one before the late pod was ended")
	}
	if !survives && !c.log.told(first.ID, "Machine answered", "Off") {
		t.Errorf("log of the restarted process: got no answer Off for fence %s", first.ID)
	}
	w.Attacher().SetDelays(0, 0)
	rec := w.untilDone(h, taint.ResultEvicted)
	if rec.ID != first.ID {
		t.Errorf("fence after the outage: got %s, want %s to go on", rec.ID, first.ID)
	}
	w.untilReplaced(h, before)
	w.until("other nodes Ready", func() bool { return w.ready(w.hosts[1]) && w.ready(w.hosts[2]) })
	kit.Must(t, w.othersAlone(h))
	for _, uid := range calm {
		if !slices.Contains(w.containers(), uid) {
			t.Errorf("container of pod %s: it ended in the outage", uid)
		}
	}
}

// containers are the pods of this world whose containers run now.
func (w *world) containers() []string {
	var out []string
	for _, r := range w.Ledger().Running() {
		if r.Namespace == w.ns {
			out = append(out, string(r.UID))
		}
	}
	return out
}

// leader is the identity in the leader's Lease, and when that was renewed last.
func (w *world) leader() (identity string, renewed time.Time) {
	w.t.Helper()
	l, err := w.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(w.ctx, "forcefence", metav1.GetOptions{})
	if err == nil && l.Spec.HolderIdentity != nil && l.Spec.RenewTime != nil {
		identity, renewed = *l.Spec.HolderIdentity, l.Spec.RenewTime.Time
	}
	return identity, renewed
}

// leads reports whether the process holds the leader's Lease.
func (c *child) leads() bool {
	identity, _ := c.w.leader()
	return identity == c.identity
}

// The Node is deleted in the middle: forcefence survives, nothing is left behind, and a Node of that name is a new
// story.
func TestNodeDeleted(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	c := w.start(settings{})
	first := w.stuck(h)
	w.kubectl("delete", "node", h.Name(), "--wait=false")
	c.untilMetric(`forcefence_fences_total{result="NodeGone"}`, 1)
	w.Attacher().SetDelays(0, 0)
	w.untilReplaced(h, before)
	w.until("attachments gone", func() bool { return len(w.attachments(h)) == 0 })

	h.boot()
	kit.Must(t, w.WaitNode(w.ctx, h.Name(), cluster.IsReady))
	kit.Must(t, w.alone(h))
	w.create(w.bare("next", h))
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(before)+1))
	next := slices.DeleteFunc(w.podsOn(h), func(p corev1.Pod) bool { return p.Name != "next" })
	w.during(time.Second, "recreated node", func() error {
		if err := w.alone(h); err != nil {
			return err
		}
		return untouched(next, w.pods())
	})
	h.cut()
	if rec := w.untilDone(h, taint.ResultEvicted); rec.ID == first.ID {
		t.Errorf("fence of the new Node: got the old one's id %s", rec.ID)
	}
	if !c.running() {
		t.Errorf("forcefence ended with status %d", c.ExitCode())
	}
}
