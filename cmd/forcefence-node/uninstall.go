package main

import (
	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/kubelet-admit/install"
)

func newUninstall() *cobra.Command {
	var host hostFlags
	var o install.Options
	var wait bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the hook away from this host",
		Long: "Take away what install and the hook left on the host, and the Node's condition ForcefenceGuard. It may be repeated.\n\n" +
			"A runtime that is not restarted goes on as it started: it runs the hook, which holds pods while the node is marked, and\n" +
			"requires it, if --required-plugins was set. Then restart it before the DaemonSet is deleted (or add --restart-runtime here):\n" +
			"once no hook is left, such a runtime refuses ordinary containers until its next start.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := host.enterRoot(o.Config.Path); err != nil {
				return err
			}
			o.Site, o.Version = host.site, version.String()
			result, err := install.Uninstall(cmd.Context(), o)
			printResult(cmd, result)
			if err == nil && wait {
				<-cmd.Context().Done()
			}
			return err
		},
	}
	host.addFlags(cmd.Flags())
	configFlags(cmd.Flags(), &o.Config)
	cmd.Flags().BoolVar(
		&o.RestartRuntime, "restart-runtime", false, "restart the runtime (systemctl) if it requires the hook",
	)
	cmd.Flags().BoolVar(&wait, "wait", false, "when done, wait for SIGTERM: a DaemonSet starts again what ends")
	return cmd
}
