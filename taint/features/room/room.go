// Package room estimates whether the pods of a node, of a failure domain, or of two domains find room elsewhere if
// these fail now. It takes a cluster's objects once, and then plays every failure on what it kept of them.
//
// The estimate follows Kubernetes' scheduler: requests, taints, node selectors and affinity, host ports, volume
// topology, CSI drivers and attach limits, required pod affinity and anti-affinity, and topology spread. Pods of a
// higher priority come first, among equals the larger ones, and each takes the first node that admits it. It assumes no
// preemption, and leaves out pods that wait for a node already.
//
// It is pure: it names no client, no clock and no logger.
//
// It promises: what it could not check is reported as unknown, never as room. Its work is bounded. A namespace's users
// may write many rules, or large ones. Beyond the limits below their pods are unknown, and their rules bind no others.
package room

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/forcefence/forcefence/taint"
)

const (
	maxSpecBytes = 16 << 10 // of what the scheduler reads of one pod
	maxTerms     = 16       // affinity, anti-affinity and spread rules of one pod
	maxTermBytes = 1 << 10  // of one such rule
	maxRules     = 64       // different rules of one namespace, and of all namespaces those that reach into others
	maxLabels    = 16 << 10 // bytes of one pod's labels
	maxResources = 64       // different resources that are counted: the usual ones, then those that most nodes have
	maxTried     = 1000     // nodes that refuse a pod because of other pods, until it is unknown whether it fits
	maxPaired    = 24       // domains of a label of which pairs are played, the largest ones
	maxListed    = 5        // pods that a Failure names
)

// Cluster is what the estimate knows of a cluster. Add all objects, in any order, before the first question. It is not
// safe for concurrent use.
type Cluster struct {
	key    string   // of the mark
	labels []string // each value of one is a failure domain

	nodes    []*node // by name, once prepared
	byName   map[string]*node
	pods     []*pod
	shapes   map[digest]*shape
	wheres   map[string]*where
	terms    map[string]*term
	idents   map[digest]*identity
	claims   map[string]string // namespace/name: PersistentVolume
	volumes  map[string]*volume
	reaches  map[string]*reach
	attached []attachment
	csi      map[string]*storagev1.CSINode
	csiRead  bool
	index    map[string]map[string][]*node // label, value
	rules    map[string]int                // by the namespace that has them first; "": across namespaces
	having   map[corev1.ResourceName]int   // nodes that have the resource
	names    []corev1.ResourceName         // the resources that are counted
	totals   []float64                     // allocatable of all nodes
	within   map[string][]*term
	across   []*term

	ready bool
	epoch int // counts the failures played
}

type node struct {
	object  *corev1.Node // labels and taints alone
	at      int          // its index
	shut    string       // "" or why no pod can go there at all
	alloc   corev1.ResourceList
	free    []int64
	runs    map[string]bool // CSI drivers; nil: unknown
	slots   map[string]int64
	has     map[string]int // uses of volumes there, by PersistentVolume
	ports   map[hostPort]int
	pods    []*pod
	movers  []*pod // the pods that get a replacement, in the order of placement
	failed  int    // the epoch in which it fails
	domains []string
}

type hostPort struct {
	protocol corev1.Protocol
	port     int32
}

// pod is what is kept of a Pod that is bound to a node and not finished.
type pod struct {
	name     string // namespace/name
	owner    string // kind/name; "": none
	shape    *shape
	ident    *identity
	claims   []podClaim
	volumes  []*volume
	unknown  []string // rules that could not be checked, beside its shape's
	nodeName string
	moves    bool // a fence of its node ends it, and no deletion did before
	late     bool // it is being deleted: its replacement is on the way already
}

// podClaim is a claim that a pod uses. An ephemeral one is made for the replacement again, with another volume.
type podClaim struct {
	name      string // namespace/name
	ephemeral bool
}

