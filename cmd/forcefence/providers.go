package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

// newProviders returns the command that prints what docs/reference/devices.md describes.
func newProviders(types providers.Registry) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "providers [TYPE...]",
		Short: "List the types of devices, what off means to them, and their settings",
		Long: `List the types of devices that forcefence supports: what off means to each, and
how it identifies its machine. For a named type, list its settings with their
defaults as well. The command reads no configuration and asks no device.`,
		Example: `  # All types
  forcefence providers
  # The settings of a type
  forcefence providers redfish`,
		ValidArgsFunction: cobra.FixedCompletions(types.TypeNames(), cobra.ShellCompDirectiveNoFileComp),
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				if _, ok := types.FindType(name); !ok {
					return fmt.Errorf("there is no provider type %q%s", name, config.Hint(name, types.TypeNames()))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var chosen []all.Description
			for _, ty := range types {
				if len(args) == 0 || slices.Contains(args, ty.Name) {
					d := all.DescribeType(ty)
					d.Off = nameCommands(cmd.Root(), d.Off)
					chosen = append(chosen, d)
				}
			}
			slices.SortFunc(chosen, func(a, b all.Description) int { return cmp.Compare(a.Type, b.Type) })
			r := report{value: chosen, table: typeTable(chosen)}
			if len(args) > 0 {
				r.text = func(out io.Writer, wide bool) error { return printTypes(out, chosen, wide) }
			}
			return format.print(cmd.OutOrStdout(), r)
		},
	}
	format.addFlag(cmd)
	return cmd
}

var yesNo = map[bool]string{true: "yes", false: "no"}

// typeTable has a row for each type.
func typeTable(all []all.Description) *metav1.Table {
	t := newTable("Type", "+Many-in-one-call", "+Reports-changes", "Identity", "Off")
	for _, d := range all {
		addRow(t, objectNamed("", "Provider", "", d.Type), d.Type, yesNo[d.Batches], yesNo[d.Watches],
			plainText(d.Identity), plainText(d.Off))
	}
	return t
}

// printTypes prints each type and its settings.
func printTypes(out io.Writer, all []all.Description, wide bool) error {
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(out)
		}
		printText(out, "", "%s", d.Type)
		printText(out, "  ", "off means: %s", plainText(d.Off))
		printText(out, "  ", "identifies its machine by: %s", plainText(d.Identity))
		printText(out, "  ", "reads many machines in one call: %s", yesNo[d.Batches])
		printText(out, "  ", "reports changes by itself: %s", yesNo[d.Watches])
		fmt.Fprintln(out)
		t := newTable("Key", "Kind", "Default", "What")
		for _, f := range d.Fields {
			addRow(t, objectNamed("", "Provider", "", d.Type), f.Key, f.Kind, f.Default, f.Doc)
		}
		if err := printTable(out, t, wide); err != nil {
			return err
		}
	}
	return nil
}

// plainText returns Markdown without its marks for code.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }
