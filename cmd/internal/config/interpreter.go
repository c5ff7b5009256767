package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"text/template/parse"
)

// interpreter runs an allowed template for one node. A value in it is a string, a bool, or allLabels.
type interpreter struct {
	name    string
	label   func(key string) (value string, ok bool)
	some    bool // the node has labels
	bounded bool // placeholders may give only hostLetters
}

// hostLetters are the characters of host names, and of the names and label values that an API server accepts.
const hostLetters = identifier + "."

// allLabels is the value of .Labels itself, from which index takes one.
type allLabels struct{}

func (in interpreter) list(l *parse.ListNode) (string, error) {
	if l == nil {
		return "", nil
	}
	var out strings.Builder
	for _, n := range l.Nodes {
		var text string
		var err error
		switch n := n.(type) {
		case *parse.TextNode:
			text = string(n.Text)
		case *parse.ActionNode:
			text, err = in.print(n.Pipe)
		case *parse.IfNode:
			text, err = in.choose(n)
		}
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func (in interpreter) print(p *parse.PipeNode) (string, error) {
	v, err := in.pipe(p)
	if v == (allLabels{}) {
		return "", errors.New("it prints all labels: name one")
	}
	text := fmt.Sprint(v)
	if in.bounded && err == nil &&
		strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(hostLetters, r) }) {
		return "", fmt.Errorf("{{ %s }} gives more than letters, digits, dots, dashes and underscores", p)
	}
	return text, err
}

func (in interpreter) choose(n *parse.IfNode) (string, error) {
	v, err := in.pipe(n.Pipe)
	switch {
	case err != nil:
		return "", err
	case in.truth(v):
		return in.list(n.List)
	}
	return in.list(n.ElseList)
}

// truth returns a value as a condition: an empty value is false.
func (in interpreter) truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != ""
	}
	return in.some
}

// pipe passes each command's result to the next one, as its last argument.
func (in interpreter) pipe(p *parse.PipeNode) (v any, err error) {
	var piped []any
	for _, c := range p.Cmds {
		switch f, called := c.Args[0].(*parse.IdentifierNode); {
		case called:
			v, err = in.call(f.Ident, c.Args[1:], piped)
		case len(c.Args) > 1 || len(piped) > 0:
			return nil, fmt.Errorf("%s is no function: it takes no argument", c.Args[0])
		default:
			v, err = in.operand(c.Args[0])
		}
		if err != nil {
			return nil, err
		}
		piped = []any{v}
	}
	return v, nil
}

func (in interpreter) operand(n parse.Node) (any, error) {
	switch n := n.(type) {
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.PipeNode:
		return in.pipe(n)
	case *parse.IdentifierNode:
		return in.call(n.Ident, nil, nil)
	case *parse.FieldNode:
		switch {
		case n.Ident[0] == "Name":
			return in.name, nil
		case len(n.Ident) == 1:
			return allLabels{}, nil
		}
		return in.one(n.Ident[1])
	}
	return nil, fmt.Errorf("a template cannot have %s", n) // checkNode has refused it
}

func (in interpreter) one(label string) (any, error) {
	v, ok := in.label(label)
	if !ok {
		return nil, fmt.Errorf("no label %q", label)
	}
	return v, nil
}

// call calls a function. The functions "and" and "or" stop at the first argument that decides.
func (in interpreter) call(name string, args []parse.Node, piped []any) (any, error) {
	var values []any
	for _, a := range args {
		v, err := in.operand(a)
		if err != nil {
			return nil, err
		}
		if name == "and" && !in.truth(v) || name == "or" && in.truth(v) {
			return v, nil
		}
		values = append(values, v)
	}
	values = append(values, piped...)
	f := functions[name]
	if n := len(values); n < f.least || n > f.most {
		return nil, fmt.Errorf("wrong number of args for %s: want %d got %d", name, f.least, n)
	}
	v, err := f.of(in, values)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	return v, nil
}

// function is a function that a template may call. A piped value is the last argument.
type function struct {
	least, most int // arguments
	of          func(interpreter, []any) (any, error)
}

var functions = map[string]function{
	"lower":      texts(1, func(s []string) string { return strings.ToLower(s[0]) }),
	"trimPrefix": texts(2, func(s []string) string { return strings.TrimPrefix(s[1], s[0]) }),
	"trimSuffix": texts(2, func(s []string) string { return strings.TrimSuffix(s[1], s[0]) }),
	"replace":    texts(3, func(s []string) string { return strings.ReplaceAll(s[2], s[0], s[1]) }),
	"index":      {2, 2, interpreter.index},
	"eq":         {2, math.MaxInt, equal},
	"ne": {2, 2, func(in interpreter, values []any) (any, error) {
		same, err := equal(in, values)
		return same == false, err
	}},
	"and": {1, math.MaxInt, last},
	"or":  {1, math.MaxInt, last},
	"not": {1, 1, func(in interpreter, values []any) (any, error) { return !in.truth(values[0]), nil }},
}

// texts returns a function of n strings.
func texts(n int, f func([]string) string) function {
	return function{n, n, func(_ interpreter, values []any) (any, error) {
		s := make([]string, n)
		for i, v := range values {
			var ok bool
			if s[i], ok = v.(string); !ok {
				return nil, errors.New("takes text alone")
			}
		}
		return f(s), nil
	}}
}

// index returns a label's value. Unlike text/template's index, it returns an error for a missing label.
func (in interpreter) index(values []any) (any, error) {
	key, ok := values[1].(string)
	if !ok || values[0] != (allLabels{}) {
		return nil, errors.New("takes .Labels and a label's name")
	}
	return in.one(key)
}

// equal compares the first value with each other one.
func equal(_ interpreter, values []any) (any, error) {
	for _, v := range values[1:] {
		_, text := v.(string)
		_, texts := values[0].(string)
		if text != texts || v == (allLabels{}) || values[0] == (allLabels{}) {
			return nil, errors.New("compares text with text, or conditions")
		}
		if v == values[0] {
			return true, nil
		}
	}
	return false, nil
}

func last(_ interpreter, values []any) (any, error) { return values[len(values)-1], nil }
