package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

func setCondition(name corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == name {
				n.Status.Conditions[i].Status = status
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: name, Status: status})
	}
}

func paused(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{fence.PausedAnnotation: value} }
}

// A person's word on a Node stops everything until it ends: then the node is powered off and recovered, as any.
func TestPausedUntil(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.run(15 * time.Second)
	until := w.Now().Add(3 * time.Minute).UTC().Truncate(time.Second)
	w.change("n1", paused(fmt.Sprintf("new disk; until=%s", until.Format(time.RFC3339))))
	w.silence("n1")
	if w.until(170*time.Second, func() bool { return w.machines["n1"].offs() > 0 || w.record("n1").ID != "" }) ||
		!w.told.has("NodeExcluded n1") {
		t.Errorf("while it was paused: %d power-offs, record %+v, told %q", w.machines["n1"].offs(), w.record("n1"),
			w.told.said)
	}
	w.until(time.Minute, func() bool { return w.machines["n1"].offs() > 0 })
	w.untilDone("n1", taint.ResultEvicted)
	if m := w.machines["n1"]; m.offs() != 1 || m.off[0].Before(until) {
		t.Errorf("power-offs: got %v, want one after %s", m.off, until)
	}
}

// A drain that is under way keeps a machine on, and none that is off from its recovery.
func TestDrainKeepsMachineOn(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.run(15 * time.Second)
	for _, n := range []string{"n1", "n3"} {
		w.change(n, setCondition("DrainInProgress", corev1.ConditionTrue))
	}
	w.silence("n1")
	w.cut("n3")
	w.until(100*time.Second, func() bool { return w.record("n3").Result == taint.ResultEvicted })
	w.untilDone("n3", taint.ResultEvicted)
	w.run(100 * time.Second)
	if w.machines["n1"].offs() != 0 || w.record("n1").ID != "" || !w.told.has("PowerOffHeldUp n1") {
		t.Errorf("n1: got %d power-offs, record %+v, told %q", w.machines["n1"].offs(), w.record("n1"), w.told.said)
	}
	w.change("n1", setCondition("DrainInProgress", corev1.ConditionFalse))
	w.until(time.Minute, func() bool { return w.machines["n1"].offs() > 0 })
	w.untilDone("n1", taint.ResultEvicted)
}

// refusing is an API server of which some reads fail.
type refusing struct {
	client.Reader
	fail func(client.ObjectKey) error
}

func (a refusing) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := a.fail(k); err != nil {
		return err
	}
	return a.Reader.Get(ctx, k, o, opts...)
}

// elsewhere makes the world's controller look where else nodes are excluded.
func (w *world) elsewhere() *corev1.ConfigMap {
	at := ExclusionSources{Pause: client.ObjectKey{Namespace: "fencing", Name: "forcefence-pause"},
		Leases: "medik8s-leases"}
	config := w.r.Options.Config
	w.r.Options.Config = func() *Config {
		c := config()
		c.Exclusions = at
		return c
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: at.Pause.Namespace, Name: at.Pause.Name},
		Data: map[string]string{"reason": "switches"}}
}

// A pause that is written once the power-off is announced wins over it, whoever else is dead; when it is gone all goes
// on.
func TestPauseWinsUntilSent(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	pause := w.elsewhere()
	announced := false
	w.fail = func(_ client.Object, patch string) error { // just before the announcement is committed
		if strings.Contains(patch, string(taint.PhasePoweringOff)) && !announced {
			announced = true
			w.create(pause)
		}
		return nil
	}
	w.run(15 * time.Second)
	w.silence("n1")
	w.until(2*time.Minute, func() bool { return w.record("n1").Result != "" })
	if !announced || w.machines["n1"].offs() != 0 || w.record("n1").Result != taint.ResultCancelled ||
		!w.told.has("NodeExcluded n1") {
		t.Errorf("announced %v: got %d power-offs, record %+v, told %q", announced, w.machines["n1"].offs(),
			w.record("n1"), w.told.said)
	}
	w.cut("n3")
	w.run(2 * time.Minute)
	if w.machines["n1"].offs() != 0 || w.record("n3").ID != "" || !w.told.has("NodeExcluded n3") {
		t.Errorf("while it is paused: got %d power-offs, record %+v, told %q", w.machines["n1"].offs(), w.record("n3"),
			w.told.said)
	}
	must(t, w.api.Delete(t.Context(), pause))
	w.until(2*time.Minute, func() bool { return w.machines["n1"].offs() > 0 })
	w.untilDone("n1", taint.ResultEvicted)
	w.untilDone("n3", taint.ResultEvicted)
}

