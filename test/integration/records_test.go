package integration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	definitionFile = chart + "/files/forcefence.io_fencings.yaml"
	definitionName = "fencings.forcefence.io"
)

// fencings are the Fencing objects of the world's nodes, oldest first.
func (w *world) fencings(c dynamic.Interface) (out []api.Fencing) {
	w.t.Helper()
	list, err := c.Resource(api.Resource).List(w.ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	kit.Must(w.t, err)
	for _, o := range list.Items {
		var f api.Fencing
		kit.Must(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &f))
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b api.Fencing) int { return a.Spec.StartedAt.Compare(b.Spec.StartedAt.Time) })
	return out
}

// untilFencing waits until the node's one Fencing says what is wanted, and returns it.
func (w *world) untilFencing(c dynamic.Interface, h *host, what string, check func(api.Fencing) bool) api.Fencing {
	w.t.Helper()
	var of []api.Fencing
	defer func() {
		if w.t.Failed() {
			w.t.Logf("Fencings of %s: %+v", h.Name(), of)
		}
	}()
	w.until("a Fencing of "+h.Name()+": "+what, func() bool {
		of = slices.DeleteFunc(w.fencings(c), func(f api.Fencing) bool { return f.Spec.Node != h.Name() })
		if len(of) > 1 {
			w.t.Fatalf("got %d Fencings of %s, want one", len(of), h.Name())
		}
		return len(of) == 1 && check(of[0])
	})
	return of[0]
}

