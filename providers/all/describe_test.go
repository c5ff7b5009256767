package all

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/providers"
)

var update = flag.Bool("update", false, "rewrite texts.txt from the settings' comments, and "+
	"docs/reference/devices.md from the types")

// texts.txt is what the source says of each field, and whether a type has batches and events.
func TestTexts(t *testing.T) {
	found := map[string]string{}
	for _, ty := range Types() {
		c := reflect.TypeOf(ty.NewConfig()).Elem()
		said := comments(t, packagePath(c))
		found[packagePath(c)] = strings.Join(does(t, packagePath(c)), " ")
		for _, of := range structs(c) {
			if packagePath(of) != packagePath(c) {
				maps.Copy(said, comments(t, packagePath(of)))
			}
			for i := range of.NumField() {
				f := of.Field(i)
				if key, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); key == "" || key == "-" ||
					options == "inline" {
					continue
				}
				if found[fieldName(of, f.Name)] = said[fieldName(of, f.Name)]; found[fieldName(of, f.Name)] == "" {
					t.Errorf("provider type %s: the field %s has no comment: say in the struct what it is, its unit "+
						"and its bounds; docs/reference/devices.md shows it",
						ty.Name, fieldName(of, f.Name))
				}
			}
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s\t%s\n", key, found[key])
	}
	same(t, "texts.txt", b.String())
}

// docs/reference/devices.md is the types for people.
func TestDoc(t *testing.T) {
	same(t, "../../docs/reference/devices.md", page())
}

func page() string {
	yes := map[bool]string{true: "yes", false: ""}
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	code := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + cell(s) + "`"
	}
	var top, rest strings.Builder
	top.WriteString(`# Devices

The types of devices that forcefence asks, and their settings. ` + "`forcefence providers`" + ` prints the same. A
setting without a default is empty. Beside its type's settings each entry of ` + "`providers`" + ` has ` +
		"`name`, `timeout`, `ratePerSecond`, `concurrency`" + `
and ` + "`poll`" + `: see [configuration](configuration.md). A setting of kind bool is false without a default. This page
is generated from the types and the comments of their settings (` + "`go generate ./providers/all`" + `).

| type | off means | identity | many in one call | sends events |
| --- | --- | --- | --- | --- |
`)
	for _, ty := range slices.SortedFunc(slices.Values(Types()),
		func(a, b providers.Type) int { return strings.Compare(a.Name, b.Name) }) {
		d := DescribeType(ty)
		fmt.Fprintf(&top, "| [%s](../../%s) | %s | %s | %s | %s |\n",
			d.Type, ReadmePath(ty), cell(d.Off), cell(d.Identity), yes[d.Batches], yes[d.Watches])
		fmt.Fprintf(&rest, "\n## %s\n\n| key | kind | default | what |\n| --- | --- | --- | --- |\n", d.Type)
		for _, f := range d.Fields {
			fmt.Fprintf(&rest, "| %s | %s | %s | %s |\n", code(f.Key), f.Kind, code(f.Default), cell(f.Doc))
		}
	}
	return top.String() + rest.String()
}

// same compares a file with what it should hold, and writes that with -update.
func same(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is not what the types say: `go generate ./providers/all` writes it (-file +types):\n%s", file,
			diff)
	}
}

func TestEveryTypeIsDescribed(t *testing.T) {
	for _, ty := range Types() {
		for field, text := range map[string]string{"Off": ty.Off, "Identity": ty.Identity} {
			if text == "" || strings.HasSuffix(text, ".") || strings.ContainsAny(text, "\n\t") {
				t.Errorf("provider type %s: providers.Type.%s is %q: write a short phrase without a full stop, in "+
					"the type's Type(); docs/reference/devices.md shows it", ty.Name, field, text)
			}
		}
	}
}

