// Command forcefence is the controller that fences dead Kubernetes nodes, and the operator's commands on it: one file
// per command. Every command returns an error; run prints it and turns it into the exit status.
package main

import (
	"context"
	"errors"
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

// run executes one command line and returns the exit status after everything that it started has stopped. The status is
// 0 on success, 1 for an error, and 2 for a command that does not exist. SIGINT and SIGTERM end the command's context.
func run(args []string, types providers.Registry, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(types)
	root.SetArgs(args)
	root.SetOut(newScreen(stdout))
	root.SetErr(newScreen(stderr))
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		fmt.Fprintln(root.ErrOrStderr(), err)
		if text := adviceFor(cmd, err); text != "" {
			fmt.Fprintln(root.ErrOrStderr(), text)
		}
		if errors.Is(err, errNoCommand) {
			return 2
		}
		return 1
	}
	return 0
}

// programName returns the name by which a person called the program. kubectl runs a file kubectl-forcefence as `kubectl
// forcefence`.
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
		// run prints the errors. A usage text below an error would hide it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	devices := func() *sessionFlags { return &sessionFlags{types: types} }
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{
			"look",
			"Look:",
			[]*cobra.Command{
				newStatus(),
				newTimeline(),
				newExplain(devices()),
				newReplay(types),
				newDrill(devices()),
				newDrainStatus(),
				newSupportBundle(),
			},
		},
		{
			"act",
			"Act:",
			[]*cobra.Command{
				newPause(), newResume(), newDrainPolicy(), newConfirmOff(), newRelease(), newPower(devices()),
			},
		},
		{
			"run",
			"Install and run it:",
			[]*cobra.Command{newRun(types), newCheckConfig(types), newProviders(types), newCleanup()},
		},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(version.Command())
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
	return root
}

// errNoCommand reports that the command line names a command that does not exist.
var errNoCommand = errors.New("unknown command")

// refuseUnknown makes commands that only have subcommands refuse any other word. cobra does so only for the root. For a
// nested command it prints the help and exits with 0.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.DisableFlagsInUseLine, cmd.SuggestionsMinimumDistance = true, 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := fmt.Errorf("%w %q for %q", errNoCommand, args[0], cmd.CommandPath())
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			return fmt.Errorf("%w\n\nDid you mean this?\n\t%s", err, strings.Join(like, "\n\t"))
		}
		return fmt.Errorf("%w; %s --help lists its commands", err, cmd.CommandPath())
	}
}
