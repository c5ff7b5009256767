// Package version knows which version of forcefence a program is.
package version

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
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

// info is what a program says of itself.
type info struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// format returns the text for people, or as JSON or YAML.
func (i info) format(output string) (string, error) {
	switch output {
	case "":
		return fmt.Sprintf("%s, %s, %s\n", i.Version, i.GoVersion, i.Platform), nil
	case "json":
		text, err := json.MarshalIndent(i, "", "  ")
		return string(text) + "\n", err
	case "yaml":
		return fmt.Sprintf("version: %q\ngoVersion: %s\nplatform: %s\n", i.Version, i.GoVersion, i.Platform), nil
	}
	return "", fmt.Errorf("unknown output format %q: use json or yaml", output)
}

// Command returns the command `version` of each program.
func Command() *cobra.Command {
	output := ""
	text := ""
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			text, err = info{String(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}.format(output)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write([]byte(text))
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return c
}
