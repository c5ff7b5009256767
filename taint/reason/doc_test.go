package reason

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/reference/events.md from the table")

// docs/reference/events.md shows the table: what each Event says, and what a person does about it.
func TestDoc(t *testing.T) {
	const file = "../../docs/reference/events.md"
	var b strings.Builder
	b.WriteString(`# Events

forcefence reports these Events on a Node (` + "`kubectl describe node NODE`" + `), on a pod, on a storage object,
or on the leader's Lease. The log has the same reasons under the key ` + "`why`" + `. Each Event fills in the words in
braces. A changed text is an Event of its own: ten at first for each object and reason, then two a minute, the newest
text. This page is generated from the table in ` + "`taint/reason`" + `.

| Event | kind | it says | do |
| --- | --- | --- | --- |
`)
	singular := strings.NewReplacer(oneDevice...)
	for _, r := range Table() {
		if r.Text == "" {
			continue
		}
		kind := "Normal"
		if r.Severity == Warning {
			kind = "Warning"
		}
		b.WriteString("| `" + string(r.Reason) + "` | " + kind + " | " + singular.Replace(r.Text) + " | " + r.Remedy +
			" |\n")
	}
	got := b.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs from the table (go test ./taint/reason -update writes it; -file +table):\n%s", file, diff)
	}
}
