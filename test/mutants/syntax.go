package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// source is the module's packages as go compiles them here, read when they are asked for.
type source struct {
	root string

	mu   sync.Mutex // guards what follows
	fset *token.FileSet
	pkgs map[string]map[string]*goFile // by folder below root, by path
}

type goFile struct {
	text string
	tree *ast.File
}

func newSource(root string) *source {
	return &source{root: root, fset: token.NewFileSet(), pkgs: map[string]map[string]*goFile{}}
}

// pkg returns a package's files without its tests.
func (s *source) pkg(dir string) (map[string]*goFile, error) {
	if files := s.pkgs[dir]; files != nil {
		return files, nil
	}
	entries, err := os.ReadDir(filepath.Join(s.root, dir))
	if err != nil {
		return nil, fmt.Errorf("reading package: %w", err)
	}
	files := map[string]*goFile{}
	for _, e := range entries {
		path := filepath.Join(s.root, dir, e.Name())
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		here, err := build.Default.MatchFile(filepath.Dir(path), e.Name())
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading package: %w", err)
		case !here:
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading package: %w", err)
		}
		tree, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading package: %w", err)
		}
		files[path] = &goFile{string(text), tree}
	}
	s.pkgs[dir] = files
	return files, nil
}

// weaken returns the mutant's file as it is to be laid over the source.
func (s *source) weaken(m Mutant) (path, text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, name := m.where()
	files, err := s.pkg(dir)
	if err != nil {
		return "", "", err
	}
	old, err := parseFragment(m.Old)
	if err != nil {
		return "", "", fmt.Errorf("reading Old: %w", err)
	}
	var found []place
	declared := false
	for path, f := range files {
		for _, d := range declarations(f.tree)[name] {
			declared, found = true, append(found, f.places(path, s.fset, d, old)...)
		}
	}
	switch {
	case len(found) == 1:
		text, err = found[0].replace(files[found[0].path].text, m.New)
		return found[0].path, text, err
	case len(found) > 1:
		return "", "", fmt.Errorf("is %d times in %s: %s", len(found), m.In, m.Old)
	case declared:
		err = fmt.Errorf("does not stand in %s: %s", m.In, m.Old)
	default:
		err = fmt.Errorf("%s declares no %s", dir, name)
	}
	moved := map[string]bool{}
	for path, f := range files {
		for at, decls := range declarations(f.tree) {
			for _, d := range decls {
				if len(f.places(path, s.fset, d, old)) > 0 {
					moved[at] = true
				}
			}
		}
	}
	if len(moved) > 0 {
		err = fmt.Errorf("%w (but in %s)", err, strings.Join(slices.Sorted(maps.Keys(moved)), ", "))
	}
	return "", "", err
}

// declarations are a file's functions, constants, variables and types by their names, methods as Type.Name. Several may
// share a name: init, and _.
func declarations(f *ast.File) map[string][]ast.Node {
	out := map[string][]ast.Node{}
	add := func(name string, n ast.Node) { out[name] = append(out[name], n) }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			add(name, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add(id.Name, spec)
					}
				case *ast.TypeSpec:
					add(spec.Name.Name, spec)
				}
			}
		}
	}
	return out
}

// receiver names a method's type without its star and its type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// A fragment is Go syntax out of its context: neighbours in one list of a program. A text may be read as several: x()
// is an expression and a statement, and a case belongs to a switch or to a select.
type fragment []ast.Node

// shells are what makes a file of a fragment, and where it lies there.
var shells = []struct {
	before, after string
	find          func(*ast.File) []ast.Node
}{
	{"var _ = _{", "}", func(f *ast.File) []ast.Node { // expressions; elements of a literal with their keys
		return nodes(f.Decls[0].(*ast.GenDecl).Specs[0].(*ast.ValueSpec).Values[0].(*ast.CompositeLit).Elts)
	}},
	{"func _() {", "\n}", func(f *ast.File) []ast.Node { return nodes(f.Decls[0].(*ast.FuncDecl).Body.List) }},
	{"func _() { switch {", "\n}}", func(f *ast.File) []ast.Node {
		return nodes(f.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.SwitchStmt).Body.List)
	}},
	{"func _() { select {", "\n}}", func(f *ast.File) []ast.Node {
		return nodes(f.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.SelectStmt).Body.List)
	}},
}

func nodes[N ast.Node](list []N) []ast.Node {
	out := make([]ast.Node, len(list))
	for i, n := range list {
		out[i] = n
	}
	return out
}

func parseFragment(text string) (readings []fragment, err error) {
	marked := text
	for _, at := range slices.Backward(rests(text)) {
		marked = marked[:at] + rest + marked[at+len("..."):]
	}
	var errs []error
	for _, sh := range shells {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+sh.before+marked+sh.after,
			parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
		} else if list := sh.find(f); len(f.Decls) == 1 && len(list) > 0 {
			readings = append(readings, list)
		}
	}
	if len(readings) == 0 {
		return nil, errors.Join(append(errs, errors.New("neither expressions nor statements nor cases"))...)
	}
	return readings, nil
}

// rest replaces the "..." of a fragment: no code uses it as a statement, as it does not compile.
const rest = "_"

func isRest(n ast.Node) bool {
	x, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	id, ok := x.X.(*ast.Ident)
	return ok && id.Name == rest
}

// rests tells where a text has "..." as a statement, as opposed to a call's or a parameter's.
func rests(text string) (at []int) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	f := fset.AddFile("", fset.Base(), len(text))
	s.Init(f, []byte(text), nil, 0)
	for before := token.SEMICOLON; ; {
		pos, tok, _ := s.Scan()
		if tok == token.EOF {
			return at
		}
		if tok == token.ELLIPSIS && slices.Contains([]token.Token{token.LBRACE, token.COLON, token.SEMICOLON}, before) {
			at = append(at, f.Offset(pos))
		}
		before = tok
	}
}

