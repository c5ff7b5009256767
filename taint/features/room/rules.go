package room

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/forcefence/forcefence/taint/decide/evict"
)

// shape is what the scheduler reads of a pod's spec. Pods of one template share it.
type shape struct {
	priority int32
	asks     []ask
	missing  refusal             // of every node: it asks for a resource that none has
	requests corev1.ResourceList // until asks are resolved
	size     float64             // the sum of its shares of all allocatable resources
	ports    []hostPort
	where    *where // nil: its pods are never placed
	affine   []*term
	anti     []*term
	spread   []spread
	unknown  []string // rules that are not checked
	skip     bool     // too much to check: its pods are unknown

	first int // the nodes before it have no room while nothing fails
	epoch int
	next  int // the same, in this epoch
}

type ask struct {
	resource int
	amount   int64
}

// where is on which nodes a pod may run, by its tolerations, selector and affinity.
type where struct {
	tolerations []corev1.Toleration
	required    nodeaffinity.RequiredNodeAffinity
	selector    map[string]string
	affinity    *corev1.NodeSelector
	matching    nodeSet // of its selector and affinity
	admits      nodeSet // of these, the nodes that are open and whose taints it tolerates
}

// nodeSet has a bit for each node. There are many sets, so lists would need too much memory.
type nodeSet []uint64

func (s nodeSet) add(n *node)      { s[n.at/64] |= 1 << (n.at % 64) }
func (s nodeSet) has(n *node) bool { return s[n.at/64]>>(n.at%64)&1 == 1 }

// digest is of what the scheduler reads, so that no pod's text is kept.
type digest [sha256.Size]byte

// term is which pods a rule counts, by the values of a node's label.
type term struct {
	topology   string
	selector   labels.Selector
	namespaces []string // nil: all
	// counts is of topology spread, which counts pods of some nodes, and none that is being deleted; nil: all count.
	counts   func(*node) bool
	matching tally // the pods that it selects
	carrying tally // the pods that must not be where such a pod is
}

// tally counts pods by the value of a node's label.
type tally struct {
	by  map[string]int
	all int
}

func (t *tally) add(n *node, label string, by int) {
	value, has := n.object.Labels[label]
	if !has {
		return
	}
	if t.by == nil {
		t.by = map[string]int{}
	}
	t.by[value] += by
	t.all += by
}

// spread is a topology spread constraint.
type spread struct {
	*term
	maxSkew, minDomains int
	allNodes            bool // also nodes that its selector and affinity do not match are domains
	tolerated           bool // only nodes whose taints it tolerates are domains
	domains             []string
	epoch               int // in which the domains were found; 0: never
}

// identity is what rules of other pods read of a pod.
type identity struct {
	namespace string
	labels    labels.Set
	matches   []*term
	resolved  bool
}

// identify finds the pod's identity. Labels that are too large are none.
func (c *Cluster) identify(p *pod, o *corev1.Pod) {
	raw := []byte(o.Namespace)
	labels := o.Labels
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		raw = fmt.Appendf(raw, "\x00%s\x00%s", key, labels[key])
	}
	if len(raw) > maxLabels {
		raw, labels, p.unknown = []byte(o.Namespace), nil, append(p.unknown, "too large labels")
	}
	key := digest(sha256.Sum256(raw))
	if p.ident = c.idents[key]; p.ident == nil {
		p.ident = &identity{namespace: o.Namespace, labels: labels}
		c.idents[key] = p.ident
	}
}

// matches returns the terms that select pods of the identity.
func (c *Cluster) matches(id *identity) []*term {
	if !id.resolved {
		id.resolved = true
		for _, list := range [][]*term{c.within[id.namespace], c.across} {
			for _, t := range list {
				if t.selector.Matches(id.labels) {
					id.matches = append(id.matches, t)
				}
			}
		}
	}
	return id.matches
}

// countTerms counts the pod for all terms: by 1, or by -1 to take it back.
func (c *Cluster) countTerms(p *pod, n *node, by int) {
	for _, t := range c.matches(p.ident) {
		if t.counts == nil || !p.late && t.counts(n) {
			t.matching.add(n, t.topology, by)
		}
	}
	for _, t := range p.shape.anti {
		t.carrying.add(n, t.topology, by)
	}
}

