package drainguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/kube"
)

// sweepAfter is how long a process leads before it removes what guards left that its configuration does not have. The
// configuration of the leader before it may be newer: a ConfigMap takes up to two minutes to reach all of its mounts.
const sweepAfter = 3 * time.Minute

// sweepLeftovers removes what guards left that were removed from the configuration while no controller ran. These are
// our budgets that belong to no guard, and our eviction requests in storage systems without a guard. It does so once
// per process, after sweepAfter, by a live look. What this process may not read was not created with its rights, so it
// is skipped.
func (k *Controller) sweepLeftovers(ctx context.Context, guards []Guarded) {
	if k.firstPass.IsZero() {
		k.firstPass = k.Now()
	}
	if k.swept || k.Now().Sub(k.firstPass) < sweepAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	budgets, err := k.sweepBudgets(ctx, guards)
	requests, also := k.sweepRequests(ctx, guards)
	err = errors.Join(err, also)
	k.warnOnce(ctx, "", "Cannot remove what removed drain guards left", err)
	k.swept = err == nil && budgets+requests == 0 // after an attempt it looks once more
	k.retry = k.retry || !k.swept
}

func (k *Controller) sweepBudgets(ctx context.Context, guards []Guarded) (tried int, _ error) {
	var list policyv1.PodDisruptionBudgetList
	switch err := k.Live.List(ctx, &list, client.HasLabels{taint.DrainGuardLabel}); {
	case apierrors.IsForbidden(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("listing PodDisruptionBudgets live: %w", err)
	}
	kept := map[string]bool{} // by namespace and guard
	for _, g := range guards {
		if g.Setting == nil {
			kept[g.Namespace+"/"+g.Name] = true
		}
	}
	for name, w := range k.watches { // inForce keeps a removed guard until nothing of its budgets is left
		kept[w.g.Namespace+"/"+name] = true
	}
	var errs []error
	for i := range list.Items {
		b := drain.SeeBudget(&list.Items[i])
		if kept[b.Namespace+"/"+b.Guard] || b.Deleting || b.Node == "" ||
			!strings.HasPrefix(b.Name, "forcefence-"+b.Guard+"-") {
			continue
		}
		tried++
		errs = append(errs,
			k.carryOut(ctx, Guarded{Guard: drain.Guard{Name: b.Guard}}, b.Node,
				drain.Act{Do: drain.DeleteBudget, Budget: b}))
	}
	return tried, errors.Join(errs...)
}

func (k *Controller) sweepRequests(ctx context.Context, guards []Guarded) (tried int, _ error) {
	guarded := map[string]bool{}
	for _, g := range guards {
		if g.Setting == nil && g.Adapter != nil {
			guarded[g.Adapter.Name] = true
		}
	}
	for _, w := range k.watches {
		guarded[w.g.Adapter.Name] = true
	}
	var errs []error
	for _, a := range k.Adapters() {
		if guarded[a.Name] {
			continue
		}
		system, err := readSystem(ctx, k.Dynamic, a)
		if err != nil {
			if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				errs = append(errs, err)
			}
			continue
		}
		// A guard with AlwaysAllow holds nothing up, so it wants no eviction: DecideNode cancels all requests.
		g := Guarded{Guard: drain.Guard{Name: a.Name, Policy: drain.AlwaysAllow}, Adapter: a}
		for _, node := range system.NodesWithRequests() {
			for _, act := range drain.DecideNode(drain.View{Guard: g.Guard, Storage: system}, node).Acts {
				tried++
				errs = append(errs, k.carryOut(ctx, g, node, act))
			}
		}
	}
	return tried, errors.Join(errs...)
}
