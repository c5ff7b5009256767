// Package binaries builds the real programs that tests run, from the Go modules of this repository that pin them: a
// Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl), the kubelet,
// containerd, runc, CNI plugins, the CSI attacher, Helm, and the controllers of test/interop. Other versions of the
// runtimes are built as released, each pinned by its module's sum. It needs the go command and a module proxy (for runc
// a C compiler and libseccomp as well), and nothing else: no images, no downloads of binaries. recipes.go lists what
// can be built.
//
// It promises that a folder it returns is complete and was built from exactly these go.mod, go.sum and sources (or a
// released module of this sum), Go version, flags and names: the folder's name is their hash, and it appears by one
// rename.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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

	"github.com/forcefence/forcefence/test/kit/compile"
)

// Variables of the environment that choose another control plane.
const (
	// Folder names one with programs that are there: nothing is built of them.
	Folder = "CONTROLPLANE"
	// Minor is a Kubernetes version with a folder of its own in test/controlplane, such as 1.35.
	Minor = "KUBERNETES"
	// VersionVariable is what the repository's own programs say of themselves.
	VersionVariable = "VERSION"
)

// Options of Build. The zero value builds ControlPlane into the user's cache and reports to standard error.
type Options struct {
	Names    []string  // nil: ControlPlane; all of one recipe, see Groups
	Module   string    // folder of the go.mod to build from; "": the recipe's, of this repository
	Cache    string    // "": the recipe's, in folder forcefence under os.UserCacheDir
	Progress io.Writer // nil: os.Stderr; a terminal gets one line that is rewritten, anything else a line every 15 s
}

// Build returns the folder that holds the binaries. If they are in the cache it returns at once; else it builds them,
// which for the control plane takes minutes with an empty Go cache and seconds with a warm one. Two processes never
// build the same at once: the second waits and finds the first one's. It may be repeated, and ends early with ctx.
func Build(ctx context.Context, opts Options) (string, error) {
	j, err := newJob(ctx, opts)
	if err != nil {
		return "", err
	}
	if err := runJobs(ctx, []*job{j}, opts.Progress); err != nil {
		return "", err
	}
	return j.dir, nil
}

// BuildAll builds programs of any kinds, one kind after another, with one report of progress for all of them. It
// returns their folders. A nil progress is os.Stderr.
func BuildAll(ctx context.Context, names []string, progress io.Writer) (folders []string, err error) {
	groups, err := Groups(names)
	if err != nil {
		return nil, err
	}
	var jobs []*job
	for _, group := range groups {
		j, err := newJob(ctx, Options{Names: group})
		if err != nil {
			return nil, err
		}
		jobs, folders = append(jobs, j), append(folders, j.dir)
	}
	return folders, runJobs(ctx, jobs, progress)
}

// job is programs of one recipe that must be there when it has run.
type job struct {
	r     *recipe // nil if the folder is the caller's own: there is nothing to build
	names []string
	cache string // folder that holds dir
	dir   string
}

func newJob(ctx context.Context, opts Options) (*job, error) {
	names := slices.Clone(opts.Names)
	if len(names) == 0 {
		names = slices.Clone(ControlPlane)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	kind, err := kindOf(names)
	if err != nil {
		return nil, err
	}
	module := opts.Module
	if module == "" {
		there := kind.module
		if kind.versions {
			if dir := os.Getenv(Folder); dir != "" {
				if !complete(dir, names) {
					return nil,
						fmt.Errorf("%s: folder %s does not have all of %s", Folder, dir, strings.Join(names, ", "))
				}
				return &job{dir: dir}, nil
			}
			there = path.Join(there, os.Getenv(Minor))
		}
		if module, err = moduleDir(ctx, there); err != nil {
			return nil, fmt.Errorf("finding %s: %w", there, err)
		}
	}
	r, err := newRecipe(ctx, kind, module, names)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", module, err)
	}
	if kind.inPlace {
		return &job{r: r, names: names, cache: module, dir: filepath.Join(module, "bin")}, nil
	}
	cache := opts.Cache
	if cache == "" {
		user, err := userCache(ctx)
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(user, kind.cache)
	}
	return &job{r: r, names: names, cache: cache, dir: filepath.Join(cache, r.hash())}, nil
}

