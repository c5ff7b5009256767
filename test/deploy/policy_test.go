package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	pinByKubelet   = taint.PinLabel
	namedByKubelet = taint.NamedLabel

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

	kubeletPod = "'forcefence-kubelet-pod' with binding 'forcefence-kubelet-pod' denied request: " +
		"a kubelet may give no pod the labels of forcefence"

	leaderLease = "'forcefence-leader' with binding 'forcefence-leader' denied request: the leader's Lease may be " +
		"written and deleted only by whoever may taint nodefences.forcefence.io"
	otherLease = "'forcefence-controller-leader' with binding 'forcefence-controller-leader' denied request: " +
		"forcefence may make no Lease but its leader's"
	otherMeta  = byNode + "forcefence may change no finalizers or owners of a node"
	otherLabel = byNode + "forcefence may change no label of a node but the pin of its machine and who named it, " +
		"and take none off"
	pinMarked = byNode + "forcefence may not pin the machine of a marked node"

	byStatus = "'forcefence-controller-node-status' with binding 'forcefence-controller-node-status' denied " +
		"request: "
	statusMeta = byStatus + "forcefence may not change labels, nor annotations but its drills', through a node's " +
		"status"
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
	podAlive    = byPodDelete + "forcefence may delete no pod but those that it has ended, or that " +
		"another client deleted"
	podByName = byPodDelete + "forcefence may delete a pod only by its UID and resourceVersion"
)

// request is one attempt of an account. It is sent as a dry run, which passes admission like any other.
type request func(ctx context.Context, admin, c client.Client) error

// attempt is a row of the tables.
type attempt struct {
	name string
	as   string
	do   request
	want string // part of the refusal; "" for a request that must pass
}

const status = "status"

// inDefault is the metadata of an object of namespace default.
func inDefault(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// existing runs do with a copy of the object as the API server has it.
func existing[T client.Object](o T, do func(ctx context.Context, c client.Client, now T) error) request {
	return func(ctx context.Context, admin, c client.Client) error {
		now := o.DeepCopyObject().(T)
		if err := admin.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		return do(ctx, c, now)
	}
}

// change changes an object, through its status where sub says so, by a patch of what differs.
func change[T client.Object](o T, edit func(T), sub ...string) request {
	return existing(o, func(ctx context.Context, c client.Client, now T) error {
		before := now.DeepCopyObject().(client.Object)
		edit(now)
		patch := client.StrategicMergeFrom(before)
		if data, err := patch.Data(now); err != nil || string(data) == "{}" {
			return fmt.Errorf("the row changes nothing: %w", err)
		}
		return send(ctx, c, now, patch, sub)
	})
}

// patchWith sends a patch as it is.
func patchWith(o client.Object, kind types.PatchType, text string, sub ...string) request {
	return func(ctx context.Context, _, c client.Client) error {
		return send(ctx, c, o.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(text)), sub)
	}
}

func send(ctx context.Context, c client.Client, o client.Object, patch client.Patch, sub []string) error {
	if len(sub) > 0 {
		return c.SubResource(sub[0]).Patch(ctx, o, patch, client.DryRunAll)
	}
	return c.Patch(ctx, o, patch, client.DryRunAll)
}

// rewrite changes an object by writing the whole of it.
func rewrite[T client.Object](o T, edit func(T)) request {
	return existing(o, func(ctx context.Context, c client.Client, now T) error {
		edit(now)
		return c.Update(ctx, now, client.DryRunAll)
	})
}

func create(o client.Object) request {
	return func(ctx context.Context, _, c client.Client) error {
		return c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

// remove deletes as the controller does, unless edit says otherwise: at once, by UID and resourceVersion.
func remove(o client.Object, edit func(*client.DeleteOptions)) request {
	return existing(o, func(ctx context.Context, c client.Client, now client.Object) error {
		opts := client.DeleteOptions{DryRun: []string{metav1.DryRunAll}, GracePeriodSeconds: new(int64(0)),
			Preconditions: &metav1.Preconditions{
				UID: new(now.GetUID()), ResourceVersion: new(now.GetResourceVersion())}}
		edit(&opts)
		return c.Delete(ctx, now, &opts)
	})
}

// How remove deletes.
func asIs(*client.DeleteOptions)             {}
func byName(o *client.DeleteOptions)         { o.Preconditions = nil }
func withoutUID(o *client.DeleteOptions)     { o.Preconditions.UID = nil }
func withoutVersion(o *client.DeleteOptions) { o.Preconditions.ResourceVersion = nil }
func withGrace(o *client.DeleteOptions)      { o.GracePeriodSeconds = nil }
func asPeopleDo(o *client.DeleteOptions)     { o.Preconditions, o.GracePeriodSeconds = nil, nil }

// may asks the authorizer: resource is group/resource/subresource, and all of a kind where there is no name.
func may(verb, resource, ns, name string) request {
	parts := strings.Split(resource+"/", "/")
	return func(ctx context.Context, _, c client.Client) error {
		r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: parts[0], Resource: parts[1],
				Subresource: parts[2], Namespace: ns, Name: name}}}
		if err := c.Create(ctx, r); err != nil || r.Status.Allowed {
			return err
		}
		return errors.New(byRBAC)
	}
}

func onNode(name string, edit func(*corev1.Node), sub ...string) request {
	return change(&corev1.Node{ObjectMeta: meta(name)}, edit, sub...)
}

func deleteNode(name string) request { return remove(&corev1.Node{ObjectMeta: meta(name)}, asPeopleDo) }

func createNode(edit func(*corev1.Node)) request {
	n := &corev1.Node{ObjectMeta: meta("fresh")}
	edit(n)
	return create(n)
}

func onPod(name string, edit func(*corev1.Pod), sub ...string) request {
	return change(&corev1.Pod{ObjectMeta: inDefault(name)}, edit, sub...)
}

