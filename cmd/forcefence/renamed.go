package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// renamedCommands has the commands of former versions, and those that do the same now.
var renamedCommands = map[string]string{
	"check-provider": "check-config --description",
	"drain-policy":   "drain policy",
	"drain-status":   "drain status",
	"keys":           "proof keys",
	"power state":    "drill",
	"verify":         "proof verify",
}

// renamedTo returns the error that names the present command for a former one; nil for other words below cmd.
func renamedTo(cmd *cobra.Command, word string) error {
	former := strings.Join(append(commandPath(cmd), word), " ")
	now, ok := renamedCommands[former]
	if !ok {
		return nil
	}
	name := cmd.Root().DisplayName()
	return usageError{fmt.Errorf("%q is now `%s %s`; `%s %s --help` has its flags", former, name, now, name,
		strings.TrimSuffix(now, " --description"))}
}
