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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
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
	host := func(name string, annotations map[string]string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name,
			Annotations: annotations}}
	}
	asked := func(uid string) map[string]string {
		return map[string]string{"reboot.metal3.io/forcefence": `{"mode":"hard"}`,
			"forcefence.io/power-off": `{"nodeUID":"` + uid + `","bootID":"b1","fence":"f1"}`}
	}
	named := orderedNode("named", "") // its record names the host metal3/named as well
	named.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-named", time.Now())
	r, err := taint.RecordOf(named)
	kit.Must(t, err)
	named.Annotations[taint.RecordAnnotation] = r.WithOrders(taint.DeviceRef{Device: "racks/metal3/named"}).Encode()
	nodes = append(nodes, *named)
	lists := OrderLists{
		Hosts: listed(host("gone", asked("uid-x")), host("forgotten", asked("uid-off")),
			host("named", asked("uid-named")),
			host("detached", map[string]string{"forcefence.io/detached": `{"nodeUID":"uid-y"}`}),
			host("no-life", map[string]string{"reboot.metal3.io/forcefence": ""}),
			host("theirs", map[string]string{"reboot.metal3.io/stranger": "", "forcefence.io/power-off": "{}"})),
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
		"hosts/named": writes.Holds, "racks/metal3/named": writes.Holds,
		"metal3/gone": writes.NodeGone, "metal3/forgotten": writes.Kept,
		"metal3/detached": writes.NodeGone, "metal3/no-life": writes.Kept,
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

// TestListHosts: hosts with an order of ours are listed, of one namespace or of all.
func TestListHosts(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	host := func(namespace, name, annotation string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetAnnotations(map[string]string{annotation: "{}"})
		return o
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host("a", "ours", "reboot.metal3.io/forcefence"),
		host("a", "theirs", "reboot.metal3.io/stranger"), host("b", "ours", "forcefence.io/detached")).Build()
	for namespace, want := range map[string]int{"a": 1, "b": 1, "c": 0, "": 2} {
		hosts, err := listHosts(t.Context(), c, namespace)
		kit.Must(t, err)
		if len(hosts) != want || want == 1 && hosts[0].Name != "ours" {
			t.Errorf("namespace %q: got %+v, want %d", namespace, hosts, want)
		}
	}
}

// The metric shows hosts whose Node or record is gone, with an age of one second: when that was ordered is unknown.
// Without the right to list hosts it shows those that a record names.
func TestForgottenHosts(t *testing.T) {
	var err error
	hosts := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "host-1",
		Annotations: map[string]string{"forcefence.io/detached": `{"nodeUID":"gone"}`}}}}
	registry := prometheus.NewRegistry()
	now := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	g := newOrderGauge(OrderLists{
		Hosts: func(context.Context) ([]metav1.PartialObjectMetadata, error) { return hosts, err },
	}, fake.NewClientBuilder().WithObjects(orderedNode("failed", taint.ResultPowerOffFailed)).Build(), taint.DefaultKey,
		slog.New(slog.DiscardHandler), func() time.Time { return now }, registry)
	for _, step := range []struct {
		err        error
		gone, kept float64
	}{{nil, 1, 3600}, {errors.New("forbidden"), 0, 3600}} {
		if err = step.err; err != nil {
			hosts = nil
		}
		g.read(t.Context())
		all, failed := registry.Gather()
		kit.Must(t, failed)
		for _, m := range all[0].Metric {
			resource, state, age := m.Label[0].GetValue(), m.Label[1].GetValue(), m.GetGauge().GetValue()
			want := map[string]float64{"node_gone": step.gone, "kept": step.kept}[state]
			if resource == hostsResource && age != want {
				t.Errorf("%v: %s: got %v, want %v", step.err, state, age, want)
			}
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
