package deploy

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/test/kit"
)

// suites are what features let the controller's account do, and the policies about it.
var suites = []struct {
	feature  string
	policies []string
	rows     []attempt
}{
	{"longhorn", []string{"forcefence-controller-attachment"}, longhornRows},
	{"drain", []string{"forcefence-controller-budget"}, drainRows},
	{"drain of Longhorn", nil, longhornDrainRows},
	{"storageos",
		[]string{"forcefence-controller-storageos-attachment", "forcefence-controller-node-status"}, storageOSRows},
	{"delete-attachments", []string{"forcefence-controller-overdue-attachment"}, overdueRows},
	{"out-of-service", []string{"forcefence-controller-node", "forcefence-out-of-service"}, outOfServiceRows},
	{"remediation", []string{"forcefence-controller-machine", "forcefence-controller-request"},
		slices.Concat(remediationRows, requestRows, keepRows)},
	{"replaceMachine", []string{"forcefence-controller-machine"}, replaceRows},
	{"leases", []string{"forcefence-controller-lease"}, leaseRows},
	{"metal3", []string{"forcefence-controller-host"}, slices.Concat(metal3Rows, hostRows)},
	{"handOver", []string{"forcefence-controller-nodeclaim"}, slices.Concat(karpenterRows, claimRows)},
	{"network fence", []string{"forcefence-controller-attachment", "forcefence-controller-networkfence"},
		slices.Concat(networkFenceRows, fenceRows)},
}

// A NetworkFence is made, changed and deleted; whose addresses it may have is the storage's and its manager's word.
var networkFenceRows = []attempt{
	{"make a NetworkFence", us, may("create", theFences, "", ""), ""},
	{"let a node in by it", us, may("patch", theFences, "", "x"), ""},
	{"delete it", us, may("delete", theFences, "", "x"), ""},
	{"read a class", us, may("get", "csiaddons.openshift.io/networkfenceclasses", "", "x"), ""},
	{"list the addresses", us, may("list", "csiaddons.openshift.io/csiaddonsnodes", "", ""), ""},
	{"say that it holds", us, may("patch", theFences+"/status", "", "x"), byRBAC},
	{"delete all NetworkFences", us, may("deletecollection", theFences, "", ""), byRBAC},
	{"change a class", us, may("patch", "csiaddons.openshift.io/networkfenceclasses", "", "x"), byRBAC},
	{"change a node's addresses", us, may("patch", "csiaddons.openshift.io/csiaddonsnodes/status", "", "x"), byRBAC},
}

// A NodeClaim is read and deleted; it is never made, and NodePools are Karpenter's.
var karpenterRows = []attempt{
	{"read a NodeClaim", us, may("get", "karpenter.sh/nodeclaims", "", "x"), ""},
	{"annotate it", us, may("patch", "karpenter.sh/nodeclaims", "", "x"), ""},
	{"delete it", us, may("delete", "karpenter.sh/nodeclaims", "", "x"), ""},
	{"make one", us, may("create", "karpenter.sh/nodeclaims", "", ""), byRBAC},
	{"delete all at once", us, may("deletecollection", "karpenter.sh/nodeclaims", "", ""), byRBAC},
	{"change its status", us, may("patch", "karpenter.sh/nodeclaims/status", "", "x"), byRBAC},
	{"delete a NodePool", us, may("delete", "karpenter.sh/nodepools", "", "x"), byRBAC},
	{"delete a Node", us, may("delete", "/nodes", "", "x"), byRBAC},
}

const (
	theRequests = "remediation.forcefence.io/forcefenceremediations"
	itsMachines = "cluster.x-k8s.io/machines"
	theHosts    = "metal3.io/baremetalhosts"
	theFences   = "csiaddons.openshift.io/networkfences"
	requestNS   = "forcefence-requests"
)

