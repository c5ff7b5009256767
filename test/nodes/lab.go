//go:build linux

package nodes

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// PauseImage is what containerd runs first in every pod.
const PauseImage = "forcefence.test/pause:1"

// Require is set to 1 where a missing condition must fail the tests instead of skipping them.
const Require = cluster.RequireNodes

const (
	folderPrefix = "forcefence-nodes-" // of a lab's folder and cgroups; the process's id follows
	maxNodes     = 200
)

// Need skips a test where real nodes cannot run, loudly, and under -short. Else it sees to it that what they run is
// built: containerd alone takes two minutes on two cores. Ask it before starting a control plane for nodes.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real nodes")
	}
	kit.Need(t, Missing(), Require)
	programFiles(t)
}

// programFiles are what nodes run, by name. They are built if they are not in the cache.
func programFiles(t testing.TB) map[string]string {
	t.Helper()
	groups, err := binaries.Groups(
		slices.Concat(binaries.Runtime, binaries.CNI, []string{binaries.Runc, binaries.Kubelet}))
	kit.Must(t, err)
	files := map[string]string{}
	for _, group := range groups {
		dir, err := binaries.Build(t.Context(), binaries.Options{Names: group})
		kit.Must(t, err)
		for _, name := range group {
			files[name] = filepath.Join(dir, name)
		}
	}
	return files
}

// Options of a lab. Only Cluster is needed.
type Options struct {
	Cluster *cluster.Cluster
	Images  []string // tars that each node imports at its first boot, see Image

	// Shared are folders that every node has in common, as from a storage system: path inside to folder on the machine.
	Shared map[string]string
}

// Lab is a network with nodes on it. It is safe for concurrent use.
type Lab struct {
	opts    Options
	dir     string                 // the nodes' disks and logs
	id      string                 // in the names of cgroups
	own     *datacenter.DataCenter // of machines that belong to this lab alone
	bin     map[string]string
	images  []string
	spec    []byte // the base of containers'
	overlay bool   // the disks can hold overlayfs' upper layers
	net     *lan

	mu    sync.Mutex // guards the rest
	nodes map[string]*Node
	count int // of nodes ever added

	stopOnce sync.Once
	stopErr  error
}

// ForTest starts a lab that ends with the test, and fails it if anything is left of the lab. The test is skipped where
// real nodes cannot run.
func ForTest(t testing.TB, opts Options) *Lab {
	t.Helper()
	Need(t)
	sweep()
	me := folderPrefix + strconv.Itoa(os.Getpid()) + "-"
	l := &Lab{opts: opts, nodes: map[string]*Node{}, own: datacenter.New(datacenter.Options{}), bin: programFiles(t),
		id: me + strconv.FormatUint(uint64(labs.Add(1)), 10)}
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			l.explain(t)
		}
	})
	var err error
	l.dir, err = os.MkdirTemp("", me)
	kit.Must(t, err)
	kit.Must(t, os.Chmod(l.dir, 0o755))
	l.overlay, err = holdsOverlay(l.dir)
	kit.Must(t, err)
	l.spec, err = containerSpec(t.Context(), l.bin[binaries.Ctr])
	kit.Must(t, err)
	l.images = append([]string{Image(t, PauseImage, kit.BuildProgram(t, "test/nodes/pause"))}, opts.Images...)
	l.net, err = newLAN(strings.TrimPrefix(opts.Cluster.URL(), "https://"))
	kit.Must(t, err)
	return l
}

// explain prints what a person would look at.
func (l *Lab) explain(t testing.TB) {
	t.Helper()
	for _, what := range []string{"pods --output=wide", "events --sort-by=.lastTimestamp"} {
		args := append([]string{"get", "--all-namespaces"}, strings.Fields(what)...)
		out, err := l.opts.Cluster.Kubectl(context.Background(), args...)
		t.Logf("%s: %v\n%s", what, err, out[max(0, len(out)-8000):])
	}
	for _, n := range l.Nodes() {
		t.Log(n.logs())
	}
}

// Expose lets nodes and pods reach a TCP address of this machine's loopback, such as a BMC's, by the address that it
// returns.
func (l *Lab) Expose(target string) (string, error) {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(Gateway, port)
	return address, l.net.relay(address, target)
}

// Dial connects to a TCP address of a node or a pod, from this machine.
func (l *Lab) Dial(address string) (net.Conn, error) { return l.net.dial(address) }

// Gateway is the address by which nodes and pods see what Expose shows them.
const Gateway = "10.250.0.1"

// Nodes are all nodes, by name.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*Node
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		out = append(out, l.nodes[name])
	}
	return out
}

// stop cuts every node's power, and removes their cgroups, the network and the folder. The Node objects stay. It may be
// repeated, and returns what could not be removed.
func (l *Lab) stop() error {
	l.stopOnce.Do(func() {
		var errs []error
		for _, n := range l.Nodes() {
			n.retire()
			errs = append(errs, removeCgroups(n.cgroup))
		}
		if l.net != nil {
			l.net.close()
		}
		l.stopErr = errors.Join(append(errs, l.own.Close(), os.RemoveAll(l.dir))...)
	})
	return l.stopErr
}

// sweep removes what labs of processes that died have left: folders and empty cgroups. Their namespaces died with them.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*")) // the pattern is well formed
	for _, dir := range dirs {
		if orphaned(dir) {
			_ = os.RemoveAll(dir) // best effort: what is left does no harm
		}
	}
	for _, h := range hierarchies() {
		dirs, _ := filepath.Glob(filepath.Join(h, folderPrefix+"*"))
		for _, dir := range dirs {
			if orphaned(dir) {
				removeTree(dir)
			}
		}
	}
}

func orphaned(path string) bool {
	pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), folderPrefix), "-")
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	_, err := os.Stat("/proc/" + pid)
	return errors.Is(err, os.ErrNotExist)
}