// A place is where a fragment occurs in a file.
type place struct {
	path     string
	from, to int        // offsets
	rests    [][2]int   // what each "..." matched
	parent   ast.Node   // has the list that the fragment is a part of
	list     []ast.Node // as a whole
}

// places are where one of a fragment's readings occurs in a declaration.
func (f *goFile) places(path string, fset *token.FileSet, decl ast.Node, old []fragment) (out []place) {
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	seen := map[[2]int]bool{}
	ast.Inspect(decl, func(parent ast.Node) bool {
		for _, list := range lists(parent) {
			for _, fr := range old {
				for i := range max(len(list)-len(fr)+1, 0) {
					c := comparison{}
					if !c.same(reflect.ValueOf([]ast.Node(fr)), reflect.ValueOf(list[i:i+len(fr)])) {
						continue
					}
					p := place{path: path, from: offset(list[i].Pos()), to: offset(list[i+len(fr)-1].End()),
						parent: parent, list: list}
					if seen[[2]int{p.from, p.to}] {
						continue
					}
					seen[[2]int{p.from, p.to}] = true
					for _, r := range c.rests {
						span := [2]int{} // of nothing
						if len(r) > 0 {
							span = [2]int{offset(r[0].Pos()), offset(r[len(r)-1].End())}
						}
						p.rests = append(p.rests, span)
					}
					out = append(out, p)
				}
			}
		}
		return true
	})
	return out
}

// lists are a node's expressions, statements and clauses: those beside each other, and each that is alone.
func lists(n ast.Node) (out [][]ast.Node) {
	v := reflect.ValueOf(n)
	if _, ok := n.(*ast.ParenExpr); ok || !v.IsValid() {
		return nil // what is in parentheses is found with them
	}
	for field, value := range v.Elem().Fields() {
		switch field.Type {
		case reflect.TypeFor[[]ast.Expr]():
			out = append(out, nodes(value.Interface().([]ast.Expr)))
		case reflect.TypeFor[[]ast.Stmt]():
			out = append(out, nodes(value.Interface().([]ast.Stmt)))
		case reflect.TypeFor[ast.Expr](), reflect.TypeFor[ast.Stmt](): // no selector, no label, nor what is declared
			if !value.IsNil() {
				out = append(out, []ast.Node{value.Interface().(ast.Node)})
			}
		}
	}
	return out
}

// replace puts a text in this place.
func (p place) replace(src, text string) (string, error) {
	at := rests(text)
	if len(at) > len(p.rests) {
		return "", fmt.Errorf("reading New: more \"...\" than Old has: %s", text)
	}
	for i, at := range slices.Backward(at) {
		text = text[:at] + src[p.rests[i][0]:p.rests[i][1]] + text[at+len("..."):]
	}
	after := src[p.to:]
	if _, isExpr := p.list[0].(ast.Expr); isExpr {
		if strings.TrimSpace(text) == "" { // its comma goes with it
			after = strings.TrimPrefix(strings.TrimLeft(after, " \t\n"), ",")
		}
		if new, err := parser.ParseExpr(text); err == nil {
			_, binary := new.(*ast.BinaryExpr)
			switch p.parent.(type) {
			case *ast.BinaryExpr, *ast.UnaryExpr, *ast.StarExpr, *ast.SelectorExpr:
				if binary { // stays one operand
					text = "(" + text + ")"
				}
			}
		}
	}
	return src[:p.from] + text + after, nil
}

// comparison compares syntax without its formatting and comments, and notes what each "..." matches.
type comparison struct{ rests [][]ast.Node }

func (c *comparison) same(old, src reflect.Value) bool {
	old, src = bare(old), bare(src)
	if !old.IsValid() || !src.IsValid() {
		return old.IsValid() == src.IsValid()
	}
	if old.Type() != src.Type() {
		return false
	}
	switch old.Kind() {
	case reflect.Slice:
		list, _ := old.Interface().([]ast.Stmt)
		at := slices.IndexFunc(list, func(s ast.Stmt) bool { return isRest(s) })
		if at < 0 {
			return old.Len() == src.Len() && c.begins(old, src)
		}
		after := old.Len() - at - 1
		if src.Len() < at+after || !c.begins(old.Slice(0, at), src) {
			return false
		}
		c.rests = append(c.rests, nodes(src.Interface().([]ast.Stmt)[at:src.Len()-after]))
		return c.begins(old.Slice(at+1, old.Len()), src.Slice(src.Len()-after, src.Len()))
	case reflect.Struct:
		for field, value := range old.Fields() {
			other := src.FieldByIndex(field.Index)
			switch field.Type {
			case reflect.TypeFor[*ast.CommentGroup]():
			case reflect.TypeFor[token.Pos]():
				if (field.Name == "Ellipsis" || field.Name == "Assign") && value.IsZero() != other.IsZero() {
					return false // f(x...) is not f(x), type A = B is not type A B
				}
			default:
				if !c.same(value, other) {
					return false
				}
			}
		}
		return true
	default:
		return old.Equal(src)
	}
}

// begins reports that src begins with what old lists.
func (c *comparison) begins(old, src reflect.Value) bool {
	for i := range old.Len() {
		if !c.same(old.Index(i), src.Index(i)) {
			return false
		}
	}
	return true
}

// bare is what a value holds or points to, without the parentheses around it; invalid for nil.
func bare(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) {
		if p, ok := v.Interface().(*ast.ParenExpr); ok {
			v = reflect.ValueOf(p.X)
		} else {
			v = v.Elem()
		}
	}
	return v
}
