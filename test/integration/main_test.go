package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/test/cluster"
)

// clusters is how many stories are played at the same time. They wait for most of their time, so it may be more than
// the cores.
const clusters = 4

// binary is the forcefence under test; "" under -short.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	flag.Parse()
	chosen := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { chosen[f.Name] = true })
	for name, value := range map[string]string{
		"test.parallel": fmt.Sprint(clusters), "test.run": os.Getenv("STORIES"),
	} {
		if !chosen[name] {
			_ = flag.Set(name, value) // a flag that testing always has
		}
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
	args := []string{"build", "-tags", "grpcnotrace", "-o", out}
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
