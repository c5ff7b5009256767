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
	"regexp"
	"slices"
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
// 0 on success, 1 for an error, and 2 for a wrong command line (usageError). SIGINT and SIGTERM end the command's
// context.
func run(args []string, types providers.Registry, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a command that does not heed the first, such as one that reads
	root := newRoot(types)
	root.SetArgs(args)
	root.SetOut(newScreen(stdout))
	root.SetErr(newScreen(stderr))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error: "+nameCommands(root, describeError(cmd, err)))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
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
		Use:         "forcefence",
		Short:       "Recover the workloads of dead Kubernetes nodes, once their machines are proven off",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: programName(os.Args[0])},
		Version:     version.String(),
		// run prints the errors. A usage text below an error would hide it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A word that is no command comes before its flags, which nothing knows.
		if words := cmd.Flags().Args(); len(cmd.Commands()) > 0 && len(words) > 0 {
			return unknownCommand(cmd, words[0])
		}
		return usageError{fmt.Errorf("%w. `%s --help` lists the flags", err, cmd.CommandPath())}
	})
	root.SetHelpCommand(newHelp())
	devices := func() *sessionFlags { return &sessionFlags{types: types} }
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{
			"look",
			"Look:",
			[]*cobra.Command{
				newStatus(types),
				newCheck(devices()),
				newTimeline(),
				newExplain(devices()),
				newDrill(devices()),
				newRoom(devices()),
				newSupportBundle(),
			},
		},
		{
			"act",
			"Act:",
			[]*cobra.Command{
				newPause(), newResume(), newDrain(), newConfirmOff(types), newRelease(), newPower(devices()),
			},
		},
		{
			"run",
			"Install it:",
			[]*cobra.Command{
				newCheckConfig(types), newDiscover(devices()), newProviders(types), newProof(), newCleanup(),
			},
		},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	hideCommands(root, newRun(types), newProofGuard(), newReplay(), version.Command())
	prepareCommands(root)
	return root
}

// hideCommands adds commands that the main help only names in its last line: a person at work on a cluster needs none
// of them.
func hideCommands(root *cobra.Command, rare ...*cobra.Command) {
	for _, c := range rare {
		c.Hidden = true
		root.AddCommand(c)
	}
	const group = "look" // cobra lists commands without a group, and the help always
	root.SetHelpCommandGroupID(group)
	root.SetCompletionCommandGroupID(group)
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Hidden = true
	}
	template := strings.ReplaceAll(root.UsageTemplate(), `(or .IsAvailableCommand (eq .Name "help"))`,
		".IsAvailableCommand")
	root.SetUsageTemplate(template + `{{if not .HasParent}}
Not listed: run and proof-guard, which the image runs; replay, version, completion and help.
{{end}}`)
}

// nameCommands returns a text in which the program's commands begin with the name by which it was called: in a plugin
// `forcefence release n1` becomes `kubectl forcefence release n1`.
func nameCommands(root *cobra.Command, text string) string {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, regexp.QuoteMeta(c.Name()))
	}
	typed := regexp.MustCompile(`(^|[^/\w-])(?:kubectl )?forcefence (` + strings.Join(names, "|") + `)\b`)
	return typed.ReplaceAllString(text, "${1}"+root.DisplayName()+" ${2}")
}

// printedKind is how names begin that kubectl and this program print with -o name, or that kubectl takes.
var printedKind = regexp.MustCompile(`^(nodes?|provider|fencing\.forcefence\.io|fencings?|fcg)/`)

// trimKinds lets commands take the names that -o name prints.
func trimKinds(args []string) (names []string) {
	for _, a := range args {
		names = append(names, printedKind.ReplaceAllString(a, ""))
	}
	return names
}

// errUsage is what every usageError is.
var errUsage = errors.New("wrong usage")

// usageError reports a wrong command line: a command or a flag that does not exist, or words and values that a command
// refuses before its first request (PreRunE).
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }
func (e usageError) Unwrap() error      { return e.error }

// unknownCommand returns the error for a word that is no command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	if err := renamedTo(cmd, word); err != nil {
		return err
	}
	err := fmt.Errorf("unknown command %q for %q", word, cmd.CommandPath())
	if len(word) < 4 {
		cmd.SuggestionsMinimumDistance = 1 // n1 is a node, and not `power on`
	}
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		return usageError{fmt.Errorf("%w\n\nDid you mean this?\n\t%s", err, strings.Join(like, "\n\t"))}
	}
	return usageError{fmt.Errorf("%w; %s --help lists its commands", err, cmd.CommandPath())}
}

// newHelp returns the command that prints another command's help.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if at, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range at.Commands() {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return usageError{err}
			case len(rest) > 0:
				return unknownCommand(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// excludedFlags matches cobra's error about two flags of which a command takes one.
var excludedFlags = regexp.MustCompile(`\[(\S+) (\S+)\] were all set$`)

// checkUsage returns a PreRunE that refuses flags that exclude each other, and what check refuses, as usageErrors.
func checkUsage(check func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := cmd.ValidateFlagGroups()
		names := trimKinds(args)
		if i := slices.Index(names, ""); i >= 0 && err == nil {
			err = fmt.Errorf("%q has no name", args[i])
		} else if err == nil && check != nil {
			err = check(cmd, names)
		} else if err != nil {
			if m := excludedFlags.FindStringSubmatch(err.Error()); m != nil {
				err = fmt.Errorf("--%s and --%s exclude each other: use one of them", m[1], m[2])
			}
		}
		if err != nil {
			return usageError{err}
		}
		return nil
	}
}

// prepareCommands makes a command and those below it name themselves as they were called, take names as -o name prints
// them, and refuse other words with a text that says what they accept. An error of a command's PreRunE becomes a
// usageError. For a nested command that only has subcommands, cobra would print the help and exit with 0.
func prepareCommands(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		prepareCommands(sub)
	}
	root := cmd.Root()
	cmd.Long, cmd.Example = nameCommands(root, cmd.Long), nameCommands(root, cmd.Example)
	if accepts, runs := cmd.Args, cmd.RunE; cmd.Runnable() {
		cmd.PreRunE = checkUsage(cmd.PreRunE)
		if runs != nil && !strings.Contains(cmd.Use, "FILE") {
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return runs(cmd, trimKinds(args)) }
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if accepts != nil && accepts(cmd, args) != nil {
				return usageError{fmt.Errorf("wrong number of arguments (%d). Usage: %s", len(args), cmd.UseLine())}
			}
			return nil
		}
		return
	}
	cmd.DisableFlagsInUseLine, cmd.SuggestionsMinimumDistance = true, 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
}
