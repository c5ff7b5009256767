package storage

import "slices"

// Spec describes a storage system: by which resources it tells of itself, and by CEL expressions what they say. What is left out is not
// told, and what hangs on it is Unknown.
//
// Every expression sees `object`, the object at hand, and `drivers`, the list below. A field that an object lacks is an error unless the
// expression asks with has(), and an error is Unknown.
type Spec struct {
	Drivers   []string    `yaml:"drivers"`   // names of its CSI drivers
	Namespace string      `yaml:"namespace"` // where its objects and pods are: those elsewhere do not count. "": anywhere, or in no namespace
	Node      NodeSpec    `yaml:"node"`
	Volume    VolumeSpec  `yaml:"volume"`
	Replica   ReplicaSpec `yaml:"replica"`
	Pods      string      `yaml:"pods"` // label selector of the pods that serve a node's replicas
}

// NodeSpec describes the object that tells of a node.
type NodeSpec struct {
	Resource string `yaml:"resource"` // as plural.version.group: nodes.v1beta2.longhorn.io
	Name     string `yaml:"name"`     // text: the Kubernetes node
	Healthy  string `yaml:"healthy"`  // bool
	Why      string `yaml:"why"`      // text: why it is not healthy; optional
}

// VolumeSpec describes the object that tells of a volume.
type VolumeSpec struct {
	Resource string `yaml:"resource"`
	Find     Find   `yaml:"find"`    // what of a volume key gives
	Key      string `yaml:"key"`     // text
	Name     string `yaml:"name"`    // text: what replicas call it; "": key
	Healthy  string `yaml:"healthy"` // bool
	Why      string `yaml:"why"`     // text; optional
}

// Find says by what a volume is found.
type Find string

// The ways.
const (
	ByHandle Find = "handle" // the PersistentVolume's spec.csi.volumeHandle
	ByPV     Find = "pv"     // the PersistentVolume's name
	ByClaim  Find = "claim"  // the PersistentVolumeClaim, as namespace/name
)

// ReplicaSpec describes the object that tells of a replica.
type ReplicaSpec struct {
	Resource string `yaml:"resource"`
	Node     string `yaml:"node"`     // text: the Kubernetes node; "" while it has none
	Volume   string `yaml:"volume"`   // text: what the volume's name gives
	Healthy  string `yaml:"healthy"`  // bool: it holds all data
	Running  string `yaml:"running"`  // bool; optional: it is
	Started  string `yaml:"started"`  // bool: it ever was; optional: it was
	Evicting string `yaml:"evicting"` // bool: its eviction is asked for; optional: it is not
	// Wanted is a bool that sees `node` as well, the object that tells of the replica's node: somebody else asks for the eviction. Optional:
	// nobody does.
	Wanted string `yaml:"wanted"`
	// Evict and Keep are JSON merge patches of the replica: they ask for its eviction, and take that back. Both or neither.
	Evict string `yaml:"evict"`
	Keep  string `yaml:"keep"`
}

// Preset is a Spec that we know.
type Preset struct {
	Name   string
	Spec   Spec
	Trusts string // whose word it takes, for people
}

// Presets are all of them.
var Presets = []Preset{
	{
		Name: "longhorn",
		Spec: Spec{
			Drivers:   []string{"driver.longhorn.io"},
			Namespace: "longhorn-system",
			Node: NodeSpec{
				Resource: "nodes.v1beta2.longhorn.io",
				Name:     `object.metadata.name`,
				// No such condition, or another word in it, says nothing.
				Healthy: `{"True": true, "False": false}[object.status.conditions.filter(c, c.type == "Ready")[0].status]`,
				Why:     `object.status.conditions.filter(c, c.type == "Ready").map(c, c.reason + ": " + c.message)[0]`,
			},
			Volume: VolumeSpec{
				Resource: "volumes.v1beta2.longhorn.io",
				Find:     ByHandle,
				Key:      `object.metadata.name`,
				// A degraded volume has a healthy replica, and serves. An unknown one says nothing: it is detached, or its node does not answer.
				Healthy: `{"healthy": true, "degraded": true, "faulted": false}[object.status.robustness]`,
				Why:     `"robustness is " + object.status.robustness`,
			},
			Replica: ReplicaSpec{
				Resource: "replicas.v1beta2.longhorn.io",
				Node:     `object.spec.nodeID`,
				Volume:   `object.spec.volumeName`,
				// As Longhorn's own node controller counts, for its drains. Text is compared by >, which is an error of anything else.
				Healthy:  `object.spec.healthyAt > "" && !(object.spec.failedAt > "") && !has(object.metadata.deletionTimestamp)`,
				Running:  `object.spec.desireState != "stopped" || object.status.currentState != "stopped"`,
				Started:  `object.spec.healthyAt > "" || object.spec.failedAt > ""`,
				Evicting: `object.spec.evictionRequested`,
				Wanted: `node.spec.evictionRequested || node.spec.disks.exists(d, ` +
					`node.spec.disks[d].evictionRequested && node.status.diskStatus[d].diskUUID == object.spec.diskID)`,
				Evict: `{"spec": {"evictionRequested": true}}`,
				Keep:  `{"spec": {"evictionRequested": false}}`,
			},
			Pods: "longhorn.io/component=instance-manager",
		},
		Trusts: "whoever may write Longhorn's resources in its namespace: Longhorn itself, and its administrators",
	},
	{
		Name: "csi-volume-health",
		Spec: Spec{
			Node: NodeSpec{
				Resource: "csinodes.v1.storage.k8s.io",
				Name:     `object.metadata.name`,
				// A driver that reported nothing yet has no entry, and says nothing.
				Healthy: `drivers.all(d, !object.status.storageHealth.filter(h, h.name == d).map(h, ` +
					`has(h.healthConditions) && h.healthConditions.exists(c, c.status == "StorageUnreachable"))[0])`,
				Why: `object.status.storageHealth.filter(h, h.name in drivers && has(h.healthConditions)).map(h, h.name + ": " + h.healthConditions[0].reason)[0]`,
			},
			Volume: VolumeSpec{
				Resource: "persistentvolumeclaims.v1",
				Find:     ByClaim,
				Key:      `object.metadata.namespace + "/" + object.metadata.name`,
				// No healthStatus is no report. One without conditions is a healthy one; a degraded volume serves.
				Healthy: `object.status.healthStatus != null && (!has(object.status.healthStatus.healthConditions) || object.status.healthStatus.healthConditions.all(c, ` +
					`{"Degraded": true, "Inaccessible": false, "DataLoss": false}[c.status]))`,
				Why: `object.status.healthStatus.healthConditions.filter(c, c.status != "Degraded").map(c, c.status + ": " + c.reason)[0]`,
			},
		},
		Trusts: "of a volume, whoever may write the status of PersistentVolumeClaims: the CSI driver's controller, no user of a namespace; of a node, its own kubelet, " +
			"which says nothing more once it is dead",
	},
}

// PresetOf finds one by name.
func PresetOf(name string) (Preset, bool) {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return Presets[i], true
}
