//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// PauseImage is what containerd runs first in every pod.
const PauseImage = "forcefence.test/pause:1"

const (
	folderPrefix = "forcefence-nodes-" // of a lab's folder and cgroups; the process's id follows
	maxNodes     = 200
)

// Options of Start. Only Cluster is needed.
type Options struct {
	Cluster *cluster.Cluster
	Dir     string   // holds the nodes' disks and logs, and stays; "": a temporary one that Stop removes
	Images  []string // OCI tars that each node imports at its first boot, see WriteImage

	// Shared are folders that every node has in common, as from a storage system: path inside to folder on the machine.
	Shared map[string]string

	Progress io.Writer // of a build; nil: os.Stderr
	Logger   *slog.Logger
}

// Lab is a network with nodes on it. It is safe for concurrent use.
type Lab struct {
	opts    Options
	log     *slog.Logger
	dir     string
	id      string // in the names of cgroups
	bin     map[string]string
	init    string
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

// Start builds what nodes run, if it is not in the cache (containerd takes two minutes on two cores), and makes their
// network. ctx bounds the start only: call Stop in the end.
func Start(ctx context.Context, opts Options) (_ *Lab, err error) {
	if why := Missing(); why != "" {
		return nil, fmt.Errorf("start lab: %s", why)
	}
	sweep()
	l := &Lab{opts: opts, log: opts.Logger, dir: opts.Dir, nodes: map[string]*Node{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start lab: %w", err), l.Stop())
		}
	}()
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", folderPrefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
			return nil, err
		}
	} else if err = os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	if l.dir, err = filepath.Abs(l.dir); err != nil {
		return nil, err
	}
	if err = os.Chmod(l.dir, 0o755); err != nil {
		return nil, err
	}
	l.id = folderPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(labs.Add(1)), 10)
	if l.overlay, err = holdsOverlay(l.dir); err != nil {
		return nil, err
	}
	if err = l.programs(ctx); err != nil {
		return nil, err
	}
	if l.net, err = newLAN(strings.TrimPrefix(opts.Cluster.URL(), "https://"), l.log); err != nil {
		return nil, err
	}
	return l, nil
}

// programs gathers what the nodes run.
func (l *Lab) programs(ctx context.Context) (err error) {
	if l.bin, err = Build(ctx, l.opts.Progress); err != nil {
		return err
	}
	if l.spec, err = containerSpec(ctx, l.bin[binaries.Ctr]); err != nil {
		return err
	}
	own := filepath.Join(l.dir, "bin")
	if l.init, err = BuildProgram(ctx, own, "test/nodes/init"); err != nil {
		return err
	}
	pause, err := BuildProgram(ctx, own, "test/nodes/pause")
	if err != nil {
		return err
	}
	tar := filepath.Join(own, "pause.tar")
	l.images = append([]string{tar}, l.opts.Images...)
	return WriteImage(tar, PauseImage, pause)
}

// Dir holds the nodes' disks and logs.
func (l *Lab) Dir() string { return l.dir }

// Server is the API server's address as nodes see it. Its certificate is for the name ServerName.
func (l *Lab) Server() string { return "https://" + relayAddress }

// ServerName is what a client in a node must ask the API server's certificate for.
const ServerName = "localhost"

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

// Node returns the node of that name, or nil.
func (l *Lab) Node(name string) *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[name]
}

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

// Import imports an OCI tar on every node that is on, and on every node that is added later.
func (l *Lab) Import(ctx context.Context, tar string) error {
	l.mu.Lock()
	l.images = append(l.images, tar)
	l.mu.Unlock()
	for _, n := range l.Nodes() {
		if err := n.Import(ctx, tar); err != nil {
			return err
		}
	}
	return nil
}

// Stop cuts every node's power, and removes their cgroups, the network and a temporary folder. The Node objects stay.
// It may be repeated, and returns what could not be removed.
func (l *Lab) Stop() error {
	l.stopOnce.Do(func() {
		var errs []error
		for _, n := range l.Nodes() {
			n.retire()
			errs = append(errs, removeCgroups(n.cgroup))
		}
		if l.net != nil {
			l.net.close()
		}
		if l.opts.Dir == "" && l.dir != "" {
			errs = append(errs, os.RemoveAll(l.dir))
		}
		l.stopErr = errors.Join(errs...)
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
