package taint

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exemption says why a pod is neither evicted from a marked node nor held on it. The zero value is no exemption.
type Exemption string

// The exemptions, in the order they are looked for.
const (
	NotExempt      Exemption = ""
	ExemptStatic   Exemption = "static"     // a static pod or its mirror: the API server does not own it
	ExemptTolerate Exemption = "tolerating" // tolerates the mark: the KEP's "can tolerate ForceEviction"
	ExemptDaemon   Exemption = "daemonset"  // owned by a DaemonSet: CNI, CSI and kube-proxy must run for volumes to detach
)

// Annotations a kubelet writes on static pods and their mirrors (k8s.io/kubernetes/pkg/kubelet/types).
const (
	configSourceAnnotation = "kubernetes.io/config.source"
	configMirrorAnnotation = "kubernetes.io/config.mirror"
)

// Exempt is the one rule that the taint manager and the node's hook share (invariant 9). The pod may be stripped to annotations,
// owner references and tolerations.
//
// A toleration counts if it matches the key with operator Exists (or has operator Exists and no key) and effect "", NoSchedule or
// NoExecute, and sets no tolerationSeconds. Operator Equal names a value, and the mark's value is a fence's id that no pod can
// know: it does not count. The toleration of static pods, Exists with NoExecute, is one that does.
func Exempt(pod *corev1.Pod, key string) Exemption {
	switch {
	case isStatic(pod):
		return ExemptStatic
	case tolerates(pod.Spec.Tolerations, key):
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

func tolerates(ts []corev1.Toleration, key string) bool {
	for _, t := range ts {
		if t.Operator != corev1.TolerationOpExists || t.TolerationSeconds != nil || (t.Key != "" && t.Key != key) {
			continue
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:
			return true
		}
	}
	return false
}

func isDaemon(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == "DaemonSet" && strings.HasPrefix(ref.APIVersion, "apps/")
}
