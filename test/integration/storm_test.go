package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// oneEach puts a pod on each of these nodes, so that there is something to recover.
func (w *world) oneEach(hosts ...*host) {
	w.t.Helper()
	for i, h := range hosts {
		w.fill(h, i+1, w.volumes(fmt.Sprintf("db%d", i), 1))
	}
}

// untouched fails if a power-off was asked of a machine.
func (w *world) untouched(hosts ...*host) func() error {
	return func() error {
		for _, h := range hosts {
			if n := h.resets(); n > 0 {
				return fmt.Errorf(kit.HarmPrefix+"%d power-offs of %s", n, h.Name())
			}
		}
		return nil
	}
}

// A zone is cut off: one Event tells it, and none of its machines is powered off. One that is off is recovered.
func TestLostZone(t *testing.T) {
	w := newWorld(t, plan{nodes: 7, node: func(i int, o *cluster.NodeOptions) {
		o.Labels[corev1.LabelTopologyZone] = map[bool]string{true: "west", false: "east"}[i < 3]
	}})
	zone := w.hosts[:3]
	w.oneEach(zone...)
	c := w.start(settings{Mode: "fence"})
	w.untilPinned(zone...)
	for _, h := range zone {
		h.partition()
	}
	c.untilMetric(`forcefence_guard_refusals_total{rule="DomainLost"}`, 3)
	w.during(25*time.Second, "a lost zone", w.untouched(zone...))
	lease := func() string {
		l, err := w.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(w.ctx, "forcefence",
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Annotations["forcefence.io/held-back"]
	}
	if got := lease(); !strings.Contains(got, `"rule":"DomainLost"`) || !strings.Contains(got, `"held":3,`) ||
		!strings.Contains(got, `"silent":3,"of":7,`) {
		t.Errorf("the Lease of the leader says %q, want 3 nodes held back, and 3 of 7 silent", got)
	}
	told := 0
	for _, h := range zone {
		told += len(w.events("Node", h.Name(), "DomainLost"))
	}
	if told != 1 {
		t.Errorf("the loss of one zone is reported %d times", told)
	}
	zone[2].cut()
	w.untilDone(zone[2], taint.ResultEvicted)
	if err := w.untouched(zone...)(); err != nil {
		t.Error(err)
	}
}

// One of three control-plane nodes is powered off, as etcd's pods leave a quorum; the second is not.
func TestControlPlaneKeepsItsQuorum(t *testing.T) {
	w := newWorld(t, plan{nodes: 6, node: func(i int, o *cluster.NodeOptions) {
		if i < 3 {
			o.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
	}})
	a, b := w.hosts[0], w.hosts[1]
	w.oneEach(a, b)
	api := w.Client().CoreV1().Pods(metav1.NamespaceSystem)
	for _, h := range w.hosts[:3] {
		pod, err := api.Create(w.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "etcd-" + h.Name(), Labels: map[string]string{"component": "etcd", "tier": "control-plane"},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
			},
			Spec: corev1.PodSpec{NodeName: h.Name(), HostNetwork: true,
				Containers:  []corev1.Container{{Name: "etcd", Image: "etcd"}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		}, metav1.CreateOptions{})
		kit.Must(t, err)
		t.Cleanup(func() {
			zero := int64(0)
			_ = api.Delete(context.WithoutCancel(t.Context()), pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: &zero})
		})
		w.until("etcd's pod is Ready", func() bool {
			p, err := api.Get(w.ctx, pod.Name, metav1.GetOptions{})
			kit.Must(t, err)
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady {
					return c.Status == corev1.ConditionTrue
				}
			}
			return false
		})
	}
	w.start(settings{Mode: "fence", Storm: "{controlPlane: quorum}"})
	w.untilPinned(a, b)
	a.partition()
	w.untilDone(a, taint.ResultEvicted)
	if n := a.resets(); n != 1 {
		kit.Harm(t, "power-offs of %s: got %d, want 1", a.Name(), n)
	}
	b.partition()
	note := w.untilEvent("Node", b.Name(), "EtcdQuorum")
	if want := "without it, 1 of etcd's 3 members are healthy; the quorum is 2"; !strings.Contains(note, want) {
		t.Errorf("the Event says %q, want %q in it", note, want)
	}
	w.during(25*time.Second, "etcd's quorum", w.untouched(b))
}
