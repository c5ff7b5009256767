package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/test/peers"
)

// system is what brings back the pods of a node whose machine has lost its power.
type system struct {
	name string
	ours bool   // forcefence runs; else it is frozen
	peer string // of package peers, that runs; "": none does

	// act is what is done by hand; nil: nothing is. It begins when the Lease is stale, which is no later than
	// forcefence could begin, or, with onNotReady, when the node is NotReady.
	act        func(ctx context.Context, l *lab, node string) error
	onNotReady bool
	undo       func(ctx context.Context, l *lab, node string) error // before the machine boots; nil: nothing is to undo

	// limit ends the wait for the pods. If some do not run by then, that is the turn's outcome. 0: it is an error,
	// after patience.
	limit time.Duration
	once  bool          // one turn says enough, at the stock rate
	after time.Duration // how long a turn goes on after that, for what is deleted late
}

var (
	forcefence = system{name: "forcefence", ours: true}
	floor      = system{name: "floor", act: evictByLoop}
	bareLoop   = system{name: "bare loop", act: evictByLoop, onNotReady: true}

	outOfService = system{name: "out-of-service taint", act: setOutOfService, onNotReady: true,
		undo: removeOutOfService}
	stockAlone = system{name: "Kubernetes alone", limit: 6 * time.Minute, once: true}

	farTaint    = system{name: "NHC and FAR, OutOfServiceTaint", peer: peers.FARTaint}
	farDeletion = system{name: "NHC and FAR, ResourceDeletion", peer: peers.FARDeletion, limit: 8 * time.Minute,
		once: true}
	// Package peers runs the commands of their Jobs' pods.
	fencingFlush = system{name: "kube-fencing, flush", peer: peers.KubeFencing}
	fencingTaint = system{name: "kube-fencing, taint", peer: peers.KubeFencingTaint}

	selfNodes = system{name: "NHC and SNR", peer: peers.SNR, limit: 8 * time.Minute, once: true}
	// Kubernetes deletes the pods after five minutes, Kueue ends them a minute later, and volumes follow after six.
	kueue = system{name: "Kueue's failure recovery", peer: peers.Kueue, limit: 14 * time.Minute, once: true}
)

// compared are the systems of bench peers, in the order of the table. Kubernetes alone leaves pods that are stuck, so
// it comes last.
var compared = []system{forcefence, bareLoop, outOfService, farTaint, fencingFlush, fencingTaint, farDeletion,
	selfNodes, kueue, stockAlone}

func evictByLoop(ctx context.Context, l *lab, node string) error {
	return loop{l.floor}.evict(ctx, node)
}

var outOfServiceTaint = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
	Effect: corev1.TaintEffectNoExecute}

// setOutOfService sets a node's out-of-service taint, as a person would.
func setOutOfService(ctx context.Context, l *lab, node string) error {
	return l.changeTaints(ctx, node, nil, outOfServiceTaint)
}

func removeOutOfService(ctx context.Context, l *lab, node string) error {
	return l.changeTaints(ctx, node, []corev1.Taint{outOfServiceTaint})
}

// changeTaints takes taints off a node, by their keys, and adds others.
func (l *lab) changeTaints(ctx context.Context, node string, off []corev1.Taint, on ...corev1.Taint) error {
	err := loop{l.floor}.patchNode(ctx, node, func(n *corev1.Node) object {
		others := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
			return slices.ContainsFunc(slices.Concat(off, on), func(o corev1.Taint) bool { return o.Key == t.Key })
		})
		return object{"spec": object{"taints": append(others, on...)}}
	})
	if err != nil {
		return fmt.Errorf("taints of %s: %w", node, err)
	}
	return nil
}
