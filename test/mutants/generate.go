package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Candidate is a change of a package's source that a machine thought of.
type Candidate struct {
	ID   string // names it as long as its declaration does not change: package, declaration, change
	Dir  string // the package's folder, below the module's root
	Path string // the file
	Line int
	From int // the bytes of the file that New replaces
	To   int
	New  string

	Tests []string // arguments of go test; nil: what testers chooses
}

// text is the file that the candidate makes.
func (c Candidate) text() (string, error) {
	old, err := os.ReadFile(c.Path)
	if err != nil {
		return "", fmt.Errorf("reading source: %w", err)
	}
	return string(old[:c.From]) + c.New + string(old[c.To:]), nil
}

// generator finds the candidates of packages, and tells which of them compile.
type generator struct {
	*source
	exports map[string]string // of every package that one imports: what go compiled of it
	imports types.Importer
	info    map[string]*types.Info // by folder
}

// newGenerator has go compile what the packages in the folders import.
func newGenerator(ctx context.Context, src *source, dirs []string) (*generator, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = src.root
	listed, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("listing packages: %w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	g := &generator{source: src, exports: map[string]string{}, info: map[string]*types.Info{}}
	for line := range strings.Lines(string(listed)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		g.exports[path] = file
	}
	g.imports = importer.ForCompiler(src.fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(g.exports[path]) })
	return g, nil
}

// check reads the types of a package, with one file's tree in the place of path's.
func (g *generator) check(dir, path string, tree *ast.File, info *types.Info) error {
	files, err := g.pkg(dir)
	if err != nil {
		return err
	}
	var all []*ast.File
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if p == path {
			all = append(all, tree)
		} else {
			all = append(all, files[p].tree)
		}
	}
	var faults bytes.Buffer
	conf := types.Config{Importer: g.imports, Error: func(err error) { faults.WriteString("\n\t" + err.Error()) }}
	if _, err := conf.Check(dir, g.fset, all, info); err != nil {
		return fmt.Errorf("does not compile:%s", &faults)
	}
	return nil
}

// compiles tells whether a candidate does.
func (g *generator) compiles(c Candidate) (bool, error) {
	text, err := c.text()
	if err != nil {
		return false, err
	}
	tree, err := parser.ParseFile(g.fset, c.Path, text, parser.SkipObjectResolution)
	return err == nil && g.check(c.Dir, c.Path, tree, nil) == nil, nil
}

// candidates are a package's, in the order of its text.
func (g *generator) candidates(dir string) ([]Candidate, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	if err := g.check(dir, "", nil, info); err != nil {
		return nil, fmt.Errorf("package %s %w", dir, err)
	}
	files := g.pkgs[dir]
	var out []Candidate
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := &finder{generator: g, dir: dir, path: path, file: files[path], info: info}
		for _, d := range f.file.tree.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && !onlyText(d) {
				f.decl = d
				ast.Inspect(d.Body, f.visit)
			}
		}
		out = append(out, f.found...)
	}
	same := map[string]int{}
	for i := range out {
		if same[out[i].ID]++; same[out[i].ID] > 1 {
			out[i].ID += fmt.Sprintf(" (%d)", same[out[i].ID])
		}
	}
	return out, nil
}

// onlyText tells whether a function makes nothing but text for people.
func onlyText(d *ast.FuncDecl) bool {
	return d.Recv != nil && (d.Name.Name == "String" || d.Name.Name == "Error")
}

// finder finds the candidates of one file.
type finder struct {
	*generator
	dir, path string
	file      *goFile
	info      *types.Info
	decl      *ast.FuncDecl
	found     []Candidate
}

// add takes down that text takes the place of a node.
func (f *finder) add(n ast.Node, kind, text string) {
	from, to := f.fset.Position(n.Pos()), f.fset.Position(n.End())
	name := f.decl.Name.Name
	if f.decl.Recv != nil {
		name = receiver(f.decl.Recv.List[0].Type) + "." + name
	}
	change := kind + ": " + oneLine(f.textOf(n))
	if text != "" {
		change += " -> " + oneLine(text)
	}
	f.found = append(f.found, Candidate{
		ID: f.dir + "." + name + " " + change, Dir: f.dir, Path: f.path, Line: from.Line, From: from.Offset,
		To: to.Offset, New: text,
	})
}

// text is a node's.
func (f *finder) textOf(n ast.Node) string {
	return f.file.text[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset]
}

// oneLine is what identifies a text: its first 80 characters, without layout.
func oneLine(text string) string {
	const most = 80
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}

// visit adds what can be done with one node, and goes on below it.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		return true
	case *ast.CallExpr:
		if f.isText(n) {
			return false
		}
		f.swapArguments(n)
	case *ast.BlockStmt:
		f.removeStatements(n.List)
	case *ast.CaseClause:
		f.removeStatements(n.Body)
		f.add(n, "remove case", "")
	case *ast.CommClause:
		f.removeStatements(n.Body)
	case *ast.IfStmt:
		if _, ok := bareExpr(n.Cond).(*ast.BinaryExpr); !ok {
			f.negate(n.Cond)
		}
	case *ast.BinaryExpr:
		f.changeOperator(n)
	case *ast.Ident:
		f.swapConstant(n, n)
	case *ast.SelectorExpr:
		f.swapConstant(n, n.Sel)
		return f.info.Uses[n.Sel] == nil || f.info.Uses[n.Sel].Parent() == nil // a field or method: on to its operand
	case *ast.BasicLit:
		f.changeNumber(n)
	}
	return true
}

