package controller

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/recovery"
)

// The way to the API server is blocked for longer than the proof holds: nothing is sent, now or later, and nothing counts as tried
// (invariant 1).
func TestWritesDoNotWaitForAConnection(t *testing.T) {
	for _, clears := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			do := recovery.Tombstone
			if x.live.pods = podsOf("n1", "a", "b"); clears {
				x.live.pods, do = endedPods("n1", "a"), recovery.ClearVolumes
				x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/x^1"}
			}
			over, end := context.WithCancel(t.Context()) // the transport dials on, for the next who asks
			defer end()
			rc := &rest.Config{Host: "https://api.example.net", Dial: func(context.Context, string, string) (net.Conn, error) {
				<-over.Done()
				return nil, over.Err()
			}}
			kube.Once(rc)
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
			c, err := client.New(rc, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
			must(t, err)
			x.writer.Client = c
			s := x.upTo(do)
			begun := time.Now()
			o := x.act(t.Context(), x.st, s)
			if took := time.Since(begun); took > 2*time.Second || len(o.How) != 0 || clears && !errors.Is(o.Err, kube.ErrLate) || !clears && o.Err != nil {
				t.Errorf("%s: after %s: noted %v, error %v", do, took, o.How, o.Err)
			}
		})
	}
}

// What a write is decided on holds for as long as it may take until it is sent.
func TestProofOutlivesTheWayToTheServer(t *testing.T) {
	for _, tc := range []struct {
		age  time.Duration
		want int
	}{{4 * time.Second, 0}, {4600 * time.Millisecond, 1}} {
		m := &oneMachine{state: providers.PowerOff}
		x := inMidst(t, m, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a")
		s := x.upTo(recovery.Tombstone)
		at := x.st.course.Answer().At
		m.asked = 0
		x.c.now = at.Add(tc.age).Wall
		if o := x.act(t.Context(), x.st, s); o.Err != nil || m.asked != tc.want {
			t.Errorf("a proof %s old: asked %d times, error %v; want %d", tc.age, m.asked, o.Err, tc.want)
		}
	}
}