// shapeOf returns the shape of a pod. placed is whether a replacement of it is to be placed. Of another pod only what
// it uses, and which pods it keeps away, is read: a DaemonSet's pods have a rule each.
func (c *Cluster) shapeOf(o *corev1.Pod, placed bool) *shape {
	spec := slimSpec(o, placed)
	if spec.Size() > maxSpecBytes {
		return c.largeShape(spec)
	}
	raw, _ := spec.Marshal()
	digestOf := func(namespace string) digest {
		return sha256.Sum256(append(fmt.Appendf(nil, "%t\x00%s\x00", placed, namespace), raw...))
	}
	key, own := digestOf(""), digestOf(o.Namespace)
	if s := cmp.Or(c.shapes[own], c.shapes[key]); s != nil {
		return s
	}
	s := &shape{requests: requestsOf(spec)}
	if spec.Priority != nil {
		s.priority = *spec.Priority
	}
	c.readRules(s, o.Namespace, spec, placed)
	// Its terms are about this namespace, and so are the limits that it exceeds.
	if s.skip || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		key = own
	}
	c.shapes[key] = s
	return s
}

// largeShape returns the shape of a pod whose rules are too large to be checked. Such pods still use room.
func (c *Cluster) largeShape(spec *corev1.PodSpec) *shape {
	s := &shape{requests: requestsOf(spec)}
	maps.DeleteFunc(s.requests, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory
	})
	s.skipFor("too large scheduling rules")
	key := digest(sha256.Sum256(fmt.Appendf(nil, "large %d %d", amountOf(corev1.ResourceCPU,
		s.requests[corev1.ResourceCPU]), amountOf(corev1.ResourceMemory, s.requests[corev1.ResourceMemory]))))
	if had := c.shapes[key]; had != nil {
		return had
	}
	c.shapes[key] = s
	return s
}

func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	return resourcehelpers.PodRequests(&corev1.Pod{Spec: *spec}, resourcehelpers.PodResourcesOptions{})
}

func (s *shape) skipFor(why string) { s.skip, s.unknown = true, []string{why} }

// slimSpec returns what the estimate reads of the pod's spec. It shares memory with the pod.
func slimSpec(o *corev1.Pod, placed bool) *corev1.PodSpec {
	in := &o.Spec
	out := &corev1.PodSpec{Priority: in.Priority, Overhead: in.Overhead}
	if placed {
		out.NodeSelector, out.Tolerations, out.ResourceClaims = in.NodeSelector, in.Tolerations, in.ResourceClaims
	}
	if in.Resources != nil {
		out.Resources = &corev1.ResourceRequirements{Requests: in.Resources.Requests}
	}
	for _, list := range []struct {
		in  []corev1.Container
		out *[]corev1.Container
	}{{in.InitContainers, &out.InitContainers}, {in.Containers, &out.Containers}} {
		for i := range list.in {
			from := &list.in[i]
			to := corev1.Container{RestartPolicy: from.RestartPolicy,
				Resources: corev1.ResourceRequirements{Requests: from.Resources.Requests}}
			for _, p := range from.Ports {
				if p.HostPort != 0 {
					to.Ports = append(to.Ports, corev1.ContainerPort{HostPort: p.HostPort, Protocol: p.Protocol})
				}
			}
			*list.out = append(*list.out, to)
		}
	}
	for _, t := range in.TopologySpreadConstraints {
		if placed && t.WhenUnsatisfiable == corev1.DoNotSchedule {
			out.TopologySpreadConstraints = append(out.TopologySpreadConstraints, withLabelKeys(t, o.Labels))
		}
	}
	if a := in.Affinity; a != nil {
		slim := corev1.Affinity{}
		if placed && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			slim.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.
				RequiredDuringSchedulingIgnoredDuringExecution}
		}
		if placed && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			slim.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.PodAffinity.
				RequiredDuringSchedulingIgnoredDuringExecution}
		}
		if a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			slim.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.
				PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
		}
		if slim != (corev1.Affinity{}) {
			out.Affinity = &slim
		}
	}
	return out
}

