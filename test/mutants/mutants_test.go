package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/sample.txt")

func newTestSource(t *testing.T) *source {
	t.Helper()
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return newSource(root)
}

// Each kind of change is found where it can be made, and nothing is done to texts, logs and locks.
func TestCandidates(t *testing.T) {
	const dir, golden = "test/mutants/testdata/sample", "testdata/sample.txt"
	g, err := newGenerator(t.Context(), newTestSource(t), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	list, err := g.candidates(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range list {
		ok, err := g.compiles(c)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%5t %s\n", ok, strings.TrimPrefix(c.ID, dir+"."))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("candidates and whether they compile (-want +got):\n%s", diff)
	}
}

// The table keeps up with the source: each mutant has its place, compiles, and every invariant of the protocol has one.
func TestProtocol(t *testing.T) {
	src := newTestSource(t)
	list, err := src.placeProtocol()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) > 160 {
		t.Errorf("the table has %d mutants, want 160 at most: generate the others", len(list))
	}
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Invariants\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, n := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(section, -1) {
		if !slices.ContainsFunc(list,
			func(c Candidate) bool { return strings.HasPrefix(c.ID, "invariant "+n[1]+": ") }) {
			t.Errorf("invariant %s has no mutant", n[1])
		}
	}
	names := map[string]bool{}
	var dirs []string
	for _, c := range list {
		if names[c.ID] {
			t.Errorf("%s: two mutants of that name", c.ID)
		}
		names[c.ID] = true
		if !slices.Contains(dirs, c.Dir) {
			dirs = append(dirs, c.Dir)
		}
	}
	if testing.Short() {
		t.Skip("compiles")
	}
	g, err := newGenerator(t.Context(), src, dirs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if ok, err := g.compiles(c); err != nil || !ok {
			t.Errorf("%s does not compile: %v", c.ID, err)
		}
	}
}

// What is accepted still exists.
func TestAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the types of all packages")
	}
	src := newTestSource(t)
	reasons, err := readAccepted(src.root)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGenerator(t.Context(), src, mutated)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range mutated {
		list, err := g.candidates(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			delete(reasons, c.ID)
		}
	}
	for id := range reasons {
		t.Errorf("%s has no such candidate: %s", accepted, id)
	}
}

func TestMatchTokens(t *testing.T) {
	for _, tc := range []struct {
		name, text, pattern string
		n                   int
		body                string
	}{
		{"the same", "a == b", "a==b", 3, ""},
		{"layout and comments", "a ==\n\tb // why", "a == b", 3, ""},
		{"other code", "a == c", "a == b", 0, ""},
		{"a part", "a == b && c", "a == b", 3, ""},
		{"too long", "a ==", "a == b", 0, ""},
		{"a body", "if a { b(); if c { d() } } e()", "if a { ... }", 15, " b(); if c { d() } "},
		{"a body that does not end", "if a { b()", "if a { ... }", 0, ""},
	} {
		n, body := matchTokens(tokensOf(tc.text, 0), tokensOf(tc.pattern, 0))
		if n != tc.n || n > 0 && tc.text[body.from:body.to] != tc.body {
			t.Errorf("%s: got %d tokens, body %v, want %d, body %q", tc.name, n, body, tc.n, tc.body)
		}
	}
}

// The nearest tests come first: a package's own, then those of packages that import it, then the simulation.
func TestTesters(t *testing.T) {
	g := &graph{module: "m", pkgs: []imports{
		{ImportPath: "m/far", Imports: []string{"m/near"}, TestImports: []string{"testing"}},
		{ImportPath: "m/near", Imports: []string{"m/it"}, TestImports: []string{"testing"}},
		{ImportPath: "m/it", TestImports: []string{"testing"}},
		{ImportPath: "m/other", TestImports: []string{"testing"}},
		{ImportPath: "m/untested", Imports: []string{"m/it"}},
		{ImportPath: "m/outside", XTestImports: []string{"m/it"}},
		{ImportPath: "m/test/integration", Imports: []string{"m/far"}, TestImports: []string{"testing"}},
		{ImportPath: "m/cmd/forcefence", Imports: []string{"m/far"}},
		{ImportPath: "m/test/sim", Imports: []string{"m/far"}, TestImports: []string{"testing"}},
	}}
	want := []string{"./it -short", "./it", "./outside -short", "./near -short", "./far -short", simulation,
		"./outside", stories}
	if diff := cmp.Diff(want, g.testers("it")); diff != "" {
		t.Errorf("testers (-want +got):\n%s", diff)
	}
}

// A test that fails kills, and nothing else does.
func TestHunt(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go")
	}
	src := newTestSource(t)
	graph, err := readGraph(t.Context(), src.root)
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{"./kubelet-admit/admit"}
	var list []Candidate
	for _, m := range []protocolMutant{
		{name: "killed", in: "kubelet-admit/admit.Decide", old: "!n.ReadySeen", new: "false", tests: tests},
		{name: "survives", in: "kubelet-admit/admit.Clear", old: `"node is not marked"`, new: `"node is free"`,
			tests: tests},
		{name: "accepted", in: "kubelet-admit/admit.Clear", old: `"node is not marked"`, new: `"it is free"`,
			tests: tests},
	} {
		c, err := src.place(m)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	var out bytes.Buffer
	h := hunter{root: src.root, jobs: 1, out: &out, graph: graph,
		accepted: map[string]string{"accepted": "text for people"}}
	err = h.hunt(t.Context(), list)
	if err == nil || !strings.HasSuffix(err.Error(), "no test notices:\nsurvives") {
		t.Errorf("got error %v, want the one that survives", err)
	}
	want := regexp.MustCompile(
		`(?s)killed  killed by TestDecide.*survives  SURVIVED.*accepted  ACCEPTED: text for people.*` +
			`kubelet-admit/admit +1 killed +1 survived +1 accepted\n` +
			`3 mutants: 1 killed \(33\.3 %\), 1 survived, 1 accepted`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s, want\n%s", &out, want)
	}
	for name, c := range map[string]Candidate{
		"does not compile": func() Candidate { c := list[0]; c.New = "undefined"; return c }(),
		"go test ./nowhere": func() Candidate {
			c := list[0]
			c.Tests = []string{"./nowhere"}
			return c
		}(),
	} {
		if err := h.hunt(t.Context(), []Candidate{c}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got error %v, want %q", err, name)
		}
	}
}

func TestKiller(t *testing.T) {
	const step = "--- FAIL: TestStep (0.00s)\n    --- FAIL: TestStep/off (0.00s)\n        x_test.go:1: got\nFAIL\n"
	const seed = "--- FAIL: TestHistories (1s)\n    sim_test.go:50: seed 17 (held): invariant 10 broken at 3s: x\n"
	for said, want := range map[string]string{
		step: "TestStep/off",
		seed: "seed 17 (held): invariant 10",
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n": "TestA",
		"panic: runtime error\nFAIL\n":                       "a crash",
	} {
		if got := killer(said); got != want {
			t.Errorf("killer(%q): got %q, want %q", said, got, want)
		}
	}
}