// A request is answered, and never made, in the namespaces whose requests count.
var remediationRows = []attempt{
	{"read a request", us, may("get", theRequests, requestNS, "x"), ""},
	{"watch requests", us, may("watch", theRequests, requestNS, ""), ""},
	{"keep a request by a finalizer", us, may("patch", theRequests, requestNS, "x"), ""},
	{"show what becomes of it", us, may("patch", theRequests+"/status", requestNS, "x"), ""},
	{"show it on a Machine", us, may("patch", itsMachines+"/status", requestNS, "x"), ""},
	{"make a request", us, may("create", theRequests, requestNS, ""), byRBAC},
	{"delete one", us, may("delete", theRequests, requestNS, "x"), byRBAC},
	{"change a Machine", us, may("patch", itsMachines, requestNS, "x"), byRBAC},
	{"delete a Machine", us, may("delete", itsMachines, requestNS, "x"), byRBAC},
	{"read requests elsewhere", us, may("list", theRequests, "default", ""), byRBAC},
	{"answer one elsewhere", us, may("patch", theRequests+"/status", "default", "x"), byRBAC},
	{"show anything on a Machine elsewhere", us, may("patch", itsMachines+"/status", "default", "x"), byRBAC},
}

// A host and its Secret are read, and a host is annotated, in the namespaces of BareMetalHosts alone.
var metal3Rows = []attempt{
	{"read a host", us, may("get", theHosts, "metal3", "x"), ""},
	{"annotate a host", us, may("patch", theHosts, "metal3", "x"), ""},
	{"read the Secret of its BMC", us, may("get", "/secrets", "metal3", "x"), ""},
	{"list hosts", us, may("list", theHosts, "metal3", ""), ""},
	{"list hosts of another namespace", us, may("list", theHosts, "default", ""), byRBAC},
	{"list Secrets", us, may("list", "/secrets", "metal3", ""), byRBAC},
	{"write a host's status", us, may("patch", theHosts+"/status", "metal3", "x"), byRBAC},
	{"delete a host", us, may("delete", theHosts, "metal3", "x"), byRBAC},
	{"change a Secret", us, may("patch", "/secrets", "metal3", "x"), byRBAC},
	{"read a host elsewhere", us, may("get", theHosts, "default", "x"), byRBAC},
	{"annotate a host elsewhere", us, may("patch", theHosts, "default", "x"), byRBAC},
	{"read a Secret elsewhere", us, may("get", "/secrets", "default", "x"), byRBAC},
}

// What refuses the deletion of an attachment.
const (
	byAttachment = "'forcefence-controller-attachment' with binding 'forcefence-controller-attachment' denied " +
		"request: "
	otherAttacher  = byAttachment + "forcefence may delete no VolumeAttachment but those of its policies' drivers"
	inlineVolume   = byAttachment + "forcefence may delete no VolumeAttachment but those of PersistentVolumes"
	attachmentName = byAttachment + "forcefence may delete a VolumeAttachment only by its UID and resourceVersion"

	byStorageAttachment = "'forcefence-controller-storageos-attachment' with binding " +
		"'forcefence-controller-storageos-attachment' denied request: "
	attachmentOther = byStorageAttachment + "forcefence may delete no VolumeAttachment but those of the storage's " +
		"drivers"
	attachmentInline = byStorageAttachment + "forcefence may delete no VolumeAttachment but those of PersistentVolumes"
	attachmentByName = byStorageAttachment + "forcefence may delete a VolumeAttachment only by its UID and " +
		"resourceVersion"

	overdueByName = "'forcefence-controller-overdue-attachment' with binding " +
		"'forcefence-controller-overdue-attachment' denied request: forcefence may delete a VolumeAttachment only by " +
		"its UID and resourceVersion"

	attachments = "storage.k8s.io/volumeattachments"
)

func deleteAttachment(name string, how func(*client.DeleteOptions)) request {
	return remove(&storagev1.VolumeAttachment{ObjectMeta: meta(name)}, how)
}

