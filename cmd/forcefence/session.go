package main

import (
	"log/slog"

	"github.com/spf13/cobra"
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
	return app.OpenSession(cmd.Context(), d.file, d.types, c, log)
}
