package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/interop/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/interop/remediation/api"
	"github.com/forcefence/forcefence/taint/writes"
	"github.com/forcefence/forcefence/test/kit"
)

// orderedNode returns a Node whose fence left an order with a host. Its record ended so; "": it is open.
func orderedNode(name string, result taint.Result) *corev1.Node {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	host := taint.DeviceRef{Device: "hosts/" + name}
	r := taint.Record{ID: "f-" + name, NodeUID: "uid-" + name, LeaseRV: "7", By: "test", Since: since}.WithOrders(host)
	r = r.EnterPhase(taint.PhasePoweringOff, "", since)
	if result != "" {
		r.OffBy = []taint.DeviceRef{host}
		r = r.EnterPhase(taint.PhaseDone, result, since)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{taint.RecordAnnotation: r.Encode()}}}
}

// listed returns what lists these objects.
func listed[T any](all ...T) func(context.Context) ([]T, error) {
	return func(context.Context) ([]T, error) { return all, nil }
}

// Each resource whose orders the metric counts is read, in each of its states.
func TestOrders(t *testing.T) {
	marked := orderedNode("marked", "")
	marked.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-marked", time.Now())
	beats := orderedNode("beats", taint.ResultEvicted)
	beats.Status.NodeInfo.BootID = "another"
	nodes := []corev1.Node{*marked, *beats, *orderedNode("off", taint.ResultEvicted),
		*orderedNode("failed", taint.ResultPowerOffFailed)}
	request := func(name, uid string) api.ForcefenceRemediation {
		return api.ForcefenceRemediation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Finalizers: []string{api.Finalizer}},
			Status:     api.ForcefenceRemediationStatus{NodeUID: uid}}
	}
	budget := func(node string) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: node,
			Annotations: map[string]string{taint.GuardedNodeAnnotation: node}}}
	}
	free := request("free", "uid-marked")
	free.Finalizers = nil
	fence := func(name, node, state string, owned bool) storagefence.Fence {
		return storagefence.Fence{Name: name, Owned: owned, Node: node, State: state,
			Life: taint.Life{NodeUID: "uid-" + node}}
	}
	lists := OrderLists{
		Fences: listed(fence("f", "off", "Fenced", true), fence("ends", "off", "Unfenced", true),
			fence("gone", "deleted", "Fenced", true), fence("theirs", "off", "Fenced", false)),
		Requests: listed(request("holds", "uid-marked"), request("kept", "uid-off"), request("gone", "uid-x"), free),
		Budgets:  listed(budget("off"), budget("deleted")),
	}
	orders, unread := lists.Read(t.Context(), nodes, taint.DefaultKey)
	got := map[string]writes.State{}
	of := map[string]bool{}
	for _, o := range orders {
		got[o.Name], of[o.Resource] = o.State, true
	}
	want := map[string]writes.State{
		"hosts/marked": writes.Holds, "hosts/beats": writes.Kept,
		"hosts/off": writes.Holds, "hosts/failed": writes.Kept,
		"f": writes.Holds, "ends": writes.Ending, "gone": writes.NodeGone,
		"a/holds": writes.Holds, "a/kept": writes.Kept, "a/gone": writes.NodeGone,
		"a/off": writes.Holds, "a/deleted": writes.NodeGone,
	}
	for name, state := range want {
		if got[name] != state {
			t.Errorf("%s: got %q, want %q", name, got[name], state)
		}
	}
	if len(orders) != len(want) {
		t.Errorf("got %+v, want %d", orders, len(want))
	}
	for resource, err := range unread {
		if err != nil {
			t.Errorf("%s: got %v", resource, err)
		}
	}
	for _, w := range writes.All {
		if w.Standing != nil && w.Standing.Metric == writes.OrderMetric && !of[w.Resource] {
			t.Errorf("%s: its orders are not read", w.Resource)
		}
	}
}

// The metric shows the age of the oldest order, 0 once it has ended, and the last known age while it cannot be read.
func TestOrderGauge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	kept := storagefence.Fence{Name: "f", Owned: true, Node: "deleted", State: "Fenced", CreatedAt: now}
	var err error
	fences := []storagefence.Fence{kept}
	registry := prometheus.NewRegistry()
	g := newOrderGauge(OrderLists{
		Fences: func(context.Context) ([]storagefence.Fence, error) { return fences, err },
	}, fake.NewClientBuilder().WithObjects([]client.Object{}...).Build(), taint.DefaultKey,
		slog.New(slog.DiscardHandler), func() time.Time { return now.Add(time.Hour) }, registry)
	for _, step := range []struct {
		fences []storagefence.Fence
		err    error
		want   float64
	}{{[]storagefence.Fence{kept}, nil, 3600}, {nil, errors.New("cut off"), 3600}, {nil, nil, 0}} {
		fences, err = step.fences, step.err
		g.read(t.Context())
		all, failed := registry.Gather()
		kit.Must(t, failed)
		series, got := 0, map[string]float64{}
		for _, m := range all[0].Metric {
			series++
			if age := m.GetGauge().GetValue(); age > 0 {
				got[m.Label[0].GetValue()+" "+m.Label[1].GetValue()] = age
			}
		}
		if got[FencesResource+" node_gone"] != step.want || len(got) > 1 || series != 16 {
			t.Errorf("got %v of %d series, want %v of 16", got, series, step.want)
		}
	}
}
