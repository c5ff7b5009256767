// Package taint is the mark that a fence leaves on a Node: the taint, the record beside it, the tombstone on a pod, and
// the one rule of which pods neither the taint manager nor the node's hook may touch. It is a codec: no clients, no
// clocks, no logs, and no imports but Kubernetes' API types. Everything here is a function from objects to facts or to
// objects, and never changes what it is given.
//
// The KEP's ForceEviction is a taint effect, which a stock API server refuses (F1). So the mark carries the meaning in
// its key, with effect NoSchedule: NoExecute would make the stock taint-eviction controller delete replacements by name
// (F2).
package taint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultKey is the mark's key if the configuration names no other.
	DefaultKey = "forcefence.io/node-shutdown"
	// RecordAnnotation is the Node annotation that holds the fence's Record.
	RecordAnnotation = "forcefence.io/fence"
	// PoweredOnCondition is the Node condition of a node that does not answer while its machine is on, in mode observe.
	PoweredOnCondition corev1.NodeConditionType = "forcefence.io/PoweredOnNotReady"
	// FenceableCondition is the Node condition that reports whether the node could be fenced when its devices were last
	// drilled.
	FenceableCondition corev1.NodeConditionType = "forcefence.io/Fenceable"
	// DrillAnnotation is the Node annotation that holds the devices' answers in the last drill, for people alone: no
	// decision reads it.
	DrillAnnotation = "forcefence.io/drill"
	// DrainGuardLabel is on the PodDisruptionBudgets that stop drains from evicting a storage system's pods: the name
	// of their guard.
	DrainGuardLabel = "forcefence.io/drain-guard"
	// GuardedNodeAnnotation is their annotation that names the Kubernetes node of the pod that they were made for.
	GuardedNodeAnnotation = "forcefence.io/node"
	// DrainAnnotation is the Node annotation that reports what delays the node's drain.
	DrainAnnotation = "forcefence.io/drain"
	// AutoEvictingAnnotation is the Node annotation of a node whose replicas are being evicted because forcefence
	// requested it: "true".
	AutoEvictingAnnotation = "forcefence.io/auto-evicting"
	// DelegatedAnnotation is on a storage system's own drain policy setting: the value that forcefence wrote into it.
	DelegatedAnnotation = "forcefence.io/drain-policy"
	// EffectForceEviction is the KEP's effect: read where an API server has it, never written.
	EffectForceEviction corev1.TaintEffect = "ForceEviction"
)

// Mark is the taint as found on a Node.
type Mark struct {
	Value     string // the fence's id; any other value is a person's
	Effect    corev1.TaintEffect
	TimeAdded time.Time // zero if there is none
	Others    bool      // there is another taint with the key
}

// FindMark returns the node's mark: the taint with the key, with any effect. If several effects carry the key, the
// taint with the id wins, so that a second taint added by hand does not hide our own.
func FindMark(node *corev1.Node, key, id string) (Mark, bool) {
	var found *corev1.Taint
	n := 0
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Key != key {
			continue
		}
		n++
		if found == nil || (found.Value != id && t.Value == id) {
			found = t
		}
	}
	if found == nil {
		return Mark{}, false
	}
	m := Mark{Value: found.Value, Effect: found.Effect, Others: n > 1}
	if found.TimeAdded != nil {
		m.TimeAdded = found.TimeAdded.Time
	}
	return m, true
}

// WithMark returns a copy of taints that has the mark of fence id exactly once, with effect NoSchedule. It does not
// change or move any other taint; (key, effect) stays unique.
func WithMark(taints []corev1.Taint, key, id string, at time.Time) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == key && (t.Value == id || t.Effect == corev1.TaintEffectNoSchedule)
	})
	added := metav1.NewTime(at.UTC().Truncate(time.Second))
	return append(out, corev1.Taint{Key: key, Value: id, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added})
}

// WithoutMark returns a copy of taints without the marks of fence id, with any effect. It keeps marks with another
// value: they are a person's.
func WithoutMark(taints []corev1.Taint, key, id string) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == key && t.Value == id })
}

// outOfService is the value of the out-of-service taint that forcefence sets.
const outOfService = "forcefence"

// OutOfService returns Kubernetes' own taint for a node that is shut down for good, as forcefence sets it. Stock
// controllers end, and delete, all pods of the node that do not tolerate it, and detach volumes without asking the
// node.
func OutOfService(at time.Time) corev1.Taint {
	added := metav1.NewTime(at.UTC().Truncate(time.Second))
	return corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: outOfService, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added,
	}
}

// IsOutOfService reports whether taints has that taint. A taint with another value is not ours.
func IsOutOfService(taints []corev1.Taint) bool { return slices.ContainsFunc(taints, isOutOfService) }

func isOutOfService(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeOutOfService && t.Value == outOfService && t.Effect == corev1.TaintEffectNoExecute
}

// WithoutOutOfService returns a copy of taints without that taint.
func WithoutOutOfService(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), isOutOfService)
}
