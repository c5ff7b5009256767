package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// forever is a detach that does not end by itself.
const forever = time.Hour

// running reports whether a pod's containers run on the machine, even if the API server says otherwise.
func (h *host) running(p corev1.Pod) bool {
	for _, r := range h.Running() {
		if r.UID == p.UID {
			return true
		}
	}
	return false
}

// The machine gets its power back in the middle of the eviction, and volumes of pods that were ended are not detached:
// what was ended goes, and the rest starts once the record names these volumes. The mark stays, and a pod that uses one
// of them is held, until they are detached. Nothing runs twice.
func TestReturnInTheMiddle(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.Attacher().SetDelays(0, forever)
	// Kubernetes would delete these pods 25 s after the node is lost: they are not ended before that (F2).
	patient := w.workload("patient", 2)
	patient.Tolerations = leavingWithin(25)
	w.fill(h, 6, w.volumes("db", 4), patient.Deployment())
	before := w.pods()
	rest := slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool { return p.Labels["app"] != "patient" })
	w.start(settings{})
	h.cut()
	first := w.untilPhase(h, taint.PhaseEvicting)
	w.until("StatefulSet's pods gone", func() bool {
		return !slices.ContainsFunc(w.podsOn(h), func(p corev1.Pod) bool { return p.Labels["app"] == "db" })
	})
	if err := untouched(rest, w.pods()); err != nil {
		t.Fatal(err)
	}
	h.boot()
	w.until("node Ready again", func() bool { return w.ready(h) })
	w.untilEvent("Node", h.Name(), "SparingPods")
	var named []taint.Detaching
	w.until("the record names the volumes", func() bool {
		named = w.record(h).Detaching
		return len(named) > 0 && len(named) == len(w.bound(w.attachments(h)))
	})
	late := w.bare("late", h)
	w.create(late)
	data := slices.IndexFunc(named, func(d taint.Detaching) bool { return d.Claim != "" })
	if data < 0 {
		t.Fatalf("no claim of %v is named", named)
	}
	_, claim, _ := strings.Cut(named[data].Claim, "/")
	user := w.bare("user", h)
	user.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	w.create(user)
	w.until("pods without such a volume run on the marked node", func() bool {
		return h.running(rest[0]) && h.running(rest[1]) && len(h.Running()) == 3
	})
	w.during(3*time.Second, "one with it is held", func() error {
		if r := w.record(h); !w.marked(h) || r.ID != first.ID || !slices.Equal(r.Detaching, named) {
			t.Errorf("mark and fence: got %v %s waiting for %v, want the mark of %s waiting for %v", w.marked(h), r.ID,
				r.Detaching, first.ID, named)
		}
		if n := len(h.Running()); n != 3 {
			t.Errorf("containers on the returned node: got %d, want those of the 3 pods without such a volume", n)
		}
		return untouched(rest, w.pods())
	})
	// its volume is to go where the StatefulSet's pod is
	kit.Must(t, w.Client().CoreV1().Pods(w.ns).Delete(w.ctx, "user", *metav1.NewDeleteOptions(0)))

	w.Attacher().SetDelays(0, 0)
	rec := w.untilDone(h, taint.ResultReturned)
	if rec.ID != first.ID {
		t.Errorf("fence: got %s, want %s", rec.ID, first.ID)
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(before)+1))
	if err := untouched(rest, w.pods()); err != nil {
		t.Error(err)
	}
	w.untilEvent("Node", h.Name(), "NodeReturnedAndCleared")
	w.during(time.Second, "not taken for a lie", func() error {
		if r := w.record(h); r.Result != taint.ResultReturned {
			t.Errorf("result: got %s, want Returned", r.Result)
		}
		return nil
	})
}

// A BMC says Off about a machine that runs. When the node comes back as it was, that is reported, and its device is not
// believed about this machine any more until a person says so.
func TestFalseOffIsDistrusted(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, oneBMC: true, doubles: true})
	liar, other := w.hosts[0], w.hosts[1]
	w.fill(liar, 2, w.plain("web", 2))
	w.create(w.bare("left", other))
	c := w.start(settings{})
	moved := w.podsOn(liar)
	liar.machine.SetFault(datacenter.Fault{PowerWord: "Off"})
	liar.partition()
	w.untilDone(liar, taint.ResultEvicted)
	w.untilReplaced(liar, moved)
	liar.ResumeHeartbeats()
	w.untilEvent("Node", liar.Name(), "FencedNodeNeverPoweredOff")
	w.until("it in the record", func() bool { return w.record(liar).Result == taint.ResultNeverPoweredOff })
	c.untilMetric(`forcefence_fences_total{result="NeverPoweredOff"}`, 1)
	liar.machine.SetFault(datacenter.Fault{})

	// The same BMC speaks for another node, whose machine it did not lie about.
	other.cut()
	w.untilDone(other, taint.ResultEvicted)

	// The machine itself goes off in truth, and is not fenced.
	w.create(w.bare("back", liar))
	w.until("pod of the liar", func() bool { return len(w.podsOn(liar)) > 0 })
	pods := w.podsOn(liar)
	liar.cut()
	if told := w.untilEvent("Node", liar.Name(), "DeviceDistrusted"); !strings.Contains(told,
		"forcefence release "+liar.Name()+" --yes") {
		t.Errorf("told %q, want the node whose record it is", told)
	}
	w.during(4*time.Second, "fencing through a device that lied", func() error {
		if now := w.podsOn(liar); w.marked(liar) || w.record(liar).Result != taint.ResultNeverPoweredOff ||
			len(now) != len(pods) {
			return fmt.Errorf("got %d pods of %d, marked %v, record %+v", len(now), len(pods), w.marked(liar),
				w.record(liar))
		}
		return nil
	})
	c.untilMetric(`forcefence_nodes{state="distrusted"}`, 1)
	if out, code := w.forcefence("release", liar.Name(), "--yes"); code != 0 {
		t.Fatalf("forcefence release: exit status %d: %s", code, out)
	}
	w.untilDone(liar, taint.ResultReleased)
}
