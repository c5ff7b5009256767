// Package binaries builds the real programs that tests run, from the Go modules of this repository that pin them: a
// Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl), the kubelet,
// containerd, runc, CNI plugins, the CSI attacher, Helm, OLM, and the controllers of test/interop. It needs the go
// command and a module proxy (for runc a C compiler and libseccomp as well), and nothing else: no images, no downloads
// of binaries. recipes.go lists what can be built.
//
// It promises that a folder it returns is complete and was built from exactly these go.mod, go.sum and sources, Go
// version, flags and names: the folder's name is their hash, and it appears by one rename.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Variables of the environment that choose another control plane.
const (
	// Folder names one with programs that are there: nothing is built of them.
	Folder = "CONTROLPLANE"
	// Minor is a Kubernetes version with a folder of its own in test/controlplane, such as 1.35.
	Minor = "KUBERNETES"
)

// Options of Build. The zero value builds ControlPlane into the user's cache and reports to standard error.
type Options struct {
	Names    []string  // nil: ControlPlane; all of one recipe, see Groups
	Module   string    // folder of the go.mod to build from; "": the recipe's, of this repository
	Cache    string    // "": the recipe's, in folder forcefence under os.UserCacheDir
	Progress io.Writer // nil: os.Stderr; a terminal gets one line that is rewritten, anything else a line every 15 s
}

// Build returns the folder that holds the binaries. If they are in the cache it returns at once; else it builds them,
// which for the control plane takes about 6 minutes on two cores with an empty Go cache and a minute at most with a
// warm one. Two processes never build the same at once: the second waits and finds the first one's. It may be repeated,
// and ends early with ctx.
func Build(ctx context.Context, opts Options) (string, error) {
	names := slices.Clone(opts.Names)
	if len(names) == 0 {
		names = slices.Clone(ControlPlane)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	kind, err := kindOf(names)
	if err != nil {
		return "", err
	}
	module, cache := opts.Module, opts.Cache
	if module == "" {
		there := kind.module
		if kind.what == controlPlane {
			if dir := os.Getenv(Folder); dir != "" {
				if !complete(dir, names) {
					return "",
						fmt.Errorf("%s: folder %s does not have all of %s", Folder, dir, strings.Join(names, ", "))
				}
				return dir, nil
			}
			there = path.Join(there, os.Getenv(Minor))
		}
		if module, err = moduleDir(ctx, there); err != nil {
			return "", fmt.Errorf("finding %s: %w", there, err)
		}
	}
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding user cache: %w", err)
		}
		cache = filepath.Join(user, "forcefence", kind.cache)
	}
	r, err := newRecipe(ctx, kind, module, names)
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
	unlock, err := lock(ctx, filepath.Join(cache, "lock"), kind.what, out)
	if err != nil {
		return "", fmt.Errorf("locking build cache: %w", err)
	}
	defer unlock()
	if complete(dir, names) { // built while we waited
		return dir, nil
	}
	if err := r.build(ctx, dir, out); err != nil {
		return "", fmt.Errorf("building %s %s: %w", kind.what, r.version, err)
	}
	return dir, nil
}

// Version is that of a program's project, with its v, as the go.mod in this repository pins it.
func Version(ctx context.Context, name string) (string, error) {
	kind, err := kindOf([]string{name})
	if err != nil {
		return "", err
	}
	module, err := moduleDir(ctx, kind.module)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", kind.module, err)
	}
	r, err := newRecipe(ctx, kind, module, []string{name})
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", module, err)
	}
	return r.version, nil
}

// recipe is everything that decides what the binaries are.
type recipe struct {
	kind    *kind
	module  string
	names   []string
	version string // of kind.version, with its v
	goVers  string
	mod     []byte // go.mod and go.sum, and the module's own source
}

func newRecipe(ctx context.Context, kind *kind, module string, names []string) (*recipe, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, err
	}
	required := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(kind.version) + ` (v\S+)`)
	m := required.FindSubmatch(mod)
	if m == nil {
		return nil, fmt.Errorf("go.mod requires no %s", kind.version)
	}
	goVers, err := goCommand(ctx, module, "env", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its version: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return nil, err
	}
	all := slices.Concat(mod, []byte{0}, sum)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = slices.Concat(all, []byte{0}, text)
	}
	return &recipe{kind: kind, module: module, names: names, version: string(m[1]),
		goVers: strings.TrimSpace(string(goVers)), mod: all}, nil
}

func (r *recipe) flags() []string {
	flags := []string{"-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w" + strings.ReplaceAll(r.kind.ldflags, "VERSION", r.version)}
	if r.kind.tags != "" {
		flags = append(flags, "-tags", r.kind.tags)
	}
	return flags
}

func (r *recipe) cgo() string {
	if r.kind.cgo {
		return "CGO_ENABLED=1"
	}
	return "CGO_ENABLED=0"
}

func (r *recipe) hash() string {
	h := sha256.New()
	h.Write(r.mod)
	for _, s := range slices.Concat([]string{r.goVers, runtime.GOOS, runtime.GOARCH, r.cgo()}, r.flags(), r.names) {
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
		args = append(args, r.kind.packages[name])
	}
	cmd := goCommand(ctx, r.module, args...)
	cmd.Env = append(cmd.Env, r.cgo())
	p := newProgress(out, "building "+r.kind.what+" "+r.version)
	cmd.Stdout, cmd.Stderr = p, p
	err = cmd.Run()
	p.done(err)
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, p.tail())
	}
	for _, name := range r.names {
		if file := goFile(r.kind.packages[name]); file != name {
			if err := os.Rename(filepath.Join(tmp, file), filepath.Join(tmp, name)); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete: a file was removed
		return err
	}
	return os.Rename(tmp, dir)
}

// goCommand runs the go command in the module, without the caller's flags or workspace: they would change what is
// built.
func goCommand(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go end its compilers
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// goFile is the name that the go command gives a package's program: the last element, or the one before a major
// version.
func goFile(pkg string) string {
	file := path.Base(pkg)
	if majorVersion.MatchString(file) {
		file = path.Base(path.Dir(pkg))
	}
	return file
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// moduleDir finds a folder of this repository, such as test/controlplane, under the current module.
func moduleDir(ctx context.Context, module string) (string, error) {
	rel := filepath.FromSlash(module)
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
