package walls

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/forcefence/forcefence/"

// row is what imports.txt says of a package.
type row struct {
	section string
	allowed []string
}

// parseRows reads imports.txt. A line that begins with a space goes on with the row above.
func parseRows(text string) (map[string]row, error) {
	rows, section, name := map[string]row{}, "", ""
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0, strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			continue
		case !strings.HasPrefix(line, " "):
			var isRow bool
			if name, isRow = strings.CutSuffix(words[0], ":"); !isRow || section == "" {
				return nil, fmt.Errorf("line %d: want a section, and then PACKAGE: NAMES", number+1)
			}
			if _, twice := rows[name]; twice {
				return nil, fmt.Errorf("line %d: a second row of %s", number+1, name)
			}
			words = words[1:]
		}
		rows[name] = row{section, append(rows[name].allowed, words...)}
	}
	return rows, nil
}

// covers reports whether a name of a row is an import's: the package itself, or the module that the package is of.
func covers(name, imported string) bool {
	return name == imported || isForeign(name) && strings.HasPrefix(imported, name+"/")
}

// isForeign reports whether a name is of another module: its first part is a domain.
func isForeign(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.Contains(first, ".")
}

func isIn(folder, name string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// findForbidden returns what imports.txt does not allow, for each package of its folders: "a imports b".
func findForbidden(rows map[string]row, imports map[string][]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		r, has := rows[name]
		bound := isIn("taint", name) || isIn("providers", name) || isIn("kubelet-admit", name)
		if !has && !bound {
			continue
		}
		for _, imported := range imports[name] {
			if isForeign(imported) && r.section == "tests" {
				continue
			}
			if !slices.ContainsFunc(r.allowed, func(a string) bool { return covers(a, imported) }) {
				out = append(out, name+" imports "+imported)
			}
		}
	}
	return out
}

// findUnruly returns the rows that break the rules of their folders, whoever imports what they allow.
func findUnruly(rows map[string]row) (out []string) {
	inCore := func(name string) bool { return isIn("taint", name) && !isIn("taint/features", name) }
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for _, a := range rows[name].allowed {
			rule := ""
			switch section := rows[name].section; {
			case isIn("cmd", a):
				rule = "its packages are programs, or internal"
			case isIn("test", a) && section != "tests" && name != "providers/providertest":
				rule = "what only tests need is not shipped"
			case inCore(name) && isIn("taint/features", a):
				rule = "the core imports no feature"
			case isIn("taint", name) && isIn("providers", a) && a != "providers" && a != "providers/expr":
				rule = "taint knows the contract of a device, and no type"
			case section == "pure" && isForeign(a) && !slices.Contains(pureModules(name), a):
				rule = "a pure package imports no client"
			case section == "devices" && isIn("taint", a):
				rule = "a device knows no cluster"
			case section == "hook" && !isForeign(a) && a != "taint" && !isIn("kubelet-admit", a):
				rule = "the hook knows the words of taint alone"
			}
			if rule != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", name, a, rule))
			}
		}
	}
	return out
}

// pureModules are the other modules that a pure package may import: types, and languages without a client.
func pureModules(name string) []string {
	modules := []string{"k8s.io/api", "k8s.io/apimachinery"}
	switch name {
	case "taint/features/storage":
		modules = append(modules, "github.com/google/cel-go")
	case "taint/features/room":
		modules = append(modules, "k8s.io/component-helpers")
	}
	return modules
}

// importsBelow returns what each package of the folders imports, without the standard library. Packages of this module
// have no prefix, below testdata neither. Files of tests do not count.
func importsBelow(t *testing.T, folders ...string) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, folders...)...)
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		imported := slices.DeleteFunc(names[1:], func(n string) bool { return !isForeign(n) })
		for i := range imported {
			imported[i] = strings.TrimPrefix(imported[i], module)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(names[0], module), "test/walls/testdata/bad/")
		found[name] = imported
	}
	return found
}

func readRows(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseRows(string(text))
	if err != nil {
		t.Fatalf("imports.txt: %v", err)
	}
	return rows
}

// TestImports: a package imports what its row of imports.txt allows, and a row allows nothing more.
func TestImports(t *testing.T) {
	rows := readRows(t)
	imports := importsBelow(t, "./taint/...", "./providers/...", "./kubelet-admit/...", "./test/...")
	for _, forbidden := range findForbidden(rows, imports) {
		t.Errorf("%s, which imports.txt does not allow", forbidden)
	}
	for _, unruly := range findUnruly(rows) {
		t.Error("imports.txt: " + unruly)
	}
	for name, r := range rows {
		of, exists := imports[name]
		if !exists {
			t.Errorf("imports.txt has a row of %s: there is no such package", name)
		}
		for _, a := range r.allowed {
			if exists && !slices.ContainsFunc(of, func(imported string) bool { return covers(a, imported) }) {
				t.Errorf("imports.txt lets %s import %s, which it does not", name, a)
			}
		}
	}
}

// TestBadImports: each of the packages of testdata/bad that imports what it may not is found.
func TestBadImports(t *testing.T) {
	got := findForbidden(readRows(t), importsBelow(t, "./test/walls/testdata/bad/..."))
	text, err := os.ReadFile(filepath.Join("testdata", "imports.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(text)), "\n"), got); diff != "" {
		t.Errorf("testdata/imports.txt, -want +got:\n%s", diff)
	}
}

// TestUnrulyRows: a row cannot allow what the rules of its folder forbid.
func TestUnrulyRows(t *testing.T) {
	rows, err := parseRows(`[pure]
taint/view: taint taint/features/room k8s.io/client-go
taint/features/room: cmd/internal/app
    k8s.io/component-helpers
[acts]
taint/kube: providers/redfish test/kit providers/expr
[devices]
providers/ipmi: providers taint
[hook]
kubelet-admit/nri: taint kubelet-admit/admit taint/decide
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kubelet-admit/nri imports taint/decide: the hook knows the words of taint alone",
		"providers/ipmi imports taint: a device knows no cluster",
		"taint/features/room imports cmd/internal/app: its packages are programs, or internal",
		"taint/kube imports providers/redfish: taint knows the contract of a device, and no type",
		"taint/kube imports test/kit: what only tests need is not shipped",
		"taint/view imports taint/features/room: the core imports no feature",
		"taint/view imports k8s.io/client-go: a pure package imports no client",
	}
	if diff := cmp.Diff(want, findUnruly(rows)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, says := range map[string]string{
		"taint: a": "line 1: want a section", "[pure]\ntaint a": "line 2: want a section",
		"[pure]\na: b\na: c": "line 3: a second row of a",
	} {
		if _, err := parseRows(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want an error that says %q", text, err, says)
		}
	}
}
