// Command build builds the control plane that tests and the demo start, if it is not in the cache yet, and prints its folder.
// Arguments name what to build instead, such as kubelet.
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
	dir, err := binaries.Build(ctx, binaries.Options{Names: os.Args[1:]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(dir)
	return 0
}