// isText tells whether a call makes text for people, or logs: no test should compare all of that.
func (f *finder) isText(c *ast.CallExpr) bool {
	if !f.calls(c, "fmt", "errors", "log/slog", "github.com/go-logr/logr") {
		return false
	}
	name := bareExpr(c.Fun).(*ast.SelectorExpr).Sel.Name
	return name != "Is" && name != "As" && name != "AsType" && name != "Join"
}

// isLock tells whether a call is of a lock: without it others crash or wait, which says nothing of a test.
func (f *finder) isLock(c *ast.CallExpr) bool { return f.calls(c, "sync", "sync/atomic") }

// calls tells whether a call's function is declared in one of the packages.
func (f *finder) calls(c *ast.CallExpr, packages ...string) bool {
	sel, ok := bareExpr(c.Fun).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	obj := f.info.Uses[sel.Sel]
	return obj != nil && obj.Pkg() != nil && slices.Contains(packages, obj.Pkg().Path())
}

func (f *finder) removeStatements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if c, ok := s.X.(*ast.CallExpr); ok && (f.isText(c) || f.isLock(c)) {
				continue
			}
		case *ast.DeferStmt:
			if f.isLock(s.Call) {
				continue
			}
		case *ast.DeclStmt, *ast.LabeledStmt, *ast.BlockStmt, *ast.EmptyStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt,
			*ast.SelectStmt, *ast.CaseClause, *ast.CommClause:
			continue // what is in them is removed one by one
		}
		f.add(s, "remove", "")
	}
}

func bareExpr(e ast.Expr) ast.Expr {
	for {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}

func (f *finder) negate(e ast.Expr) {
	if u, ok := bareExpr(e).(*ast.UnaryExpr); ok && u.Op == token.NOT {
		f.add(e, "negate", f.textOf(u.X))
		return
	}
	f.add(e, "negate", "!("+f.textOf(e)+")")
}

// operators are what takes an operator's place: the opposite of an equality, and a bound that moves by one.
var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR, token.ADD: token.SUB, token.SUB: token.ADD,
}

func (f *finder) changeOperator(b *ast.BinaryExpr) {
	switch b.Op {
	case token.LAND, token.LOR:
		f.add(b, "drop arm", f.textOf(b.X))
		f.add(b, "drop arm", f.textOf(b.Y))
		return
	}
	other, ok := operators[b.Op]
	if t := f.info.Types[b].Type; b.Op == token.ADD && t != nil && isString(t) {
		return
	}
	if ok {
		f.add(b, "change operator", f.textOf(b.X)+" "+other.String()+" "+f.textOf(b.Y))
	}
}

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// swapConstant takes another constant of the same type of its own, or the other truth value.
func (f *finder) swapConstant(whole ast.Expr, id *ast.Ident) {
	c, ok := f.info.Uses[id].(*types.Const)
	if !ok {
		return
	}
	if c.Pkg() == nil {
		switch c.Name() {
		case "true":
			f.add(whole, "swap constant", "false")
		case "false":
			f.add(whole, "swap constant", "true")
		}
		return
	}
	named, ok := c.Type().(*types.Named)
	if !ok || c.Parent() != c.Pkg().Scope() || named.Obj().Pkg() != c.Pkg() {
		return
	}
	if other := nextConstant(c); other != "" {
		text := f.textOf(whole)
		f.add(whole, "swap constant", strings.TrimSuffix(text, id.Name)+other)
	}
}

// nextConstant is the one that follows in the order of names among those of the type that are exported alike and have
// another value.
func nextConstant(c *types.Const) string {
	var names []string
	scope := c.Pkg().Scope()
	for _, name := range scope.Names() {
		o, ok := scope.Lookup(name).(*types.Const)
		if ok && types.Identical(o.Type(), c.Type()) && o.Exported() == c.Exported() &&
			(name == c.Name() || !constant.Compare(o.Val(), token.EQL, c.Val())) {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return ""
	}
	return names[(slices.Index(names, c.Name())+1)%len(names)]
}

// changeNumber adds one, but not to a duration of zero: no test should notice a nanosecond.
func (f *finder) changeNumber(l *ast.BasicLit) {
	t := f.info.Types[l].Type
	if l.Kind != token.INT || l.Value == "0" && t != nil && t.String() == "time.Duration" {
		return
	}
	if n, err := strconv.ParseInt(l.Value, 0, 64); err == nil {
		f.add(l, "change number", strconv.FormatInt(n+1, 10))
	}
}

// swapArguments swaps two neighbours of one type.
func (f *finder) swapArguments(c *ast.CallExpr) {
	if f.info.Types[c.Fun].IsType() {
		return
	}
	for i := 1; i < len(c.Args); i++ {
		a, b := c.Args[i-1], c.Args[i]
		ta, tb := f.info.Types[a].Type, f.info.Types[b].Type
		if ta == nil || tb == nil || !types.Identical(ta, tb) || f.textOf(a) == f.textOf(b) || isCommutative(c) {
			continue
		}
		pair := &span{a.Pos(), b.End()}
		f.add(pair, "swap arguments", f.textOf(b)+", "+f.textOf(a))
	}
}

// isCommutative tells whether a call does not care for the order of what it is given.
func isCommutative(c *ast.CallExpr) bool {
	switch fun := bareExpr(c.Fun).(type) {
	case *ast.Ident:
		return fun.Name == "min" || fun.Name == "max" || fun.Name == "append"
	case *ast.SelectorExpr:
		return fun.Sel.Name == "Equal" || fun.Sel.Name == "Join"
	}
	return false
}

// span is a piece of text that is no node.
type span struct{ pos, end token.Pos }

func (s *span) Pos() token.Pos { return s.pos }
func (s *span) End() token.Pos { return s.end }
