package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// forcefence runs one of the operator's commands and returns what it printed and its exit status.
func (w *world) forcefence(args ...string) (string, int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A person marks nodes by kubectl taint. What happens depends on what their devices can say.
func TestManualMarks(t *testing.T) {
	const unknown, healthy, on, mute, spare = 0, 1, 2, 3, 4
	w := newWorld(t, plan{nodes: 6, node: func(i int, o *cluster.NodeOptions) {
		if i != unknown {
			o.Labels["known"] = ""
		}
	}})
	h := w.hosts
	w.fill(h[unknown], 1, w.volumes("unknown", 1))
	w.fill(h[healthy], 2, w.volumes("healthy", 1))
	w.fill(h[on], 3, w.volumes("on", 1))
	w.fill(h[mute], 4, w.volumes("mute", 1))
	onHealthy := w.podsOn(h[healthy])
	onOn := w.podsOn(h[on])
	set := settings{Selector: "known,world=" + w.ns}
	c := w.start(set)
	mark := func(h *host) { w.kubectl("taint", "node", h.Name(), manualMark) }

	// Only the person can speak for this one.
	pods := w.podsOn(h[unknown])
	h[unknown].cut()
	mark(h[unknown])
	rec := w.untilDone(h[unknown], taint.ResultEvicted)
	w.untilReplaced(h[unknown], pods)
	if rec.By != taint.ByPerson || len(rec.Evidence) == 0 || rec.Evidence[len(rec.Evidence)-1].State != "None" ||
		!strings.Contains(rec.Evidence[len(rec.Evidence)-1].Raw, "no device") {
		t.Errorf("record of a node without a device: got %+v, want a person's, with the evidence that no device speaks",
			rec)
	}
	w.untilEvent("Node", h[unknown].Name(), "PersonVouches")

	// A healthy node's heartbeat takes the mark off.
	mark(h[healthy])
	w.untilDone(h[healthy], taint.ResultLifted)
	if err := untouched(onHealthy, w.pods()); err != nil {
		t.Error(err)
	}

	// The BMC gives no answer: the person's word counts, and the record says what the BMC said.
	pods = w.podsOn(h[mute])
	h[mute].bmc.SetFault(datacenter.Fault{Drop: true})
	h[mute].cut()
	mark(h[mute])
	rec = w.untilDone(h[mute], taint.ResultEvicted)
	w.untilReplaced(h[mute], pods)
	if n := len(rec.Evidence); rec.By != taint.ByPerson || n == 0 || rec.Evidence[n-1].State != "Unknown" ||
		rec.Evidence[n-1].Raw != "unreachable" {
		t.Errorf("record of a node whose BMC is mute: got %+v, want a person's with Unknown (unreachable)", rec)
	}

	// The BMC says On: that is a reason to refuse, unless the configuration trusts the person. (It is off; the BMC is
	// wrong.)
	h[on].bmc.SetFault(datacenter.Fault{PowerWord: "On"})
	h[on].cut()
	w.until("NotReady", func() bool { return !w.ready(h[on]) })
	mark(h[on])
	w.untilEvent("Node", h[on].Name(), "MarkRefusedPoweredOn")
	w.during(4*time.Second, "refused mark", func() error {
		if !w.marked(h[on]) {
			return fmt.Errorf("mark: got none, want the person's")
		}
		return untouched(onOn, w.pods())
	})
	set.ManualMarks = "trust"
	c.configure(set)
	rec = w.untilDone(h[on], taint.ResultEvicted)
	w.untilReplaced(h[on], onOn)
	if n := len(rec.Evidence); rec.By != taint.ByPerson || n == 0 || rec.Evidence[n-1].State != "On" {
		t.Errorf("record of a trusted mark: got %+v, want a person's with On", rec)
	}
	kit.Must(t, w.alone(h[spare]))
}

// The record of a marked node cannot be read: nothing is done until a person releases it.
func TestUnreadableRecord(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	h.cut()
	w.kubectl("annotate", "node", h.Name(), taint.RecordAnnotation+"={half a rec")
	w.kubectl("taint", "node", h.Name(), taint.DefaultKey+"=f-0123456789ab:NoSchedule")
	c := w.start(settings{})
	note := w.untilEvent("Node", h.Name(), "RecordUnreadable")
	if want := "forcefence release " + h.Name() + " --yes"; !strings.Contains(note, want) {
		t.Errorf("Event: got %q, want it to say %q", note, want)
	}
	w.until("NotReady", func() bool { return !w.ready(h) })
	c.untilMetric(`forcefence_nodes{state="stuck"}`, 1)
	held := func() error {
		if v, _ := w.mark(h); v != "f-0123456789ab" {
			return fmt.Errorf("mark: got %q, want it kept", v)
		}
		return untouched(before, w.pods())
	}
	w.during(4*time.Second, "unreadable record", held)

	out, code := w.forcefence("release", h.Name())
	if code != 1 || !strings.Contains(out, "--yes") {
		t.Errorf("release without --yes: got exit status %d and %q, want 1 and how to do it", code, out)
	}
	w.during(500*time.Millisecond, "after release without --yes", held)
	if out, code := w.forcefence("release", h.Name(), "--yes"); code != 0 {
		t.Fatalf("release --yes: exit status %d: %s", code, out)
	}
	released := w.untilDone(h, taint.ResultReleased)
	w.untilEvent("Node", h.Name(), "ReleasedByPerson")
	w.during(4*time.Second, "released node", func() error {
		if r := w.record(h); w.marked(h) || r.ID != released.ID || r.Phase != taint.PhaseDone {
			return fmt.Errorf("got mark %v, record %+v, want none and the released one", w.marked(h), r)
		}
		return untouched(before, w.pods())
	})

	// Back, and dead again: that is another story.
	h.boot()
	w.until("pods run again", func() bool { return len(h.Running()) == len(before) })
	w.until("node is healthy to forcefence", func() bool { return c.metric(`forcefence_nodes{state="healthy"}`) == 3 })
	h.cut()
	w.until("fence of the next life", func() bool { return w.record(h).ID != released.ID })
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
}

// A person changes the mark's value in the middle. That makes it a person's: the fence goes on under it, on the
// device's word. Of another node a person removes the mark. That ends the fence, and no other begins: its pods are
// gone, and their attachments alone are no work.
func TestMarkEditedAndRemoved(t *testing.T) {
	w := newWorld(t, plan{nodes: 5})
	edited, removed := w.hosts[0], w.hosts[1]
	w.Attacher().SetDelays(0, forever)
	w.oneEach(edited, removed)
	before := map[*host][]corev1.Pod{edited: w.podsOn(edited), removed: w.podsOn(removed)}
	c := w.start(settings{})
	first := map[*host]taint.Record{}
	for h := range before {
		h.cut()
		first[h] = w.untilPhase(h, taint.PhaseEvicting)
		w.until("pods gone", func() bool { return len(w.podsOn(h)) == 0 })
	}
	w.kubectl("taint", "--overwrite", "node", edited.Name(), manualMark)
	w.kubectl("taint", "node", removed.Name(), taint.DefaultKey+"-")
	w.until("a person's fence",
		func() bool { r := w.record(edited); return r.By == taint.ByPerson && r.Phase == taint.PhaseEvicting })
	if v, _ := w.mark(edited); v != "manual" {
		t.Errorf("mark: got %q, want the person's", v)
	}
	w.untilEvent("Node", removed.Name(), "MarkRemovedByOther")
	c.untilMetric(`forcefence_fences_total{result="MarkRemoved"}`, 1)
	w.untilEvent("Node", removed.Name(), "NothingToEvict")
	w.Attacher().SetDelays(0, 0)
	rec := w.untilDone(edited, taint.ResultEvicted)
	if rec.ID == first[edited].ID || rec.Evidence[len(rec.Evidence)-1].State != "Off" {
		t.Errorf("record: got %+v, want another fence's with the device's Off", rec)
	}
	for h, pods := range before {
		w.untilReplaced(h, pods)
	}
	if r := w.record(removed); r.ID != first[removed].ID || w.marked(removed) {
		t.Errorf("record: got %+v, marked %v, want the fence that ended with its mark", r, w.marked(removed))
	}
}

// A person releases a node whose eviction does not come to its end: the mark goes, and a pod that was not ended is
// spared first, so that nothing which is still on its way can end it.
func TestReleaseInTheMiddle(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	c := w.start(settings{})
	fence := w.stuck(h)
	h.bmc.SetFault(datacenter.Fault{Status: 503})
	w.during(6*time.Second, "waiting until the last proof is too old", func() error { return w.othersAlone(h) })
	w.create(w.bare("late", h))
	w.untilEvent("Node", h.Name(), "ProofLost")
	c.untilMetric(`forcefence_nodes{state="proof_lost"}`, 1)
	if out, code := w.forcefence("release", h.Name(), "--yes"); code != 0 {
		t.Fatalf("release --yes: exit status %d: %s", code, out)
	}
	released := w.untilDone(h, taint.ResultReleased)
	if released.ID != fence.ID {
		t.Errorf("record: got fence %s, want %s", released.ID, fence.ID)
	}
	late := w.podsOn(h)
	if len(late) != 1 || late[0].Name != "late" || taint.SparedBy(&late[0]) != fence.Token() {
		t.Fatalf("pods on the node: got %+v, want late, spared by %s", late, fence.Token())
	}
	w.during(3*time.Second, "released node", func() error {
		if r := w.record(h); w.marked(h) || r.Phase != taint.PhaseDone {
			return fmt.Errorf("got mark %v, record %+v, want none and the released one", w.marked(h), r)
		}
		return untouched(late, w.podsOn(h))
	})
}
