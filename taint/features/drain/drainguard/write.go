package drainguard

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// carryOut does one act. A conflict, or an object that is gone, is no error: the next pass decides again.
func (k *Controller) carryOut(ctx context.Context, g Guarded, node string, a drain.Act) error {
	if err := k.Leading(); err != nil {
		return fmt.Errorf("%s: %w", a.Do, err)
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var err error
	switch a.Do {
	case drain.Protect:
		err = k.Client.Create(ctx, g.BudgetFor(a.Pod))
		if apierrors.IsAlreadyExists(err) {
			// created a moment ago: the next pass sees whose it is, and which pods it selects
			return nil
		}
	case drain.Restore:
		made := g.BudgetFor(a.Pod)
		made.UID, made.ResourceVersion = types.UID(a.Budget.UID), a.Budget.ResourceVersion
		made.Name = a.Budget.Name
		err = k.Client.Update(ctx, made)
	case drain.DeleteBudget:
		uid := types.UID(a.Budget.UID)
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Budget.Namespace, Name: a.Budget.Name},
		}
		err = k.Client.Delete(ctx, budget, client.Preconditions{UID: &uid, ResourceVersion: &a.Budget.ResourceVersion})
	case drain.RequestEviction, drain.CancelEviction:
		return k.writeEviction(ctx, g, node, a)
	default:
		return fmt.Errorf("unknown act %d", a.Do)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		k.wakeUp()
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: pod %s/%s, PodDisruptionBudget %q: %w", a.Do, a.Pod.Namespace, a.Pod.Name,
			a.Budget.Name, err)
	}
	k.Log.Info("Drain guard acted",
		"guard", g.Name, "node", node, "did", a.Do.String(), "pod", a.Pod.Name, "budget", a.Budget.Name)
	return nil
}

// errNoEviction says that the adapter does not define how an eviction is requested.
var errNoEviction = errors.New("the storage adapter does not define replica.evict and replica.keep")

// writeEviction requests a replica's eviction, or cancels our request. It sends the Event and counts it.
func (k *Controller) writeEviction(ctx context.Context, g Guarded, node string, a drain.Act) error {
	patch, can := storage.NewState(g.Adapter).EvictionPatch(a.Replica, a.Do == drain.RequestEviction)
	if !can {
		return errNoEviction
	}
	now, err := resourceClient(k.Dynamic, patch).Patch(ctx, patch.Name, types.MergePatchType, patch.Data,
		metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		k.wakeUp()
		return nil
	case err != nil:
		return fmt.Errorf("%s replica %s/%s: %w", a.Do, a.Replica.Namespace, a.Replica.Name, err)
	}
	k.Log.Info("Drain guard acted",
		"guard", g.Name, "node", node, "did", a.Do.String(), "replica", a.Replica.Name, "volume", a.Replica.Volume)
	why, result := reason.EvictionAutomatic, "asked"
	if a.Do == drain.CancelEviction {
		why, result = reason.EvictionCanceled, "taken_back"
		if !a.Replica.Evicting { // another client canceled it before
			return nil
		}
	}
	k.Metrics.evictions.WithLabelValues(g.Name, result).Inc()
	k.sendEvent(now, &corev1.Node{TypeMeta: nodeType, ObjectMeta: metav1.ObjectMeta{Name: node}}, why, "Evict",
		"{node}", node, "{detail}", a.Replica.Volume, "{by}", g.Name)
	return nil
}

var nodeType = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
