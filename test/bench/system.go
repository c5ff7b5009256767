package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// system is what brings back the pods of a node whose machine has lost its power.
type system struct {
	name string
	ours bool // forcefence runs; else it is frozen

	// act is what is done by hand; nil: nothing is. It begins when the Lease is stale, which is no later than
	// forcefence could begin, or, with onNotReady, when the node is NotReady.
	act        func(ctx context.Context, l *lab, node string) error
	onNotReady bool
	undo       func(ctx context.Context, l *lab, node string) error // before the machine boots; nil: nothing is to undo

	// limit ends the wait for the pods. If some do not run by then, that is the turn's outcome. 0: it is an error,
	// after patience.
	limit time.Duration
	after time.Duration // how long a turn goes on after that, for what is deleted late
}

var (
	forcefence = system{name: "forcefence", ours: true}
	floor      = system{name: "floor", act: evictByLoop}
	bareLoop   = system{name: "bare loop", act: evictByLoop, onNotReady: true}

	outOfService = system{name: "out-of-service taint", act: setOutOfService, onNotReady: true,
		undo: removeOutOfService}
	stockAlone = system{name: "Kubernetes alone", limit: 6 * time.Minute}
)

func evictByLoop(ctx context.Context, l *lab, node string) error {
	return loop{l.floor}.evict(ctx, node)
}

// setOutOfService sets a node's out-of-service taint, as a person would.
func setOutOfService(ctx context.Context, l *lab, node string) error {
	return l.changeOutOfService(ctx, node, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
		Effect: corev1.TaintEffectNoExecute})
}

func removeOutOfService(ctx context.Context, l *lab, node string) error {
	return l.changeOutOfService(ctx, node)
}

// changeOutOfService gives a node these taints in place of its out-of-service taint.
func (l *lab) changeOutOfService(ctx context.Context, node string, taints ...corev1.Taint) error {
	err := loop{l.floor}.patchNode(ctx, node, func(n *corev1.Node) object {
		others := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeOutOfService
		})
		return object{"spec": object{"taints": append(others, taints...)}}
	})
	if err != nil {
		return fmt.Errorf("out-of-service on %s: %w", node, err)
	}
	return nil
}
