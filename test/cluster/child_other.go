//go:build unix && !linux

package cluster

import (
	"os/exec"
	"syscall"
)

// childAttr puts a child into its own process group, so that Ctrl-C reaches only us. Without Linux's Pdeathsig a child outlives
// us if we are killed without a chance to call Stop.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func startFromKeeper(cmd *exec.Cmd) error { return cmd.Start() }
