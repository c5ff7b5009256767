package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document parses data and returns the one document's content, or nil after it reported why there is none.
func (r *reader) document(data []byte) *yaml.Node {
	docs, err := parseYAML(bytes.NewReader(data))
	if err != nil {
		line, problem := locate(data, err)
		r.fault(line, "", "%s", problem)
		return nil
	}
	if len(docs) > 0 {
		if kind := valueOf(docs[0].Content[0], "kind"); kind != nil && hasKey(docs[0].Content[0], "apiVersion") {
			r.fault(kind.Line, "", "%s", describeObject(kind.Value))
			return nil
		}
	}
	if len(docs) > 1 {
		r.fault(docs[1].Content[0].Line, "", "several documents (---): a configuration file holds one")
		return nil
	}
	if len(docs) == 0 || docs[0].Content[0].ShortTag() == "!!null" {
		r.fault(1, "", "the file is empty")
		return nil
	}
	return docs[0].Content[0]
}

// describeObject says what to do with a file that holds a Kubernetes object of a kind.
func describeObject(kind string) string {
	text := "this is a Kubernetes object (" + label(kind) + "), and not the controller's configuration. "
	if kind != "ConfigMap" {
		return text + "config.example.yaml shows one"
	}
	return text + `Check the text that it holds: kubectl get configmap NAME -o jsonpath='{.data.config\.yaml}' | ` +
		"forcefence check-config -"
}

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

// tabIndent matches a text whose first line is indented with a tab.
var tabIndent = regexp.MustCompile(`^ *\t`)

var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// locate finds the line of a syntax error. The library's own number is missing, or that of the enclosing block, counted
// from 0 or 1. But the library reads little beyond the fault. So locate removes lines from the end of what was read
// until the rest parses. The fault is on the next line.
func locate(data []byte, err error) (line int, problem string) {
	problem = "YAML: " + oneLine(yamlPrefix.ReplaceAllString(err.Error(), ""))
	switch {
	case strings.Contains(problem, "unknown anchor"): // the library quotes the name, which may be a secret
		problem = "YAML: text that begins with * must be in quotes (anchors and aliases are not read here)"
	case strings.Contains(problem, "unexpected end of stream"):
		problem = "YAML: a quote is opened and not closed"
	}
	in := bytes.NewReader(data)
	_, _ = parseYAML(in)
	read := data[:len(data)-in.Len()]
	for range 1000 { // after an unclosed quote there may be more lines: then the library's number must do
		read = read[:bytes.LastIndexByte(bytes.TrimSuffix(read, []byte("\n")), '\n')+1]
		if _, err := parseYAML(bytes.NewReader(read)); err == nil {
			if tabIndent.Match(data[len(read):]) {
				problem = "YAML: a tab indents this line: use spaces"
			}
			return 1 + bytes.Count(read, []byte("\n")), problem
		}
	}
	if m := yamlPrefix.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	return max(line, 1), problem
}
