// Package binaries builds a real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
// and, if asked for, the kubelet) from the Go modules that test/controlplane/go.mod pins. It needs the go command and a module
// proxy, and nothing else: no images, no downloads of binaries.
//
// It promises that a folder it returns is complete and was built from exactly these go.mod and go.sum, Go version, flags and
// names: the folder's name is their hash, and it appears by one rename.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// What can be built, by the name of its file.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kubelet           = "kubelet"
)

// ControlPlane is what test/cluster starts, and what Build builds if no names are given.
var ControlPlane = []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl}

// The Go package of each name. A package's last element is the file's name, except etcd's.
var packages = map[string]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
	Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
	Kubelet:           "k8s.io/kubernetes/cmd/kubelet",
}

// etcdFile is what the go command names etcd's binary: the element before the major version.
const etcdFile = "server"

// Options of Build. The zero value builds ControlPlane into the user's cache and reports to standard error.
type Options struct {
	Names    []string  // nil: ControlPlane
	Module   string    // folder of the go.mod to build from; "": test/controlplane of this repository
	Cache    string    // "": forcefence/controlplane under os.UserCacheDir
	Progress io.Writer // nil: os.Stderr; a terminal gets one line that is rewritten, anything else a line every 15 s
}

// Build returns the folder that holds the binaries. If they are in the cache it returns at once; else it builds them, which takes
// about 6 minutes on two cores with an empty Go cache and a minute at most with a warm one. Two processes never build at once:
// the second waits and finds the first one's. It may be repeated, and ends early with ctx.
func Build(ctx context.Context, opts Options) (string, error) {
	names := slices.Clone(opts.Names)
	if len(names) == 0 {
		names = slices.Clone(ControlPlane)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if packages[name] == "" {
			return "", fmt.Errorf("building control plane: unknown binary %q", name)
		}
	}
	module, cache := opts.Module, opts.Cache
	var err error
	if module == "" {
		if module, err = moduleDir(ctx); err != nil {
			return "", fmt.Errorf("finding test/controlplane: %w", err)
		}
	}
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding user cache: %w", err)
		}
		cache = filepath.Join(user, "forcefence", "controlplane")
	}
	r, err := newRecipe(ctx, module, names)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", module, err)
	}
	dir := filepath.Join(cache, r.hash())
	if complete(dir, names) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making build cache: %w", err)
	}
	out := opts.Progress
	if out == nil {
		out = os.Stderr
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"), out)
	if err != nil {
		return "", fmt.Errorf("locking build cache: %w", err)
	}
	defer unlock()
	if complete(dir, names) { // built while we waited
		return dir, nil
	}
	if err := r.build(ctx, dir, out); err != nil {
		return "", fmt.Errorf("building control plane %s: %w", r.version, err)
	}
	return dir, nil
}

// recipe is everything that decides what the binaries are.
type recipe struct {
	module  string
	names   []string
	version string // Kubernetes', with its v
	goVers  string
	mod     []byte // go.mod and go.sum
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\S+)`)

func newRecipe(ctx context.Context, module string, names []string) (*recipe, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, err
	}
	m := kubernetesVersion.FindSubmatch(mod)
	if m == nil {
		return nil, errors.New("go.mod requires no k8s.io/kubernetes")
	}
	goVers, err := goCommand(ctx, module, "env", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its version: %w", err)
	}
	return &recipe{
		module: module, names: names, version: string(m[1]), goVers: strings.TrimSpace(string(goVers)),
		mod: slices.Concat(mod, []byte{0}, sum),
	}, nil
}

func (r *recipe) flags() []string {
	return []string{
		"-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + r.version,
	}
}

func (r *recipe) hash() string {
	h := sha256.New()
	h.Write(r.mod)
	for _, s := range slices.Concat([]string{r.goVers, runtime.GOOS, runtime.GOARCH, "CGO_ENABLED=0"}, r.flags(), r.names) {
		fmt.Fprintf(h, "\x00%s", s)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func (r *recipe) build(ctx context.Context, dir string, out io.Writer) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // gone after the rename
	args := append([]string{"build", "-v", "-o", tmp + string(filepath.Separator)}, r.flags()...)
	for _, name := range r.names {
		args = append(args, packages[name])
	}
	cmd := goCommand(ctx, r.module, args...)
	p := newProgress(out, "building control plane "+r.version)
	cmd.Stdout, cmd.Stderr = p, p
	err = cmd.Run()
	p.done(err)
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, p.tail())
	}
	if slices.Contains(r.names, Etcd) {
		if err := os.Rename(filepath.Join(tmp, etcdFile), filepath.Join(tmp, Etcd)); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete: somebody took a file away
		return err
	}
	return os.Rename(tmp, dir)
}

// goCommand runs the go command in the module, without the caller's flags or workspace: they would change what is built.
func goCommand(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go end its compilers
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// moduleDir finds test/controlplane beside this file, or under the current module where the build trimmed paths.
func moduleDir(ctx context.Context) (string, error) {
	rel := filepath.Join("test", "controlplane")
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dir := filepath.Join(filepath.Dir(file), "..", "..", "..", rel)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for the current module: %w", err)
	}
	dir := filepath.Join(filepath.Dir(string(bytes.TrimSpace(mod))), rel)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", err
	}
	return dir, nil
}

func complete(dir string, names []string) bool {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
