package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// Who asks.
const (
	us       = "forcefence" // the controller's ServiceAccount
	editor   = "editor"     // may do anything to nodes, but not mark them
	operator = "operator"   // an editor with forcefence-operator
	// an operator whose name is the beginning of a confirmation by admin
	forger         = admin + `","reason":"it is dark`
	grantAlone     = "grant alone"     // forcefence-operator and nothing else
	kubelet        = "kubelet"         // of node plain
	markedKubelet  = "marked kubelet"  // of node marked
	newKubelet     = "new kubelet"     // of a node that is not there yet
	deadKubelet    = "dead kubelet"    // of node dead
	oddKubelet     = "odd kubelet"     // one whose name NodeRestriction does not know, with an editor's rights
	nodeController = "node controller" // the control plane's own, which taints and deletes nodes
	admin          = "admin"

	// may do anything to pods and workloads, and write the annotation tolerate-missing in namespace default
	deployer     = "deployer"
	daemonSets   = "daemonsets"   // a controller of Kubernetes', as the next ones
	statefulSets = "statefulsets" //
	replicaSets  = "replicasets"  //
	replications = "replications" //
	jobs         = "jobs"         //
	deployments  = "deployments"  //
	cronJobs     = "cronjobs"     //
	lookalike    = "lookalike"    // has a controller's name, in another namespace, and an editor's rights
)

// The names of what refuses, as in the API server's answer. A validation's message follows its policy's name.
const (
	byRBAC            = "is forbidden: User "
	byNodeRestriction = "is not allowed to modify taints"
	byRestrictedLabel = "is not allowed to modify labels"
	byPolicy          = "denied request: " // either of two policies that both refuse it
	// the labels that NodeRestriction does not let a kubelet change, in its answer
	pinByKubelet = taint.PinLabel

	byMark = "'forcefence-mark' with binding 'forcefence-mark' denied request: "
	mark1  = byMark + "the node's mark may be set, changed or taken off only by whoever may taint " +
		"nodefences.forcefence.io"
	record = byMark + "the node's fence record may be written only by whoever may taint nodefences.forcefence.io"
	effect = byMark + "the mark's effect must be NoSchedule"

	confirmed = byMark + "that the node's machine is off may be confirmed only by whoever may taint " +
		"nodefences.forcefence.io"
	forName = byMark + "nobody may confirm in another's name that a machine is off; use forcefence confirm-off"

	byDelete     = "'forcefence-node-delete' with binding 'forcefence-node-delete' denied request: "
	deleteMarked = byDelete + "the node carries the mark of a fence; it may be deleted when the mark is off"
	deleteOpen   = byDelete + "the node's fence is not done; it may be deleted afterwards"
	deleteLied   = byDelete + "the node's device said Off of a machine that was on; forcefence release ends the " +
		"distrust, deleting the node must not"

	byNode     = "'forcefence-controller-node' with binding 'forcefence-controller-node' denied request: "
	otherTaint = byNode + "forcefence may change no taint but its mark"
	otherSpec  = byNode + "forcefence may change nothing of a node's spec but its mark"
	otherNote  = byNode + "forcefence may change no annotation of a node but its record and what its policies do"

	byKubelet   = "'forcefence-kubelet' with binding 'forcefence-kubelet' denied request: "
	kubeletNote = byKubelet + "a kubelet may not write annotations of forcefence, nor those by which its " +
		"machine is found"
	kubeletLabel = byKubelet + "a kubelet may not write labels of forcefence, nor those by which its machine is " +
		"found"
	kubeletTaint     = byKubelet + "a kubelet may not write taints of forcefence"
	kubeletCondition = byKubelet + "a kubelet may not write conditions of forcefence"

	leaderLease = "'forcefence-leader' with binding 'forcefence-leader' denied request: a leader's Lease may be " +
		"written only by whoever may taint nodefences.forcefence.io"
	otherMeta  = byNode + "forcefence may change no finalizers or owners of a node"
	otherLabel = byNode + "forcefence may change no label of a node but the pin of its machine, and take none off"
	pinMarked  = byNode + "forcefence may not pin the machine of a marked node"

	byStatus = "'forcefence-controller-node-status' with binding 'forcefence-controller-node-status' denied " +
		"request: "
	statusMeta   = byStatus + "forcefence may not change labels or annotations through a node's status"
	otherStatus  = byStatus + "forcefence may change nothing of a node's status but its volume lists and conditions"
	listUnmarked = byStatus + "forcefence may change the volume lists of a marked node only"
	listGrows    = byStatus + "forcefence may only take volumes off a node's lists"
	otherCond    = byStatus + "forcefence may change no condition but its own, and Ready from True to Unknown"
	readyPlain   = byStatus + "forcefence may change Ready of a marked node only"
	condRemoved  = byStatus + "forcefence may remove no condition but its own"

	byPod       = "'forcefence-controller-pod-status' with binding 'forcefence-controller-pod-status' denied request: "
	podNote     = byPod + "forcefence may change no annotation of a pod but its own"
	podMeta     = byPod + "forcefence may change no labels or finalizers of a pod"
	podShape    = byPod + "forcefence may write no status but that of a fenced or a spared pod, and Ready alone"
	podFinished = byPod + "forcefence may not end a pod that has finished"
	podUnbound  = byPod + "forcefence may not end a pod that is bound to no node"
	podStatus   = byPod + "forcefence may change nothing of a fenced pod's status but phase, reason, message and " +
		"conditions"
	podCondition = byPod + "forcefence may change no condition of a pod but DisruptionTarget, and Ready and " +
		"ContainersReady from True to False"

	byPodDelete = "'forcefence-controller-pod-delete' with binding 'forcefence-controller-pod-delete' denied request: "
	podAlive    = byPodDelete + "forcefence may delete no pod but those that it has ended"
	podByName   = byPodDelete + "forcefence may delete a pod only by its UID and resourceVersion"
)

// request is one attempt of an account. It is sent as a dry run, which passes admission like any other.
type request func(ctx context.Context, admin, c kubernetes.Interface) error

// attempt is a row of the tables.
type attempt struct {
	name string
	as   string
	do   request
	want string // part of the refusal; "" for a request that must pass
}

var dryRun = []string{metav1.DryRunAll}

// onNode changes a Node, through its status where sub says so, by a patch of what differs.
func onNode(name string, edit func(*corev1.Node), sub ...string) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		n, err := admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := n.DeepCopy()
		edit(after)
		patch, err := difference(n, after, corev1.Node{})
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Nodes().
			Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{DryRun: dryRun}, sub...)
		return err
	}
}

// onPod changes a pod's status.
func onPod(name string, edit func(*corev1.Pod), sub ...string) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		p, err := admin.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := p.DeepCopy()
		edit(after)
		patch, err := difference(p, after, corev1.Pod{})
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Pods("default").
			Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{DryRun: dryRun}, sub...)
		return err
	}
}

// onPodConditions replaces a pod's conditions whole, by a patch that knows no types.
func onPodConditions(name string, edit func([]corev1.PodCondition) []corev1.PodCondition) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		p, err := admin.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": edit(p.Status.Conditions)}})
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{DryRun: dryRun}, status)
		return err
	}
}

func difference(before, after, kind any) ([]byte, error) {
	b, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	a, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(b, a, kind)
	if err == nil && string(patch) == "{}" {
		err = fmt.Errorf("the row changes nothing")
	}
	return patch, err
}

