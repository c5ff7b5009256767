// Command forcefence is the controller that fences dead Kubernetes nodes, and the operator's commands on it: one file per
// command. Every command returns an error; run prints it and turns it into the exit status.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

func main() {
	os.Exit(run(os.Args[1:], all.Types(), os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit status, 0 or 1, after all it started has stopped. SIGINT and SIGTERM end
// the command's context.
func run(args []string, types providers.Registry, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(types)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func newRoot(types providers.Registry) *cobra.Command {
	root := &cobra.Command{
		Use:   "forcefence",
		Short: "Recover the workloads of dead Kubernetes nodes, once their machines are proven off",
		// Errors are printed by run: a usage text below them would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(types), newRelease(), newConfirmOff(), newCleanup(), newCheckConfig(types), newProviders(types), newPower(types), newDrill(types), newExplain(types), newDrainStatus(), version.Command())
	return root
}
