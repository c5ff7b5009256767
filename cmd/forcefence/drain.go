package main

import "github.com/spf13/cobra"

// newDrain returns the commands about drains that wait for a storage system's data.
func newDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Show what a node's drain waits for, or set another drain policy until a time",
		Long: `Show what a node's drain waits for, or set another drain policy until a time. The
commands drain no node: "kubectl drain" does.`,
	}
	cmd.AddCommand(newDrainStatus(), newDrainPolicy())
	return cmd
}
