package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The list keeps up with the source: each text stands in its file once, and is weakened to something else.
func TestMutantsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range Mutants {
		if names[m.Name] {
			t.Errorf("%s: two mutants of that name", m.Name)
		}
		names[m.Name] = true
		src, err := os.ReadFile(filepath.Join("../..", m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := m.apply(string(src)); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		} else if got == string(src) {
			t.Errorf("%s: changes nothing", m.Name)
		}
		if len(testsOf(m)) == 0 {
			t.Errorf("%s: no tests", m.Name)
		}
	}
	if len(Mutants) < 20 {
		t.Errorf("got %d mutants, want 20 at least", len(Mutants))
	}
}

// Each mutant compiles: it is type-checked against what go has compiled of the packages that it imports, which takes milliseconds
// where a build takes a second.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \" \"}}"}
	for _, m := range Mutants {
		if dir := "./" + filepath.Dir(m.File); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	listed, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	exports, files := map[string]string{}, map[string][]string{} // by import path; by folder
	for line := range strings.Lines(string(listed)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[f[0]], files[f[2]] = f[1], strings.Fields(f[3])
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	parsed := map[string]*ast.File{}
	for _, m := range Mutants {
		path := filepath.Join(root, m.File)
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		weaker, err := m.apply(string(src))
		if err != nil {
			continue // TestMutantsApply tells
		}
		dir := filepath.Dir(path)
		if !slices.Contains(files[dir], filepath.Base(path)) {
			t.Errorf("%s: go does not compile %s here", m.Name, m.File)
			continue
		}
		mutant, err := parser.ParseFile(fset, path, weaker, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		all := []*ast.File{mutant}
		for _, name := range files[dir] {
			other := filepath.Join(dir, name)
			if other == path {
				continue
			}
			if parsed[other] == nil {
				if parsed[other], err = parser.ParseFile(fset, other, nil, parser.SkipObjectResolution); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, parsed[other])
		}
		var faults bytes.Buffer
		conf := types.Config{Importer: imports, Error: func(err error) { faults.WriteString("\n\t" + err.Error()) }}
		if _, err := conf.Check(filepath.Dir(m.File), fset, all, nil); err != nil {
			t.Errorf("%s: does not compile:%s", m.Name, &faults)
		}
	}
}

func TestKiller(t *testing.T) {
	for said, want := range map[string]string{
		"--- FAIL: TestStep (0.00s)\n    --- FAIL: TestStep/off (0.00s)\n        x_test.go:1: got\nFAIL\n": "TestStep/off",
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n":                                               "TestA",
		"--- FAIL: TestHistories (1s)\n    sim_test.go:50: seed 17 (held): invariant 10 broken at 3s: x\n": "seed 17 (held): invariant 10",
		"panic: runtime error\nFAIL\n": "a crash",
	} {
		if got := killer(said); got != want {
			t.Errorf("killer(%q): got %q, want %q", said, got, want)
		}
	}
}

// A test that does not run is no killer.
func TestOnlyFailuresKill(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := hunter{root: root, scratch: t.TempDir()}
	for _, tc := range []struct {
		name string
		m    Mutant
		want string // of the result
		err  string // of the error
	}{
		{"survives", Mutant{File: "kubelet-admit/admit/admit.go", Old: `"node is not marked"`, New: `"node is free"`}, "", ""},
		{"killed", Mutant{File: "kubelet-admit/admit/admit.go", Old: "case n.Marked:", New: "case false:"}, "TestDecide", ""},
		{"does not compile", Mutant{File: "kubelet-admit/admit/admit.go", Old: "case n.Marked:", New: "case nobody:"}, "", "does not compile"},
		{"is not there", Mutant{File: "kubelet-admit/admit/admit.go", Old: "case n.Nothing:", New: ""}, "", "stands there 0 times"},
		{"a test that is not there", Mutant{File: "kubelet-admit/admit/admit.go", Old: "case n.Marked:", New: "case false:", Tests: []string{"./nowhere"}}, "", "go test ./nowhere"},
	} {
		by, err := h.kill(t.Context(), tc.m)
		switch {
		case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: got error %v, want %q", tc.name, err, tc.err)
		case !strings.HasPrefix(by, tc.want) || tc.want == "" && by != "":
			t.Errorf("%s: got killed by %q, want %q", tc.name, by, tc.want)
		}
	}
}