// A key whose comment lists words takes each of them, and no other.
func TestWords(t *testing.T) {
	var got []string
	for _, ty := range Types() {
		faults := func(key, word string) (found []string) {
			c := ty.NewConfig()
			v := reflect.ValueOf(c).Elem()
			for _, f := range reflect.VisibleFields(v.Type()) {
				if f.Tag.Get("yaml") == key {
					v.FieldByIndex(f.Index).SetString(word)
				}
			}
			for _, p := range c.Validate() {
				if p.Path == key {
					found = append(found, p.Text)
				}
			}
			return found
		}
		for _, f := range DescribeType(ty).Fields {
			if !strings.HasPrefix(f.Kind, `"`) {
				continue
			}
			got = append(got, ty.Name+"."+f.Key)
			for word := range strings.FieldsSeq(f.Kind) {
				if bad := faults(f.Key, strings.Trim(word, `"`)); bad != nil {
					t.Errorf("%s.%s: %s is refused: %q", ty.Name, f.Key, word, bad)
				}
			}
			if faults(f.Key, "no-such-word") == nil {
				t.Errorf("%s.%s: takes a word that its comment does not list", ty.Name, f.Key)
			}
		}
	}
	want := []string{"cloudtaint.trust", "ec2.spot", "ipmi.privilege", "metal3.powerOff", "pdu.mib",
		"pdu.authentication", "pdu.privacy",
		"pdu.version", "redfish.auth", "redfish.events"}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys with words (-want +got):\n%s", diff)
	}
}

// structs are the structs whose keys a configuration has, its own first.
func structs(t reflect.Type) (out []reflect.Type) {
	out = append(out, t)
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" || key == "" && options != "inline" {
			continue
		}
		if _, inner := kindOf(f.Type); inner != nil {
			out = append(out, structs(inner)...)
		}
	}
	return out
}

// parsed are the files of a package, without its tests.
func parsed(t *testing.T, pkg string) (out []*ast.File) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files (%v)", pkg, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// comments are what a package says of the fields of its structs, above and beside them.
func comments(t *testing.T, pkg string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range parsed(t, pkg) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, id := range f.Names {
						out[pkg+"."+spec.Name.Name+"."+
							id.Name] = strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return out
}

// does returns which of the contract's optional interfaces a package's provider has.
func does(t *testing.T, pkg string) (out []string) {
	t.Helper()
	methods := map[string]string{"States": batches, "Watch": watches}
	for _, file := range parsed(t, pkg) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && methods[f.Name.Name] != "" {
				out = append(out, methods[f.Name.Name])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Every kind of field that a Config may have is described.
func TestFields(t *testing.T) {
	type inner struct {
		Host string `yaml:"host"`
	}
	type block struct {
		User string `yaml:"user"`
	}
	type config struct {
		block  `yaml:",inline"`
		Wait   time.Duration     `yaml:"wait"`
		Port   int               `yaml:"port"`
		Level  slogLevel         `yaml:"level"`
		Names  []string          `yaml:"names"`
		Hosts  []inner           `yaml:"hosts"`
		One    inner             `yaml:"one"`
		By     map[string]inner  `yaml:"by"`
		Labels map[string]string `yaml:"labels"`
		Off    *bool             `yaml:"off"`
		hidden int
		Never  int `yaml:"-"`
	}
	on := true
	v := config{Wait: 90 * time.Second, Port: 623, Names: []string{"a", "b"}, One: inner{"x"}, Level: 3, Off: &on,
		hidden: 1}
	var got []string
	for _, f := range fieldsOf("", reflect.ValueOf(v)) {
		got = append(got, f.Key+" "+f.Kind+" "+f.Default)
	}
	want := []string{
		"user text ", "wait duration 1m30s", "port number 623", "level text L3", "names list of text a, b",
		"hosts list of settings ",
		"hosts[].host text ", "one settings ", "one.host text x", "by map of settings ", "by.*.host text ",
		"labels map of text ", "off bool true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

type slogLevel int

func (l *slogLevel) UnmarshalText([]byte) error  { return nil }
func (l slogLevel) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "L%d", int(l)), nil }
