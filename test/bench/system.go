package main

import "context"

// system is what brings back the pods of a node whose machine has lost its power.
type system struct {
	name string
	ours bool // forcefence runs; else it is frozen

	// act is what is done by hand; nil: nothing is. It begins when the Lease is stale, which is no later than
	// forcefence could begin.
	act func(ctx context.Context, l *lab, node string) error
}

var (
	forcefence = system{name: "forcefence", ours: true}
	floor      = system{name: "floor", act: evictByLoop}
)

func evictByLoop(ctx context.Context, l *lab, node string) error {
	return loop{l.floor}.evict(ctx, node)
}
