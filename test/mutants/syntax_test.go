package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pkg is a package to weaken. Its functions stand in two files.
var pkg = map[string]string{
	"a.go": `package p

const limit = 30 * second

type T[E any] struct{ n int }

func (t *T[E]) gate(a, b, c bool, s string) (int, error) {
	switch {
	case a && // both
		b:
		return 1, nil // one
	case (c):
		return 2, nil
	}
	if a { // twice
		t.n++
		return 3, f("x", s, s)
	}
	if b {
		return 4, nil
	}
	return 5, nil
}
`,
	"b.go": `package p

var second, table = 1, map[string]bool{"a": true, "b": !(odd(1, 2) && odd(3, 4))}

func odd(args ...int) bool { return len(args)%2 == 1 }

func f(s ...string) error {
	select {
	case <-done:
	default:
		go odd(len(s))
	}
	return nil
}

var done chan int
`,
	"b_test.go": "package p\n\nfunc odd2(x int) bool { return x == 7 }\n",
}

func TestWeaken(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range pkg {
		if err := os.WriteFile(filepath.Join(root, "p", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src := newSource(root)
	for _, tc := range []struct {
		name, in, old, new string
		was, is            string // is replaces was; "": see err
		err                string
	}{
		{name: "an expression", in: "p.T.gate", old: "a&&b", new: "false", was: "a && // both\n\t\tb", is: "false"},
		{name: "an expression in parentheses", in: "p.T.gate", old: "c", new: "b || c", was: "(c)", is: "b || c"},
		{name: "a statement", in: "p.T.gate", old: "t.n++", new: "t.n--", was: "t.n++", is: "t.n--"},
		{name: "a statement is dropped", in: "p.T.gate", old: "t.n++", new: "", was: "t.n++", is: ""},
		{name: "neighbours", in: "p.T.gate", old: "t.n++; return 3, f(\"x\", s, s)", new: "return 9, nil",
			was: "t.n++\n\t\treturn 3, f(\"x\", s, s)", is: "return 9, nil"},
		{name: "a head", in: "p.T.gate", old: "if a { ... }", new: "if false { ... }",
			was: "if a { // twice\n\t\tt.n++\n\t\treturn 3, f(\"x\", s, s)\n\t}",
			is:  "if false { t.n++\n\t\treturn 3, f(\"x\", s, s) }"},
		{name: "a block's beginning", in: "p.T.gate", old: "if a { t.n++; ... }", new: "if a { ...; }",
			was: "if a { // twice\n\t\tt.n++\n\t\treturn 3, f(\"x\", s, s)\n\t}",
			is:  "if a { return 3, f(\"x\", s, s); }"},
		{name: "a case is dropped", in: "p.T.gate", old: "case a && b: ...", new: "",
			was: "case a && // both\n\t\tb:\n\t\treturn 1, nil", is: ""},
		{name: "cases change places", in: "p.T.gate", old: "case a && b: return 1, nil\ncase c: ...",
			new: "case c: ...\ncase a && b: return 1, nil", was: "case a && // both\n\t\tb:\n\t\treturn 1, nil // " +
				"one\n\tcase (c):\n\t\treturn 2, nil", is: "case c: return 2, nil\ncase a && b: return 1, nil"},
		{name: "a select's case", in: "p.f", old: "case <-done:", new: "", was: "case <-done:", is: ""},
		{name: "what a select receives", in: "p.f", old: "<-done", new: "<-other", was: "<-done", is: "<-other"},
		{name: "an element", in: "p.table", old: `"a": true`, new: "", was: `"a": true, `, is: " "},
		{name: "an operand", in: "p.table", old: "odd(1, 2) && odd(3, 4)", new: "a || b",
			was: "(odd(1, 2) && odd(3, 4))", is: "(a || b)"},
		{name: "a constant", in: "p.limit", old: "30", new: "0", was: "30 *", is: "0 *"},
		{name: "arguments", in: "p.T.gate", old: "s, s", new: "", was: "s, s)", is: ")"},
		{name: "a pointer's method by its type", in: "p.T.gate", old: "return 5, nil", new: "return 0, nil",
			was: "return 5", is: "return 0"},

		{name: "twice", in: "p.T.gate", old: "nil", new: "err", err: "is 4 times in p.T.gate: nil"},
		{name: "a selector is no expression", in: "p.T.gate", old: "n", new: "m", err: "does not stand in p.T.gate: n"},
		{name: "an ellipsis is syntax", in: "p.odd", old: "len(args...)", new: "0", err: "does not stand in p.odd"},
		{name: "moved", in: "p.T.gate", old: "len(args)%2", new: "0",
			err: "does not stand in p.T.gate: len(args)%2 (but in odd)"},
		{name: "renamed", in: "p.gate", old: "t.n++", new: "", err: "p declares no gate (but in T.gate)"},
		{name: "a test", in: "p.odd2", old: "x == 7", new: "false", err: "p declares no odd2"},
		{name: "no package", in: "q.odd", old: "x", new: "", err: "reading package"},
		{name: "no syntax", in: "p.odd", old: "if {", new: "", err: "neither expressions nor statements nor cases"},
		{name: "more than there was", in: "p.T.gate", old: "t.n++", new: "if a { ... }",
			err: `reading New: more "..." than Old has`},
	} {
		path, got, err := src.weaken(Mutant{In: tc.in, Old: tc.old, New: tc.new})
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		text := pkg[filepath.Base(path)]
		if n := strings.Count(text, tc.was); n != 1 {
			t.Fatalf("%s: the test's own text is there %d times", tc.name, n)
		}
		if want := strings.Replace(text, tc.was, tc.is, 1); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, want)
		}
	}
}
