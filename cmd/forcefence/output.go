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
	"unicode/utf8"

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

// printTable writes a table as kubectl does, and nothing for a table without rows. On a terminal that is too narrow it
// breaks the texts of the last column, or writes a paragraph for each row. A wide table stays one.
func printTable(out io.Writer, t *metav1.Table, wide bool) error {
	var b bytes.Buffer
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(t, &b); err != nil {
		return err
	}
	s, ok := out.(screen)
	if !ok || wide || !s.isNarrowFor(b.String()) {
		_, err := out.Write(b.Bytes())
		return err
	}
	head, _, _ := strings.Cut(b.String(), "\n")
	name := ""
	for _, c := range t.ColumnDefinitions {
		if c.Priority == 0 {
			name = strings.ToUpper(c.Name)
		}
	}
	last := utf8.RuneCountInString(strings.TrimSuffix(head, name))
	if s.width-last < leastTextWidth {
		printRows(out, t)
		return nil
	}
	for line := range strings.Lines(b.String()) {
		runes := []rune(strings.TrimSuffix(line, "\n"))
		for _, l := range wrapText(string(runes[:last]), string(runes[last:]), s.width) {
			fmt.Fprintln(out, l)
		}
	}
	return nil
}

// leastTextWidth is how wide the last column of a table is at least, in columns.
const leastTextWidth = 24

// printRows writes each row as its first cell, and the columns that have a value.
func printRows(out io.Writer, t *metav1.Table) {
	for _, row := range t.Rows {
		var values []string
		for i, c := range t.ColumnDefinitions[1:] {
			if value := fmt.Sprint(row.Cells[i+1]); value != noValue && c.Priority == 0 {
				values = append(values, strings.ToUpper(c.Name)+" "+value)
			}
		}
		printText(out, fmt.Sprint(row.Cells[0])+"  ", "%s", strings.Join(values, "; "))
	}
}

// remark is a text about an object, printed outside of a table.
type remark struct{ about, text string }

// printRemarks prints each text once, behind the names that it is about. level comes before each line.
func printRemarks(out io.Writer, level string, all []remark) {
	var texts []string
	about := map[string][]string{}
	for _, r := range all {
		if about[r.text] == nil {
			texts = append(texts, r.text)
		}
		about[r.text] = append(about[r.text], r.about)
	}
	for _, text := range texts {
		names := about[text]
		if len(names) == 1 {
			text = placeholder.ReplaceAllLiteralString(text, names[0])
		}
		few := formatNames(names[:min(len(names), maxNames)], len(names))
		printText(out, level, "%s: %s", strings.TrimPrefix(few, ": "), text)
	}
}

// placeholder is what texts write for the name of a node.
var placeholder = regexp.MustCompile(`\bNODE\b`)

// maxNames is how many names a text lists.
const maxNames = 5

// printNextTable prints a table whose last column says what comes next, in any number of sentences. The table keeps the
// first sentences if its rows fit the screen then, and otherwise loses the column. What it lacks follows below.
func printNextTable(out io.Writer, t *metav1.Table, wide bool) error {
	last := len(t.ColumnDefinitions) - 1
	short, bare := *t, *t
	short.Rows, bare.Rows = nil, nil
	bare.ColumnDefinitions = t.ColumnDefinitions[:last]
	var rest, whole []remark
	for _, row := range t.Rows {
		name, text := row.Cells[0].(string), row.Cells[last].(string)
		first, more := cutSentence(text)
		first = placeholder.ReplaceAllLiteralString(first, name)
		cells := append(slices.Clone(row.Cells[:last]), first)
		short.Rows = append(short.Rows, metav1.TableRow{Cells: cells, Object: row.Object})
		bare.Rows = append(bare.Rows, metav1.TableRow{Cells: row.Cells[:last], Object: row.Object})
		if more != "" {
			rest = append(rest, remark{name, more})
		}
		if text != noValue {
			whole = append(whole, remark{name, text})
		}
	}
	var b bytes.Buffer
	if err := printTable(&b, &short, wide); err != nil {
		return err
	}
	if s, ok := out.(screen); ok && s.isNarrowFor(b.String()) {
		b.Reset()
		if err := printTable(screen{&b, s.width}, &bare, wide); err != nil {
			return err
		}
		rest = whole
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return err
	}
	if len(rest) > 0 {
		fmt.Fprintln(out)
	}
	printRemarks(out, "", rest)
	return nil
}

// cutSentence splits a text behind its first sentence.
func cutSentence(text string) (first, rest string) {
	first, rest, found := strings.Cut(text, ". ")
	if found {
		first += "."
	}
	return first, rest
}

// isNarrowFor reports whether a terminal would break lines of the text.
func (s screen) isNarrowFor(text string) bool {
	for line := range strings.Lines(text) {
		if s.width > 0 && utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > s.width {
			return true
		}
	}
	return false
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

// noValue is what an empty cell shows.
const noValue = "-"

// addRow adds a row about an object. Each cell becomes one line of text that no terminal obeys, and "-" if it is empty.
func addRow(t *metav1.Table, about *metav1.PartialObjectMetadata, cells ...any) {
	row := metav1.TableRow{Object: runtime.RawExtension{Object: about}}
	for _, c := range cells {
		text := strings.Join(strings.Fields(maskUnprintable(fmt.Sprint(c), "\n\t")), " ")
		row.Cells = append(row.Cells, cmp.Or(text, noValue))
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
