// Command forcefence is the controller that fences dead Kubernetes nodes, and the operator's commands on it: one file per
// command. Every command returns an error; run prints it and turns it into the exit status.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

func main() {
	klog.SetLogger(logr.Discard()) // the controller sets another
	os.Exit(run(os.Args[1:], all.Types(), os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit status, 0 or 1, after all it started has stopped. SIGINT and SIGTERM end
// the command's context.
func run(args []string, types providers.Registry, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(types)
	root.SetArgs(args)
	root.SetOut(newScreen(stdout))
	root.SetErr(newScreen(stderr))
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		fmt.Fprintln(root.ErrOrStderr(), err)
		if text := advice(cmd, err); text != "" {
			fmt.Fprintln(root.ErrOrStderr(), text)
		}
		return 1
	}
	return 0
}

// programName is how a person called the program: kubectl runs a file kubectl-forcefence as `kubectl forcefence`.
func programName(file string) string {
	if strings.HasPrefix(filepath.Base(file), "kubectl-") {
		return "kubectl forcefence"
	}
	return "forcefence"
}

func newRoot(types providers.Registry) *cobra.Command {
	root := &cobra.Command{
		Use:   programName(os.Args[0]),
		Short: "Recover the workloads of dead Kubernetes nodes, once their machines are proven off",
		// Errors are printed by run: a usage text below them would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"look", "Look:", []*cobra.Command{newStatus(), newTimeline(), newExplain(types), newReplay(types), newDrill(types), newDrainStatus(), newSupportBundle()}},
		{"act", "Act:", []*cobra.Command{newPause(), newResume(), newConfirmOff(), newRelease(), newPower(types)}},
		{"run", "Install and run it:", []*cobra.Command{newRun(types), newCheckConfig(types), newProviders(types), newCleanup()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(version.Command())
	return root
}
