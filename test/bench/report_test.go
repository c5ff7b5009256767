package main

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the sections of docs/reference/measurements.md that show raw data")

// TestPageShowsRawData renders sections of docs/reference/measurements.md from the raw data in results.
func TestPageShowsRawData(t *testing.T) {
	const file = "../../docs/reference/measurements.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for _, s := range []struct {
		heading, raw string
		render       func(file string) (string, error)
	}{
		{"### Every system in turn", "results/peers.json", jsonSection[PeerResults]},
		{"### Databases first", "results/first.json", jsonSection[FirstResults]},
		{"### The slowest fences", "results/p99.jsonl.gz", p99Section},
	} {
		text, err := s.render(s.raw)
		if err != nil {
			t.Fatal(err)
		}
		if want, err = replaceSection(want, s.heading, text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), want); diff != "" {
		t.Errorf("%s differs from the raw data (go test ./test/bench -update writes it; -page +data):\n%s", file, diff)
	}
}

func TestReplaceSection(t *testing.T) {
	const page = "# A\n\n### B\nold\nold\n\n## C\nend\n"
	for heading, want := range map[string]string{
		"### B": "# A\n\n### B\nnew\n\n## C\nend\n",
		"## C":  "# A\n\n### B\nold\nold\n\n## C\nnew\n",
	} {
		if got, err := replaceSection(page, heading, "new\n"); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", heading, got, err, want)
		}
	}
	if _, err := replaceSection(page, "## D", "new\n"); err == nil {
		t.Error("a heading that the page does not have: got no error")
	}
}
