package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
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

func (d *sessionFlags) openSession(cmd *cobra.Command) (*app.Session, error) {
	c, err := d.openClient()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	open, err := app.OpenSession(cmd.Context(), d.file, d.types, c, log)
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
		namespace, unknown := controllerNamespace(cmd.Context(), c, "")
		if unknown != nil {
			namespace = defaultNamespace
		}
		return nil, fmt.Errorf("%w\nThis command needs the controller's configuration and access to the devices. You "+
			"can run it in the controller's pod:\nkubectl -n %s exec deploy/forcefence -- /ko-app/forcefence %s", err,
			namespace, strings.Join(wordsInPod(cmd), " "))
	}
	return open, err
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
