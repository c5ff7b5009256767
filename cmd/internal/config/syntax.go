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

// locate finds the line of a syntax error. The library's own number is that of the enclosing block, counted from 0 or from 1, or
// missing. So: feed it line by line to learn how far it read; the longest run of lines that still parses ends before the fault.
func locate(data []byte, err error) (line int, problem string) {
	problem = "YAML: " + oneLine(yamlPrefix.ReplaceAllString(err.Error(), ""))
	switch {
	case strings.Contains(problem, "unknown anchor"): // the library quotes the name, which may be a secret that begins with *
		problem = "YAML: text that begins with * must be in quotes (anchors and aliases are not read here)"
	case strings.Contains(problem, "unexpected end of stream"):
		problem = "YAML: a quote is opened and not closed"
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	in := &lineReader{lines: lines}
	_, _ = parseYAML(in)
	const tries = 1000 // an unclosed quote before more lines than this: the library's number has to do
	for n := in.read - 1; n > 0 && n > in.read-tries; n-- {
		if _, err := parseYAML(bytes.NewReader(bytes.Join(lines[:n], nil))); err == nil {
			return n + 1, problem
		}
	}
	if m := yamlPrefix.FindStringSubmatch(err.Error()); in.read > tries && m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	return max(line, 1), problem
}

// lineReader gives one line per Read and counts them.
type lineReader struct {
	lines [][]byte
	read  int
	rest  []byte
}

func (l *lineReader) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.read == len(l.lines) {
			return 0, io.EOF
		}
		l.rest = l.lines[l.read]
		l.read++
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
