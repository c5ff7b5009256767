//go:build unix && !linux

package kit

import "os/exec"

func start(cmd *exec.Cmd) error { return cmd.Start() }
