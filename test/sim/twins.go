package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

// twin is a second Node of one machine: its host was renamed, its kubelet registers under the new name, and the old
// Node stays. The stock controllers know nothing of it, and no pod runs under the new name. It has dice of its own, so
// that the other histories stay what they were.
type twin struct {
	m     *machine
	node  *corev1.Node
	beats int
	since time.Time // since when its heartbeats come without a gap
	last  time.Time // when the last one came
	gone  bool      // a person deleted the Node
}

// renameHost renames the host of one machine in every ninth history.
func (w *World) renameHost() {
	if w.Small != nil || w.Seed%9 != 4 {
		return
	}
	rng := rand.New(rand.NewPCG(w.Seed, 0x7477696e))
	m := w.machines[rng.IntN(len(w.machines))]
	w.after(5*time.Second+time.Duration(rng.Int64N(int64(40*time.Second))), func() {
		if w.calm || !m.power || m.hung || m.cut {
			return
		}
		w.count("host renamed")
		w.logf("%s: its kubelet registers as %[1]s-renamed", m.name)
		m.hung = true // of the old name nothing is heard, and its containers run on
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name + "-renamed", UID: types.UID(w.id("node-")),
			ResourceVersion: "1"}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: m.bootID, SystemUUID: m.uuid}
		setReady(n, corev1.ConditionTrue, w.now)
		setHeartbeat(n, w.now)
		w.twin = &twin{m: m, node: n}
		w.twin.beat(rng)
	})
}

// beat renews the Lease of the new name while the machine runs under it and reaches the API server.
func (t *twin) beat(rng *rand.Rand) {
	w := t.m.w
	if t.gone {
		return
	}
	if t.m.power && t.m.hung && !t.m.away() {
		if w.now.Sub(t.last) > 2*renewEvery {
			t.since = w.now
		}
		t.beats++
		t.last = w.now
	}
	w.after(9*time.Second+time.Duration(rng.Int64N(int64(1500*time.Millisecond))), func() { t.beat(rng) })
}

// heard reports whether the API server has had the twin's heartbeats for so long that each process knows.
func (t *twin) heard(of string) bool {
	const known = 2 * time.Minute
	return t.beats > 0 && !t.gone && t.m.name == of && t.m.w.now.Sub(t.last) < 2*renewEvery &&
		t.m.w.now.Sub(t.since) > known
}

// hearTwin folds in what the watches bring of the twin.
func (p *Process) hearTwin() {
	t := p.w.twin
	switch {
	case t == nil || p.w.down || p.w.now.Before(p.deaf):
	case t.gone:
		p.fleet.RemoveNode(t.node.Name, p.now())
	default:
		p.fleet.ApplyLook(p.lookAt(t.node, nil), p.now())
		p.fleet.ApplyLease(t.node.Name, fmt.Sprint("beat-", t.beats), taint.LeaseDuration(&coordinationv1.Lease{}),
			p.now())
	}
}

// heard counts the Nodes that were heard lately, and all.
func (w *World) heard() (fresh, all int) {
	for _, n := range w.api.nodes {
		if w.now.Sub(w.lastBeat(n.Name)) < 4*renewEvery {
			fresh++
		}
	}
	all = len(w.api.nodes)
	if t := w.twin; t != nil && !t.gone {
		if all++; w.now.Sub(t.last) < 4*renewEvery {
			fresh++
		}
	}
	return fresh, all
}

// noTwin holds that nothing is done to a machine that is heard under another name.
func (c *checker) noTwin(node, what string) {
	if t := c.w.twin; t != nil && t.heard(node) {
		c.w.fail("14", "%s: %s, whose machine has been heard as %s for %s", what, node, t.node.Name,
			c.w.now.Sub(t.since).Round(time.Second))
	}
}
