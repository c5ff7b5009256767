//go:build !linux

package integration

import "os/exec"

// spawn starts a child; without Pdeathsig it outlives a test process that is killed.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
