//go:build linux

// Command init is PID 1 of a lab's node. It puts together a root that looks like a real node's inside, runs containerd
// and the kubelet as systemd would, and reaps orphans. It does what a lab tells it over the socket of package wire, and
// ends the node when that socket closes. In containers it is a hook that hands the boot id down. It is useless outside
// the namespaces that a lab makes for it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/forcefence/forcefence/test/nodes/wire"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1) // and the kernel ends everything in the node
	}
}

func run() error {
	if len(os.Args) == 2 && os.Args[1] == wire.ContainerHook {
		return container()
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("process %d: a node's init is process 1", os.Getpid())
	}
	socket := os.NewFile(wire.Socket, "lab")
	in, out := json.NewDecoder(socket), json.NewEncoder(socket)
	var boot wire.Boot
	if err := in.Decode(&boot); err != nil {
		return fmt.Errorf("reading boot: %w", err)
	}
	if err := build(boot); err != nil {
		err = fmt.Errorf("building root: %w", err)
		_ = out.Encode(wire.Answer{Err: err.Error()}) // the lab may be gone
		return err
	}
	if err := out.Encode(wire.Answer{}); err != nil {
		return fmt.Errorf("answering: %w", err)
	}
	m, err := newManager(boot)
	if err != nil {
		return err
	}
	for {
		var req wire.Request
		if err := in.Decode(&req); err != nil {
			return fmt.Errorf("reading request: %w", err)
		}
		if err := out.Encode(m.do(req)); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
}
