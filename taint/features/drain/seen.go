package drain

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/forcefence/forcefence/taint"
)

// Node is the part of a Kubernetes node that decisions need.
type Node struct {
	Cordoned bool
	Down     bool // Ready is not True
	// Withdrawn reports that the node's mode begins nothing. What a guard made there goes, as under AlwaysAllow, and
	// nothing new is made. A budget that stayed would block its drain for ever.
	Withdrawn bool
	Policy    Policy // an operator's, in place of the guard's; "": the guard's
}

// SeeNode reduces a Node. A node without a Ready condition is down.
func SeeNode(n *corev1.Node) Node {
	c := taint.Condition(n, corev1.NodeReady)
	return Node{Cordoned: n.Spec.Unschedulable, Down: c.Status != corev1.ConditionTrue}
}

// Pod is a storage pod.
type Pod struct {
	Namespace, Name, UID string
	Node                 string
	Labels               map[string]string
	Ready                bool // it is running and ready, and not being deleted
	Finished             bool // its phase is Succeeded or Failed
	Daemon               bool // a DaemonSet owns it: a drain does not evict it
}

// SeePod reduces a pod.
func SeePod(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Labels: p.Labels,
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			out.Ready = p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
		}
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		out.Daemon = owner.Kind == "DaemonSet"
	}
	return out
}

// IsSameAs reports whether two observations of a pod lead to the same decision.
func (p Pod) IsSameAs(o Pod) bool {
	return p.UID == o.UID && p.Node == o.Node && p.Ready == o.Ready && p.Finished == o.Finished &&
		p.Daemon == o.Daemon && maps.Equal(p.Labels, o.Labels)
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Namespace, Name, UID, ResourceVersion string

	Guard    string // the guard that it belongs to, by our label; "": another client's
	Node     string // the node of the pod that it was created for, by our annotation
	Whole    bool   // its spec is that of our budgets: one pod must be available
	Deleting bool

	selector labels.Selector
}

// SeeBudget reduces a PodDisruptionBudget. A selector that cannot be read counts as selecting everything.
func SeeBudget(b *policyv1.PodDisruptionBudget) Budget {
	out := Budget{
		Namespace: b.Namespace, Name: b.Name, UID: string(b.UID), ResourceVersion: b.ResourceVersion,
		Guard: b.Labels[taint.DrainGuardLabel], Node: b.Annotations[taint.GuardedNodeAnnotation],
		Deleting: b.DeletionTimestamp != nil,
	}
	bare := policyv1.PodDisruptionBudgetSpec{Selector: b.Spec.Selector, MinAvailable: onePod()}
	out.Whole = equality.Semantic.DeepEqual(b.Spec, bare)
	var err error
	if out.selector, err = metav1.LabelSelectorAsSelector(b.Spec.Selector); err != nil {
		out.selector = labels.Everything()
	}
	return out
}

// IsSameAs reports whether two observations of a PodDisruptionBudget lead to the same decision. Its status does not
// matter.
func (b Budget) IsSameAs(o Budget) bool {
	return b.UID == o.UID && b.Guard == o.Guard && b.Node == o.Node && b.Whole == o.Whole &&
		b.Deleting == o.Deleting && b.selector.String() == o.selector.String()
}

// selectsPod reports whether the budget selects that pod.
func (b Budget) selectsPod(p Pod) bool {
	return b.Namespace == p.Namespace && b.selector.Matches(labels.Set(p.Labels))
}

func onePod() *intstr.IntOrString {
	n := intstr.FromInt32(1)
	return &n
}
