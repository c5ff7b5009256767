package binaries

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const testMod = "module example.test/x\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.99.7 // indirect\n"

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
	r, err := newRecipe(t.Context(), &kinds[0], testModule(t, mod, sum), names)
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

func TestBuildFailureLeavesNothing(t *testing.T) {
	r := testRecipe(t, testMod, "", Etcd) // does not provide etcd
	cache := t.TempDir()
	var out bytes.Buffer
	_, err := Build(t.Context(), Options{Names: []string{Etcd}, Module: r.module, Cache: cache, Progress: &out})
	if err == nil || !strings.Contains(err.Error(), "missing go.sum entry") {
		t.Errorf("error: got %v, want go's own words", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "lock" {
		t.Errorf("cache: got %v, want the lock only", left)
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
			if !bytes.Contains(mod, []byte("\n\t"+pkg+"\n")) && !bytes.Contains(mod, []byte("\ntool "+pkg+"\n")) {
				t.Errorf("%s/go.mod: %s is no tool", k.module, pkg)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s: built by %s and by %s", name, other, k.what)
			}
			seen[name] = k.what
		}
		if r, err := newRecipe(t.Context(), &k, dir, nil); err != nil ||
			strings.Contains(strings.Join(r.flags(), " "), "VERSION") {
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
	p := newProgress(&out, "building x")
	for _, s := range []string{"k8s.io/a\nk8s.", "io/b\n", "boom"} {
		if _, err := p.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.done(errors.New("failed"))
	if want := "building x: 0 packages, 0s\nbuilding x: 2 packages, 0s\n"; out.String() != want {
		t.Errorf("output: got %q, want %q", out.String(), want)
	}
	if want := "k8s.io/a\nk8s.io/b\nboom"; p.tail() != want {
		t.Errorf("tail: got %q, want %q", p.tail(), want)
	}
}
