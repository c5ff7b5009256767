package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"

	"golang.org/x/net/publicsuffix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
)

// idTemplate makes a machine's ID from a node's name and labels.
type idTemplate struct {
	root   *parse.ListNode
	labels bool // it reads labels, which a kubelet can write
	node   bool // it reads the node's name or labels
}

// parseTemplate reads a template such as https://{{ .Name | trimPrefix "worker-" }}.bmc.example.net. It may use .Name,
// .Labels.rack, (index .Labels "example.net/rack"), if and else, and the functions lower, trimPrefix, trimSuffix,
// replace, eq, ne, and, or, not. It may use no loops, numbers, variables or other templates. So it always ends, and
// prints nothing else.
//
// The language and the parser are those of text/template, but the interpreter is our own. text/template's interpreter
// calls methods by name, so the linker must keep every method of every type: the program was twice as large, and used
// 9 MB more memory.
func parseTemplate(written string) (*idTemplate, error) {
	if strings.TrimSpace(written) == "" {
		return nil, errors.New("the template is empty")
	}
	trees, known := map[string]*parse.Tree{}, map[string]any{}
	for name := range functions {
		known[name] = true
	}
	tree, err := parse.New("template").Parse(written, "", "", trees, known, builtins)
	if err != nil {
		text := parsePrefix.ReplaceAllString(err.Error(), "")
		switch {
		case strings.HasPrefix(text, "function "): // "upper" not defined
			text += ". " + listFunctions()
		case strings.Count(written, "{{") > strings.Count(written, "}}"):
			text = "{{ is opened and not closed: write {{ .Name }}"
		case strings.HasPrefix(text, "bad character"):
			text += ". A label whose key has other characters than letters, digits and _ is written as " +
				`(index .Labels "key")`
		}
		return nil, errors.New("not a template: " + text)
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

// listFunctions names the functions that a template may use.
func listFunctions() string {
	return "Functions are " + strings.Join(slices.Sorted(maps.Keys(functions)), ", ")
}

var parsePrefix = regexp.MustCompile(`^template: template:\d+: `)

// builtins are the other functions of text/template. checkNode refuses them by name.
var builtins = map[string]any{
	"call": true, "ge": true, "gt": true, "html": true, "js": true, "le": true, "len": true, "lt": true, "print": true,
	"printf": true, "println": true, "slice": true, "urlquery": true,
}

// checkNode returns an error for what a template may not use. It sets labels if the tree reads .Labels, and node if it
// reads anything of the node, even in a condition.
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
			return fmt.Errorf("a template cannot use %s. %s", n.Ident, listFunctions())
		}
		return nil
	case *parse.FieldNode:
		labels := n.Ident[0] == "Labels"
		t.labels, t.node = t.labels || labels, true
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

// checkTemplate refuses a template by which no node could ever get a device, or all nodes would have the same one.
func (r *reader) checkTemplate(c *Config, n *NodeRule, s *Source, path string) {
	if s.From != FromTemplate || s.tmpl == nil {
		return
	}
	at := path + ".template"
	const example = "Write {{ .Name }} where the node's name belongs, as in https://{{ .Name }}.bmc.example.net"
	err := s.unusable()
	switch {
	case !s.tmpl.node && n.claimsAll():
		r.report(at, "has no {{ .Name }} and no label, so all nodes would have the same machine. "+example)
		s.tmpl = nil
	case err != nil && r.strict && s.whole && !s.tmpl.labels && !strings.Contains(s.Template, "://"):
		// A node's name has no colon, so it is never a whole providerID.
		r.report(at, "gives no node a device, because the ID %s. Write \"from: providerID\"", oneLine(err.Error()))
	case err != nil && !s.namesHosts(): // a device's own names may be stranger than those that were tried
		r.warn(c, at, "no usual name of a node gives a device: the ID "+oneLine(err.Error()))
	case err != nil:
		r.report(at, "gives no node a device, because the ID %s", oneLine(err.Error()))
		s.tmpl = nil
	case !s.tmpl.node && !n.claimsOne():
		r.warn(c, at, "has no {{ .Name }} and no label, so all nodes of this rule have the same machine, and none of "+
			"them can be fenced. "+example)
	}
}

// unusable returns what is wrong with each ID that the template can give; nil if a node may get a good one. It can only
// know that of addresses, and if each placeholder gives hostLetters alone. It fills the placeholders with what may
// belong there: names, numbers and a scheme. Of other IDs it tries names of nodes, unless labels are used.
func (s *Source) unusable() (wrong error) {
	usual := [][]string{{"n", "m"}, {"7", "8"}, {"10.0.0.7"}, {"https", "n"}, {"http", "n"}}
	if !s.namesHosts() {
		usual = [][]string{{"n1"}, {"7"}, {"abc123"}, {"i-0123456789abcdef0"}, {"4c4c4544-0042-3510-8054-b4c04f4d3232"}}
	}
	if s.ids == nil || !s.namesHosts() && s.tmpl.labels || !printsHostLetters(s.tmpl.root) {
		return nil
	}
	const mark = "\x00"
	for _, form := range forms(s.tmpl.root, mark) {
		for _, values := range usual {
			id := form
			for i := 0; strings.Contains(id, mark); i++ {
				id = strings.Replace(id, mark, values[i%len(values)], 1)
			}
			if id = strings.TrimSpace(id); id == "" {
				continue
			}
			_, _, err := s.readID(id)
			if err == nil {
				return nil
			}
			wrong = cmp.Or(wrong, err)
		}
	}
	return wrong
}

// printsHostLetters reports whether placeholders give hostLetters alone. Names and labels have no other letters, but a
// text in a placeholder may have. The name of a label, and a condition, are not printed.
func printsHostLetters(n parse.Node) bool {
	all := func(nodes []parse.Node) bool {
		return !slices.ContainsFunc(nodes, func(n parse.Node) bool { return !printsHostLetters(n) })
	}
	switch n := n.(type) {
	case *parse.ListNode:
		return n == nil || all(n.Nodes)
	case *parse.IfNode:
		return printsHostLetters(n.List) && printsHostLetters(n.ElseList)
	case *parse.ActionNode:
		return printsHostLetters(n.Pipe)
	case *parse.PipeNode:
		return !slices.ContainsFunc(n.Cmds, func(c *parse.CommandNode) bool { return !printsHostLetters(c) })
	case *parse.CommandNode:
		f, called := n.Args[0].(*parse.IdentifierNode)
		return called && f.Ident == "index" && len(n.Args) == 3 || all(n.Args)
	case *parse.StringNode:
		return strings.Trim(n.Text, hostLetters) == ""
	}
	return true
}

// claimsAll reports whether the rule claims every node.
func (n *NodeRule) claimsAll() bool { return n.selector.Empty() && n.Machine.From != FromList }

// claimsOne reports whether the rule can claim only one node.
func (n *NodeRule) claimsOne() bool {
	if n.Machine.From == FromList && len(n.Machine.List) < 2 {
		return true
	}
	requirements, _ := n.selector.Requirements()
	return slices.ContainsFunc(requirements, func(q labels.Requirement) bool {
		named := q.Operator() == selection.Equals || q.Operator() == selection.DoubleEquals ||
			q.Operator() == selection.In
		return q.Key() == corev1.LabelHostname && named && len(q.Values()) == 1
	})
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
