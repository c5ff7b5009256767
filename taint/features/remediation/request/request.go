// Package request decides which node a ForcefenceRemediation is for, whether it permits a power-off now, and what its
// conditions and its finalizer should be.
//
// It is pure: a function of the request, of Cluster API's Machine that owns it, of the Node, and of what forcefence
// decided last about that node.
//
// It promises: a request is for one node at most, and a node's own kubelet cannot make a request be for another node. A
// request that cannot be understood permits nothing.
package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
)

// What NodeHealthCheck writes on a request (medik8s/common v1.17.0, annotations).
const (
	nodeNameAnnotation     = "remediation.medik8s.io/node-name"
	timedOutAnnotation     = "remediation.medik8s.io/nhc-timed-out"
	healthyDelayAnnotation = "remediation.medik8s.io/healthy-delay"
)

// machineKind is the kind of the object in the group fence.ClusterAPI that owns a request of a MachineHealthCheck.
const machineKind = "Machine"

// Machine is what Cluster API's Machine that owns a request states. The zero value is a Machine that was not read.
type Machine struct {
	Namespace, Name, UID string
	NodeName             string // status.nodeRef.name; "": it has no node
	ProviderID           string // spec.providerID; "": not known
	Excluded             string // "" or why Cluster API's own health checks leave it alone
}

// OwnerOf returns the name and UID of the Machine of Cluster API that owns the request; empty if none does. Its
// namespace is the request's.
func OwnerOf(r *api.ForcefenceRemediation) (name, uid string) {
	for _, o := range r.OwnerReferences {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		if group == fence.ClusterAPI && o.Kind == machineKind {
			return o.Name, string(o.UID)
		}
	}
	return "", ""
}

// NodeNameOf returns the name of the node that the request is for, or an error that says why it is for none. That is
// the name in NodeHealthCheck's annotation, else the node of the Machine that owns it, else the request's own name.
// machine is that Machine; the zero value: none owns it, or it could not be read.
func NodeNameOf(r *api.ForcefenceRemediation, machine Machine) (string, error) {
	named, annotated := r.Annotations[nodeNameAnnotation]
	owner, uid := OwnerOf(r)
	switch {
	case owner == "":
	case machine.Name != owner || machine.Namespace != r.Namespace || machine.UID != uid:
		return "", fmt.Errorf("its owner, Machine %s, cannot be read, or is another one of that name", owner)
	case machine.NodeName == "":
		return "", fmt.Errorf("its owner, Machine %s, has no node", owner)
	case annotated && named != machine.NodeName:
		return "", fmt.Errorf("its annotation %s names another node than its owner, Machine %s", nodeNameAnnotation,
			owner)
	default:
		named, annotated = machine.NodeName, true
	}
	if !annotated {
		named = r.Name
	}
	if len(validation.IsDNS1123Subdomain(named)) > 0 {
		return "", fmt.Errorf("it names a node that cannot exist")
	}
	return named, nil
}

// Refusal returns why the request does not permit a power-off of the node's machine now; "" if it does. node is the one
// that NodeNameOf named; nil: it does not exist.
func Refusal(r *api.ForcefenceRemediation, machine Machine, node *corev1.Node) string {
	if why := mismatch(r, machine, node); why != "" {
		return why
	}
	switch {
	case taint.CutParts(r) != "":
		return "it is too large: " + taint.CutParts(r)
	case r.DeletionTimestamp != nil:
		return "it is being deleted"
	case IsTimedOut(r):
		return "NodeHealthCheck's time for it is over (annotation " + timedOutAnnotation + ")"
	case node.CreationTimestamp.After(r.CreationTimestamp.Time):
		return "it is older than its Node"
	case isOfAnotherLife(r, node):
		return "its node's machine has booted since it was made, or it is another Node"
	case isUnwatched(r, taint.Condition(node, corev1.NodeReady).LastTransitionTime.Time):
		return "its node's Ready changed while no controller watched: delete it"
	case isAnsweredAs(r, recovered), wasBack(r):
		return "its node was Ready again since it was made"
	case machine.Excluded != "":
		return fmt.Sprintf("Machine %s: %s", machine.Name, machine.Excluded)
	}
	return fence.ClusterAPIExclusion(r.Annotations, false)
}

