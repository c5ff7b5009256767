package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// entries hold the results of a system's objects. Each object is evaluated once, when it arrives. An object's data is
// kept only if another object's evaluation needs it (a replica's Wanted).
type entries struct {
	*Adapter
	nodes    map[string]*nodeEntry // this map and the next two are by the object's namespace/name
	volumes  map[string]*volumeEntry
	replicas map[string]*replicaEntry

	nodesBy    index // by Kubernetes node
	volumesBy  index // by the text that finds a volume (Spec.Volume.Find)
	replicasOn index // by Kubernetes node; "": unknown, or none yet
	replicasOf index // by volume

	faults  map[string]int  // how many objects failed to evaluate, by expression
	ours    map[string]bool // the replicas that have Ours set
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
	health action.Health
	object map[string]any
	faults []string
}

type volumeEntry struct {
	key, name string
	health    action.Health
	faults    []string
}

type replicaEntry struct {
	Replica
	unknown []string       // what is unknown from the object alone
	object  map[string]any // nil: Wanted depends on no other object
	faults  []string
	lost    bool // its node is unknown
}

// index finds objects by a text that several objects may share.
type index map[string]map[string]bool

func (x index) addKey(text, key string) {
	if x[text] == nil {
		x[text] = map[string]bool{}
	}
	x[text][key] = true
}

func (x index) dropKey(text, key string) {
	delete(x[text], key)
	if len(x[text]) == 0 {
		delete(x, text)
	}
}

func keyOf(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

func (s *entries) keysOf(k Kind) []string {
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

// knownNodes returns the Kubernetes nodes that any object names.
func (s *entries) knownNodes() []string {
	all := maps.Clone(s.replicasOn)
	maps.Copy(all, s.nodesBy)
	delete(all, "")
	return slices.Collect(maps.Keys(all))
}

func (s *entries) putObject(k Kind, o *unstructured.Unstructured, changed map[string]bool) {
	if _, has := s.ResourceOf(k); !has || s.Spec.Namespace != "" && o.GetNamespace() != s.Spec.Namespace &&
		o.GetNamespace() != "" {
		return // an object outside the namespace must not speak for the system
	}
	if k != Replicas {
		s.putValue(k, keyOf(o), o.Object, changed)
		return
	}
	s.putReplica(o, changed)
}

// putValue adds or replaces a node or a volume. object is a JSON value of any kind.
func (s *entries) putValue(k Kind, key string, object any, changed map[string]bool) {
	switch k {
	case Nodes:
		s.putNode(key, object, changed)
	case Volumes:
		s.putVolume(key, object, changed)
	case Replicas: // each is an object of the cluster
	}
}

// groupValues joins the values that describe one volume to a list. It returns false if it is unknown what one of them
// describes.
func (s *entries) groupValues(k Kind, values []any) ([]any, bool) {
	if k != Volumes || s.exprs["volume.group"] == nil {
		return values, true
	}
	groups := map[string][]any{}
	for _, v := range values {
		name := s.newEvaluation(v, nil).evalName("volume.group", "")
		groups[name] = append(groups[name], v)
	}
	var out []any
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[name])
	}
	return out, groups[""] == nil
}

// keyValues gives each value of a list a key of its own: its name, with a number if several have that name.
func (s *entries) keyValues(k Kind, values []any) map[string]any {
	path := map[Kind]string{Nodes: "node.name", Volumes: "volume.key"}[k]
	out, times := map[string]any{}, map[string]int{}
	for _, v := range values {
		name := s.newEvaluation(v, nil).evalName(path, "")
		key := name
		for taken := true; taken; _, taken = out[key] {
			if times[name]++; times[name] > 1 {
				key = fmt.Sprintf("%s (%d)", name, times[name])
			}
		}
		out[key] = v
	}
	return out
}

func (s *entries) removeObject(k Kind, key string, changed map[string]bool) {
	s.version++
	switch k {
	case Nodes:
		if old := s.nodes[key]; old != nil {
			delete(s.nodes, key)
			s.nodesBy.dropKey(old.name, key)
			s.countFaults(old.faults, nil)
			s.nodeChanged(old.name, changed)
		}
	case Volumes:
		if old := s.volumes[key]; old != nil {
			delete(s.volumes, key)
			s.volumesBy.dropKey(old.key, key)
			s.countFaults(old.faults, nil)
			s.volumeChanged(old.name, changed)
		}
	case Replicas:
		if old := s.replicas[key]; old != nil {
			delete(s.replicas, key)
			delete(s.ours, key)
			s.replicasOn.dropKey(old.Node, key)
			s.replicasOf.dropKey(old.Volume, key)
			s.countFaults(old.faults, nil)
			s.volumeChanged(old.Volume, changed)
			s.replicaChanged(old, changed)
		}
	}
}

// countFaults replaces an object's failed expressions (old) by those that fail now.
func (s *entries) countFaults(old, now []string) {
	for _, path := range old {
		if s.faults[path]--; s.faults[path] == 0 {
			delete(s.faults, path)
		}
	}
	for _, path := range now {
		s.faults[path]++
	}
}

func (s *entries) putNode(key string, object any, changed map[string]bool) {
	q := s.newEvaluation(object, nil)
	now := &nodeEntry{name: q.evalName("node.name", "")}
	now.health = q.evalHealth(Nodes)
	now.faults = q.faults
	if fields, ok := object.(map[string]any); ok && s.exprs["replica.wanted"] != nil {
		now.object = slimObject(fields)
	}
	old := s.nodes[key]
	if old == nil {
		old = &nodeEntry{}
	}
	s.nodes[key] = now
	s.countFaults(old.faults, now.faults)
	if old.name != now.name {
		s.nodesBy.dropKey(old.name, key)
	}
	if now.name != "" {
		s.nodesBy.addKey(now.name, key)
	}
	if old.name != "" && old.name != now.name {
		s.nodeChanged(old.name, changed)
	}
	if old.name == now.name && old.health == now.health { // only the replicas' Wanted may have changed
		s.nodeAgain(now.name, changed)
		return
	}
	s.nodeChanged(now.name, changed)
}

