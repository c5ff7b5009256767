package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
)

// strictType is Config with one pointer field per provider type, which the YAML library alone can decode strictly.
func strictType() reflect.Type {
	item := []reflect.StructField{{Name: "Provider", Type: providerType, Tag: `yaml:",inline"`}}
	for i, ty := range configtest.Types() {
		item = append(item, reflect.StructField{
			Name: fmt.Sprintf("T%d", i), Type: reflect.TypeOf(ty.NewConfig()),
			Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", ty.Name)),
		})
	}
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if f.Name == "Providers" {
			f.Type = reflect.SliceOf(reflect.StructOf(item))
		}
		if f.IsExported() {
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	return reflect.StructOf(fields)
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// TestStrictDecoder compares the walk with the library: each line of which the library's strict decoder says that it
// does not fit the types has a fault.
func TestStrictDecoder(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d := yaml.NewDecoder(f)
		d.KnownFields(true)
		var faults *yaml.TypeError
		if err := d.Decode(reflect.New(strictType()).Interface()); !errors.As(err, &faults) {
			continue // it fits, is no YAML, or a text form is wrong, which ends the decoding
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
		if err != nil {
			t.Errorf("%s: %v, but the strict decoder reports %v", file, err, faults)
		}
		for _, text := range faults.Errors {
			found++
			if line := yamlLine.FindStringSubmatch(text); line == nil ||
				!strings.Contains("\n"+string(want), fmt.Sprintf("\n%s:%s: ", filepath.Base(file), line[1])) {
				t.Errorf("%s: the strict decoder reports %q, and no fault has this line", file, text)
			}
		}
	}
	if found < 30 {
		t.Errorf("the strict decoder reports %d faults in testdata, want at least 30", found)
	}
}
