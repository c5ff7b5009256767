package integration

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// serve makes a Service of the workload's pods.
func (w *world) serve(name string) {
	w.t.Helper()
	_, err := w.Client().CoreV1().Services(w.ns).Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
		},
	}, metav1.CreateOptions{})
	kit.Must(w.t, err)
}

// endpoints are the nodes of a Service's ready endpoints, sorted.
func (w *world) endpoints(service string) []string {
	w.t.Helper()
	list, err := w.Client().DiscoveryV1().EndpointSlices(w.ns).List(w.ctx, metav1.ListOptions{
		LabelSelector: "kubernetes.io/service-name=" + service,
	})
	kit.Must(w.t, err)
	var nodes []string
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				nodes = append(nodes, *e.NodeName)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// podCondition returns a condition of a pod.
func podCondition(t *testing.T, p corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	t.Helper()
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		t.Fatalf("pod %s has no condition %s", p.Name, kind)
	}
	return p.Status.Conditions[i]
}

// An ingress pod of a DaemonSet stays on its dead node. The fence ends the node's Ready first, so the node lifecycle
// controller does not set the pods not ready (F19). The fence does, and their endpoints go. The endpoint is back when
// the node is.
func TestEndpointsOfDeadNode(t *testing.T) {
	w := newWorld(t, plan{nodes: 3, own: &cluster.Options{}})
	h := w.hosts[0]
	w.fill(h, 1, w.volumes("db", 1))
	w.create(w.workload("ingress", 0).DaemonSet())
	w.serve("ingress")
	var all []string
	for _, o := range w.hosts {
		all = append(all, o.Name())
	}
	slices.Sort(all)
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == h.Name() })
	w.until("an endpoint on each node", func() bool { return slices.Equal(w.endpoints("ingress"), all) })
	ofDead := func() corev1.Pod {
		pods := w.podsOn(h)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Labels["app"] == "ingress" })
		if i < 0 {
			t.Fatal("the ingress pod of the dead node is gone")
		}
		return pods[i]
	}
	w.start(settings{})
	w.untilPinned(h)

	cut := time.Now()
	h.cut()
	w.until("the dead node's endpoint to go", func() bool { return slices.Equal(w.endpoints("ingress"), others) })
	t.Logf("the endpoint went %.1f s after the power", time.Since(cut).Seconds())
	if ready := podCondition(t, ofDead(), corev1.PodReady); ready.Status != corev1.ConditionFalse ||
		ready.Reason != taint.TombstoneReason {
		t.Errorf("Ready of the pod that stays: got %+v, want False by forcefence", ready)
	}
	if c := podCondition(t, ofDead(), corev1.ContainersReady); c.Status != corev1.ConditionTrue {
		t.Errorf("ContainersReady of the pod that stays: got %+v, want it left alone", c)
	}
	w.untilDone(h, taint.ResultEvicted)

	h.boot()
	w.until("the endpoint to be back", func() bool { return slices.Equal(w.endpoints("ingress"), all) })
	if ready := podCondition(t, ofDead(), corev1.PodReady); ready.Status != corev1.ConditionTrue {
		t.Errorf("Ready of the pod on the returned node: got %+v, want True", ready)
	}
}
