package controller

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/sharing"
)

// meet makes all nodes known before the first is decided on: alone in a fleet that a process does not know yet it would find everybody
// else silent, and an open fence would end for that. It does so again when other limits are in force.
func (r *Reconciler) meet(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	limits := r.Config().Limits
	if r.met && limits == r.limits {
		return nil
	}
	nodes, err := kube.CachedNodes(ctx, r.Cache)
	if err != nil {
		return err
	}
	var impossible []string
	r.across(func(f *fleet.Fleet) {
		f.Limit(limits)
		for _, n := range nodes {
			r.seeNode(f, n)
		}
		impossible = f.Impossible()
	})
	for _, floor := range impossible {
		r.Sinks.Log.Warn("A floor of healthy nodes is above what a power-off can keep: no machine is powered off", "floor", floor)
	}
	r.met, r.limits = true, limits
	return nil
}

// seeNode folds a Node of a watch or a list in.
func (r *Reconciler) seeNode(f *fleet.Fleet, node *corev1.Node) {
	f.See(taint.See(node, nil, r.Key, r.now(), r.now()), r.now())
}

// called notes how a read of ours ended: whatever the API server says itself, it answered. One that many share failed once.
func (r *Reconciler) called(err error) {
	var again sharing.Shared
	if errors.Is(err, context.Canceled) || errors.As(err, &again) {
		return
	}
	var status apierrors.APIStatus
	failed := err != nil && (!errors.As(err, &status) || status.Status().Code >= 500)
	r.across(func(f *fleet.Fleet) { f.Called(failed, r.now()) })
}
