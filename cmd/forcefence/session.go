package main

import (
	"log/slog"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
)

// sessionFlags holds the flags with which a command reaches the API server and the devices.
type sessionFlags struct {
	clusterFlags
	file   string
	types  providers.Registry
	client client.Client // set by tests; nil: made from clusterFlags
}

func (d *sessionFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.file, "config", "/etc/forcefence/config.yaml",
		"the controller's configuration file; the files that it names must exist here, too")
	completeFlag(cmd, "config", completeFiles)
	d.clusterFlags.addFlags(cmd)
}

func (d *sessionFlags) openSession(cmd *cobra.Command) (*app.Session, error) {
	c := d.client
	if c == nil {
		var err error
		if c, err = d.clusterFlags.newClient(); err != nil {
			return nil, err
		}
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return app.OpenSession(cmd.Context(), d.file, d.types, c, log)
}
