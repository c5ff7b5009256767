package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/providercheck"
	"github.com/forcefence/forcefence/providers/rest"
)

func newCheckProvider() *cobra.Command {
	return &cobra.Command{
		Use:   "check-provider FILE",
		Short: "Check a description of a device family or a storage system",
		Long: `Check a description of a device family, which an item of providers with the type
rest names, or of a storage system, which an item of storage names under rest.
The command asks no device and no storage system.

It evaluates the cases of the description, and compares each result with the
required one. Then it changes one value of a case at a time (missing, null,
another word, another type, empty, another UUID), and each answer (an HTTP
error, half a body). No change that matters may end Off. At last it runs the
conformance suite against a server on 127.0.0.1 that replays the cases.

Of a storage system it requires that no change that matters gives a node or a
volume a health that permits a policy to act: healthy or unhealthy of a node,
healthy of a volume.

Faults go to standard error as file:line: path: problem, and the command exits
with 1.`,
		Example: `  # A description of your own, before the controller uses it
  forcefence check-provider description.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := rest.ReadDescription(args[0])
			if err != nil {
				return err
			}
			report, bad := providercheck.CheckDescription(cmd.Context(), text)
			if len(bad) > 0 {
				return bad.InFile(args[0])
			}
			for _, line := range report.Lines() {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	}
}
