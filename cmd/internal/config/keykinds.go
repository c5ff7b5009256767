package config

import (
	"encoding"
	"reflect"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// kind says how a file writes the values of a Go type. The walk over a file, the names of environment variables and the
// chart's schema use only kindOf and fieldsOf.
type kind int

const (
	kindNone        kind = iota
	kindMapping          // of the keys that fieldsOf returns
	kindFreeMapping      // of keys that the user chooses
	kindList
	kindDuration
	kindOwnText // the type's UnmarshalText reads it
	kindText
	kindBool
	kindInt
	kindNumber
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	providerType = reflect.TypeFor[Provider]()
	amountType   = reflect.TypeFor[fleet.Amount]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// builtinKinds are the kinds of plain types. Settings have no other plain types.
var builtinKinds = map[reflect.Kind]kind{
	reflect.Struct: kindMapping, reflect.Map: kindFreeMapping, reflect.Slice: kindList,
	reflect.String: kindText, reflect.Bool: kindBool, reflect.Float64: kindNumber,
	reflect.Int: kindInt, reflect.Int8: kindInt, reflect.Int16: kindInt, reflect.Int32: kindInt, reflect.Int64: kindInt,
}

func kindOf(t reflect.Type) kind {
	switch {
	case t == durationType:
		return kindDuration
	case reflect.PointerTo(t).Implements(textType):
		return kindOwnText
	}
	return builtinKinds[t.Kind()]
}

// isText reports whether a value of this kind is text in YAML.
func (k kind) isText() bool { return k == kindDuration || k == kindOwnText || k == kindText }

// isScalar reports whether a value of this kind is one word, which an environment variable can hold.
func (k kind) isScalar() bool { return k >= kindDuration }

// field is a key of a struct type.
type field struct {
	name string
	typ  reflect.Type // never a pointer
}

// fieldsOf returns the keys of a struct type: its exported fields with a yaml tag, and those of the structs that it
// embeds inline.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		typ := f.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch name, option, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case option == "inline":
			out = append(out, fieldsOf(typ)...)
		case f.IsExported() && name != "" && name != "-":
			out = append(out, field{name, typ})
		}
	}
	return out
}

func names(fields []field) []string { return mapList(fields, func(f field) string { return f.name }) }