// Node maintenance's Lease excludes its node, and no other; another operator's does not.
func TestNodeMaintenanceLease(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.elsewhere()
	w.run(15 * time.Second)
	for n, holder := range map[string]string{"n1": "node-maintenance", "n3": "NodeHealthCheck-workers"} {
		seconds, renewed := int32(150), metav1.NewMicroTime(w.Now())
		w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "medik8s-leases", Name: "node-" + n},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
				RenewTime: &renewed}})
		w.cut(n)
	}
	w.until(100*time.Second, func() bool { return w.record("n3").Result == taint.ResultEvicted })
	w.untilDone("n3", taint.ResultEvicted)
	if w.record("n1").ID != "" || !w.told.has("NodeExcluded n1") {
		t.Errorf("n1: got record %+v, told %q", w.record("n1"), w.told.said)
	}
	w.until(4*time.Minute, func() bool { return w.record("n1").Result == taint.ResultEvicted }) // it runs out
	w.untilDone("n1", taint.ResultEvicted)
}

// What may not be read may say that nothing is to be done; what cannot be read now is read again.
func TestUnreadableIsPaused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "thing", errors.New("no right"))
	for name, tc := range map[string]struct {
		namespace string
		err       error
		told      bool
	}{
		"a pause that may not be read":    {"fencing", forbidden, true},
		"Leases that may not be read":     {"medik8s-leases", forbidden, true},
		"a pause that nobody answers for": {"fencing", apierrors.NewInternalError(errors.New("etcd")), false},
		"Leases that nobody answers for":  {"medik8s-leases", apierrors.NewInternalError(errors.New("etcd")), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mode = fence.Fence
			w.elsewhere()
			live := w.r.Live
			w.r.Live = refusing{live, func(k client.ObjectKey) error {
				if k.Namespace == tc.namespace {
					return tc.err
				}
				return nil
			}}
			w.run(15 * time.Second)
			w.cut("n1")
			w.run(100 * time.Second)
			if w.record("n1").ID != "" || w.told.has("NodeExcluded n1") != tc.told {
				t.Errorf("got record %+v, told %q, want that it is told: %v", w.record("n1"), w.told.said, tc.told)
			}
			w.r.Live = live
			w.until(time.Minute, func() bool { return w.record("n1").Result == taint.ResultEvicted })
			w.untilDone("n1", taint.ResultEvicted)
		})
	}
}

// clusterAPI is an API server with Machines and Clusters, by kind and name.
type clusterAPI struct {
	client.Reader
	objects map[string]map[string]any
	err     error
	failing string // the kind that err is about; "": all
}

func (a clusterAPI) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return a.Reader.Get(ctx, k, o, opts...)
	}
	is, there := a.objects[u.GetKind()+" "+k.String()]
	switch {
	case a.err != nil && (a.failing == "" || a.failing == u.GetKind()):
		return a.err
	case u.GroupVersionKind().Version != "v1beta7" || !there:
		return apierrors.NewNotFound(schema.GroupResource{Group: fence.ClusterAPI, Resource: u.GetKind()}, k.Name)
	}
	u.Object = is
	return nil
}

// mapping is a client of an API server that has these resources.
type mapping struct {
	client.Client
	mapper meta.RESTMapper
}

