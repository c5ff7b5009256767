package rest_test

import (
	"bytes"
	"testing"

	"github.com/forcefence/forcefence/providers/rest"
)

// Each preset has at most 60 lines beside its cases, and passes them and their changes.
func TestPresets(t *testing.T) {
	if len(rest.Presets()) == 0 {
		t.Fatal("there is no preset")
	}
	for file, text := range rest.Presets() {
		t.Run(file, func(t *testing.T) {
			report, bad := rest.CheckCases(text)
			for _, f := range bad {
				t.Errorf("%s:%v", file, f)
			}
			before, _, _ := bytes.Cut(text, []byte("\ncases:\n"))
			if lines := bytes.Count(before, []byte("\n")) + 1; lines > 60 {
				t.Errorf("has %d lines before its cases, want 60 at most", lines)
			}
			if report.Cases < 2 || report.Mutations < 100 && len(bad) == 0 {
				t.Errorf("got %d cases with %d changes", report.Cases, report.Mutations)
			}
			t.Logf("%d cases, %d changes", report.Cases, report.Mutations)
		})
	}
}
