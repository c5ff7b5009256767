package binaries

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

const testMod = "module example.test/x\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.99.7 // indirect\n"

// kindWith is the kind that builds the program.
func kindWith(name string) *kind {
	kind, err := kindOf([]string{name})
	if err != nil {
		panic(err)
	}
	return kind
}

func testModule(t *testing.T, mod, sum string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testRecipe(t *testing.T, mod, sum string, names ...string) *recipe {
	t.Helper()
	r, err := newRecipe(t.Context(), kindWith(Etcd), testModule(t, mod, sum), names)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHashIsOfEverythingThatDecides(t *testing.T) {
	base := testRecipe(t, testMod, "a", Etcd)
	if base.version != "v1.99.7" {
		t.Errorf("version: got %q, want v1.99.7", base.version)
	}
	if again := testRecipe(t, testMod, "a", Etcd); again.hash() != base.hash() {
		t.Errorf("hash of the same module elsewhere: got %s, want %s", again.hash(), base.hash())
	}
	for name, other := range map[string]*recipe{
		"go.mod": testRecipe(t, testMod+"// more\n", "a", Etcd), "go.sum": testRecipe(t, testMod, "b", Etcd),
		"names":   testRecipe(t, testMod, "a", Etcd, Kubectl),
		"version": testRecipe(t, strings.Replace(testMod, "99", "98", 1), "a", Etcd),
	} {
		if other.hash() == base.hash() {
			t.Errorf("%s changed, hash did not", name)
		}
	}
	withSource := testModule(t, testMod, "a")
	for _, source := range []string{"package main\n", "package main // changed\n"} { // of a program of its own
		if err := os.WriteFile(filepath.Join(withSource, "main.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := newRecipe(t.Context(), &kinds[0], withSource, []string{Etcd})
		if err != nil {
			t.Fatal(err)
		}
		if r.hash() == base.hash() {
			t.Errorf("source %q was added, hash did not change", source)
		}
		base = r
	}
	older := *base
	if older.goVers = "go1.0"; older.hash() == base.hash() {
		t.Error("Go version changed, hash did not")
	}
}

func TestBuildTakesFromCache(t *testing.T) {
	r := testRecipe(t, testMod, "a", Etcd)
	cache := t.TempDir()
	want := filepath.Join(cache, r.hash())
	if err := os.Mkdir(want, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(want, Etcd), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	got, err := Build(t.Context(), Options{Names: []string{Etcd, Etcd}, Module: r.module, Cache: cache, Progress: &out})
	if err != nil || got != want || out.Len() > 0 {
		t.Errorf("got %q, %v, output %q; want %q and silence", got, err, out.String(), want)
	}
}

// A home that cannot be written, as a system account has, needs no more than the folder that go needs.
func TestCacheWithoutHome(t *testing.T) {
	t.Setenv("HOME", os.DevNull+"/home")
	t.Setenv("XDG_CACHE_HOME", "")
	own := filepath.Join(t.TempDir(), "go-build")
	t.Setenv("GOCACHE", own)
	if got, err := userCache(t.Context()); err != nil || got != own+"-forcefence" {
		t.Errorf("got %q, %v; want a folder beside GOCACHE", got, err)
	}
	t.Setenv("GOCACHE", "off")
	if got, err := userCache(t.Context()); err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Errorf("got %q, %v; want what to set", got, err)
	}
}

func TestBuildFailureLeavesNothing(t *testing.T) {
	r := testRecipe(t, testMod, "", Kubectl) // does not provide kubectl
	cache := t.TempDir()
	var out bytes.Buffer
	_, err := Build(t.Context(), Options{Names: []string{Kubectl}, Module: r.module, Cache: cache, Progress: &out})
	if err == nil || !strings.Contains(err.Error(), "missing go.sum entry") {
		t.Errorf("error: got %v, want go's own words", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "lock" {
		t.Errorf("cache: got %v, want the lock only", left)
	}
}

// A released module is built by its own go.mod, and only if its sum is the pinned one: here from a proxy in a folder.
func TestReleasedModuleHasItsSum(t *testing.T) {
	proxy := t.TempDir()
	for name, text := range map[string]string{
		"list": "v1.2.3\n", "v1.2.3.info": `{"Version":"v1.2.3"}`, "v1.2.3.mod": "module example.test/r\n\ngo 1.26.0\n",
	} {
		writeFile(t, filepath.Join(proxy, "example.test/r/@v", name), []byte(text))
	}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	for name, text := range map[string]string{
		"go.mod": "module example.test/r\n\ngo 1.26.0\n", "cmd/r/main.go": "package main\n\nfunc main() {}\n",
		// as some have it: what is left of vendor
		"vendor/modules.txt": "# example.test/other v1.0.0\n## explicit\nexample.test/other\n",
	} {
		w, err := z.Create("example.test/r@v1.2.3/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(proxy, "example.test/r/@v/v1.2.3.zip"), zipped.Bytes())
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GONOSUMDB", "example.test")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() { _ = goCommand(context.Background(), ".", "clean", "-modcache").Run() }) // it is read-only
	k := &kind{what: "r", version: "example.test/r@v1.2.3", sum: "h1:other=",
		packages: map[string]string{"r-1": "example.test/r/cmd/r"}}
	recipeOf := func() *recipe {
		r, err := newRecipe(t.Context(), k, ".", []string{"r-1"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	build := func() error {
		r := recipeOf()
		j := &job{r: r, names: r.names, cache: t.TempDir()}
		j.dir = filepath.Join(j.cache, r.hash())
		if err := runJobs(t.Context(), []*job{j}, io.Discard); err != nil {
			return err
		}
		if !complete(j.dir, j.names) {
			t.Errorf("%s lacks the program", j.dir)
		}
		return nil
	}
	err := build()
	if err == nil || !strings.Contains(err.Error(), ", not h1:other=") {
		t.Fatalf("with another sum: got %v", err)
	}
	before := recipeOf().hash()
	if k.sum = regexp.MustCompile(`h1:\S+=`).FindString(err.Error()); recipeOf().hash() == before {
		t.Error("the sum changed, the hash did not")
	}
	if err := build(); err != nil {
		t.Errorf("with its sum: %v", err)
	}
}

func writeFile(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBuildRefusesNames(t *testing.T) {
	for want, names := range map[string][]string{"unknown binary": {"kube-proxy"}, "not of one recipe": {Etcd, Runc}} {
		if _, err := Build(t.Context(), Options{Names: names}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", names, err, want)
		}
	}
}

// A go.mod that does not list a package as a tool may lose what it needs at the next tidy-up.
func TestKindsAreTools(t *testing.T) {
	seen := map[string]string{}
	for _, k := range kinds {
		dir, err := moduleDir(t.Context(), k.module)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for name, pkg := range k.packages {
			if k.sum == "" && !strings.HasPrefix(pkg, ".") &&
				!bytes.Contains(mod, []byte("\n\t"+pkg+"\n")) && !bytes.Contains(mod, []byte("\ntool "+pkg+"\n")) {
				t.Errorf("%s/go.mod: %s is no tool", k.module, pkg)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s: built by %s and by %s", name, other, k.what)
			}
			seen[name] = k.what
		}
		// Not newRecipe: a module may want a newer Go than this one, which a machine without a network has not.
		r := recipe{kind: &k}
		if r.version, err = k.versionIn(mod); err != nil || strings.Contains(strings.Join(r.flags(), " "), "VERSION") {
			t.Errorf("%s: %v", k.what, err)
		}
	}
}

func TestGroups(t *testing.T) {
	got, err := Groups([]string{Runc, Etcd, Ctr, Kubelet, Containerd})
	want := [][]string{{Etcd, Kubelet}, {Ctr, Containerd}, {Runc}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestGoFile(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3": "server", "example.test/cmd/containerd-shim-runc-v2": "containerd-shim-runc-v2"} {
		if got := goFile(pkg); got != want {
			t.Errorf("%s: got %s, want %s", pkg, got, want)
		}
	}
}

func TestLockExcludes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	var out bytes.Buffer
	unlock, err := lock(t.Context(), file, "x", &out)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, file, "x", &out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: got %v, want it to wait", err)
	}
	if !strings.Contains(out.String(), "waiting") {
		t.Errorf("output: got %q", out.String())
	}
	unlock()
	again, err := lock(t.Context(), file, "x", &out)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	again()
}

func TestProgressCountsPackages(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 0)
	p.begin("building x")
	for _, s := range []string{"k8s.io/a\nk8s.", "io/b\n", "boom"} {
		if _, err := p.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.finish(errors.New("failed"))
	if want := "building x: 0 packages, 0s\nbuilding x: 2 packages, 0s\n"; out.String() != want {
		t.Errorf("output: got %q, want %q", out.String(), want)
	}
	if want := "k8s.io/a\nk8s.io/b\nboom"; p.tail() != want {
		t.Errorf("tail: got %q, want %q", p.tail(), want)
	}
}

func TestDescribeProgress(t *testing.T) {
	for want, at := range map[string]struct {
		built, total int
		elapsed      time.Duration
	}{
		"0 of 2880 packages, 0s, about 6 min left":              {0, 2880, 0},
		"720 of 2880 packages, 2m0s, about 6 min left":          {720, 2880, 2 * time.Minute},
		"2700 of 2880 packages, 6m0s, less than a minute left":  {2700, 2880, 6 * time.Minute},
		"2900 of 2900 packages, 6m10s, less than a minute left": {2900, 2880, 370 * time.Second}, // go compiled more
		"7 packages, 3s": {7, 0, 3 * time.Second},
	} {
		if got := describeProgress(at.built, at.total, at.elapsed, 2); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What two modules compile is compiled once only if both have it in one version, and all that it imports: a difference
// in one small module once cost two minutes of CPU.
func TestModulesShareVersions(t *testing.T) {
	product, controlPlane := moduleVersions(t, "forcefence", "demo"), moduleVersions(t, ControlPlane...)
	shared := 0
	for path, version := range product {
		other, ok := controlPlane[path]
		if !ok {
			continue
		}
		if shared++; other != version {
			t.Errorf("%s: go.mod has %s, test/controlplane/go.mod %s", path, version, other)
		}
	}
	if shared < 50 {
		t.Errorf("%d modules are in both; do their versions have other names now?", shared)
	}
}

// moduleVersions are the versions of all modules that the programs compile something of.
func moduleVersions(t *testing.T, names ...string) map[string]string {
	t.Helper()
	j, err := newJob(t.Context(), Options{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-deps",
		"-f", "{{with .Module}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}"}
	args = append(append(args, j.r.flags()...), j.r.packages()...)
	out, err := goCommand(t.Context(), j.r.module, args...).Output()
	if err != nil {
		t.Fatalf("listing modules of %v: %v", names, err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions
}