func deleteNode(name string) request {
	return func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun})
	}
}

func createNode(edit func(*corev1.Node)) request {
	return func(ctx context.Context, _, c kubernetes.Interface) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}
		edit(n)
		_, err := c.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

// deletePod deletes as the controller does, unless edit says otherwise.
func deletePod(name string, edit func(*metav1.DeleteOptions)) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		p, err := admin.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		zero := int64(0)
		o := metav1.DeleteOptions{DryRun: dryRun, GracePeriodSeconds: &zero,
			Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}}
		edit(&o)
		return c.CoreV1().Pods("default").Delete(ctx, name, o)
	}
}

// Edits of a Node.

func setMark(value string, e corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		noMark(n)
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: e})
	}
}

func noMark(n *corev1.Node) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func addTaint(k string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoSchedule})
	}
}

func note(k, v string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[k] = v
	}
}

func noNote(k string) func(*corev1.Node) {
	return func(n *corev1.Node) { delete(n.Annotations, k) }
}

func label(n *corev1.Node) { n.Labels["zone"] = "elsewhere" }

func setLabel(k, v string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[k] = v
	}
}

func noLabel(k string) func(*corev1.Node) {
	return func(n *corev1.Node) { delete(n.Labels, k) }
}

func noTaint(k string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == k })
	}
}

// leaderOf writes a Lease with forcefence's label, or without for "off"; it makes one where it has no name.
func leaderOf(ns, name, value string) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		labels := map[string]string{"forcefence.io/leader": value}
		if value == "off" {
			labels = nil
		}
		if name == "" {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fresh", Labels: labels}}
			_, err := c.CoordinationV1().Leases(ns).Create(ctx, l, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		l, err := admin.CoordinationV1().Leases(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.Labels, l.Annotations = labels, map[string]string{"touched": ""}
		_, err = c.CoordinationV1().Leases(ns).Update(ctx, l, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
}

// confirms is a person's word that the machine is off.
func confirms(by string) func(*corev1.Node) {
	return note(taint.ConfirmAnnotation,
		taint.Confirmation{By: by, Reason: "it is dark", NodeUID: "u", BootID: "b1", Fence: "f-9",
			At: time.Now()}.Encode())
}

func pin(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, taint.PinLabel, value) }
}

func both(edits ...func(*corev1.Node)) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, e := range edits {
			e(n)
		}
	}
}

func condition(t corev1.NodeConditionType, s corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		c := corev1.NodeCondition{Type: t, Status: s, Reason: "Test", LastTransitionTime: metav1.Now(),
			LastHeartbeatTime: metav1.Now()}
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == t {
				n.Status.Conditions[i] = c
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
}

func noCondition(t corev1.NodeConditionType) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions,
			func(c corev1.NodeCondition) bool { return c.Type == t })
	}
}

func clearLists(n *corev1.Node) { n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil }

// Edits of a pod.

func tombstone(p *corev1.Pod) {
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, taint.TombstoneReason, "ended"
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: taint.TombstoneReason,
		LastTransitionTime: metav1.Now(),
	})
}

// setCondition writes a condition of a pod that has it already, or adds it.
func setCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}
		i := slices.IndexFunc(p.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == kind })
		if i < 0 {
			p.Status.Conditions = append(p.Status.Conditions, c)
			return
		}
		p.Status.Conditions[i] = c
	}
}

// notReady is what the controller writes of a pod that stays on a dead node.
var notReady = setCondition(corev1.PodReady, corev1.ConditionFalse, taint.TombstoneReason)

// notReadyAnd writes something besides it.
func notReadyAnd(edits ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, edit := range append([]func(*corev1.Pod){notReady}, edits...) {
			edit(p)
		}
	}
}

// failedCondition is what a tombstone makes of Ready or ContainersReady.
func failedCondition(kind corev1.PodConditionType) func(*corev1.Pod) {
	return setCondition(kind, corev1.ConditionFalse, "PodFailed")
}

// tombstoneWhole is a tombstone of a pod that was Ready.
func tombstoneWhole(p *corev1.Pod) {
	tombstone(p)
	failedCondition(corev1.PodReady)(p)
	failedCondition(corev1.ContainersReady)(p)
}

func tombstoneAnd(edit func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		tombstone(p)
		edit(p)
	}
}

const status = "status"

