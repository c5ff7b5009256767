package taint_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
)

// Which pods neither the controller nor the node's hook touches.
func ExampleExemptionOf() {
	pod := func(ts ...corev1.Toleration) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Tolerations: ts}}
	}
	minute := int64(60)
	for _, p := range []*corev1.Pod{
		pod(),
		pod(corev1.Toleration{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}),
		pod(corev1.Toleration{Operator: corev1.TolerationOpExists}), // tolerates everything
		pod(corev1.Toleration{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &minute}),
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}},
	} {
		fmt.Printf("%q\n", taint.ExemptionOf(p, taint.DefaultKey))
	}
	// Output:
	// ""
	// "tolerating"
	// "tolerating"
	// ""
	// "static"
}

// How a controller distinguishes its own mark from a person's: it only ever removes its own.
func ExampleFindMark() {
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	}}}
	node.Spec.Taints = taint.WithMark(node.Spec.Taints, taint.DefaultKey, "f-1",
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	mark, ok := taint.FindMark(node, taint.DefaultKey, "f-1")
	fmt.Println(mark.Value, mark.Effect, ok)

	fmt.Println(len(taint.WithoutMark(node.Spec.Taints, taint.DefaultKey, "f-2")),
		"taints without another fence's mark")
	fmt.Println(len(taint.WithoutMark(node.Spec.Taints, taint.DefaultKey, "f-1")), "taint without ours")
	// Output:
	// f-1 NoSchedule true
	// 2 taints without another fence's mark
	// 1 taint without ours
}

// How a program other than forcefence learns how far a fence has come.
func ExampleRecordOf() {
	node := &corev1.Node{}
	r, err := taint.RecordOf(node)
	fmt.Println("fenced:", r.IsOpen(), err)

	rec := taint.Record{ID: "f-1", NodeUID: "7c1e", By: "forcefence-0"}
	rec = rec.EnterPhase(taint.PhaseEvicting, "", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	node.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
	r, err = taint.RecordOf(node)
	fmt.Println("fenced:", r.IsOpen(), r.ID, r.Phase, err)
	// Output:
	// fenced: false <nil>
	// fenced: true f-1 Evicting <nil>
}
