package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/kubelet-admit/install"
)

const installHelp = `Install this program on the host as a plugin of its container runtime (NRI), and configure it.
You can run it again: it changes only what differs, and completes an interrupted install.

First it finds the kubelet, its kubeconfig, and the runtime that serves it, by the command lines of the host's
processes. Then it reads the own Node with that kubeconfig, as the hook will. A hook that cannot read it would hold
every pod, so install stops then. It also stops if the Node keeps reporting another boot ID than this machine's. It
reads the runtime's version and configuration, and prints the node's protection. The command run reports the protection
on the Node (condition ForcefenceGuard):

  fail-closed  the runtime requires the hook: without it, ordinary containers do not start
  fail-open    the hook holds pods while it runs; without it they start
  not-at-boot  the same, but pods of a boot may start before the hook: it runs in the DaemonSet's pod alone
  none         the runtime has no NRI, or it is switched off: nothing was installed

A runtime starts plugins, and reads its configuration, only when it starts. After an upgrade it runs the previous plugin
until its next start; the DaemonSet runs the new one at once.

--required-plugins needs containerd 2.2 or CRI-O 1.34 or later. It has no effect while an exempt pod of the node
(static, DaemonSet-owned, or tolerating the mark) lacks the annotation ` + install.TolerateAnnotation + `: "true".
Install lists those pods. Once in effect it stays, whatever pods come later. Without the flag, install removes what it
wrote before.`

func newInstall() *cobra.Command {
	var host hostFlags
	var o install.Options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the hook on this host",
		Long:  installHelp,
		Args:  cobra.NoArgs,
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
			// `run` reports once it has registered with the runtime, which it cannot do here.
			return reportToNode(cmd.Context(), result.Config, result.Protection)
		},
	}
	host.addFlags(cmd.Flags())
	configFlags(cmd.Flags(), &o.Config)
	cmd.Flags().BoolVar(&o.RequiredPlugins, "required-plugins", false,
		"let the runtime refuse containers while the hook is missing")
	cmd.Flags().BoolVar(&o.RestartRuntime, "restart-runtime", false,
		"restart the runtime (systemctl) if it runs with older files")
	return cmd
}

// printResult prints what was done, also before an error.
func printResult(cmd *cobra.Command, r install.Result) {
	if r.AfterBoot != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "after a boot: "+r.AfterBoot)
	}
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
