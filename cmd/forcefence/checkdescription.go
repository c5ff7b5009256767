package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/providercheck"
	"github.com/forcefence/forcefence/providers/rest"
)

// checkDescription checks a file with the description of a device family or a storage system, and prints what it
// checked. An error has each fault with its line.
func checkDescription(cmd *cobra.Command, file string) error {
	text, err := rest.ReadDescription(file)
	if err != nil {
		return err
	}
	report, bad := providercheck.CheckDescription(cmd.Context(), text)
	if len(bad) > 0 {
		return bad.InFile(file)
	}
	for _, line := range append(report.Lines(), file+": ok") {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}
