// Command forcefence-node is the node's side of forcefence: the hook and its installer, with one file per command. The
// container runtime starts the hook as a plugin of NRI, and a DaemonSet runs it beside that. Every command returns an
// error; run prints it and turns it into the exit status.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit status after everything that it started has stopped. SIGINT and
// SIGTERM end the command's context.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var err error
	if len(args) == 0 && nri.StartedByRuntime() {
		err = pluginMain(ctx)
	} else {
		err = root.ExecuteContext(ctx)
	}
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintln(stderr, err)
		return 1
	}
}

// exitStatus is an exit status that a script can read. It is no failure, and nothing is printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "forcefence-node",
		Short: "Hold the pods of a node that may have been fenced, until its mark is gone",
		// run prints the errors. A usage text below an error would hide it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newInstall(), newUninstall(), newStatus(), version.Command())
	return root
}