type volume struct {
	claim     string // namespace/name; "": any
	driver    string
	exclusive bool // one node at a time
	affinity  *corev1.NodeSelector
	name      string
	reach     *reach // nil: every node

	at    *node // where a replacement has it, in this epoch
	epoch int
}

// reach is the nodes that a selector matches.
type reach struct {
	nodes []*node // by name
	epoch int
	gone  bool // all of them fail, in this epoch
}

type attachment struct{ node, driver, volume string }

// New returns a Cluster without objects. key is the mark's; each value of one of the labels is a failure domain.
func New(key string, labels []string) *Cluster {
	return &Cluster{
		key: key, labels: labels,
		byName: map[string]*node{}, shapes: map[digest]*shape{}, wheres: map[string]*where{}, terms: map[string]*term{},
		idents: map[digest]*identity{}, having: map[corev1.ResourceName]int{}, claims: map[string]string{},
		volumes: map[string]*volume{},
		reaches: map[string]*reach{}, csi: map[string]*storagev1.CSINode{}, rules: map[string]int{},
		index: map[string]map[string][]*node{}, within: map[string][]*term{},
	}
}

// AddNode adds a Node, and keeps its labels and taints.
func (c *Cluster) AddNode(o *corev1.Node) {
	n := &node{
		object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
			Spec: corev1.NodeSpec{Taints: o.Spec.Taints}},
		alloc: o.Status.Allocatable,
	}
	switch {
	case taint.Condition(o, corev1.NodeReady).Status != corev1.ConditionTrue:
		n.shut = "not Ready"
	case o.Spec.Unschedulable:
		n.shut = "cordoned"
	}
	for _, label := range c.labels {
		n.domains = append(n.domains, o.Labels[label])
	}
	for name := range n.alloc {
		c.having[name]++
	}
	c.byName[o.Name] = n
}

// AddPod adds a Pod. It skips one that is finished or bound to no node.
func (c *Cluster) AddPod(o *corev1.Pod) {
	if o.Spec.NodeName == "" || taint.IsTerminal(o) {
		return
	}
	p := &pod{
		name: o.Namespace + "/" + o.Name, nodeName: o.Spec.NodeName, late: o.DeletionTimestamp != nil,
		moves: taint.ExemptionOf(o, c.key) == taint.NotExempt && o.DeletionTimestamp == nil,
	}
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		p.owner = ref.Kind + "/" + ref.Name
	}
	p.shape = c.shapeOf(o, p.moves && p.owner != "")
	c.identify(p, o)
	if taint.CutParts(o) != "" {
		p.unknown = append(p.unknown, "too large fields")
	}
	for _, v := range o.Spec.Volumes {
		if name, has := taint.VolumeClaim(o, v); has {
			p.claims = append(p.claims, podClaim{o.Namespace + "/" + name, v.Ephemeral != nil})
		}
	}
	c.pods = append(c.pods, p)
}

// AddClaim says which PersistentVolume a claim is bound to. Pods with a claim that was not added, or that is bound to
// "", are unknown.
func (c *Cluster) AddClaim(namespace, name, pv string) { c.claims[namespace+"/"+name] = pv }

// AddVolume adds a PersistentVolume. One of an in-tree type must be translated to CSI before.
func (c *Cluster) AddVolume(o *corev1.PersistentVolume) {
	v := &volume{name: o.Name, exclusive: !slices.ContainsFunc(o.Spec.AccessModes,
		func(m corev1.PersistentVolumeAccessMode) bool {
			return m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany
		})}
	if of := o.Spec.ClaimRef; of != nil {
		v.claim = of.Namespace + "/" + of.Name
	}
	if o.Spec.CSI != nil {
		v.driver = o.Spec.CSI.Driver
	}
	if a := o.Spec.NodeAffinity; a != nil {
		v.affinity = a.Required
	}
	c.volumes[o.Name] = v
}

// AddAttachment adds a VolumeAttachment.
func (c *Cluster) AddAttachment(o *storagev1.VolumeAttachment) {
	a := attachment{node: o.Spec.NodeName, driver: o.Spec.Attacher, volume: "inline " + o.Name}
	if pv := o.Spec.Source.PersistentVolumeName; pv != nil {
		a.volume = *pv
	}
	c.attached = append(c.attached, a)
}

