package storage

import "slices"

// Spec describes a storage system by the resources that hold its state, or by lists of what its own API returns, and by
// CEL expressions that read them. An expression that is left out reports nothing, and what depends on it is Unknown.
//
// Every expression reads `object`, the object at hand, and `drivers`, the list below. A field that an object lacks is
// an error unless the expression checks it with has(). An error makes the result Unknown.
type Spec struct {
	Drivers []string `yaml:"drivers"` // names of its CSI drivers
	// of its objects and pods, those elsewhere do not count; "": anywhere, or not namespaced
	Namespace string      `yaml:"namespace"`
	Pods      string      `yaml:"pods"` // label selector of the pods that serve a node's replicas
	Node      NodeSpec    `yaml:"node"`
	Volume    VolumeSpec  `yaml:"volume"`
	Replica   ReplicaSpec `yaml:"replica"`
}

// NodeSpec describes the object that holds a node's state.
type NodeSpec struct {
	// as plural.version.group: nodes.v1beta2.longhorn.io; with rest, CEL over the answers: the list of objects
	Resource string `yaml:"resource"`
	Name     string `yaml:"name"`    // text: the Kubernetes node
	Healthy  string `yaml:"healthy"` // bool: it serves its data
	Why      string `yaml:"why"`     // text: why it is not healthy; optional
}

// VolumeSpec describes the object that holds a volume's state.
type VolumeSpec struct {
	Resource string `yaml:"resource"` // as that of node
	// text; only with rest: objects with the same text describe one volume, and `object` is their list; optional
	Group   string `yaml:"group"`
	Find    Find   `yaml:"find"`    // which of a volume's names key gives
	Key     string `yaml:"key"`     // text: that name
	Name    string `yaml:"name"`    // text: its name in replicas; "": key
	Healthy string `yaml:"healthy"` // bool: all its data is there
	Why     string `yaml:"why"`     // text: why it is not healthy; optional
}

// Find selects the name by which a volume is found.
type Find string

// The ways.
const (
	ByHandle Find = "handle" // the PersistentVolume's spec.csi.volumeHandle
	ByPV     Find = "pv"     // the PersistentVolume's name
	ByClaim  Find = "claim"  // the PersistentVolumeClaim, as namespace/name
)

// ReplicaSpec describes the object that holds a replica's state.
type ReplicaSpec struct {
	Resource string `yaml:"resource"` // as plural.version.group
	Node     string `yaml:"node"`     // text: the Kubernetes node; "" while it has none
	Volume   string `yaml:"volume"`   // text: the value of the volume's name
	Healthy  string `yaml:"healthy"`  // bool: it holds all data
	Running  string `yaml:"running"`  // bool: it runs; default true
	Started  string `yaml:"started"`  // bool: it was started at least once; default true
	Evicting string `yaml:"evicting"` // bool: its eviction is requested; default false
	// bool: another client wants the eviction; reads `node`, the object of the replica's node, as well; default false
	Wanted string `yaml:"wanted"`
	Evict  string `yaml:"evict"` // a JSON merge patch of the replica that requests its eviction; with keep
	Keep   string `yaml:"keep"`  // a JSON merge patch that cancels that; with evict
}

// Preset is a Spec that forcefence ships.
type Preset struct {
	Name   string
	Spec   Spec
	API    bool   // its objects are read from the system's own API, whose description has the Spec
	Trusts string // which clients' writes it trusts, for people
}

// Presets lists all of them.
var Presets = []Preset{
	{
		Name: "longhorn",
		Spec: Spec{
			Drivers:   []string{"driver.longhorn.io"},
			Namespace: "longhorn-system",
			Node: NodeSpec{
				Resource: "nodes.v1beta2.longhorn.io",
				Name:     `object.metadata.name`,
				// A missing condition, or another value in it, gives Unknown.
				Healthy: `{"True": true, "False": false}[` +
					`object.status.conditions.filter(c, c.type == "Ready")[0].status]`,
				Why: `object.status.conditions.filter(c, c.type == "Ready").map(c, c.reason + ": " + c.message)[0]`,
			},
			Volume: VolumeSpec{
				Resource: "volumes.v1beta2.longhorn.io",
				Find:     ByHandle,
				Key:      `object.metadata.name`,
				// A degraded volume has a healthy replica, and serves. The value unknown gives Unknown: the volume is
				// detached, or its node does not answer.
				Healthy: `{"healthy": true, "degraded": true, "faulted": false}[object.status.robustness]`,
				Why:     `"robustness is " + object.status.robustness`,
			},
			Replica: ReplicaSpec{
				Resource: "replicas.v1beta2.longhorn.io",
				Node:     `object.spec.nodeID`,
				Volume:   `object.spec.volumeName`,
				// This counts like Longhorn's own node controller for its drains. The operator > compares text, and is
				// an error for any other type.
				Healthy: `object.spec.healthyAt > "" && !(object.spec.failedAt > "") && ` +
					`!has(object.metadata.deletionTimestamp)`,
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
		Trusts: "clients that may write Longhorn's resources in its namespace: Longhorn itself, and its administrators",
	},
	{
		Name: "csi-volume-health",
		Spec: Spec{
			Node: NodeSpec{
				Resource: "csinodes.v1.storage.k8s.io",
				Name:     `object.metadata.name`,
				// A driver that reported nothing yet has no entry, and gives Unknown.
				Healthy: `drivers.all(d, !object.status.storageHealth.filter(h, h.name == d).map(h, ` +
					`has(h.healthConditions) && h.healthConditions.exists(c, c.status == "StorageUnreachable"))[0])`,
				Why: `object.status.storageHealth.filter(h, h.name in drivers && has(h.healthConditions)).map(h, ` +
					`h.name + ": " + h.healthConditions[0].reason)[0]`,
			},
			Volume: VolumeSpec{
				Resource: "persistentvolumeclaims.v1",
				Find:     ByClaim,
				Key:      `object.metadata.namespace + "/" + object.metadata.name`,
				// Without healthStatus there is no report. A healthStatus without conditions is healthy; a degraded
				// volume serves.
				Healthy: `object.status.healthStatus != null && ` +
					`(!has(object.status.healthStatus.healthConditions) || ` +
					`object.status.healthStatus.healthConditions.all(c, ` +
					`{"Degraded": true, "Inaccessible": false, "DataLoss": false}[c.status]))`,
				Why: `object.status.healthStatus.healthConditions.filter(c, c.status != "Degraded").map(c, ` +
					`c.status + ": " + c.reason)[0]`,
			},
		},
		Trusts: "for a volume, clients that may write the status of PersistentVolumeClaims: the CSI driver's " +
			"controller, but no user of a namespace; for a node, its own kubelet, which reports nothing once it " +
			"is dead",
	},
	{
		Name: "storageos", API: true,
		Trusts: "the server at `rest.address`, and those who administer StorageOS",
	},
	{
		Name: "linstor", API: true,
		Trusts: "the server at `rest.address`, and those who administer LINSTOR",
	},
}

// PresetOf returns the preset with that name. It returns false if there is none.
func PresetOf(name string) (Preset, bool) {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return Presets[i], true
}
