package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/forcefence/forcefence/test/kit"
)

// requireModules is the variable that, set to 1, has TestUpstream fail where the module cache lacks Kubernetes.
const requireModules = "FORCEFENCE_REQUIRE_MODULES"

// TestUpstream holds what documentation and comments cite of other projects' sources against the versions that the
// tests run.
func TestUpstream(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	kit.Must(t, err)
	m, err := readModules(root, os.DirFS(strings.TrimSpace(string(out))),
		"test/controlplane/go.mod", "go.mod", "test/containerd/go.mod", "test/interop/*/go.mod")
	kit.Must(t, err)
	if _, err := fs.Stat(m.cache, m.folder(kubernetes)); err != nil {
		kit.Need(t, "the module cache has no "+m.folder(kubernetes)+": make bin/controlplane downloads it",
			requireModules)
	}
	c, err := checkTree(root)
	kit.Must(t, err)
	lines := 0
	for _, u := range c.upstream {
		if u.from > 0 {
			lines++
		}
		if fault := m.fault(u); fault != "" {
			t.Error(fault)
		}
	}
	if lines < 12 || len(c.upstream) < 18 {
		t.Errorf("%d citations, %d of them of lines, want at least 18 and 12: is the right tree read?",
			len(c.upstream), lines)
	}
}

// TestUpstreamFaults holds the check against citations made up for it.
func TestUpstreamFaults(t *testing.T) {
	root := fstest.MapFS{
		"a/go.mod": {Data: []byte("module a.b/c\n\nrequire k8s.io/kubernetes v1.2.3\n\nrequire (\n\tx.org/y v0.1.0\n" +
			"\tx.org/y/z v0.2.0\n\tx.org/gone v0.3.0\n\tx.org/far v0.4.0 // indirect\n)\n")},
		"b/go.mod": {Data: []byte("require k8s.io/kubernetes v1.2.4\n")},
	}
	cache := fstest.MapFS{
		"k8s.io/kubernetes@v1.2.3/pkg/a.go": {
			Data: []byte("package a\n\nfunc one() {}\n\nfunc two() int { return 2 }\n")},
		"x.org/y@v0.1.0/z/b.go": {Data: []byte("package z\n\nvar old int\n")},
		"x.org/y/z@v0.2.0/b.go": {Data: []byte("package z\n\nvar now int\n")},
	}
	m, err := readModules(root, cache, "a/go.mod", "b/go.mod")
	kit.Must(t, err)
	for _, tt := range []struct{ name, text, want string }{
		{"a line", "(`pkg/a.go:3`, `func one`)", ""},
		{"lines, over the end of a line", "`pkg/a.go:3-5`,\n`two()\nint`", ""},
		{"a symbol", "`pkg/a.go`, `two`", ""},
		{"another module", "`x.org/y/z/b.go`, `now`", ""},
		{"a module that is not there", "`x.org/gone/b.go`, `anything`", ""},
		{"a file alone", "`pkg/none.go`; and our own `taint/x.go`, `nothing`", ""},
		{"another number", "a.go has 17 lines", ""},

		{"a line that moved", "`pkg/a.go:4`, `func one`", "lines 4 to 4 do not have `func one`, line 3 has"},
		{"a line behind the end", "`pkg/a.go:30`, `func one`", "has no lines 30 to 30"},
		{"a text that is gone", "`pkg/a.go:3`, `func three`", "does not have `func three`"},
		{"a symbol that is gone", "`pkg/a.go`, `three`", "does not have `three`"},
		{"no such file", "`pkg/b.go`, `one`", "k8s.io/kubernetes@v1.2.3 has no file pkg/b.go"},
		{"lines of a module that may be absent", "`x.org/y/z/b.go:3`, `now`", "cite a symbol of x.org/y/z/b.go"},
		{"a line without a text", "(`pkg/a.go:3`)", "pkg/a.go:3 has no text behind it"},
		{"a line without quotes", "see a.go:3", "a.go:3 is no citation"},
		{"lines in words", "`pkg/a.go`, lines 3 and 5", "a.go`, lines 3 is no citation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c citations
			c.readUpstream("x.md", tt.text)
			faults := c.faults
			for _, u := range c.upstream {
				if fault := m.fault(u); fault != "" {
					faults = append(faults, fault)
				}
			}
			got := strings.Join(faults, "\n")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := readModules(root, cache, "c/go.mod"); err == nil {
		t.Error("no pinned Kubernetes: no error")
	}
}