// featureFixtures makes attachments and budgets that the rows are about.
func (w *world) featureFixtures() {
	w.t.Helper()
	for _, name := range []string{requestNS, leaseNS, settingsNS, "metal3"} {
		_, err := w.c.Client().CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: meta(name)},
			metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	w.neighbourFixtures()
	_, err := w.c.Client().CoordinationV1().Leases(leaseNS).Create(w.ctx, heldLease, metav1.CreateOptions{})
	kit.Must(w.t, err)
	for name, attacher := range map[string]string{"longhorn": "driver.longhorn.io", "inline": "driver.longhorn.io",
		"other": "csi.example.net", "theirs": "csi.storageos.com", "inlines": "csi.storageos.com",
		"anothers": "csi.storageos.com.example.net"} {
		source := storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-" + name)}
		if name == "inline" || name == "inlines" {
			source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: attacher, VolumeHandle: "h"}},
			}}
		}
		_, err := w.c.Client().StorageV1().VolumeAttachments().Create(w.ctx, &storagev1.VolumeAttachment{
			ObjectMeta: meta(name),
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: "confirmed", Source: source},
		}, metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	for _, b := range []*policyv1.PodDisruptionBudget{
		drainBudget("ours", keepBudget), drainBudget("theirs", unlabelled)} {
		_, err := w.c.Client().PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, b, metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
}

const (
	leaseNS = "cnpg-system"
	byLease = "'forcefence-controller-lease' with binding 'forcefence-controller-lease' denied request: "
	keeping = byLease + "forcefence may only release a Lease, without a holder and for one second"
	elseOf  = byLease + "forcefence may change nothing else of a Lease"
)

var heldLease = &coordinationv1.Lease{
	ObjectMeta: metav1.ObjectMeta{Namespace: leaseNS, Name: "held", Labels: map[string]string{"a": "b"}},
	Spec: coordinationv1.LeaseSpec{HolderIdentity: new("pod_1"), LeaseDurationSeconds: new(int32(15)),
		LeaseTransitions: new(int32(1))},
}

// releaseLease releases the Lease, and writes more of it: fields after the spec's, and of the object.
func releaseLease(spec, more string) request {
	return patchWith(heldLease, types.MergePatchType, `{"spec":{"holderIdentity":"","leaseDurationSeconds":1,
"acquireTime":"2026-03-01T12:00:00.000000Z","renewTime":"2026-03-01T12:00:00.000000Z"`+spec+`}`+more+`}`)
}

// A Lease is released, and never taken, in the namespaces that the configuration names.
var leaseRows = []attempt{
	{"release a Lease", us, releaseLease("", ""), ""},
	{"lead", us, touchLease(metav1.NamespaceSystem, "forcefence"), ""},
	{"watch Leases", us, may("watch", leases, leaseNS, ""), ""},
	{"take it", us, releaseLease(`,"holderIdentity":"us"`, ""), keeping},
	{"keep its duration", us, releaseLease(`,"leaseDurationSeconds":15`, ""), keeping},
	{"count a transition", us, releaseLease(`,"leaseTransitions":2`, ""), elseOf},
	{"drop the count", us, releaseLease(`,"leaseTransitions":null`, ""), elseOf},
	{"label it", us, releaseLease("", `,"metadata":{"labels":{"a":"c"}}`), elseOf},
	{"annotate it", us, releaseLease("", `,"metadata":{"annotations":{"a":"c"}}`), elseOf},
	{"hold it by a finalizer", us, releaseLease("", `,"metadata":{"finalizers":["example.net/a"]}`), elseOf},
	{"give it an owner", us, releaseLease("", `,"metadata":{"ownerReferences":[
{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"}]}`), elseOf},
	{"anything with one's own", admin, releaseLease(`,"holderIdentity":"me"`, ""), ""},
	{"write one whole", us, may("update", leases, leaseNS, "held"), byRBAC},
	{"delete one", us, may("delete", leases, leaseNS, "held"), byRBAC},
	{"release one elsewhere", us, may("patch", leases, "default", "held"), byRBAC},
	{"watch Leases elsewhere", us, may("watch", leases, "default", ""), byRBAC},
}

