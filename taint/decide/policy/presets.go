package policy

import (
	"slices"
	"strings"
)

// Preset is a policy that a document describes, without the user's choices.
type Preset struct {
	Name   string // its name in the configuration
	Policy Policy
	// Fences reports that its document says that its storage cuts off a node that looks dead, so storage-fences may be
	// set for it.
	Fences bool
	Own    bool   // its namespaces default to the controller's own
	Does   string // what it does, for people
	Trusts string // what it trusts, for people
}

// Presets lists all presets.
var Presets = []Preset{
	{
		Name:   "longhorn",
		Policy: Policy{When: NotReady, Drivers: []string{"driver.longhorn.io"}, Terminating: true, Yields: true},
		Does: "ends pods of a node that is not Ready once they are past their deletionTimestamp. These are pods with " +
			"a Longhorn volume whose owners `nodeDownPodDeletionPolicy` (Longhorn's setting of that name) chooses. " +
			"It also releases the volumes of ReplicaSets' pods for other nodes, as `volumeAttachmentRecoveryPolicy` " +
			"says",
		Trusts: "that a node no longer writes if it was not Ready until Kubernetes evicted its pods; Longhorn does " +
			"not cut it off",
	},
	{
		Name: "noobaa",
		// The document's selector is app=noobaa alone. NooBaa's own controller has left its database alone since 2026:
		// two Postgres that write one volume destroy it.
		Policy: Policy{When: BecameNotReady,
			Pods: mustParseSelector("app=noobaa,!noobaa-db,!cnpg.io/cluster,!cnpg.noobaa.io/cluster")},
		Own: true,
		Does: "ends NooBaa's pods (`app=noobaa`, of any owner) on a node as soon as it becomes not Ready, except " +
			"those of its database; `pods: app=noobaa` beside it selects these, too",
		Trusts: "that a node that does not answer does not run: a node that is only cut off runs the old pod beside " +
			"the new one",
	},
	{
		Name: "storageos",
		Policy: Policy{
			When: StorageUnhealthy, Pods: mustParseSelector("storageos.com/fenced=true"),
			Intervals: StorageOSIntervals, Detach: true,
		},
		Fences: true,
		Does: "ends pods of a node, Ready or not, that the storage system (`storage`) reports as not healthy. All " +
			"their volumes there must be healthy. Then it deletes the VolumeAttachments of these volumes",
		Trusts: "the storage system's reports about nodes and volumes; with `storage-fences` also that a node that " +
			"it reports as not healthy cannot write any more",
	},
}

// PresetOf returns the preset of that name, and whether there is one.
func PresetOf(name string) (Preset, bool) {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return Presets[i], true
}

// UnfencedDriver returns the first driver whose storage is known not to cut off a node that looks dead; "" if there is
// none. No policy may set storage-fences for it.
func UnfencedDriver(drivers []string) string {
	for _, p := range Presets {
		for _, d := range p.Policy.Drivers {
			if !p.Fences && slices.Contains(drivers, d) {
				return d
			}
		}
	}
	return ""
}

// EvictingDriver returns the first driver of CephFS; "" if there is none. ceph-csi answers its fence with success once
// it has evicted the clients that it sees. It does not block their addresses (ceph-csi
// internal/csi-addons/networkfence).
func EvictingDriver(drivers []string) string {
	i := slices.IndexFunc(drivers, func(d string) bool { return strings.HasSuffix(d, "cephfs.csi.ceph.com") })
	if i < 0 {
		return ""
	}
	return drivers[i]
}

// DeletionValues are the values of Longhorn's setting nodeDownPodDeletionPolicy, with the kinds of owners whose pods
// they end. A Deployment's pods are those of its ReplicaSets. Longhorn's code looks at the ReplicaSet alone, so it ends
// the pods of a ReplicaSet without a Deployment, too; its setting's values and its document speak of Deployments. Such
// a ReplicaSet is a person's, or that of another controller, which may replace its pods by rules of its own.
var DeletionValues = []struct {
	Value  string
	Owners []string
}{
	{"do-nothing", nil},
	{"delete-statefulset-pod", []string{"StatefulSet"}},
	{"delete-deployment-pod", []string{"Deployment"}},
	{"delete-both-statefulset-and-deployment-pod", []string{"StatefulSet", "Deployment"}},
}

// RecoveryValues are the values of the setting volumeAttachmentRecoveryPolicy that Longhorn had until 1.1.1, with their
// meaning here. Since then Longhorn's deletion policy deletes the attachments itself. Differences from its document and
// from that code: wait does not require a replacement, as in the document; Longhorn's code did. never deletes no
// attachment, even if a person deleted the pod; Longhorn's code did. After delete-statefulset-pod the new pod waits for
// Kubernetes' six minutes, as in the document's time; today's Longhorn deletes those attachments.
var RecoveryValues = []struct{ Value, Does string }{
	{"never", "nothing; the default without the preset"},
	{"wait", "ends such a pod once it and every other pod of the node that uses one of its volumes are past their " +
		"deletionTimestamps; the preset's default, as it was Longhorn's"},
	{"immediate", "ends such a pod once it was deleted and a Pending pod of a ReplicaSet waits for one of its volumes"},
}

// RecoveryRule returns the rule of volume attachment recovery that accompanies the policy, for its nodes, namespaces,
// labels and drivers. It ends pods of ReplicaSets, with or without a Deployment, and keeps them. It deletes the
// attachments of their volumes. ok reports whether the value asks for the rule.
func (p Policy) RecoveryRule(value string) (rule Policy, ok bool) {
	p.When, p.Owners, p.Keep, p.Detach = NotReady, []string{"ReplicaSet"}, true, true
	p.Terminating, p.Replaced = value == "wait", value == "immediate"
	return p, p.Terminating || p.Replaced
}
