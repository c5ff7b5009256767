package drain

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/forcefence/forcefence/taint"
)

// Guard is one item of the configuration.
type Guard struct {
	Name      string // a DNS label
	Policy    Policy
	Namespace string                // of the storage system's pods
	Pods      *metav1.LabelSelector // which of that namespace; never nil
	Identity  Identity              // the label keys whose values no other of them has
}

// Identity are the keys of the labels that tell one storage pod from the others.
type Identity []string

// Of are a pod's values; nil where it lacks one.
func (id Identity) Of(p Pod) []string {
	var out []string
	for _, key := range id {
		value, ok := p.Labels[key]
		if !ok {
			return nil
		}
		out = append(out, value)
	}
	return out
}

// Pod is a storage pod.
type Pod struct {
	Namespace, Name, UID string
	Node                 string
	Labels               map[string]string
	Up                   bool // it runs, is ready and is not being deleted
	Over                 bool // it has finished
	Daemon               bool // a DaemonSet owns it: no drain evicts it
}

// SeePod reduces a pod.
func SeePod(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Labels: p.Labels,
		Over: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			out.Up = p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
		}
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		out.Daemon = owner.Kind == "DaemonSet"
	}
	return out
}

// Same reports that nothing that is decided on tells two sights of a pod apart.
func (p Pod) Same(o Pod) bool {
	return p.UID == o.UID && p.Node == o.Node && p.Up == o.Up && p.Over == o.Over && p.Daemon == o.Daemon && maps.Equal(p.Labels, o.Labels)
}

// SeeNode reduces a Node. One without a Ready condition is down.
func SeeNode(n *corev1.Node) Node {
	out := Node{Cordoned: n.Spec.Unschedulable, Down: true}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Down = c.Status != corev1.ConditionTrue
		}
	}
	return out
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Namespace, Name, UID, ResourceVersion string

	Guard    string // whose it is, by our label; "": somebody else's
	Node     string // of the pod that it was made for, by our annotation
	Whole    bool   // it demands what ours demand: that one pod is available
	Deleting bool

	selector labels.Selector
}

// SeeBudget reduces a PodDisruptionBudget. A selector that cannot be read selects everything.
func SeeBudget(b *policyv1.PodDisruptionBudget) Budget {
	out := Budget{
		Namespace: b.Namespace, Name: b.Name, UID: string(b.UID), ResourceVersion: b.ResourceVersion,
		Guard: b.Labels[taint.GuardLabel], Node: b.Annotations[taint.GuardedNode], Deleting: b.DeletionTimestamp != nil,
	}
	bare := policyv1.PodDisruptionBudgetSpec{Selector: b.Spec.Selector, MinAvailable: one()}
	out.Whole = equality.Semantic.DeepEqual(b.Spec, bare)
	var err error
	if out.selector, err = metav1.LabelSelectorAsSelector(b.Spec.Selector); err != nil {
		out.selector = labels.Everything()
	}
	return out
}

// Same reports that nothing that is decided on tells two sights of a PodDisruptionBudget apart. Its status does not.
func (b Budget) Same(o Budget) bool {
	return b.UID == o.UID && b.Guard == o.Guard && b.Node == o.Node && b.Whole == o.Whole && b.Deleting == o.Deleting && b.selector.String() == o.selector.String()
}

// Selects reports that the budget is one before that pod.
func (b Budget) Selects(p Pod) bool {
	return b.Namespace == p.Namespace && b.selector.Matches(labels.Set(p.Labels))
}

func one() *intstr.IntOrString {
	n := intstr.FromInt32(1)
	return &n
}

// For is the budget before a storage pod, which has all labels of the guard's Identity. It selects no other pod than storage pods with the
// same ones. Its name is the same whoever makes it, and however often.
func (g Guard) For(p Pod) *policyv1.PodDisruptionBudget {
	selector := g.Pods.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	values := g.Identity.Of(p)
	for i, key := range g.Identity {
		selector.MatchLabels[key] = values[i]
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: g.budget(p),
			Labels:      map[string]string{taint.GuardLabel: g.Name},
			Annotations: map[string]string{taint.GuardedNode: p.Node},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: one()},
	}
}

// budget is the name of a pod's budget.
func (g Guard) budget(p Pod) string {
	sum := sha256.Sum256([]byte(strings.Join(g.Identity.Of(p), "\n")))
	return "forcefence-" + g.Name + "-" + hex.EncodeToString(sum[:5])
}

// Selector is that of the storage pods.
func (g Guard) Selector() (labels.Selector, error) { return metav1.LabelSelectorAsSelector(g.Pods) }

// Same reports that two guards guard the same pods in the same way, whatever their policies.
func (g Guard) Same(o Guard) bool {
	return g.Name == o.Name && g.Namespace == o.Namespace && strings.Join(g.Identity, ",") == strings.Join(o.Identity, ",") &&
		maps.Equal(g.Pods.MatchLabels, o.Pods.MatchLabels) && equality.Semantic.DeepEqual(g.Pods.MatchExpressions, o.Pods.MatchExpressions)
}