// refusals are the things that must not happen.
var refusals = []attempt{
	{"mark a node", editor, onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)), mark1},
	{"take a mark off", editor, onNode("marked", noMark), mark1},
	{"change a mark's value", editor, onNode("marked", setMark("other", corev1.TaintEffectNoSchedule)), mark1},
	{"create a marked node", editor, createNode(setMark("manual", corev1.TaintEffectNoSchedule)), mark1},
	{"register a marked node", newKubelet, createNode(setMark("manual", corev1.TaintEffectNoSchedule)), byPolicy},
	{"a kubelet marks its node", kubelet, onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)),
		byNodeRestriction},
	{"the node controller marks a node", nodeController,
		onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)), mark1},
	{"write a record", editor, onNode("plain", note(taint.RecordAnnotation, openRecord)), record},
	{"write an empty record", editor, onNode("plain", note(taint.RecordAnnotation, "")), record},
	{"change a record", editor, onNode("marked", note(taint.RecordAnnotation, doneRecord)), record},
	{"take a record off", editor, onNode("done", noNote(taint.RecordAnnotation)), record},
	{"write a record through the status", editor, onNode("plain", note(taint.RecordAnnotation, openRecord), status),
		record},
	{"create a node with a record", editor, createNode(func(n *corev1.Node) {
		n.Annotations = map[string]string{taint.RecordAnnotation: doneRecord}
	}), record},
	{"confirm that a machine is off", editor, onNode("plain", confirms(editor)), confirmed},
	{"confirm it through the status", editor, onNode("plain", confirms(editor), status), confirmed},
	{"confirm it with an empty word", editor, onNode("plain", note(taint.ConfirmAnnotation, "")), confirmed},
	{"create a node that is confirmed off", editor, createNode(confirms(editor)), confirmed},
	{"take a confirmation off", editor, onNode("confirmed", noNote(taint.ConfirmAnnotation)), confirmed},
	{"change another's confirmation", editor, onNode("confirmed", confirms(editor)), confirmed},
	{"confirm in another's name", operator, onNode("plain", confirms(admin)), forName},
	{"confirm in a longer name", operator, onNode("plain", confirms(operator+" general")), forName},
	{"confirm in another's name, which one's own begins with", forger, onNode("plain", confirms(admin)), forName},
	{"confirm without a name", operator, onNode("plain", note(taint.ConfirmAnnotation, "yes")), forName},
	{"confirm in another's name through the status", operator, onNode("plain", confirms(admin), status), forName},
	{"a kubelet confirms that it is off", kubelet, onNode("plain", confirms("system:node:plain")), byPolicy},
	{"a kubelet confirms it through its status", kubelet, onNode("plain", confirms("system:node:plain"), status),
		byPolicy},
	{"register confirmed", newKubelet, createNode(confirms("system:node:new")), byPolicy},
	{"forcefence confirms itself", us, onNode("plain", confirms("system:serviceaccount:forcefence-system:forcefence")),
		otherNote},
	{"a kubelet writes its node's record", kubelet, onNode("plain", note(taint.RecordAnnotation, doneRecord)),
		byPolicy},
	{"a kubelet closes its node's record", markedKubelet,
		onNode("marked", note(taint.RecordAnnotation, doneRecord), status), byPolicy},

	{"its machine's annotation", kubelet, onNode("plain", note("example.net/bmc", "https://192.0.2.9")), kubeletNote},
	{"its machine's annotation through its status", markedKubelet,
		onNode("marked", note("example.net/bmc", "https://192.0.2.9"), status), kubeletNote},
	{"its machine's annotation taken off", kubelet, onNode("plain", noNote("example.net/bmc")), kubeletNote},
	{"its machine's annotation taken off through its status", kubelet,
		onNode("plain", noNote("example.net/bmc"), status), kubeletNote},
	{"registering with its machine's annotation", newKubelet, createNode(note("example.net/bmc", "https://192.0.2.9")),
		kubeletNote},
	{"an annotation of forcefence", kubelet, onNode("plain", note("forcefence.io/x", "")), kubeletNote},
	{"an annotation of forcefence through its status", kubelet, onNode("plain", note("forcefence.io/x", ""), status),
		kubeletNote},
	{"an annotation of a domain below forcefence", kubelet, onNode("plain", note("x.forcefence.io/y", "")),
		kubeletNote},
	{"registering with an annotation of forcefence", newKubelet, createNode(note("forcefence.io/x", "")), kubeletNote},
	{"a label of forcefence", kubelet, onNode("plain", setLabel("forcefence.io/exclude", "please")), kubeletLabel},
	{"a label of forcefence through its status", kubelet,
		onNode("plain", setLabel("forcefence.io/exclude", "please"), status), kubeletLabel},
	{"a label of forcefence taken off", deadKubelet, onNode("dead", noLabel("forcefence.io/exclude")), kubeletLabel},
	{"registering with a label of forcefence", newKubelet, createNode(setLabel("forcefence.io/exclude", "please")),
		kubeletLabel},
	{"its machine's label", kubelet, onNode("plain", setLabel("example.net/rack", "r2")), kubeletLabel},
	{"its machine's label taken off through its status", deadKubelet,
		onNode("dead", noLabel("example.net/rack"), status), kubeletLabel},
	{"registering with its machine's label", newKubelet, createNode(setLabel("example.net/rack", "r2")), kubeletLabel},
	{"its machine's pin", kubelet, onNode("plain", setLabel(taint.PinLabel, "m2")), byRestrictedLabel},
	{"its machine's pin taken off", deadKubelet, onNode("dead", noLabel(taint.PinLabel), status), byRestrictedLabel},
	{"its machine's pin where NodeRestriction does not look", oddKubelet,
		onNode("plain", setLabel(taint.PinLabel, "m2")), kubeletLabel},
	{"its machine's pin taken off where NodeRestriction does not look", oddKubelet,
		onNode("dead", noLabel(taint.PinLabel)), kubeletLabel},
	{"registering with a taint of forcefence", newKubelet, createNode(addTaint("forcefence.io/x")), kubeletTaint},
	{"a taint of forcefence taken off where NodeRestriction does not look", oddKubelet,
		onNode("dead", noTaint("forcefence.io/x")), kubeletTaint},
	{"the mark taken off where NodeRestriction does not look", oddKubelet, onNode("marked", noMark), byPolicy},
	{"a condition of forcefence", kubelet,
		onNode("plain", condition("forcefence.io/PoweredOnNotReady", corev1.ConditionFalse), status), kubeletCondition},
	{"that it can be fenced", kubelet,
		onNode("plain", condition(taint.FenceableCondition, corev1.ConditionTrue), status), kubeletCondition},
	{"a condition of forcefence changed", deadKubelet,
		onNode("dead", condition("forcefence.io/PoweredOnNotReady", corev1.ConditionFalse), status), kubeletCondition},
	{"a condition of forcefence taken off", deadKubelet,
		onNode("dead", noCondition("forcefence.io/PoweredOnNotReady"), status), kubeletCondition},
	{"registering with a condition of forcefence", newKubelet,
		createNode(condition("forcefence.io/PoweredOnNotReady", corev1.ConditionTrue)), kubeletCondition},

	{"its node deleted, to register it again", kubelet, deleteNode("plain"), byRBAC},

	{"a leader's Lease", editor, leaderOf("default", "", "true"), leaderLease},
	{"a leader's Lease with an empty label", editor, leaderOf("default", "", ""), leaderLease},
	{"making a Lease a leader's", editor, leaderOf("default", "idle", "true"), leaderLease},
	{"taking the label off a leader's Lease", editor, leaderOf("default", "leads", "off"), leaderLease},
	{"mark with the grant alone", grantAlone, onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)), byRBAC},
	{"mark with NoExecute", operator, onNode("plain", setMark("manual", corev1.TaintEffectNoExecute)), effect},
	{"mark with PreferNoSchedule", operator, onNode("plain", setMark("manual", corev1.TaintEffectPreferNoSchedule)),
		effect},
	{"mark with NoExecute, as forcefence", us, onNode("plain", setMark("f-1", corev1.TaintEffectNoExecute)), effect},
	{"mark with NoExecute, as admin", admin, onNode("plain", setMark("manual", corev1.TaintEffectNoExecute)), effect},
	{"turn a mark into NoExecute", operator, onNode("marked", setMark("f-1", corev1.TaintEffectNoExecute)), effect},

	{"delete a marked node", editor, deleteNode("marked"), deleteMarked},
	{"delete a node marked by hand", editor, deleteNode("manual"), deleteMarked},
	{"delete a node whose fence is open", editor, deleteNode("open"), deleteOpen},
	{"delete a node whose device lied", editor, deleteNode("lied"), deleteLied},
	{"delete a node one of whose devices lied in an earlier fence", editor, deleteNode("liedonce"), deleteLied},
	{"delete a node whose record cannot be read", editor, deleteNode("broken"), deleteOpen},
	{"the node controller deletes a marked node", nodeController, deleteNode("marked"), deleteMarked},
	{"delete all nodes at once", editor, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.CoreV1().Nodes().
			DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun},
				metav1.ListOptions{LabelSelector: "fixture=marked"})
	}, deleteMarked},

	{"another taint", us, onNode("plain", addTaint("example.net/broken")), otherTaint},
	{"another taint beside the mark", us,
		onNode("plain", both(setMark("f-1", corev1.TaintEffectNoSchedule), addTaint("example.net/broken"))),
		otherTaint},
	{"take another taint off", us, onNode("marked", func(n *corev1.Node) { n.Spec.Taints = nil }), otherTaint},
	{"cordon", us, onNode("plain", func(n *corev1.Node) { n.Spec.Unschedulable = true }), otherSpec},
	{"uncordon", us, onNode("marked", func(n *corev1.Node) { n.Spec.Unschedulable = false }), otherSpec},
	{"provider id", us, onNode("plain", func(n *corev1.Node) { n.Spec.ProviderID = "sim://1" }), otherSpec},
	{"label a node", us, onNode("plain", label), otherLabel},
	{"a new label of a node", us, onNode("plain", setLabel("forcefence.io/exclude", "x")), otherLabel},
	{"take a label off", us, onNode("plain", noLabel("fixture")), otherLabel},
	{"label a node beside the pin", us, onNode("plain", both(label, pin("a.b"))), otherLabel},
	{"take the pin off a node", us, onNode("open", func(n *corev1.Node) { delete(n.Labels, taint.PinLabel) }),
		otherLabel},
	{"pin a marked node", us, onNode("marked", pin("a.b")), pinMarked},
	{"a pin through a node's status", us, onNode("plain", pin("a.b"), status), statusMeta},
	{"a kubelet pins its node", kubelet, onNode("plain", pin("a.b")), pinByKubelet},
	{"a kubelet pins its node through its status", kubelet, onNode("plain", pin("a.b"), status), pinByKubelet},
	{"register a pinned node", newKubelet, createNode(pin("a.b")), pinByKubelet},
	{"finalizer on a node", us, onNode("plain", func(n *corev1.Node) { n.Finalizers = []string{"forcefence.io/hold"} }),
		otherMeta},
	{"strip a node's finalizers", us, onNode("marked", func(n *corev1.Node) { n.Finalizers = nil }), otherMeta},
	{"another annotation of a node", us, onNode("plain", note("example.net/bmc", "https://192.0.2.1")), otherNote},
	{"take another annotation off", us, onNode("marked", noNote("example.net/bmc")), otherNote},

	{"label through a node's status", us, onNode("marked", label, status), statusMeta},
	{"record through a node's status", us, onNode("marked", note(taint.RecordAnnotation, doneRecord), status),
		statusMeta},
	{"strip a node's finalizers through its status", us,
		onNode("marked", func(n *corev1.Node) { n.Finalizers = nil }, status), statusMeta},
	{"finalizer through a node's status", us,
		onNode("dead", func(n *corev1.Node) { n.Finalizers = []string{"forcefence.io/hold"} }, status), statusMeta},
	{"capacity", us, onNode("marked", func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	}, status), otherStatus},
	{"boot id", us, onNode("marked", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }, status), otherStatus},
	{"addresses taken off", us, onNode("marked", func(n *corev1.Node) { n.Status.Addresses = nil }, status),
		otherStatus},
	{"a field that was not there", us,
		onNode("marked", func(n *corev1.Node) { n.Status.Phase = corev1.NodeTerminated }, status), otherStatus},
	{"volume lists of an unmarked node", us, onNode("plain", clearLists, status), listUnmarked},
	{"attached volumes of an unmarked node", us,
		onNode("plain", func(n *corev1.Node) { n.Status.VolumesAttached = nil }, status), listUnmarked},
	{"volumes in use of an unmarked node", us,
		onNode("plain", func(n *corev1.Node) { n.Status.VolumesInUse = nil }, status), listUnmarked},
	{"one more volume in use", us, onNode("marked", func(n *corev1.Node) {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, "kubernetes.io/csi/sim^v2")
	}, status), listGrows},
	{"one more volume attached", us, onNode("marked", func(n *corev1.Node) {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached,
			corev1.AttachedVolume{Name: "kubernetes.io/csi/sim^v2"})
	}, status), listGrows},
	{"Ready of an unmarked node", us, onNode("plain", condition(corev1.NodeReady, corev1.ConditionUnknown), status),
		readyPlain},
	{"Ready to False", us, onNode("marked", condition(corev1.NodeReady, corev1.ConditionFalse), status), otherCond},
	{"Ready to True", us, onNode("dead", condition(corev1.NodeReady, corev1.ConditionTrue), status), otherCond},
	{"Ready's reason", us, onNode("dead", condition(corev1.NodeReady, corev1.ConditionUnknown), status), otherCond},
	{"a condition of the kubelet's", us,
		onNode("marked", condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), status), otherCond},
	{"a condition of the kubelet's to Unknown", us,
		onNode("marked", condition(corev1.NodeMemoryPressure, corev1.ConditionUnknown), status), otherCond},
	{"a condition of another owner's", us,
		onNode("marked", condition("example.net/Broken", corev1.ConditionTrue), status), otherCond},
	{"Ready taken away", us, onNode("marked", noCondition(corev1.NodeReady), status), condRemoved},

	{"foreign annotation of a pod", us,
		onPod("runs", func(p *corev1.Pod) { p.Annotations["example.net/x"] = "2" }, status), podNote},
	{"foreign annotation off a pod", us,
		onPod("runs", func(p *corev1.Pod) { delete(p.Annotations, "example.net/x") }, status), podNote},
	{"one more foreign annotation of a pod", us,
		onPod("runs", func(p *corev1.Pod) { p.Annotations["example.net/y"] = "1" }, status), podNote},
	{"label a pod", us, onPod("runs", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }, status),
		podMeta},
	{"strip a pod's finalizers", us, onPod("runs", func(p *corev1.Pod) { p.Finalizers = nil }, status), podMeta},
	{"change a pod's finalizers", us,
		onPod("runs", func(p *corev1.Pod) { p.Finalizers = []string{"example.net/hold", "example.net/more"} }, status),
		podMeta},
	{"a pod Succeeded", us, onPod("runs", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, status),
		podShape},
	{"a pod Failed for another reason", us,
		onPod("runs", tombstoneAnd(func(p *corev1.Pod) { p.Status.Reason = "Evicted" }), status), podShape},
	{"a pod Failed with a message and without DisruptionTarget", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, taint.TombstoneReason,
			taint.FenceMessage("f-1")
	}, status), podShape},
	{"a pod Failed, and spared", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Message = corev1.PodFailed, taint.SparedMessage("")
	}, status), podShape},
	{"phase alone", us, onPod("runs", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, status), podShape},
	{"any message", us, onPod("runs", func(p *corev1.Pod) { p.Status.Message = "hello" }, status), podShape},
	{"spare a pod and change its address", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Message, p.Status.PodIP, p.Status.PodIPs = taint.SparedMessage(""), "192.0.2.9",
			[]corev1.PodIP{{IP: "192.0.2.9"}}
	}, status), podShape},
	{"spare a pod and change its readiness", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Message, p.Status.Conditions[0].Status = taint.SparedMessage(""), corev1.ConditionFalse
	}, status), podShape},
	{"spare a pod and forget its containers", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Message, p.Status.ContainerStatuses = taint.SparedMessage(""), nil
	}, status), podStatus},
	{"spare a pod that failed by itself, in the small form", us,
		onPod("failed", func(p *corev1.Pod) { p.Status.Message = taint.SparedMessage("") }, status), podFinished},
	{"end a large pod that failed by itself", us,
		onPod("failed", func(p *corev1.Pod) { p.Status.Reason = taint.TombstoneReason }, status), podFinished},
	{"end a large pod and forget its containers", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses = corev1.PodFailed, taint.TombstoneReason, nil
	}, status), podStatus},
	{"end a large pod of no node", us,
		onPod("waits",
			func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, taint.TombstoneReason
			}, status), podUnbound},
	{"reason alone", us, onPod("runs", func(p *corev1.Pod) { p.Status.Reason = taint.TombstoneReason }, status),
		podShape},
	{"a pod Unknown with a fenced pod's reason", us,
		onPod("runs", tombstoneAnd(func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }), status), podShape},
	{"a pod Failed with another condition True", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions[len(p.Status.Conditions)-1].Type = corev1.PodReadyToStartContainers
	}), status), podShape},
	{"a pod Failed with DisruptionTarget False", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions[len(p.Status.Conditions)-1].Status = corev1.ConditionFalse
	}), status), podShape},
	{"a pod Failed with another's DisruptionTarget", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions[len(p.Status.Conditions)-1].Reason = "PreemptionByScheduler"
	}), status), podShape},
	{"end a pod that succeeded", us, onPod("finished", tombstone, status), podFinished},
	{"end a pod that failed by itself", us, onPod("failed", tombstone, status), podFinished},
	{"end a pod of no node", us, onPod("waits", tombstone, status), podUnbound},
	{"end a pod and change its address", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "192.0.2.9", []corev1.PodIP{{IP: "192.0.2.9"}}
	}), status), podStatus},
	{"end a pod and forget its containers", us,
		onPod("runs", tombstoneAnd(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), status), podStatus},
	{"end a pod and add to its status", us,
		onPod("runs", tombstoneAnd(func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Unix(1e9, 0)} }),
			status), podStatus},
	{"end a pod and change its readiness", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}), status), podCondition},
	{"a pod's readiness without a reason", us,
		onPod("runs", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, status),
		podCondition},
	{"Ready False for another reason", us, onPod("runs", setCondition(corev1.PodReady, "False", "PodFailed"), status),
		podCondition},
	{"Ready Unknown", us, onPod("runs", setCondition(corev1.PodReady, "Unknown", taint.TombstoneReason), status),
		podCondition},
	{"another reason of Ready True", us,
		onPod("runs", setCondition(corev1.PodReady, "True", taint.TombstoneReason), status), podCondition},
	{"Ready from False to True", us,
		onPod("unready", setCondition(corev1.PodReady, "True", taint.TombstoneReason), status), podCondition},
	{"another reason of Ready False", us, onPod("unready", notReady, status), podCondition},
	{"Ready of a pod that has none", us, onPod("leaves", func(p *corev1.Pod) { notReady(p) }, status), podCondition},
	{"ContainersReady of a pod that goes on", us,
		onPod("runs", setCondition(corev1.ContainersReady, "False", taint.TombstoneReason), status), podShape},
	{"both of a pod that goes on", us, onPod("runs",
		notReadyAnd(setCondition(corev1.ContainersReady, "False", taint.TombstoneReason)), status), podShape},
	{"Ready and another condition", us,
		onPod("runs", notReadyAnd(setCondition(corev1.PodScheduled, "False", taint.TombstoneReason)), status),
		podShape},
	{"Ready and DisruptionTarget", us,
		onPod("runs", notReadyAnd(setCondition(corev1.DisruptionTarget, "True", taint.TombstoneReason)), status),
		podShape},
	{"Ready twice", us, onPodConditions("runs", func(conditions []corev1.PodCondition) []corev1.PodCondition {
		return append(conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: taint.TombstoneReason})
	}), podCondition},
	{"Ready and the phase Pending", us,
		onPod("runs", notReadyAnd(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), status), podShape},
	{"Ready and the reason", us,
		onPod("runs", notReadyAnd(func(p *corev1.Pod) { p.Status.Reason = taint.TombstoneReason }), status), podShape},
	{"Ready and the message", us,
		onPod("runs", notReadyAnd(func(p *corev1.Pod) { p.Status.Message = "hello" }), status), podShape},
	{"Ready and the message of a spared pod", us, onPod("runs",
		notReadyAnd(func(p *corev1.Pod) { p.Status.Message = taint.SparedMessage("") }), status), podShape},
	{"Ready and an address", us, onPod("runs", notReadyAnd(func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "192.0.2.9", []corev1.PodIP{{IP: "192.0.2.9"}}
	}), status), podShape},
	{"Ready, and its containers forgotten", us,
		onPod("runs", notReadyAnd(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), status), podStatus},
	{"Ready of a pod that succeeded", us, onPod("finished", notReady, status), podFinished},
	{"Ready of a pod that failed by itself", us, onPod("failed", failedCondition(corev1.PodReady), status),
		podFinished},
	{"Ready of an ended pod", us, onPod("ended", failedCondition(corev1.PodReady), status), podFinished},
	{"end a pod with Ready True for another reason", us, onPod("runs",
		tombstoneAnd(setCondition(corev1.PodReady, "True", "PodFailed")), status), podCondition},
	{"end a pod with Ready Unknown", us,
		onPod("runs", tombstoneAnd(setCondition(corev1.PodReady, "Unknown", "PodFailed")), status), podCondition},
	{"end a pod with Ready False for another reason", us, onPod("runs", tombstoneAnd(notReady), status), podCondition},
	{"end a pod that is not Ready, and make it Ready", us, onPod("unready",
		tombstoneAnd(setCondition(corev1.PodReady, "True", "PodFailed")), status), podCondition},
	{"end a pod that is not Ready, with another reason for that", us,
		onPod("unready", tombstoneAnd(failedCondition(corev1.PodReady)), status), podCondition},
	{"end a pod and add ContainersReady", us,
		onPod("leaves", tombstoneAnd(failedCondition(corev1.ContainersReady)), status), podCondition},
	{"end a pod and change another condition", us,
		onPod("runs", tombstoneAnd(failedCondition(corev1.PodScheduled)), status), podCondition},
	{"end a pod and forget another condition", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	}), status), podCondition},
	{"one of a thousand conditions", us, onPod("crowded", tombstoneAnd(failedCondition("example.net/c-999")), status),
		podCondition},
	{"end a pod and forget its readiness", us, onPod("runs", tombstoneAnd(func(p *corev1.Pod) {
		p.Status.Conditions = p.Status.Conditions[1:]
	}), status), podCondition},
	{"delete a running pod", us, deletePod("runs", func(*metav1.DeleteOptions) {}), podAlive},
	{"delete a finished pod", us, deletePod("finished", func(*metav1.DeleteOptions) {}), podAlive},
	{"delete a pod that failed by itself", us, deletePod("failed", func(*metav1.DeleteOptions) {}), podAlive},
	{"delete a running pod with a fenced pod's reason", us, deletePod("odd", func(*metav1.DeleteOptions) {}), podAlive},
	{"delete an ended pod by name", us, deletePod("ended", func(o *metav1.DeleteOptions) { o.Preconditions = nil }),
		podByName},
	{"delete an ended pod without resourceVersion", us,
		deletePod("ended", func(o *metav1.DeleteOptions) { o.Preconditions.ResourceVersion = nil }), podByName},
	{"delete an ended pod without UID", us,
		deletePod("ended", func(o *metav1.DeleteOptions) { o.Preconditions.UID = nil }), podByName},

	{"read a Secret", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		return err
	}, byRBAC},
	{"read ConfigMaps", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, "forcefence", metav1.GetOptions{})
		return err
	}, byRBAC},
	{"delete a node, as forcefence", us, deleteNode("plain"), byRBAC},
	{"create a node, as forcefence", us, createNode(func(*corev1.Node) {}), byRBAC},
	{"update a node", us, func(ctx context.Context, a, c kubernetes.Interface) error {
		n, err := a.CoreV1().Nodes().Get(ctx, "plain", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}, byRBAC},
	{"patch a pod", us, onPod("runs", func(p *corev1.Pod) { p.Annotations["forcefence.io/x"] = "" }), byRBAC},
	{"delete pods by the dozen", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.CoreV1().Pods("default").
			DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
	}, byRBAC},
	{"evict a pod", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "runs"},
			DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}})
	}, byRBAC},
	{"renew a kubelet's Lease", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}, byRBAC},
	{"take another Lease of its namespace", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.CoordinationV1().Leases(namespace).Update(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}, byRBAC},
	{"lead in kube-system", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Update(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler"}},
			metav1.UpdateOptions{DryRun: dryRun})
		return err
	}, byRBAC},
	{"delete a VolumeAttachment", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.StorageV1().VolumeAttachments().Delete(ctx, "va", metav1.DeleteOptions{DryRun: dryRun})
	}, byRBAC},
	{"loosen a policy", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.AdmissionregistrationV1().ValidatingAdmissionPolicies().
			Delete(ctx, "forcefence-mark", metav1.DeleteOptions{DryRun: dryRun})
	}, byRBAC},
	{"grant itself more", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.RbacV1().ClusterRoles().
			Patch(ctx, "forcefence-controller", types.MergePatchType, []byte(`{"rules":[]}`),
				metav1.PatchOptions{DryRun: dryRun})
		return err
	}, byRBAC},
}

