package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// State is what a system's objects said last. It is a System, but for several callers at the same time: whoever feeds it sees to that.
// Each object is evaluated once, when it comes; a question finds what was found then. It keeps no objects but those that say something
// only together with another (a replica's Wanted), and their data alone.
type State struct {
	*Adapter
	missing [kinds]string // why the objects of a kind are not known; "": they are, or the system has none

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

// NewState makes the State of a system of which nothing was seen.
func NewState(a *Adapter) *State {
	s := &State{
		Adapter: a, nodes: map[string]*nodeEntry{}, volumes: map[string]*volumeEntry{}, replicas: map[string]*replicaEntry{},
		nodesBy: index{}, volumesBy: index{}, replicasOn: index{}, replicasOf: index{}, faults: map[string]int{}, ours: map[string]bool{},
	}
	for _, k := range Kinds {
		if _, has := a.Resource(k); has {
			s.missing[k] = "not read yet"
		}
	}
	return s
}

// Lost says that the objects of a kind are not known any more, and why: nothing is said of them until the next Replace.
func (s *State) Lost(k Kind, why string) {
	if _, has := s.Resource(k); has && s.missing[k] != oneLine(why) {
		s.missing[k] = oneLine(why)
		s.version++
	}
}

// Replace takes the whole list of a kind's objects, and returns the Kubernetes nodes whose storage changed, in order. From here on the
// kind is known.
func (s *State) Replace(k Kind, objects []*unstructured.Unstructured) []string {
	changed := map[string]bool{}
	if s.missing[k] != "" {
		s.missing[k] = ""
		s.version++
		for _, n := range s.known() { // what was not told is told now
			changed[n] = true
		}
	}
	have := map[string]bool{}
	for _, o := range objects {
		have[keyOf(o)] = true
	}
	for _, key := range s.keys(k) {
		if !have[key] {
			s.remove(k, key, changed)
		}
	}
	for _, o := range objects {
		s.put(k, o, changed)
	}
	return slices.Sorted(maps.Keys(changed))
}

// Put takes an object that came or changed, and Delete one that went. They return the Kubernetes nodes whose storage changed.
func (s *State) Put(k Kind, o *unstructured.Unstructured) []string {
	changed := map[string]bool{}
	s.put(k, o, changed)
	return slices.Sorted(maps.Keys(changed))
}

// Delete is the other of Put.
func (s *State) Delete(k Kind, o *unstructured.Unstructured) []string {
	changed := map[string]bool{}
	s.remove(k, keyOf(o), changed)
	return slices.Sorted(maps.Keys(changed))
}

// Faults are how many objects did not evaluate, by expression (volume.healthy). An example of each is in Fault.
func (s *State) Faults() map[string]int { return maps.Clone(s.faults) }

// Count is how many objects of a kind are known.
func (s *State) Count(k Kind) int { return len(s.keys(k)) }

func keyOf(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

func (s *State) keys(k Kind) []string {
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
func (s *State) known() []string {
	all := maps.Clone(s.replicasOn)
	maps.Copy(all, s.nodesBy)
	delete(all, "")
	return slices.Collect(maps.Keys(all))
}

func (s *State) put(k Kind, o *unstructured.Unstructured, changed map[string]bool) {
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

func (s *State) remove(k Kind, key string, changed map[string]bool) {
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

func note(changed map[string]bool, node string) {
	if node != "" {
		changed[node] = true
	}
}

// replicaChanged notes the node of a replica, and all where nobody knows it.
func (s *State) replicaChanged(r *replicaEntry, changed map[string]bool) {
	note(changed, r.Node)
	if r.lost {
		for _, n := range s.known() {
			note(changed, n)
		}
	}
}

// volumeChanged notes the nodes that have a replica of the volume: what one of them may lose hangs on the others.
func (s *State) volumeChanged(volume string, changed map[string]bool) {
	for key := range s.replicasOf[volume] {
		note(changed, s.replicas[key].Node)
	}
}

// nodeChanged evaluates again what hangs on a node's object.
func (s *State) nodeChanged(name string, changed map[string]bool) {
	s.version++
	note(changed, name)
	for key := range s.replicasOn[name] {
		if r := s.replicas[key]; r.object != nil {
			s.want(r)
		}
	}
}

// fault counts which expressions failed, instead of those that had.
func (s *State) fault(old, now []string) {
	for _, path := range old {
		if s.faults[path]--; s.faults[path] == 0 {
			delete(s.faults, path)
		}
	}
	for _, path := range now {
		s.faults[path]++
	}
}

// asking evaluates the expressions of one object, and keeps what failed.
type asking struct {
	a      *Adapter
	vars   map[string]any
	why    []string // what failed, for people
	faults []string // paths of what failed
}

func (s *State) ask(object, node map[string]any) *asking {
	vars := map[string]any{"object": object, "drivers": s.Spec.Drivers}
	if node != nil {
		vars["node"] = node
	}
	return &asking{a: s.Adapter, vars: vars}
}

func (q *asking) failed(path string, err error) {
	q.why, q.faults = append(q.why, err.Error()), append(q.faults, path)
}

// bool is what the expression gives; otherwise where there is none, unknown where it fails.
func (q *asking) bool(path string, otherwise, unknown bool) (v, known bool) {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise, true
	}
	v, err := e.bool(q.vars)
	if err != nil {
		q.failed(path, err)
		return unknown, false
	}
	return v, true
}

// string is a name that the expression gives: of a node, or of a volume.
func (q *asking) string(path, otherwise string) string {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise
	}
	v, err := e.string(q.vars)
	if err == nil && (len(v) > maxName || strings.ContainsFunc(v, func(c rune) bool { return !unicode.IsPrint(c) })) {
		err = fmt.Errorf("%s: gives a text that can be no name", path)
	}
	if err != nil {
		q.failed(path, err)
		return ""
	}
	return v
}

// health is what `healthy` and `why` of a kind say.
func (q *asking) health(k Kind) Health {
	healthy, known := q.bool(k.String()+".healthy", false, false)
	switch {
	case !known:
		return Health{Why: q.why[len(q.why)-1]}
	case healthy:
		return Health{Known: true, Healthy: true}
	}
	h := Health{Known: true, Why: "its object says that it is not healthy"}
	if e := q.a.exprs[k.String()+".why"]; e != nil { // what is not said of why changes nothing
		if why, err := e.string(q.vars); err == nil && oneLine(why) != "" {
			h.Why = oneLine(why)
		}
	}
	return h
}

func (s *State) putNode(o *unstructured.Unstructured, changed map[string]bool) {
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

// nodeAgain is nodeChanged where the node's health is the same.
func (s *State) nodeAgain(name string, changed map[string]bool) {
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

func (s *State) putVolume(o *unstructured.Unstructured, changed map[string]bool) {
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

func (s *State) putReplica(o *unstructured.Unstructured, changed map[string]bool) {
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

// want evaluates what of a replica hangs on its node's object, and says what of it is not known.
func (s *State) want(r *replicaEntry) {
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
func (s *State) one(node string) (*nodeEntry, string) {
	switch found := slices.Sorted(maps.Keys(s.nodesBy[node])); {
	case node == "" || len(found) == 0:
		return nil, "no object tells of this node"
	case len(found) > 1:
		return nil, "several objects tell of this node: " + strings.Join(found[:2], ", ")
	default:
		return s.nodes[found[0]], ""
	}
}

// slim is what of an object its expressions may look at, without what is large and never of use.
func slim(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		out["metadata"] = meta
	}
	return out
}

// Name is the adapter's.
func (s *State) Name() string { return s.Adapter.Name }

// Drivers are those of the Spec.
func (s *State) Drivers() []string { return slices.Clone(s.Spec.Drivers) }

// Missing says which resources are not known, and why.
func (s *State) Missing() string {
	var all []string
	for _, k := range Kinds {
		if s.missing[k] != "" {
			all = append(all, s.lacks(k))
		}
	}
	return strings.Join(all, "; ")
}

func (s *State) lacks(k Kind) string {
	r, _ := s.Resource(k)
	return fmt.Sprintf("%s: %s", r.GroupResource(), s.missing[k])
}

// Node implements System.
func (s *State) Node(name string) Health {
	if _, has := s.Resource(Nodes); !has {
		return Health{Why: "storage " + s.Adapter.Name + " tells nothing of nodes"}
	}
	if s.missing[Nodes] != "" {
		return Health{Why: s.lacks(Nodes)}
	}
	entry, why := s.one(name)
	if entry == nil {
		return Health{Why: why}
	}
	return entry.health
}

// Volume implements System. A volume of which the system has no replica, where it tells of replicas, is Unknown whatever is said of it.
func (s *State) Volume(v Volume) Health {
	_, has := s.Resource(Volumes)
	switch {
	case !slices.Contains(s.Spec.Drivers, v.Driver):
		return Health{Why: fmt.Sprintf("driver %q is not of storage %s", v.Driver, s.Adapter.Name)}
	case !has:
		return Health{Why: "storage " + s.Adapter.Name + " tells nothing of volumes"}
	case s.missing[Volumes] != "":
		return Health{Why: s.lacks(Volumes)}
	}
	key := v.Handle
	switch s.Spec.Volume.Find {
	case ByPV:
		key = v.PV
	case ByClaim:
		key = v.Namespace + "/" + v.Claim
	case ByHandle:
	}
	switch found := slices.Sorted(maps.Keys(s.volumesBy[key])); {
	case key == "" || len(found) == 0:
		return Health{Why: fmt.Sprintf("no object tells of volume %q", oneLine(key))}
	case len(found) > 1:
		return Health{Why: "several objects tell of this volume: " + strings.Join(found[:2], ", ")}
	default:
		return s.withReplicas(s.volumes[found[0]])
	}
}

func (s *State) withReplicas(v *volumeEntry) Health {
	_, has := s.Resource(Replicas)
	switch {
	case !has || !v.health.Healthy:
		return v.health
	case s.missing[Replicas] != "":
		return Health{Why: s.lacks(Replicas)}
	case len(s.replicasOf[v.name]) == 0:
		return Health{Why: "it has no replica"}
	default:
		return v.health
	}
}

// On implements System.
func (s *State) On(node string) []Replica {
	keys := slices.Collect(maps.Keys(s.replicasOn[node]))
	if node == "" {
		return s.list(keys)
	}
	for key := range s.replicasOn[""] {
		if s.replicas[key].lost {
			keys = append(keys, key)
		}
	}
	return s.list(keys)
}

// Asked implements System.
func (s *State) Asked() []string {
	nodes := map[string]bool{}
	if s.missing[Replicas] == "" {
		for key := range s.ours {
			note(nodes, s.replicas[key].Node)
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// Version implements System.
func (s *State) Version() uint64 { return s.version }

// Of implements System.
func (s *State) Of(volume string) []Replica {
	return s.list(slices.Collect(maps.Keys(s.replicasOf[volume])))
}

func (s *State) list(keys []string) []Replica {
	var out []Replica
	if s.missing[Replicas] != "" {
		return out
	}
	slices.Sort(keys)
	for _, key := range keys {
		out = append(out, s.replicas[key].Replica)
	}
	return out
}

// Eviction implements System.
func (a *Adapter) Eviction(r Replica, ask bool) (Patch, bool) {
	gvr, has := a.Resource(Replicas)
	if !has || a.evict == nil {
		return Patch{}, false
	}
	p, mark := maps.Clone(a.keep), any(nil)
	if ask {
		p, mark = maps.Clone(a.evict), any("true")
	}
	p["metadata"] = map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion, "annotations": map[string]any{Ours: mark}}
	data, err := json.Marshal(p)
	if err != nil {
		return Patch{}, false // it was JSON when it was read
	}
	return Patch{Resource: gvr, Namespace: r.Namespace, Name: r.Name, Data: data}, true
}

// Pods implements System.
func (a *Adapter) Pods() (string, labels.Selector) { return a.Spec.Namespace, a.pods }

var _ System = (*State)(nil)
