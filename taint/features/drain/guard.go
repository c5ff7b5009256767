package drain

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint"
)

// Policy is the condition under which a cordoned node may lose its storage pod. Its values are those of Longhorn's
// setting node-drain-policy.
type Policy string

// The policies. The zero value holds up every drain.
const (
	BlockIfLast            Policy = "block-if-contains-last-replica"
	AllowIfStopped         Policy = "allow-if-replica-is-stopped"
	AlwaysAllow            Policy = "always-allow"
	BlockForEviction       Policy = "block-for-eviction"
	BlockForEvictionIfLast Policy = "block-for-eviction-if-contains-last-replica"
)

// Policies lists all of them, the default first.
var Policies = []Policy{BlockIfLast, AllowIfStopped, AlwaysAllow, BlockForEviction, BlockForEvictionIfLast}

// ShouldEvict reports whether replicas are requested to leave a cordoned node.
func (p Policy) ShouldEvict() bool { return p == BlockForEviction || p == BlockForEvictionIfLast }

// Guard is one item of the configuration's drain guards.
type Guard struct {
	Name      string // a DNS label
	Policy    Policy
	Namespace string                // where the storage system's pods are
	Pods      *metav1.LabelSelector // selects them in that namespace; never nil
	Identity  Identity              // the label keys whose values identify one of them
}

// Identity lists the keys of the labels that tell one storage pod from the others.
type Identity []string

// valuesOf returns the pod's values of these labels, or nil if it lacks one.
func (id Identity) valuesOf(p Pod) []string {
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

// BudgetFor returns the budget for a storage pod, which must have all labels of the guard's Identity. Of the storage
// pods it selects only those with the same values. The name is the same for every process and every call.
func (g Guard) BudgetFor(p Pod) *policyv1.PodDisruptionBudget {
	selector := g.Pods.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	values := g.Identity.valuesOf(p)
	for i, key := range g.Identity {
		selector.MatchLabels[key] = values[i]
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: g.budgetName(p),
			Labels:      map[string]string{taint.DrainGuardLabel: g.Name},
			Annotations: map[string]string{taint.GuardedNodeAnnotation: p.Node},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: onePod()},
	}
}

// budgetName returns the name of a pod's budget.
func (g Guard) budgetName(p Pod) string {
	sum := sha256.Sum256([]byte(strings.Join(g.Identity.valuesOf(p), "\n")))
	return "forcefence-" + g.Name + "-" + hex.EncodeToString(sum[:5])
}

// PodSelector returns the selector of the storage pods. It returns an error if the selector is invalid.
func (g Guard) PodSelector() (labels.Selector, error) { return metav1.LabelSelectorAsSelector(g.Pods) }

// HasSamePods reports whether two guards protect the same pods in the same way. Their policies do not matter.
func (g Guard) HasSamePods(o Guard) bool {
	return g.Name == o.Name && g.Namespace == o.Namespace &&
		strings.Join(g.Identity, ",") == strings.Join(o.Identity, ",") &&
		maps.Equal(g.Pods.MatchLabels, o.Pods.MatchLabels) &&
		equality.Semantic.DeepEqual(g.Pods.MatchExpressions, o.Pods.MatchExpressions)
}