// maxLifeID is how long the UID or boot id of a node may be that a request's status names.
const maxLifeID = 128

// isOfAnotherLife reports whether the node has another life than when forcefence saw the request first. No heartbeat
// counts here: a kubelet that beats may be the reason for the request.
func isOfAnotherLife(r *api.ForcefenceRemediation, node *corev1.Node) bool {
	return r.Status.NodeUID != "" &&
		(r.Status.NodeUID != string(node.UID) || r.Status.BootID != node.Status.NodeInfo.BootID)
}

// isUnwatched reports whether the outage that the request was made for may have ended while no controller watched. Then
// the status of the node's Ready changed after the request was made, or after forcefence saw it last. Such a request
// stays so: it gets no life, or keeps its time.
func isUnwatched(r *api.ForcefenceRemediation, readySince time.Time) bool {
	if r.Status.NodeUID == "" {
		return readySince.After(r.CreationTimestamp.Time)
	}
	return !readySince.Equal(notedSince(r))
}

// notedSince is since when the node's Ready had its status when forcefence saw the request last.
func notedSince(r *api.ForcefenceRemediation) time.Time {
	if r.Status.ReadySince == nil {
		return time.Time{}
	}
	return r.Status.ReadySince.Time
}

// Watched is what a process has seen of a request's node without a gap. The zero value has seen nothing.
type Watched struct {
	from, since time.Time // of the node's Ready: what the request noted, and what was seen last
	ready       corev1.ConditionStatus
}

// Next returns what the process has seen once it has looked at the node again. A Ready that changed, and has the status
// that it had, had another one meanwhile, which was not seen.
func (w Watched) Next(r *api.ForcefenceRemediation, l taint.Look) Watched {
	from := notedSince(r)
	switch {
	case r.Status.NodeUID == "": // it notes this look
		from = l.ReadySince
	case l.ReadySince.Equal(from):
	case from.IsZero(), !w.from.Equal(from), !w.since.Equal(l.ReadySince) && w.ready == l.Ready:
		return Watched{}
	}
	return Watched{from: from, since: l.ReadySince, ready: l.Ready}
}

// Note returns the request with the time of Ready that was seen last; the request itself, if that is noted.
func (w Watched) Note(r *api.ForcefenceRemediation) *api.ForcefenceRemediation {
	if r.Status.NodeUID == "" || w.since.IsZero() || w.since.Equal(notedSince(r)) {
		return r
	}
	r = r.DeepCopy()
	r.Status.ReadySince = &metav1.Time{Time: w.since}
	return r
}

// mismatch returns why the request is not for that node; "" if it is.
func mismatch(r *api.ForcefenceRemediation, machine Machine, node *corev1.Node) string {
	name, err := NodeNameOf(r, machine)
	switch {
	case err != nil:
		return err.Error()
	case node == nil:
		return fmt.Sprintf("node %s does not exist", name)
	case node.Name != name:
		return fmt.Sprintf("it is for node %s", name)
	case machine.Name == "":
		return ""
	}
	// Cluster API finds the Node by its providerID, and writes the Machine's name on it. A Node that another Machine
	// has now must not be powered off for this one.
	namespace, of, _ := fence.MachineOf(node)
	if namespace != machine.Namespace || of != machine.Name {
		return fmt.Sprintf("node %s does not name Machine %s as its own", name, machine.Name)
	}
	if machine.ProviderID != "" && node.Spec.ProviderID != machine.ProviderID {
		return fmt.Sprintf("node %s has another providerID than Machine %s", name, machine.Name)
	}
	return ""
}

// IsTimedOut reports whether NodeHealthCheck wrote that its time for the request is over. Any value counts.
func IsTimedOut(r *api.ForcefenceRemediation) bool {
	_, over := r.Annotations[timedOutAnnotation]
	return over
}

// HasFinalizer reports whether our finalizer keeps the request.
func HasFinalizer(r *api.ForcefenceRemediation) bool {
	return slices.Contains(r.Finalizers, api.Finalizer)
}

// isAnsweredAs reports whether the request's Succeeded is True for that reason.
func isAnsweredAs(r *api.ForcefenceRemediation, why string) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, api.Succeeded)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == why
}