// withLabelKeys returns the constraint with the pod's values of matchLabelKeys in its selector, as newer API servers
// write it.
func withLabelKeys(t corev1.TopologySpreadConstraint, labels map[string]string) corev1.TopologySpreadConstraint {
	if len(t.MatchLabelKeys) == 0 || t.LabelSelector == nil {
		return t
	}
	selector := *t.LabelSelector
	selector.MatchLabels = maps.Clone(selector.MatchLabels)
	for _, key := range t.MatchLabelKeys {
		if value, has := labels[key]; has {
			if selector.MatchLabels == nil {
				selector.MatchLabels = map[string]string{}
			}
			selector.MatchLabels[key] = value
		}
	}
	t.LabelSelector, t.MatchLabelKeys = &selector, nil
	return t
}

// readRules sets the shape's rules from the slim spec of a pod in the namespace.
func (c *Cluster) readRules(s *shape, namespace string, spec *corev1.PodSpec, placed bool) {
	if len(spec.ResourceClaims) > 0 {
		s.unknown = append(s.unknown, "resource claims")
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, p := range container.Ports {
			if port := (hostPort{p.Protocol, p.HostPort}); !slices.Contains(s.ports, port) {
				s.ports = append(s.ports, port)
			}
		}
	}
	if placed {
		if s.where = c.whereOf(namespace, spec); s.where == nil {
			s.skipFor("too many scheduling rules in its namespace")
			return
		}
	}
	var affine, anti []corev1.PodAffinityTerm
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		affine = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		anti = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(affine)+len(anti)+len(spec.TopologySpreadConstraints) > maxTerms {
		s.skipFor("too many scheduling rules")
		return
	}
	terms := func(list []corev1.PodAffinityTerm, what string) (out []*term) {
		for _, t := range list {
			namespaces := t.Namespaces
			switch {
			case t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels) == 0 &&
				len(t.NamespaceSelector.MatchExpressions) == 0:
				namespaces = nil
			case t.NamespaceSelector != nil:
				s.unknown = append(s.unknown, what+" with a namespaceSelector")
				continue
			case len(namespaces) == 0:
				namespaces = []string{namespace}
			}
			if found := c.termOf(namespace, t.TopologyKey, t.LabelSelector, namespaces, ""); found != nil {
				out = append(out, found)
			} else {
				s.unknown = append(s.unknown, what)
			}
		}
		return out
	}
	s.affine, s.anti = terms(affine, "pod affinity"), terms(anti, "pod anti-affinity")
	for _, t := range spec.TopologySpreadConstraints {
		one := spread{maxSkew: int(t.MaxSkew), minDomains: 1,
			allNodes:  t.NodeAffinityPolicy != nil && *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
			tolerated: t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor}
		if one.term = c.spreadTermOf(namespace, t, s.where, one); one.term == nil {
			s.unknown = append(s.unknown, "topology spread")
			continue
		}
		if t.MinDomains != nil {
			one.minDomains = int(*t.MinDomains)
		}
		s.spread = append(s.spread, one)
	}
}

// mayAdd counts one more different rule of the namespace; "" is for rules that reach into others. It returns false if
// the namespace has too many.
func (c *Cluster) mayAdd(namespace string) bool {
	if c.rules[namespace] >= maxRules {
		return false
	}
	c.rules[namespace]++
	return true
}

