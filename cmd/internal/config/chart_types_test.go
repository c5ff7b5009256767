package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

const chartTypes = "../../../deploy/helm/forcefence/files/config.types.json"

// kindNames are how chartTypes calls the kinds.
var kindNames = map[kind]string{
	kindMapping: "mapping", kindFreeMapping: "free", kindList: "list", kindDuration: "duration", kindOwnText: "text",
	kindText: "text", kindBool: "bool", kindInt: "int", kindNumber: "number",
}

// boundTexts are what check-config says of values outside of bounds.
var boundTexts = map[string]string{
	"lines.port":                "must be a port, from 1 to 65535, or 0 for no lines",
	"maxPowerOnsPerDay":         fmt.Sprintf("must be from 1 to %d", maxPowerOns),
	"nodes[].levels[].attempts": "must be from 1 to 10",
	"providers[].concurrency":   "must be from 1 to 100",
	"providers[].ratePerSecond": "must be more than 0 and at most 1000",
}

// typesOf describes what this package reads into the type: kinds, keys, words, bounds, and the settings that a provider
// must have, each with check-config's sentence. The chart's template forcefence.typeFaults reads it.
func typesOf(t reflect.Type, path string) object {
	out := object{"kind": kindNames[kindOf(t)]}
	for _, of := range []any{t, path} {
		if list := words[of]; list != nil {
			out["words"] = list
		}
	}
	key := path[strings.LastIndex(path, ".")+1:]
	switch kindOf(t) {
	case kindMapping:
		keys := object{}
		for _, f := range fieldsOf(t) {
			keys[f.name] = typesOf(f.typ, join(path, f.name))
		}
		out["example"], out["order"] = exampleOf(t), names(fieldsOf(t))
		if t == providerType {
			for _, ty := range all.Types() {
				settings := typesOf(reflect.TypeOf(ty.NewConfig()).Elem(), path)
				settings["required"] = requiredOf(ty)
				keys[ty.Name] = settings
			}
			out["types"] = all.Types().TypeNames()
		}
		out["keys"] = keys
	case kindFreeMapping:
		out["example"] = "{key: value}"
		out["items"] = typesOf(t.Elem(), path+"[]")
	case kindList:
		out["items"] = typesOf(t.Elem(), path+"[]")
	case kindInt, kindNumber:
		if b := bounds[path]; b != nil {
			out["bounds"], out["boundText"] = b, boundTexts[path]
		}
	}
	if t == amountType {
		out["kind"], out["sum"] = "amount", key == "maxPowerOffs"
	}
	for _, name := range selectorKeys {
		if out["kind"] == "text" && name == key {
			out["kind"] = "selector"
		}
	}
	return out
}

// requiredOf returns the settings without which the type's Validate reports them as missing. Another setting may stand
// in the place of one.
func requiredOf(typ providers.Type) (required []object) {
	for _, p := range typ.NewConfig().Validate() {
		or := alternatives[p.Path]
		_, depends := alternatives[typ.Name+"."+p.Path]
		if !depends && strings.HasPrefix(p.Text, "missing") {
			required = append(required, object{"key": p.Path, "or": or, "text": p.Text})
		}
	}
	return required
}

// TestChartTypes: the Helm chart has the types of the configuration by which it refuses a wrong value, in check-config's
// words, before anything is installed.
func TestChartTypes(t *testing.T) {
	types := typesOf(reflect.TypeFor[Config](), "")
	removed := object{}
	for path, now := range removedKeys {
		removed[path] = now
	}
	types["removed"], types["detachTimeout"] = removed, short(Default().DetachTimeout)
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(types); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(chartTypes)
	if bytes.Equal(have, want.Bytes()) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" { // config_test.go has it
		t.Fatalf("%s is not what the configuration's types say (%v): go test ./cmd/internal/config -run "+
			"TestChartTypes -update", chartTypes, err)
	}
	if err := os.WriteFile(chartTypes, want.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
