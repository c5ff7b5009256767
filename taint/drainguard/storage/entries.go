package storage

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// entries are what the objects of a system gave. Each is evaluated once, when it comes. An object is kept only where
// another one is needed to evaluate it (a replica's Wanted), and its data alone.
type entries struct {
	*Adapter
	nodes    map[string]*nodeEntry // by the object's namespace/name, as the others
	volumes  map[string]*volumeEntry
	replicas map[string]*replicaEntry

	nodesBy    index // by Kubernetes node
	volumesBy  index // by what a volume is found by
	replicasOn index // by Kubernetes node; "": not known, or none yet
	replicasOf index // by volume

	faults  map[string]int  // how many objects did not evaluate, by expression
	ours    map[string]bool // replicas that are Ours
	version uint64
}

func newEntries(a *Adapter) entries {
	return entries{
		Adapter: a,
		nodes:   map[string]*nodeEntry{}, volumes: map[string]*volumeEntry{}, replicas: map[string]*replicaEntry{},
		nodesBy: index{}, volumesBy: index{}, replicasOn: index{}, replicasOf: index{},
		faults: map[string]int{}, ours: map[string]bool{},
	}
}

type nodeEntry struct {
	name   string
	health Health
	object map[string]any
	faults []string
}

type volumeEntry struct {
	key, name string
	health    Health
	faults    []string
}

type replicaEntry struct {
	Replica
	unknown []string       // of the object alone
	object  map[string]any // nil: Wanted hangs on the object alone
	faults  []string
	lost    bool // nobody knows its node
}

// index finds objects by a text that several may have.
type index map[string]map[string]bool

func (x index) add(text, key string) {
	if x[text] == nil {
		x[text] = map[string]bool{}
	}
	x[text][key] = true
}

func (x index) drop(text, key string) {
	delete(x[text], key)
	if len(x[text]) == 0 {
		delete(x, text)
	}
}

