package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// editorSchema is the JSON schema by which editors complete and check a configuration.
const editorSchema = "../../../docs/reference/config.schema.json"

// schemaPlace is where the first line of an example, or of a person's file, finds that schema.
const schemaPlace = "https://raw.githubusercontent.com/forcefence/forcefence/main/docs/reference/config.schema.json"

// exampleFiles are the configurations that show all keys, from the repository's root. A person begins with the first.
var exampleFiles = []string{
	"deploy/examples/config-start.yaml", "config.example.yaml", "deploy/examples/config-devices.yaml",
	"deploy/examples/config-storage.yaml", "deploy/examples/config-controllers.yaml",
}

// readExample returns the text of one of exampleFiles.
func readExample(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var referenceDefault = regexp.MustCompile("(?m)^\\| `(.+)` \\| .* \\| (.*) \\| .* \\|$")

// addDefaults adds to the keys of a schema the defaults that the page of TestReference names, where the key may say so.
func addDefaults(schema object, path string, defaults map[string]string) {
	properties, _ := schema["properties"].(object)
	for key, inner := range properties {
		s, at := inner.(object), join(path, key)
		var value any
		switch text := strings.Trim(defaults[at], "`"); s["type"] {
		case "boolean":
			if is, err := strconv.ParseBool(text); err == nil {
				value = is
			}
		case "integer", "number":
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				value = n
			}
		case "string", nil:
			if text != "" && len(text) < 40 && !strings.Contains(text, " ") {
				value = strings.Trim(text, `"`)
			}
		}
		if value != nil && len(schemaFaults(s, value, at)) == 0 {
			s["default"] = value
		}
		addDefaults(s, at, defaults)
	}
	if items, ok := schema["items"].(object); ok {
		addDefaults(items, path+"[]", defaults)
	}
}

// TestEditorSchema: docs/reference/config.schema.json is what the configuration's types say, with descriptions and
// defaults. It shares its generator with the chart's schema.
func TestEditorSchema(t *testing.T) {
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	texts, defaults := map[string]string{}, map[string]string{}
	readReference(t, texts)
	for _, row := range referenceDefault.FindAllStringSubmatch(string(page), -1) {
		defaults[row[1]] = row[2]
	}
	schema := schemaOf(reflect.TypeFor[Config](), "")
	describeSchema(schema, "config", texts)
	addDefaults(schema, "", defaults)
	schema["$schema"], schema["title"] = "http://json-schema.org/draft-07/schema#", "forcefence's configuration"
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("update").Value.String() == "true" { // config_test.go has it
		if err := os.WriteFile(editorSchema, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(editorSchema); err != nil || !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s is not what the configuration's types say (%v): go generate ./cmd/internal/config", editorSchema,
			err)
	}
	for _, part := range []string{`"default": "60s"`, `"description": "`, `"default": true`} {
		if !strings.Contains(want.String(), part) {
			t.Errorf("the schema has no %s", part)
		}
	}
}

// schemaFaults returns what a value lacks of a schema of schemaOf: kinds, keys, words, patterns and bounds.
func schemaFaults(schema object, value any, at string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	if list, has := schema["enum"]; has {
		known := reflect.ValueOf(list)
		for i := range known.Len() {
			if fmt.Sprint(known.Index(i).Interface()) == fmt.Sprint(value) {
				return nil
			}
		}
		fault("%v is none of %v", value, list)
		return faults
	}
	kind := map[reflect.Kind]string{reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number"}[reflect.ValueOf(value).Kind()]
	kinds := []string{fmt.Sprint(schema["type"])}
	if several, is := schema["type"].([]string); is {
		kinds = several
	}
	if !slices.Contains(kinds, kind) && (kind != "integer" || !slices.Contains(kinds, "number")) &&
		(kind != "number" || !slices.Contains(kinds, "integer")) {
		fault("is %s, want %s", kind, strings.Join(kinds, " or "))
		return faults
	}
	switch v := value.(type) {
	case string:
		if pattern, has := schema["pattern"].(string); has && !regexp.MustCompile(pattern).MatchString(v) {
			fault("%q does not match %s", v, pattern)
		}
	case int:
		if least, has := schema["minimum"].(int); has && v < least {
			fault("%d is less than %d", v, least)
		}
		if most, has := schema["maximum"].(int); has && v > most {
			fault("%d is more than %d", v, most)
		}
	case []any:
		for i, one := range v {
			faults = append(faults, schemaFaults(schema["items"].(object), one, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		properties, _ := schema["properties"].(object)
		for key, inner := range v {
			of, known := properties[key].(object)
			if !known {
				if of, known = schema["additionalProperties"].(object); !known {
					fault("has an unknown key %s", key)
					continue
				}
			}
			faults = append(faults, schemaFaults(of, inner, join(at, key))...)
		}
		required, _ := schema["required"].([]string)
		for _, key := range required {
			if _, has := v[key]; !has {
				fault("lacks %s", key)
			}
		}
	}
	return faults
}

// TestSchemaFaults: by the editors' schema the examples and the good configurations have no fault, and those with
// unknown keys, wrong types and words have one.
func TestSchemaFaults(t *testing.T) {
	schema := schemaOf(reflect.TypeFor[Config](), "")
	check := func(file, text string) []string {
		t.Helper()
		var value map[string]any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return schemaFaults(schema, value, "")
	}
	for _, file := range exampleFiles {
		text := readExample(t, file)
		if faults := check(file, text); len(faults) > 0 {
			t.Errorf("%s: %q", file, faults)
		}
		if first := "# yaml-language-server: $schema=" + schemaPlace + "\n"; !strings.HasPrefix(text, first) {
			t.Errorf("%s does not begin with %s, by which editors find the schema", file, first)
		}
	}
	for file, want := range map[string]string{
		"unknown-keys": "unknown key", "types": "want ", "modes": "is none of", "ranges": "than", "providers": "",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "broken", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if faults := check(file, string(text)); !slices.ContainsFunc(faults,
			func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("%s: got %q, want a fault with %q", file, faults, want)
		}
	}
}

// shownKey is a key with its value or what is below it, also behind the mark of a comment.
var shownKey = regexp.MustCompile(`(?m)^(?:# ?)?( *(?:# )?(?:- )?)\{?([a-zA-Z]+):(?: |$)`)

// TestExampleSizes: the first example fits a screen, and the second shows at most 80 keys.
func TestExampleSizes(t *testing.T) {
	if lines := strings.Count(readExample(t, exampleFiles[0]), "\n"); lines > 25 {
		t.Errorf("%s has %d lines, want 25 at most", exampleFiles[0], lines)
	}
	known, shown := map[string]bool{}, map[string]bool{}
	var look func(schema object)
	look = func(schema object) {
		properties, _ := schema["properties"].(object)
		for key, s := range properties {
			known[key] = true
			look(s.(object))
		}
		if items, ok := schema["items"].(object); ok {
			look(items)
		}
	}
	look(schemaOf(reflect.TypeFor[Config](), ""))
	for _, m := range shownKey.FindAllStringSubmatch(readExample(t, exampleFiles[1]), -1) {
		if known[m[2]] {
			shown[m[2]] = true
		}
	}
	if len(shown) > 80 || len(shown) < 40 {
		t.Errorf("%s shows %d keys, want 80 at most and 40 at least", exampleFiles[1], len(shown))
	}
}
