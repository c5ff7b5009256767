//go:build unix

// Package csi runs a CSI driver with a real attach for the end-to-end tests: our driver (test/csi/driver, whose comment
// says how it models a SAN) under the real kubernetes-csi/external-attacher, which test/csi/attacher/go.mod pins. The
// driver's node half runs on the nodes, as DaemonSet describes.
//
//	d, err := csi.Start(ctx, csi.Options{Cluster: c, Store: dir})
//	defer d.Stop()
//	pv, err := csi.NewVolume(ctx, d.Store(), c.Client(), "data-0", 16<<20)
//	d.Violations() // empty, or what a SAN would have suffered
package csi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/csi/store"
)

const (
	module      = "github.com/forcefence/forcefence"
	attacherPkg = "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"
	attacher    = "csi-attacher"
)

// Options of Start. Cluster and Store are needed.
type Options struct {
	Cluster  *cluster.Cluster
	Store    string       // folder of the backing store, which every node must see under the same path
	Binaries string       // folder of the programs that Build made; "": Build
	Logger   *slog.Logger // nil: none
}

// Driver is the running controller half with its attacher.
type Driver struct {
	store      *store.Store
	dir        string
	controller *cluster.Part
	attacher   *cluster.Part
}

// Start registers the driver and its class with the cluster, and starts the controller half and the attacher. ctx
// bounds the start only. Both processes die with this one, and are started again when they end by themselves.
func Start(ctx context.Context, o Options) (_ *Driver, err error) {
	if o.Binaries == "" {
		if o.Binaries, err = Build(ctx); err != nil {
			return nil, err
		}
	}
	d := &Driver{}
	if d.store, err = store.Open(o.Store); err != nil {
		return nil, err
	}
	if err := register(ctx, o.Cluster.Client()); err != nil {
		return nil, err
	}
	if d.dir, err = os.MkdirTemp("", "csi-"); err != nil { // a socket's path has room for 107 bytes
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Stop()
		}
	}()
	kubeconfig := filepath.Join(d.dir, "kubeconfig")
	if err := o.Cluster.WriteKubeconfig(kubeconfig, attacherUser); err != nil {
		return nil, err
	}
	socket := filepath.Join(d.dir, "csi.sock")
	d.controller = cluster.NewPart("csi-controller", filepath.Join(o.Binaries, "driver"), []string{
		"controller", "--endpoint", "unix://" + socket, "--store", d.store.Dir(),
	}, filepath.Join(d.dir, "controller.log"), func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}, o.Logger)
	if err := d.controller.Start(ctx); err != nil {
		return nil, err
	}
	// The attacher asks the driver for its name and abilities before anything else: the log has these calls once it
	// works.
	calls := func(method string) (n int) {
		log, _ := d.store.Log()
		for _, e := range log {
			if e.Kind == store.Call && strings.HasSuffix(e.Method, method) {
				n++
			}
		}
		return n
	}
	const last = "/ControllerGetCapabilities"
	before := calls(last)
	d.attacher = cluster.NewPart(attacher, filepath.Join(o.Binaries, attacher), []string{
		"--kubeconfig=" + kubeconfig, "--csi-address=" + socket, "--kube-api-qps=1000", "--kube-api-burst=1000",
		"--retry-interval-start=100ms", "--retry-interval-max=2s", "--v=4",
	}, filepath.Join(d.dir, "attacher.log"), func(context.Context) error {
		if calls(last) == before {
			return errors.New("it has not asked the driver for its abilities")
		}
		return nil
	}, o.Logger)
	return d, d.attacher.Start(ctx)
}

// Stop ends both processes and waits for them. The store stays. It may be repeated.
func (d *Driver) Stop() {
	for _, p := range []*cluster.Part{d.attacher, d.controller} {
		if p != nil {
			p.Stop()
		}
	}
	_ = os.RemoveAll(d.dir) // logs and a socket in a temporary folder
}

// Store is the backing store.
func (d *Driver) Store() *store.Store { return d.store }

// Controller is the controller half's process: kill it, pause it.
func (d *Driver) Controller() *cluster.Part { return d.controller }

// Attacher is the external-attacher's process.
func (d *Driver) Attacher() *cluster.Part { return d.attacher }

// Log is everything that happened to the volumes so far.
func (d *Driver) Log() ([]store.Event, error) { return d.store.Log() }

// Violations are those of the log; a log that cannot be read is one.
func (d *Driver) Violations() []string {
	log, err := d.store.Log()
	out := store.Violations(log)
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

// PowerCut tells the log that a boot of a node is over. Call it once the last process of the node has ended, not
// before.
func (d *Driver) PowerCut(node, boot string) error {
	return d.store.Append(store.Event{Kind: store.Off, Node: node, Boot: boot})
}

// Build returns a folder of the user's cache with the driver (static: it goes into the node half's image as it is) and
// the attacher. The go command knows what is up to date; with an empty cache the attacher alone takes it some 280 s of
// processor time.
func Build(ctx context.Context) (string, error) {
	_, file, _, ok := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	if !ok || !filepath.IsAbs(file) { // built with -trimpath
		out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
		if err != nil {
			return "", fmt.Errorf("asking go for the current module: %w", err)
		}
		root = filepath.Dir(string(bytes.TrimSpace(out)))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if cache = filepath.Join(cache, "forcefence", "csi"); os.MkdirAll(cache, 0o755) != nil {
		return "", fmt.Errorf("making %s", cache)
	}
	dir, err := os.MkdirTemp(cache, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, b := range []struct{ name, dir, pkg string }{
		{"driver", root, module + "/test/csi/driver"},
		{attacher, filepath.Join(root, "test", "csi", "attacher"), attacherPkg},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
			"-o", filepath.Join(dir, b.name), b.pkg)
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", b.name, err, out)
		}
		// A rename, file by file: a process that runs the old one keeps it.
		if err := os.Rename(filepath.Join(dir, b.name), filepath.Join(cache, b.name)); err != nil {
			return "", err
		}
	}
	return cache, nil
}
