package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	largePods  = 500
	largeBytes = 1_500_000
	// podMemory is the memory limit of the controller's pod, and goMemory what the program sets itself from it.
	podMemory = 1 << 30
	goMemory  = podMemory / 10 * 9
)

// A user who may create pods in one namespace binds 500 of them to a dead node, each as large as etcd takes it: 0.7 GB.
// The controller stays within the memory limit of its pod, and recovers the node.
func TestLargePodsEndNoController(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 1), w.plain("web", 1))
	before := w.podsOn(h)
	h.cut()
	args := strings.Repeat("x", largeBytes)
	var g errgroup.Group
	g.SetLimit(4)
	for i := range largePods {
		p := w.bare(fmt.Sprintf("large-%d", i), h)
		p.Spec.Containers[0].Args = []string{args}
		g.Go(func() error {
			_, err := w.Client().CoreV1().Pods(w.ns).Create(w.ctx, p, metav1.CreateOptions{})
			return err
		})
	}
	kit.Must(t, g.Wait())
	// With the Lease that forcefence has by default: the writes of such pods keep a small API server busy.
	c := w.start(settings{Mortal: true, Lease: "leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s",
		Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", goMemory)}})
	pid := c.PID()
	w.untilDone(h, taint.ResultEvicted)
	most := memoryPeak(t, pid)
	t.Logf("the controller's memory: at most %d MiB", most>>20)
	if c.PID() != pid || most > podMemory {
		t.Errorf("the controller needed %d MiB, and its pod may have %d", most>>20, podMemory>>20)
	}
	w.untilReplaced(h, before)
}

// memoryPeak returns the most memory that a process ever had resident, in bytes.
func memoryPeak(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	kit.Must(t, err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscanf(after, "%d kB", &bytes)
	kit.Must(t, err)
	return bytes << 10
}
