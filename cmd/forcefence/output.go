package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// outputFormat is the flag --output.
type outputFormat struct {
	name string // one of outputFormats; "" prints for people
	yaml printers.YAMLPrinter
}

var outputFormats = []string{"json", "name", "wide", "yaml"}

func (f *outputFormat) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "json, name, wide or yaml (default: a text for people)")
	completeFlag(cmd, "output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
}

func (f *outputFormat) String() string { return f.name }

// Type names the value in help texts.
func (f *outputFormat) Type() string { return "string" }

// Set takes the flag's value, and refuses a format that does not exist.
func (f *outputFormat) Set(text string) error {
	if !slices.Contains(outputFormats, text) {
		return fmt.Errorf("use %s", strings.Join(outputFormats, ", "))
	}
	f.name = text
	return nil
}

// report is the result of a command, in the forms that --output selects from.
type report struct {
	value any           // of json and yaml
	table *metav1.Table // of wide and name, and for people where there is no text
	// text prints for people; wide asks for the table's wide columns. nil: the table alone.
	text func(out io.Writer, wide bool) error
}

// print writes a report in the format. It may be called again, for what changed.
func (f *outputFormat) print(out io.Writer, r report) error {
	switch f.name {
	case "json", "yaml":
		raw, err := encodeJSON(r.value)
		if err != nil {
			return err
		}
		if f.name == "json" {
			return (&printers.JSONPrinter{}).PrintObj(&runtime.Unknown{Raw: raw}, out)
		}
		// YAML cannot read JSON's surrogate pairs. It escapes less than encodeJSON: a screen masks the rest.
		return f.yaml.PrintObj(&runtime.Unknown{Raw: surrogates.ReplaceAll(raw, []byte("."))}, out)
	case "name":
		return printNames(out, r.table)
	}
	if r.text != nil {
		return r.text(out, f.name == "wide")
	}
	return printTable(out, r.table, f.name == "wide")
}

// surrogates matches an escaped character above U+FFFF in the output of encodeJSON.
var surrogates = regexp.MustCompile(`\\ud[89ab]..\\ud[c-f]..`)

// encodeJSON encodes a value. It escapes what a terminal would obey, so the value does not change.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	var safe bytes.Buffer
	for _, c := range b.String() {
		switch {
		case unicode.IsPrint(c) || c == '\n':
			safe.WriteRune(c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(&safe, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			fmt.Fprintf(&safe, `\u%04x`, c)
		}
	}
	return safe.Bytes(), nil
}

// printTable writes a table as kubectl does, and nothing for a table without rows.
func printTable(out io.Writer, t *metav1.Table, wide bool) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(t, out)
}

// printNames writes the objects of a table's rows as kind/name, each once.
func printNames(out io.Writer, t *metav1.Table) error {
	var before *metav1.PartialObjectMetadata
	for _, row := range t.Rows {
		o := row.Object.Object.(*metav1.PartialObjectMetadata)
		if before != nil && before.Name == o.Name && before.Namespace == o.Namespace {
			continue // a node has a row for each of its devices
		}
		if err := (&printers.NamePrinter{}).PrintObj(o, out); err != nil {
			return err
		}
		before = o
	}
	return nil
}

// newTable returns a table without rows. A column whose name begins with + appears with -o wide only.
func newTable(columns ...string) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range columns {
		name, wide := strings.CutPrefix(name, "+")
		c := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			c.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, c)
	}
	return t
}

// addRow adds a row about an object. Each cell becomes one line of text that no terminal obeys, and "-" if it is empty.
func addRow(t *metav1.Table, about *metav1.PartialObjectMetadata, cells ...any) {
	row := metav1.TableRow{Object: runtime.RawExtension{Object: about}}
	for _, c := range cells {
		text := strings.Join(strings.Fields(maskUnprintable(fmt.Sprint(c), "\n\t")), " ")
		row.Cells = append(row.Cells, cmp.Or(text, "-"))
	}
	t.Rows = append(t.Rows, row)
}

// objectNamed returns the name of an object, for addRow. group is "" for Kubernetes' core.
func objectNamed(group, kind, namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind, o.Namespace, o.Name = strings.TrimPrefix(group+"/v1", "/"), kind, namespace, name
	return o
}

func nodeNamed(name string) *metav1.PartialObjectMetadata { return objectNamed("", "Node", "", name) }