// passes lists attempts that must succeed.
var passes = []attempt{
	{"set mark and record", us,
		onNode("plain", both(setMark("f-1", corev1.TaintEffectNoSchedule), note(taint.RecordAnnotation, openRecord))),
		""},
	{"take mark off, close record", us, onNode("marked", both(noMark, note(taint.RecordAnnotation, doneRecord))), ""},
	{"write what a policy does", us, onNode("plain", note(taint.PolicyAnnotation, "[]")), ""},
	{"write the record", us, onNode("open", note(taint.RecordAnnotation, doneRecord)), ""},
	{"pin a node", us, onNode("plain", pin("a.b")), ""},
	{"pin a node again", us, onNode("open", pin("a.b")), ""},
	{"take a pin off by hand", editor, onNode("open", func(n *corev1.Node) { delete(n.Labels, taint.PinLabel) }), ""},
	{"clear the volume lists of a marked node", us, onNode("marked", clearLists, status), ""},
	{"expire Ready of a marked node", us,
		onNode("marked", condition(corev1.NodeReady, corev1.ConditionUnknown), status), ""},
	{"its own condition", us,
		onNode("plain", condition("forcefence.io/PoweredOnNotReady", corev1.ConditionTrue), status), ""},
	{"its own condition changed", us,
		onNode("dead", condition("forcefence.io/PoweredOnNotReady", corev1.ConditionFalse), status), ""},
	{"whether a node can be fenced", us,
		onNode("plain", condition(taint.FenceableCondition, corev1.ConditionUnknown), status), ""},
	{"end a running pod", us, onPod("runs", tombstone, status), ""},
	{"end a pod that is being deleted", us, onPod("leaves", tombstone, status), ""},
	{"end a pod that is Ready", us, onPod("runs", tombstoneWhole, status), ""},
	{"end a pod, of whose conditions only one is True", us,
		onPod("runs", tombstoneAnd(failedCondition(corev1.ContainersReady)), status), ""},
	{"end a pod with a thousand conditions", us, onPod("crowded", tombstoneWhole, status), ""},
	{"end it by phase and reason alone", us, onPod("crowded", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, taint.TombstoneReason
	}, status), ""},
	{"set a pod not ready that stays on a dead node", us, onPod("runs", notReady, status), ""},
	{"set a pod not ready with a thousand conditions", us, onPod("crowded", notReady, status), ""},
	{"a kubelet's own word for a pod that was set not ready", editor,
		onPod("unready", setCondition(corev1.PodReady, "True", ""), status), ""},
	{"spare a pod", us, onPod("runs", func(p *corev1.Pod) { p.Annotations[taint.SparedAnnotation] = "f-1/t" }, status),
		""},
	{"spare a pod for another fence", us,
		onPod("spared", func(p *corev1.Pod) { p.Annotations[taint.SparedAnnotation] = "f-2/t" }, status), ""},
	{"end a pod that is too large for more than phase and reason", us, onPod("runs", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, taint.TombstoneReason
	}, status), ""},
	{"spare a pod that is too large for the annotation", us,
		onPod("runs", func(p *corev1.Pod) { p.Status.Message = taint.SparedMessage("") }, status), ""},
	{"spare it again", us,
		onPod("runs", func(p *corev1.Pod) { p.Status.Message = taint.SparedMessage("spared") }, status), ""},
	{"nudge a pod", us,
		onPod("runs", func(p *corev1.Pod) { p.Annotations[taint.NudgedAnnotation] = "2026-01-02T03:04:05.000006Z" },
			status), ""},
	{"delete an ended pod", us, deletePod("ended", func(*metav1.DeleteOptions) {}), ""},
	{"delete an ended pod with grace, which it does not get", us,
		deletePod("ended", func(o *metav1.DeleteOptions) { o.GracePeriodSeconds = nil }), ""},

	{"mark by hand", operator, onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)), ""},
	{"take a mark off by hand", operator, onNode("marked", noMark), ""},
	{"take a NoExecute mark off by hand", operator, onNode("wrong", noMark), ""},
	{"confirm that a machine is off", operator, onNode("plain", confirms(operator)), ""},
	{"confirm it again", operator, onNode("confirmed", confirms(operator)), ""},
	{"take a confirmation off by hand", operator, onNode("confirmed", noNote(taint.ConfirmAnnotation)), ""},
	{"cordon a node that another has confirmed off", editor,
		onNode("confirmed", func(n *corev1.Node) { n.Spec.Unschedulable = true }), ""},
	{"mark a node that another has confirmed off", us,
		onNode("confirmed",
			both(setMark("f-1", corev1.TaintEffectNoSchedule), note(taint.RecordAnnotation, openRecord))), ""},
	{"close a record by hand", operator, onNode("marked", both(noMark, note(taint.RecordAnnotation, doneRecord))), ""},
	{"delete a marked node by hand", operator, deleteNode("marked"), ""},
	{"delete a node by hand whose device lied", operator, deleteNode("lied"), ""},
	{"delete an open fence's node by hand", operator, deleteNode("open"), ""},
	{"mark as admin", admin, onNode("plain", setMark("manual", corev1.TaintEffectNoSchedule)), ""},

	{"cordon", editor, onNode("marked", func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable }), ""},
	{"another taint on a marked node", editor, onNode("marked", addTaint("example.net/broken")), ""},
	{"another taint off a marked node", editor, onNode("marked", func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key != key })
	}), ""},
	{"label a marked node", editor, onNode("marked", label), ""},
	{"label a node with a NoExecute mark", editor, onNode("wrong", label), ""},
	{"annotate a node", editor, onNode("open", note("example.net/x", "1")), ""},
	{"delete a node", editor, deleteNode("plain"), ""},
	{"delete a node whose fence is done", editor, deleteNode("done"), ""},
	{"create a node", editor, createNode(func(*corev1.Node) {}), ""},
	{"any other change of a pod", editor,
		onPod("runs", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }), ""},
	{"any other deletion of a pod", editor,
		deletePod("runs", func(o *metav1.DeleteOptions) { o.Preconditions, o.GracePeriodSeconds = nil, nil }), ""},

	{"a kubelet's status", kubelet,
		onNode("plain", both(condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), clearLists), status), ""},
	{"a kubelet's status under the mark", markedKubelet,
		onNode("marked", both(condition(corev1.NodeReady, corev1.ConditionTrue), func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "b2"
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, "kubernetes.io/csi/sim^v2")
		}), status), ""},
	{"a kubelet's own annotation under the mark", markedKubelet, onNode("marked", note("example.net/own", "x"), status),
		""},
	{"an annotation that only begins like forcefence's", kubelet,
		onNode("plain", note("forcefence.io.example.net/x", "x")), ""},
	{"an annotation that only ends like forcefence's", kubelet, onNode("plain", note("myforcefence.io/x", "x")), ""},
	{"a kubelet's own label", kubelet, onNode("plain", setLabel("example.net/row", "x")), ""},
	{"what the hook reports", kubelet,
		onNode("plain", condition(taint.ProtectionCondition, corev1.ConditionTrue), status), ""},
	{"what the hook reports under the mark", deadKubelet,
		onNode("dead", condition(taint.ProtectionCondition, corev1.ConditionTrue), status), ""},
	{"the hook's report taken off", deadKubelet, onNode("dead", noCondition(taint.ProtectionCondition), status), ""},
	{"a kubelet's status beside all that is forcefence's", deadKubelet,
		onNode("dead", condition(corev1.NodeReady, corev1.ConditionTrue), status), ""},
	{"a person changes a machine's annotation", editor, onNode("plain", note("example.net/bmc", "https://192.0.2.9")),
		""},
	{"a person excludes a node", editor, onNode("plain", setLabel("forcefence.io/exclude", "maintenance")), ""},
	{"pin a node's machine", us, onNode("plain", setLabel(taint.PinLabel, "m1")), ""},
	{"lead", us, leaderOf(namespace, "", "true"), ""},
	{"any other Lease", editor, leaderOf("default", "", "off"), ""},
	{"change any other Lease", editor, leaderOf("default", "idle", "off"), ""},
	{"a kubelet registers", newKubelet, createNode(func(*corev1.Node) {}), ""},
	{"a kubelet registers with another taint", newKubelet, createNode(addTaint("example.net/broken")), ""},
	{"the node controller's taints", nodeController, onNode("marked", addTaint(corev1.TaintNodeUnreachable)), ""},
	{"the node controller's Ready", nodeController,
		onNode("marked", condition(corev1.NodeReady, corev1.ConditionUnknown), status), ""},
	{"the node controller deletes a node", nodeController, deleteNode("plain"), ""},
}

