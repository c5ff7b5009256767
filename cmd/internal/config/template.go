package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
)

// idTemplate makes a machine's ID from a Node: texts, with placeholders between them.
type idTemplate struct {
	written string
	texts   []string      // one more than placeholders
	of      []placeholder // placeholders
}

// placeholder is a property of a Node whose value takes the placeholder's place.
type placeholder struct {
	kind placeholderKind
	key  string // of a label or an annotation
}

type placeholderKind string

// The placeholders: {name}, {uuid}, {label:KEY} and {annotation:KEY}.
const (
	ofName       placeholderKind = "name"
	ofUUID       placeholderKind = "uuid" // the system UUID that the node's kubelet reports, in lower case with dashes
	ofLabel      placeholderKind = "label"
	ofAnnotation placeholderKind = "annotation"
)

func (p placeholder) String() string {
	if p.key == "" {
		return "{" + string(p.kind) + "}"
	}
	return "{" + string(p.kind) + ":" + p.key + "}"
}

const knownPlaceholders = "use {name}, {label:KEY}, {annotation:KEY} or {uuid}"

var braces = regexp.MustCompile(`\{([^{}]*)\}`)

// parseTemplate reads a template such as https://{name}.bmc.example.net. The language is that of the requests of
// providers/rest: a placeholder in braces, and no functions and conditions.
func parseTemplate(written string) (*idTemplate, error) {
	switch {
	case strings.TrimSpace(written) == "":
		return nil, errors.New("the template is empty")
	case strings.Contains(written, "{{"):
		return nil, errors.New(inPlaceholders(written))
	}
	t, from := &idTemplate{written: written}, 0
	for _, at := range braces.FindAllStringSubmatchIndex(written, -1) {
		p, err := parsePlaceholder(written[at[2]:at[3]])
		if err != nil {
			return nil, err
		}
		t.texts, t.of = append(t.texts, written[from:at[0]]), append(t.of, p)
		from = at[1]
	}
	t.texts = append(t.texts, written[from:])
	if strings.ContainsAny(strings.Join(t.texts, ""), "{}") {
		return nil, errors.New("has a brace that belongs to no placeholder: " + knownPlaceholders)
	}
	return t, nil
}

func parsePlaceholder(inside string) (placeholder, error) {
	kind, key, hasKey := strings.Cut(inside, ":")
	p := placeholder{kind: placeholderKind(kind), key: key}
	switch p.kind {
	case ofName, ofUUID:
		if !hasKey {
			return p, nil
		}
	case ofLabel, ofAnnotation:
		if len(validation.IsQualifiedName(strings.ToLower(key))) == 0 {
			return p, nil
		}
		return p, fmt.Errorf("{%s:...} needs a key, such as {%[1]s:example.net/rack}", kind)
	}
	return p, fmt.Errorf("{%s} is no placeholder: %s", label(inside), knownPlaceholders)
}

// inPlaceholders says how a template of text/template, which forcefence read once, is written now.
func inPlaceholders(written string) string {
	now := written
	for _, f := range []struct{ old, now string }{
		{`\{\{-? *\.Name *-?\}\}`, "{name}"},
		{`\{\{-? *\.Labels\.(\w+) *-?\}\}`, "{label:$1}"},
		{`\{\{-? *\(? *index \.Labels ["` + "`" + `]([^"` + "`" + `]+)["` + "`" + `] *\)? *-?\}\}`, "{label:$1}"},
	} {
		now = regexp.MustCompile(f.old).ReplaceAllString(now, f.now)
	}
	if strings.Contains(now, "{{") {
		return "{{ }} is not read: " + knownPlaceholders + ". For what functions and conditions did, write a list, " +
			"or give the Nodes a label and use {label:KEY}"
	}
	return "{{ }} is not read: write '" + now + "'"
}

// isClaimed reports whether a kubelet can write what a placeholder takes.
func (t *idTemplate) isClaimed() bool {
	return slices.ContainsFunc(t.of, func(p placeholder) bool {
		return p.kind == ofUUID || p.kind == ofAnnotation || p.kind == ofLabel && kubeletWrites(p.key)
	})
}

// hasOnlyNames reports whether no placeholder takes anything but the Node's name.
func (t *idTemplate) hasOnlyNames() bool {
	return !slices.ContainsFunc(t.of, func(p placeholder) bool { return p.kind != ofName })
}

// fill returns the template's text with a value for each placeholder.
func (t *idTemplate) fill(valueOf func(i int) string) string {
	var out strings.Builder
	for i, text := range t.texts {
		out.WriteString(text)
		if i < len(t.of) {
			out.WriteString(valueOf(i))
		}
	}
	return strings.TrimSpace(out.String())
}

