package all

import (
	_ "embed"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// Description is what users are shown about a type.
type Description struct {
	Type     string  `json:"type"`
	Off      string  `json:"off"`      // what "off" means there
	Identity string  `json:"identity"` // what the device reports about its machine's identity
	Batches  bool    `json:"batches"`  // one call asks for many machines
	Watches  bool    `json:"watches"`  // devices tell by themselves when to ask
	Fields   []Field `json:"fields"`
}

// Field is one key of a type's settings.
type Field struct {
	Key string `json:"key"` // "fingerprints[].host": of each element of a list
	// Kind is how the value is written: text, bool, number, duration (with a unit), settings; list or map of these; or
	// the words in quotes of which it is one.
	Kind    string `json:"kind"`
	Default string `json:"default,omitempty"` // "" where there is none
	Doc     string `json:"doc"`               // the comment of the field in the source, without default and words
}

// DescribeType describes a type, by its Config's struct and the comments that texts.txt holds of it. It contacts no
// device.
func DescribeType(ty providers.Type) Description {
	c := reflect.Indirect(reflect.ValueOf(ty.NewConfig()))
	does := texts[packagePath(c.Type())]
	lists, reports, fields := strings.Contains(does, batches), strings.Contains(does, watches), fieldsOf("", c)
	if preset, ok := c.Addr().Interface().(*rest.PresetConfig); ok {
		lists, reports = preset.HasList(), preset.HasEvents()
		fields = slices.DeleteFunc(fields, func(f Field) bool { return slices.Contains(preset.Unused(), f.Key) })
		for _, name := range slices.Sorted(maps.Keys(preset.Choices())) {
			v := preset.Choices()[name]
			f := Field{Key: "values." + name, Kind: "text", Doc: v.What + "; must be set"}
			if v.Default != nil {
				f.Default, f.Doc = *v.Default, v.What
			}
			fields = append(fields, f)
		}
	}
	return Description{
		Type: ty.Name, Off: ty.Off, Identity: ty.Identity,
		Batches: lists, Watches: reports,
		Fields: fields,
	}
}

// ReadmePath returns the file that explains a type, from the root of the repository.
func ReadmePath(ty providers.Type) string {
	c := ty.NewConfig()
	folder := packagePath(reflect.TypeOf(c).Elem())
	if _, ok := c.(*rest.PresetConfig); ok {
		return folder + "/presets/" + ty.Name + ".md"
	}
	return folder + "/README.md"
}

// The words of a line of texts.txt about a package's provider.
const (
	batches = "batches"
	watches = "watches"
)

// texts are the comments of the settings' fields by the field's name, "providers/redfish.Config.Auth". A program cannot
// read them from itself.
var texts = func() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(source) {
		key, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		m[key] = text
	}
	return m
}()

// source is made from the comments by `go test ./providers/all -update`.
//
//go:embed texts.txt
var source string

//go:generate go test . -run TestTexts -update
//go:generate go test . -run TestDoc -update

const module = "github.com/forcefence/forcefence/"

func packagePath(t reflect.Type) string { return strings.TrimPrefix(t.PkgPath(), module) }

// fieldName returns the name that texts.txt has for a field of a struct.
func fieldName(of reflect.Type, field string) string {
	return packagePath(of) + "." + of.Name() + "." + field
}

// fieldsOf returns the keys of a struct, in its order; prefix is the path to it.
func fieldsOf(prefix string, v reflect.Value) (out []Field) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			out = append(out, fieldsOf(prefix, v.Field(i))...)
			continue
		case key == "" || key == "-":
			continue
		}
		kind, inner := kindOf(f.Type)
		value, doc := defaultText(v.Field(i)), texts[fieldName(v.Type(), f.Name)]
		if value != "" {
			doc = strings.Replace(doc, "; default "+value, "", 1)
		}
		if words, rest := splitWords(doc); words != "" {
			kind, doc = words, rest
		}
		out = append(out, Field{Key: prefix + key, Kind: kind, Default: value, Doc: doc})
		switch {
		case inner == nil:
		case inner == f.Type:
			out = append(out, fieldsOf(prefix+key+".", v.Field(i))...)
		default:
			at := map[reflect.Kind]string{reflect.Slice: "[].", reflect.Map: ".*."}[f.Type.Kind()]
			out = append(out, fieldsOf(prefix+key+at, reflect.Zero(inner))...)
		}
	}
	return out
}

var oneOf = regexp.MustCompile(`^one of ([^;]+)(?:; |$)`)

// splitWords splits a comment, such as `one of on, off; off saves power`, into the words in quotes and the rest.
func splitWords(comment string) (words, rest string) {
	m := oneOf.FindStringSubmatch(comment)
	if m == nil {
		return "", comment
	}
	list := strings.Split(m[1], ", ")
	for i, word := range list {
		list[i] = `"` + strings.Trim(word, `"`) + `"`
	}
	return strings.Join(list, " "), comment[len(m[0]):]
}

// kindOf returns how a value of the type is written; inner is the struct whose keys it holds, if it does.
func kindOf(t reflect.Type) (kind string, inner reflect.Type) {
	text := reflect.TypeFor[encoding.TextUnmarshaler]()
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration", nil
	case t.Implements(text), reflect.PointerTo(t).Implements(text):
		return "text", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "text", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int, reflect.Float64:
		return "number", nil
	case reflect.Struct:
		return "settings", t
	case reflect.Slice:
		kind, inner = kindOf(t.Elem())
		return "list of " + kind, inner
	case reflect.Map:
		kind, inner = kindOf(t.Elem())
		return "map of " + kind, inner
	default:
		return t.Kind().String(), nil
	}
}

// defaultText returns a default as a user would write it.
func defaultText(v reflect.Value) string {
	if v.IsZero() || v.Kind() == reflect.Struct {
		return ""
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if b, err := m.MarshalText(); err == nil {
			return string(b)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return defaultText(v.Elem())
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, defaultText(v.Index(i)))
		}
		return strings.Join(all, ", ")
	}
	return fmt.Sprint(v.Interface())
}
