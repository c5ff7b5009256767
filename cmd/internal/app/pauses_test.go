package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/kit"
)

// A pause counts while it is in force, by whether it ends within a day. What cannot be read stays as it was.
func TestPauseGauge(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	until := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	node := func(name, pause string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{fence.PausedAnnotation: pause}}}
	}
	labelled := func(name, label string) *corev1.Node {
		set, err := labels.ConvertSelectorToLabelsMap(label)
		kit.Must(t, err)
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
	}
	excluded := "forcefence.io/exclude"
	key := client.ObjectKey{Namespace: "ff", Name: "forcefence-pause"}
	all := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data: map[string]string{"reason": "new switches"}}
	unreadable := false
	c := fake.NewClientBuilder().WithObjects(all, node("n1", "disks; until="+until(time.Hour)),
		node("n2", "disks; until="+until(-time.Hour)), node("n3", "disks; until="+until(25*time.Hour)), node("n4", "disks"),
		node("n5", "disks; until=tomorrow"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n6"}},
		labelled("n7", "forcefence.io/exclude=repair"), labelled("n8", "remediation.medik8s.io/exclude-from-remediation=true"),
		labelled("n9", "remediation.medik8s.io/exclude-from-remediation=false"), labelled("n10", "pool=cattle")).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if unreadable {
				return errors.New("no quorum")
			}
			return c.Get(ctx, key, o, opts...)
		}}).Build()
	g := newPauseGauge(c, c, key, func() labels.Selector {
		selector, err := labels.Parse(excluded)
		kit.Must(t, err)
		return selector
	}, slog.New(slog.DiscardHandler), func() time.Time { return now }, prometheus.NewRegistry())
	expect := func(when, of, ends string, want float64) {
		t.Helper()
		if got := testutil.ToFloat64(g.pauses.WithLabelValues(of, ends)); got != want {
			t.Errorf("%s: got %v pauses of %s that end %s, want %v", when, got, of, ends, want)
		}
	}
	expect("at first", "cluster", "later", 0)
	g.read(t.Context())
	expect("without an end", "cluster", "later", 1)
	expect("with an end", "node", "within_a_day", 1)
	expect("with an end after a day, without one, and one that is no time", "node", "later", 3)
	expect("whose end has passed", "node", "over", 1)
	expect("the two labels that people set on single nodes", "label", "later", 2)
	excluded = "pool=cattle"
	g.read(t.Context())
	expect("a selector of its author's own", "label", "later", 1)
	unreadable = true
	g.read(t.Context())
	expect("unreadable", "cluster", "later", 1)
	unreadable = false
	kit.Must(t, c.Delete(t.Context(), all))
	g.read(t.Context())
	expect("resumed", "cluster", "later", 0)
	now = now.Add(2 * time.Hour)
	g.read(t.Context())
	expect("one has ended, another ends within a day now", "node", "within_a_day", 1)
	expect("neither has an end", "node", "later", 2)
	expect("two have ended", "node", "over", 2)
}

// A pause whose end had passed when it was written is named, because it pauses nothing. One that has ended since is not.
func TestReadPause(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		written, until   time.Duration // before now
		paused, pastFrom bool
	}{
		"in force":                  {written: time.Hour, until: -time.Hour, paused: true},
		"ended since":               {written: 2 * time.Hour, until: time.Hour},
		"written after its own end": {written: time.Hour, until: 2 * time.Hour, pastFrom: true},
	} {
		key := PauseKey("ff")
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
				CreationTimestamp: metav1.NewTime(now.Add(-tc.written))},
			Data: map[string]string{"until": now.Add(-tc.until).Format(time.RFC3339)}}
		var got view.Cluster
		kit.Must(t, ReadPause(t.Context(), fake.NewClientBuilder().WithObjects(cm).Build(), &got, "ff", now))
		if (got.Paused != "") != tc.paused || (got.NeverPaused != "") != tc.pastFrom {
			t.Errorf("%s: got %+v", name, got)
		}
		banners := got.Banners(now)
		if named := len(banners) == 1; named != (tc.paused || tc.pastFrom) {
			t.Errorf("%s: got %+v", name, banners)
		}
	}
}
