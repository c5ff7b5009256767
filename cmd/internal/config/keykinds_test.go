package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
)

const chartSchema = "../../../deploy/helm/forcefence/values.schema.json"

// words are what a key of the type may say, or the key at the path.
var words = map[any]any{
	reflect.TypeFor[Mode]():               modes,
	reflect.TypeFor[AfterFence]():         []AfterFence{LeaveOff, PowerOn},
	reflect.TypeFor[DetachAction]():       detachActions,
	reflect.TypeFor[ManualMarks]():        []ManualMarks{Refuse, Trust},
	reflect.TypeFor[ControlPlanePolicy](): []ControlPlanePolicy{Never, Quorum},
	reflect.TypeFor[KubeVirtPolicy]():     []KubeVirtPolicy{KubeVirtNever, KubeVirtPowerOff},
	reflect.TypeFor[Karpenter]():          []Karpenter{IgnoreClaims, RespectClaims, HandOver},
	reflect.TypeFor[From](): []From{FromSystemUUID, FromProviderID, FromAnnotation, FromName, FromTemplate,
		FromList},
	reflect.TypeFor[Part](): []Part{Last, All},
	reflect.TypeFor[policy.Trigger](): []policy.Trigger{policy.NotReady, policy.BecameNotReady,
		policy.StorageUnhealthy},
	reflect.TypeFor[policy.WithoutProof](): []policy.WithoutProof{policy.StorageFences, policy.AcceptDuplicates},
	reflect.TypeFor[drain.Policy]():        drain.Policies,
	reflect.TypeFor[storage.Find]():        []storage.Find{storage.ByHandle, storage.ByPV, storage.ByClaim},
	"policies[].preset":                    presetNames(),
	"policies[].volumes":                   []string{"any", "all"},
	"providers[].events":                   []string{"off", "sse", "push"}, // of redfish, which also takes ""
}

// bounds are what the keys at these paths may say beyond their type.
var bounds = map[string]object{
	"lines.port":                {"minimum": 0, "maximum": 65535},
	"maxPowerOnsPerDay":         {"minimum": 1, "maximum": maxPowerOns},
	"nodes[].levels[].attempts": {"minimum": 1, "maximum": 10},
	"providers[].concurrency":   {"minimum": 1, "maximum": 100},
	"providers[].ratePerSecond": {"exclusiveMinimum": 0, "maximum": 1000},
}

// alternatives are settings of a type in whose place another one will do. "" depends on a value.
var alternatives = map[string]string{"passwordFile": "passwordEnv", "uri": "uris", "pdu.username": ""}

// requireSettings adds to a type's schema the settings without which its Validate reports them as missing.
func requireSettings(schema object, typ providers.Type) {
	var required []string
	for _, p := range typ.NewConfig().Validate() {
		or, optional := alternatives[p.Path]
		_, depends := alternatives[typ.Name+"."+p.Path]
		switch {
		case depends || !strings.HasPrefix(p.Text, "missing"):
		case optional:
			schema["anyOf"] = []object{{"required": []string{p.Path}}, {"required": []string{or}}}
		default:
			section, key, nested := strings.Cut(p.Path, ".")
			required = append(required, section)
			if inner, is := schema["properties"].(object)[section].(object); is && nested {
				inner["required"] = []string{key}
			}
		}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
}

func presetNames() (out []string) {
	for _, p := range policy.Presets {
		out = append(out, p.Name)
	}
	return out
}

type object = map[string]any

// schemaOf is a JSON schema of what this package reads into the type: names, types, words, bounds, and the settings
// that a provider must have. What else is wrong, the chart's templates and check-config find.
func schemaOf(t reflect.Type, path string) object {
	for _, of := range []any{t, path} {
		if list := words[of]; list != nil {
			return object{"enum": list}
		}
	}
	switch kindOf(t) {
	case kindMapping:
		properties := object{}
		for _, f := range fieldsOf(t) {
			properties[f.name] = schemaOf(f.typ, join(path, f.name))
		}
		if t == providerType {
			for _, ty := range all.Types() {
				settings := schemaOf(reflect.TypeOf(ty.NewConfig()).Elem(), path)
				requireSettings(settings, ty)
				properties[ty.Name] = settings
			}
		}
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	case kindFreeMapping:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), path+"[]")}
	case kindList:
		return object{"type": "array", "items": schemaOf(t.Elem(), path+"[]")}
	case kindDuration:
		return object{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	case kindBool:
		return object{"type": "boolean"}
	case kindInt:
		return bounded("integer", path)
	case kindNumber:
		return bounded("number", path)
	}
	if t == amountType {
		return object{"type": []string{"integer", "string"}, "minimum": 0,
			"pattern": `^([0-9]+(\+(100|[1-9]?[0-9])%)?|(100|[1-9]?[0-9])%)$`}
	}
	return object{"type": "string"}
}

