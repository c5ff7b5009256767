// Package storage says what a storage system tells of its nodes, volumes and replicas, whichever system it is: an adapter describes it by
// its custom resources and CEL expressions over them.
//
// It is pure: objects go in, what they say comes out.
//
// It promises: what is not told is not healthy. A resource that is missing, was not listed yet, or does not evaluate makes what hangs on it
// Unknown, with the reason, and never a healthy volume or a replica that could stand in for another.
package storage

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Health is what a storage system says of a node or of a volume. The zero value is Unknown.
type Health struct {
	Known   bool
	Healthy bool   // false unless Known
	Why     string // why not, or why nobody knows; for people
}

// Volume names a volume of a pod by all that an adapter may look for it by.
type Volume struct {
	Driver, Handle   string // of the PersistentVolume's spec.csi
	PV               string // the PersistentVolume's name
	Namespace, Claim string // the PersistentVolumeClaim
}

// Replica is one copy of a volume's data on a node.
type Replica struct {
	Namespace, Name, UID, ResourceVersion string // of its object

	Node    string // the Kubernetes node; "": none yet, or Unknown
	Volume  string // what the system calls the volume
	Healthy bool
	Running bool
	Started bool // it was ever started: one that never was holds no data

	Evicting bool // its eviction was asked for, by whomever
	Ours     bool // by us: our annotation is on it
	Wanted   bool // somebody else wants it evicted: a person's request on its node or disk

	// Unknown says why not all of the above is known; "": it is. What is not known holds for the safe side where one side is safe: it is
	// not Healthy, it is Running, Started and Wanted. It cannot stand in for another, and that it is not Healthy does not say that its data
	// may go.
	Unknown string
}

// Patch is a JSON merge patch of one object. It carries the object's UID and resourceVersion: another state or another object refuses it.
type Patch struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Data            []byte
}

// EvictionAnnotation is the annotation on a replica whose eviction we asked for. That it is there is what counts, whatever its value.
const EvictionAnnotation = "forcefence.io/evicting"

// System is one storage system, as its adapter describes it. Its methods return at once, from what was seen last, and may be called by
// several at the same time.
type System interface {
	// Name is the adapter's, from the configuration.
	Name() string
	// Drivers are the names of its CSI drivers.
	Drivers() []string
	// MissingReason says why nothing is known of the system: a resource that the cluster does not have, a list that was not read yet. "": all is there.
	MissingReason() string
	// NodeHealth is the health of the system on a Kubernetes node.
	NodeHealth(name string) Health
	// VolumeHealth is the health of a volume.
	VolumeHealth(v Volume) Health
	// ReplicasOn returns the replicas on a Kubernetes node, in the order of their names, and with them those of which nobody knows the node.
	ReplicasOn(node string) []Replica
	// ReplicasOf returns the replicas of a volume, by the system's own name for it, in the order of their names.
	ReplicasOf(volume string) []Replica
	// NodesWithRequests are the nodes with a replica that is Ours, in order. Kubernetes may have none of that name any more.
	NodesWithRequests() []string
	// Version changes with everything that the methods above say of nodes, volumes and replicas, but for a replica's ResourceVersion alone.
	Version() uint64
	// EvictionPatch is how the eviction of a replica is asked for, or taken back; false where the adapter does not say how. What it is asked with
	// makes the replica Ours, and taking it back takes that away.
	EvictionPatch(r Replica, ask bool) (Patch, bool)
	// PodSelector selects the pods that serve replicas on a node, for a PodDisruptionBudget; nil where the adapter does not say which.
	PodSelector() (namespace string, pods labels.Selector)
}
