package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
)

func newCheckConfig(types providers.Registry) *cobra.Command {
	var skip, description bool
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a configuration file, or a description of a device family",
		Long: `Check a configuration file as "forcefence run" would read it; - is standard
input. The command asks no device.

Faults go to standard error as file:line: path: problem, and the command exits
with 1. It exits with 0 for a valid file, even if it prints warnings.

The files that the settings name (passwordFile, caFile) must exist, so check
where the controller will run, or use --skip-files. A secret file that belongs
to one machine (passwordFile with {name}) and does not exist is a warning,
because the other machines work without it. Without --skip-files the command
lists all such files, but not their content.

Environment variables that passwordEnv names need not be set; the controller
reads them when it asks a device. FORCEFENCE_ variables such as FORCEFENCE_MODE
override the file here, too; one that names no key is a fault.

With --description the file describes a device family, which an item of providers
with the type rest names, or a storage system, which an item of storage names
under rest. The command evaluates the cases of the description, and compares each
result with the required one. Then it changes one value of a case at a time
(missing, null, another word, another type, empty, another UUID), and each answer
(an HTTP error, half a body). No change that matters may end Off. At last it runs
the conformance suite against a server on 127.0.0.1 that replays the cases. Of a
storage system it requires that no change that matters gives a node or a volume a
health that permits a policy to act: healthy or unhealthy of a node, healthy of a
volume.`,
		Example: `  # Before you install it
  forcefence check-config --skip-files config.yaml
  # The configuration of the controller
  kubectl -n forcefence-system get configmap forcefence -o 'jsonpath={.data.config\.yaml}' |
    forcefence check-config --skip-files -
  # A description of your own, before the controller uses it
  forcefence check-config --description farm.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if description {
				return checkDescription(cmd, args[0])
			}
			opts := []config.Option{config.Strict()}
			if skip {
				opts = append(opts, config.SkipFiles())
			}
			name := args[0]
			load := func() (*config.Config, error) { return config.Load(name, types, opts...) }
			if name == "-" {
				name = "standard input"
				load = func() (*config.Config, error) {
					text, err := io.ReadAll(config.Limited(cmd.InOrStdin()))
					if err != nil {
						return nil, fmt.Errorf("reading %s: %w", name, err)
					}
					return config.Parse(name, text, types, opts...)
				}
			}
			cfg, err := load()
			var faults config.Errors
			if errors.As(err, &faults) && slices.ContainsFunc(faults, func(e config.Error) bool { return e.NoFile }) {
				return fmt.Errorf("%w\nTo check without files that exist only where the controller runs, add "+
					"--skip-files", err)
			}
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings() {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), w); err != nil {
					return err
				}
			}
			if !skip {
				if err := printTable(cmd.OutOrStdout(), fileTable(cfg.ListedFiles()), false); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", name)
			return err
		},
	}
	cmd.Flags().BoolVar(&skip, "skip-files", false, "do not check files that the settings name and that do not "+
		"exist here")
	cmd.Flags().BoolVar(&description, "description", false, "FILE describes a device family or a storage system")
	cmd.MarkFlagsMutuallyExclusive("skip-files", "description")
	return cmd
}
