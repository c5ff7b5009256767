package plug_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the functions into providers/README.md")

// quoted is a file of which the page shows functions, by their names.
var quoted = regexp.MustCompile("(?s)<!-- file: ([a-z/_.]+): ([\\w ]+) -->\n```go\n(.*?)```\n")

// The page shows functions of this package as they are, and so they compile and pass the suite.
func TestPageShowsTheFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	path := filepath.Join(root, "providers", "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	now := quoted.ReplaceAllStringFunc(string(page), func(block string) string {
		shown++
		m := quoted.FindStringSubmatch(block)
		functions := readFunctions(t, filepath.Join(root, filepath.FromSlash(m[1])), strings.Fields(m[2]))
		return "<!-- file: " + m[1] + ": " + m[2] + " -->\n```go\n" + strings.Join(functions, "\n") + "```\n"
	})
	switch {
	case shown != 1:
		t.Errorf("the page shows functions of %d files, want the type's", shown)
	case *update:
		if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
	case now != string(page):
		t.Error("the page shows other functions than there are: go test ./providers/providertest/plug -update")
	}
}

// readFunctions returns a file's functions of these names, with their comments, in the file's order.
func readFunctions(t *testing.T, file string, names []string) (out []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !slices.Contains(names, f.Name.Name) {
			continue
		}
		start := f.Pos()
		if f.Doc != nil {
			start = f.Doc.Pos()
		}
		out = append(out, string(source[set.Position(start).Offset:set.Position(f.End()).Offset])+"\n")
	}
	if len(out) != len(names) {
		t.Errorf("%s has %d of the functions %q", file, len(out), names)
	}
	return out
}