// AddCSINode adds the CSI drivers of a node. A node without one runs none, once CSINodesRead was called.
func (c *Cluster) AddCSINode(o *storagev1.CSINode) { c.csi[o.Name] = o }

// CSINodesRead says that all CSINodes were added. Without it, drivers and attach limits are not checked.
func (c *Cluster) CSINodesRead() { c.csiRead = true }

// prepare resolves what refers to other objects, once.
func (c *Cluster) prepare() {
	if c.ready {
		return
	}
	c.ready = true
	for _, n := range c.byName {
		c.nodes = append(c.nodes, n)
	}
	slices.SortFunc(c.nodes, func(a, b *node) int { return strings.Compare(a.object.Name, b.object.Name) })
	c.chooseResources()
	for i, n := range c.nodes {
		n.at = i
		c.prepareNode(n)
	}
	for _, w := range c.wheres {
		c.match(w)
	}
	for _, a := range c.attached {
		if n := c.byName[a.node]; n != nil && n.has[a.volume] == 0 {
			n.use(a.driver, a.volume, 1)
		}
	}
	for _, s := range c.shapes {
		c.resolveAsks(s)
	}
	for _, p := range c.pods {
		c.resolveVolumes(p)
		if n := c.byName[p.nodeName]; n != nil {
			n.pods = append(n.pods, p)
			c.count(p, n, 1)
		}
	}
	for _, n := range c.nodes {
		for _, p := range n.pods {
			if p.moves {
				n.movers = append(n.movers, p)
			}
		}
		slices.SortFunc(n.movers, comparePods)
	}
	for _, s := range c.shapes {
		c.findFirst(s)
	}
}

// findFirst finds the first node with room for the shape while nothing fails. A failure frees no room, so none before
// it has any then.
func (c *Cluster) findFirst(s *shape) {
	if s.where == nil {
		return
	}
	for s.first < len(c.nodes) && !c.hasRoom(s, c.nodes[s.first]) {
		s.first++
	}
}

// hasRoom reports whether the node admits the shape, without its volumes and its rules about other pods.
func (c *Cluster) hasRoom(s *shape, n *node) bool {
	return s.where.admits.has(n) && c.lacks(s, n).rule == ""
}

// comparePods orders by priority, then by size, the greater ones first.
func comparePods(a, b *pod) int {
	return cmp.Or(cmp.Compare(b.shape.priority, a.shape.priority), cmp.Compare(b.shape.size, a.shape.size),
		strings.Compare(a.name, b.name))
}

// chooseResources chooses the resources that are counted. A kubelet writes its node's resources itself: one with many
// names must not push out those that pods ask for.
func (c *Cluster) chooseResources() {
	usual := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourcePods}
	others := maps.Clone(c.having)
	for _, name := range usual {
		delete(others, name)
	}
	all := slices.AppendSeq(usual, maps.Keys(others))
	slices.SortFunc(all[len(all)-len(others):], func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(others[b], others[a]), cmp.Compare(a, b))
	})
	c.names = all[:min(len(all), maxResources)]
	c.totals = make([]float64, len(c.names))
}

func (c *Cluster) prepareNode(n *node) {
	n.slots, n.has, n.ports = map[string]int64{}, map[string]int{}, map[hostPort]int{}
	n.free = make([]int64, len(c.names))
	for i, name := range c.names {
		n.free[i] = amountOf(name, n.alloc[name])
		c.totals[i] += float64(n.free[i])
	}
	if !c.csiRead {
		return
	}
	n.runs = map[string]bool{}
	if o := c.csi[n.object.Name]; o != nil {
		for _, d := range o.Spec.Drivers {
			n.runs[d.Name] = true
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				n.slots[d.Name] = int64(*d.Allocatable.Count)
			}
		}
	}
}

