package drainguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// delegatePolicy sets the storage system's setting to the guard's policy, unless another client chose another value.
func (k *Controller) delegatePolicy(ctx context.Context, g Guarded) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	const what = "Cannot read or write a storage system's drain policy"
	api := k.Dynamic.Resource(g.Setting.Resource).Namespace(g.Setting.Namespace)
	o, err := api.Get(ctx, g.Setting.Name, metav1.GetOptions{})
	s := drain.Setting{Exists: err == nil}
	switch {
	case err == nil:
		s.Value, _, _ = unstructured.NestedString(o.Object, "value")
		s.Ours = o.GetAnnotations()[taint.DelegatedAnnotation]
	case !apierrors.IsNotFound(err):
		k.retry = true
		k.warnOnce(ctx, g.Name, what, err)
		return
	}
	now := drain.DecideDelegation(g.Policy, s, g.Setting.Default)
	held := 0.0
	switch {
	case now.Write && (!k.MayBegin(&corev1.Node{}) || k.leftAlone(ctx, "")):
	case now.Write:
		k.retry = true
		err = k.writeSetting(ctx, g, o)
		if err == nil {
			held = 1
			k.Log.Info("Set a storage system's drain policy",
				"guard", g.Name, "was", s.Value, "policy", string(g.Policy))
			k.sendEvent(o, nil, reason.DrainPolicySet, "Delegate",
				"{by}", g.Name, "{detail}", fmt.Sprintf("%s, was %q", g.Policy, s.Value))
		}
	case now.Conflict != "":
		err = errors.New(now.Conflict)
		if s.Exists && k.warned[g.Name+"\n"+what] != now.Conflict {
			k.sendEvent(o, nil, reason.DrainPolicyConflict, "Delegate", "{by}", g.Name, "{detail}", now.Conflict)
		}
	default:
		held, err = 1, nil
	}
	k.Metrics.delegated.WithLabelValues(g.Name).Set(held)
	k.warnOnce(ctx, g.Name, what, err)
}

// writeSetting writes the policy and the annotation that marks it as ours.
func (k *Controller) writeSetting(ctx context.Context, g Guarded, o *unstructured.Unstructured) error {
	if err := k.Leading(); err != nil {
		return fmt.Errorf("setting drain policy: %w", err)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(),
			"annotations": map[string]string{taint.DelegatedAnnotation: string(g.Policy)},
		},
		"value": string(g.Policy),
	})
	if err != nil {
		return fmt.Errorf("setting drain policy: %w", err)
	}
	_, err = k.Dynamic.Resource(g.Setting.Resource).Namespace(g.Setting.Namespace).
		Patch(ctx, g.Setting.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("setting drain policy: %w", err)
	}
	return nil
}
