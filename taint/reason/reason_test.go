package reason

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// constants returns the names and values of the package's constants of a type, read from its source.
func constants(t *testing.T, fileName, of string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), fileName, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec)
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != of {
				continue
			}
			for i, name := range spec.Names {
				lit := spec.Values[i].(*ast.BasicLit)
				out[name.Name] = constant.StringVal(constant.MakeFromLiteral(lit.Value, lit.Kind, 0))
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no constants of type %s", of)
	}
	return out
}

// Every reason has exactly one row, and every row has a reason.
func TestEveryReasonHasOneRow(t *testing.T) {
	names := map[Reason]string{}
	for name, value := range constants(t, "reason.go", "Reason") {
		if r := Reason(value); value == "" || names[r] != "" {
			t.Errorf("%s: %q is empty, or also the value of %s", name, value, names[r])
		}
		names[Reason(value)] = name
	}
	count := map[Reason]int{}
	for _, row := range Table() {
		if count[row.Reason]++; names[row.Reason] == "" {
			t.Errorf("a row has %q, which is no reason", row.Reason)
		}
	}
	for r, name := range names {
		if count[r] != 1 || RowOf(r).Reason != r {
			t.Errorf("%s: got %d rows and RowOf %+v, want one row", name, count[r], RowOf(r))
		}
	}
}

// A row is consistent: only a row with a text is Info or Warning, its words in braces are known, its text is a
// sentence, and its state is one of the metric's.
func TestRows(t *testing.T) {
	words := []string{"node", "device", "detail", "why", "raw", "pods", "attachments", "by", "min", "max", "default",
		"fence", "staying", "first", "s", "says", "refuses", "is"}
	braces := regexp.MustCompile(`\{([^{}]*)\}`)
	var states []string
	for _, s := range constants(t, "reason.go", "State") {
		states = append(states, s)
	}
	for _, row := range Table() {
		for _, m := range braces.FindAllStringSubmatch(row.Text, -1) {
			if !slices.Contains(words, m[1]) {
				t.Errorf("%s: unknown word %s", row.Reason, m[0])
			}
		}
		if strings.ContainsAny(braces.ReplaceAllString(row.Text, ""), "{}") || strings.ContainsAny(row.Remedy, "{}") {
			t.Errorf("%s: unbalanced brace: %q, %q", row.Reason, row.Text, row.Remedy)
		}
		switch {
		case (row.Text == "") != (row.Severity == Debug):
			t.Errorf("%s: severity %d with the text %q: want Info or Warning with a text, Debug without", row.Reason,
				row.Severity, row.Text)
		case row.Severity > Warning:
			t.Errorf("%s: severity %d", row.Reason, row.Severity)
		case row.Text == "" && row.Remedy != "":
			t.Errorf("%s: a remedy without an Event", row.Reason)
		case row.Text != "" && row.Text != "{detail}" && !strings.HasSuffix(row.Text, "."):
			t.Errorf("%s: the text is no sentence: %q", row.Reason, row.Text)
		case row.State != "" && !slices.Contains(states, string(row.State)):
			t.Errorf("%s: unknown state %q", row.Reason, row.State)
		}
	}
}

// Every reason is used: the product's source names it somewhere, other than to compare with it.
func TestEveryReasonIsGiven(t *testing.T) {
	given := map[string]bool{}
	look := func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "reason":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		note(file, given)
		return nil
	}
	for _, dir := range []string{"..", "../../cmd/internal/app"} {
		if err := filepath.WalkDir(dir, look); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range constants(t, "reason.go", "Reason") {
		if !given[name] {
			t.Errorf("the reason %s (%s) is never used", name, value)
		}
	}
}

// note adds the reasons that a file uses.
func note(file *ast.File, given map[string]bool) {
	name := ""
	for _, i := range file.Imports {
		if strings.HasSuffix(i.Path.Value, `/taint/reason"`) {
			if name = "reason"; i.Name != nil {
				name = i.Name.Name
			}
		}
	}
	if name == "" {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			n.List = nil // a switch only compares with them
		case *ast.BinaryExpr:
			return n.Op != token.EQL && n.Op != token.NEQ
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == name {
				given[n.Sel.Name] = true
			}
		}
		return true
	})
}

// A note is never longer than the API server accepts. Otherwise a user could suppress Events with long names of pods or
// volumes.
func TestNote(t *testing.T) {
	row := Row{Text: "Pod {pod} is ended ({detail})."}
	if got, want := row.EventNote("{pod}", "a", "{detail}", "{pod}"), "Pod a is ended ({pod})."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := row.EventNote("{pod}", "a", "{detail}", "cut..."); strings.Contains(got, "....") {
		t.Errorf("a cut word: got %q, want three dots", got)
	}
	if got := (Row{Text: "Cause: {detail}."}).EventNote("{detail}", "cut..."); got != "Cause: cut..." {
		t.Errorf("a cut word at the end: got %q", got)
	}
	short := row.EventNote("{pod}", "", "{detail}", "")
	for text, whole := range map[string]bool{
		strings.Repeat("x", 1024-len(short)): true, strings.Repeat("x", 1025-len(short)): false,
		strings.Repeat("\u00e4", 1024): false, strings.Repeat("x\u00e4", 1024): false,
	} {
		got := row.EventNote("{pod}", text, "{detail}", "")
		if len(got) > 1024 || len(got) < 1020 || !utf8.ValidString(got) || strings.HasSuffix(got, ").") != whole ||
			strings.HasSuffix(got, "...") == whole {
			t.Errorf("%d bytes of a name: got %d bytes that end in %q, want it whole: %t", len(text), len(got),
				got[len(got)-5:], whole)
		}
	}
}

// A sentence about several devices has the plural of its verb and noun.
func TestDeviceWords(t *testing.T) {
	row := Row{Text: "Device{s} {device} {says} so: {detail}. The device{s} {is} old, and {refuses}."}
	for want, names := range map[string][]string{
		"Device (none) says so: x. The device is old, and refuses.":      nil,
		"Device a says so: x. The device is old, and refuses.":           {"a"},
		"Devices a and b say so: x. The devices are old, and refuse.":    {"a", "b"},
		"Devices a, b and c say so: x. The devices are old, and refuse.": {"a", "b", "c"},
	} {
		if got := row.EventNote(append(DeviceWords(names), "{detail}", "x")...); got != want {
			t.Errorf("%v: got %q, want %q", names, got, want)
		}
	}
	for _, row := range Table() {
		number := regexp.MustCompile(`(?i)device \{device\}|\{device\} (says|refuses|is|has|does)\b`)
		if number.MatchString(row.Text) {
			t.Errorf("%s: %q is false of several devices", row.Reason, row.Text)
		}
	}
}
