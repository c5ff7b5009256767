// Command build builds the programs that its arguments name, such as kubelet or runc, if they are not there yet, and
// prints the folder of each kind; without arguments it builds the control plane that tests and the demo start. The
// repository's own programs, forcefence and demo, go into bin.
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
	folders, err := binaries.BuildAll(ctx, names, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, folder := range folders {
		fmt.Println(folder)
	}
	return 0
}
