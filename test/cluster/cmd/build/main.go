// Command build builds the control plane that tests and the demo start, if it is not in the cache yet, and prints its
// folder. Arguments name what to build instead, such as kubelet or runc; each module's programs have a folder of their
// own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if len(names) == 0 {
		names = binaries.ControlPlane
	}
	groups, err := binaries.Groups(names)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, group := range groups {
		dir, err := binaries.Build(ctx, binaries.Options{Names: group})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(dir)
	}
	return 0
}
