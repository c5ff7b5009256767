package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers/expr"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// State is what a system's objects reported last. It is a System, but not safe for concurrent use: its caller must
// lock. Its methods read what each object gave when it arrived.
type State struct {
	entries
	missing [kinds]string // why the objects of a kind are unknown; "": they are known, or the system has none
}

// NewState returns the State of a system of which nothing was observed.
func NewState(a *Adapter) *State {
	s := &State{entries: newEntries(a)}
	for _, k := range Kinds {
		if _, has := a.ResourceOf(k); has {
			s.missing[k] = "not read yet"
		}
	}
	return s
}

// SetMissing marks the objects of a kind as unknown, with the reason, until the next Replace.
func (s *State) SetMissing(k Kind, why string) {
	if _, has := s.ResourceOf(k); has && s.missing[k] != expr.OneLine(why) {
		s.missing[k] = expr.OneLine(why)
		s.version++
	}
}

// Replace sets the whole list of a kind's objects, and returns the Kubernetes nodes whose storage changed, sorted. From
// here on the kind is known.
func (s *State) Replace(k Kind, objects []*unstructured.Unstructured) []string {
	changed := map[string]bool{}
	s.setKnown(k, changed)
	have := map[string]bool{}
	for _, o := range objects {
		have[keyOf(o)] = true
	}
	for _, key := range s.keysOf(k) {
		if !have[key] {
			s.removeObject(k, key, changed)
		}
	}
	for _, o := range objects {
		s.putObject(k, o, changed)
	}
	return slices.Sorted(maps.Keys(changed))
}

