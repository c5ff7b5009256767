package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The list keeps up with the source: each mutant has its place there, and changes something.
func TestMutantsApply(t *testing.T) {
	src := newSource("../..")
	names := map[string]bool{}
	for _, m := range Mutants {
		if names[m.Name] {
			t.Errorf("%s: two mutants of that name", m.Name)
		}
		names[m.Name] = true
		if path, got, err := src.weaken(m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		} else if dir, _ := m.where(); got == src.pkgs[dir][path].text {
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

// Each mutant compiles: it is type-checked against what go has compiled of the packages that it imports, which takes
// milliseconds where a build takes a second.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	src := newSource(root)
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, m := range Mutants {
		if dir, _ := m.where(); !slices.Contains(args, "./"+dir) {
			args = append(args, "./"+dir)
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
	exports := map[string]string{} // by import path
	for line := range strings.Lines(string(listed)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		exports[path] = file
	}
	imports := importer.ForCompiler(src.fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, m := range Mutants {
		path, weaker, err := src.weaken(m)
		if err != nil {
			continue // TestMutantsApply tells
		}
		mutant, err := parser.ParseFile(src.fset, path, weaker, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		dir, _ := m.where()
		all := []*ast.File{mutant}
		for other, f := range src.pkgs[dir] {
			if other != path {
				all = append(all, f.tree)
			}
		}
		var faults bytes.Buffer
		conf := types.Config{Importer: imports, Error: func(err error) { faults.WriteString("\n\t" + err.Error()) }}
		if _, err := conf.Check(dir, src.fset, all, nil); err != nil {
			t.Errorf("%s: does not compile:%s", m.Name, &faults)
		}
	}
}

func TestKiller(t *testing.T) {
	for said, want := range map[string]string{
		"--- FAIL: TestStep (0.00s)\n    --- FAIL: TestStep/off (0.00s)\n        x_test.go:1: got\nFAIL\n": "" +
			"TestStep/off",
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n": "TestA",
		"--- FAIL: TestHistories (1s)\n    sim_test.go:50: seed 17 (held): invariant 10 broken at 3s: x\n": "" +
			"seed 17 (held): invariant 10",
		"panic: runtime error\nFAIL\n": "a crash",
	} {
		if got := killer(said); got != want {
			t.Errorf("killer(%q): got %q, want %q", said, got, want)
		}
	}
}

func TestQuickOf(t *testing.T) {
	for _, tc := range []struct{ name, said, want string }{
		{"the slow ones wait", "=== RUN   TestA\n--- PASS: TestA (0.10s)\n    --- PASS: TestA/x (0.10s)\n--- PASS: " +
			"FuzzB (0.00s)\n--- PASS: TestC (7.00s)\n--- SKIP: TestD (0.00s)\nok  \tx/y\t7.400s\n", "^(TestA|FuzzB)$"},
		{"none is slow", "--- PASS: TestA (0.10s)\n--- PASS: TestC (1.00s)\nok  \tx/y\t1.100s\n", ""},
		{"all are slow", "--- PASS: TestC (3.00s)\nok  \tx/y\t3.100s\n", ""},
		{"some run beside each other", "--- PASS: TestA (0.10s)\n--- PASS: TestC (3.00s)\n--- PASS: TestD " +
			"(3.00s)\nok  \tx/y\t3.100s\n", "^(TestA)$"},
		{"what they share takes long", "--- PASS: TestA (0.10s)\n--- PASS: TestC (3.00s)\nok  \tx/y\t9.000s\n", ""},
	} {
		if got := quickOf(tc.said); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// What is quick goes first, and what is not still has its say.
func TestQuickTestsFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := Mutant{In: "kubelet-admit/admit.Decide", Old: "!n.ReadySeen", New: "false",
		Tests: []string{"./kubelet-admit/admit"}}
	for _, quick := range []string{"^(TestDecide)$", "^(TestNobody)$"} {
		h := hunter{source: newSource(root), scratch: t.TempDir(), quick: map[string]string{m.Tests[0]: quick}}
		if by, err := h.kill(t.Context(), m); err != nil || !strings.HasPrefix(by, "TestDecide") {
			t.Errorf("quick are %s: got killed by %q (%v), want TestDecide", quick, by, err)
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
	h := hunter{source: newSource(root), scratch: t.TempDir()}
	const in = "kubelet-admit/admit.Decide"
	tests := []string{"./kubelet-admit/admit"}
	for _, tc := range []struct {
		name string
		m    Mutant
		want string // of the result
		err  string // of the error
	}{
		{"survives",
			Mutant{In: "kubelet-admit/admit.Clear", Old: `"node is not marked"`, New: `"node is free"`, Tests: tests},
			"", ""},
		{"killed", Mutant{In: in, Old: "!n.ReadySeen", New: "false", Tests: tests}, "TestDecide", ""},
		{"does not compile", Mutant{In: in, Old: "!n.ReadySeen", New: "nobody", Tests: tests}, "", "does not compile"},
		{"is not there", Mutant{In: in, Old: "n.Nothing", New: "", Tests: tests}, "", "does not stand in"},
		{"a test that is not there", Mutant{In: in, Old: "!n.ReadySeen", New: "false", Tests: []string{"./nowhere"}},
			"", "go test ./nowhere"},
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

// Mutants without a place are reported first, all of them; the others are tried, and the run fails.
func TestUnplacedMutantsAreReported(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	tests := []string{"./kubelet-admit/admit"}
	var out bytes.Buffer
	err := hunt(t.Context(), &out, []Mutant{
		{Name: "moved", In: "kubelet-admit/admit.Undecide", Old: "!n.ReadySeen", New: "false"},
		{Name: "placed", In: "kubelet-admit/admit.Decide", Old: "!n.ReadySeen", New: "false", Tests: tests},
		{Name: "gone", In: "kubelet-admit/admit.Decide", Old: "n.Nothing", New: "false", Tests: tests},
	}, 2)
	want := regexp.MustCompile(`^NOT PLACED  moved: kubelet-admit/admit declares no Undecide \(but in Decide\)
NOT PLACED  gone: does not stand in kubelet-admit/admit.Decide: n.Nothing
 .* passes without a mutant: ./kubelet-admit/admit
  1/1 .* killed by TestDecide.*
3 mutants, 1 killed, 0 survived, .*
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s, want\n%s", &out, want)
	}
	if err == nil || !strings.Contains(err.Error(), `cannot be tried: ["moved" "gone"]`) {
		t.Errorf("got error %v, want the two that have no place", err)
	}
}
