package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
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

func moduleRoot(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}

// pkg returns a package's files without its tests.
func (s *source) pkg(dir string) (map[string]*goFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		if here, err := build.Default.MatchFile(filepath.Dir(path), e.Name()); err != nil {
			return nil, fmt.Errorf("reading package: %w", err)
		} else if !here {
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