const (
	openRecord = `{"id":"f-1","phase":"Armed",` + recordRest
	doneRecord = `{"id":"f-1","phase":"Done","result":"Evicted",` + recordRest
	recordRest = `"nodeUID":"u","by":"me","since":"2026-01-01T00:00:00Z","at":"2026-01-01T00:00:00Z"}`
	trickyOpen = `{"id":"f-1","phase":"Evicting","nodeUID":"u","by":"me","evidence":[{"raw":"\"phase\":\"Done\""}]}`
)

// fixtures makes the Nodes and pods that the rows are about, before any policy is there.
func (w *world) fixtures() {
	w.t.Helper()
	core := w.c.Client().CoreV1()
	mark := corev1.Taint{Key: key, Value: "f-1", Effect: corev1.TaintEffectNoSchedule}
	for _, f := range []struct {
		name   string
		taints []corev1.Taint
		record string
		ready  corev1.ConditionStatus
	}{
		{"plain", nil, "", corev1.ConditionTrue},
		{"marked", []corev1.Taint{mark}, openRecord, corev1.ConditionTrue},
		{"dead", []corev1.Taint{mark}, openRecord, corev1.ConditionUnknown},
		{"manual", []corev1.Taint{{Key: key, Value: "manual", Effect: corev1.TaintEffectNoSchedule}}, "",
			corev1.ConditionTrue},
		{"wrong", []corev1.Taint{{Key: key, Value: "manual", Effect: corev1.TaintEffectNoExecute}}, "",
			corev1.ConditionTrue},
		{"open", nil, trickyOpen, corev1.ConditionTrue},
		{"broken", nil, "{half a rec", corev1.ConditionTrue},
		{"done", nil, doneRecord, corev1.ConditionTrue},
		{"lied", nil, strings.Replace(doneRecord, "Evicted", "NeverPoweredOff", 1), corev1.ConditionTrue},
		{"liedonce", nil, strings.TrimSuffix(doneRecord, "}") + `,"lied":[{"device":"racks/a"}]}`,
			corev1.ConditionTrue},
		{"confirmed", nil, "", corev1.ConditionUnknown},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: f.name, Labels: map[string]string{"fixture": f.name},
				Annotations: map[string]string{"example.net/bmc": "https://192.0.2.7"},
			},
			Spec: corev1.NodeSpec{
				Taints: append([]corev1.Taint{{Key: "example.net/own", Effect: corev1.TaintEffectNoSchedule}},
					f.taints...), Unschedulable: f.name == "marked"},
		}
		if f.name == "marked" {
			n.Finalizers = []string{"example.net/hold"}
		}
		if f.name == "dead" {
			n.Labels[taint.PinLabel], n.Labels["forcefence.io/exclude"], n.Labels["example.net/rack"] = "m1",
				"maintenance", "r1"
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: "forcefence.io/x", Effect: corev1.TaintEffectNoSchedule})
		}
		if f.name == "confirmed" {
			confirms("somebody")(n)
		}
		if f.name == "open" {
			n.Labels[taint.PinLabel] = "of.another"
		}
		if f.record != "" {
			n.Annotations[taint.RecordAnnotation] = f.record
		}
		_, err := core.Nodes().Create(w.ctx, n, metav1.CreateOptions{})
		kit.Must(w.t, err)
		// the controller-manager annotates nodes that are new
		kit.Must(w.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n, err := core.Nodes().Get(w.ctx, f.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
			n.Status.NodeInfo.BootID = "b1"
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/sim^v1"}
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/sim^v1", DevicePath: "/dev/x"}}
			condition(corev1.NodeReady, f.ready)(n)
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse)(n)
			if f.name == "dead" {
				condition("forcefence.io/PoweredOnNotReady", corev1.ConditionTrue)(n)
				condition(taint.ProtectionCondition, corev1.ConditionFalse)(n)
			}
			_, err = core.Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
			return err
		}))
	}
	for _, name := range []string{
		"runs", "leaves", "spared", "ended", "finished", "failed", "odd", "waits", "unready", "crowded"} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.net/x": "1"},
				Finalizers: []string{"example.net/hold"}},
			Spec: corev1.PodSpec{NodeName: "plain",
				Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}}},
		}
		if name == "waits" {
			p.Spec.NodeName, p.Spec.SchedulerName = "", "nobody"
		}
		if name == "spared" {
			p.Annotations[taint.SparedAnnotation] = "f-1/t"
		}
		p, err := core.Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
		kit.Must(w.t, err)
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIP, p.Status.PodIPs = "192.0.2.8", []corev1.PodIP{{IP: "192.0.2.8"}}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "main", Image: "sim.forcefence.io/app:1", ImageID: "x"}}
		switch name {
		case "ended":
			tombstone(p)
		case "finished":
			p.Status.Phase = corev1.PodSucceeded
		case "failed":
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		case "odd":
			p.Status.Reason = taint.TombstoneReason
		case "leaves":
			p.Status.Conditions = p.Status.Conditions[2:]
		case "unready":
			setCondition(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")(p)
		case "crowded":
			for i := range 1000 {
				setCondition(corev1.PodConditionType(fmt.Sprintf("example.net/c-%d", i)), corev1.ConditionTrue,
					"Test")(p)
			}
		case "waits":
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		}
		if name != "waits" {
			_, err = core.Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
			kit.Must(w.t, err)
		}
		if name == "leaves" {
			kit.Must(w.t, core.Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{}))
		}
	}
	kit.Must(w.t, w.grant("node-editor", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status", "pods", "pods/status"},
			Verbs: []string{"*"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}, editor, operator, forger, oddKubelet))
	for name, labels := range map[string]map[string]string{"idle": nil, "leads": {"forcefence.io/leader": "true"}} {
		_, err := w.c.Client().CoordinationV1().Leases("default").Create(w.ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	w.workloads()
}

// grant gives users a ClusterRole of that name; without rules it is one that exists.
func (w *world) grant(role string, rules []rbacv1.PolicyRule, users ...string) error {
	rbac := w.c.Client().RbacV1()
	if rules != nil {
		if _, err := rbac.ClusterRoles().
			Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules},
				metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: role + "-"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role, APIGroup: rbacv1.GroupName}}
	for _, u := range users {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: u, APIGroup: rbacv1.GroupName})
	}
	_, err := rbac.ClusterRoleBindings().Create(w.ctx, b, metav1.CreateOptions{})
	return err
}

