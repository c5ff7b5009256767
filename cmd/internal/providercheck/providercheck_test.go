package providercheck_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/providercheck"
	"github.com/forcefence/forcefence/providers/rest"
)

// Each preset passes what an operator's own description must pass.
func TestPresets(t *testing.T) {
	if len(rest.Presets()) == 0 {
		t.Fatal("there is no preset")
	}
	for file, text := range rest.Presets() {
		t.Run(file, func(t *testing.T) {
			report, bad := providercheck.CheckDescription(t.Context(), text)
			for _, f := range bad {
				t.Errorf("%s:%v", file, f)
			}
			if report.Checks < 15 || report.Cases < 10 || report.Mutations < 100 {
				t.Errorf("got %+v", report)
			}
			before, _, _ := bytes.Cut(text, []byte("\ncases:\n"))
			if lines := bytes.Count(before, []byte("\n")) + 1; lines > 60 {
				t.Errorf("has %d lines before its cases, want 60 at most", lines)
			}
			t.Log(strings.Join(report.Lines(), "\n"))
		})
	}
}

// The conformance checks find what cases cannot show.
func TestCheckDescription(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "outlets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, old, new, want string }{
		{"no fault", "", "", ""},
		{"an action that the device does not accept", "accepted: off.status == 200", "accepted: off.status == 202",
			`the check "powers off"`},
		{"off sends on", `{state: "off"}}`, `{state: "on"}}`, "powers off"},
		{"no answer to an action", "    on: {body: {}}\n", "", "has no answer to on"},
		{"a fault of a case", `word: "off"`, `word: "out"`, `got the word "off"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, bad := providercheck.CheckDescription(t.Context(),
				[]byte(strings.Replace(string(good), tc.old, tc.new, 1)))
			if got := bad.Error(); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
