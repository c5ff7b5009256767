package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// pluginMain is the process that the runtime starts itself.
func pluginMain(context.Context) error { return errors.New("the hook is not wired yet") }

func newRun() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the hook beside the one that the runtime starts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return pluginMain(cmd.Context()) },
	}
}
