// Package storage describes the state of a storage system's nodes, volumes and replicas. It works for any storage
// system: an adapter describes the system by its custom resources and by CEL expressions over them.
//
// It is pure: objects go in, their state comes out.
//
// It promises: what no object reports is not healthy. A resource that is missing, was not listed yet, or does not
// evaluate makes what depends on it Unknown, with the reason. It never makes a healthy volume, or a replica that could
// stand in for another.
package storage

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// Replica is one copy of a volume's data on a node.
type Replica struct {
	Namespace, Name, UID, ResourceVersion string // of its object

	Node    string // the Kubernetes node; "": none yet, or Unknown
	Volume  string // what the system calls the volume
	Healthy bool
	Running bool
	Started bool // it was started at least once: a replica that never was holds no data

	Evicting bool // its eviction is requested, by any client
	Ours     bool // it has our annotation: we requested the eviction
	Wanted   bool // another client wants it evicted, for example a person by a request on its node or disk

	// Unknown is why not all of the above is known; "" if all is. An unknown field takes the safe value, where one is
	// safe: not Healthy, but Running, Started and Wanted. Such a replica cannot stand in for another, and not Healthy
	// here does not mean that its data may go.
	Unknown string
}

// Patch is a JSON merge patch of one object. It carries the object's UID and resourceVersion, so the API server refuses
// it for another object or another state.
type Patch struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Data            []byte
}

// EvictionAnnotation is the annotation on a replica whose eviction we requested. Its presence counts, whatever its
// value.
const EvictionAnnotation = "forcefence.io/evicting"

// System is one storage system, as its adapter describes it. Its methods return at once, from what was observed last,
// and are safe for concurrent use.
type System interface {
	// Name returns the adapter's name in the configuration.
	Name() string
	// Drivers returns the names of its CSI drivers.
	Drivers() []string
	// MissingReason returns why the system's state is unknown: a resource that the cluster does not have, or a list
	// that was not read yet. It returns "" if all kinds are known.
	MissingReason() string
	// NodeHealth returns the health of the system on a Kubernetes node.
	NodeHealth(name string) action.Health
	// VolumeHealth returns the health of a volume.
	VolumeHealth(v action.VolumeName) action.Health
	// ReplicasOn returns the replicas on a Kubernetes node, sorted by name. It includes the replicas whose node is
	// unknown.
	ReplicasOn(node string) []Replica
	// ReplicasOf returns the replicas of a volume, sorted by name. volume is the system's own name for it.
	ReplicasOf(volume string) []Replica
	// NodesWithRequests returns, sorted, the nodes with a replica that has Ours set. Such a Node may have been deleted
	// from Kubernetes.
	NodesWithRequests() []string
	// Version returns a number that changes with every change of what the methods above return of nodes, volumes and
	// replicas. A change of a replica's ResourceVersion alone does not count.
	Version() uint64
	// EvictionPatch returns the patch that requests the eviction of a replica, or cancels the request. It returns false
	// if the adapter does not define it. The request sets the replica's Ours, and canceling it clears Ours.
	EvictionPatch(r Replica, ask bool) (Patch, bool)
	// PodSelector selects the pods that serve replicas on a node, for a PodDisruptionBudget. The selector is nil if the
	// adapter does not define it.
	PodSelector() (namespace string, pods labels.Selector)
}
