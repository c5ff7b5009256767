package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/forcefence/forcefence/test/kit"
)

// TestManager: the manager answers each change of a NetworkFence once, by the answers that the faults have for it.
func TestManager(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fenceState": "Fenced"}}}
	o.SetGroupVersionKind(csiAddons.WithKind("NetworkFence"))
	o.SetName("f")
	w := &world{ctx: t.Context(), beside: true, dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), map[schema.GroupVersionResource]string{networkFences: "NetworkFenceList"}, o)}
	var asked []string
	r := &run{w: w, f: &faults{storage: func(n int, state string) []answer {
		asked = append(asked, fmt.Sprint(n, state))
		if n == 0 {
			return []answer{{failed: "no"}, {after: 300 * time.Millisecond}}
		}
		return []answer{{}}
	}}}
	all := w.dynamic.Resource(networkFences)
	go r.manage(t.Context())
	for i, want := range []string{"Failed no", "Succeeded fencing operation successful",
		"Succeeded unfencing operation successful"} {
		if i == 2 {
			_, err := all.Patch(t.Context(), "f", types.MergePatchType, []byte(`{"spec":{"fenceState":"Unfenced"}}`),
				metav1.PatchOptions{})
			kit.Must(t, err)
		}
		kit.Until(t, want, func() bool {
			o, err := all.Get(t.Context(), "f", metav1.GetOptions{})
			kit.Must(t, err)
			status, _, _ := unstructured.NestedStringMap(o.Object, "status")
			return status["result"]+" "+status["message"] == want
		})
	}
	if want := []string{"0Fenced", "1Unfenced"}; !slices.Equal(asked, want) {
		t.Errorf("asked for answers to %q, want %q", asked, want)
	}
}