func (m mapping) RESTMapper() meta.RESTMapper { return m.mapper }

// unmapped is a discovery that fails.
type unmapped struct{ meta.RESTMapper }

func (unmapped) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

// Whoever takes a Machine from Cluster API's own health checks takes its node from forcefence, where the Machine can be
// read.
func TestClusterAPI(t *testing.T) {
	object := func(annotation string, spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: ""}}, "spec": spec}
	}
	const machine, cluster = "Machine infra/m1", "Cluster infra/prod"
	plain := object("other", map[string]any{})
	named := func(namespace, machine string) map[string]string {
		return map[string]string{fence.ClusterAPI + "/cluster-namespace": namespace,
			fence.ClusterAPI + "/machine": machine, fence.ClusterAPI + "/cluster-name": "prod"}
	}
	served := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: fence.ClusterAPI, Version: "v1beta7"}})
	for _, kind := range []string{"Machine", "Cluster"} {
		served.Add(schema.GroupVersionKind{Group: fence.ClusterAPI, Version: "v1beta7", Kind: kind},
			meta.RESTScopeNamespace)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m1", errors.New("no right"))
	for name, tc := range map[string]struct {
		on      map[string]string // the Node's annotations
		objects map[string]map[string]any
		mapper  meta.RESTMapper
		err     error
		failing string // the kind that err is about; "": all
		told    string // "" and not kept on: it is fenced
		kept    string // why its machine stays on
	}{
		"nothing is said": {on: named("infra", "m1"),
			objects: map[string]map[string]any{machine: plain, cluster: plain}},
		"its Machine is paused": {on: named("infra", "m1"),
			objects: map[string]map[string]any{machine: object("cluster.x-k8s.io/paused", nil)},
			told:    "Machine infra/m1: annotation cluster.x-k8s.io/paused"},
		"its Machine is left alone": {on: named("infra", "m1"),
			objects: map[string]map[string]any{machine: object("cluster.x-k8s.io/skip-remediation", nil)},
			told:    "Machine infra/m1: annotation cluster.x-k8s.io/skip-remediation"},
		"its Cluster is paused": {on: named("infra", "m1"),
			objects: map[string]map[string]any{cluster: object("other", map[string]any{"paused": true})},
			told:    "Cluster infra/prod: spec.paused"},
		"its Cluster is not paused": {on: named("infra", "m1"),
			objects: map[string]map[string]any{cluster: object("other", map[string]any{"paused": false})}},
		"a pause that is none of the two": {on: named("infra", "m1"),
			objects: map[string]map[string]any{cluster: object("other", map[string]any{"paused": "yes"})},
			told:    "Cluster infra/prod: spec.paused"},
		"another Machine is paused": {on: named("infra", "m2"),
			objects: map[string]map[string]any{machine: object("cluster.x-k8s.io/paused", nil)}},
		"a Node of no Machine": {
			objects: map[string]map[string]any{machine: object("cluster.x-k8s.io/paused", nil)}},
		"a name that no Machine can have": {on: named("infra", "../m1"), objects: map[string]map[string]any{},
			err: nil},
		"no namespace":          {on: named("", "m1"), err: forbidden},
		"neither can be a name": {on: named("", "../m1"), err: forbidden},
		"Machines are elsewhere": {on: named("infra", "m1"),
			objects: map[string]map[string]any{machine: object("cluster.x-k8s.io/paused", nil)},
			mapper:  meta.NewDefaultRESTMapper(nil)},
		"nobody knows where Machines are": {on: named("infra", "m1"), mapper: unmapped{},
			kept: "Machine infra/m1 cannot be read"},
		"a Machine that may not be read": {on: named("infra", "m1"), err: forbidden,
			kept: "Machine infra/m1 cannot be read"},
		"a Machine that nobody answers for": {on: named("infra", "m1"),
			err: apierrors.NewInternalError(errors.New("etcd")), kept: "Machine infra/m1 cannot be read"},
		"a Cluster alone that may not be read": {on: named("infra", "m1"), err: forbidden, failing: "Cluster",
			objects: map[string]map[string]any{machine: plain}, kept: "Cluster infra/prod cannot be read"},
		"a Machine alone that may not be read": {on: named("infra", "m1"), err: forbidden, failing: "Machine",
			objects: map[string]map[string]any{cluster: plain}, kept: "Machine infra/m1 cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.mapper == nil {
				tc.mapper = served
			}
			w.r.Live, w.r.Client = clusterAPI{w.api, tc.objects, tc.err, tc.failing}, mapping{w.api, tc.mapper}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: tc.on}}
			got, err := w.r.readExclusions(t.Context(), ExclusionSources{}, node)
			must(t, err)
			if (got.Excluded == "") != (tc.told == "") || !strings.Contains(got.Excluded, tc.told) ||
				(got.KeptOn == "") != (tc.kept == "") || !strings.Contains(got.KeptOn, tc.kept) {
				t.Errorf("got %+v, want excluded by %q, kept on by %q", got, tc.told, tc.kept)
			}
		})
	}
}

