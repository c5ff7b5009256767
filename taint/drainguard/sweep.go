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
	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/taint/kube"
)

// sweepAfter is how long a process leads before it takes away what guards left that its configuration does not have. The configuration of
// the leader before it may be newer: a ConfigMap takes up to two minutes to all of its mounts.
const sweepAfter = 3 * time.Minute

// sweepLeftovers takes away, once, what guards left that were removed from the configuration while nobody ran: budgets of ours that are no
// guard's, and requests of ours for the eviction of replicas whose storage system has no guard. Both by a live look. What this process
// may not read was not made with its rights.
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
	k.warnOnce(ctx, "", "Could not take away what drain guards left that are no more", err)
	k.swept = err == nil && budgets+requests == 0 // what was tried is looked at once more
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
	for name, w := range k.watches { // of a guard that is no more, which pass sees to
		kept[w.g.Namespace+"/"+name] = true
	}
	var errs []error
	for i := range list.Items {
		b := drain.SeeBudget(&list.Items[i])
		if kept[b.Namespace+"/"+b.Guard] || b.Deleting || b.Node == "" || !strings.HasPrefix(b.Name, "forcefence-"+b.Guard+"-") {
			continue
		}
		tried++
		errs = append(errs, k.carryOut(ctx, Guarded{Guard: drain.Guard{Name: b.Guard}}, b.Node, drain.Act{Do: drain.DeleteBudget, Budget: b}))
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
		// A guard that holds nothing up wants nobody asked.
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