// fencingClient reads Fencings. Their definition is deleted after the test: others' worlds have none.
func (w *world) fencingClient() dynamic.Interface {
	w.t.Helper()
	c, err := dynamic.NewForConfig(w.RESTConfig())
	kit.Must(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := w.Kubectl(ctx, "delete", "crd", definitionName, "--ignore-not-found"); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

func ended(f api.Fencing) bool { return f.Status.Phase == string(taint.PhaseDone) }

// stepsAsTold compares the steps of a fence with its Events: each tells when it happened, and not when it was sent.
func (w *world) stepsAsTold(h *host, f api.Fencing) {
	w.t.Helper()
	began := map[string]metav1.MicroTime{}
	var order []string
	for _, step := range f.Status.Steps {
		began[step.Step] = step.Began
		order = append(order, step.Step)
		w.t.Logf("+%s for %s: %s", step.Began.Sub(f.Spec.StartedAt.Time), step.Ended.Sub(step.Began.Time), step.Step)
	}
	for _, step := range []string{api.StepAskDevices, api.StepSetMark, api.StepRemoveMark} {
		if !slices.Contains(order, step) {
			w.t.Errorf("Fencing: got steps %q, want %s too", order, step)
		}
	}
	for step, why := range map[string]string{
		api.StepEndPods: "EndingPods", api.StepClearVolumes: "ClearingVolumes", api.StepDeletePods: "DeletingPods",
	} {
		if step == api.StepDeletePods && !slices.Contains(order, step) {
			// On a busy machine the StatefulSet's controller deletes the ended pods first. No Event tells of it, then.
			if n := len(w.events("Node", h.Name(), why)); n > 0 {
				w.t.Errorf("Fencing: got steps %q and %d Events %s", order, n, why)
			}
			continue
		}
		w.untilEvent("Node", h.Name(), why)
		if told := w.events("Node", h.Name(), why)[0].EventTime; !told.Equal(new(began[step])) {
			w.t.Errorf("Event %s: got its time %s, want %s, when the step began", why, told, began[step])
		}
	}
}

// TestFencingRecord: Fencings report what becomes of fences, and no change to a Fencing changes a fence.
func TestFencingRecord(t *testing.T) {
	w := newWorld(t, plan{nodes: 6})
	c := w.fencingClient()
	ff := w.start(settings{})
	evict := func(h *host) taint.Record {
		t.Helper()
		w.until("the load runs", func() bool { return len(w.ReadyPods(w.ns)) == 6 })
		pods := w.podsOn(h)
		h.cut()
		rec := w.untilDone(h, taint.ResultEvicted)
		w.untilReplaced(h, pods)
		return rec
	}

	// The resource does not exist: the fence goes on, and that is reported once. Then it comes, and what was kept is
	// written.
	w.busy(w.hosts[0])
	before := w.podsOn(w.hosts[0])
	volumes := w.attachments(w.hosts[0])
	first := evict(w.hosts[0])
	w.until("a line about the resource", func() bool { return ff.log.has(definitionName) })
	w.kubectl("apply", "--server-side", "-f", definitionFile)
	f := w.untilFencing(c, w.hosts[0], "ended", ended)
	if n := ff.log.count(definitionName, "WARN"); n != 1 {
		t.Errorf("log: got %d lines about the missing resource, want 1", n)
	}
	var phases []string
	for _, p := range f.Status.Timeline {
		phases = append(phases, p.Phase)
	}
	var pods []string
	for _, p := range before {
		pods = append(pods, string(p.UID))
	}
	for _, p := range f.Status.Pods.Names {
		if !slices.Contains(pods, p.UID) {
			t.Errorf("Fencing: got pod %+v, which was not on the node", p)
		}
	}
	s := f.Status
	if f.Name != w.hosts[0].Name()+"."+first.ID || f.Spec.By != first.By || f.Spec.Why == "" ||
		f.Spec.Device != first.Device || f.Spec.Shadow ||
		!slices.Equal(phases, []string{"Armed", "Evicting", "Done"}) || s.Result != "Evicted" ||
		len(s.Evidence) != len(first.Evidence) || len(s.Evidence) < 2 ||
		int(s.Pods.Ended) != len(before) || len(s.Pods.Names) != len(before) ||
		int(s.Volumes.Attached) != len(volumes) || s.Volumes.Detached != s.Volumes.Attached ||
		s.Duration == "" || s.FinishedAt == nil || !meta.IsStatusConditionTrue(s.Conditions, api.Proven) ||
		!meta.IsStatusConditionTrue(s.Conditions, api.Finished) ||
		len(f.OwnerReferences) > 0 {
		t.Errorf("Fencing: got %+v of record %+v, want all of it: %d pods, %d volumes", f, first, len(before),
			len(volumes))
	}
	for _, e := range s.Evidence {
		if e.From == "" || e.State != "Off" || e.Raw != "Off" || e.At.IsZero() {
			t.Errorf("evidence: got %+v, want an Off with its device and its time", e)
		}
	}
	table := w.kubectl("get", "fcg")
	t.Logf("kubectl get fcg\n%s", table)
	if head := strings.Fields(strings.SplitN(table, "\n", 2)[0]); !slices.Equal(head,
		[]string{"NAME", "NODE", "PHASE", "RESULT", "PODS", "VOLUMES", "TOOK", "AGE", "WHY"}) {
		t.Errorf("kubectl get fcg: got columns %v", head)
	}

	w.stepsAsTold(w.hosts[0], f)

	// In the middle of a fence its Fencing is edited by hand, and then deleted; another process goes on with the fence.
	two := w.hosts[1]
	w.until("the load runs", func() bool { return len(w.ReadyPods(w.ns)) == 6 })
	w.Attacher().SetDelays(0, 10*time.Minute)
	victim := w.podsOn(two)
	if len(w.attachments(two)) == 0 { // the load went elsewhere
		for _, h := range w.hosts[2:] {
			if len(w.attachments(h)) > 0 {
				two, victim = h, w.podsOn(h)
			}
		}
	}
	two.cut()
	w.untilFencing(c, two, "pods ended", func(f api.Fencing) bool {
		return int(f.Status.Pods.Ended) == len(victim) && len(f.Status.Volumes.Left) > 0
	})
	name := two.Name() + "." + w.record(two).ID
	w.kubectl("patch", "fcg", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"phase":"Done","result":"Evicted"}}`)
	w.kubectl("delete", "fcg", name)
	if rec := w.record(two); rec.Phase != taint.PhaseEvicting || !w.marked(two) {
		t.Errorf("after an edit and a deletion: got %+v, want the fence as it was", rec)
	}
	ff.Kill()
	ff = w.start(settings{})
	w.Attacher().SetDelays(0, 0)
	rec := w.untilDone(two, taint.ResultEvicted)
	w.untilReplaced(two, victim)
	f = w.untilFencing(c, two, "ended", ended)
	if f.Name != name || f.Status.Result != string(rec.Result) || len(f.Status.Volumes.Left) > 0 ||
		f.Spec.By != rec.By {
		t.Errorf("Fencing of the fence that another process ended: got %+v, want the end of %+v", f, rec)
	}

	// A person's mark: an object of its own each time.
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h != w.hosts[0] && h != two })
	free := w.hosts[i] // it lives: its heartbeat ends each
	for range 2 {
		n := len(w.fencings(c))
		old := w.record(free)
		w.kubectl("taint", "node", free.Name(), manualMark)
		w.until("the mark is over",
			func() bool { r := w.record(free); return r.Token() != old.Token() && r.Phase == taint.PhaseDone })
		w.until("a Fencing of the person's mark", func() bool { return len(w.fencings(c)) == n+1 })
	}
	manual := slices.DeleteFunc(w.fencings(c), func(f api.Fencing) bool { return f.Spec.Node != free.Name() })
	if len(manual) != 2 || manual[0].Name == manual[1].Name || manual[0].Spec.By != taint.ByPerson ||
		manual[0].Spec.ID != "manual" || manual[1].Spec.Why != "marked by a person" {
		t.Errorf("Fencings of a person's marks: got %+v, want two", manual)
	}
	w.until("the marks' ends are reported", func() bool {
		return !slices.ContainsFunc(w.fencings(c),
			func(f api.Fencing) bool { return f.Spec.Node == free.Name() && f.Status.Result != "Lifted" })
	})
	t.Logf("kubectl get fcg -o wide\n%s", w.kubectl("get", "fcg", "-o", "wide"))

	if password := w.dc.Password(); password == "" ||
		strings.Contains(w.kubectl("get", "fcg", "-o", "yaml"), password) {
		t.Error("a Fencing shows the devices' password")
	}
}
