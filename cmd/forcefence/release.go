package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/release"
)

// newRelease returns the command with which a person removes any mark.
func newRelease() *cobra.Command {
	var cluster clusterFlags
	var key string
	var yes bool
	cmd := &cobra.Command{
		Use:   "release NODE",
		Short: "End a node's fence: remove the mark and close the record",
		Long: "End a node's fence on your word: take every mark off and close the record. Held pods start then, so be sure that nothing\n" +
			"of the node's pods is about to run elsewhere. The node is left alone until it comes back, and a device that was not believed\n" +
			"any more is believed again. Without --yes it only tells what it would do.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.newClient()
			if err != nil {
				return err
			}
			message, err := release.ReleaseNode(cmd.Context(), c, args[0], key, yes, time.Now)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), message)
			if !yes {
				return fmt.Errorf("nothing was changed: add --yes to do it")
			}
			return nil
		},
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	f.StringVar(&key, "taint-key", taint.DefaultKey, "the mark's key, where the configuration names another")
	f.BoolVar(&yes, "yes", false, "do it")
	return withRole(cmd, "forcefence-operate")
}
