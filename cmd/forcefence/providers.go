package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

// newProviders returns the command that prints what docs/reference/devices.md describes.
func newProviders(types providers.Registry) *cobra.Command {
	return &cobra.Command{
		Use:   "providers [TYPE...]",
		Short: "List the types of devices, what off means to them, and their settings",
		Long: `List the types of devices that forcefence supports: what off means to each, how
it identifies its machine, and its settings with their defaults. The command
reads no configuration and asks no device.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := types
			if len(args) > 0 {
				chosen = nil
				for _, name := range args {
					ty, ok := types.FindType(name)
					if !ok {
						return fmt.Errorf("there is no provider type %q: use one of %s", name,
							strings.Join(types.TypeNames(), ", "))
					}
					chosen = append(chosen, ty)
				}
			}
			for _, ty := range slices.SortedFunc(
				slices.Values(chosen), func(a, b providers.Type) int { return cmp.Compare(a.Name, b.Name) },
			) {
				if err := printType(cmd.OutOrStdout(), all.DescribeType(ty)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func printType(out io.Writer, d all.Description) error {
	yes := map[bool]string{true: "yes", false: "no"}
	plain := strings.NewReplacer("`", "")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n  off means: %s\n  identifies its machine by: %s\n  reads many machines in one call: %s\n  "+
		"reports changes by itself: %s\n\n",
		d.Type, plain.Replace(d.Off), plain.Replace(d.Identity), yes[d.Batches], yes[d.Watches])
	fmt.Fprint(w, "  KEY\tKIND\tDEFAULT\tWHAT\n")
	for _, f := range d.Fields {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", f.Key, f.Kind, cmp.Or(f.Default, "-"), f.Doc)
	}
	fmt.Fprintln(w)
	return w.Flush()
}
