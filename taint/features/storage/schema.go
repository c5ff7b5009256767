package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/forcefence/forcefence/providers/expr"
)

// Schema describes the objects of a resource, as an API server's OpenAPI document or a CustomResourceDefinition does.
type Schema struct {
	Ref        string            `json:"$ref"`
	Type       string            `json:"type"`
	Properties map[string]Schema `json:"properties"`
	Items      *Schema           `json:"items"`
	Values     extra             `json:"additionalProperties"`
	AllOf      []Schema          `json:"allOf"`
	Preserve   bool              `json:"x-kubernetes-preserve-unknown-fields"`
	IntOrText  bool              `json:"x-kubernetes-int-or-string"`

	named map[string]Schema // the schemas that Ref may name
}

// extra is additionalProperties, which may be a bool as well.
type extra struct{ *Schema }

// UnmarshalJSON reads a Schema, or a bool, which defines no schema.
func (e *extra) UnmarshalJSON(b []byte) error {
	if s := strings.TrimSpace(string(b)); s == "true" || s == "false" || s == "null" {
		return nil
	}
	return json.Unmarshal(b, &e.Schema)
}

// ParseSchema reads one schema in JSON, as in a CustomResourceDefinition's openAPIV3Schema.
func ParseSchema(data []byte) (*Schema, error) {
	var s Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("reading schema: %s", expr.OneLine(err.Error()))
	}
	return &s, nil
}

// FindSchema finds a kind in an API server's OpenAPI 3 document (JSON) of its group and version. It returns nil if the
// document does not have the kind.
func FindSchema(document []byte, group, version, kind string) (*Schema, error) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Schema
				Kinds []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("reading OpenAPI document: %s", expr.OneLine(err.Error()))
	}
	named := map[string]Schema{}
	var found *Schema
	for name, s := range doc.Components.Schemas {
		named["#/components/schemas/"+name] = s.Schema
		for _, k := range s.Kinds {
			if k.Group == group && k.Version == version && k.Kind == kind {
				found = &s.Schema
			}
		}
	}
	if found != nil {
		found.named = named
	}
	return found, nil
}

// CheckSchemas checks the expressions against the schemas of the cluster's resources. It reports a field that a schema
// does not have, or has with another type. A kind without a schema is not checked.
func (a *Adapter) CheckSchemas(schemas map[Kind]*Schema) []Problem {
	p := &provider{known: map[string]Schema{}}
	base, err := types.NewRegistry()
	if err != nil {
		return []Problem{{"", "CEL cannot be set up: " + err.Error()}}
	}
	p.Provider = base
	envs, err := newEnvironments(func(k Kind) *cel.Type {
		s := schemas[k]
		if s == nil {
			return cel.DynType
		}
		p.named = append(p.named, s.named)
		return p.typeOf("object of "+k.String(), *s, 0)
	}, cel.CustomTypeProvider(p))
	if err != nil {
		return []Problem{{"", "the schema cannot be used: " + expr.OneLine(err.Error())}}
	}
	var bad []Problem
	for _, it := range a.Spec.expressionItems() {
		if e := a.exprs[it.path]; e != nil {
			if _, err := expr.CheckTypes(envs[it.path], e.text, e.wants); err != nil {
				bad = append(bad, Problem{
					it.path,
					strings.TrimPrefix(err.Error(), "not a CEL expression: ") + " (by the cluster's schema)",
				})
			}
		}
	}
	return bad
}

// provider gives CEL's type checker the fields of the schemas.
type provider struct {
	types.Provider
	known map[string]Schema // by the type's name
	named []map[string]Schema
}

// maxRefs is how many references may lead from one to the next.
const maxRefs = 10

func (p *provider) typeOf(name string, s Schema, refs int) *cel.Type {
	if len(s.AllOf) == 1 && s.Ref == "" {
		s.Ref = s.AllOf[0].Ref
	}
	if s.Ref != "" {
		for _, named := range p.named {
			if to, ok := named[s.Ref]; ok && refs < maxRefs {
				return p.typeOf(name, to, refs+1)
			}
		}
		return cel.DynType
	}
	switch {
	case s.Preserve || s.IntOrText:
		return cel.DynType
	case s.Type == "object" && len(s.Properties) > 0:
		p.known[name] = s
		return cel.ObjectType(name)
	case s.Type == "object" && s.Values.Schema != nil:
		return cel.MapType(cel.StringType, p.typeOf(name+" value", *s.Values.Schema, refs))
	case s.Type == "array" && s.Items != nil:
		return cel.ListType(p.typeOf(name+" element", *s.Items, refs))
	case s.Type == "string":
		return cel.StringType
	case s.Type == "boolean":
		return cel.BoolType
	case s.Type == "integer":
		return cel.IntType
	case s.Type == "number":
		return cel.DoubleType
	default:
		return cel.DynType
	}
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.known[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	s, ok := p.known[name]
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	var out []string
	for f := range s.Properties {
		out = append(out, f)
	}
	slices.Sort(out)
	return out, true
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	s, ok := p.known[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	f, ok := s.Properties[field]
	switch {
	case !ok:
		return nil, false
	case field == "metadata" && strings.HasPrefix(name, "object of ") && !strings.Contains(name, "."):
		return &types.FieldType{Type: cel.DynType}, true // every object has it, and few schemas define its fields
	default:
		return &types.FieldType{Type: p.typeOf(name+"."+field, f, 0)}, true
	}
}
