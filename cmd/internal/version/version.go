// Package version knows which version of forcefence a program is.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// built is set by the linker (Makefile, .ci/image), because a build without the repository's history cannot determine
// the version.
var built string

// String returns the version that the linker set, else the one that Go stamped into the program, else "unknown".
func String() string {
	if built != "" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return "unknown"
}

// UserAgent returns the value of HTTP's header User-Agent for a program, such as "forcefence/v1.2.3". It trims the
// parentheses of Go's (devel), which would be a comment there.
func UserAgent(program string) string { return program + "/" + strings.Trim(String(), "()") }

// Command returns the command `version` of each program.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write([]byte(String() + "\n"))
			return err
		},
	}
}
