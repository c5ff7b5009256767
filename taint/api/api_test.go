package api

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestDefinition holds the CustomResourceDefinition against the types that it was generated from: go generate
// ./taint/api
func TestDefinition(t *testing.T) {
	data, err := os.ReadFile("../../deploy/helm/forcefence/files/forcefence.io_fencings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct {
				Kind, Plural string
				ShortNames   []string
			}
			Versions []struct {
				Name         string
				Schema       struct{ OpenAPIV3Schema definition }
				Subresources struct{ Status *struct{} }
			}
		}
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	s := crd.Spec
	if crd.Metadata.Name != Resource.Resource+"."+Resource.Group || s.Group != GroupVersion.Group ||
		s.Scope != "Cluster" || s.Names.Kind != Kind ||
		s.Names.Plural != Resource.Resource || !slices.Equal(s.Names.ShortNames, []string{"fcg"}) ||
		len(s.Versions) != 1 || s.Versions[0].Name != GroupVersion.Version ||
		s.Versions[0].Subresources.Status == nil {
		t.Fatalf("definition: got %+v", crd)
	}
	fields := compare(t, "Fencing", reflect.TypeFor[Fencing](), s.Versions[0].Schema.OpenAPIV3Schema)
	if fields < 45 {
		t.Errorf("compared %d fields, want all of them", fields)
	}
}

type definition struct {
	Type       string
	Format     string
	MaxItems   int
	Required   []string
	Properties map[string]definition
	Items      *definition
}

// compare holds a type against its schema, and counts the fields.
func compare(t *testing.T, path string, typ reflect.Type, s definition) (fields int) {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	want := ""
	switch {
	case typ == reflect.TypeFor[metav1.MicroTime]() || typ == reflect.TypeFor[metav1.Time]():
		if s.Format != "date-time" {
			t.Errorf("%s: got format %q, want date-time", path, s.Format)
		}
		want = "string"
	case typ.Kind() == reflect.String:
		want = "string"
	case typ.Kind() == reflect.Bool:
		want = "boolean"
	case typ.Kind() == reflect.Int32 || typ.Kind() == reflect.Int64:
		want = "integer"
	case typ.Kind() == reflect.Slice:
		want = "array"
		if s.Items == nil {
			t.Fatalf("%s: got no items", path)
		}
		if strings.HasPrefix(typ.Elem().PkgPath(), "github.com") && s.MaxItems == 0 ||
			strings.HasSuffix(path, "names") && s.MaxItems != MaxNames ||
			strings.HasSuffix(path, "timeline") && s.MaxItems != MaxTimeline ||
			strings.HasSuffix(path, "evidence") && s.MaxItems != MaxEvidence {
			t.Errorf("%s: got at most %d items", path, s.MaxItems)
		}
		fields += compare(t, path+"[]", typ.Elem(), *s.Items)
	case typ == reflect.TypeFor[metav1.ObjectMeta]():
		want = "object"
	case typ.Kind() == reflect.Struct:
		want = "object"
		var names []string
		for i := range typ.NumField() {
			name, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if strings.Contains(opts, "inline") {
				continue // kind and apiVersion
			}
			fields++
			names = append(names, name)
			p, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s: the definition has no %s", path, name)
				continue
			}
			fields += compare(t, path+"."+name, typ.Field(i).Type, p)
		}
		for name := range s.Properties {
			if !slices.Contains(names, name) && name != "kind" && name != "apiVersion" {
				t.Errorf("%s: the type has no %s", path, name)
			}
		}
	default:
		t.Fatalf("%s: %s", path, typ)
	}
	if s.Type != want {
		t.Errorf("%s: got type %q, want %q", path, s.Type, want)
	}
	return fields
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{Kind, Kind + "List"} {
		if o, err := s.New(GroupVersion.WithKind(kind)); err != nil || o.DeepCopyObject() == o {
			t.Errorf("%s: got %v, error %v, want an object of its own", kind, o, err)
		}
	}
}
