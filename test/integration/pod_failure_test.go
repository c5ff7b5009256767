package integration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// hostile puts two pods on a node that a user of one namespace can make: "full", whose annotations take no byte more,
// and "huge", which is as large as etcd takes a new object: it cannot be written to, nor deleted.
func (w *world) hostile(h *host, suffix string) (full, huge string) {
	w.t.Helper()
	full, huge = "full-"+suffix, "huge-"+suffix
	p := w.bare(full, h)
	p.Annotations = map[string]string{"x": strings.Repeat("y", 262144-1)}
	w.create(p)
	p = w.bare(huge, h)
	p.Spec.Containers[0].Image += strings.Repeat("x", 200)
	w.t.Cleanup(func() { // an image may be changed: one that is shorter makes room for the deletion
		p.Spec.Containers[0].Image = "a"
		_, err := w.Client().CoreV1().Pods(w.ns).Update(context.Background(), p, metav1.UpdateOptions{})
		kit.Must(w.t, err)
	})
	for n := 1572600; ; n -= 20 {
		if n < 1571000 {
			w.t.Fatalf("no pod %s is small enough", huge)
		}
		p.Spec.Containers[0].Args = []string{strings.Repeat("x", n)}
		made, err := w.Client().CoreV1().Pods(w.ns).Create(w.ctx, p, metav1.CreateOptions{})
		if err == nil {
			*p = *made
			return full, huge
		}
		if !strings.Contains(err.Error(), "too large") {
			w.t.Fatal(err)
		}
	}
}

// One namespace's user fills pods to the limits of the API server and of etcd. All other pods run elsewhere as fast as
// ever. The node that returns and the one that a person releases lose their marks. The Event names the pod that cannot
// be ended.
func TestHostilePods(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	returns, released := w.hosts[0], w.hosts[1]
	for _, h := range []*host{returns, released} {
		w.fill(h, len(w.ReadyPods(w.ns))+2, w.volumes("db-"+h.Name(), 2))
	}
	_, huge0 := w.hostile(returns, "0")
	full1, huge1 := w.hostile(released, "1")
	others := func(h *host) []corev1.Pod {
		return slices.DeleteFunc(w.podsOn(h), func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "huge") })
	}
	busy := slices.Concat(others(returns), others(released))
	w.start(settings{})
	began := time.Now()
	returns.cut()
	released.cut()
	for _, h := range []*host{returns, released} {
		w.until("all but one are gone", func() bool { return len(others(h)) == 0 })
	}
	t.Logf("all others are gone after %s", time.Since(began).Round(time.Millisecond))
	w.until("the volumes of all others are detached",
		func() bool { return len(w.attachments(returns))+len(w.attachments(released)) == 0 })
	w.untilReplaced(returns,
		slices.DeleteFunc(busy, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "full") }))
	for h, huge := range map[*host]string{returns: huge0, released: huge1} {
		want := "pod " + w.ns + "/" + huge + " cannot be ended (too large for the API server)"
		if got := w.untilEvent("Node", h.Name(), "FenceNeedsPerson"); !strings.Contains(got, want) {
			t.Errorf("Event: got %q, want %q", got, want)
		}
	}

	returns.boot()
	w.untilDone(returns, taint.ResultReturned)
	w.untilEvent("Pod", huge0, "PodLeftBehind")
	out, code := w.forcefence("release", released.Name(), "--yes")
	if code != 0 || !strings.Contains(out, huge1) || strings.Contains(out, full1) {
		t.Errorf("release: exit status %d, %q; want 0, and %s named", code, out, huge1)
	}
	w.untilDone(released, taint.ResultReleased)
	for h, huge := range map[*host]string{returns: huge0, released: huge1} {
		if p := pod(t, w.podsOn(h), huge); p.Status.Phase == corev1.PodFailed || w.marked(h) {
			t.Errorf("%s: got phase %s, marked %v; want it let go, and no mark", huge, p.Status.Phase, w.marked(h))
		}
	}
}
