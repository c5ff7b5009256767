//go:build !linux

package fenceagent

import "syscall"

// What a keeper is on Linux; elsewhere an agent's children cannot be found, and none is started.
const (
	keeperName  = ""
	keeperPath  = "/nonexistent/fence-agents-run-on-Linux-only"
	codeBase    = 64
	codeNoStart = 63
)

var keeperAttr *syscall.SysProcAttr

func checkSandbox() error { return nil }
