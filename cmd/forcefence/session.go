package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
)

// sessionFlags holds the flags with which a command reaches the API server and the devices.
type sessionFlags struct {
	clusterFlags
	file  string
	types providers.Registry
	// Set by tests; nil: made from clusterFlags, and asked of the API server.
	client  client.Client
	version *apiversion.Info
}

func (d *sessionFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.file, "config", "/etc/forcefence/config.yaml",
		"the controller's configuration file; the files that it names must exist here, too")
	completeFlag(cmd, "config", completeFiles)
	d.clusterFlags.addFlags(cmd)
}

// openClient returns the test's client, or a new one.
func (d *sessionFlags) openClient() (client.Client, error) {
	if d.client != nil {
		return d.client, nil
	}
	return d.clusterFlags.newClient()
}

// openSession opens the session of a command that asks devices, or with rulesOnly of one that asks none.
func (d *sessionFlags) openSession(cmd *cobra.Command, rulesOnly bool) (*app.Session, error) {
	c, err := d.openClient()
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(d.file, d.types)
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
		cfg, err = d.findConfiguration(cmd, c, rulesOnly, err)
	}
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return app.OpenSession(cmd.Context(), cfg, c, log)
}

// findConfiguration returns the controller's configuration from its ConfigMap if the rules suffice. The secrets are in
// the controller's pod alone, so otherwise the error says how to run the command there.
func (d *sessionFlags) findConfiguration(
	cmd *cobra.Command, c client.Client, rulesOnly bool, missing error,
) (*config.Config, error) {
	ctx := cmd.Context()
	namespace, unknown := controllerNamespace(ctx, c, "")
	if unknown != nil {
		namespace = defaultNamespace
	}
	if rulesOnly {
		cfg, at, err := readDeployedConfig(ctx, c, namespace, d.types)
		if err != nil && !apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w\nreading ConfigMap %s instead: %w", missing, at, err)
		}
		if !apierrors.IsNotFound(err) {
			return cfg, err
		}
	}
	return nil, fmt.Errorf("%w\nThis command needs the controller's configuration and access to the devices. You can "+
		"run it in the controller's pod:\nkubectl -n %s exec deploy/%s -- /ko-app/forcefence %s", missing, namespace,
		findDeployment(ctx, c, namespace), strings.Join(wordsInPod(cmd), " "))
}

// readDeployedConfig reads the controller's configuration from its ConfigMap at. The files that it names are in the
// controller's pod, so they are not checked.
func readDeployedConfig(ctx context.Context, c client.Reader, namespace string, types providers.Registry) (
	_ *config.Config, at client.ObjectKey, _ error,
) {
	at = client.ObjectKey{Namespace: namespace, Name: configMapName}
	var cm corev1.ConfigMap
	if err := c.Get(ctx, at, &cm); err != nil {
		return nil, at, err
	}
	cfg, err := config.Parse(configKey, []byte(cm.Data[configKey]), types, config.SkipFiles())
	return cfg, at, err
}

// findDeployment returns the name of the controller's Deployment, by its labels; that of the manifests if it cannot be
// read.
func findDeployment(ctx context.Context, c client.Reader, namespace string) string {
	var list appsv1.DeploymentList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
		"app.kubernetes.io/name": "forcefence", "app.kubernetes.io/component": "controller",
	})
	if err != nil || len(list.Items) == 0 {
		return "forcefence"
	}
	return list.Items[0].Name
}

// commandPath returns the command's name without the program's.
func commandPath(cmd *cobra.Command) (words []string) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		words = append([]string{cmd.Name()}, words...)
	}
	return words
}

// wordsInPod returns the command line for the controller's pod: without the program's name, and without the flags that
// say how to reach the API server from here.
func wordsInPod(cmd *cobra.Command) (words []string) {
	words = append(commandPath(cmd), cmd.Flags().Args()...)
	reaching := &cobra.Command{}
	(&clusterFlags{}).addFlags(reaching)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case reaching.Flags().Lookup(f.Name) != nil:
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			words = append(words, "--"+f.Name)
		default:
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	return words
}
