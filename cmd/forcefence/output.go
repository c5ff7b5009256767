package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// outputFormat is the value of --output: table or json.
type outputFormat string

func (f *outputFormat) addFlag(cmd *cobra.Command) {
	*f = "table"
	cmd.Flags().VarP(f, "output", "o", "table or json")
}

func (f *outputFormat) String() string { return string(*f) }

// Type names the value in help texts.
func (f *outputFormat) Type() string { return "string" }

// Set takes the flag's value, and refuses a format that does not exist.
func (f *outputFormat) Set(text string) error {
	if text != "table" && text != "json" {
		return fmt.Errorf("%q is neither table nor json", text)
	}
	*f = outputFormat(text)
	return nil
}

// print writes a value as JSON, or calls table.
func (f *outputFormat) print(out io.Writer, v any, table func()) error {
	if *f == "json" {
		return printJSON(out, v, "  ")
	}
	table()
	return nil
}
