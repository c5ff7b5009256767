package drainguard

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/features/drain"
)

// inForce returns the guards to keep, in the order of their names. These are the configuration's guards, and removed
// guards (as AlwaysAllow) until nothing of theirs is left. It starts and stops their watches.
func (k *Controller) inForce(ctx context.Context, guards []Guarded) []Guarded {
	all := map[string]Guarded{}
	for name, w := range k.watches {
		gone := w.g
		gone.Policy, gone.LastSeen, gone.removed = drain.AlwaysAllow, nil, true
		all[name] = gone
	}
	for name, w := range k.settingWatches {
		if !slices.ContainsFunc(guards, func(g Guarded) bool { return g.Name == name && g.Setting == w.g.Setting }) {
			w.stop()
			delete(k.settingWatches, name)
		}
	}
	for _, g := range guards {
		if g.Setting != nil && k.settingWatches[g.Name] == nil {
			k.settingWatches[g.Name] = k.watchSetting(ctx, g)
		}
		if w := k.watches[g.Name]; w != nil && (g.Setting != nil || !w.g.HasSamePods(g.Guard)) {
			w.stop()
			delete(k.watches, g.Name)
			k.swept, k.retry = false, true // what it created may be where no watch looks any more
		}
		if w := k.watches[g.Name]; w != nil {
			w.g = g
		} else if g.Setting == nil {
			w, err := k.watchGuard(ctx, g)
			if k.warnOnce(ctx, g.Name, "Cannot watch pods and PodDisruptionBudgets", err); err != nil {
				k.retry = true
				continue
			}
			k.watches[g.Name] = w
		}
		all[g.Name] = g
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Guarded) int { return strings.Compare(a.Name, b.Name) })
}

// keepGuard decides about every node for one guard, carries out the acts, and adds the decisions to decided.
func (k *Controller) keepGuard(ctx context.Context, g Guarded, nodes *corev1.NodeList, decided map[string][]decision) {
	w := k.watches[g.Name]
	blind := func() {
		k.retry = true
		for i := range nodes.Items {
			decided[nodes.Items[i].Name] = append(decided[nodes.Items[i].Name], decision{g: g.Guard, blind: true})
		}
	}
	synced, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	ok := w.cache.WaitForCacheSync(synced)
	cancel()
	if !ok {
		blind()
		return
	}
	v, err := k.readView(ctx, w.cache, g, nodes)
	if k.warnOnce(ctx, g.Name, "Cannot read pods and PodDisruptionBudgets", err); err != nil {
		blind()
		return
	}
	if g.LastSeen != nil {
		v.Storage = g.LastSeen()
	} else if v.Storage, err = readSystem(ctx, k.Dynamic, g.Adapter); err != nil {
		// a removed guard: no watch follows its system
		v.Storage = nil
	}
	v = v.WithIndex()
	names := slices.Sorted(maps.Keys(v.Nodes))
	if v.Storage != nil {
		for _, name := range v.Storage.NodesWithRequests() {
			// a deleted Node's replicas may still have requests of ours
			if _, exists := v.Nodes[name]; !exists {
				names = append(names, name)
			}
		}
	}
	careful, acts := map[string][]drain.Act{}, 0
	var failed []error
	for _, name := range names {
		d := drain.DecideNode(v, name)
		for _, a := range d.Acts {
			if a.Do.CanBePaused() && k.leftAlone(ctx, name) {
				continue
			}
			acts++
			if a.Do.NeedsLiveLook() {
				careful[name] = append(careful[name], a)
			} else if err := k.carryOut(ctx, g, name, a); err != nil {
				failed = append(failed, err)
			}
		}
		decided[name] = append(decided[name], decision{g: g.Guard, d: d})
	}
	left := drain.DecideLeftovers(v)
	for _, name := range slices.Sorted(maps.Keys(careful)) {
		step := func(v drain.View) []drain.Act { return drain.DecideNode(v, name).Acts }
		if err := k.lookAgain(ctx, g, name, step, careful[name]); err != nil {
			failed = append(failed, err)
		}
	}
	if len(left) > 0 {
		if err := k.lookAgain(ctx, g, "", drain.DecideLeftovers, left); err != nil {
			failed = append(failed, err)
		}
	}
	var first error
	if len(failed) > 0 {
		first = failed[0]
		k.wakeUp()
	}
	k.warnOnce(ctx, g.Name, "Cannot carry out all acts", first)
	// the watches see the effects later, and an act that a live look refused may be due soon
	k.retry = k.retry || acts+len(left) > 0
	if !slices.ContainsFunc(k.Guards(), func(o Guarded) bool { return o.Name == g.Name }) {
		if k.retry = true; acts+len(left) == 0 {
			w.stop()
			delete(k.watches, g.Name)
		}
	}
}

// lookAgain looks live, and carries out those of the acts that the live look leads to again. Each deletion of a budget
// needs a look of its own, because it changes whether the next budget may go as well. node is for the log.
func (k *Controller) lookAgain(
	ctx context.Context,
	g Guarded,
	node string,
	step func(drain.View) []drain.Act,
	acts []drain.Act,
) error {
	var v drain.View
	stale := true
	for _, want := range acts {
		if !want.Do.NeedsLiveLook() {
			continue
		}
		if stale {
			var err error
			if v, err = k.readLive(ctx, g); err != nil {
				return err
			}
			stale = false
		}
		for _, a := range step(v) {
			if !a.IsSameAs(want) {
				continue
			}
			if err := k.carryOut(ctx, g, node, a); err != nil {
				return err
			}
			stale = a.Do == drain.DeleteBudget
		}
	}
	return nil
}
