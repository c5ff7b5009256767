package room

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Replacement is whether the replacement of a moved pod finds room. Replacements take room from each other in their
// order.
type Replacement struct {
	Pod   string `json:"pod"`
	Owner string `json:"owner"` // kind/name; "": no owner, so there is no replacement
	Fits  bool   `json:"fits"`
	Node  string `json:"node,omitempty"` // a node where it fits
	Why   string `json:"why,omitempty"`  // why it fits nowhere
	// Unchecked lists the scheduler's rules that this estimate could not check: if it fits, that is unknown.
	Unchecked []string `json:"unchecked,omitempty"`
}

// Kind is what fails, from a closed set.
type Kind string

// The kinds.
const (
	Node   Kind = "node"
	Domain Kind = "domain"
	Pair   Kind = "pair" // two domains of one label
)

// Kinds lists all of them.
var Kinds = []Kind{Node, Domain, Pair}

// Failure is what becomes of the pods of one node, domain or pair if it fails now.
type Failure struct {
	Kind    Kind     `json:"kind"`
	Name    string   `json:"name"` // the node's, LABEL=VALUE, or LABEL=VALUE+VALUE
	Nodes   int      `json:"nodes"`
	Pods    int      `json:"pods"`              // that need room elsewhere
	Lacking int      `json:"lacking"`           // of these, those that fit nowhere
	Unknown int      `json:"unknown"`           // of these, those about which that is unknown
	Why     string   `json:"why,omitempty"`     // why the first of them fits nowhere, or is unknown
	Without []string `json:"without,omitempty"` // a few of the pods that fit nowhere
}

// Verdict is the result of one failure in a word, from a closed set.
type Verdict string

// The verdicts, the worst first.
const (
	Lacks   Verdict = "lacks"
	Unknown Verdict = "unknown"
	Fits    Verdict = "fits"
)

// Verdict returns the result of the failure.
func (f Failure) Verdict() Verdict {
	switch {
	case f.Lacking > 0:
		return Lacks
	case f.Unknown > 0:
		return Unknown
	default:
		return Fits
	}
}

// Replacements returns what becomes of the pods of one node, in the order of their placement. Those that no controller
// owns are last.
func (c *Cluster) Replacements(name string) []Replacement {
	c.prepare()
	out := []Replacement{}
	n := c.byName[name]
	if n == nil {
		return out
	}
	c.play([]*node{n}, func(p *pod, at *node, known bool) {
		r := Replacement{Pod: p.name, Owner: p.owner, Unchecked: p.unchecked(known)}
		switch {
		case at != nil:
			r.Fits, r.Node = true, at.object.Name
		case !known:
			r.Why = "unknown"
		default:
			r.Why = c.describe(p)
		}
		out = append(out, r)
	})
	for _, p := range n.movers {
		if p.owner == "" {
			out = append(out, Replacement{Pod: p.name, Why: "no controller owns it, so it gets no replacement"})
		}
	}
	return out
}

// Estimate plays the failure of each node, each domain, and each pair of domains of one label. It leaves out those with
// all nodes of the cluster. Of a label with many domains it plays the pairs of those with most nodes.
func (c *Cluster) Estimate() []Failure {
	c.prepare()
	out := make([]Failure, 0, len(c.nodes))
	for _, n := range c.nodes {
		out = append(out, c.fail(Node, n.object.Name, []*node{n}))
	}
	var pairs []Failure
	for i, label := range c.labels {
		by := map[string][]*node{}
		for _, n := range c.nodes {
			if n.domains[i] != "" {
				by[n.domains[i]] = append(by[n.domains[i]], n)
			}
		}
		values := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), strings.Compare(a, b))
		})
		for at, value := range values {
			if len(by[value]) < len(c.nodes) {
				out = append(out, c.fail(Domain, label+"="+value, by[value]))
			}
			for _, other := range values[:min(at, maxPaired)] {
				if both := slices.Concat(by[other], by[value]); at < maxPaired && len(both) < len(c.nodes) {
					pairs = append(pairs, c.fail(Pair, label+"="+min(other, value)+"+"+max(other, value), both))
				}
			}
		}
	}
	return append(out, pairs...)
}

// fail returns what becomes of the pods if all these nodes fail.
func (c *Cluster) fail(kind Kind, name string, nodes []*node) Failure {
	f := Failure{Kind: kind, Name: name, Nodes: len(nodes)}
	unknown := ""
	c.play(nodes, func(p *pod, at *node, known bool) {
		f.Pods++
		switch {
		case at == nil && known:
			if f.Lacking++; f.Lacking == 1 {
				f.Why = p.name + " " + c.describe(p)
			}
			if len(f.Without) < maxListed {
				f.Without = append(f.Without, p.name)
			}
		case !known || len(p.unknown)+len(p.shape.unknown) > 0:
			if f.Unknown++; f.Unknown == 1 {
				unknown = p.name + ": " + strings.Join(p.unchecked(known), ", ") + " not checked"
			}
		}
	})
	f.Why = cmp.Or(f.Why, unknown)
	return f
}

