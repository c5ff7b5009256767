package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	corev1 "k8s.io/api/core/v1"
)

// idTemplate makes a machine's ID of a node's name and labels.
type idTemplate struct {
	t      *template.Template
	labels bool // it reads labels, which a kubelet can write
}

// nodeData is what a template sees.
type nodeData struct {
	Name   string
	Labels map[string]string
}

// The functions beside text/template's own comparisons; what is piped in comes last. index fails where the built-in one gives "".
var templateFuncs = template.FuncMap{
	"lower":      strings.ToLower,
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"replace":    func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
	"index": func(labels map[string]string, key string) (string, error) {
		v, ok := labels[key]
		if !ok {
			return "", fmt.Errorf("no label %q", key)
		}
		return v, nil
	},
}

var parsePrefix = regexp.MustCompile(`^template: template:\d+: `)

var comparisons = []string{"eq", "ne", "and", "or", "not"}

// parseTemplate reads a template such as https://{{ .Name | trimPrefix "worker-" }}.bmc.example.net. It may use .Name,
// .Labels.rack, (index .Labels "example.net/rack"), if and else, and the functions lower, trimPrefix, trimSuffix, replace, eq,
// ne, and, or, not; no loops, variables or other templates, so that it ends and cannot print anything but these.
func parseTemplate(text string) (*idTemplate, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the template is empty")
	}
	t, err := template.New("template").Option("missingkey=error").Funcs(templateFuncs).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("not a template: %s", parsePrefix.ReplaceAllString(err.Error(), ""))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("a template cannot define others")
	}
	if t.Tree == nil {
		return nil, errors.New("the template is empty")
	}
	if err := allowed(t.Root); err != nil {
		return nil, err
	}
	if err := rehearse(t); err != nil {
		return nil, fmt.Errorf("the template fails for any node: %w", err)
	}
	return &idTemplate{t, readsLabels(t.Root)}, nil
}

// allowed walks a template's tree.
func allowed(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return each(n.Nodes)
	case *parse.ActionNode:
		return allowed(n.Pipe)
	case *parse.IfNode:
		return errors.Join(allowed(n.Pipe), allowed(n.List), allowed(n.ElseList))
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			return errors.New("a template cannot have variables")
		}
		return each(n.Cmds)
	case *parse.CommandNode:
		return each(n.Args)
	case *parse.IdentifierNode:
		if _, ours := templateFuncs[n.Ident]; !ours && !slices.Contains(comparisons, n.Ident) {
			return fmt.Errorf("a template cannot use %s", n.Ident)
		}
		return nil
	case *parse.FieldNode:
		if n.String() == ".Name" || (n.Ident[0] == "Labels" && len(n.Ident) <= 2) {
			return nil
		}
		return fmt.Errorf("a template has no %s: use .Name, .Labels.key or (index .Labels \"key\")", n)
	default:
		return fmt.Errorf("a template cannot have %s: use .Name, .Labels, functions, if and else", n)
	}
}

// readsLabels reports whether an allowed template reads .Labels anywhere, be it in a condition.
func readsLabels(n parse.Node) bool {
	switch n := n.(type) {
	case *parse.ListNode:
		return n != nil && slices.ContainsFunc(n.Nodes, readsLabels)
	case *parse.ActionNode:
		return readsLabels(n.Pipe)
	case *parse.IfNode:
		return readsLabels(n.Pipe) || readsLabels(n.List) || readsLabels(n.ElseList)
	case *parse.PipeNode:
		return slices.ContainsFunc(n.Cmds, func(c *parse.CommandNode) bool { return slices.ContainsFunc(c.Args, readsLabels) })
	case *parse.FieldNode:
		return n.Ident[0] == "Labels"
	default:
		return false
	}
}

func each[N parse.Node](nodes []N) error {
	for _, n := range nodes {
		if err := allowed(n); err != nil {
			return err
		}
	}
	return nil
}

// rehearse runs the template for a node with every label, to find wrong arguments before a node dies.
func rehearse(t *template.Template) error {
	t, err := t.Clone()
	if err != nil {
		return err
	}
	t.Option("missingkey=zero").Funcs(template.FuncMap{"index": func(map[string]string, string) string { return "" }})
	var b strings.Builder
	if err := run(t, nodeData{Name: "node", Labels: map[string]string{}}, &b); err != nil {
		return err
	}
	if strings.Contains(b.String(), "map[") {
		return errors.New("it prints all labels: name one")
	}
	return nil
}

func (t *idTemplate) id(node *corev1.Node) (string, error) {
	var b strings.Builder
	labels := node.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	if err := run(t.t, nodeData{Name: node.Name, Labels: labels}, &b); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoID, err)
	}
	id := strings.TrimSpace(b.String())
	if id == "" {
		return "", fmt.Errorf("%w: the template gives nothing", ErrNoID)
	}
	return id, nil
}

// run executes the template; its errors lose the prefix that says where in Go they arose.
func run(t *template.Template, data nodeData, out *strings.Builder) error {
	err := t.Execute(out, data)
	if exec := (template.ExecError{}); errors.As(err, &exec) {
		text := exec.Err.Error()
		if i := strings.LastIndex(text, ">: "); i >= 0 {
			text = text[i+len(">: "):]
		}
		return errors.New(text)
	}
	return err
}
