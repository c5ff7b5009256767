package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
)

// sized makes a pod with so many bytes of arguments.
func sized(t *testing.T, c client.Client, bytes int, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sized-", Namespace: "kube-system",
			Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: "nowhere", ServiceAccountName: "writer-test", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "none", Args: []string{strings.Repeat("x", bytes)}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	if err := c.Create(t.Context(), p); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		p.Finalizers = nil
		_ = client.IgnoreNotFound(c.Update(context.Background(), p))
		_ = c.Delete(context.Background(), p, client.GracePeriodSeconds(0))
	})
	return p, nil
}

// A pod that a hostile user made as large as etcd takes it is ended by the small tombstone, which needs less room than
// the whole one and hardly more than a deletion. Where it fits the small spare fits, too: so a tombstone which is still
// on its way to a pod that cannot be spared is refused, and one on its way to a pod that was spared names an old
// resourceVersion.
func TestSmallFormsFit(t *testing.T) {
	c := cluster.Admin(t, shared)
	newPod(t, c) // its account
	w := late{}.writer(c)
	const id, token = "f-0123456789ab", "f-0123456789ab/20260101T000000.000"
	tombstone := func(p action.Pod) error {
		_, err := w.EndPod(t.Context(), p, id)
		return err
	}
	small := func(p action.Pod) error { p.Small = true; return tombstone(p) }
	try := func(bytes int, act func(action.Pod) error) action.WriteResult {
		t.Helper()
		o, err := sized(t, c, bytes)
		if err == nil {
			err = act(SeePod(o, taint.DefaultKey, nil))
		}
		if why := RefusalOf(err); why == action.Accepted || why == action.TooLarge {
			return why
		}
		t.Fatal(err)
		return 0
	}
	fits, most := 1571000, 1573000 // the first fits, the other does not: etcd takes 1.5 MiB
	for fits+1 < most {
		if n := (fits + most) / 2; try(n, small) == action.Accepted {
			fits = n
		} else {
			most = n
		}
	}
	for _, tc := range []struct {
		name  string
		bytes int
		act   func(action.Pod) error
		want  action.WriteResult
	}{
		{"the small tombstone fits", fits, small, action.Accepted},
		{"and no byte more", most, small, action.TooLarge},
		{"the whole tombstone does not", fits, tombstone, action.TooLarge},
		{"the whole spare does not", fits, func(p action.Pod) error { return w.SparePod(t.Context(), p, token) },
			action.TooLarge},
		{"the small spare does", fits,
			func(p action.Pod) error { p.Small = true; return w.SparePod(t.Context(), p, token) }, action.Accepted},
		{"a pod that is a little larger cannot be deleted either", fits + 16,
			func(p action.Pod) error { return w.DeletePod(t.Context(), p) }, action.TooLarge},
	} {
		if got := try(tc.bytes, tc.act); got != tc.want {
			t.Errorf("%s: got %q with %d bytes, want %q", tc.name, got, tc.bytes, tc.want)
		}
	}
}

// Each small spare is a new resourceVersion, and the small tombstone is one to everybody else.
func TestSmallForms(t *testing.T) {
	c := cluster.Admin(t, shared)
	o := newPod(t, c)
	w := late{}.writer(c)
	seen := map[string]bool{o.ResourceVersion: true}
	see := func() action.Pod {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		p := SeePod(o, taint.DefaultKey, nil)
		p.Small = true
		return p
	}
	for range 3 {
		if err := w.SparePod(t.Context(), see(), "f-1/then"); err != nil {
			t.Fatal(err)
		}
		if p := see(); seen[p.ResourceVersion] || p.Terminal || p.Spared != "" {
			t.Errorf("spared: got %+v, want another resourceVersion and nothing else", p)
		}
		seen[o.ResourceVersion] = true
	}
	if _, err := w.EndPod(t.Context(), see(), "f-1"); err != nil {
		t.Fatal(err)
	}
	if p := see(); !p.Tombstone || len(o.Status.Conditions) != 0 || o.Status.Message != "spared" {
		t.Errorf("ended: got status %+v, want phase and reason of a tombstone, the rest as it was", o.Status)
	}
}

// refusals of pod writes, as the API server words them (TestSmallFormsFit has etcd's from a real one).
func TestRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	kind := schema.GroupKind{Kind: "Pod"}
	coded := func(code int32, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: text}}
	}
	long := field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 262144)}
	odd := field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")}
	for _, tc := range []struct {
		err  error
		want action.WriteResult
	}{
		{nil, action.Accepted},
		{apierrors.NewNotFound(pods, "p"), action.Accepted},
		{apierrors.NewConflict(pods, "p", errStale), action.Changed},
		{fmt.Errorf("ending pod: %w", apierrors.NewConflict(pods, "p", errStale)), action.Changed},
		{coded(500, "etcdserver: request is too large"), action.TooLarge},
		{coded(500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097252 vs. "+
			"2097152)"), action.TooLarge},
		{apierrors.NewRequestEntityTooLargeError("limit is 3145728"), action.TooLarge},
		{fmt.Errorf("ending pod: %w", apierrors.NewInvalid(kind, "p", long)), action.TooLarge},
		{apierrors.NewInvalid(kind, "p", odd), action.Denied},
		{apierrors.NewForbidden(pods, "p", errStale), action.Denied},
		{apierrors.NewBadRequest("admission webhook denied the request"), action.Denied},
		{coded(403, "the webhook says: etcdserver: request is too large"), action.Denied},
		{apierrors.NewInternalError(errStale), action.Failed},
		{apierrors.NewTimeoutError("no", 1), action.Failed},
		{apierrors.NewTooManyRequests("no", 1), action.Failed},
		{coded(408, ""), action.Failed},
		{context.DeadlineExceeded, action.Failed},
	} {
		if got := RefusalOf(tc.err); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestCrowded(t *testing.T) {
	for err, want := range map[error]bool{
		apierrors.NewTooManyRequests("no room", 1):                                true,
		apierrors.NewServerTimeout(schema.GroupResource{}, "patch", 0):            true,
		apierrors.NewTimeoutError("late", 0):                                      true,
		apierrors.NewServiceUnavailable("no etcd"):                                true,
		fmt.Errorf("writing pod: %w", context.DeadlineExceeded):                   true,
		fmt.Errorf("writing pod: %w", apierrors.NewTooManyRequests("no room", 1)): true,
		apierrors.NewForbidden(schema.GroupResource{}, "a", nil):                  false,
		apierrors.NewConflict(schema.GroupResource{}, "a", ErrAgain):              false,
		apierrors.NewInternalError(ErrAgain):                                      false,
		ErrLate:                                                                   false,
	} {
		if IsCrowded(err) != want {
			t.Errorf("%v: got %v, want %v", err, !want, want)
		}
	}
	if IsCrowded(nil) {
		t.Error("no error is a crowd")
	}
}