func deletePod(name string, how func(*client.DeleteOptions)) request {
	return remove(&corev1.Pod{ObjectMeta: inDefault(name)}, how)
}

// Edits of a Node.

func setMark(value string, e corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		noTaint(key)(n)
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: e})
	}
}

var (
	byHand   = setMark("manual", corev1.TaintEffectNoSchedule)
	byFence  = setMark("f-1", corev1.TaintEffectNoSchedule)
	noMark   = noTaint(key)
	noPin    = noLabel(taint.PinLabel)
	otherBMC = note("example.net/bmc", "https://192.0.2.9")
	noBMC    = noNote("example.net/bmc")
	excluded = setLabel("forcefence.io/exclude", "please")
	opened   = note(taint.RecordAnnotation, openRecord)
	closed   = note(taint.RecordAnnotation, doneRecord)
	cordon   = func(n *corev1.Node) { n.Spec.Unschedulable = true }
	uncordon = func(n *corev1.Node) { n.Spec.Unschedulable = false }
	hold     = func(n *corev1.Node) { n.Finalizers = []string{"forcefence.io/hold"} }
)

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

// makeLease makes a Lease.
func makeLease(ns, name string) request {
	return create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

// touchLease writes a Lease.
func touchLease(ns, name string) request {
	return rewrite(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}},
		func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"touched": ""} })
}

// deleteLease deletes a Lease.
func deleteLease(ns, name string) request {
	return remove(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, asPeopleDo)
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

// all makes several edits.
func all[T any](edits ...func(T)) func(T) {
	return func(o T) {
		for _, edit := range edits {
			edit(o)
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

// failedCondition is what a tombstone makes of Ready or ContainersReady.
func failedCondition(kind corev1.PodConditionType) func(*corev1.Pod) {
	return setCondition(kind, corev1.ConditionFalse, "PodFailed")
}

// Edits of a pod, in one word.
var (
	// tombstoneWhole is a tombstone of a pod that was Ready.
	tombstoneWhole = all(tombstone, failedCondition(corev1.PodReady), failedCondition(corev1.ContainersReady))
	// small is one of a pod that is too large for more than phase and reason.
	small   = all(phase(corev1.PodFailed), why(taint.TombstoneReason))
	spared  = message(taint.SparedMessage(""))
	address = func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "192.0.2.9", []corev1.PodIP{{IP: "192.0.2.9"}} }
	forget  = func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }
	unready = func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	named   = func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }
)

func phase(to corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = to } }
func why(reason string) func(*corev1.Pod)        { return func(p *corev1.Pod) { p.Status.Reason = reason } }
func message(text string) func(*corev1.Pod)      { return func(p *corev1.Pod) { p.Status.Message = text } }

// onStatus changes a pod's status.
func onStatus(pod string, edits ...func(*corev1.Pod)) request {
	return onPod(pod, all(edits...), status)
}

