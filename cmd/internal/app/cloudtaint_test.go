package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/cluster"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

// A cloud controller manager's taint on a real API server: put on and taken off as k8s.io/cloud-provider
// does it, by a patch of the whole list under the Node's resourceVersion, among other people's taints.
func TestCloudTaint(t *testing.T) {
	admin := cluster.Admin(t, shared)
	shut := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule}
	ctx := t.Context()
	get := func() *corev1.Node {
		t.Helper()
		var n corev1.Node
		if err := admin.Get(ctx, client.ObjectKey{Name: "cloudy"}, &n); err != nil {
			t.Fatal(err)
		}
		return &n
	}
	create := func(taints ...corev1.Taint) {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}, Spec: corev1.NodeSpec{Taints: taints}}
		if err := admin.Create(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(ctx context.Context) {
		_ = admin.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}})
	}
	ready := func(s corev1.ConditionStatus) {
		t.Helper()
		n := get()
		n.Status.NodeInfo.BootID = "b1"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeReady, Status: s}}
		if err := admin.Status().Update(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	taints := func(all ...corev1.Taint) {
		t.Helper()
		n := get()
		before := n.DeepCopy()
		n.Spec.Taints = all
		if err := admin.Patch(ctx, n,
			client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(rc *rest.Config, trust string) func(providers.PowerState, string) {
		t.Helper()
		live, err := client.New(rc, client.Options{Mapper: admin.RESTMapper()})
		if err != nil {
			t.Fatal(err)
		}
		p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(), listedNodes(nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.providers.closeAll)
		p.providers.live = live
		cfg, err := config.Parse("f", fmt.Appendf(nil, `
providers: [{name: cloud, cloudtaint: {trust: %s}}]
nodes: [{name: all, provider: cloud, machine: {from: name}}]
`, trust), all.Types())
		if err == nil {
			err = p.applyConfig(cfg)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func(want providers.PowerState, says string) {
			t.Helper()
			m, err := p.activeConfig().Machines.Led(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}})
			if err != nil {
				t.Fatal(err)
			}
			a := m.AskDevices(ctx, nobodyLies, providers.Now)[0]
			if word := a.Raw; a.State != want || a.Err == nil && word != says ||
				a.Err != nil && providers.ErrorClass(a.Err) != says {
				t.Errorf("got %s (%q), %v, want %s (%s)", a.State, a.Raw, a.Err, want, says)
			}
		}
	}
	trusts, doubts := begin(shared.RESTConfig(), "cloud-controller-manager"), begin(shared.RESTConfig(), "nobody")
	const off, unknown = providers.PowerOff, providers.PowerUnknown

	trusts(unknown, "not_found")
	create()
	defer remove(context.WithoutCancel(ctx))
	ready(corev1.ConditionTrue)
	trusts(unknown, "the node is Ready, or was never Ready")
	ready(corev1.ConditionUnknown)
	taints(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
	trusts(unknown, "no shutdown taint")
	doubts(unknown, "no shutdown taint")
	taints(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}, shut)
	if added := get().Spec.Taints[1].TimeAdded; added != nil {
		t.Errorf("the API server says when a NoSchedule taint was put on (%s): use that", added)
	}
	trusts(off, "shutdown taint")
	trusts(off, "shutdown taint")
	doubts(unknown, "shutdown taint, not trusted")
	// a process that began since
	begin(shared.RESTConfig(), "cloud-controller-manager")(unknown, "shutdown taint of unknown age")
	taints(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
	trusts(unknown, "no shutdown taint")
	taints(shut)
	trusts(off, "shutdown taint")
	ready(corev1.ConditionTrue)
	trusts(unknown, "the node is Ready, or was never Ready")
	ready(corev1.ConditionUnknown)
	trusts(unknown, "shutdown taint of unknown age")

	// A kubelet registers with the taint.
	taints()
	trusts(unknown, "no shutdown taint")
	remove(ctx)
	create(shut)
	ready(corev1.ConditionUnknown)
	trusts(unknown, "shutdown taint of unknown age")

	// Who may not read Nodes learns nothing, nor who reaches no API server.
	begin(shared.RESTConfigFor("somebody"), "cloud-controller-manager")(unknown, "denied")
	gone := shared.RESTConfig()
	gone.Host = "https://127.0.0.1:1"
	begin(gone, "cloud-controller-manager")(unknown, "unreachable")
	if NodeReader(nil) != nil {
		t.Error("a reader of nothing")
	}
	if _, err := NodeReader(admin)(ctx, "nobody"); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
