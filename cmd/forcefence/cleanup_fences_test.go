package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view/check"
	"github.com/forcefence/forcefence/test/kit"
)

var fenceKind = schema.GroupVersionKind{Group: "csiaddons.openshift.io", Version: "v1alpha1", Kind: "NetworkFence"}

// storageFence returns a NetworkFence of forcefence with the storage's answer.
func storageFence(name, state, answer string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"fenceState": state, "cidrs": []any{"192.0.2.7/32"}},
		"status": map[string]any{"result": "Succeeded", "message": answer},
	}}
	o.SetGroupVersionKind(fenceKind)
	o.SetName(name)
	o.SetLabels(map[string]string{"forcefence.io/node-uid": "u"})
	o.SetAnnotations(map[string]string{"forcefence.io/node": "n1"})
	return o
}

// ownScheme returns a scheme that the fake client may add kinds to: clients of other tests read the shared one.
func ownScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	kit.Must(t, scheme.AddToScheme(s))
	return s
}

// TestCleanupStorageFences: cleanup deletes NetworkFences of forcefence that have let their addresses in, and refuses
// while another one may shut them out.
func TestCleanupStorageFences(t *testing.T) {
	const in, out = "unfencing operation successful", "fencing operation successful"
	const refused = "1 NetworkFence may shut"
	theirs := storageFence("theirs", "Fenced", out)
	theirs.SetLabels(nil)
	for _, tc := range []struct {
		name    string
		objects []client.Object
		force   bool
		refused string // part of the error
		left    []string
	}{
		{"let in", []client.Object{storageFence("f", "Unfenced", in)}, false, "", nil},
		{"another author's", []client.Object{theirs}, false, "", []string{"theirs"}},
		{"it shuts out", []client.Object{storageFence("f", "Fenced", out)}, false, refused, []string{"f"}},
		{"the storage has not answered", []client.Object{storageFence("f", "Unfenced", out)}, false, refused,
			[]string{"f"}},
		{"by force", []client.Object{storageFence("e", "Unfenced", in), storageFence("f", "Fenced", out)}, true, "",
			[]string{"f"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(ownScheme(t)).WithObjects(tc.objects...).Build()
			var printed bytes.Buffer
			o := cleanup{client: c, out: &printed, key: taint.DefaultKey, yes: true, force: tc.force}
			err := o.removeLeftovers(t.Context())
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got %v, want %q\n%s", err, tc.refused, &printed)
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(fenceKind)
			kit.Must(t, c.List(t.Context(), list))
			var left []string
			for _, f := range list.Items {
				left = append(left, f.GetName())
			}
			if !slices.Equal(left, tc.left) {
				t.Errorf("left: got %v, want %v", left, tc.left)
			}
		})
	}
}

// TestNoStorageFences: a cluster without CSI-Addons has none of them to clean.
func TestNoStorageFences(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(ownScheme(t)).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, is := list.(*unstructured.UnstructuredList); is {
				return fmt.Errorf("reading: %w", &meta.NoKindMatchError{GroupKind: fenceKind.GroupKind()})
			}
			return c.List(ctx, list, o...)
		}})
	o := cleanup{client: c, out: &bytes.Buffer{}, key: taint.DefaultKey, yes: true}
	if err := o.removeLeftovers(t.Context()); err != nil {
		t.Errorf("cleanup: got %v", err)
	}
}

// TestCheckStorageFences: check and cleanup --check name a NetworkFence whose Node is gone, and another author's not.
// An uninstall is refused while one may shut out.
func TestCheckStorageFences(t *testing.T) {
	theirs := storageFence("theirs", "Fenced", "")
	theirs.SetLabels(nil)
	gone := storageFence("f", "Fenced", "")
	const want = "networkfences.csiaddons.openshift.io f of node n1 is in force, and its Node was deleted"
	got, _ := checkIn(t, []client.Object{theirs, gone}, nil)
	if !strings.Contains(got, want) || strings.Contains(got, "theirs") {
		t.Errorf("got:\n%s", got)
	}
	for _, refused := range []bool{true, false} {
		objects := []client.Object{theirs.DeepCopy()}
		if refused {
			objects = append(objects, gone.DeepCopy())
		}
		var out bytes.Buffer
		o := cleanup{client: fake.NewClientBuilder().WithScheme(ownScheme(t)).WithObjects(objects...).Build(),
			out: &out, key: taint.DefaultKey}
		err := o.checkUninstall(t.Context(), "somewhere")
		if errors.Is(err, errStillNeeded) != refused || strings.Contains(out.String(), want) != refused ||
			strings.Contains(out.String(), "theirs") {
			t.Errorf("refused %t: got %v:\n%s", refused, err, &out)
		}
	}
}

// A user who may not list NetworkFences learns so only where a policy needs them.
func TestCheckStorageFencesForbidden(t *testing.T) {
	denied := interceptor.NewClient(fake.NewClientBuilder().WithScheme(ownScheme(t)).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Group == fenceKind.Group {
				of := schema.GroupResource{Group: fenceKind.Group, Resource: "networkfences"}
				return apierrors.NewForbidden(of, "", nil)
			}
			return c.List(ctx, list, o...)
		}})
	for needed, want := range map[bool]int{false: 0, true: 1} {
		var f check.Facts
		o := checker{client: denied, key: taint.DefaultKey, fencesStorage: needed}
		if o.readOrders(t.Context(), &f); len(f.Unknown) != want {
			t.Errorf("a policy needs them: %t: got %v, want %d", needed, f.Unknown, want)
		}
	}
}
