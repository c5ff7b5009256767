package cited

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestRepository holds the repository's own citations and links.
func TestRepository(t *testing.T) {
	root := os.DirFS("../..")
	faults, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
	cites, err := Citations(root)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, c := range cites {
		kinds[c.Kind]++
	}
	for kind, least := range map[string]int{"step": 40, "invariant": 25, "fact": 25, "KEP step": 3} {
		if kinds[kind] < least {
			t.Errorf("only %d citations of kind %q were found, want at least %d: the check looks at the wrong tree, "+
				"or reads too little",
				kinds[kind], kind, least)
		}
	}
	links, err := Links(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(links) < 15 {
		t.Errorf("only %d links were found", len(links))
	}
}

const (
	design = "# Design\n\n## The protocol\n\n1. **Gate.** Text.\n2. **Snapshot.**\n   3. is no step\n3. " +
		"**Ask.**\n\n### On\n\n4. **Again.**\n\n" +
		"## Invariants\n\n1. One.\n2. Two.\n\n## After\n\n7. No number of anything.\n"
	facts = "# Facts\n\n## F1: one\n\n### F2\n\nF2 again.\n"
)

// TestCheck holds the check against citations and links made up for it.
func TestCheck(t *testing.T) {
	goFile := func(comment string) string {
		return "package p\n\n" + comment + "\nvar s = \"step 99, F99, invariant 99\"\n"
	}
	for _, tt := range []struct {
		name, file, text string
		want             []string
	}{
		{"all are there", "a/a.go", goFile("// step 4, steps 1 to 3, invariants 1 and 2, F1 and (F2), KEP step 3."),
			nil},
		{"strings are not read", "a/a.go", goFile(""), nil},
		{"a step too far", "a/a.go", goFile("// As step 5 has it."), []string{"a/a.go:3: step 5 does not exist"}},
		{"step 0", "a/a.go", goFile("// Step 0."), []string{"a/a.go:3: step 0 does not exist"}},
		{"across a line", "a/a.go", goFile("// First, and then step\n// 5."),
			[]string{"a/a.go:3: step 5 does not exist"}},
		{"on a later line", "a/a.go", goFile("// First\n// invariant 3."),
			[]string{"a/a.go:4: invariant 3 does not exist"}},
		{"in a function", "a/a.go", "package p\n\nfunc f() {\n\t_ = 1 // step 6\n}\n",
			[]string{"a/a.go:4: step 6 does not exist"}},
		{"in a block", "a/a.go", goFile("/*\nsee F3\n*/"), []string{"a/a.go:4: F3 does not exist"}},
		{"the end of a range", "a/a.go", goFile("// steps 3 to 6"),
			[]string{"a/a.go:3: step 5 does not exist", "a/a.go:3: step 6 does not exist"}},
		{"a range with an aside", "a/a.go", goFile("// steps 3 (all of them, 7 times) to 5"),
			[]string{"a/a.go:3: step 5 does not exist"}},
		{"a list", "a/a.go", goFile("// invariants 1, 2, and 3"), []string{"a/a.go:3: invariant 3 does not exist"}},
		{"the singular is one", "a/a.go", goFile("// in step 2, 110 pods"), nil},
		{"an index is no invariant", "a/a.go", goFile("// the invariants, 12 of them; step by step 3-4"), nil},
		{"facts", "docs/x.md", "see F1, F2; F3", []string{"docs/x.md:1: F3 does not exist"}},
		{"no facts", "docs/x.md", "0xF9 5F:A1:F9:0C PF9 https://example.net/F9 x-F9 F9x #F9", nil},
		{"the KEP's steps", "docs/x.md", "KEP step 4, the KEP's step 1, step 2 of the KEP, step 5 of the KEP",
			[]string{"docs/x.md:1: KEP step 4 does not exist", "docs/x.md:1: KEP step 5 does not exist"}},
		{"manifests", "deploy/a.yaml", "a: b # F7\n# and step\n# 8\n",
			[]string{"deploy/a.yaml:2: step 8 does not exist", "deploy/a.yaml:1: F7 does not exist"}},
		{"testdata is a test's", "a/testdata/a.md", "step 99", nil},
		{"what was built", "out/a.md", "step 99", nil},

		{"a link", "docs/x.md", "[d](design.md) [d](../docs/design.md#the-protocol) [up](#here) " +
			"[w](https://example.net/none) [dir](../docs)\n# Here", nil},
		{"no file", "docs/x.md", "\n[d](gone.md)", []string{"docs/x.md:2: link gone.md is not there"}},
		{"no heading", "docs/x.md", "[d](design.md#protocol)",
			[]string{"docs/x.md:1: link design.md#protocol names a heading that is not there"}},
		{"no heading here", "docs/x.md", "[d](#there)\n# Here",
			[]string{"docs/x.md:1: link #there names a heading that is not there"}},
		{"out of the repository", "docs/x.md", "[d](../../x)",
			[]string{"docs/x.md:1: link ../../x leads out of the repository"}},
		{"absolute", "docs/x.md", "[d](/docs/design.md)", []string{"docs/x.md:1: link /docs/design.md leads out of " +
			"the repository"}},
		{"in code", "docs/x.md", "`[d](gone.md)`\n```\n[d](gone.md)\n# No heading\n```\n[d](gone.md)",
			[]string{"docs/x.md:6: link gone.md is not there"}},
		{"a heading in code", "docs/x.md", "[d](#no-heading)\n```\n# No heading\n```\n",
			[]string{"docs/x.md:1: link #no-heading names a heading that is not there"}},
		{"headings of one name", "docs/x.md", "[d](#a-b) [d](#a-b-1) [d](#a-b-2)\n## A *b*\n## A `b`?\n",
			[]string{"docs/x.md:1: link #a-b-2 names a heading that is not there"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{Design: {Data: []byte(design)}, Facts: {Data: []byte(facts)},
				tt.file: {Data: []byte(tt.text)}}
			got, err := Check(tree)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefined: a definition that is missing or there twice is an error, not a number less.
func TestDefined(t *testing.T) {
	for _, tt := range []struct{ name, design, facts, want string }{
		{"all", design, facts, ""},
		{"a step twice", strings.Replace(design, "4. **Again", "3. **Again", 1), facts, "step 3 is defined twice"},
		{"a gap", strings.Replace(design, "4. **Again", "5. **Again", 1), facts, "step 4 is missing"},
		{"a fact twice", design, strings.Replace(facts, "### F2", "### F1", 1), "fact 1 is defined twice"},
		{"invariants under another name", strings.Replace(design, "## Invariants", "## Promises", 1), facts,
			"no invariant is defined"},
		{"no facts", design, "# Facts\n", "no fact is defined"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Defined(fstest.MapFS{Design: {Data: []byte(tt.design)}, Facts: {Data: []byte(tt.facts)}})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Defined: %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := Defined(fstest.MapFS{}); err == nil {
		t.Error("Defined of nothing: no error")
	}
}
