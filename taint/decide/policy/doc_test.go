package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/storage.md from the presets")

// TestDoc checks the tables of docs/storage.md against the presets. The text around them is written by hand.
func TestDoc(t *testing.T) {
	const file = "../../../docs/storage.md"
	var presets, deletion, recovery strings.Builder
	for _, p := range Presets {
		which := []string{}
		if p.Own {
			which = append(which, "in the controller's namespace")
		}
		if p.Policy.Pods != nil {
			which = append(which, "labelled `"+p.Policy.Pods.String()+"`")
		}
		if len(p.Policy.Drivers) > 0 {
			which = append(which, "with a volume of `"+strings.Join(p.Policy.Drivers, "`, `")+"`")
		}
		if p.Policy.Terminating {
			which = append(which, "past their deletionTimestamp")
		}
		fmt.Fprintf(&presets, "| `%s` | `%s` | %s | %s | %s |\n", p.Name, p.Policy.When, strings.Join(which, ", "),
			p.Does, p.Trusts)
	}
	for _, d := range DeletionValues {
		owners := "none; the default"
		if len(d.Owners) > 0 {
			owners = strings.Join(d.Owners, "s and ") + "s"
		}
		fmt.Fprintf(&deletion, "| `%s` | %s |\n", d.Value, owners)
	}
	for _, r := range RecoveryValues {
		fmt.Fprintf(&recovery, "| `%s` | %s |\n", r.Value, r.Does)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(page)
	got = replaceTable(t, got, "| preset | when | which pods | does | trusts |", presets.String())
	got = replaceTable(t, got, "| value | ends pods of |", deletion.String())
	got = replaceTable(t, got, "| value | does, for pods of ReplicaSets with a volume of the drivers |",
		recovery.String())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), got); diff != "" {
		t.Errorf("tables of %s differ from the presets (go test ./taint/decide/policy -update writes them; -file "+
			"+presets):\n%s", file, diff)
	}
}

// replaceTable replaces the rows of the only table of page that has this header.
func replaceTable(t *testing.T, page, header, rows string) string {
	before, table, hasHeader := strings.Cut(page, "\n\n"+header+"\n")
	dashes, after, hasDashes := strings.Cut(table, "\n")
	_, after, hasEnd := strings.Cut(after, "\n\n")
	if !hasHeader || !hasDashes || !hasEnd || strings.Contains(table, header) {
		t.Fatalf("no table, or two, with the header %q, or no text after it", header)
	}
	return before + "\n\n" + header + "\n" + dashes + "\n" + rows + "\n" + after
}
