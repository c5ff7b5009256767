package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/room"
)

// An estimator over two nodes. Both have the same label, and a pod of a ReplicaSet runs on n1, which no other node
// admits. list is called before each list of the API server.
func newTestEstimator(list func() error) *roomEstimator {
	var objects []client.Object
	for _, name := range []string{"n1", "n2"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of",
			Controller: new(true)}}}}
	pod.Spec.NodeName = "n1"
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(append(objects, pod)...).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
			l client.ObjectList, o ...client.ListOption) error {
			if err := list(); err != nil {
				return err
			}
			if _, pods := l.(*corev1.PodList); pods {
				o = nil // the fake knows no selector of fields that differ
			}
			return c.List(ctx, l, o...)
		}}).Build()
	return newRoomEstimator(c, taint.DefaultKey, func() *fleet.Limits { return nil },
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// An estimate sets the metrics, and is published. One that fails leaves both as they were.
func TestRoomEstimate(t *testing.T) {
	var fails error
	r := newTestEstimator(func() error { return fails })
	lease := map[string]string{}
	if r.annotateLease(lease); len(lease) > 0 {
		t.Errorf("got %v before an estimate", lease)
	}
	for _, fails = range []error{nil, errors.New("no answer")} {
		if _, err := r.estimate(t.Context()); !errors.Is(err, fails) {
			t.Fatalf("got %v, want %v", err, fails)
		}
		r.annotateLease(lease)
		s := parseRoom(lease[RoomAnnotation])
		if s == nil || s.Word("n1", time.Now()) != "1 pod" || s.Word("n2", time.Now()) != "ok" {
			t.Errorf("after %v: got %+v", fails, s)
		}
		for _, m := range []struct {
			c    prometheus.Collector
			want float64
		}{
			{r.failures.WithLabelValues("node", "lacks"), 1}, {r.failures.WithLabelValues("node", "fits"), 1},
			{r.pods.WithLabelValues("node"), 1}, {r.failures.WithLabelValues("domain", "lacks"), 0},
			{r.at, float64(s.At.Unix())},
		} {
			if got := testutil.ToFloat64(m.c); got != m.want {
				t.Errorf("after %v: got %v, want %v", fails, got, m.want)
			}
		}
	}
}

// A summary that another writer left in the Lease is read with care.
func TestParseRoom(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "{": false, "{}": false, `{"at":"2026-03-01T12:00:00Z"}`: true,
		`{"at":"2026-03-01T12:00:00Z","more":true` + strings.Repeat(" ", maxRoomBytes) + "}": false,
	} {
		s := parseRoom(text)
		if (s != nil) != want {
			t.Errorf("%.60q: got %+v", text, s)
		}
		if s != nil {
			s.Describe()
			_ = s.Worst[room.Node].Verdict()
		}
	}
}

// The estimator rests 100 times as long as it worked, and at least a minute.
func TestRoomShare(t *testing.T) {
	for _, tt := range []struct{ list, want time.Duration }{
		{0, time.Minute}, {2 * time.Second, 100 * 6 * 2 * time.Second}, // six lists
	} {
		synctest.Test(t, func(t *testing.T) {
			lists := 0
			var ends time.Time
			r := newTestEstimator(func() error {
				time.Sleep(tt.list)
				if lists++; lists == 7 {
					if rest := time.Since(ends) - tt.list; rest != tt.want {
						t.Errorf("rested for %v, want %v", rest, tt.want)
					}
				}
				ends = time.Now()
				return nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := r.Start(ctx); err != nil || lists < 7 {
				t.Errorf("got %v after %d lists", err, lists)
			}
		})
	}
}
