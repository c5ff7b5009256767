package main

import "github.com/spf13/cobra"

// newProof returns the commands about signed proofs and their keys.
func newProof() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proof",
		Short: "Check the signed proof of a fence, and make or revoke the keys that sign",
	}
	cmd.AddCommand(newVerify(), newKeys())
	return cmd
}