// unchecked lists the rules that were not checked. known is of place.
func (p *pod) unchecked(known bool) []string {
	out := slices.Concat(p.shape.unknown, p.unknown)
	if !known && !p.shape.skip {
		out = append(out, fmt.Sprintf("more than %d nodes", maxTried))
	}
	return out
}

// play fails the nodes, and calls each with every pod that has an owner and what place returns for it. Afterwards the
// cluster is as it was.
func (c *Cluster) play(nodes []*node, each func(p *pod, at *node, known bool)) {
	c.epoch++
	var movers []*pod
	for _, n := range nodes {
		n.failed = c.epoch
		movers = append(movers, n.movers...)
		for _, p := range n.pods {
			c.countTerms(p, n, -1)
		}
	}
	if len(nodes) > 1 {
		slices.SortFunc(movers, comparePods)
	}
	type placed struct {
		p  *pod
		at *node
	}
	var undo []placed
	for _, p := range movers {
		if p.owner == "" {
			continue
		}
		at, known := c.place(p)
		each(p, at, known)
		if at == nil {
			continue
		}
		c.count(p, at, 1)
		undo = append(undo, placed{p, at})
		for _, v := range p.volumes {
			v.at, v.epoch = at, c.epoch
		}
	}
	for _, u := range undo {
		c.count(u.p, u.at, -1)
	}
	for _, n := range nodes {
		for _, p := range n.pods {
			c.countTerms(p, n, 1)
		}
	}
}

// place returns the first node that admits the pod; nil for none. known is false if it did not try all nodes.
func (c *Cluster) place(p *pod) (_ *node, known bool) {
	s := p.shape
	if s.skip {
		return nil, false
	}
	if s.epoch != c.epoch {
		s.epoch, s.next = c.epoch, s.first
	}
	list, from := c.nodes, &s.next
	for _, v := range p.volumes {
		if v.reach.isGone(c.epoch) {
			return nil, true
		}
		if v.reach != nil && len(v.reach.nodes) < len(list) {
			list, from = v.reach.nodes, new(int)
		}
	}
	least, tried := c.leastCounts(s), 0
	for i := *from; i < len(list); i++ {
		n := list[i]
		switch {
		case n.failed == c.epoch || !c.hasRoom(s, n):
			if i == *from {
				*from++
			}
		case c.refusesVolumes(p, n).rule != "":
		case c.refusesByPods(p, n, least).rule == "":
			return n, true
		default:
			if tried++; tried == maxTried {
				return nil, false
			}
		}
	}
	return nil, true
}

// refusal is why a node does not admit a pod; the zero value admits it. The parts make a text only for people.
type refusal struct {
	rule, of   string
	asks, free int64 // of resource of
}

// lacks returns why the node has no room for the shape.
func (c *Cluster) lacks(s *shape, n *node) refusal {
	if s.missing.rule != "" {
		return s.missing
	}
	for _, a := range s.asks {
		if a.amount > n.free[a.resource] {
			return refusal{"with too little ", string(c.names[a.resource]), a.amount, n.free[a.resource]}
		}
	}
	for _, p := range s.ports {
		if n.ports[p] > 0 {
			return refusal{rule: "with its host port in use"}
		}
	}
	return refusal{}
}

// refusesByPods returns why the node does not admit the pod, by rules about other pods. least is of leastCounts.
func (c *Cluster) refusesByPods(p *pod, n *node, least []int) refusal {
	for _, t := range c.matches(p.ident) {
		if t.carrying.all > 0 && t.carrying.by[n.object.Labels[t.topology]] > 0 {
			return refusal{rule: "with pods that keep it away (anti-affinity)"}
		}
	}
	for _, t := range p.shape.anti {
		if t.matching.all > 0 && t.matching.by[n.object.Labels[t.topology]] > 0 {
			return refusal{rule: "with pods that it keeps away from (anti-affinity)"}
		}
	}
	for _, t := range p.shape.affine {
		value, has := n.object.Labels[t.topology]
		// The first pod of a group that must be together may go anywhere.
		if !has || t.matching.by[value] == 0 && (t.matching.all > 0 || !slices.Contains(c.matches(p.ident), t)) {
			return refusal{rule: "without the pods that it must be with (affinity)"}
		}
	}
	for i, t := range p.shape.spread {
		value, has := n.object.Labels[t.topology]
		skew := t.matching.by[value] - least[i]
		if slices.Contains(c.matches(p.ident), t.term) {
			skew++
		}
		if !has || skew > t.maxSkew {
			return refusal{rule: "where its topology spread is exceeded"}
		}
	}
	return refusal{}
}

