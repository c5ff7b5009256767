package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/policies.md from the presets")

// docs/policies.md is the presets for people.
func TestDoc(t *testing.T) {
	const file = "../../../docs/policies.md"
	var b strings.Builder
	b.WriteString(`# Policies: pods that are ended without proof

forcefence moves pods when it is proven that their machine is off. A policy ends some of them before, or although nobody can prove it, as
some storage systems and operators do for workloads of their own. It does so while the node is not marked, and stops as soon as a fence of
the node is under way. **Nothing keeps an old copy from running on**: a node that is only cut off from the API server keeps its containers.
So each policy must say ` + "`withoutProof`" + `: ` + "`accept-duplicates`" + `, you accept that a pod may run twice; or ` + "`storage-fences`" + `, the storage cuts such a node
off by itself, so that an old copy cannot write. Every ended pod has an Event that names the policy and that word, and so has the Node, whose
annotation ` + "`forcefence.io/policy`" + ` tells it for good: it is written before the first pod is ended.

A policy touches no static pod, no pod of a DaemonSet, no finished pod and no excluded node. A pod that
[tolerates the mark](promises.md#what-tolerates-the-mark) stays, too, as it does in a fence: the Event
` + "`PolicySkippedPods`" + ` names it once while the node is not Ready. Like power-offs it ends
nothing while fewer than half of all nodes are heard, or one of the node's failure domains is lost
(Event ` + "`PolicyWaits`" + `, once for all nodes). That is most often a partition, and its nodes run. It goes on by itself
once most nodes have been heard for 25 s.
The volumes of the ended pods stay attached until Kubernetes detaches them, six minutes after the node was last heard, unless the policy
deletes their VolumeAttachments; with a proof they are detached at once. Pods of a Node that was deleted are left to Kubernetes, which deletes
them within two minutes, and detaches their volumes after its six.
Pods of a node that is not Ready are ended once Kubernetes' taint, or a cordon, has closed it to new pods, a moment after Ready changed: the scheduler looks
at taints alone, and a replacement that it bound to the dead node would hang there.
A policy whose nodes, namespaces or labels are nobody's is told in the log when the controller begins to lead, and after each reload.

This page is made from the presets in ` + "`taint/decide/policy`" + `. Each is a few lines in [config.example.yaml](../config.example.yaml), and any key of a policy of
one's own may stand beside ` + "`preset`" + ` and wins over it.

| preset | when | which pods | does | trusts |
| --- | --- | --- | --- | --- |
`)
	for _, p := range Presets {
		which := []string{}
		if p.Own {
			which = append(which, "in the controller's namespace")
		}
		if p.Policy.Pods != nil {
			which = append(which, "labelled `"+p.Policy.Pods.String()+"`")
		}
		if len(p.Policy.Drivers) > 0 {
			which = append(which, "with a volume of `"+strings.Join(p.Policy.Drivers, "`, `")+"`")
		}
		if p.Policy.Terminating {
			which = append(which, "past their deletionTimestamp")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", p.Name, p.Policy.When, strings.Join(which, ", "), p.Does,
			p.Trusts)
	}
	b.WriteString("\n## Longhorn's `nodeDownPodDeletionPolicy`\n\n| value | ends pods of |\n| --- | --- |\n")
	for _, d := range DeletionValues {
		owners := "nobody; the default"
		if len(d.Owners) > 0 {
			owners = strings.Join(d.Owners, "s and ") + "s"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", d.Value, owners)
	}
	b.WriteString(`
A Deployment's pods are those of its ReplicaSets. The pods of a ReplicaSet without a Deployment stay. Longhorn ends
those, too, because its code looks at the ReplicaSet alone; the setting's values and its document speak of Deployments.
Such a ReplicaSet is a person's, or another controller's, such as a rollout, which may replace its pods by rules of its
own. A policy with ` + "`owners: [ReplicaSet]`" + ` ends them. Where
Longhorn is there, its own setting ` + "`node-down-pod-deletion-policy`" + ` is read before pods are ended: unless it is ` + "`do-nothing`" + `, the preset ends none and says so
(Event ` + "`PolicyStandsAside`" + `), for two that end the same pods hide from each other what happened. It says so, too, where the setting cannot be read. The
component ` + "`longhorn`" + ` of deploy/ grants the rights to read it, and whose a ReplicaSet is.

By Kubernetes' own times a dead node is NotReady after 51 s. Its pods are deleted after 351 s, and ended by the policy
after 381 s. Their replacements had the data after 746 s, because the volumes are detached only then (` + "`make timeline`" + `).

## Longhorn's ` + "`volumeAttachmentRecoveryPolicy`" + `

| value | does, for pods of ReplicaSets with a volume of the drivers |
| --- | --- |
`)
	for _, r := range RecoveryValues {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.Value, r.Does)
	}
	b.WriteString(`
It goes with any policy that names ` + "`drivers`" + `, and does not ask what ` + "`nodeDownPodDeletionPolicy`" + ` or ` + "`owners`" + ` say: a Deployment's pods and those of a
ReplicaSet that nobody controls count alike, as they did in Longhorn; StatefulSets' do not. The pod gets a tombstone, and stays Terminating
for ever unless the deletion policy deletes it: until it is ended, Kubernetes would make a deleted attachment again. Then the VolumeAttachment is
deleted, once no unfinished pod of the node uses the volume. The replacement runs when Kubernetes' attach/detach controller looks next, which
it does once a minute (24 s, measured); without this it waits for six.

Longhorn had this setting until 1.1.1 and dropped it; since then its deletion policy deletes the attachments itself. Here both are kept, with
these differences from the document and from that code. ` + "`wait`" + ` does not ask for a replacement, as the document says; Longhorn's code did.
` + "`never`" + ` deletes no attachment, also when a person deleted the pod; Longhorn's did then. After ` + "`delete-statefulset-pod`" + ` the new pod waits for
Kubernetes' six minutes, as in the document's time; today's Longhorn deletes those attachments, too. An item that says ` + "`do-nothing`" + ` and
` + "`never`" + ` does nothing, and needs no ` + "`withoutProof`" + `. The controller needs the right to delete VolumeAttachments, which the component grants for
Longhorn's own.

## NooBaa

The node must become not Ready while this controller leads. One that was not Ready before is left alone, also when a controller takes over:
nothing is replayed. Where the machine is proven off, the node is recovered whole, and the database's volume is detached with the rest.

## StorageOS

` + "`storage`" + ` names a storage system of the configuration, which says of each node and volume whether it is healthy. What it does not tell is unknown:
that ends no pod, and no spell either. Ready does not matter, as in StorageOS' document. A node that becomes unhealthy gets one spell: its pods
with the label are looked at once, those with a volume that is not healthy are left (Event ` + "`PolicySkippedPods`" + `), the others ended, deleted, and then
the attachments of their volumes there deleted. What the API server refuses is tried again after ` + "`retryInterval`" + ` until ` + "`timeout`" + ` (Event
` + "`PolicyTimedOut`" + `). Then the node is done until its storage was healthy again, or ` + "`expiryInterval`" + ` is over. A controller that begins to
lead looks at a node that is unhealthy as soon as it knows which nodes are heard.

The label must be exactly ` + "`storageos.com/fenced=true`" + `, as the document says; StorageOS' code takes ` + "`1`" + ` and ` + "`True`" + `, too. The code tries skipped pods again every five
seconds and then tells of a timeout; the document, and this, do not. A pod that was never tried is tried also after ` + "`timeout`" + `: an API server that was away
does not cost an hour. A pod that Kubernetes' own eviction is about to delete waits for that.

On a node that is Ready, its kubelet ends the containers of an ended pod, unmounts, and takes the volumes off its list; forcefence deletes the attachments there,
as the document says, and never touches that list. A dead node stays Ready for about 40 seconds. Until then its volumes, whose attachments are gone,
are refused elsewhere (Multi-Attach), and a replacement may be scheduled back to it: use the storage's own scheduler, or cordon. Under
` + "`storage-fences`" + ` the volumes of ended pods are taken off the list as soon as the node is not Ready, unless another pod there uses them; under
` + "`accept-duplicates`" + ` nothing is taken off, which is the rule as written. The component ` + "`storageos`" + ` of deploy/ grants both.
`)
	got := b.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the presets say (go test ./taint/decide/policy -update writes it; -file "+
			"+presets):\n%s", file, diff)
	}
}
