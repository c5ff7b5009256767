// Package version knows which version of forcefence a program is.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// built is set by the linker (Makefile, .ko.yaml): a build without the repository's history cannot find it out.
var built string

// String is what the linker was told, else what Go stamped into the program; "unknown" where neither knows.
func String() string {
	if built != "" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return "unknown"
}

// UserAgent is what servers are told of who asks, in the form of HTTP's User-Agent: "forcefence/v1.2.3".
func UserAgent(program string) string { return program + "/" + strings.Trim(String(), "()") } // Go says (devel), which would be a comment there

// Command is `version` of each program.
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