const settings, settingsNS = "longhorn.io/settings", "longhorn-system"

var longhornRows = []attempt{
	{"delete an attachment of Longhorn's", us, deleteAttachment("longhorn", asIs), ""},
	{"delete another driver's", us, deleteAttachment("other", asIs), otherAttacher},
	{"delete an inline volume's", us, deleteAttachment("inline", asIs), inlineVolume},
	{"delete one by name", us, deleteAttachment("longhorn", byName), attachmentName},
	{"delete one without resourceVersion", us, deleteAttachment("longhorn", withoutVersion), attachmentName},
	{"delete one without UID", us, deleteAttachment("longhorn", withoutUID), attachmentName},
	{"delete another driver's", admin, deleteAttachment("other", asIs), ""},
	{"delete all", us, may("deletecollection", attachments, "", ""), byRBAC},
	{"change one", us, may("patch", attachments, "", "longhorn"), byRBAC},
	{"write Longhorn's setting", us, may("patch", settings, settingsNS, "node-down-pod-deletion-policy"), byRBAC},
	{"read another setting of Longhorn's", us, may("get", settings, settingsNS, "backup-target"), byRBAC},
	{"read Longhorn's setting", us, may("get", settings, settingsNS, "node-down-pod-deletion-policy"), ""},
	{"list ReplicaSets", us, may("list", "apps/replicasets", "default", ""), byRBAC},
	{"read whose a ReplicaSet is", us, may("get", "apps/replicasets", "default", ""), ""},
}

const (
	byBudget      = "'forcefence-controller-budget' with binding 'forcefence-controller-budget' denied request: "
	budgetTheirs  = byBudget + "forcefence may change and delete no PodDisruptionBudget but those of its drain guards"
	budgetNobodys = byBudget + "forcefence may make no PodDisruptionBudget without the label of a drain guard"
	budgetShape   = byBudget + "forcefence may demand of a PodDisruptionBudget nothing but that one pod is available"
	budgetForAll  = byBudget + "forcefence may make no PodDisruptionBudget for all pods"
	budgetByName  = byBudget + "forcefence may delete a PodDisruptionBudget only by its UID and resourceVersion"

	budgets = "policy/poddisruptionbudgets"
)

// drainGuard makes what the controller makes.
var drainGuard = drain.Guard{Name: "disks", Namespace: "default", Identity: drain.Identity{"pod"},
	Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}}}

func drainBudget(name string, edit func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := drainGuard.BudgetFor(
		drain.Pod{Namespace: "default", Node: "plain", Labels: map[string]string{"app": "engine", "pod": name}})
	b.Name = name
	edit(b)
	return b
}

func createBudget(edit func(*policyv1.PodDisruptionBudget)) request {
	return create(drainBudget("fresh", edit))
}

func updateBudget(name string, edit func(*policyv1.PodDisruptionBudget)) request {
	return rewrite(&policyv1.PodDisruptionBudget{ObjectMeta: inDefault(name)}, edit)
}

func deleteBudget(name string, how func(*client.DeleteOptions)) request {
	return remove(&policyv1.PodDisruptionBudget{ObjectMeta: inDefault(name)}, how)
}

// Edits of a budget.

func keepBudget(*policyv1.PodDisruptionBudget)   {}
func unlabelled(b *policyv1.PodDisruptionBudget) { b.Labels = nil }
func guarded(b *policyv1.PodDisruptionBudget) {
	b.Labels = map[string]string{taint.DrainGuardLabel: "disks"}
}
func otherPod(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["pod"] = "other" }
func allPods(b *policyv1.PodDisruptionBudget)  { b.Spec.Selector = &metav1.LabelSelector{} }

func available(n intstr.IntOrString) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &n }
}

func noneAway(b *policyv1.PodDisruptionBudget) {
	b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, &intstr.IntOrString{}
}

