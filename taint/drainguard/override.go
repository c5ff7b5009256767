package drainguard

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/taint/drainguard/drain"
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
	k.warnOnce(ctx, "", what, err)
	if err != nil && !apierrors.IsForbidden(err) {
		k.retry = true
		return k.overrides != nil // those of before end at their times
	}
	read := drain.ParseOverrides(data)
	for node, o := range read {
		if k.overrides[node] != o {
			k.Log.Info("An operator set a drain policy", "node", node, "policy", o.String())
		}
	}
	for node := range k.overrides {
		if _, still := read[node]; !still {
			k.Log.Info("An operator removed a drain policy", "node", node)
		}
	}
	k.overrides, k.overridesRead, k.overridesEnd = read, now, read.NextEnd(now)
	return true
}

// overrideEnded reports whether one of the operators' policies has ended since they were read.
func (k *Controller) overrideEnded() bool {
	return !k.overridesEnd.IsZero() && !k.Now().Before(k.overridesEnd)
}