// accounts are the clients of the rows.
func (w *world) accounts() map[string]kubernetes.Interface {
	return map[string]kubernetes.Interface{
		us:            w.as(account, "system:serviceaccounts", "system:serviceaccounts:"+namespace),
		editor:        w.as(editor),
		operator:      w.as(operator),
		forger:        w.as(forger),
		grantAlone:    w.as(grantAlone),
		kubelet:       w.as("system:node:plain", "system:nodes"),
		markedKubelet: w.as("system:node:marked", "system:nodes"),
		newKubelet:    w.as("system:node:fresh", "system:nodes"),
		deadKubelet:   w.as("system:node:dead", "system:nodes"),
		oddKubelet:    w.as(oddKubelet, "system:nodes"),
		nodeController: w.as("system:serviceaccount:kube-system:node-controller", "system:serviceaccounts",
			"system:serviceaccounts:kube-system"),
		admin: w.c.Client(),

		deployer:     w.as(deployer),
		lookalike:    w.as(lookalikeName),
		daemonSets:   w.asController("daemon-set-controller"),
		statefulSets: w.asController("statefulset-controller"),
		replicaSets:  w.asController("replicaset-controller"),
		replications: w.asController("replication-controller"),
		jobs:         w.asController("job-controller"),
		deployments:  w.asController("deployment-controller"),
		cronJobs:     w.asController("cronjob-controller"),
	}
}