// nodeChanged evaluates again what depends on a node's object.
func (s *entries) nodeChanged(name string, changed map[string]bool) {
	s.version++
	addNode(changed, name)
	for key := range s.replicasOn[name] {
		if r := s.replicas[key]; r.object != nil {
			s.evaluateWanted(r)
		}
	}
}

// nodeAgain is nodeChanged for a node whose health did not change.
func (s *entries) nodeAgain(name string, changed map[string]bool) {
	for key := range s.replicasOn[name] {
		if r := s.replicas[key]; r.object != nil {
			before := r.Replica
			if s.evaluateWanted(r); r.Replica != before {
				s.version++
				addNode(changed, name)
			}
		}
	}
}

func (s *entries) putVolume(key string, object any, changed map[string]bool) {
	q := s.newEvaluation(object, nil)
	now := &volumeEntry{key: q.evalName("volume.key", "")}
	now.name = q.evalName("volume.name", now.key)
	now.health = q.evalHealth(Volumes)
	now.faults = q.faults
	if now.health.Known && len(q.why) > 0 { // it is unknown whose health that is
		now.health = action.Health{Why: q.why[0]}
	}
	old := s.volumes[key]
	if old == nil {
		old = &volumeEntry{}
	}
	s.volumes[key] = now
	s.countFaults(old.faults, now.faults)
	s.volumesBy.dropKey(old.key, key)
	if now.key != "" {
		s.volumesBy.addKey(now.key, key)
	}
	if old.key != now.key || old.name != now.name || old.health != now.health {
		s.version++
		s.volumeChanged(old.name, changed)
		s.volumeChanged(now.name, changed)
	}
}

// volumeChanged adds the nodes that have a replica of the volume: what one of them may lose depends on the others.
func (s *entries) volumeChanged(volume string, changed map[string]bool) {
	for key := range s.replicasOf[volume] {
		addNode(changed, s.replicas[key].Node)
	}
}

func (s *entries) putReplica(o *unstructured.Unstructured, changed map[string]bool) {
	key, q := keyOf(o), s.newEvaluation(o.Object, nil)
	now := &replicaEntry{Replica: Replica{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
		ResourceVersion: o.GetResourceVersion(),
	}}
	now.Node = q.evalName("replica.node", "")
	now.lost = len(q.why) > 0
	now.Volume = q.evalName("replica.volume", "")
	now.Healthy, _ = q.evalBool("replica.healthy", false, false)
	now.Running, _ = q.evalBool("replica.running", true, true)
	now.Started, _ = q.evalBool("replica.started", true, true)
	now.Evicting, _ = q.evalBool("replica.evicting", false, false)
	_, now.Ours = o.GetAnnotations()[EvictionAnnotation]
	if len(q.why) > 0 {
		now.Healthy = false // its volume or its node is unknown, too
	}
	now.unknown, now.faults = q.why, q.faults
	if s.exprs["replica.wanted"] != nil {
		now.object = slimObject(o.Object)
	}
	old := s.replicas[key]
	s.replicas[key] = now
	if old != nil {
		s.replicasOn.dropKey(old.Node, key)
		s.replicasOf.dropKey(old.Volume, key)
		s.countFaults(old.faults, nil)
	}
	s.replicasOn.addKey(now.Node, key)
	s.replicasOf.addKey(now.Volume, key)
	s.countFaults(nil, now.faults)
	if delete(s.ours, key); now.Ours {
		s.ours[key] = true
	}
	s.evaluateWanted(now)
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

// replicaChanged adds the node of a replica, or all nodes if its node is unknown.
func (s *entries) replicaChanged(r *replicaEntry, changed map[string]bool) {
	addNode(changed, r.Node)
	if r.lost {
		for _, n := range s.knownNodes() {
			addNode(changed, n)
		}
	}
}

// evaluateWanted evaluates what depends on the object of the replica's node, and sets the replica's Unknown.
func (s *entries) evaluateWanted(r *replicaEntry) {
	unknown := r.unknown
	r.Wanted = len(unknown) > 0 && s.exprs["replica.wanted"] != nil
	if s.exprs["replica.wanted"] != nil && r.Node != "" {
		node, why := s.soleNode(r.Node)
		if node == nil {
			r.Wanted, unknown = true, append(slices.Clone(unknown), "replica.wanted: "+why)
		} else {
			q := s.newEvaluation(r.object, node.object)
			r.Wanted, _ = q.evalBool("replica.wanted", false, true)
			unknown = append(slices.Clone(unknown), q.why...)
		}
	}
	r.Unknown = strings.Join(unknown, "; ")
}

// soleNode returns the only object that describes a node, or why there is none.
func (s *entries) soleNode(node string) (*nodeEntry, string) {
	switch found := slices.Sorted(maps.Keys(s.nodesBy[node])); {
	case node == "" || len(found) == 0:
		return nil, "no object describes this node"
	case len(found) > 1:
		return nil, "several objects describe this node: " + strings.Join(found[:2], ", ")
	default:
		return s.nodes[found[0]], ""
	}
}

func addNode(changed map[string]bool, node string) {
	if node != "" {
		changed[node] = true
	}
}
