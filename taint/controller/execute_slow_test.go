package controller

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// A device whose answers are almost too old when they arrive recovers its node, and each pod is written while its proof
// holds (invariant 1).
func TestPodWritesBehindASlowDevice(t *testing.T) {
	for _, tc := range []struct{ takes, read time.Duration }{
		{4700 * time.Millisecond, 0},
		{4700 * time.Millisecond, 60 * time.Millisecond}, // one look takes longer than the proof lasts
		{4900 * time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("answers after %s, reads take %s", tc.takes, tc.read), func(t *testing.T) {
			w := newWorld(t)
			w.mode = fence.Observe
			w.machines["n1"].takes = tc.takes
			w.r.Live = liveReads{w.api, func(any, string) error {
				w.pass(tc.read)
				return nil
			}}
			var writes atomic.Int32 // several workers write
			w.fail = func(o client.Object, _ string) error {
				if strings.HasSuffix(o.GetName(), "-n1") { // a pod's
					writes.Add(1)
					if age := w.Now().Sub(w.machines["n1"].lastAsked()); age > proof.TTL {
						t.Errorf("pod %s is written %s after the device was asked", o.GetName(), age)
					}
				}
				return nil
			}
			w.cut("n1")
			w.until(3*time.Minute, func() bool { return w.record("n1").Result == taint.ResultEvicted })
			if r := w.record("n1"); r.Result != taint.ResultEvicted || writes.Load() < 2 {
				t.Errorf("after three minutes: phase %s, result %q, %d pod writes", r.Phase, r.Result, writes.Load())
			}
		})
	}
}
