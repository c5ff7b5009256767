package config

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// warnOfOverlap warns of a rule whose nodes all match another rule, too: a node that two rules claim has no machine.
// Rules that may share nodes, such as pool=a and zone=b, are no warning: only the nodes' labels decide that. Two rules
// that select the same nodes are a fault of check-config: neither can ever work. A controller goes on with the others.
func (r *reader) warnOfOverlap(c *Config) {
	strict := r.strict && len(r.errs) == 0
	for j := range c.Nodes {
		for i := range c.Nodes {
			if i == j || !c.Nodes[i].claimsAllOf(&c.Nodes[j]) || i > j && c.Nodes[j].claimsAllOf(&c.Nodes[i]) {
				continue // two equal rules are one warning
			}
			path := item("nodes", j)
			if r.given(path + ".selector") {
				path += ".selector"
			}
			other := item("nodes", i)
			if strict && c.Nodes[j].claimsAllOf(&c.Nodes[i]) {
				r.report(path, "selects the same nodes as %s (line %d), and a node that two rules claim has no "+
					"machine, so no node of the two has one. Make one rule of them, or change a selector",
					other, r.lines[other])
				break
			}
			r.warn(c, path, fmt.Sprintf("every node of this rule also matches %s (line %d), and a node that two rules "+
				"claim has no machine. Exclude these nodes by the selector there (!= or notin)", other, r.lines[other]))
		}
	}
}

// claimsAllOf reports whether a rule certainly claims each node that another rule claims.
func (n *NodeRule) claimsAllOf(other *NodeRule) bool {
	return n.Machine.From != FromList && implies(other.selector, n.selector)
}

// implies reports whether each set of labels that the first selector matches certainly matches the second one.
func implies(narrow, wide labels.Selector) bool {
	have, selects := narrow.Requirements()
	want, selectsToo := wide.Requirements()
	return selects && selectsToo && !slices.ContainsFunc(want, func(w labels.Requirement) bool {
		return !slices.ContainsFunc(have, func(h labels.Requirement) bool { return requirementImplies(h, w) })
	})
}

// withCommonLabels adds to a selector the labels that every node has.
func withCommonLabels(s labels.Selector) labels.Selector {
	for _, key := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable} {
		if has, err := labels.NewRequirement(key, selection.Exists, nil); err == nil {
			s = s.Add(*has)
		}
	}
	return s
}

func requirementImplies(have, want labels.Requirement) bool {
	if have.Key() != want.Key() {
		return false
	}
	values, wanted := have.Values(), want.Values()
	isOneOf := slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In},
		have.Operator())
	isNoneOf := slices.Contains([]selection.Operator{selection.NotEquals, selection.NotIn}, have.Operator())
	switch want.Operator() {
	case selection.Exists:
		return !isNoneOf && have.Operator() != selection.DoesNotExist
	case selection.Equals, selection.DoubleEquals, selection.In:
		return isOneOf && wanted.IsSuperset(values)
	case selection.NotEquals, selection.NotIn:
		return have.Operator() == selection.DoesNotExist || isNoneOf && values.IsSuperset(wanted) ||
			isOneOf && !wanted.HasAny(values.List()...)
	}
	return have.Equal(want)
}

// fileList is a list of machines in the file.
type fileList struct {
	file, path string
	nodes      []string
	lines      []int // of each node
}

// addList keeps a list for MissingNodes.
func (r *reader) addList(c *Config, s *Source, path string) {
	l := fileList{file: r.file, path: path + ".list"}
	for j, e := range s.List {
		l.nodes = append(l.nodes, e.Node)
		l.lines = append(l.lines, r.lines[item(l.path, j)])
	}
	c.lists = append(c.lists, l)
}

// maxMissing is how many nodes a warning of MissingNodes names.
const maxMissing = 10

// MissingNodes returns a warning for each list with items that name none of the Nodes. names are those of all Nodes.
func (c *Config) MissingNodes(names []string) (warnings Errors) {
	for _, l := range c.lists {
		var missing []string
		first := 0
		for i, node := range l.nodes {
			if slices.Contains(names, node) {
				continue
			}
			if len(missing) == 0 {
				first = l.lines[i]
			}
			missing = append(missing, fmt.Sprintf("%s (line %d)", node, l.lines[i]))
		}
		if len(missing) == 0 {
			continue
		}
		more := ""
		if n := len(missing) - maxMissing; n > 0 {
			missing, more = missing[:maxMissing], fmt.Sprintf(" and %d more", n)
		}
		warnings = append(warnings, Error{File: l.file, Line: first, Path: l.path,
			Problem: fmt.Sprintf("warning: the cluster has no node %s%s. Correct the names, or remove the items",
				strings.Join(missing, ", "), more)})
	}
	return warnings
}
