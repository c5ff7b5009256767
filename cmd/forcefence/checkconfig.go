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
		Long: `Check a configuration file as "forcefence run" would read it. The command asks
no device.

Faults go to standard error as file:line: path: problem, and the command exits
with 1. It exits with 0 for a valid file, even if it prints warnings.

The files that the settings name (passwordFile, caFile) must exist, so check
where the controller will run, or use --skip-files. A secret file that belongs
to one machine (passwordFile with {{ .Name }}) and does not exist is a warning,
because the other machines work without it. The command lists all such files,
but not their content.

Environment variables that passwordEnv names need not be set; the controller
reads them when it asks a device. FORCEFENCE_ variables such as FORCEFENCE_MODE
override the file here, too; one that names no key is a fault.`,
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
	cmd.Flags().BoolVar(&skip, "skip-files", false, "do not check files that the settings name and that do not "+
		"exist here")
	return cmd
}