// refusals are the things that must not happen.
var refusals = []attempt{
	{"mark a node", editor, onNode("plain", byHand), mark1},
	{"take a mark off", editor, onNode("marked", noMark), mark1},
	{"change a mark's value", editor, onNode("marked", setMark("other", corev1.TaintEffectNoSchedule)), mark1},
	{"create a marked node", editor, createNode(byHand), mark1},
	{"register a marked node", newKubelet, createNode(byHand), byPolicy},
	{"a kubelet marks its node", kubelet, onNode("plain", byHand), byNodeRestriction},
	{"the node controller marks a node", nodeController, onNode("plain", byHand), mark1},
	{"write a record", editor, onNode("plain", opened), record},
	{"write an empty record", editor, onNode("plain", note(taint.RecordAnnotation, "")), record},
	{"change a record", editor, onNode("marked", closed), record},
	{"take a record off", editor, onNode("done", noNote(taint.RecordAnnotation)), record},
	{"write a record through the status", editor, onNode("plain", opened, status), record},
	{"create a node with a record", editor, createNode(closed), record},
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
	{"a kubelet writes its node's record", kubelet, onNode("plain", closed), byPolicy},
	{"a kubelet closes its node's record", markedKubelet, onNode("marked", closed, status), byPolicy},

	{"its machine's annotation", kubelet, onNode("plain", otherBMC), kubeletNote},
	{"its machine's annotation through its status", markedKubelet, onNode("marked", otherBMC, status), kubeletNote},
	{"its machine's annotation taken off", kubelet, onNode("plain", noBMC), kubeletNote},
	{"its machine's annotation taken off through its status", kubelet, onNode("plain", noBMC, status), kubeletNote},
	{"registering with its machine's annotation", newKubelet, createNode(otherBMC), kubeletNote},
	{"an annotation of forcefence", kubelet, onNode("plain", note("forcefence.io/x", "")), kubeletNote},
	{"an annotation of forcefence through its status", kubelet, onNode("plain", note("forcefence.io/x", ""), status),
		kubeletNote},
	{"an annotation of a domain below forcefence", kubelet, onNode("plain", note("x.forcefence.io/y", "")),
		kubeletNote},
	{"registering with an annotation of forcefence", newKubelet, createNode(note("forcefence.io/x", "")), kubeletNote},
	{"a label of forcefence", kubelet, onNode("plain", excluded), kubeletLabel},
	{"a label of forcefence through its status", kubelet, onNode("plain", excluded, status), kubeletLabel},
	{"a label of forcefence taken off", deadKubelet, onNode("dead", noLabel("forcefence.io/exclude")), kubeletLabel},
	{"registering with a label of forcefence", newKubelet, createNode(excluded), kubeletLabel},
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
	{"who named its machine, where NodeRestriction does not look", oddKubelet,
		onNode("plain", setLabel(taint.NamedLabel, "a")), kubeletLabel},
	{"who named its machine taken off where NodeRestriction does not look", oddKubelet,
		onNode("dead", noLabel(taint.NamedLabel)), kubeletLabel},
	{"registering with a taint of forcefence", newKubelet, createNode(addTaint("forcefence.io/x")), kubeletTaint},
	{"a taint of forcefence taken off where NodeRestriction does not look", oddKubelet,
		onNode("dead", noTaint("forcefence.io/x")), kubeletTaint},
	{"the mark taken off where NodeRestriction does not look", oddKubelet, onNode("marked", noMark), byPolicy},
	{"a condition of forcefence", kubelet,
		onNode("plain", condition(taint.PoweredOnCondition, corev1.ConditionFalse), status), kubeletCondition},
	{"that it can be fenced", kubelet,
		onNode("plain", condition(taint.FenceableCondition, corev1.ConditionTrue), status), kubeletCondition},
	{"a condition of forcefence changed", deadKubelet,
		onNode("dead", condition(taint.PoweredOnCondition, corev1.ConditionFalse), status), kubeletCondition},
	{"a condition of forcefence taken off", deadKubelet,
		onNode("dead", noCondition("forcefence.io/PoweredOnNotReady"), status), kubeletCondition},
	{"registering with a condition of forcefence", newKubelet,
		createNode(condition(taint.PoweredOnCondition, corev1.ConditionTrue)), kubeletCondition},
	{"a kubelet's pod behind the proof guard's Service", kubelet, mirror(namespace, "forcefence-proof-guard"),
		kubeletPod},
	{"a kubelet's pod behind the status page's Service", kubelet, mirror(namespace, "forcefence"), kubeletPod},
	{"a kubelet's pod as the hook's", kubelet, mirror("forcefence-node", "forcefence-node"), kubeletPod},

	{"its node deleted, to register it again", kubelet, deleteNode("plain"), byRBAC},

	{"make the leader's Lease", editor, makeLease(metav1.NamespaceSystem, "forcefence"), leaderLease},
	{"write the leader's Lease", editor, touchLease(metav1.NamespaceSystem, "forcefence"), leaderLease},
	{"delete the leader's Lease", editor, deleteLease(metav1.NamespaceSystem, "forcefence"), leaderLease},
	{"make another's Lease in kube-system", us, makeLease(metav1.NamespaceSystem, "kube-scheduler"), otherLease},
	{"mark with the grant alone", grantAlone, onNode("plain", byHand), byRBAC},
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
	{"delete all nodes at once", editor, func(ctx context.Context, _, c client.Client) error {
		return c.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"fixture": "marked"}, client.DryRunAll)
	}, deleteMarked},

	{"another taint", us, onNode("plain", addTaint("example.net/broken")), otherTaint},
	{"another taint beside the mark", us, onNode("plain", all(byFence, addTaint("example.net/broken"))), otherTaint},
	{"take another taint off", us, onNode("marked", func(n *corev1.Node) { n.Spec.Taints = nil }), otherTaint},
	{"cordon", us, onNode("plain", cordon), otherSpec},
	{"uncordon", us, onNode("marked", uncordon), otherSpec},
	{"provider id", us, onNode("plain", func(n *corev1.Node) { n.Spec.ProviderID = "sim://1" }), otherSpec},
	{"label a node", us, onNode("plain", label), otherLabel},
	{"a new label of a node", us, onNode("plain", setLabel("forcefence.io/exclude", "x")), otherLabel},
	{"take a label off", us, onNode("plain", noLabel("fixture")), otherLabel},
	{"label a node beside the pin", us, onNode("plain", all(label, pin("a.b"))), otherLabel},
	{"take the pin off a node", us, onNode("open", noPin), otherLabel},
	{"pin a marked node", us, onNode("marked", pin("a.b")), pinMarked},
	{"forget who named a machine", us, onNode("named", noLabel(taint.NamedLabel)), otherLabel},
	{"note who named the machine of a marked node", us, onNode("marked", setLabel(taint.NamedLabel, "a")), pinMarked},
	{"a pin through a node's status", us, onNode("plain", pin("a.b"), status), statusMeta},
	{"a kubelet pins its node", kubelet, onNode("plain", pin("a.b")), pinByKubelet},
	{"a kubelet pins its node through its status", kubelet, onNode("plain", pin("a.b"), status), pinByKubelet},
	{"register a pinned node", newKubelet, createNode(pin("a.b")), pinByKubelet},
	{"a kubelet notes who named its machine", kubelet, onNode("plain", setLabel(taint.NamedLabel, "a")),
		namedByKubelet},
	{"register a node whose machine is named", newKubelet, createNode(setLabel(taint.NamedLabel, "a")), namedByKubelet},
	{"finalizer on a node", us, onNode("plain", hold), otherMeta},
	{"strip a node's finalizers", us, onNode("marked", func(n *corev1.Node) { n.Finalizers = nil }), otherMeta},
	{"another annotation of a node", us, onNode("plain", note("example.net/bmc", "https://192.0.2.1")), otherNote},
	{"take another annotation off", us, onNode("marked", noBMC), otherNote},

	{"label through a node's status", us, onNode("marked", label, status), statusMeta},
	{"record through a node's status", us, onNode("marked", closed, status), statusMeta},
	{"another annotation through a node's status", us,
		onNode("plain", all(note(taint.DrillAnnotation, "{}"), note("example.net/x", "1")), status), statusMeta},
	{"a drill's answers by a kubelet", kubelet,
		onNode("plain", note(taint.DrillAnnotation, "{}"), status), kubeletNote},
	{"strip a node's finalizers through its status", us,
		onNode("marked", func(n *corev1.Node) { n.Finalizers = nil }, status), statusMeta},
	{"finalizer through a node's status", us, onNode("dead", hold, status), statusMeta},
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

	{"foreign annotation of a pod", us, onStatus("runs", func(p *corev1.Pod) { p.Annotations["example.net/x"] = "2" }),
		podNote},
	{"foreign annotation off a pod", us,
		onStatus("runs", func(p *corev1.Pod) { delete(p.Annotations, "example.net/x") }), podNote},
	{"one more foreign annotation of a pod", us,
		onStatus("runs", func(p *corev1.Pod) { p.Annotations["example.net/y"] = "1" }), podNote},
	{"label a pod", us, onStatus("runs", named), podMeta},
	{"strip a pod's finalizers", us, onStatus("runs", func(p *corev1.Pod) { p.Finalizers = nil }), podMeta},
	{"change a pod's finalizers", us,
		onStatus("runs", func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.net/more") }), podMeta},
	{"a pod Succeeded", us, onStatus("runs", phase(corev1.PodSucceeded)), podShape},
	{"a pod Failed for another reason", us, onStatus("runs", tombstone, why("Evicted")), podShape},
	{"a pod Failed with a message and without DisruptionTarget", us,
		onStatus("runs", small, message(taint.FenceMessage("f-1"))), podShape},
	{"a pod Failed, and spared", us, onStatus("runs", phase(corev1.PodFailed), spared), podShape},
	{"phase alone", us, onStatus("runs", phase(corev1.PodFailed)), podShape},
	{"any message", us, onStatus("runs", message("hello")), podShape},
	{"spare a pod and change its address", us, onStatus("runs", spared, address), podShape},
	{"spare a pod and change its readiness", us, onStatus("runs", spared, unready), podShape},
	{"spare a pod and forget its containers", us, onStatus("runs", spared, forget), podStatus},
	{"spare a pod that failed by itself, in the small form", us, onStatus("failed", spared), podFinished},
	{"end a large pod that failed by itself", us, onStatus("failed", why(taint.TombstoneReason)), podFinished},
	{"end a large pod and forget its containers", us, onStatus("runs", small, forget), podStatus},
	{"end a large pod of no node", us, onStatus("waits", small), podUnbound},
	{"reason alone", us, onStatus("runs", why(taint.TombstoneReason)), podShape},
	{"a pod Unknown with a fenced pod's reason", us, onStatus("runs", tombstone, phase(corev1.PodUnknown)), podShape},
	{"a pod Failed with another condition True", us, onStatus("runs", small, message("ended"),
		setCondition(corev1.PodReadyToStartContainers, "True", taint.TombstoneReason)), podShape},
	{"a pod Failed with DisruptionTarget False", us,
		onStatus("runs", tombstone, setCondition(corev1.DisruptionTarget, "False", taint.TombstoneReason)), podShape},
	{"a pod Failed with another's DisruptionTarget", us,
		onStatus("runs", tombstone, setCondition(corev1.DisruptionTarget, "True", "PreemptionByScheduler")), podShape},
	{"end a pod that succeeded", us, onStatus("finished", tombstone), podFinished},
	{"end a pod that failed by itself", us, onStatus("failed", tombstone), podFinished},
	{"end a pod of no node", us, onStatus("waits", tombstone), podUnbound},
	{"end a pod and change its address", us, onStatus("runs", tombstone, address), podStatus},
	{"end a pod and forget its containers", us, onStatus("runs", tombstone, forget), podStatus},
	{"end a pod and add to its status", us,
		onStatus("runs", tombstone, func(p *corev1.Pod) { p.Status.StartTime = new(metav1.Unix(1e9, 0)) }), podStatus},
	{"end a pod and change its readiness", us, onStatus("runs", tombstone, unready), podCondition},
	{"a pod's readiness without a reason", us, onStatus("runs", unready), podCondition},
	{"Ready False for another reason", us, onStatus("runs", setCondition(corev1.PodReady, "False", "PodFailed")),
		podCondition},
	{"Ready Unknown", us, onStatus("runs", setCondition(corev1.PodReady, "Unknown", taint.TombstoneReason)),
		podCondition},
	{"another reason of Ready True", us, onStatus("runs", setCondition(corev1.PodReady, "True", taint.TombstoneReason)),
		podCondition},
	{"Ready from False to True", us, onStatus("unready", setCondition(corev1.PodReady, "True", taint.TombstoneReason)),
		podCondition},
	{"another reason of Ready False", us, onStatus("unready", notReady), podCondition},
	{"Ready of a pod that has none", us, onStatus("leaves", notReady), podCondition},
	{"ContainersReady of a pod that goes on", us,
		onStatus("runs", setCondition(corev1.ContainersReady, "False", taint.TombstoneReason)), podShape},
	{"both of a pod that goes on", us,
		onStatus("runs", notReady, setCondition(corev1.ContainersReady, "False", taint.TombstoneReason)), podShape},
	{"Ready and another condition", us,
		onStatus("runs", notReady, setCondition(corev1.PodScheduled, "False", taint.TombstoneReason)), podShape},
	{"Ready and DisruptionTarget", us,
		onStatus("runs", notReady, setCondition(corev1.DisruptionTarget, "True", taint.TombstoneReason)), podShape},
	{"Ready twice", us, patchWith(&corev1.Pod{ObjectMeta: inDefault("runs")}, types.JSONPatchType, readyTwice, status),
		podCondition},
	{"Ready and the phase Pending", us, onStatus("runs", notReady, phase(corev1.PodPending)), podShape},
	{"Ready and the reason", us, onStatus("runs", notReady, why(taint.TombstoneReason)), podShape},
	{"Ready and the message", us, onStatus("runs", notReady, message("hello")), podShape},
	{"Ready and the message of a spared pod", us, onStatus("runs", notReady, spared), podShape},
	{"Ready and an address", us, onStatus("runs", notReady, address), podShape},
	{"Ready, and its containers forgotten", us, onStatus("runs", notReady, forget), podStatus},
	{"Ready of a pod that succeeded", us, onStatus("finished", notReady), podFinished},
	{"Ready of a pod that failed by itself", us, onStatus("failed", failedCondition(corev1.PodReady)), podFinished},
	{"Ready of an ended pod", us, onStatus("ended", failedCondition(corev1.PodReady)), podFinished},
	{"end a pod with Ready True for another reason", us,
		onStatus("runs", tombstone, setCondition(corev1.PodReady, "True", "PodFailed")), podCondition},
	{"end a pod with Ready Unknown", us,
		onStatus("runs", tombstone, setCondition(corev1.PodReady, "Unknown", "PodFailed")), podCondition},
	{"end a pod with Ready False for another reason", us, onStatus("runs", tombstone, notReady), podCondition},
	{"end a pod that is not Ready, and make it Ready", us,
		onStatus("unready", tombstone, setCondition(corev1.PodReady, "True", "PodFailed")), podCondition},
	{"end a pod that is not Ready, with another reason for that", us,
		onStatus("unready", tombstone, failedCondition(corev1.PodReady)), podCondition},
	{"end a pod and add ContainersReady", us, onStatus("leaves", tombstone, failedCondition(corev1.ContainersReady)),
		podCondition},
	{"end a pod and change another condition", us, onStatus("runs", tombstone, failedCondition(corev1.PodScheduled)),
		podCondition},
	{"end a pod and forget another condition", us, onPod("runs", all(tombstone, func(p *corev1.Pod) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	}), status), podCondition},
	{"one of a thousand conditions", us, onStatus("crowded", tombstone, failedCondition("example.net/c-999")),
		podCondition},
	{"end a pod and forget its readiness", us, onPod("runs", all(tombstone, func(p *corev1.Pod) {
		p.Status.Conditions = p.Status.Conditions[1:]
	}), status), podCondition},
	{"delete a running pod", us, deletePod("runs", asIs), podAlive},
	{"delete a finished pod", us, deletePod("finished", asIs), podAlive},
	{"finish the deletion of a running pod", us, deletePod("leaves", asIs), podAlive},
	{"finish the deletion of a pod that tolerates the mark for a time", us, deletePod("patient", asIs), podAlive},
	{"delete a pod that failed by itself", us, deletePod("failed", asIs), podAlive},
	{"delete a running pod with a fenced pod's reason", us, deletePod("odd", asIs), podAlive},
	{"delete an ended pod by name", us, deletePod("ended", byName), podByName},
	{"delete an ended pod without resourceVersion", us, deletePod("ended", withoutVersion), podByName},
	{"delete an ended pod without UID", us, deletePod("ended", withoutUID), podByName},

	{"read a Secret", us, may("list", "/secrets", namespace, ""), byRBAC},
	{"read the signing key", us, may("get", "/secrets", namespace, "forcefence-signing"), byRBAC},
	{"replace the public keys", us, may("update", "/configmaps", namespace, "forcefence-public-keys"), byRBAC},
	{"read ConfigMaps", us, may("get", "/configmaps", namespace, "forcefence"), byRBAC},
	{"delete a node, as forcefence", us, deleteNode("plain"), byRBAC},
	{"create a node, as forcefence", us, createNode(func(*corev1.Node) {}), byRBAC},
	{"update a node", us, rewrite(&corev1.Node{ObjectMeta: meta("plain")}, label), byRBAC},
	{"patch a pod", us, onPod("runs", func(p *corev1.Pod) { p.Annotations["forcefence.io/x"] = "" }), byRBAC},
	{"delete pods by the dozen", us, may("deletecollection", "/pods", "default", ""), byRBAC},
	{"evict a pod", us, may("create", "/pods/eviction", "default", "runs"), byRBAC},
	{"renew a kubelet's Lease", us, may("update", leases, corev1.NamespaceNodeLease, "plain"), byRBAC},
	{"write a Lease of its own namespace", us, may("update", leases, namespace, "forcefence"), byRBAC},
	{"write another's Lease in kube-system", us, may("update", leases, metav1.NamespaceSystem, "kube-scheduler"),
		byRBAC},
	{"delete the leader's Lease", us, may("delete", leases, metav1.NamespaceSystem, "forcefence"), byRBAC},
	{"list all Leases", us, may("list", leases, "", ""), byRBAC},
	{"delete a VolumeAttachment", us, may("delete", "storage.k8s.io/volumeattachments", "", "va"), byRBAC},
	{"loosen a policy", us, may("delete", admissionPolicies, "", "forcefence-mark"), byRBAC},
	{"grant itself more", us, may("patch", "rbac.authorization.k8s.io/clusterroles", "", "forcefence-controller"),
		byRBAC},
	{"list ReplicaSets", us, may("list", "apps/replicasets", "default", ""), byRBAC},
	{"write what owns pods", us, may("update", "apps/statefulsets", "default", ""), byRBAC},
}