func keyOf(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

func (s *entries) keys(k Kind) []string {
	switch k {
	case Nodes:
		return slices.Collect(maps.Keys(s.nodes))
	case Volumes:
		return slices.Collect(maps.Keys(s.volumes))
	case Replicas:
		return slices.Collect(maps.Keys(s.replicas))
	default:
		return nil
	}
}

// known are the Kubernetes nodes of which anything was told.
func (s *entries) known() []string {
	all := maps.Clone(s.replicasOn)
	maps.Copy(all, s.nodesBy)
	delete(all, "")
	return slices.Collect(maps.Keys(all))
}

func (s *entries) put(k Kind, o *unstructured.Unstructured, changed map[string]bool) {
	if _, has := s.Resource(k); !has || s.Spec.Namespace != "" && o.GetNamespace() != s.Spec.Namespace && o.GetNamespace() != "" {
		return // somebody else's, who must not speak for the system
	}
	switch k {
	case Nodes:
		s.putNode(o, changed)
	case Volumes:
		s.putVolume(o, changed)
	case Replicas:
		s.putReplica(o, changed)
	}
}

func (s *entries) remove(k Kind, key string, changed map[string]bool) {
	s.version++
	switch k {
	case Nodes:
		if old := s.nodes[key]; old != nil {
			delete(s.nodes, key)
			s.nodesBy.drop(old.name, key)
			s.fault(old.faults, nil)
			s.nodeChanged(old.name, changed)
		}
	case Volumes:
		if old := s.volumes[key]; old != nil {
			delete(s.volumes, key)
			s.volumesBy.drop(old.key, key)
			s.fault(old.faults, nil)
			s.volumeChanged(old.name, changed)
		}
	case Replicas:
		if old := s.replicas[key]; old != nil {
			delete(s.replicas, key)
			delete(s.ours, key)
			s.replicasOn.drop(old.Node, key)
			s.replicasOf.drop(old.Volume, key)
			s.fault(old.faults, nil)
			s.volumeChanged(old.Volume, changed)
			s.replicaChanged(old, changed)
		}
	}
}

// fault counts which expressions failed, instead of those that had.
func (s *entries) fault(old, now []string) {
	for _, path := range old {
		if s.faults[path]--; s.faults[path] == 0 {
			delete(s.faults, path)
		}
	}
	for _, path := range now {
		s.faults[path]++
	}
}

func (s *entries) putNode(o *unstructured.Unstructured, changed map[string]bool) {
	key, q := keyOf(o), s.ask(o.Object, nil)
	now := &nodeEntry{name: q.string("node.name", "")}
	now.health = q.health(Nodes)
	now.faults = q.faults
	if s.exprs["replica.wanted"] != nil {
		now.object = slim(o)
	}
	old := s.nodes[key]
	if old == nil {
		old = &nodeEntry{}
	}
	s.nodes[key] = now
	s.fault(old.faults, now.faults)
	if old.name != now.name {
		s.nodesBy.drop(old.name, key)
	}
	if now.name != "" {
		s.nodesBy.add(now.name, key)
	}
	if old.name != "" && old.name != now.name {
		s.nodeChanged(old.name, changed)
	}
	if old.name == now.name && old.health == now.health { // only what replicas make of it may have changed
		s.nodeAgain(now.name, changed)
		return
	}
	s.nodeChanged(now.name, changed)
}

// nodeChanged evaluates again what hangs on a node's object.
func (s *entries) nodeChanged(name string, changed map[string]bool) {
	s.version++
	note(changed, name)
	for key := range s.replicasOn[name] {
		if r := s.replicas[key]; r.object != nil {
			s.want(r)
		}
	}
}

// nodeAgain is nodeChanged where the node's health is the same.
func (s *entries) nodeAgain(name string, changed map[string]bool) {
	for key := range s.replicasOn[name] {
		if r := s.replicas[key]; r.object != nil {
			before := r.Replica
			if s.want(r); r.Replica != before {
				s.version++
				note(changed, name)
			}
		}
	}
}

func (s *entries) putVolume(o *unstructured.Unstructured, changed map[string]bool) {
	key, q := keyOf(o), s.ask(o.Object, nil)
	now := &volumeEntry{key: q.string("volume.key", "")}
	now.name = q.string("volume.name", now.key)
	now.health = q.health(Volumes)
	now.faults = q.faults
	if now.health.Known && len(q.why) > 0 { // nobody knows whose health that is
		now.health = Health{Why: q.why[0]}
	}
	old := s.volumes[key]
	if old == nil {
		old = &volumeEntry{}
	}
	s.volumes[key] = now
	s.fault(old.faults, now.faults)
	s.volumesBy.drop(old.key, key)
	if now.key != "" {
		s.volumesBy.add(now.key, key)
	}
	if old.key != now.key || old.name != now.name || old.health != now.health {
		s.version++
		s.volumeChanged(old.name, changed)
		s.volumeChanged(now.name, changed)
	}
}

// volumeChanged notes the nodes that have a replica of the volume: what one of them may lose hangs on the others.
func (s *entries) volumeChanged(volume string, changed map[string]bool) {
	for key := range s.replicasOf[volume] {
		note(changed, s.replicas[key].Node)
	}
}

func (s *entries) putReplica(o *unstructured.Unstructured, changed map[string]bool) {
	key, q := keyOf(o), s.ask(o.Object, nil)
	now := &replicaEntry{Replica: Replica{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}}
	now.Node = q.string("replica.node", "")
	now.lost = len(q.why) > 0
	now.Volume = q.string("replica.volume", "")
	now.Healthy, _ = q.bool("replica.healthy", false, false)
	now.Running, _ = q.bool("replica.running", true, true)
	now.Started, _ = q.bool("replica.started", true, true)
	now.Evicting, _ = q.bool("replica.evicting", false, false)
	_, now.Ours = o.GetAnnotations()[Ours]
	if len(q.why) > 0 {
		now.Healthy = false // of which volume, or where, is not known either
	}
	now.unknown, now.faults = q.why, q.faults
	if s.exprs["replica.wanted"] != nil {
		now.object = slim(o)
	}
	old := s.replicas[key]
	s.replicas[key] = now
	if old != nil {
		s.replicasOn.drop(old.Node, key)
		s.replicasOf.drop(old.Volume, key)
		s.fault(old.faults, nil)
	}
	s.replicasOn.add(now.Node, key)
	s.replicasOf.add(now.Volume, key)
	s.fault(nil, now.faults)
	if delete(s.ours, key); now.Ours {
		s.ours[key] = true
	}
	s.want(now)
	if old != nil {
		before := old.Replica
		before.ResourceVersion = now.ResourceVersion
		if before == now.Replica && old.lost == now.lost {
			return
		}
		s.volumeChanged(old.Volume, changed)
		s.replicaChanged(old, changed)
	}
	s.version++
	s.volumeChanged(now.Volume, changed)
	s.replicaChanged(now, changed)
}

// replicaChanged notes the node of a replica, and all where nobody knows it.
func (s *entries) replicaChanged(r *replicaEntry, changed map[string]bool) {
	note(changed, r.Node)
	if r.lost {
		for _, n := range s.known() {
			note(changed, n)
		}
	}
}

// want evaluates what of a replica hangs on its node's object, and says what of it is not known.
func (s *entries) want(r *replicaEntry) {
	unknown := r.unknown
	r.Wanted = len(unknown) > 0 && s.exprs["replica.wanted"] != nil
	if s.exprs["replica.wanted"] != nil && r.Node != "" {
		node, why := s.one(r.Node)
		if node == nil {
			r.Wanted, unknown = true, append(slices.Clone(unknown), "replica.wanted: "+why)
		} else {
			q := s.ask(r.object, node.object)
			r.Wanted, _ = q.bool("replica.wanted", false, true)
			unknown = append(slices.Clone(unknown), q.why...)
		}
	}
	r.Unknown = strings.Join(unknown, "; ")
}

// one is the only object that tells of a node, or why there is none.
func (s *entries) one(node string) (*nodeEntry, string) {
	switch found := slices.Sorted(maps.Keys(s.nodesBy[node])); {
	case node == "" || len(found) == 0:
		return nil, "no object tells of this node"
	case len(found) > 1:
		return nil, "several objects tell of this node: " + strings.Join(found[:2], ", ")
	default:
		return s.nodes[found[0]], ""
	}
}

func note(changed map[string]bool, node string) {
	if node != "" {
		changed[node] = true
	}
}
