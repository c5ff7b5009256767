package docs

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/kit"
)

// checkTree returns all broken citations and links below a folder, and what is cited.
func checkTree(root fs.FS) (*citations, error) {
	pages, err := readPages(root)
	if err != nil {
		return nil, err
	}
	c, err := newCitations(pages)
	if err != nil {
		return nil, err
	}
	c.faults = brokenLinks(root, pages)
	return c, readFiles(root, []string{".go", ".md", ".yaml"}, c.readFile)
}

// TestCitations finds numbers and links in the repository that lead nowhere.
func TestCitations(t *testing.T) {
	c, err := checkTree(root)
	kit.Must(t, err)
	for _, fault := range c.faults {
		t.Error(fault)
	}
	for kind, least := range map[string]int{"step": 80, "invariant": 70, "fact": 120, "KEP step": 3} {
		if c.found[kind] < least {
			t.Errorf("%d times a %s is cited, want at least %d: is the right tree read?", c.found[kind], kind, least)
		}
	}
	links := 0
	for _, p := range pages(t) {
		links += len(p.links)
	}
	if links < 300 {
		t.Errorf("%d links, want at least 300", links)
	}
}

const (
	protocol = "# Protocol\n\n## Steps\n\n1. **Gate.** Text.\n2. **Snapshot.**\n   3. is no step\n3. " +
		"**Ask.**\n\n### On\n\n4. **Again.**\n\n## Invariants\n\n1. One.\n2. Two.\n\n## After\n\n7. Of nothing.\n"
	facts = "# Facts\n\n## F2: one\n\n### F1\n\nF2 again.\n"
)

func tree(file, text string) fstest.MapFS {
	root := fstest.MapFS{"docs/protocol.md": {Data: []byte(protocol)}, "docs/reference/facts.md": {Data: []byte(facts)}}
	root[file] = &fstest.MapFile{Data: []byte(text)}
	return root
}

// TestCheckTree holds the check against citations and links made up for it.
func TestCheckTree(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"all are there", "x.md", "step 4, steps 1 to 3, invariants 1 and 2, F1 and (F2), KEP step 3.", ""},
		{"in a comment", "a/a.go", "package p\n\n// As\n// step\n// 5 has it.\nvar s = `step 99`\n",
			"a/a.go:3:1: there is no step 5"},
		{"in a function", "a/a.go", "package p\n\nfunc f() {\n\t_ = 1 /* step 6 */\n}\n",
			"a/a.go:4:8: there is no step 6"},
		{"step 0", "x.md", "Step 0", "x.md: there is no step 0"},
		{"the end of a range", "x.md", "steps 3 (all of them, 7 times) to 6", "x.md: there is no step 6"},
		{"a list", "x.md", "invariants 1, 2, and 3", "x.md: there is no invariant 3"},
		{"the singular is one", "x.md", "in step 2, 110 pods", ""},
		{"an index is no invariant", "x.md", "the invariants, 12 of them; step by step 3-4", ""},
		{"facts", "x.md", "see F1, F2; F3", "x.md: there is no fact 3"},
		{"no facts", "x.md", "0xF9 5F:A1:F9:0C PF9 https://example.net/F9 x-F9 F9x #F9", ""},
		{"the KEP's steps", "x.md", "KEP step 4, the KEP's step 1, step 2 of the KEP, step 5 of the KEP",
			"x.md: there is no KEP step 4, x.md: there is no KEP step 5"},
		{"manifests", "deploy/a.yaml", "a: b\n# and step\n# 8\n", "deploy/a.yaml: there is no step 8"},
		{"testdata is a test's", "a/testdata/a.md", "step 99", ""},
		{"what was built", "out/a.md", "step 99", ""},

		{"links", "docs/x.md", "[d](protocol.md) [d](../docs/protocol.md#steps) [up](#a-b-1) " +
			"[w](https://example.net/none) [dir](../docs)\n# A *b*\n# A `b`?", ""},
		{"no file", "docs/x.md", "[d](gone.md)", "docs/x.md: the link gone.md leads to no file"},
		{"no image", "docs/x.md", "![d](gone.png)", "docs/x.md: the link gone.png leads to no file"},
		{"no heading", "docs/x.md", "[d](protocol.md#step)",
			"docs/x.md: the link protocol.md#step leads to no heading"},
		{"no heading here", "docs/x.md", "[d](#a-b-2)\n# A *b*\n# A `b`?",
			"docs/x.md: the link #a-b-2 leads to no heading"},
		{"a heading of a folder", "docs/x.md", "[d](../docs#x)", "docs/x.md: the link ../docs#x leads to no heading"},
		{"out of the repository", "docs/x.md", "[d](../../x)", "docs/x.md: the link ../../x leads to no file"},
		{"absolute", "docs/x.md", "[d](/protocol.md)", "docs/x.md: the link /protocol.md leads to no file"},
		{"in code", "docs/x.md", "`[d](gone.md)`\n```\n[d](gone.md)\n```\n", ""},
		{"a heading in code", "docs/x.md", "[d](#no-heading)\n```\n# No heading\n```\n",
			"docs/x.md: the link #no-heading leads to no heading"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := checkTree(tree(tt.file, tt.text))
			kit.Must(t, err)
			if diff := cmp.Diff(tt.want, strings.Join(c.faults, ", ")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefinitions: a definition that is missing or there twice is an error, not a number less.
func TestDefinitions(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"no file", "docs/protocol.md", "", "Steps: no numbered items"},
		{"a step twice", "docs/protocol.md", strings.Replace(protocol, "4. **Again", "3. **Again", 1), "want 4"},
		{"a gap", "docs/protocol.md", strings.Replace(protocol, "4. **Again", "5. **Again", 1), "want 4"},
		{"another name", "docs/protocol.md", strings.Replace(protocol, "## Invariants", "## Promises", 1),
			"Invariants: no numbered items"},
		{"a fact twice", "docs/reference/facts.md", strings.Replace(facts, "F1", "F2", 1), "F1 is missing"},
		{"no facts", "docs/reference/facts.md", "# Facts\n", "none in docs/reference/facts.md"},
	} {
		if _, err := checkTree(tree(tt.file, tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
