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
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers"
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

// TestDecodeIsStrict holds the last door: what the walk should not have let through does not get into a Config, and its
// text is not shown.
func TestDecodeIsStrict(t *testing.T) {
	for _, text := range []string{"hunter2: 1", "mode: [hunter2]", "powerOffAfter: hunter2"} {
		r := newReader("f", nil)
		if r.decode(text, Default(), "") || len(r.errs) != 1 || strings.Contains(r.errs.Error(), "hunter2") {
			t.Errorf("%s: got %v, want one fault without the text", text, r.errs)
		}
	}
}

// FuzzText demands that text, as a key and as a value, is the same after it was written for the decoder.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		strings.Repeat("é", 1000), "", "a", "~", "3", "yes", "&a", "*a", "<<", "a: b # c", "|\n a",
		"\x00\u0085\u2028\ufeff", "\t\r\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		var got map[string]string
		r := newReader("f", nil)
		if !r.decode(mappingOf(appendPair(nil, text, quote(text))), &got, "") || len(got) != 1 || got[text] != text {
			t.Errorf("%q: got %q and %v", text, got, r.errs)
		}
	})
}

// careless is a type whose author forgot that a secret does not belong in the file.
type careless struct {
	configtest.Plain `yaml:",inline"`
	BMCPassword      string `yaml:"bmcPassword"`
}

func TestKnownKeyIsNoSecret(t *testing.T) {
	reg := providers.Registry{{Name: "careless", NewConfig: func() providers.Config { return &careless{} }}}
	_, err := Parse("f", []byte("providers: [{name: a, careless: {bmcPassword: hunter2}}]\n"), reg)
	if err == nil || !strings.Contains(err.Error(), "a secret does not belong in this file") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want the secret refused, and not shown", err)
	}
}
