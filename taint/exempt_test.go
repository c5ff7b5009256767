package taint

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExempt(t *testing.T) {
	yes, no, secs := true, false, int64(300)
	annotated := func(kv ...string) *corev1.Pod {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: m}}
	}
	owned := func(refs ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs}}
	}
	tolerating := func(ts ...corev1.Toleration) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Tolerations: ts}}
	}
	const exists, equal = corev1.TolerationOpExists, corev1.TolerationOpEqual
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want Exemption
	}{
		{"ordinary", &corev1.Pod{}, NotExempt},

		{"static from a file", annotated("kubernetes.io/config.source", "file"), ExemptStatic},
		{"static from a URL", annotated("kubernetes.io/config.source", "http"), ExemptStatic},
		{"from the API server", annotated("kubernetes.io/config.source", "api"), NotExempt},
		{"mirror", annotated("kubernetes.io/config.mirror", "8f0e"), ExemptStatic},
		{"mirror without a hash", annotated("kubernetes.io/config.mirror", ""), ExemptStatic},
		{"another annotation", annotated("kubernetes.io/config.hash", "8f0e"), NotExempt},

		{"DaemonSet", owned(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}),
			ExemptDaemon},
		{"DaemonSet of an older version",
			owned(metav1.OwnerReference{APIVersion: "apps/v1beta2", Kind: "DaemonSet", Controller: &yes}),
			ExemptDaemon},
		{"DaemonSet that is not the controller",
			owned(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &no}), NotExempt},
		{"DaemonSet that does not say", owned(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet"}),
			NotExempt},
		{"DaemonSet of another owner",
			owned(metav1.OwnerReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet", Controller: &yes}),
			NotExempt},
		{"DaemonSet in the core group",
			owned(metav1.OwnerReference{APIVersion: "v1", Kind: "DaemonSet", Controller: &yes}), NotExempt},
		{"StatefulSet", owned(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: &yes}),
			NotExempt},
		{"second owner is a DaemonSet", owned(
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap"},
			metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}), ExemptDaemon},

		{"key, any effect", tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists}), ExemptTolerate},
		{"key, NoSchedule",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists, Effect: corev1.TaintEffectNoSchedule}),
			ExemptTolerate},
		{"key, NoExecute",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists, Effect: corev1.TaintEffectNoExecute}),
			ExemptTolerate},
		{"key, PreferNoSchedule",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists,
				Effect: corev1.TaintEffectPreferNoSchedule}), NotExempt},
		{"another key", tolerating(corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: exists}),
			NotExempt},
		{"no key: everything", tolerating(corev1.Toleration{Operator: exists}), ExemptTolerate},
		{"no key, NoExecute: what static pods carry",
			tolerating(corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoExecute}), ExemptTolerate},
		{"no key, NoSchedule", tolerating(corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoSchedule}),
			ExemptTolerate},
		{"no key, PreferNoSchedule",
			tolerating(corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectPreferNoSchedule}), NotExempt},
		{"for a while",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &secs}), NotExempt},
		{"everything, for a while",
			tolerating(corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &secs}), NotExempt},
		{"key, ForceEviction",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: exists, Effect: EffectForceEviction}),
			ExemptTolerate},
		{"the KEP's form", tolerating(corev1.Toleration{Key: DefaultKey, Operator: equal, Value: "true"}),
			ExemptTolerate},
		{"the KEP's form, operator left out",
			tolerating(corev1.Toleration{Key: DefaultKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}),
			ExemptTolerate},
		{"the KEP's form, without a value",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: equal, Effect: EffectForceEviction}),
			ExemptTolerate},
		{"the KEP's form, for a while",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: equal, Value: "true", TolerationSeconds: &secs}),
			NotExempt},
		{"the KEP's form, NoExecute",
			tolerating(corev1.Toleration{Key: DefaultKey, Operator: equal, Value: "true",
				Effect: corev1.TaintEffectNoExecute}), NotExempt},
		{"the KEP's form, another key",
			tolerating(corev1.Toleration{Key: "example.com/off", Operator: equal, Value: "true"}), NotExempt},
		{"the KEP's form, no key", tolerating(corev1.Toleration{Operator: equal, Value: "true"}), NotExempt},
		{"another value", tolerating(corev1.Toleration{Key: DefaultKey, Operator: equal, Value: "false"}), NotExempt},
		{"a fence's id", tolerating(corev1.Toleration{Key: DefaultKey, Value: "f-0123456789ab"}), NotExempt},
		{"an unknown operator", tolerating(corev1.Toleration{Key: DefaultKey, Operator: "Lt"}), NotExempt},
		{"a later one counts", tolerating(
			corev1.Toleration{Key: DefaultKey, Operator: exists, TolerationSeconds: &secs},
			corev1.Toleration{Key: DefaultKey, Operator: exists}), ExemptTolerate},

		{"static comes first", &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
			Spec:       corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: exists}}},
		}, ExemptStatic},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.pod.DeepCopy()
			if got := ExemptionOf(tt.pod, DefaultKey); got != tt.want {
				t.Errorf("Exempt = %q, want %q", got, tt.want)
			}
			unchanged(t, before, tt.pod)
		})
	}
	t.Run("the key is configuration", func(t *testing.T) {
		p := tolerating(corev1.Toleration{Key: "example.com/off", Operator: exists})
		if got := ExemptionOf(p, "example.com/off"); got != ExemptTolerate {
			t.Errorf("Exempt with the configured key = %q, want %q", got, ExemptTolerate)
		}
		if got := ExemptionOf(p, DefaultKey); got != NotExempt {
			t.Errorf("Exempt with another key = %q, want none", got)
		}
	})
}

// Each message of a spared pod differs from the one before it, so that the resourceVersion changes.
func TestSparedMessage(t *testing.T) {
	first := SparedMessage("Evicted")
	second := SparedMessage(first)
	if first == second || SparedMessage(second) != first {
		t.Errorf("got %q, %q and %q, want two that take turns", first, second, SparedMessage(second))
	}
}

func TestTombstone(t *testing.T) {
	for _, tt := range []struct {
		name                string
		phase               corev1.PodPhase
		reason              string
		tombstone, terminal bool
	}{
		{"running", corev1.PodRunning, "", false, false},
		{"pending", corev1.PodPending, "", false, false},
		{"unknown", corev1.PodUnknown, "", false, false},
		{"finished", corev1.PodSucceeded, "", false, true},
		{"failed by itself", corev1.PodFailed, "Evicted", false, true},
		{"fenced", corev1.PodFailed, "NodeFenced", true, true},
		{"finished, with our word", corev1.PodSucceeded, "NodeFenced", false, true},
		{"running, with our word", corev1.PodRunning, "NodeFenced", false, false},
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: tt.phase, Reason: tt.reason}}
		if got := IsTombstone(p); got != tt.tombstone {
			t.Errorf("%s: IsTombstone = %v, want %v", tt.name, got, tt.tombstone)
		}
		if got := IsTerminal(p); got != tt.terminal {
			t.Errorf("%s: IsTerminal = %v, want %v", tt.name, got, tt.terminal)
		}
	}
}