const (
	leases            = "coordination.k8s.io/leases"
	admissionPolicies = "admissionregistration.k8s.io/validatingadmissionpolicies"
)

// readyTwice adds a second Ready to a pod's conditions.
const readyTwice = `[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Ready", "status": "False", ` +
	`"reason": "` + taint.TombstoneReason + `"}}]`

// passes lists attempts that must succeed.
var passes = []attempt{
	{"set mark and record", us, onNode("plain", all(byFence, opened)), ""},
	{"take mark off, close record", us, onNode("marked", all(noMark, closed)), ""},
	{"write what a policy does", us, onNode("plain", note(taint.PolicyAnnotation, "[]")), ""},
	{"write the record", us, onNode("open", closed), ""},
	{"pin a node", us, onNode("plain", pin("a.b")), ""},
	{"pin a node again", us, onNode("open", pin("a.b")), ""},
	{"take a pin off by hand", editor, onNode("open", noPin), ""},
	{"clear the volume lists of a marked node", us, onNode("marked", clearLists, status), ""},
	{"expire Ready of a marked node", us,
		onNode("marked", condition(corev1.NodeReady, corev1.ConditionUnknown), status), ""},
	{"its own condition", us, onNode("plain", condition(taint.PoweredOnCondition, corev1.ConditionTrue), status), ""},
	{"its own condition changed", us,
		onNode("dead", condition(taint.PoweredOnCondition, corev1.ConditionFalse), status), ""},
	{"whether a node can be fenced", us,
		onNode("plain", all(condition(taint.FenceableCondition, corev1.ConditionUnknown),
			note(taint.DrillAnnotation, `{"word":"On"}`)), status), ""},
	{"end a running pod", us, onStatus("runs", tombstone), ""},
	{"end a pod that is being deleted", us, onStatus("leaves", tombstone), ""},
	{"end a pod that is Ready", us, onStatus("runs", tombstoneWhole), ""},
	{"end a pod, of whose conditions only one is True", us,
		onStatus("runs", tombstone, failedCondition(corev1.ContainersReady)), ""},
	{"end a pod with a thousand conditions", us, onStatus("crowded", tombstoneWhole), ""},
	{"end it by phase and reason alone", us, onStatus("crowded", small), ""},
	{"set a pod not ready that stays on a dead node", us, onStatus("runs", notReady), ""},
	{"set a pod not ready with a thousand conditions", us, onStatus("crowded", notReady), ""},
	{"a kubelet's own word for a pod that was set not ready", editor,
		onStatus("unready", setCondition(corev1.PodReady, "True", "")), ""},
	{"spare a pod", us, onStatus("runs", func(p *corev1.Pod) { p.Annotations[taint.SparedAnnotation] = "f-1/t" }), ""},
	{"spare a pod for another fence", us,
		onStatus("spared", func(p *corev1.Pod) { p.Annotations[taint.SparedAnnotation] = "f-2/t" }), ""},
	{"end a pod that is too large for more than phase and reason", us, onStatus("runs", small), ""},
	{"spare a pod that is too large for the annotation", us, onStatus("runs", spared), ""},
	{"spare it again", us, onStatus("runs", message(taint.SparedMessage("spared"))), ""},
	{"nudge a pod", us,
		onPod("runs", func(p *corev1.Pod) { p.Annotations[taint.NudgedAnnotation] = "2026-01-02T03:04:05.000006Z" },
			status), ""},
	{"delete an ended pod", us, deletePod("ended", asIs), ""},
	{"finish the deletion of a pod that succeeded", us, deletePod("stopped", asIs), ""},
	{"finish the deletion of a pod that tolerates everything", us, deletePod("stays", asIs), ""},
	{"finish the deletion of a pod of a file", us, deletePod("static", asIs), ""},
	{"delete an ended pod with grace, which it does not get", us, deletePod("ended", withGrace), ""},

	{"mark by hand", operator, onNode("plain", byHand), ""},
	{"take a mark off by hand", operator, onNode("marked", noMark), ""},
	{"take a NoExecute mark off by hand", operator, onNode("wrong", noMark), ""},
	{"confirm that a machine is off", operator, onNode("plain", confirms(operator)), ""},
	{"confirm it again", operator, onNode("confirmed", confirms(operator)), ""},
	{"take a confirmation off by hand", operator, onNode("confirmed", noNote(taint.ConfirmAnnotation)), ""},
	{"cordon a node that another has confirmed off", editor,
		onNode("confirmed", func(n *corev1.Node) { n.Spec.Unschedulable = true }), ""},
	{"mark a node that another has confirmed off", us, onNode("confirmed", all(byFence, opened)), ""},
	{"close a record by hand", operator, onNode("marked", all(noMark, closed)), ""},
	{"delete a marked node by hand", operator, deleteNode("marked"), ""},
	{"delete a node by hand whose device lied", operator, deleteNode("lied"), ""},
	{"delete an open fence's node by hand", operator, deleteNode("open"), ""},
	{"mark as admin", admin, onNode("plain", byHand), ""},

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
	{"any other change of a pod", editor, onPod("runs", named), ""},
	{"any other deletion of a pod", editor, deletePod("runs", asPeopleDo), ""},

	{"a kubelet's status", kubelet,
		onNode("plain", all(condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), clearLists), status), ""},
	{"a kubelet's status under the mark", markedKubelet,
		onNode("marked", all(condition(corev1.NodeReady, corev1.ConditionTrue), func(n *corev1.Node) {
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
	{"a person changes a machine's annotation", editor, onNode("plain", otherBMC), ""},
	{"a person excludes a node", editor, onNode("plain", setLabel("forcefence.io/exclude", "maintenance")), ""},
	{"pin a node's machine", us, onNode("plain", setLabel(taint.PinLabel, "m1")), ""},
	{"note who named a machine", us, onNode("plain", setLabel(taint.NamedLabel, "a")), ""},
	{"note that another device named it", us, onNode("named", setLabel(taint.NamedLabel, "b.a")), ""},
	{"a person removes who named a machine", editor, onNode("named", noLabel(taint.NamedLabel)), ""},
	{"lead", us, touchLease(metav1.NamespaceSystem, "forcefence"), ""},
	{"make the leader's Lease", us, may("create", leases, metav1.NamespaceSystem, ""), ""},
	{"delete the leader's Lease, as admin", admin, deleteLease(metav1.NamespaceSystem, "forcefence"), ""},
	{"make a Lease of that name elsewhere", editor, makeLease("default", "forcefence"), ""},
	{"make any other Lease", editor, makeLease(metav1.NamespaceSystem, "other"), ""},
	{"change any other Lease", editor, touchLease("default", "idle"), ""},
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
	lied       = `,"falseOffs":[{"device":"racks/a"}]}`
	trickyOpen = `{"id":"f-1","phase":"Evicting","nodeUID":"u","by":"me","evidence":[{"raw":"\"phase\":\"Done\""}]}`
)

// The volumes of the fixtures' lists.
const (
	ownVolume     = corev1.UniqueVolumeName("kubernetes.io/csi/sim^v1")
	storageVolume = corev1.UniqueVolumeName("kubernetes.io/csi/csi.storageos.com^v2")
	// of a driver whose name begins so
	alikeVolume = corev1.UniqueVolumeName("kubernetes.io/csi/csi.storageos.com.example.net^v3")
)

// quiet is a control plane that leaves the fixtures as they were made.
var quiet = cluster.Options{KCMArgs: []string{"--controllers=*,-node-lifecycle-controller," +
	"-pod-garbage-collector-controller,-disruption-controller,-persistentvolume-attach-detach-controller"}}

// fixtures makes the objects that the rows are about, before any policy is there.
func (w *world) fixtures() {
	w.t.Helper()
	core := w.c.Client().CoreV1()
	outOfReach := func(*corev1.Node) {}
	for _, f := range []struct {
		name  string
		edit  func(*corev1.Node)
		ready corev1.ConditionStatus
	}{
		{"plain", outOfReach, "True"},
		{"marked", all(byFence, opened, cordon, func(n *corev1.Node) { n.Finalizers = []string{"example.net/hold"} }),
			"True"},
		{"named", setLabel(taint.NamedLabel, "a"), "True"},
		{"dead", all(byFence, opened, pin("m1"), setLabel(taint.NamedLabel, "a"),
			setLabel("forcefence.io/exclude", "maintenance"), setLabel("example.net/rack", "r1"),
			addTaint("forcefence.io/x")), "Unknown"},
		{"manual", byHand, "True"},
		{"wrong", setMark("manual", corev1.TaintEffectNoExecute), "True"},
		{"open", all(pin("of.another"), note(taint.RecordAnnotation, trickyOpen)), "True"},
		{"broken", note(taint.RecordAnnotation, "{half a rec"), "True"},
		{"done", closed, "True"},
		{"lied", note(taint.RecordAnnotation, strings.Replace(doneRecord, "Evicted", "NeverPoweredOff", 1)), "True"},
		{"liedonce", note(taint.RecordAnnotation, strings.TrimSuffix(doneRecord, "}")+lied), "True"},
		{"confirmed", confirms("somebody"), "Unknown"},
		{"on", outOfReach, "Unknown"},
		{"out", outOfService("forcefence", corev1.TaintEffectNoExecute), "True"},
		{"theirs", outOfService("nodeshutdown", corev1.TaintEffectNoExecute), "Unknown"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name, Labels: map[string]string{"fixture": f.name},
			Annotations: map[string]string{"example.net/bmc": "https://192.0.2.7"}}}
		all(addTaint("example.net/own"), f.edit)(n)
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
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{ownVolume, storageVolume, alikeVolume}
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: ownVolume, DevicePath: "/dev/x"},
				{Name: storageVolume, DevicePath: "/dev/y"}}
			condition(corev1.NodeReady, f.ready)(n)
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse)(n)
			if slices.Contains([]string{"dead", "on", "theirs"}, f.name) {
				condition(taint.PoweredOnCondition, corev1.ConditionTrue)(n)
			}
			if f.name == "dead" {
				condition(taint.ProtectionCondition, corev1.ConditionFalse)(n)
			}
			_, err = core.Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
			return err
		}))
	}
	nothing := func(*corev1.Pod) {}
	for name, edit := range map[string]func(*corev1.Pod){
		"runs": nothing, "leaves": func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[2:] },
		"spared": nothing, "ended": tombstone, "finished": phase(corev1.PodSucceeded),
		"failed": all(phase(corev1.PodFailed), why("Evicted")), "odd": why(taint.TombstoneReason), "waits": nil,
		"stays": nothing, "stopped": nothing, "patient": nothing, "static": nothing,
		"unready": setCondition(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady"), "crowded": crowd,
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.net/x": "1"},
				Finalizers: []string{"example.net/hold"}},
			Spec: podSpec(),
		}
		if p.Spec.NodeName = "plain"; edit == nil {
			p.Spec.NodeName, p.Spec.SchedulerName = "", "nobody"
		}
		switch name {
		case "static":
			p.Annotations["kubernetes.io/config.source"] = "file"
		case "stays":
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		case "patient":
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))}}
		}
		if name == "spared" {
			p.Annotations[taint.SparedAnnotation] = "f-1/t"
		}
		p, err := core.Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
		kit.Must(w.t, err)
		if edit == nil {
			continue
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIP, p.Status.PodIPs = "192.0.2.8", []corev1.PodIP{{IP: "192.0.2.8"}}
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
			setCondition(kind, corev1.ConditionTrue, "")(p)
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "main", Image: "sim.forcefence.io/app:1", ImageID: "x"}}
		edit(p)
		_, err = core.Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
		kit.Must(w.t, err)
		if slices.Contains([]string{"leaves", "stays", "static", "stopped", "patient"}, name) {
			kit.Must(w.t, core.Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{}))
		}
		if name == "stopped" { // its kubelet ended the containers, and cannot unmount the volume
			p, err = core.Pods("default").Get(w.ctx, name, metav1.GetOptions{})
			kit.Must(w.t, err)
			p.Status.Phase = corev1.PodSucceeded
			_, err = core.Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
			kit.Must(w.t, err)
		}
	}
	kit.Must(w.t, w.grant("node-editor", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status", "pods", "pods/status"},
			Verbs: []string{"*"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}, editor, operator, forger, oddKubelet))
	for namespace, name := range map[string]string{"default": "idle", metav1.NamespaceSystem: "forcefence"} {
		_, err := w.c.Client().CoordinationV1().Leases(namespace).Create(w.ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	w.workloads()
}

// crowd gives a pod a thousand conditions.
func crowd(p *corev1.Pod) {
	for i := range 1000 {
		setCondition(corev1.PodConditionType(fmt.Sprintf("example.net/c-%d", i)), corev1.ConditionTrue, "Test")(p)
	}
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
func (w *world) accounts() map[string]client.Client {
	w.t.Helper()
	out := map[string]client.Client{}
	for name, as := range map[string][]string{ // the user and the groups
		us:             {account, "system:serviceaccounts", "system:serviceaccounts:" + namespace},
		editor:         {editor},
		operator:       {operator},
		forger:         {forger},
		grantAlone:     {grantAlone},
		kubelet:        {"system:node:plain", "system:nodes"},
		markedKubelet:  {"system:node:marked", "system:nodes"},
		newKubelet:     {"system:node:fresh", "system:nodes"},
		deadKubelet:    {"system:node:dead", "system:nodes"},
		oddKubelet:     {oddKubelet, "system:nodes"},
		admin:          nil,
		deployer:       {deployer},
		lookalike:      {lookalikeName},
		nodeController: ofKubernetes("node-controller"),
		daemonSets:     ofKubernetes("daemon-set-controller"),
		statefulSets:   ofKubernetes("statefulset-controller"),
		replicaSets:    ofKubernetes("replicaset-controller"),
		replications:   ofKubernetes("replication-controller"),
		jobs:           ofKubernetes("job-controller"),
		deployments:    ofKubernetes("deployment-controller"),
		cronJobs:       ofKubernetes("cronjob-controller"),
	} {
		out[name] = w.as(as...)
	}
	return out
}

func ofKubernetes(controller string) []string {
	return []string{controllerName(controller), "system:serviceaccounts", "system:serviceaccounts:kube-system"}
}

// attempts tries rows.
type attempts struct {
	*world
	accounts map[string]client.Client
}

func (w attempts) do(a attempt) error { return a.do(w.ctx, w.accounts[admin], w.accounts[a.as]) }

// verdict tries a row and returns "" or what is wrong. Kubernetes' own controllers may write an object between a row's
// reading and writing it.
func (w attempts) verdict(a attempt) string {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return w.do(a) })
	switch {
	case a.want == "" && err != nil:
		return fmt.Sprintf("%s: %s: got %v, want it to pass", a.as, a.name, err)
	case a.want != "" && err == nil:
		return fmt.Sprintf("%s: %s: it passed, want %q", a.as, a.name, a.want)
	case a.want != "" && !strings.Contains(err.Error(), a.want):
		return fmt.Sprintf("%s: %s: got %v, want %q", a.as, a.name, err, a.want)
	}
	return ""
}