// refusesVolumes returns why the node does not admit the pod, by its volumes.
func (c *Cluster) refusesVolumes(p *pod, n *node) refusal {
	for i, v := range p.volumes {
		switch {
		case v.reach != nil && !includes(v.reach.nodes, n):
			return refusal{rule: "out of reach of its volume ", of: v.name}
		case v.exclusive && v.epoch == c.epoch && v.at != n:
			return refusal{rule: "other than where another pod has its volume ", of: v.name}
		case v.driver == "" || n.runs == nil:
			continue
		case !n.runs[v.driver]:
			return refusal{rule: "without CSI driver ", of: v.driver}
		}
		left, limited := n.slots[v.driver]
		if !limited || n.has[v.name] > 0 {
			continue
		}
		more := int64(1)
		for _, before := range p.volumes[:i] {
			if before.driver == v.driver && n.has[before.name] == 0 && before != v {
				more++
			}
		}
		if more > left {
			return refusal{rule: "without a free attach slot of ", of: v.driver}
		}
	}
	return refusal{}
}

// leastCounts returns, for each spread constraint, the pods in the domain that has the fewest.
func (c *Cluster) leastCounts(s *shape) []int {
	out := make([]int, len(s.spread))
	for i := range s.spread {
		t := &s.spread[i]
		c.findDomains(s, t)
		if len(t.domains) < t.minDomains {
			continue
		}
		for at, value := range t.domains {
			if count := t.matching.by[value]; at == 0 || count < out[i] {
				out[i] = count
			}
			if out[i] == 0 {
				break
			}
		}
	}
	return out
}

// findDomains finds the domains of the constraint. A node that fails still makes one, unless the constraint honours
// taints: its Node stays.
func (c *Cluster) findDomains(s *shape, t *spread) {
	if t.epoch == c.epoch || t.epoch > 0 && !t.tolerated {
		return
	}
	found := map[string]bool{}
	t.epoch, t.domains = c.epoch, t.domains[:0]
	for _, n := range c.nodes {
		value, has := n.object.Labels[t.topology]
		if !has || found[value] || t.tolerated && n.failed == c.epoch || !t.includes(s.where, n) {
			continue
		}
		found[value], t.domains = true, append(t.domains, value)
	}
}

// describe says why no node admits the pod.
func (c *Cluster) describe(p *pod) string {
	type kind struct{ rule, of string }
	count, most, nodes := map[kind]int{}, map[kind]refusal{}, 0
	least := c.leastCounts(p.shape)
	for _, n := range c.nodes {
		if n.failed == c.epoch {
			continue
		}
		nodes++
		why := c.refusalOf(p, n, least)
		what := kind{why.rule, why.of}
		if count[what]++; count[what] == 1 || why.free > most[what].free {
			most[what] = why
		}
	}
	var all []string
	for _, what := range slices.SortedFunc(maps.Keys(count), func(a, b kind) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a.rule+a.of, b.rule+b.of))
	}) {
		text := fmt.Sprintf("%d %s%s", count[what], what.rule, what.of)
		if w := most[what]; w.asks > 0 {
			name := corev1.ResourceName(w.of)
			text += fmt.Sprintf(" (it asks for %s, at most %s is free)", quantityOf(name, w.asks),
				quantityOf(name, w.free))
		}
		all = append(all, text)
	}
	if nodes == 0 {
		return "fits on none of 0 other nodes"
	}
	return fmt.Sprintf("fits on none of %d other nodes: %s", nodes, strings.Join(all, ", "))
}

// refusalOf returns why the node does not admit the pod, by the first rule that refuses it.
func (c *Cluster) refusalOf(p *pod, n *node, least []int) refusal {
	if n.shut != "" {
		return refusal{rule: n.shut}
	}
	if t := p.shape.where.untolerated(n); t != nil {
		return refusal{rule: "with taint ", of: t.Key + ":" + string(t.Effect)}
	}
	if !p.shape.where.matching.has(n) {
		return refusal{rule: "not of its node selector or affinity"}
	}
	for _, v := range p.volumes {
		if v.reach != nil && !includes(v.reach.nodes, n) {
			return refusal{rule: "out of reach of its volume ", of: v.name}
		}
	}
	if r := c.lacks(p.shape, n); r.rule != "" {
		return r
	}
	if r := c.refusesVolumes(p, n); r.rule != "" {
		return r
	}
	return c.refusesByPods(p, n, least)
}
