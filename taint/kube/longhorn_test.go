package kube

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// settings is an API server with Longhorn's settings in it.
type settings struct {
	client.Reader
	meta.RESTMapper
	unmapped error // what discovery says
	value    any
	err      error
	asked    string
}

func (s *settings) RESTMapping(gk schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{GroupVersionKind: gk.WithVersion("v7")}, s.unmapped
}

func (s *settings) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.asked = o.GetObjectKind().GroupVersionKind().String() + " " + key.String()
	o.(*unstructured.Unstructured).Object["value"] = s.value
	return s.err
}

// Longhorn's own setting counts unless it says do-nothing or is not there. What cannot be read may say anything.
func TestLonghornDeletes(t *testing.T) {
	gr := schema.GroupResource{Group: "longhorn.io", Resource: "settings"}
	const at, unread = "Longhorn's own setting node-down-pod-deletion-policy ", "cannot be read "
	stale := apiutil.ErrResourceDiscoveryFailed{{Group: "longhorn.io", Version: "v1"}: apierrors.NewNotFound(gr, "")}
	for _, tc := range []struct {
		name string
		s    settings
		want string
	}{
		{"do-nothing", settings{value: "do-nothing"}, ""},
		{"another value", settings{value: "delete-statefulset-pod"}, at + `is "delete-statefulset-pod"`},
		{"a value of one data engine", settings{value: `{"v1":"do-nothing"}`}, at + `is "{\"v1\":\"do-nothing\"}"`},
		{"no value", settings{value: ""}, at + `is ""`},
		{"a value that is no text", settings{value: int64(1)}, at + unread + "(no answer)"},
		{"no CRD", settings{unmapped: &meta.NoKindMatchError{}}, ""},
		{"discovery is broken", settings{unmapped: errors.New("no")}, at + unread + "(no answer)"},
		{"discovery is broken for one version", settings{unmapped: &stale}, at + unread + "(no answer)"},
		{"no setting", settings{err: apierrors.NewNotFound(gr, "x")}, ""},
		{"no such resource any more",
			settings{err: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "", "404 page not found",
				0, true)}, at + unread + "(NotFound)"},
		{"forbidden", settings{err: apierrors.NewForbidden(gr, "x", errors.New("no"))}, at + unread + "(Forbidden)"},
		{"no answer", settings{err: context.DeadlineExceeded}, at + unread + "(no answer)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := LonghornDeletes(t.Context(), &tc.s, &tc.s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			want := "longhorn.io/v7, Kind=Setting longhorn-system/node-down-pod-deletion-policy"
			if tc.s.unmapped == nil && tc.s.asked != want {
				t.Errorf("asked for %s, want %s", tc.s.asked, want)
			}
		})
	}
}
