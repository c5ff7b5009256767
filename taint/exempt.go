package taint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exemption is why a pod is neither evicted from a marked node nor held on it. The zero value is no exemption.
type Exemption string

// The exemptions, in the order in which ExemptionOf checks them.
const (
	NotExempt      Exemption = ""
	ExemptStatic   Exemption = "static"     // a static pod or its mirror: the API server does not own it
	ExemptTolerate Exemption = "tolerating" // tolerates the mark: the KEP's "can tolerate ForceEviction"
	ExemptDaemon   Exemption = "daemonset"  // a DaemonSet's: CNI, CSI and kube-proxy must run for volumes to detach
)

// Describe says why the pod stays, for a person; "" for no exemption.
func (e Exemption) Describe() string {
	switch e {
	case ExemptStatic:
		return "static pod: it belongs to the node"
	case ExemptTolerate:
		return "tolerates the mark"
	case ExemptDaemon:
		return "pod of a DaemonSet"
	default:
		return ""
	}
}

// Annotations a kubelet writes on static pods and their mirrors (k8s.io/kubernetes/pkg/kubelet/types).
const (
	configSourceAnnotation = "kubernetes.io/config.source"
	configMirrorAnnotation = "kubernetes.io/config.mirror"
)

// ExemptionOf returns why the pod is exempt from the mark with the key. It is the one rule that the taint manager and
// the node's hook share (invariant 9). The pod may be stripped to annotations, owner references and tolerations.
//
// A toleration counts if it matches the key with operator Exists (or has operator Exists and no key) and effect "",
// NoSchedule, NoExecute or ForceEviction, and sets no tolerationSeconds. The toleration of static pods, Exists with
// NoExecute, is one. The KEP's own form also counts: the key, operator Equal, value "true" or "", effect "", NoSchedule
// or ForceEviction. Any other value does not count: the mark's value is a fence's id, which no pod can know.
func ExemptionOf(pod *corev1.Pod, key string) Exemption {
	switch {
	case isStatic(pod):
		return ExemptStatic
	case toleratesMark(pod.Spec.Tolerations, key):
		return ExemptTolerate
	case isDaemon(pod):
		return ExemptDaemon
	default:
		return NotExempt
	}
}

func isStatic(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[configMirrorAnnotation]; mirror {
		return true
	}
	src, ok := pod.Annotations[configSourceAnnotation]
	return ok && src != "api"
}

func toleratesMark(ts []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(ts, func(t corev1.Toleration) bool {
		exists := t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == key)
		equal := (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && t.Key == key &&
			(t.Value == "" || t.Value == "true")
		if t.TolerationSeconds != nil || !exists && !equal {
			return false
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, EffectForceEviction:
			return true
		case corev1.TaintEffectNoExecute:
			return exists
		default:
			return false
		}
	})
}

func isDaemon(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == "DaemonSet" && strings.HasPrefix(ref.APIVersion, "apps/")
}