// userCache is the folder forcefence in the user's cache; where the user has none, beside Go's build cache, which such
// a user must have named.
func userCache(ctx context.Context) (string, error) {
	if dir, err := os.UserCacheDir(); err == nil && os.MkdirAll(filepath.Join(dir, "forcefence"), 0o755) == nil {
		return filepath.Join(dir, "forcefence"), nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its cache: %w", err)
	}
	dir := strings.TrimSpace(string(out))
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("finding a cache: set HOME, XDG_CACHE_HOME or GOCACHE to a folder that can be written")
	}
	return dir + "-forcefence", nil
}

// isDone reports whether nothing is left to do. The repository's own programs are always built again: go knows what
// changed.
func (j *job) isDone() bool {
	return j.r == nil || !j.r.kind.inPlace && complete(j.dir, j.names)
}

// runJobs builds what is missing. An empty list prints nothing.
func runJobs(ctx context.Context, jobs []*job, out io.Writer) error {
	if out == nil {
		out = os.Stderr
	}
	jobs = slices.DeleteFunc(slices.Clone(jobs), (*job).isDone)
	if len(jobs) == 0 {
		return nil
	}
	var err error
	for _, j := range jobs {
		if err = j.r.download(ctx); err != nil {
			return err
		}
	}
	p := newProgress(out, stalePackages(ctx, jobs))
	for _, j := range jobs {
		if err = j.run(ctx, p); err != nil {
			break
		}
	}
	p.finish(err)
	return err
}

func (j *job) run(ctx context.Context, p *progress) error {
	p.begin("building " + j.r.kind.what + " " + j.r.version)
	if err := os.MkdirAll(j.cache, 0o755); err != nil {
		return fmt.Errorf("making build cache: %w", err)
	}
	if j.r.kind.inPlace {
		if err := os.MkdirAll(j.dir, 0o755); err != nil {
			return err
		}
		return j.r.build(ctx, j.dir, p)
	}
	unlock, err := lock(ctx, filepath.Join(j.cache, "lock"), j.r.kind.what, p.out)
	if err != nil {
		return fmt.Errorf("locking build cache: %w", err)
	}
	defer unlock()
	if complete(j.dir, j.names) { // built while we waited
		return nil
	}
	return j.r.buildInto(ctx, j.dir, p)
}

// stalePackages counts the packages that the jobs will compile. One that two of them import in one version counts once,
// although another version of what it imports makes two of it. It is 0 if go does not know.
func stalePackages(ctx context.Context, jobs []*job) int {
	stale := map[string]bool{}
	for _, j := range jobs {
		// In the cache is a program that is only not linked yet.
		args := append([]string{"list", "-deps",
			"-f", `{{if .Stale}}{{.ImportPath}}@{{with .Module}}{{.Version}}{{end}} {{.StaleReason}}{{end}}`},
			j.r.flags()...)
		cmd := goCommand(ctx, j.r.module, append(args, j.r.packages()...)...)
		cmd.Env = append(cmd.Env, j.r.cgo())
		out, err := cmd.Output()
		if err != nil {
			return 0
		}
		for line := range strings.Lines(string(out)) {
			name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != "" && reason != "not installed but available in build cache" {
				stale[name] = true
			}
		}
	}
	return len(stale)
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
	module  string // folder
	path    string // of the module in it
	names   []string
	version string // of kind.version, with its v
	goVers  string
	mod     []byte // go.mod and go.sum, and the module's own source; or the kind's sum
}