// verdict tries a row and returns "" or what is wrong. Kubernetes' own controllers may write an object between a row's
// reading and writing it.
func (w *world) verdict(accounts map[string]kubernetes.Interface, a attempt) string {
	err := retry.RetryOnConflict(retry.DefaultBackoff,
		func() error { return a.do(w.ctx, w.c.Client(), accounts[a.as]) })
	switch {
	case a.want == "" && err != nil:
		return fmt.Sprintf("got %v, want it to pass", err)
	case a.want != "" && err == nil:
		return fmt.Sprintf("it passed, want %q", a.want)
	case a.want != "" && !strings.Contains(err.Error(), a.want):
		return fmt.Sprintf("got %v, want %q", err, a.want)
	}
	return ""
}

// TestPolicies tries every row, then lets one validation of the policies after the other say yes and checks that the
// rows notice.
func TestPolicies(t *testing.T) {
	// No kubelet is behind these nodes: without this controller their Ready stays as it was made.
	w := newWorld(t,
		cluster.Options{
			KCMArgs: []string{"--controllers=*,-node-lifecycle-controller,-pod-garbage-collector-controller"}})
	w.fixtures()
	keys := machineKeys(t, "example.net/chassis,example.net/bmc,example.net/rack")
	w.install(keys, node)
	kit.Must(t, w.grant("forcefence-operator", nil, operator, forger, grantAlone))
	w.letBypass(deployer)
	accounts := w.accounts()
	all := slices.Concat(refusals, tolerateRefusals)
	w.until("the policies refuse", func() (bool, error) {
		for _, want := range []string{
			mark1, deleteMarked, otherTaint, statusMeta, podNote, podAlive, kubeletNote, leaderLease, tolerates,
			templateTolerates} {
			i := slices.IndexFunc(all, func(a attempt) bool { return a.want == want })
			if bad := w.verdict(accounts, all[i]); bad != "" {
				return false, fmt.Errorf("%s: %s", all[i].name, bad)
			}
		}
		// What was granted last is in force a moment later, too.
		review, err := w.c.Client().AuthorizationV1().SubjectAccessReviews().
			Create(w.ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: operator,
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: "taint", Group: "forcefence.io", Resource: "nodefences", Name: "plain",
					}},
			}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	})
	for _, a := range slices.Concat(refusals, tolerateRefusals, passes, toleratePasses) {
		t.Run(a.as+": "+a.name, func(t *testing.T) {
			if bad := w.verdict(accounts, a); bad != "" {
				t.Error(bad)
			}
		})
	}
	if t.Failed() {
		return
	}
	t.Run("the component storageos", func(t *testing.T) {
		w.storageOS(t, accounts)
		w.install(keys) // as before
		w.untilRefused(accounts, listUnmarked)
	})
	t.Run("each validation is needed", func(t *testing.T) { w.mutate(accounts) })
	t.Run("another annotation", func(t *testing.T) {
		w.install(node) // whole again
		w.otherKey(t, accounts)
	})
}