var drainRows = []attempt{
	{"make a guard's budget", us, createBudget(keepBudget), ""},
	{"mend one", us, updateBudget("ours", otherPod), ""},
	{"delete one", us, deleteBudget("ours", asIs), ""},
	{"make one that is no guard's", us, createBudget(unlabelled), budgetNobodys},
	{"take the guard off one", us, updateBudget("ours", unlabelled), budgetNobodys},
	{"make another owner's its own", us, updateBudget("theirs", guarded), budgetTheirs},
	{"delete another owner's", us, deleteBudget("theirs", asIs), budgetTheirs},
	{"delete by name", us, deleteBudget("ours", withoutUID), budgetByName},
	{"delete another version", us, deleteBudget("ours", withoutVersion), budgetByName},
	{"hold up all pods", us, createBudget(allPods), budgetForAll},
	{"demand two pods", us, createBudget(available(intstr.FromInt32(2))), budgetShape},
	{"demand a share", us, createBudget(available(intstr.FromString("100%"))), budgetShape},
	{"allow none to be away", us, createBudget(noneAway), budgetShape},
	{"say what holds a drain up", us, onNode("plain", note(taint.DrainAnnotation, "x")), ""},
	{"say that replicas leave", us, onNode("plain", note(taint.AutoEvictingAnnotation, "x")), ""},
	{"say anything else on a node", us, onNode("plain", note("forcefence.io/other", "x")), otherNote},
	{"say it in another's name", us, onNode("plain", note("example.net/drain", "x")), otherNote},
	{"cordon", us, onNode("plain", cordon), otherSpec},
	{"read the nodes' drain policies", us, may("get", "/configmaps", namespace, "forcefence-drain"), ""},
	{"evict a pod", us, may("create", "/pods/eviction", "default", "runs"), byRBAC},
	{"patch a budget", us, may("patch", budgets, "default", "ours"), byRBAC},
	{"anything with one's own budget", admin, updateBudget("theirs", available(intstr.FromInt32(3))), ""},
}

// With delegate Longhorn itself holds the drain up, by one of its settings.
var longhornDrainRows = []attempt{
	{"change Longhorn's drain policy", us, may("patch", settings, settingsNS, "node-drain-policy"), ""},
	{"change another setting of Longhorn's", us, may("patch", settings, settingsNS, "backup-target"), byRBAC},
	{"change a setting elsewhere", us, may("patch", settings, "default", "node-drain-policy"), byRBAC},
	{"read the nodes' drain policies", us, may("get", "/configmaps", namespace, "forcefence-drain"), ""},
	{"make a budget", us, may("create", budgets, "default", ""), byRBAC},
}

const listStorage = byStatus + "forcefence may change the volume lists of a marked node only, and volumes in use of " +
	"the storage's drivers on one that is not Ready"

// unlist takes volumes off the list of those in use.
func unlist(names ...corev1.UniqueVolumeName) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse,
			func(v corev1.UniqueVolumeName) bool { return slices.Contains(names, v) })
	}
}

func detached(n *corev1.Node) { n.Status.VolumesAttached = nil }

func oneMore(n *corev1.Node) {
	n.Status.VolumesInUse = append(n.Status.VolumesInUse, "kubernetes.io/csi/csi.storageos.com^v9")
}