// hold waits until every row holds: what was applied last is in force a moment later.
func (w attempts) hold(rows ...attempt) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
	defer cancel()
	var bad []string
	if err := cluster.Until(ctx, func(context.Context) (bool, error) {
		bad = nil
		for _, a := range rows {
			if wrong := w.verdict(a); wrong != "" {
				bad = append(bad, wrong)
			}
		}
		return len(bad) == 0, nil
	}); err != nil {
		w.t.Fatalf("%v:\n%s", err, strings.Join(bad, "\n"))
	}
}

// need lets the i-th validation of each of these policies say yes, for each i, and waits until a row that must be
// refused for its sake passes. Where named is set, other suites have the rows of validations that no row names.
func (w attempts) need(rows []attempt, whole map[string]*admissionv1.ValidatingAdmissionPolicy, named bool) {
	w.t.Helper()
	longest := 0
	for _, p := range whole {
		longest = max(longest, len(p.Spec.Validations))
	}
	for i := range longest + 1 { // the last turn makes all of them whole
		missing := map[string]bool{} // refusals that must not come any more
		for _, p := range whole {
			p := p.DeepCopy()
			if i < len(p.Spec.Validations) {
				v := &p.Spec.Validations[i]
				missing[fmt.Sprintf("'%s' with binding '%[1]s' denied request: %s", p.Name, v.Message)] = true
				v.Expression = "true"
			}
			w.replace(p)
		}
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
		err := cluster.Until(ctx, func(context.Context) (bool, error) {
			for refusal := range missing {
				of := slices.DeleteFunc(slices.Clone(rows),
					func(a attempt) bool { return a.want == "" || !strings.HasPrefix(refusal, a.want) })
				passes := slices.ContainsFunc(of, func(a attempt) bool { return w.do(a) == nil })
				if !passes && !(named && len(of) == 0) {
					return false, fmt.Errorf("no row needs validation %d: %s", i, refusal)
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

// TestPolicies tries every row, then lets one validation of the policies after the other say yes and checks that the
// rows notice; and so with the features that change and add policies.
func TestPolicies(t *testing.T) {
	w := attempts{world: newWorld(t, quiet)}
	w.fixtures()
	w.featureFixtures()
	w.accounts = w.world.accounts()
	w.install(features["machine keys"])
	kit.Must(t, w.grant("forcefence-operator", nil, operator, forger, grantAlone))
	w.letBypass(deployer)
	refused := slices.Concat(refusals, tolerateRefusals)
	w.hold(slices.Concat(refused, passes, toleratePasses)...)
	w.need(refused, policies(t, "{}"), false)
	w.otherKey()
	for _, s := range suites {
		_, err := w.c.Kubectl(w.ctx, "delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--all")
		kit.Must(t, err)
		values := features[s.feature]
		w.install(values)
		w.hold(s.rows...)
		own := policies(t, values)
		maps.DeleteFunc(own, func(name string, _ *admissionv1.ValidatingAdmissionPolicy) bool {
			return !slices.Contains(s.policies, name)
		})
		if w.need(s.rows, own, true); len(own) != len(s.policies) {
			t.Errorf("%s: got %d policies, want %v", s.feature, len(own), s.policies)
		}
	}
}
