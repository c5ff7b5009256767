//go:build !linux

package main

import "context"

// node measures what runs on Linux only.
func node(_ context.Context, r *runner) error {
	r.say("SKIPPED: real nodes need Linux")
	return nil
}
