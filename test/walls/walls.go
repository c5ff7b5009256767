// Package walls checks which packages may import which, and which functions the pure ones may not call. The rules are data
// (rules.go), each with its why; a rule about a package that does not exist yet binds it from its first file on.
//
// It imports the standard library only and parses the source: it needs no build, no network and no module cache, and sees the
// files of every build constraint. Direct imports count: the Kubernetes API types themselves pull in a logger.
package walls

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path that our packages begin with.
const Module = "github.com/forcefence/forcefence"

// Rule says what the packages it binds may not do. A nil list allows anything, an empty one nothing.
//
// A pattern is a path below the module ("" is its root): exact ("taint"), one level ("providers/*"), or the package and all below
// it ("cmd/..."). Patterns for foreign packages are matched alike, and "std" is the standard library.
type Rule struct {
	Bind   []string // the packages it binds
	Except []string // of them, those it does not
	Ours   []string // of our packages, only these may be imported
	Others []string // of everybody else's, only these
	Never  []string // foreign packages that may not be imported, in spite of Others
	Calls  []string // package-level names that may not be used: "time.Now"
	Why    string
}

// Package is one folder's Go files.
type Package struct {
	Path  string // below the module
	Files []File
}

// File is what the rules ask of one file.
type File struct {
	Name    string // below the module
	Test    bool
	Doc     bool
	Imports map[string]int // import path -> line
	Uses    map[string]int // "path.Name" of an imported package -> line of the first use
	Dots    map[string]int // imports into the file's own scope, whose uses cannot be told
}

// Load parses the Go files below root, without nested modules, testdata and hidden folders.
func Load(root fs.FS) ([]Package, error) {
	byPath := map[string]*Package{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			base := path.Base(name)
			if name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parse(name, src)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		if byPath[dir] == nil {
			byPath[dir] = &Package{Path: dir}
		}
		byPath[dir].Files = append(byPath[dir].Files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading packages: %w", err)
	}
	var pkgs []Package
	for _, p := range byPath {
		pkgs = append(pkgs, *p)
	}
	slices.SortFunc(pkgs, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return pkgs, nil
}

func parse(name string, src []byte) (File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, err
	}
	f := File{
		Name: name, Test: strings.HasSuffix(name, "_test.go"), Doc: tree.Doc.Text() != "",
		Imports: map[string]int{}, Uses: map[string]int{}, Dots: map[string]int{},
	}
	names := map[string]string{} // the file's name of a package -> its path
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, err
		}
		line := fset.Position(spec.Pos()).Line
		f.Imports[p] = line
		switch {
		case spec.Name == nil:
			names[path.Base(p)] = p
		case spec.Name.Name == ".":
			f.Dots[p] = line
		default:
			names[spec.Name.Name] = p
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && names[id.Name] != "" {
			if use := names[id.Name] + "." + sel.Sel.Name; f.Uses[use] == 0 {
				f.Uses[use] = fset.Position(sel.Pos()).Line
			}
		}
		return true
	})
	return f, nil
}

// Check returns every violation as "file:line: what (why)". Tests are not bound: they may use whatever shows that the code works.
// But every package has a doc comment, also one that holds tests only.
func Check(pkgs []Package, rules []Rule) []string {
	var bad []string
	for _, p := range pkgs {
		if !slices.ContainsFunc(p.Files, func(f File) bool { return f.Doc }) {
			bad = append(bad, fmt.Sprintf("%s: package %q has no doc comment (the first screen says what it is for)", p.Files[0].Name, p.Path))
		}
		for _, r := range rules {
			if !matches(r.Bind, p.Path) || matches(r.Except, p.Path) {
				continue
			}
			for _, f := range p.Files {
				if !f.Test {
					bad = append(bad, r.check(p.Path, f)...)
				}
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

func (r Rule) check(pkg string, f File) (bad []string) {
	for imp, line := range f.Imports {
		ours, ok := strings.CutPrefix(imp, Module)
		ours = strings.TrimPrefix(ours, "/")
		switch {
		case ok && (ours == pkg || r.Ours == nil || matches(r.Ours, ours)):
		case !ok && !matches(r.Never, foreign(imp)) && !matches(r.Never, imp) &&
			(r.Others == nil || matches(r.Others, foreign(imp)) || matches(r.Others, imp)):
		default:
			bad = append(bad, fmt.Sprintf("%s:%d: imports %s (%s)", f.Name, line, imp, r.Why))
		}
	}
	for _, call := range r.Calls {
		if line := f.Uses[call]; line != 0 {
			bad = append(bad, fmt.Sprintf("%s:%d: uses %s (%s)", f.Name, line, call, r.Why))
		}
		if line := f.Dots[call[:strings.LastIndex(call, ".")]]; line != 0 {
			bad = append(bad, fmt.Sprintf("%s:%d: imports the package of %s into its own scope (%s)", f.Name, line, call, r.Why))
		}
	}
	return bad
}

// foreign returns "std" for a package of the standard library, and the path of any other.
func foreign(imp string) string {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return "std"
	}
	return imp
}

func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pat string) bool {
		if root, ok := strings.CutSuffix(pat, "..."); ok {
			return root == "" || p+"/" == root || strings.HasPrefix(p, root)
		}
		if root, ok := strings.CutSuffix(pat, "*"); ok {
			rest, below := strings.CutPrefix(p, root)
			return below && rest != "" && !strings.Contains(rest, "/")
		}
		return pat == p
	})
}
