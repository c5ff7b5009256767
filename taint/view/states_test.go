package view

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each state has its meaning, what happens next, and who acts.
func TestMeanings(t *testing.T) {
	for _, m := range Meanings() {
		known := m.Actor == "you" || m.Actor == "forcefence" || m.Actor == "none"
		if m.Means == "" || m.Next == "" || !known || strings.HasSuffix(m.Means+m.Next, ".") {
			t.Errorf("%s: got %+v", m.State, m)
		}
	}
	if len(States()) != len(Meanings()) {
		t.Errorf("got %d states, want %d", len(States()), len(Meanings()))
	}
}

// stateMakers may name a state as the one that a node has: NodeOf's own file alone.
const stateMakers = "taint/view/node.go"

// Only NodeOf decides a node's state. Other code reads Node.State, compares it and counts it. This wall finds a
// composite literal or an assignment elsewhere that gives something the state of a node.
func TestOnlyNodeOfMakesState(t *testing.T) {
	const root = "../.."
	makers := 0
	for _, folder := range []string{"taint", "cmd", "kubelet-admit"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, _ := filepath.Rel(root, path)
			for _, at := range findStateMakers(t, path) {
				if file == stateMakers {
					makers++
					continue
				}
				t.Errorf("%s: a node's state is made here: call view.NodeOf, and use its State", at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if makers == 0 {
		t.Error("the wall finds no place in NodeOf's file: it does not find any")
	}
}

// findStateMakers returns where a file gives something one of the states: by a keyed literal, an assignment, a return
// or a call. To compare with a state, to index a count by it, or to select by it, makes none.
func findStateMakers(t *testing.T, path string) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inView := parsed.Name.Name == "view"
	isState := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return inView && isStateName(e.Name)
		case *ast.SelectorExpr:
			of, _ := e.X.(*ast.Ident)
			return of != nil && of.Name == "view" && isStateName(e.Sel.Name)
		}
		return false
	}
	add := func(values ...ast.Expr) {
		for _, v := range values {
			if isState(v) {
				found = append(found, files.Position(v.Pos()).String())
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			add(n.Value)
		case *ast.AssignStmt:
			add(n.Rhs...)
		case *ast.ReturnStmt:
			add(n.Results...)
		}
		return true
	})
	return found
}

// isStateName reports whether an identifier of package view names one of the states.
func isStateName(name string) bool {
	switch name {
	case "StateNeedsPerson", "StateFencing", "StateNotReady", "StateUnfenceable", "StateLeftAlone", "StateFine":
		return true
	}
	return false
}

// The wall finds each form, and nothing where a state is only compared, indexed or selected.
func TestWallFindsStates(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"literal":    {"var n = view.Node{State: view.StateFine}", 1},
		"assignment": {"func f(n view.Node) { n.State = view.StateNotReady }", 1},
		"return":     {"func f() view.State { return view.StateNeedsPerson }", 1},
		"comparison": {"func f(n view.Node) bool { return n.State == view.StateFine }", 0},
		"index":      {"func f(m map[view.State]int) int { return m[view.StateFine] }", 0},
		"name":       {"func f() string { return view.StateFine.DisplayName() }", 0},
	} {
		path := filepath.Join(t.TempDir(), "f.go")
		if err := os.WriteFile(path, []byte("package p\n\n"+tc.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := findStateMakers(t, path); len(got) != tc.want {
			t.Errorf("%s: got %q, want %d", name, got, tc.want)
		}
	}
}