// resolveVolumes finds the pod's volumes, and where these can be attached.
func (c *Cluster) resolveVolumes(p *pod) {
	for _, of := range p.claims {
		v := c.volumes[c.claims[of.name]]
		if v == nil || v.claim != "" && v.claim != of.name {
			p.unknown = append(p.unknown, "claim "+of.name[strings.Index(of.name, "/")+1:])
			continue
		}
		if of.ephemeral {
			v = &volume{name: v.name, driver: v.driver}
		}
		if v.affinity != nil && v.reach == nil {
			v.reach = c.reachOf(v.affinity)
		}
		p.volumes = append(p.volumes, v)
	}
	p.claims = nil
}

// reachOf returns the nodes that the selector matches. A selector that cannot be parsed matches none.
func (c *Cluster) reachOf(sel *corev1.NodeSelector) *reach {
	raw, _ := sel.Marshal()
	r := c.reaches[string(raw)]
	if r == nil {
		r = &reach{}
		if parsed, err := nodeaffinity.NewNodeSelector(sel); err == nil {
			for _, n := range c.candidates(nil, sel) {
				if parsed.Match(n.object) {
					r.nodes = append(r.nodes, n)
				}
			}
		}
		c.reaches[string(raw)] = r
	}
	return r
}

// candidates returns, by name, the nodes that may have the labels and match the selector. It may return too many.
func (c *Cluster) candidates(labels map[string]string, sel *corev1.NodeSelector) []*node {
	for key, value := range labels {
		return c.nodesWith(key, value)
	}
	if sel == nil {
		return c.nodes
	}
	found := map[*node]bool{}
	var out []*node
	for _, t := range sel.NodeSelectorTerms {
		i := slices.IndexFunc(t.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Operator == corev1.NodeSelectorOpIn
		})
		if i < 0 {
			return c.nodes
		}
		for _, value := range t.MatchExpressions[i].Values {
			for _, n := range c.nodesWith(t.MatchExpressions[i].Key, value) {
				if !found[n] {
					found[n], out = true, append(out, n)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.at, b.at) })
	return out
}

// nodesWith returns the nodes with the label's value, by name.
func (c *Cluster) nodesWith(key, value string) []*node {
	by := c.index[key]
	if by == nil {
		by = map[string][]*node{}
		for _, n := range c.nodes {
			if v, has := n.object.Labels[key]; has {
				by[v] = append(by[v], n)
			}
		}
		c.index[key] = by
	}
	return by[value]
}

// includes reports whether the nodes, which are by name, include this one.
func includes(nodes []*node, n *node) bool {
	_, has := slices.BinarySearchFunc(nodes, n.at, func(a *node, at int) int { return cmp.Compare(a.at, at) })
	return has
}

// isGone reports whether all nodes within reach fail.
func (r *reach) isGone(epoch int) bool {
	if r == nil {
		return false
	}
	if r.epoch != epoch {
		r.epoch = epoch
		r.gone = !slices.ContainsFunc(r.nodes, func(n *node) bool { return n.failed != epoch })
	}
	return r.gone
}

// use counts a use of the volume on the node: by 1, or by -1 to take it back. The first use takes an attach slot.
func (n *node) use(driver, pv string, by int) {
	before := n.has[pv]
	n.has[pv] += by
	if _, limited := n.slots[driver]; limited && (before == 0) != (n.has[pv] == 0) {
		n.slots[driver] -= int64(by)
	}
	if n.has[pv] == 0 {
		delete(n.has, pv)
	}
}

// count counts the pod on the node: by 1, or by -1 to take it back.
func (c *Cluster) count(p *pod, n *node, by int) {
	for _, a := range p.shape.asks {
		n.free[a.resource] = max(n.free[a.resource]-int64(by)*a.amount, -maxAmount)
	}
	for _, port := range p.shape.ports {
		n.ports[port] += by
	}
	for _, v := range p.volumes {
		n.use(v.driver, v.name, by)
	}
	c.countTerms(p, n, by)
}
