package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// ForTest starts a cluster that ends with the test. Under -short it skips the test.
func ForTest(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// RequireNodes is the variable that, set to 1, has tests build and run what they leave out elsewhere: real nodes, a
// real containerd.
const RequireNodes = "FORCEFENCE_REQUIRE_NODES"

// Containerd is a real containerd's program, linked statically. It takes two minutes to build, so the test is skipped
// unless RequireNodes is set.
func Containerd(t testing.TB) string {
	t.Helper()
	return buildRuntime(t, binaries.Containerd, binaries.Runtime)
}

// ContainerdOf is Containerd of another version, by its name in binaries, with its shim beside it.
func ContainerdOf(t testing.TB, name string) string {
	t.Helper()
	return buildRuntime(t, name, []string{name, binaries.ShimOf(name)})
}

// CRIO is a real CRI-O's program, and is skipped as Containerd is.
func CRIO(t testing.TB) string {
	t.Helper()
	return buildRuntime(t, binaries.CRIO, []string{binaries.CRIO})
}

func buildRuntime(t testing.TB, name string, names []string) string {
	t.Helper()
	if os.Getenv(RequireNodes) != "1" {
		t.Skipf("SKIPPED: builds a runtime where %s=1", RequireNodes)
	}
	dir, err := binaries.Build(t.Context(), binaries.Options{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Main is a TestMain's body: one cluster for all tests of a package, which keep apart by names of nodes and namespaces.
// share gets the cluster before any test runs, or nil under -short. It returns the exit code, after everything has
// stopped; on Ctrl-C as well.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m, opts, func(c *cluster.Cluster) { shared = c })) }
func Main(m *testing.M, opts Options, share func(*Cluster)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flag.Parse() // testing.Short wants it; m.Run would do it too late
	if testing.Short() {
		share(nil)
		return m.Run()
	}
	c, err := Start(ctx, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	share(c)
	code := make(chan int, 1)
	go func() { code <- m.Run() }()
	defer c.Stop()
	select {
	case n := <-code:
		return n
	case <-ctx.Done():
		return 1
	}
}

// MainStore is Main with a control plane whose controller-manager and scheduler are stopped: nothing but a test changes
// an object.
func MainStore(m *testing.M, share func(*Cluster)) int {
	klog.SetLogger(logr.Discard())
	return Main(m, Options{}, func(c *Cluster) {
		if c != nil {
			c.ControllerManager().Stop()
			c.Scheduler().Stop()
		}
		share(c)
	})
}

// Admin is an administrator's client of the cluster that Main shared. It skips the test where there is none.
func Admin(t testing.TB, c *Cluster) client.Client {
	t.Helper()
	if c == nil {
		t.Skip("needs a control plane")
	}
	admin, err := client.New(c.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}
