package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// requests writes ForcefenceRemediations as NodeHealthCheck does.
type requests struct {
	client.Client
	w *world
}

// requests installs the definitions.
func (w *world) requests() requests {
	w.t.Helper()
	files, err := filepath.Glob(chart + "/files/remediation.*.yaml")
	kit.Must(w.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(w.t, err)
		w.kubectlApply(string(text))
	}
	w.kubectl("wait", "--for=condition=Established", "--timeout=5m", "crd/"+api.Resource.GroupResource().String())
	scheme := runtime.NewScheme()
	kit.Must(w.t, api.AddToScheme(scheme))
	c, err := client.New(w.RESTConfig(), client.Options{Scheme: scheme})
	kit.Must(w.t, err)
	return requests{c, w}
}

// make makes a request for a node.
func (q requests) make(h *host) *api.ForcefenceRemediation {
	q.w.t.Helper()
	r := &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: q.w.ns, Name: h.Name() + "-x7k2p",
		Annotations: map[string]string{"remediation.medik8s.io/node-name": h.Name()},
		Labels:      map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check", UID: "c-1"}},
	}}
	kit.Must(q.w.t, q.Create(q.w.ctx, r))
	return r
}

// get returns the request as it is; nil: it is gone.
func (q requests) get(r *api.ForcefenceRemediation) *api.ForcefenceRemediation {
	q.w.t.Helper()
	out := &api.ForcefenceRemediation{}
	err := q.Get(q.w.ctx, client.ObjectKeyFromObject(r), out)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	kit.Must(q.w.t, err)
	return out
}

// shows reports whether a condition of the request has that status.
func (q requests) shows(r *api.ForcefenceRemediation, of string, status metav1.ConditionStatus) bool {
	now := q.get(r)
	return now != nil && slices.ContainsFunc(now.Status.Conditions,
		func(c metav1.Condition) bool { return c.Type == of && c.Status == status })
}

// Four silent nodes whose machines are on, in mode onRequest. Without a request a machine is left on, and its pod where
// it is; a machine that is off is recovered. A request has one machine powered off, its pods moved after the proof, and
// shows that. A request that goes while its power-off is announced cancels it.
func TestRequests(t *testing.T) {
	w := newWorld(t, plan{nodes: 10, powerOffDelay: 2 * time.Second, node: func(i int, o *cluster.NodeOptions) {
		if i == 3 {
			o.Labels["level"] = "late"
		}
	}})
	asked, unasked, off, withdrawn := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	silent := w.hosts[:4]
	for _, h := range silent {
		w.create(w.bare("app-"+h.Name(), h))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(silent)))
	q := w.requests()
	c := w.start(settings{
		Mode: "onRequest", Timeout: "1m", Top: "remediation: {namespaces: [" + w.ns + "]}",
		Selector: "world=" + w.ns + ",level!=late",
		Rules: fmt.Sprintf("- name: late\n  selector: world=%s,level=late\n  levels: [{delay: 30s, devices: "+
			"[{provider: racks, machine: {from: list, list: [{node: %s, id: %q}]}}]}]",
			w.ns, withdrawn.Name(), withdrawn.bmc.URL()),
	})
	w.untilPinned(asked, unasked, off)
	w.until("the controller to follow requests", func() bool { return c.log.has("Following ForcefenceRemediations") })

	off.cut()
	for _, h := range []*host{asked, unasked, withdrawn} {
		h.partition()
	}
	w.untilDone(off, taint.ResultEvicted)
	for _, h := range []*host{asked, unasked, withdrawn} {
		if told := w.untilEvent("Node", h.Name(), "PoweredOnNotReady"); !strings.Contains(told, "waits for a request") {
			t.Errorf("%s: told %q, want that it waits for a request", h.Name(), told)
		}
	}
	// long after powerOffAfter: mode fence would have powered them off by now
	w.during(30*time.Second, "machines without a request to stay on", func() error {
		for _, h := range []*host{asked, unasked, withdrawn} {
			if h.resets() > 0 {
				return errors.New(h.Name() + " was powered off without a request")
			}
		}
		return nil
	})

	r := q.make(asked)
	w.untilDone(asked, taint.ResultEvicted)
	w.until("Succeeded=True", func() bool { return q.shows(r, api.Succeeded, metav1.ConditionTrue) })
	w.until("the finalizer to be gone", func() bool { return len(q.get(r).Finalizers) == 0 })
	if n := asked.resets(); n != 1 {
		kit.Harm(t, "%s: got %d power-offs, want one", asked.Name(), n)
	}
	if got := q.get(r).Status; got.Node != asked.Name() {
		t.Errorf("node of the request: got %q, want %q", got.Node, asked.Name())
	}
	kit.Must(t, q.Delete(w.ctx, r))
	w.until("the request to be gone", func() bool { return q.get(r) == nil })

	r = q.make(withdrawn)
	w.untilPhase(withdrawn, taint.PhasePoweringOff)
	w.until("Processing=True", func() bool { return q.shows(r, api.Processing, metav1.ConditionTrue) })
	kit.Must(t, q.Delete(w.ctx, r)) // its level waits before it powers off
	w.untilDone(withdrawn, taint.ResultCancelled)
	w.untilEvent("Node", withdrawn.Name(), "RequestGone")
	if q.get(r) != nil {
		t.Error("the request is there, and no mark of ours is on its node")
	}
	kit.Must(t, w.alone(unasked))
	for _, h := range []*host{unasked, withdrawn} {
		if n := h.resets(); n != 0 || !w.has("app-"+h.Name()) {
			kit.Harm(t, "%s: got %d power-offs, its pod is there: %v", h.Name(), n, w.has("app-"+h.Name()))
		}
	}
}