func newRecipe(ctx context.Context, kind *kind, module string, names []string) (*recipe, error) {
	goVers, err := goCommand(ctx, module, "env", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its version: %w", err)
	}
	r := &recipe{kind: kind, module: module, names: names, goVers: strings.TrimSpace(string(goVers))}
	if kind.sum != "" {
		r.mod = []byte(kind.version + " " + kind.sum)
		r.version, err = kind.versionIn(nil)
		return r, err
	}
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, err
	}
	if r.version, err = kind.versionIn(mod); err != nil {
		return nil, err
	}
	named := regexp.MustCompile(`(?m)^module (\S+)`).FindSubmatch(mod)
	if named == nil {
		return nil, errors.New("go.mod names no module")
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
	r.path, r.mod = string(named[1]), all
	return r, nil
}

// download brings a released module, and refuses another than that of the kind's sum. It is then the main module, whose
// own go.sum holds what it imports.
func (r *recipe) download(ctx context.Context) error {
	if r == nil || r.kind.sum == "" {
		return nil
	}
	// Not in this repository, whose go.mod could change.
	out, bad := goCommand(ctx, string(filepath.Separator), "mod", "download", "-json", r.kind.version).Output()
	var m struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(out, &m); err != nil || m.Error != "" {
		return fmt.Errorf("downloading %s: %w: %s", r.kind.version, errors.Join(bad, err), m.Error)
	}
	if m.Sum != r.kind.sum {
		return fmt.Errorf("downloading %s: its sum is %s, not %s", r.kind.version, m.Sum, r.kind.sum)
	}
	r.module = m.Dir
	return nil
}

// versionIn is the version of the kind's programs, by the go.mod that they are built from.
func (k *kind) versionIn(mod []byte) (string, error) {
	if k.inPlace {
		return os.Getenv(VersionVariable), nil
	}
	if k.sum != "" {
		_, version, _ := strings.Cut(k.version, "@")
		return version, nil
	}
	required := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(k.version) + ` (v\S+)`)
	m := required.FindSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("go.mod requires no %s", k.version)
	}
	return string(m[1]), nil
}

func (r *recipe) flags() []string {
	flags := slices.Concat(compile.Flags(),
		[]string{"-ldflags", "-s -w" + strings.ReplaceAll(r.kind.ldflags, "VERSION", r.version)})
	if r.kind.tags != "" {
		flags = append(flags, "-tags", r.kind.tags)
	}
	if r.kind.sum != "" {
		flags = append(flags, "-mod=readonly") // some modules have rests of a vendor folder
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

// buildInto builds in a new folder beside dir, and gives it that name once it is complete.
func (r *recipe) buildInto(ctx context.Context, dir string, p *progress) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // gone after the rename
	if err := r.build(ctx, tmp, p); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete: a file was removed
		return err
	}
	return os.Rename(tmp, dir)
}

func (r *recipe) build(ctx context.Context, dir string, p *progress) error {
	args := append([]string{"build", "-v", "-o", dir + string(filepath.Separator)}, r.flags()...)
	cmd := goCommand(ctx, r.module, append(args, r.packages()...)...)
	cmd.Env = append(cmd.Env, r.cgo())
	cmd.Env = append(cmd.Env, compilerMemory...)
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s %s: go build: %w\n%s", r.kind.what, r.version, err, p.tail())
	}
	return r.nameFiles(dir)
}

// compilerMemory lets each process of the compiler use more memory before it collects garbage, which took a fifth of
// its time, and ends this at 3 GiB. A variable of the caller's own wins.
var compilerMemory = withoutCallers("GOGC=1000", "GOMEMLIMIT=3GiB")

func withoutCallers(variables ...string) []string {
	return slices.DeleteFunc(variables, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return os.Getenv(name) != ""
	})
}

// packages are what go build gets, each once.
func (r *recipe) packages() []string {
	var all []string
	for _, name := range r.names {
		all = append(all, r.kind.packages[name])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nameFiles gives the files that go build wrote into the folder the names that callers ask for. A module's own program
// gets a link for each name.
func (r *recipe) nameFiles(dir string) error {
	for _, name := range r.names {
		pkg := r.kind.packages[name]
		if pkg == own {
			if err := os.Symlink(goFile(r.path), filepath.Join(dir, name)); err != nil {
				return err
			}
		} else if file := goFile(pkg); file != name {
			if err := os.Rename(filepath.Join(dir, file), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
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