func bounded(typ, path string) object {
	out := object{"type": typ}
	maps.Copy(out, bounds[path])
	return out
}

// TestChartSchema: the chart's schema gives editors the keys and words of the configuration, and refuses none of its
// values, because Helm would print the schema's message in the place of check-config's sentence. The chart's templates
// refuse them (TestChartTypes). The rest of the file is written by hand.
func TestChartSchema(t *testing.T) {
	have, err := os.ReadFile(chartSchema)
	if err != nil {
		t.Fatal(err)
	}
	var schema object
	if err := json.Unmarshal(have, &schema); err != nil {
		t.Fatal(err)
	}
	config := schemaOf(reflect.TypeFor[Config](), "")
	schema["definitions"].(object)["config"] = config
	texts := map[string]string{}
	readValues(t, texts)
	readReference(t, texts)
	describeSchema(config, "config", texts)
	openSchema(config)
	config["type"] = "object"
	describeSchema(schema, "", texts)
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(have, want.Bytes()) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" { // config_test.go has it
		t.Fatalf("%s is not what the configuration's types say: go test ./cmd/internal/config -run TestChartSchema "+
			"-update", chartSchema)
	}
	if err := os.WriteFile(chartSchema, want.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openSchema removes what refuses a value from a schema. The words of a key become examples.
func openSchema(schema object) {
	if all, ok := schema["enum"]; ok {
		schema["examples"] = all
	}
	for key, inner := range schema {
		switch key {
		case "properties":
			for _, s := range inner.(object) {
				openSchema(s.(object))
			}
		case "items":
			openSchema(inner.(object))
		case "description", "examples":
		default:
			delete(schema, key)
		}
	}
}

// describeSchema adds the texts to the keys of a schema, for editors.
func describeSchema(schema object, path string, texts map[string]string) {
	properties, _ := schema["properties"].(object)
	for key, inner := range properties {
		s, ok := inner.(object)
		if !ok {
			continue
		}
		at := join(path, key)
		if text, known := texts[at]; known && text == "" {
			delete(s, "description") // of an earlier comment
		} else if text = cmp.Or(text, texts[at+"[]"]); text != "" {
			s["description"] = text
		}
		describeSchema(s, at, texts)
	}
	if items, ok := schema["items"].(object); ok {
		describeSchema(items, path+"[]", texts)
	}
}

// readValues reads the comments above the keys of the chart's values.
func readValues(t *testing.T, texts map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(chartSchema), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	var read func(n *yaml.Node, path string)
	read = func(n *yaml.Node, path string) {
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			at := join(path, n.Content[i].Value)
			paragraphs := strings.Split(n.Content[i].HeadComment, "\n\n") // those before are headings
			lines := regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(paragraphs[len(paragraphs)-1], "")
			if strings.HasPrefix(lines, "--") {
				lines = "" // a heading alone
			}
			texts[at] = strings.Join(strings.Fields(lines), " ")
			read(n.Content[i+1], at)
		}
	}
	read(document.Content[0], "")
}

var referenceRow = regexp.MustCompile("(?m)^\\| `(.+)` \\| .* \\| .* \\| (.*) \\|$")

// readReference reads what the page of TestReference says of each key of the configuration.
func readReference(t *testing.T, texts map[string]string) {
	t.Helper()
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range referenceRow.FindAllStringSubmatch(string(page), -1) {
		texts["config."+row[1]] = strings.ReplaceAll(row[2], `\|`, "|")
	}
}

// TestExampleHasEveryKey: users look for keys in the examples, so these together name each.
func TestExampleHasEveryKey(t *testing.T) {
	example := ""
	for _, file := range exampleFiles {
		example += readExample(t, file)
	}
	var look func(schema object, path string)
	look = func(schema object, path string) {
		properties, _ := schema["properties"].(object)
		for key, s := range properties {
			if !regexp.MustCompile(`\b` + key + `\b`).MatchString(example) {
				t.Errorf("no example has %s", join(path, key))
			}
			look(s.(object), join(path, key))
		}
		for _, inner := range []string{"items", "additionalProperties"} {
			if s, ok := schema[inner].(object); ok {
				look(s, path+"[]")
			}
		}
	}
	look(schemaOf(reflect.TypeFor[Config](), ""), "")
}
