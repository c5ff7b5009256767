package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/test/kit"
)

// changing returns a client in whose world f happens once, right after the command has read an object like kind.
func changing(objects []client.Object, kind client.Object, f func(client.Client)) client.Client {
	store := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	once := sync.OnceFunc(func() { f(store) })
	return interceptor.NewClient(store, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
			opts ...client.GetOption) error {
			err := c.Get(ctx, key, into, opts...)
			if err == nil && fmt.Sprintf("%T", into) == fmt.Sprintf("%T", kind) {
				once()
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if me, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
				me.Status.UserInfo.Username = "alice"
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
	})
}

// TestResumeEndsThePauseThatItRead holds that resume never ends a pause that it does not name: a person may set another
// one while it runs.
func TestResumeEndsThePauseThatItRead(t *testing.T) {
	ctx := t.Context()
	lease := leaseOf("home")
	pause := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "forcefence-pause"},
		Data:       map[string]string{"reason": "old"}}
	c := changing([]client.Object{lease, pause}, &corev1.ConfigMap{}, func(c client.Client) {
		var cm corev1.ConfigMap
		kit.Must(t, c.Get(ctx, client.ObjectKeyFromObject(pause), &cm))
		cm.Data["reason"] = "new"
		kit.Must(t, c.Update(ctx, &cm))
	})
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: configMapName}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(settings), settings); !apierrors.IsNotFound(err) {
		t.Fatal(err) // the pause is the first ConfigMap that resume finds
	}
	told, err := pauser{client: c, now: time.Now}.removePause(ctx, nil)
	var cm corev1.ConfigMap
	kit.Must(t, c.Get(ctx, client.ObjectKeyFromObject(pause), &cm))
	if !apierrors.IsConflict(err) || cm.Data["reason"] != "new" {
		t.Errorf("a pause that was set again: got %q, %v and %v, want a conflict", told, err, cm.Data)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{
		fence.PausedAnnotation: "old"}}}
	c = changing([]client.Object{node}, node, func(c client.Client) {
		var n corev1.Node
		kit.Must(t, c.Get(ctx, client.ObjectKey{Name: "n1"}, &n))
		n.Annotations[fence.PausedAnnotation] = "new"
		kit.Must(t, c.Update(ctx, &n))
	})
	told, err = pauser{client: c, now: time.Now}.removePause(ctx, []string{"n1"})
	if err != nil || !slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, "new") }) {
		t.Errorf("a node that was paused again: got %q, %v, want the pause that was ended", told, err)
	}
}

// TestConfirmationIsOfTheNodeThatWasRead holds that a person's word is not written on a node that changed meanwhile: it
// may have booted, or joined again.
func TestConfirmationIsOfTheNodeThatWasRead(t *testing.T) {
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
	node.Status.NodeInfo.BootID = "b1"
	c := changing([]client.Object{node}, node, func(c client.Client) {
		var n corev1.Node
		kit.Must(t, c.Get(ctx, client.ObjectKey{Name: "n1"}, &n))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		kit.Must(t, c.Status().Update(ctx, &n))
	})
	_, err := confirmOff(ctx, c, "n1", "unplugged it", time.Now)
	var n corev1.Node
	kit.Must(t, c.Get(ctx, client.ObjectKey{Name: "n1"}, &n))
	if !apierrors.IsConflict(err) || n.Annotations[taint.ConfirmAnnotation] != "" {
		t.Errorf("got %v and annotations %v, want a conflict", err, n.Annotations)
	}
	if _, err := confirmOff(ctx, c, "n1", "unplugged it", time.Now); err == nil ||
		!strings.Contains(err.Error(), "is Ready") {
		t.Errorf("the next time: got %v, want that the node is Ready", err)
	}
}
