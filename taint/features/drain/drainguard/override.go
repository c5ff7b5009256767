package drainguard

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/kube"
)

// refreshOverrides reads the operators' policies for nodes, at most once per resync. It returns false if they are not
// known: then a pass must decide nothing, because a policy that was not read may protect more than the configuration's.
func (k *Controller) refreshOverrides(ctx context.Context) bool {
	const what = "Cannot read the policies of nodes"
	now := k.Now()
	if !k.overridesRead.IsZero() && now.Sub(k.overridesRead) < resync {
		return true
	}
	reading, cancel := context.WithTimeout(ctx, kube.Timeout)
	data, err := k.Policies(reading)
	cancel()
	forbidden := apierrors.IsForbidden(err)
	if forbidden {
		err = fmt.Errorf("%w: give the controller that right (Role forcefence-pause); until then policies that were "+
			"read before apply until their times", err)
	}
	k.warnOnce(ctx, "", what, err)
	switch {
	case forbidden && k.overrides == nil: // an installation in which operators set no policies
	case forbidden:
		k.overridesRead, k.overridesEnd = now, k.overrides.NextEnd(now)
		return true
	case err != nil:
		k.retry = true
		return k.overrides != nil // those of before end at their times
	}
	read := drain.ParseOverrides(data)
	for node, o := range read {
		switch {
		case k.overrides[node] == o:
		case o.IsKnown():
			k.Log.Info("An operator set a drain policy", "node", node, "policy", o.String())
		default:
			k.Log.Warn("A drain policy in the ConfigMap forcefence-drain cannot be read; correct or remove it",
				"node", node, "policy", o.String())
		}
	}
	if o := read[drain.AllNodes]; o.Policy == "" || o.IsKnown() {
		k.knownForAll = o
	}
	for node := range k.overrides {
		if _, still := read[node]; !still {
			k.Log.Info("An operator removed a drain policy", "node", node)
		}
	}
	k.overrides, k.overridesRead, k.overridesEnd = read, now, read.NextEnd(now)
	return true
}

// policyToDelegate returns the operators' policy of all nodes for a storage system that carries it out itself; ok is
// false if there is none. Such a system knows no policy that cannot be read: the last known one applies until its time.
func (k *Controller) policyToDelegate() (policy drain.Policy, ok bool) {
	_, o, ok := k.overrides.Find(drain.AllNodes, k.Now())
	if ok && !o.IsKnown() {
		o = k.knownForAll
		ok = o.Policy != "" && !o.IsOver(k.Now())
	}
	return o.Policy, ok
}

// overrideEnded reports whether one of the operators' policies has ended since they were read.
func (k *Controller) overrideEnded() bool {
	return !k.overridesEnd.IsZero() && !k.Now().Before(k.overridesEnd)
}
