package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
)

func newCheckConfig(types providers.Registry) *cobra.Command {
	var skip bool
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a configuration file",
		Long: `Check a configuration file as "forcefence run" would read it, and ask no device.

Every fault is printed to standard error as file:line: path: problem, and the exit status is 1. A good file exits with 0, also where a
warning is printed of what is allowed and still no good idea.

The files that the settings name (passwordFile, caFile) must be there: check where the controller will run, or with --skip-files,
which passes over those that are not there.
A machine in a list that has no file of its own (passwordFile with {{ .Name }}) is a warning: the others do without it. All such files
are listed, and no content. The environment variables that passwordEnv names need not be set, they are read when a device is asked. FORCEFENCE_ variables such
as FORCEFENCE_MODE override the file here too; one that names no key is a fault.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opts []config.Option
			if skip {
				opts = append(opts, config.SkipFiles())
			}
			cfg, err := config.Load(args[0], types, opts...)
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings() {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), w); err != nil {
					return err
				}
			}
			printFiles(cmd.OutOrStdout(), cfg.ListedFiles())
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&skip, "skip-files", false, "pass over files that the settings name and that are not here")
	return cmd
}
