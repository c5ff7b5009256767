package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
)

// stuckNodes is the metric of nodes that are stuck.
func (w *world) stuckNodes() float64 {
	return w.heard.count(w.t, "forcefence_nodes", string(reason.StateStuck))
}

// rejectMarks has the API server answer err to every write that sets a taint on n1; nil: to none.
func (w *world) rejectMarks(err error) {
	w.fail = func(o client.Object, patch string) error {
		if err != nil && o.GetName() == "n1" && strings.Contains(patch, `"taints"`) {
			return err
		}
		return nil
	}
}

const failingN1 = string(reason.Failing) + " n1"

// deadN1 is a world in mode observe whose n1 has just lost its power. The API server answers err to its mark.
func deadN1(t *testing.T, err error) *world {
	t.Helper()
	w := newWorld(t)
	w.mode = fence.Observe
	w.rejectMarks(err)
	w.cut("n1")
	return w
}

// wantStuck expects that n1 counts as stuck and was told of, or neither.
func (w *world) wantStuck(when string, want bool) {
	w.t.Helper()
	if w.told.has(failingN1) != want || w.stuckNodes() == 1 != want {
		w.t.Fatalf("%s: got %v stuck, told %q, want n1 stuck: %v", when, w.stuckNodes(), w.told.said, want)
	}
}

// A write that the API server rejects for a minute is reported once, with its message, until a step succeeds.
func TestRejectedMarkIsReported(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	refused := errors.New("dial tcp 10.0.0.1:443: connect: connection refused")
	for _, tc := range []struct {
		name string
		err  error
		away bool   // live looks fail, too
		text string // of the Event; "": none
	}{
		{"an admission policy", apierrors.NewForbidden(nodes, "n1", errors.New("this key is not ours\nto set")), false,
			`nodes "n1" is forbidden: this key is not ours to set`},
		{"a webhook whose backend is gone", apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), false,
			`failed calling webhook "w"`},
		{"a webhook that takes longer than we wait", context.DeadlineExceeded, false, "deadline exceeded"},
		{"no room", apierrors.NewTooManyRequestsError("later"), false, ""},
		{"the API server begins", apierrors.NewServiceUnavailable("starting"), false, ""},
		{"the API server is away", refused, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := deadN1(t, tc.err)
			if tc.away {
				w.r.Live = liveReads{w.api, func(any, string) error { return tc.err }}
			}
			w.run(80 * time.Second) // its Lease is stale after 25 s, so that nothing has failed for a minute
			w.wantStuck("within a minute", false)
			w.run(3 * time.Minute)
			w.wantStuck("after a minute", tc.text != "")
			at := slices.Index(w.told.said, failingN1)
			switch {
			case at < 0:
			case slices.Contains(w.told.said[at+1:], failingN1):
				t.Errorf("told again: %q", w.told.said)
			case !strings.Contains(w.told.texts[at], tc.text):
				t.Errorf("got %q, want it to contain %q", w.told.texts[at], tc.text)
			}
			w.r.Live = w.api
			w.rejectMarks(nil)
			w.untilDone("n1", taint.ResultEvicted)
			if w.stuckNodes() != 0 {
				t.Errorf("recovered: got %v stuck", w.stuckNodes())
			}
		})
	}
}

// A new leader has seen nothing fail: it counts a minute of its own. A stuck node that is deleted is no stuck node.
func TestStuckBeginsAnew(t *testing.T) {
	w := deadN1(t, apierrors.NewInternalError(errors.New("no backend")))
	w.change("n1", setReady(corev1.ConditionUnknown)) // by which a new leader knows it
	w.run(2 * time.Minute)
	w.wantStuck("the first leader", true)
	w.lead()
	w.told.said, w.told.texts = nil, nil
	w.run(50 * time.Second)
	w.wantStuck("a new leader, before its minute is over", false)
	w.run(2 * time.Minute)
	w.wantStuck("a new leader, later", true)
	must(t, w.api.Delete(t.Context(), w.node("n1")))
	w.run(5 * time.Second)
	if w.stuckNodes() != 0 {
		t.Errorf("the node is gone: got %v stuck", w.stuckNodes())
	}
}

// An outage that follows a failure does not count: the minute begins again after it.
func TestOutageIsNotStuck(t *testing.T) {
	w := deadN1(t, apierrors.NewInternalError(errors.New("no backend")))
	w.run(50 * time.Second) // it has failed for half a minute
	w.r.Live = liveReads{w.api, func(any, string) error { return errors.New("connection refused") }}
	w.run(5 * time.Minute)
	w.r.Live = w.api
	w.run(20 * time.Second)
	w.wantStuck("20 s after the outage", false)
	w.run(2 * time.Minute)
	w.wantStuck("two minutes after the outage", true)
}

// A live look that the API server refuses for one node alone is reported as well.
func TestRefusedLookIsReported(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Observe
	w.r.Live = liveReads{w.api, func(o any, name string) error {
		if _, node := o.(*corev1.Node); node && name == "n1" {
			return apierrors.NewInternalError(errors.New("unable to transform key"))
		}
		return nil
	}}
	w.cut("n1")
	w.run(3 * time.Minute)
	w.wantStuck("three minutes later", true)
}

// A fence waits for minutes for its proof, then goes on, and then waits for its volumes. Each wait is reported once,
// after its own time: the steps between them report nothing.
func TestFenceThatGoesOnWarnsOnce(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Observe
	w.detaches = false
	machine := w.machines["n1"]
	w.fail = func(o client.Object, _ string) error {
		if o.GetNamespace() != worldNS { // not a pod
			return nil
		}
		machine.mu.Lock()
		machine.deaf = true // right after the eviction began
		machine.mu.Unlock()
		return apierrors.NewInternalError(errors.New("no backend"))
	}
	warnings := func() (texts []string) {
		w.told.mu.Lock()
		defer w.told.mu.Unlock()
		for i, said := range w.told.said {
			if said == string(reason.NeedsPerson)+" n1" {
				texts = append(texts, w.told.texts[i])
			}
		}
		return texts
	}
	w.cut("n1")
	w.run(8 * time.Minute)
	if got := warnings(); len(got) != 1 || !strings.Contains(got[0], string(reason.ProofLost)) {
		t.Fatalf("while its proof is lost: got %q, want one warning of that", got)
	}
	machine.mu.Lock()
	machine.deaf = false
	machine.mu.Unlock()
	w.fail = nil
	w.run(4 * time.Minute)
	if got := warnings(); len(got) != 1 || w.stuckNodes() != 0 {
		t.Fatalf("it goes on: got %q, %v stuck; want no further warning", got, w.stuckNodes())
	}
	w.run(2 * time.Minute)
	got := warnings()
	if len(got) != 2 || !strings.Contains(got[1], "kubectl describe volumeattachment ") {
		t.Fatalf("its volumes stay: got %q, want a second warning, which names a VolumeAttachment", got)
	}
	w.detaches = true
	w.untilDone("n1", taint.ResultEvicted)
}
