package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/taint/features/release"
)

// newRelease returns the command with which a person removes any mark.
func newRelease() *cobra.Command {
	var cluster clusterFlags
	var key string
	var yes bool
	cmd := &cobra.Command{
		Use:   "release NODE",
		Short: "End a node's fence: remove the mark and close the record",
		Long: `End a node's fence: remove every mark and close the record. The hook then starts
held pods, so make sure that none of the node's pods is about to start
elsewhere. Until the node has come back, the controller neither fences it nor
ends its pods by a policy. It trusts the node's devices again. It takes back
power-offs that others have not carried out, and NetworkFences without a noted
success. A NetworkFence with one stays until the machine has booted. Without
--yes the command only prints what it would do.`,
		Example: `  # What it would end
  forcefence release n3
  # End it
  forcefence release n3 --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			fences, unread := app.ListOrders(c).Fences(cmd.Context())
			message, err := release.ReleaseNode(cmd.Context(), c, args[0], key, fences, yes, time.Now)
			if err != nil {
				return err
			}
			if unread != nil && !apierrors.IsForbidden(unread) { // else no policy makes them
				message += fmt.Sprintf("; what becomes of NetworkFences is not known: %v", unread)
			}
			fmt.Fprintln(cmd.OutOrStdout(), message)
			if !yes {
				return fmt.Errorf("nothing was changed: add --yes to do it")
			}
			return nil
		}),
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	addTaintKeyFlag(cmd, &key)
	f.BoolVar(&yes, "yes", false, "end the fence; without --yes only print it")
	return withRole(cmd, roleOperate)
}