// Another controller's object may keep a machine's power as it is. It does not exclude the node.
func TestKeptOnByAnother(t *testing.T) {
	w := newWorld(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, want := range []string{"", "its machine is being replaced"} {
		got, err := w.r.readExclusions(t.Context(), ExclusionSources{
			KeptOn: func(_ context.Context, c client.Reader, m meta.RESTMapper, n *corev1.Node) string {
				if c == nil || m == nil || n != node {
					t.Errorf("got %v, %v, %v, want a reader, a mapper and the Node", c, m, n)
				}
				return want
			}}, node)
		must(t, err)
		if got.KeptOn != want || got.Excluded != "" {
			t.Errorf("got %+v, want kept on by %q, and not excluded", got, want)
		}
	}
}

// Nobody can read Machines: the webhook that converts them ran on a node that is dead. A machine that is on stays on,
// and one that is off is recovered, which brings the webhook back.
func TestClusterAPICannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.r.Client = mapping{w.r.Client, unmapped{}}
	w.run(15 * time.Second)
	for _, n := range []string{"n1", "n3"} {
		w.change(n, func(o *corev1.Node) {
			o.Annotations = map[string]string{fence.ClusterAPI + "/cluster-namespace": "infra",
				fence.ClusterAPI + "/machine": "m1"}
		})
	}
	w.silence("n1")
	w.cut("n3")
	w.until(100*time.Second, func() bool { return w.record("n3").Result == taint.ResultEvicted })
	w.untilDone("n3", taint.ResultEvicted)
	w.run(100 * time.Second)
	if w.machines["n1"].offs() != 0 || !w.told.has("PowerOffHeldUp n1") {
		t.Errorf("n1: got %d power-offs, told %q", w.machines["n1"].offs(), w.told.said)
	}
}

// LeftAlone keeps hand-overs from a node that a person or another controller excluded: on the Node itself, by the
// configuration, or by the pause of all.
func TestLeftAloneSaysWhy(t *testing.T) {
	w := newWorld(t)
	pause := w.elsewhere()
	w.change("n1", paused("new disk"))
	w.change("n2", setCondition("MaintenanceInProgress", corev1.ConditionTrue))
	w.excluded = "n3"
	want := map[string]bool{"n1": true, "n2": true, "n3": true, "n4": false, "gone": false, "": false}
	check := func(when string) {
		t.Helper()
		for node, left := range want {
			if why, err := w.r.LeftAlone(t.Context(), node); err != nil || (why != "") != left {
				t.Errorf("%s, node %q: got %q, %v; want it left alone: %v", when, node, why, err, left)
			}
		}
	}
	check("nothing is paused")
	w.create(pause)
	want["n4"], want[""] = true, true
	check("all is paused")
}
