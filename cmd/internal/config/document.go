package config

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document parses data and returns the one document's content, or nil after it reported why there is none.
func (r *reader) document(data []byte) *yaml.Node {
	if isUTF16(data) {
		r.fault(1, "", "%s", inUTF16)
		return nil
	}
	docs, err := parseYAML(bytes.NewReader(data))
	if err != nil {
		line, problem := describeSyntax(data, err)
		r.fault(line, "", "%s", problem)
		return nil
	}
	if len(docs) > 0 {
		if kind := valueOf(docs[0].Content[0], "kind"); kind != nil && hasKey(docs[0].Content[0], "apiVersion") {
			r.fault(kind.Line, "", "%s", r.describeObject(kind.Value))
			return nil
		}
		if line := lineOfValues(docs[0].Content[0]); line > 0 {
			r.fault(line, "", "these are the chart's values, and the controller's configuration is their part config. "+
				"Check that part: %s", r.checkPart(".config"))
			return nil
		}
	}
	if len(docs) > 1 {
		r.fault(docs[1].Content[0].Line, "", "several documents (---): a configuration file holds one")
		return nil
	}
	if len(docs) == 0 || docs[0].Content[0].ShortTag() == "!!null" {
		r.fault(1, "", "the file is empty: config.example.yaml shows a configuration")
		return nil
	}
	return docs[0].Content[0]
}

// isUTF16 reports whether a text begins with the byte order mark of UTF-16, or with two letters in that encoding.
func isUTF16(data []byte) bool {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return true
	}
	if len(data) < 4 {
		return false
	}
	even, odd := data[0] == 0 && data[2] == 0, data[1] == 0 && data[3] == 0
	return even != odd
}

const inUTF16 = "the file is in UTF-16, as some programs of Windows write it: save it as UTF-8"

// chartValues are values of the Helm chart that say whose file this is. None is a key of the configuration.
var chartValues = []string{"config", "image", "controller", "hook", "bmcSecret", "serviceAccount"}

// lineOfValues returns the line of the first key of root that is one of chartValues, of config by preference; 0 if root
// has none of them, or a key of the configuration.
func lineOfValues(root *yaml.Node) int {
	if root.Kind != yaml.MappingNode {
		return 0
	}
	first := 0
	own := names(fieldsOf(reflect.TypeFor[Config]()))
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch k := root.Content[i]; {
		case slices.Contains(own, k.Value):
			return 0
		case !slices.Contains(chartValues, k.Value):
		case first == 0 || k.Value == chartValues[0]:
			first = k.Line
		}
	}
	return first
}

// describeObject says what to do with a file that holds a Kubernetes object of a kind.
func (r *reader) describeObject(kind string) string {
	text := "this is a Kubernetes object (" + label(kind) + "), and not the controller's configuration. "
	if kind != "ConfigMap" {
		return text + "config.example.yaml shows one"
	}
	return text + "Check the text that it holds: " + r.checkPart(`'.data["config.yaml"]'`)
}

// checkPart returns the command that checks a part of the file, as the user checks the whole.
func (r *reader) checkPart(part string) string {
	file, skip := r.file, ""
	if !plainName.MatchString(file) { // a shell takes other letters for its own
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	if r.file == standardInput {
		file = "FILE"
	}
	if r.skipFiles {
		skip = "--skip-files "
	}
	return "yq " + part + " " + file + " | forcefence check-config " + skip + "-"
}

// standardInput is the file that check-config names if it reads no file.
const standardInput = "standard input"

var plainName = regexp.MustCompile(`^[\w./+-]+$`)

// parseYAML returns every document of a YAML stream; each has exactly one content node.
func parseYAML(in io.Reader) ([]*yaml.Node, error) {
	var docs []*yaml.Node
	for d := yaml.NewDecoder(in); ; {
		doc := &yaml.Node{}
		switch err := d.Decode(doc); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		case len(doc.Content) > 0:
			docs = append(docs, doc)
		}
	}
}

var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// describeSyntax returns the line of a syntax error, and what is wrong there.
func describeSyntax(data []byte, err error) (line int, problem string) {
	words := oneLine(yamlPrefix.ReplaceAllString(err.Error(), ""))
	line, problem = explainSyntax(string(data), words, locate(data, err))
	return line, "YAML: " + problem
}

// locate finds the line at which the library stopped. The library's own number is missing, or that of the enclosing
// block, counted from 0 or 1. But the library reads little beyond the fault. So locate removes lines from the end of
// what was read until the rest parses. The fault is on the next line.
func locate(data []byte, err error) (line int) {
	in := bytes.NewReader(data)
	_, _ = parseYAML(in)
	read := data[:len(data)-in.Len()]
	for range 1000 { // after an unclosed quote there may be more lines: then the library's number must do
		read = read[:bytes.LastIndexByte(bytes.TrimSuffix(read, []byte("\n")), '\n')+1]
		if _, err := parseYAML(bytes.NewReader(read)); err == nil {
			return 1 + bytes.Count(read, []byte("\n"))
		}
	}
	if m := yamlPrefix.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	return max(line, 1)
}
