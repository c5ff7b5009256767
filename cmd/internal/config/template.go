package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"

	"golang.org/x/net/publicsuffix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
)

// idTemplate makes a machine's ID from a node's name and labels.
type idTemplate struct {
	root   *parse.ListNode
	labels bool // it reads labels, which a kubelet can write
}

// parseTemplate reads a template such as https://{{ .Name | trimPrefix "worker-" }}.bmc.example.net. It may use .Name,
// .Labels.rack, (index .Labels "example.net/rack"), if and else, and the functions lower, trimPrefix, trimSuffix,
// replace, eq, ne, and, or, not. It may use no loops, numbers, variables or other templates. So it always ends, and
// prints nothing else.
//
// The language and the parser are those of text/template, but the interpreter is our own. text/template's interpreter
// calls methods by name, so the linker must keep every method of every type: the program was twice as large, and used
// 9 MB more memory.
func parseTemplate(text string) (*idTemplate, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the template is empty")
	}
	trees, known := map[string]*parse.Tree{}, map[string]any{}
	for name := range functions {
		known[name] = true
	}
	tree, err := parse.New("template").Parse(text, "", "", trees, known, builtins)
	if err != nil {
		return nil, fmt.Errorf("not a template: %s", parsePrefix.ReplaceAllString(err.Error(), ""))
	}
	if len(trees) > 1 {
		return nil, errors.New("a template cannot define others")
	}
	t := &idTemplate{root: tree.Root}
	if err := t.checkNode(t.root); err != nil {
		return nil, err
	}
	// For a node with every label, to find wrong arguments before a node dies.
	if _, err := (interpreter{name: "node", label: func(string) (string, bool) { return "", true }}).
		list(t.root); err != nil {
		return nil, fmt.Errorf("the template fails for any node: %w", err)
	}
	return t, nil
}

var parsePrefix = regexp.MustCompile(`^template: template:\d+: `)

// builtins are the other functions of text/template. checkNode refuses them by name.
var builtins = map[string]any{
	"call": true, "ge": true, "gt": true, "html": true, "js": true, "le": true, "len": true, "lt": true, "print": true,
	"printf": true, "println": true, "slice": true, "urlquery": true,
}

// checkNode returns an error for what a template may not use. It sets labels if the tree reads .Labels, even in a
// condition.
func (t *idTemplate) checkNode(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.BoolNode:
		return nil
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return checkNodes(t, n.Nodes)
	case *parse.ActionNode:
		return t.checkNode(n.Pipe)
	case *parse.IfNode:
		return errors.Join(t.checkNode(n.Pipe), t.checkNode(n.List), t.checkNode(n.ElseList))
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			return errors.New("a template cannot have variables")
		}
		return checkNodes(t, n.Cmds)
	case *parse.CommandNode:
		return checkNodes(t, n.Args)
	case *parse.IdentifierNode:
		if _, ours := functions[n.Ident]; !ours {
			return fmt.Errorf("a template cannot use %s", n.Ident)
		}
		return nil
	case *parse.FieldNode:
		labels := n.Ident[0] == "Labels"
		t.labels = t.labels || labels
		if n.String() == ".Name" || labels && len(n.Ident) <= 2 {
			return nil
		}
		return fmt.Errorf("a template has no %s: use .Name, .Labels.key or (index .Labels \"key\")", n)
	default:
		return fmt.Errorf("a template cannot have %s: use .Name, .Labels, functions, if and else", n)
	}
}

func checkNodes[N parse.Node](t *idTemplate, nodes []N) error {
	for _, n := range nodes {
		if err := t.checkNode(n); err != nil {
			return err
		}
	}
	return nil
}

// hosts returns the hosts that the template's IDs may name, for any name and labels of a node. These are the hosts that
// the template writes out, and those under a domain behind its last placeholder. bound is false if a node may choose
// another host.
//
// It fills all placeholders with one value, and then with another. A difference between the hosts comes from the node,
// and their common ending does not.
func (t *idTemplate) hosts(ids providers.IDs) (a allowList, bound bool) {
	forms, others := forms(t.root, "7"), forms(t.root, "8") // digits: an outlet is a number
	for i := range forms {
		_, hosts, err := ids.CanonicalID(strings.TrimSpace(forms[i]))
		if err != nil && forms[i] == others[i] { // no node changes this form, and it gives no node a machine
			continue
		}
		_, differing, err2 := ids.CanonicalID(strings.TrimSpace(others[i]))
		if err != nil || err2 != nil || len(hosts) == 0 || len(hosts) != len(differing) {
			return allowList{}, false
		}
		for j, host := range hosts {
			switch ending := commonEnd(host, differing[j]); {
			case ending == host: // written out
				a.addHost(host)
			case hasDomain(ending):
				a.domains = append(a.domains, ending)
			default:
				return allowList{}, false
			}
		}
	}
	return a, len(forms) > 0
}

// forms returns all texts that a template can give if each placeholder gives this value; none if there are too many.
func forms(l *parse.ListNode, placed string) []string {
	const most = 256
	out := []string{""}
	if l == nil {
		return out
	}
	for _, n := range l.Nodes {
		next := []string{placed}
		switch n := n.(type) {
		case *parse.CommentNode:
			continue
		case *parse.TextNode:
			next = []string{string(n.Text)}
		case *parse.IfNode:
			yes, no := forms(n.List, placed), forms(n.ElseList, placed)
			if len(yes) == 0 || len(no) == 0 {
				return nil
			}
			next = slices.Concat(yes, no)
		}
		if len(out)*len(next) > most {
			return nil
		}
		var longer []string
		for _, begin := range out {
			longer = append(longer, mapList(next, func(end string) string { return begin + end })...)
		}
		out = longer
	}
	return out
}

func commonEnd(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// hasDomain reports whether a host's ending contains a domain that belongs to one owner: -bmc.example.net does, .com
// does not.
func hasDomain(ending string) bool {
	_, domain, _ := strings.Cut(ending, ".")
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || strings.Trim(domain, "0123456789.") == "" {
		return false
	}
	public, registry := publicsuffix.PublicSuffix(domain)
	// a private top level domain, such as .bmc
	return domain != public || !registry && !strings.Contains(public, ".")
}

// id returns a node's ID. If bounded is true, placeholders give only characters of host names, so that no value can end
// the host.
func (t *idTemplate) id(node *corev1.Node, bounded bool) (string, error) {
	label := func(key string) (v string, ok bool) { v, ok = node.Labels[key]; return v, ok }
	id, err := interpreter{name: node.Name, label: label, some: len(node.Labels) > 0, bounded: bounded}.list(t.root)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoID, err)
	}
	if id = strings.TrimSpace(id); id == "" {
		return "", fmt.Errorf("%w: the template gives nothing", ErrNoID)
	}
	return id, nil
}
