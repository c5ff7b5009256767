package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/kubelet-admit/install"
)

func newInstall() *cobra.Command {
	var host hostFlags
	var o install.Options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put the hook on this host",
		Long: "Put this program on the host as a plugin of its container runtime (NRI), with its configuration. It may be repeated, changes\n" +
			"nothing that is as it should be, and completes an install that was broken off.\n\n" +
			"First it reads the own Node with the kubelet's kubeconfig, as the hook will: a hook that cannot would hold every pod, so that\n" +
			"nothing is installed then; nor is it where the Node goes on to tell another boot id than this machine's. The runtime is asked\n" +
			"for its version and configuration; which protection the node gets is printed and, by `run`, told on the Node (condition\n" +
			"ForcefenceGuard):\n\n" +
			"  fail-closed  the runtime requires the hook: without it, ordinary containers do not start\n" +
			"  fail-open    the hook holds pods while it runs; without it they start\n" +
			"  none         the runtime has no NRI, or it is switched off: nothing was installed\n\n" +
			"A runtime starts plugins, and reads its configuration, when it starts. Until its next start an upgrade has no effect on the\n" +
			"plugin that it runs; the DaemonSet's is new at once.\n\n" +
			"--required-plugins is for containerd 2.2 and CRI-O 1.34 or later. It has no effect as long as an exempt pod of the node\n" +
			"(static, DaemonSet-owned, or tolerating the mark) lacks the annotation " + install.TolerateAnnotation + ": \"true\"; those are\n" +
			"listed. Once in effect it stays, whatever pods come later. Without the flag, what it wrote before is taken away.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := host.enterRoot(o.Config.Path)
			if err != nil {
				return err
			}
			o.Site, o.Binary, o.Version = host.site, binary, version.String()
			result, err := install.Install(cmd.Context(), o)
			printResult(cmd, result)
			if err != nil || result.Protection.Level != install.None {
				return err
			}
			// `run` writes on the Node when it has registered with the runtime, which it never does here.
			return reportToNode(cmd.Context(), o.Config, result.Protection)
		},
	}
	host.addFlags(cmd.Flags())
	configFlags(cmd.Flags(), &o.Config)
	cmd.Flags().BoolVar(
		&o.RequiredPlugins, "required-plugins", false, "let the runtime refuse containers while the hook is missing",
	)
	cmd.Flags().BoolVar(
		&o.RestartRuntime, "restart-runtime", false, "restart the runtime (systemctl) if it has not read all of it",
	)
	return cmd
}

// printResult prints what was done, also before an error.
func printResult(cmd *cobra.Command, r install.Result) {
	for _, line := range r.Done {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	for _, line := range r.Warnings {
		fmt.Fprintln(cmd.OutOrStdout(), "warning: "+line)
	}
	if p := r.Protection; p.Level != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "protection: %s: %s\n", p.Level, p.Sentence())
	}
}
