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

// Three nodes are silent, and two may be powered off at once: never three are, two are, and all are recovered.
func TestPowerOffsAtOnce(t *testing.T) {
	w := newWorld(t, plan{nodes: 7, powerOffDelay: 2 * time.Second})
	dead := w.hosts[:3]
	w.oneEach(dead...)
	c := w.start(settings{Mode: "fence", Storm: "{maxPowerOffs: 2}"})
	w.untilPinned(dead...)
	for _, h := range dead {
		h.partition()
	}
	for _, h := range dead {
		w.untilDone(h, taint.ResultEvicted)
		if n := h.resets(); n != 1 {
			kit.Harm(t, "power-offs of %s: got %d, want 1", h.Name(), n)
		}
	}
	w.seen.mu.Lock()
	crowded := w.seen.crowded
	w.seen.mu.Unlock()
	two := false
	for _, at := range crowded {
		two = two || len(at) == 2
		if len(at) > 2 {
			t.Errorf("powered off at the same time: %v, want two at most", at)
		}
	}
	if !two {
		t.Error("no two machines were powered off at the same time, which two may")
	}
	c.untilMetric(`forcefence_guard_refusals_total{rule="PowerOffLimit"}`, 1)
}

// Two of five nodes are silent, and four must be healthy: no machine is powered off, and an Event says why with the
// numbers. What loses its power is recovered all the same. Once one is back, the other is fenced.
func TestFloorOfHealthyNodes(t *testing.T) {
	w := newWorld(t, plan{nodes: 5})
	a, b := w.hosts[0], w.hosts[1]
	w.oneEach(a, b)
	c := w.start(settings{Mode: "fence", Storm: "{minHealthy: 4}"})
	w.untilPinned(a, b)
	a.partition()
	b.partition()
	note := w.untilEvent("Node", b.Name(), "TooFewHealthy")
	if want := "2 of 5 nodes of the cluster are not healthy, the floor is 4"; !strings.Contains(note, want) {
		t.Errorf("the Event says %q, want %q in it", note, want)
	}
	c.untilMetric(`forcefence_guard_refusals_total{rule="TooFewHealthy"}`, 1)
	c.untilMetric(`forcefence_nodes{state="held_back"}`, 2)
	w.during(25*time.Second, "below the floor", w.untouched(a, b))
	a.cut()
	w.untilDone(a, taint.ResultEvicted)
	if n := b.resets(); n > 0 {
		kit.Harm(t, "below the floor: %d power-offs of %s", n, b.Name())
	}
	a.boot()
	w.untilDone(b, taint.ResultEvicted)
	if n := b.resets(); n != 1 {
		kit.Harm(t, "above the floor: %d power-offs of %s, want 1", n, b.Name())
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