// The node "confirmed" is not marked and not Ready, "plain" is Ready.
var storageOSRows = []attempt{
	{"the storage's volume in use on a node that is not Ready", us,
		onNode("confirmed", unlist(storageVolume), status), ""},
	{"on one that is Ready", us, onNode("plain", unlist(storageVolume), status), listStorage},
	{"another driver's volume", us, onNode("confirmed", unlist(alikeVolume), status), listStorage},
	{"another driver's volume beside", us, onNode("confirmed", unlist(storageVolume, ownVolume), status), listStorage},
	{"attached volumes", us, onNode("confirmed", all(unlist(storageVolume), detached), status), listStorage},
	{"one that was not there", us, onNode("confirmed", oneMore, status), listGrows},
	{"Ready on the way", us, onNode("confirmed",
		all(unlist(storageVolume), condition(corev1.NodeReady, corev1.ConditionFalse)), status), byPolicy},
	{"a marked node's lists, as before", us, onNode("marked", clearLists, status), ""},
	{"the storage's attachment", us, deleteAttachment("theirs", asIs), ""},
	{"another driver's attachment", us, deleteAttachment("anothers", asIs), attachmentOther},
	{"an inline volume's attachment", us, deleteAttachment("inlines", asIs), attachmentInline},
	{"an attachment by its name", us, deleteAttachment("theirs", withoutUID), attachmentByName},
	{"an attachment of any state", us, deleteAttachment("theirs", withoutVersion), attachmentByName},
}

const (
	neitherTaint = byNode + "forcefence may change no taint but its mark and its own out-of-service"
	outUnmarked  = byNode + "forcefence may take a marked node out of service only"

	byGuard = "'forcefence-out-of-service' with binding 'forcefence-out-of-service' denied request: "
	seenOn  = byGuard + "the node's machine was On when forcefence last asked its device"
	isReady = byGuard + "the node is Ready"
)

func outOfService(value string, e corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: value, Effect: e})
	}
}

var (
	ourOut    = outOfService("forcefence", corev1.TaintEffectNoExecute)
	theirOut  = outOfService("nodeshutdown", corev1.TaintEffectNoExecute)
	inService = noTaint(corev1.TaintNodeOutOfService)
)

func anyway(reason string) func(*corev1.Node) {
	return note("forcefence.io/out-of-service-anyway", reason)
}

var overdueRows = []attempt{
	{"delete an attachment", us, deleteAttachment("other", asIs), ""},
	{"delete one by name", us, deleteAttachment("other", byName), overdueByName},
	{"delete one without resourceVersion", us, deleteAttachment("other", withoutVersion), overdueByName},
	{"delete one without UID", us, deleteAttachment("other", withoutUID), overdueByName},
}

var outOfServiceRows = []attempt{
	{"take a marked node out of service", us, onNode("marked", ourOut), ""},
	{"take a node out of service", us, onNode("plain", ourOut), outUnmarked},
	{"mark a node and take it out of service at once", us, onNode("plain", all(byFence, ourOut)), outUnmarked},
	{"in another's name", us, onNode("marked", theirOut), neitherTaint},
	{"with another effect", us, onNode("marked", outOfService("forcefence", corev1.TaintEffectNoSchedule)),
		neitherTaint},
	{"put a node back", us, onNode("out", inService), ""},
	{"put back what another took out", us, onNode("theirs", inService), neitherTaint},
	{"another taint", us, onNode("marked", addTaint("example.net/broken")), neitherTaint},
	{"mark a node", us, onNode("plain", byFence), ""},

	{"a node whose machine is on", admin, onNode("on", theirOut), seenOn},
	{"with another effect", admin, onNode("on", outOfService("nodeshutdown", corev1.TaintEffectNoSchedule)), seenOn},
	{"a node that is Ready", admin, onNode("plain", theirOut), isReady},
	{"a node whose machine is on, anyway", admin, onNode("on", all(anyway("the BMC is wrong"), theirOut)), ""},
	{"a Ready node, anyway", admin, onNode("plain", all(anyway("it hangs"), theirOut)), ""},
	{"without a reason", admin, onNode("on", all(anyway(""), theirOut)), seenOn},
	{"forcefence itself", us, onNode("dead", ourOut), ""},
	{"another on a marked node", admin, onNode("dead", theirOut), seenOn},
	{"a dead node", admin, onNode("confirmed", theirOut), ""},
	{"another taint", admin, onNode("on", addTaint("example.net/broken")), ""},
	{"a node that has it", admin, onNode("theirs", addTaint("example.net/broken")), ""},
	{"take it off", admin, onNode("theirs", inService), ""},
}