// whereOf returns where pods with the spec may run; nil if the namespace has too many rules.
func (c *Cluster) whereOf(namespace string, spec *corev1.PodSpec) *where {
	slim := corev1.PodSpec{NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		slim.Affinity = &corev1.Affinity{NodeAffinity: spec.Affinity.NodeAffinity}
	}
	raw, _ := slim.Marshal()
	w := c.wheres[string(raw)]
	if w == nil && c.mayAdd(namespace) {
		w = &where{
			tolerations: slim.Tolerations, selector: slim.NodeSelector,
			required: nodeaffinity.NewRequiredNodeAffinity(slim.NodeSelector, slim.Affinity),
		}
		if slim.Affinity != nil {
			w.affinity = slim.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		c.wheres[string(raw)] = w
	}
	return w
}

// spreadTermOf returns the term of a topology spread constraint, as termOf does. By default it counts only pods on
// nodes that the pod's selector and affinity match.
func (c *Cluster) spreadTermOf(
	namespace string, of corev1.TopologySpreadConstraint, w *where, s spread,
) *term {
	t := c.termOf(namespace, of.TopologyKey, of.LabelSelector, []string{namespace},
		fmt.Sprintf("spread %p %t %t", w, s.allNodes, s.tolerated))
	if t != nil {
		t.counts = func(n *node) bool { return s.includes(w, n) }
	}
	return t
}

// includes reports whether the node makes a domain and its pods count. A node that fails still does: see findDomains.
func (s spread) includes(w *where, n *node) bool {
	return (s.allNodes || w.matching.has(n)) && (!s.tolerated || w.untolerated(n) == nil)
}

// termOf returns the term of a rule in the namespace, about pods in namespaces; nil if it cannot be read, is too large,
// or is one too many. Rules of different kinds, and kind "" for affinity, share no term.
func (c *Cluster) termOf(
	namespace, topology string, of *metav1.LabelSelector, namespaces []string, kind string,
) *term {
	rule := corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: of, Namespaces: namespaces}
	if rule.Size() > maxTermBytes {
		return nil
	}
	raw, _ := rule.Marshal()
	key := kind + "\x00" + string(raw)
	if t := c.terms[key]; t != nil {
		return t
	}
	selector, err := metav1.LabelSelectorAsSelector(of)
	owner := "term " + namespace
	if len(namespaces) != 1 || namespaces[0] != namespace {
		owner = ""
	}
	if err != nil || !c.mayAdd(owner) {
		return nil
	}
	t := &term{topology: topology, selector: selector, namespaces: namespaces}
	c.terms[key] = t
	if namespaces == nil {
		c.across = append(c.across, t)
	}
	for _, ns := range namespaces {
		c.within[ns] = append(c.within[ns], t)
	}
	return t
}

// match finds the nodes where pods may run.
func (c *Cluster) match(w *where) {
	size := (len(c.nodes) + 63) / 64
	w.matching, w.admits = make(nodeSet, size), make(nodeSet, size)
	for _, n := range c.candidates(w.selector, w.affinity) {
		if ok, err := w.required.Match(n.object); err != nil || !ok {
			continue
		}
		w.matching.add(n)
		if n.shut == "" && w.untolerated(n) == nil {
			w.admits.add(n)
		}
	}
}

// untolerated returns the first taint of the node that keeps pods away.
func (w *where) untolerated(n *node) *corev1.Taint {
	for i, t := range n.object.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(w.tolerations, func(tol corev1.Toleration) bool {
				return evict.StockTolerates(tol, t)
			}) {
			return &n.object.Spec.Taints[i]
		}
	}
	return nil
}

// maxAmount bounds amounts, so that sums of them stay within 64 bits.
const maxAmount = 1 << 60

// amountOf returns the quantity in milli-cores or units, rounded up.
func amountOf(name corev1.ResourceName, q resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == corev1.ResourceCPU {
		scale = resource.Milli
	}
	if q.Sign() <= 0 {
		return 0
	}
	if q.Cmp(*resource.NewScaledQuantity(maxAmount, scale)) >= 0 {
		return maxAmount
	}
	return q.ScaledValue(scale)
}

// quantityOf is the reverse of amountOf, for people.
func quantityOf(name corev1.ResourceName, amount int64) string {
	format, scale := resource.DecimalSI, resource.Scale(0)
	switch {
	case name == corev1.ResourceCPU:
		scale = resource.Milli
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		format = resource.BinarySI
	}
	q := resource.NewScaledQuantity(max(amount, 0), scale)
	q.Format = format
	return q.String()
}

// resolveAsks numbers the resources that the shape asks for.
func (c *Cluster) resolveAsks(s *shape) {
	if s.requests == nil {
		s.requests = corev1.ResourceList{}
	}
	s.requests[corev1.ResourcePods] = resource.MustParse("1")
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		amount := amountOf(name, s.requests[name])
		if amount == 0 {
			continue
		}
		i := slices.Index(c.names, name)
		switch {
		case i < 0 && c.having[name] == 0:
			s.missing = refusal{rule: "with too little ", of: string(name), asks: amount}
			continue
		case i < 0:
			s.skipFor("resource " + string(name))
			continue
		}
		s.asks = append(s.asks, ask{i, amount})
		if c.totals[i] > 0 {
			s.size += float64(amount) / c.totals[i]
		}
	}
	s.requests = nil
}
