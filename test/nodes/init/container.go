//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	bootIDFile = "/proc/sys/kernel/random/boot_id"
	ownFolder  = "/run/node" // the files that lie over others
)

// container is an OCI hook, createContainer: it gives a container, whose /proc is a new one, the node's boot id. On a
// real machine that comes by itself. It runs in the container's namespaces, and its root is still the node's.
func container() error {
	var state struct {
		Bundle string `json:"bundle"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&state); err != nil {
		return fmt.Errorf("reading state: %w", err)
	}
	target := filepath.Join(state.Bundle, "rootfs", bootIDFile)
	if _, err := os.Stat(target); err != nil {
		return nil // a container without /proc
	}
	return mount(own(bootIDFile), target, "", syscall.MS_BIND, "")
}
