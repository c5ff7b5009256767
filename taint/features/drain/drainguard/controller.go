package drainguard

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// resync is how often the loop asks storage systems whether their state has changed, which does not wake it. It is also
// how soon the loop retries what failed or could not be read.
const resync = time.Second

// coalesce is how long one change waits for further changes.
const coalesce = 50 * time.Millisecond

// Start runs passes until ctx ends, and blocks until all watches that it started have ended.
func (k *Controller) Start(ctx context.Context) error {
	inf, err := k.Cache.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	handle, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.wakeUp() }, DeleteFunc: func(any) { k.wakeUp() },
		UpdateFunc: func(before, now any) {
			b, was := before.(*corev1.Node)
			n, is := now.(*corev1.Node)
			if was && is && k.reduceNode(b) != k.reduceNode(n) { // a heartbeat alone needs no pass
				k.wakeUp()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer func() {
		_ = inf.RemoveEventHandler(handle) // an error means that the informer has ended
		for _, w := range k.watches {
			w.stop()
		}
		for _, w := range k.settingWatches {
			w.stop()
		}
	}()
	var last time.Time
	var seen []guardState
	for {
		now := guardStates(k.Guards()) // read before the pass, so that a change during the pass leads to another
		if k.retry || time.Since(last) >= k.fullPassEvery || !slices.Equal(now, seen) || k.overrideEnded() {
			last, seen = time.Now(), now
			k.runPass(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
			k.retry = true
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(coalesce):
			}
		case <-time.After(resync):
		}
	}
}

// guardState is what the loop compares to detect a change of a guard or of its storage system.
type guardState struct {
	guard   string
	policy  drain.Policy
	adapter *storage.Adapter
	setting *Setting
	system  storage.System
	version uint64
}

func guardStates(guards []Guarded) (out []guardState) {
	for _, g := range guards {
		one := guardState{guard: g.Name, policy: g.Policy, adapter: g.Adapter, setting: g.Setting}
		if g.LastSeen != nil {
			if one.system = g.LastSeen(); one.system != nil {
				one.version = one.system.Version()
			}
		}
		out = append(out, one)
	}
	return out
}

// runPass looks at everything once and acts on it.
func (k *Controller) runPass(ctx context.Context) {
	k.retry, k.leftAloneNodes = false, map[string]bool{}
	guards := k.Guards()
	k.sweepLeftovers(ctx, guards)
	if len(guards) == 0 && len(k.watches) == 0 && len(k.annotated) == 0 && k.nodesListed {
		return
	}
	var nodes corev1.NodeList
	err := k.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	if k.warnOnce(ctx, "", "Cannot list nodes", err); err != nil {
		k.retry = true
		return
	}
	k.nodesListed = true
	if len(guards) > 0 && !k.refreshOverrides(ctx) {
		return
	}
	decided := map[string][]decision{}
	for _, g := range k.inForce(ctx, guards) {
		if g.Setting != nil {
			if policy, ok := k.policyToDelegate(); ok { // the setting is the whole cluster's
				g.Policy = policy
			}
			k.delegatePolicy(ctx, g)
			continue
		}
		k.keepGuard(ctx, g, &nodes, decided)
	}
	k.reportDrains(ctx, &nodes, decided)
}
