package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/test/cluster"
)

// stage is where six stories are played at the same time. They wait for most of their time, so it may be more than the
// cores; each takes a GB of memory.
var stage = newQueue(6)

// longest are the stories that take longest. They begin first, in this order: one that began last would end alone.
var longest = []string{"TestLonghornNodeDown", "TestRestoredEtcdOnServer", "TestPoweredOnAfterItsFence",
	"TestSlowAPIServer", "TestStorageOS", "TestLonghornDrain", "TestFencingRecord"}

// rank is a story's place among the longest; all others come behind them.
func rank(name string) int {
	if i := slices.Index(longest, name); i >= 0 {
		return i
	}
	return len(longest)
}

// queue lets so many tests run at a time. Go's own limit knows no order.
type queue struct {
	mu      sync.Mutex // guards the rest
	changed *sync.Cond
	free    int
	waiting []string
}

func newQueue(free int) *queue {
	q := &queue{free: free}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// register is called before any test of the queue runs: before t.Parallel.
func (q *queue) register(t *testing.T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, t.Name())
	slices.SortStableFunc(q.waiting, func(a, b string) int { return rank(a) - rank(b) })
}

// enter waits for the test's turn. The place is free again at the test's end.
func (q *queue) enter(t *testing.T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.free == 0 || q.waiting[0] != t.Name() {
		q.changed.Wait()
	}
	q.waiting, q.free = q.waiting[1:], q.free-1
	q.changed.Broadcast()
	begun := time.Now()
	t.Cleanup(func() {
		t.Logf("played %s", time.Since(begun).Round(time.Second)) // Go's own figure has the time before its turn, too
		q.mu.Lock()
		defer q.mu.Unlock()
		q.free++
		q.changed.Broadcast()
	})
}

// binary is the forcefence under test; "" under -short.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	flag.Parse()
	_ = flag.Set("test.parallel", "1000") // a flag that testing always has: stage has the limit
	if f := flag.Lookup("test.run"); f.Value.String() == "" {
		stories := os.Getenv("STORIES")
		if others, ok := strings.CutPrefix(stories, "-"); ok {
			stories = ""
			_ = flag.Set("test.skip", others)
		}
		_ = f.Value.Set(stories)
	}
	if !testing.Short() {
		dir, err := os.MkdirTemp("", "forcefence-integration-")
		if err == nil {
			defer os.RemoveAll(dir)
			binary = filepath.Join(dir, "forcefence")
			err = build(binary, "")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	defer spare.stop()
	return cluster.Main(m, options, func(c *cluster.Cluster) {
		if c != nil {
			spare.idle = append(spare.idle, c)
		}
	})
}

// build makes the program from the source in a folder; "" is this one.
func build(out, source string) error {
	args := []string{"build", "-buildvcs=false", "-o", out}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/forcefence/forcefence/cmd/forcefence")...)
	cmd.Dir = source
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building forcefence: %w\n%s", err, said)
	}
	return nil
}

var options = cluster.Options{NodeGrace: cluster.FastNodeGrace}

// shed keeps the clusters between tests: the first is cluster.Main's, the others are started when they are needed.
type shed struct {
	mu    sync.Mutex // guards the rest
	idle  []*cluster.Cluster
	added []*cluster.Cluster
}

var spare shed

// get lends a cluster to a test, which has it to itself until its end.
func (s *shed) get(t *testing.T) *cluster.Cluster {
	t.Helper()
	if binary == "" {
		t.Skip("needs a control plane")
	}
	s.mu.Lock()
	defer s.mu.Unlock() // held while starting: clusters that start together take as long as one after the other
	var c *cluster.Cluster
	if n := len(s.idle); n > 0 {
		c, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if c, err = cluster.Start(ctx, options); err != nil {
			t.Fatal(err)
		}
		s.added = append(s.added, c)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle = append(s.idle, c)
	})
	return c
}

func (s *shed) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.added {
		c.Stop()
	}
}