// mutate lets the i-th validation of every policy say yes, for each i, and waits until rows that must be refused for
// its sake pass.
func (w *world) mutate(accounts map[string]kubernetes.Interface) {
	whole := policies(w.t, w)
	longest := 0
	for _, p := range whole {
		longest = max(longest, len(p.Spec.Validations))
	}
	for i := range longest {
		missing := map[string]string{} // by the refusal that must not come any more: the policy's name
		for _, name := range slices.Sorted(maps.Keys(whole)) {
			p := whole[name].DeepCopy()
			if i < len(p.Spec.Validations) {
				missing[fmt.Sprintf("'%s' with binding '%[1]s' denied request: %s", name,
					p.Spec.Validations[i].Message)] = name
				p.Spec.Validations[i].Expression = "true"
			}
			w.replace(p)
		}
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
		err := cluster.Until(ctx, func(context.Context) (bool, error) {
			for refusal, name := range missing {
				passed := false
				for _, a := range slices.Concat(refusals, tolerateRefusals) {
					passed = passed || a.want == refusal && a.do(w.ctx, w.c.Client(), accounts[a.as]) == nil
				}
				if !passed {
					return false, fmt.Errorf("validation %d of %s is not needed by any row: %s", i, name, refusal)
				}
			}
			return true, nil
		})
		cancel()
		if err != nil {
			w.t.Error(err)
		}
	}
}
