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
		Short: "Remove the hook from this host",
		Long: "Remove what install and the hook left on the host, and the Node's condition ForcefenceGuard. You can\n" +
			"run it again.\n\n" +
			"A runtime goes on as it started until it is restarted: it runs the hook, which holds pods while the\n" +
			"node is marked, and with --required-plugins it requires the hook. Restart it before you delete the\n" +
			"DaemonSet, or use --restart-runtime. Without any hook, such a runtime refuses ordinary containers\n" +
			"until its next start.",
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
	cmd.Flags().BoolVar(&o.RestartRuntime, "restart-runtime", false,
		"restart the runtime (systemctl) if it requires the hook")
	cmd.Flags().BoolVar(&wait, "wait", false, "when done, wait for SIGTERM: a DaemonSet would restart the container")
	return cmd
}