// ReplaceAll sets all objects as a Source read them at one time. It returns the Kubernetes nodes whose storage changed,
// sorted. From here on every kind is known, unless its objects cannot be grouped.
func (s *State) ReplaceAll(read Objects) []string {
	changed := map[string]bool{}
	for _, k := range []Kind{Nodes, Volumes} {
		if _, has := s.ResourceOf(k); !has {
			continue
		}
		objects, ok := s.groupValues(k, read[k])
		if !ok {
			s.SetMissing(k, "volume.group fails on an object, so it is unknown which volume that describes")
			continue
		}
		s.setKnown(k, changed)
		values := s.keyValues(k, objects)
		for _, key := range s.keysOf(k) {
			if _, stays := values[key]; !stays {
				s.removeObject(k, key, changed)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			s.putValue(k, key, values[key], changed)
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

// setKnown marks a kind as known. That changes all nodes.
func (s *State) setKnown(k Kind, changed map[string]bool) {
	if s.missing[k] == "" {
		return
	}
	s.missing[k] = ""
	s.version++
	for _, n := range s.knownNodes() {
		changed[n] = true
	}
}

// Put adds or replaces an object, and returns the Kubernetes nodes whose storage changed.
func (s *State) Put(k Kind, o *unstructured.Unstructured) []string {
	changed := map[string]bool{}
	s.putObject(k, o, changed)
	return slices.Sorted(maps.Keys(changed))
}

// Delete removes an object, and returns the Kubernetes nodes whose storage changed.
func (s *State) Delete(k Kind, o *unstructured.Unstructured) []string {
	changed := map[string]bool{}
	s.removeObject(k, keyOf(o), changed)
	return slices.Sorted(maps.Keys(changed))
}

// Faults returns how many objects failed to evaluate, by expression (volume.healthy).
func (s *State) Faults() map[string]int { return maps.Clone(s.faults) }

// CountObjects returns how many objects of a kind are known.
func (s *State) CountObjects(k Kind) int { return len(s.keysOf(k)) }

// Name returns the adapter's name.
func (s *State) Name() string { return s.Adapter.Name }

// Drivers returns those of the Spec.
func (s *State) Drivers() []string { return slices.Clone(s.Spec.Drivers) }

// MissingReason returns which resources are unknown, and why.
func (s *State) MissingReason() string {
	var all []string
	for _, k := range Kinds {
		if s.missing[k] != "" {
			all = append(all, s.missingText(k))
		}
	}
	return strings.Join(all, "; ")
}

func (s *State) missingText(k Kind) string {
	r, _ := s.ResourceOf(k)
	return fmt.Sprintf("%s: %s", r.GroupResource(), s.missing[k])
}

// NodeHealth implements System.
func (s *State) NodeHealth(name string) action.Health {
	if _, has := s.ResourceOf(Nodes); !has {
		return action.Health{Why: "storage " + s.Adapter.Name + " reports nothing about nodes"}
	}
	if s.missing[Nodes] != "" {
		return action.Health{Why: s.missingText(Nodes)}
	}
	entry, why := s.soleNode(name)
	if entry == nil {
		return action.Health{Why: why}
	}
	return entry.health
}

// VolumeHealth implements System. If the adapter reads replicas, a volume without a replica is Unknown, whatever its
// object says.
func (s *State) VolumeHealth(v action.VolumeName) action.Health {
	_, has := s.ResourceOf(Volumes)
	switch {
	case !slices.Contains(s.Spec.Drivers, v.Driver):
		return action.Health{Why: fmt.Sprintf("driver %q does not belong to storage %s", v.Driver, s.Adapter.Name)}
	case !has:
		return action.Health{Why: "storage " + s.Adapter.Name + " reports nothing about volumes"}
	case s.missing[Volumes] != "":
		return action.Health{Why: s.missingText(Volumes)}
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
		return action.Health{Why: fmt.Sprintf("no object describes volume %q", expr.OneLine(key))}
	case len(found) > 1:
		return action.Health{Why: "several objects describe this volume: " + strings.Join(found[:2], ", ")}
	default:
		return s.withReplicas(s.volumes[found[0]])
	}
}

func (s *State) withReplicas(v *volumeEntry) action.Health {
	_, has := s.ResourceOf(Replicas)
	switch {
	case !has || !v.health.Healthy:
		return v.health
	case s.missing[Replicas] != "":
		return action.Health{Why: s.missingText(Replicas)}
	case len(s.replicasOf[v.name]) == 0:
		return action.Health{Why: "it has no replica"}
	default:
		return v.health
	}
}

// ReplicasOn implements System.
func (s *State) ReplicasOn(node string) []Replica {
	keys := slices.Collect(maps.Keys(s.replicasOn[node]))
	if node == "" {
		return s.listReplicas(keys)
	}
	for key := range s.replicasOn[""] {
		if s.replicas[key].lost {
			keys = append(keys, key)
		}
	}
	return s.listReplicas(keys)
}

// NodesWithRequests implements System.
func (s *State) NodesWithRequests() []string {
	nodes := map[string]bool{}
	if s.missing[Replicas] == "" {
		for key := range s.ours {
			addNode(nodes, s.replicas[key].Node)
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// Version implements System.
func (s *State) Version() uint64 { return s.version }

// ReplicasOf implements System.
func (s *State) ReplicasOf(volume string) []Replica {
	return s.listReplicas(slices.Collect(maps.Keys(s.replicasOf[volume])))
}

func (s *State) listReplicas(keys []string) []Replica {
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

// EvictionPatch implements System.
func (a *Adapter) EvictionPatch(r Replica, ask bool) (Patch, bool) {
	gvr, has := a.ResourceOf(Replicas)
	if !has || a.evict == nil {
		return Patch{}, false
	}
	p, mark := maps.Clone(a.keep), any(nil)
	if ask {
		p, mark = maps.Clone(a.evict), any("true")
	}
	p["metadata"] = map[string]any{
		"uid": r.UID, "resourceVersion": r.ResourceVersion, "annotations": map[string]any{EvictionAnnotation: mark},
	}
	data, err := json.Marshal(p)
	if err != nil {
		return Patch{}, false // not reached: CompileAdapter checked the JSON
	}
	return Patch{Resource: gvr, Namespace: r.Namespace, Name: r.Name, Data: data}, true
}

// PodSelector implements System.
func (a *Adapter) PodSelector() (string, labels.Selector) { return a.Spec.Namespace, a.pods }

var _ System = (*State)(nil)
