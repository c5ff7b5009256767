package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
)

// nodeLister lists these Nodes, knows no other kind, and panics on any other call.
type nodeLister struct {
	client.Client
	nodes []corev1.Node
}

func (l nodeLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if list, is := list.(*corev1.NodeList); is {
		list.Items = l.nodes
		return nil
	}
	return &meta.NoKindMatchError{}
}

// TestCleanupCheck: an uninstall is refused while a node is marked, has an open fence or the hook; the two commands to
// run first are printed.
func TestCleanupCheck(t *testing.T) {
	node := func(name string, edits ...func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		for _, edit := range edits {
			edit(&n)
		}
		return n
	}
	marked := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: taint.DefaultKey, Value: "manual", Effect: corev1.TaintEffectNoSchedule}}
	}
	fence := func(phase taint.Phase, result taint.Result) func(*corev1.Node) {
		at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
		return func(n *corev1.Node) {
			n.Annotations[taint.RecordAnnotation] = taint.Record{ID: "f-0123456789ab", Phase: phase, Result: result,
				NodeUID: "u", By: "ff", Since: at, At: at}.Encode()
		}
	}
	hook := func(reason string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: taint.ProtectionCondition, Reason: reason}}
		}
	}
	var many []corev1.Node
	for i := range 7 {
		many = append(many, node(fmt.Sprintf("n%d", i), hook(taint.ProtectionFailOpen)))
	}
	for _, tc := range []struct {
		name   string
		nodes  []corev1.Node
		want   string // in the first lines
		refuse bool
	}{
		{"nothing", []corev1.Node{node("n1")}, "No node is marked or has the hook", false},
		{"no hook, and a fence of before", []corev1.Node{node("n1", hook(taint.ProtectionNone),
			fence(taint.PhaseDone, taint.ResultEvicted))}, "No node is marked or has the hook", false},
		{"marked", []corev1.Node{node("n1"), node("n2", marked)},
			"Marked, or with a fence that is not done: n2.\n", true},
		{"an open fence", []corev1.Node{node("n1", fence(taint.PhaseEvicting, ""))},
			"Marked, or with a fence that is not done: n1.\n", true},
		{"the hook", []corev1.Node{node("n1", hook(taint.ProtectionFailClosed))},
			"With the hook on the host: n1.\n", true},
		{"many", many, "With the hook on the host: n0, n1, n2, n3, n4 and 2 more.\n", true},
	} {
		var out bytes.Buffer
		c := cleanup{client: nodeLister{nodes: tc.nodes}, out: &out, key: taint.DefaultKey}
		err := c.checkUninstall(t.Context(), "somewhere")
		if errors.Is(err, errStillNeeded) != tc.refuse || !strings.HasPrefix(out.String(), tc.want) {
			t.Errorf("%s: got %v\n%s\nwant %q, refused: %t", tc.name, err, &out, tc.want, tc.refuse)
		}
		for _, command := range []string{
			"  helm upgrade forcefence CHART --namespace somewhere --reuse-values --wait --set " +
				"controller.replicas=0,hook.uninstall=true\n",
			"  forcefence cleanup --yes\n",
		} {
			if strings.Contains(out.String(), command) != tc.refuse {
				t.Errorf("%s: got\n%s\nwant the command %q in it: %t", tc.name, &out, command, tc.refuse)
			}
		}
	}
}
