package walls

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// foreignTags are the tags of formats that others defined, by file. The code has words of its own for them.
var foreignTags = map[string][]string{
	"kubelet-admit/install/find.go": {"containerRuntimeEndpoint"},
	"providers/redfish/find.go": {
		"#ComputerSystem.Reset", "#System.Reset", "ResetType@Redfish.AllowableValues", "Members@odata.nextLink",
	},
	"providers/redfish/session.go": {"Id"},
	"taint/features/storage/schema.go": {
		"$ref", "additionalProperties", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
		"x-kubernetes-group-version-kind",
	},
}

// TestTagsAreTheCodesWords finds a field whose name in JSON or YAML is another word than in Go. One thing has one word
// in the code, in files, in annotations and in what commands print.
func TestTagsAreTheCodesWords(t *testing.T) {
	out, err := exec.Command("git", "-C", root, "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tags, foreign := 0, 0
	for _, file := range strings.Fields(string(out)) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") || strings.HasPrefix(file, ".ci/") ||
			strings.HasSuffix(filepath.Dir(file), "test") {
			continue
		}
		for _, f := range taggedFields(t, file) {
			tags++
			switch {
			case normalWord(f.tag) == normalWord(f.name):
			case slices.Contains(foreignTags[file], f.tag):
				foreign++
			default:
				t.Errorf("%s: field %s has the tag %q: use one word", f.place, f.name, f.tag)
			}
		}
	}
	wanted := 0
	for _, of := range foreignTags {
		wanted += len(of)
	}
	if tags < 500 || foreign != wanted {
		t.Errorf("got %d tags, %d of them foreign; want at least 500, and %d foreign", tags, foreign, wanted)
	}
}

// taggedField is a field with a tag for JSON or YAML.
type taggedField struct{ place, name, tag string }

func taggedFields(t *testing.T, file string) (out []taggedField) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		field, is := n.(*ast.Field)
		if !is || field.Tag == nil || len(field.Names) != 1 {
			return true
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"json", "yaml"} {
			tag, _, _ := strings.Cut(reflect.StructTag(text).Get(format), ",")
			if tag != "" && tag != "-" {
				place := fmt.Sprintf("%s:%d", file, set.Position(field.Pos()).Line)
				out = append(out, taggedField{place, field.Names[0].Name, tag})
			}
		}
		return true
	})
	return out
}

// normalWord returns a word without its case, its separators and Redfish's prefix of annotations.
func normalWord(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", "@odata.", "").Replace(s))
}
