package config

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const reference = "../../../docs/reference/configuration.md"

// TestReference: docs/reference/configuration.md has every key, with the comment of its field in the source.
func TestReference(t *testing.T) {
	comments := map[string]string{}
	for _, folder := range []string{
		"../../../providers/rest", "../../../providers/remote", ".", "../../../taint/features/storage",
	} {
		readComments(t, folder, comments)
	}
	want := "# Configuration\n\nEvery key of the configuration. [config.example.yaml](../../config.example.yaml) " +
		"and\n[deploy/examples](../../deploy/examples) show them in use, and [devices](devices.md) has the settings " +
		"of each type of device. Editors complete keys by\n[the JSON schema](config.schema.json), which the first " +
		"line of each example names. This page is generated from the\ncomments of the fields " +
		"(`go generate ./cmd/internal/config`). Under `storage`, text " +
		"and bool begin the line of a CEL expression of that kind.\n\n| key | kind | default | what |\n" +
		"| --- | --- | --- | --- |\n" + describeKeys(t, reflect.TypeFor[Config](), "", comments)
	if flag.Lookup("update").Value.String() == "true" { // config_test.go has it
		if err := os.WriteFile(reference, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(reference); err != nil || string(have) != want {
		t.Errorf("%s is not what the source says (%v): go generate ./cmd/internal/config writes it", reference, err)
	}
}

var sourceLine = regexp.MustCompile("^(?:type (\\w+) struct|\t// (.*)|\t(\\w+) .*`yaml:\"\\w+\"`(?: +// (.*))?)")

// readComments reads what a package says of the fields of its structs, above and beside them: "StormGuard.Domains".
func readComments(t *testing.T, folder string, comments map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no source (%v)", folder, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of, above := "", ""
		for line := range strings.Lines(string(source)) {
			switch m := sourceLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); {
			case m == nil:
				above = ""
			case m[1] != "":
				of, above = m[1], ""
			case m[2] != "":
				above += m[2] + " "
			default:
				comments[of+"."+m[3]], above = strings.TrimSpace(above+m[4]), ""
			}
		}
	}
}

var defaultClause = regexp.MustCompile(`(?:^|; )default ([^;]+)`)

// splitDefault splits a comment, such as "at least 20s; default 60s", into the default and the rest.
func splitDefault(comment string) (value, rest string) {
	m := defaultClause.FindStringSubmatch(comment)
	if m == nil {
		return "", comment
	}
	return m[1], strings.TrimPrefix(strings.Replace(comment, m[0], "", 1), "; ")
}

// describeKeys returns a row for each key of a struct, and for the keys in it.
func describeKeys(t *testing.T, of reflect.Type, path string, comments map[string]string) (rows string) {
	t.Helper()
	for i := range of.NumField() {
		f := of.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if option == "inline" {
			rows += describeKeys(t, f.Type, path, comments)
		}
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		key, typ, inner := join(path, name), f.Type, ""
		for ; typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice; typ = typ.Elem() {
			if typ.Kind() == reflect.Slice {
				key += "[]"
			}
		}
		how := map[kind]string{kindMapping: "settings", kindFreeMapping: "mapping", kindDuration: "duration", kindBool: "bool", kindInt: "number",
			kindNumber: "number"}[kindOf(typ)]
		if how == "settings" {
			inner = describeKeys(t, typ, key, comments)
		}
		if list := reflect.ValueOf(words[typ]); list.IsValid() {
			how = strings.Trim(fmt.Sprintf("%q", list.Interface()), "[]")
		}
		text := comments[of.Name()+"."+f.Name]
		if text == "" && inner == "" {
			t.Errorf("%s.%s has no comment: say what the key is, its unit, its bounds and its default", of, f.Name)
		}
		value, text := splitDefault(strings.ReplaceAll(text, "|", `\|`))
		rows += fmt.Sprintf("| `%s` | %s | %s | %s |\n", key, cmp.Or(how, "text"), value, text) + inner
	}
	return rows
}
