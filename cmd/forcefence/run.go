package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
)

// newRun returns the command that runs the controller.
func newRun(types providers.Registry) *cobra.Command {
	var o app.Options
	var kubeconfig, format, level string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the controller",
		Long: `Run the controller. It stops on SIGINT or SIGTERM. It exits with an error when it
loses its leadership, so that its supervisor restarts it.`,
		Example: `  # Outside of a cluster, with one controller
  forcefence run --config config.yaml --kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("--log-level: %q is none of debug, info, warn, error", level)
			}
			opts := &slog.HandlerOptions{Level: l}
			switch format {
			case "text":
				o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), opts))
			case "json":
				o.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), opts))
			default:
				return fmt.Errorf("--log-format: %q is neither text nor json", format)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Memory use peaks when a zone is lost, the worst moment for an OOM kill. So the collector works harder
			// before the container's limit is reached. GOMEMLIMIT in the environment has precedence.
			limit, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(0.9))
			if err != nil {
				o.Log.Warn("Memory limit unknown, garbage collector not adjusted", "error", err)
			} else if limit > 0 {
				o.Log.Info("Set the garbage collector's memory limit", "bytes", limit)
			}
			if o.REST, err = (&clusterFlags{kubeconfig: kubeconfig}).restConfig(); err != nil {
				return err
			}
			if err := checkRunRights(cmd.Context(), o.REST); err != nil {
				return err
			}
			o.Registry = types
			return app.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ConfigFile, "config", "/etc/forcefence/config.yaml",
		"the configuration file; see config.example.yaml")
	f.StringVar(&kubeconfig, "kubeconfig", "",
		"how to reach the API server (default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config)")
	f.StringVar(&o.Identity, "identity", "",
		"this process's name in records and in the leader's Lease (default: host name and process id)")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	for _, flag := range []string{"config", "kubeconfig"} {
		completeFlag(cmd, flag, completeFiles)
	}
	for flag, words := range map[string][]string{
		"log-format": {"json", "text"}, "log-level": {"debug", "error", "info", "warn"},
	} {
		completeFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return withRole(cmd, roleRun)
}

// checkRunRights asks the API server for one Node, and returns the error if it refuses. A controller without its rights
// would only repeat in its log what it cannot list. Other errors are for app.Run.
func checkRunRights(ctx context.Context, cfg *rest.Config) error {
	c, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := c.Nodes().List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsForbidden(err) {
		return fmt.Errorf("listing nodes: %w", err)
	}
	return nil
}