// hosts returns the hosts that the template's IDs may name, for any name and labels of a node. These are the hosts that
// the template writes out, and those under a domain behind its last placeholder. bound is false if a node may choose
// another host.
//
// It fills all placeholders with one value, and then with another. A difference between the hosts comes from the node,
// and their common ending does not.
func (t *idTemplate) hosts(ids providers.IDs) (a allowList, bound bool) {
	with := func(value string) []string { // digits: an outlet is a number
		_, hosts, err := ids.CanonicalID(t.fill(func(int) string { return value }))
		if err != nil {
			return nil
		}
		return hosts
	}
	hosts, others := with("7"), with("8")
	if len(hosts) == 0 || len(hosts) != len(others) {
		return allowList{}, false
	}
	for i, host := range hosts {
		switch ending := commonEnd(host, others[i]); {
		case ending == host: // written out
			a.addHost(host)
		case hasDomain(ending):
			a.domains = append(a.domains, ending)
		default:
			return allowList{}, false
		}
	}
	return a, true
}

// checkTemplate refuses a template by which no node could ever get a device, or all nodes would have the same one.
func (r *reader) checkTemplate(c *Config, n *NodeRule, s *Source, path string) {
	if s.tmpl == nil {
		return
	}
	at := path + ".template"
	if s.From == FromName {
		at = path + ".from"
	}
	const example = "Write {name} where the node's name belongs, as in " + templateExample
	constant := len(s.tmpl.of) == 0
	err := s.unusable()
	switch {
	case constant && n.claimsAll():
		r.report(at, "has no placeholder, so all nodes would have the same machine. "+example)
		s.tmpl = nil
	case err != nil && r.strict && s.whole && s.tmpl.hasOnlyNames() && !strings.Contains(s.tmpl.written, "://"):
		// A node's name has no colon, so it is never a whole providerID.
		r.report(at, "gives no node a device, because the ID %s. Write \"from: providerID\"", oneLine(err.Error()))
	case err != nil && !s.namesHosts(): // a device's own names may be stranger than those that were tried
		r.warn(c, at, "no usual name of a node gives a device: the ID "+oneLine(err.Error()))
	case err != nil:
		r.report(at, "gives no node a device, because the ID %s", oneLine(err.Error()))
		s.tmpl = nil
	case constant && !n.claimsOne():
		r.warn(c, at, "has no placeholder, so all nodes of this rule have the same machine, and none of them can be "+
			"fenced. "+example)
	}
}

// unusable returns what is wrong with each ID that the template can give; nil if a node may get a good one. It fills
// the placeholders with what may belong there: names, numbers and a scheme. An annotation may hold anything, so nothing
// is known of it, and of IDs that are no addresses only names are known.
func (s *Source) unusable() (wrong error) {
	usual := [][]string{{"n", "m"}, {"7", "8"}, {"10.0.0.7"}, {"https", "n"}, {"http", "n"}}
	if !s.namesHosts() {
		usual = [][]string{{"n1"}, {"7"}, {"abc123"}, {"i-0123456789abcdef0"}, {"4c4c4544-0042-3510-8054-b4c04f4d3232"}}
	}
	isAnnotation := func(p placeholder) bool { return p.kind == ofAnnotation }
	if s.ids == nil || !s.namesHosts() && !s.tmpl.hasOnlyNames() || slices.ContainsFunc(s.tmpl.of, isAnnotation) {
		return nil
	}
	for _, values := range usual {
		_, _, err := s.readID(s.tmpl.fill(func(i int) string { return values[i%len(values)] }))
		if err == nil {
			return nil
		}
		wrong = cmp.Or(wrong, err)
	}
	return wrong
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

// hostLetters are the characters of host names, and of the names and label values that an API server accepts.
const hostLetters = identifier + "."

// id returns a node's ID. If bounded is true, placeholders give only hostLetters, so that no value can end the host.
func (t *idTemplate) id(node *corev1.Node, bounded bool) (string, error) {
	values := make([]string, len(t.of))
	for i, p := range t.of {
		v, err := p.valueOf(node)
		if err == nil && bounded && strings.Trim(v, hostLetters) != "" {
			err = fmt.Errorf("%s gives more than letters, digits, dots, dashes and underscores", p)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoID, err)
		}
		values[i] = v
	}
	id := t.fill(func(i int) string { return values[i] })
	if id == "" {
		return "", fmt.Errorf("%w: the template gives nothing", ErrNoID)
	}
	return id, nil
}

// valueOf returns a Node's property. It returns an error for one that the Node lacks.
func (p placeholder) valueOf(node *corev1.Node) (v string, err error) {
	has := true
	switch p.kind {
	case ofName:
		v = node.Name
	case ofLabel:
		v, has = node.Labels[p.key]
	case ofAnnotation:
		v, has = node.Annotations[p.key]
	case ofUUID:
		u, ok := providers.ParseUUID(node.Status.NodeInfo.SystemUUID)
		if !ok {
			return "", fmt.Errorf("system UUID %q identifies no machine", node.Status.NodeInfo.SystemUUID)
		}
		v = providers.FormatUUID(u)
	}
	if !has {
		return "", fmt.Errorf("no %s %q", p.kind, p.key)
	}
	return v, nil
}
