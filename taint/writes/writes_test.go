package writes

import (
	"os"
	"strings"
	"testing"
)

// TestEntries: each entry says how what is written ends. An order that stays in force has an alert that exists, or says
// who notices; and `cleanup` or the uninstall page ends it.
func TestEntries(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, upgrade := read("deploy/alerts/forcefence.rules.yaml"), read("docs/upgrade.md")
	_, uninstall, _ := strings.Cut(upgrade, "\n## Uninstall\n")
	for _, w := range All {
		s := w.Standing
		if w.Resource == "" || len(w.Verbs) == 0 || w.Ends == "" {
			t.Errorf("%+v: an entry needs a resource, verbs, and how it ends", w)
		}
		if s == nil {
			continue
		}
		if (s.Alert == "") == (s.Unalerted == "") {
			t.Errorf("%s: it needs an alert, or who notices without one", w.Resource)
		}
		if s.Alert != "" && !strings.Contains(rules, "- alert: "+s.Alert+"\n") {
			t.Errorf("%s: there is no alert %s", w.Resource, s.Alert)
		}
		if s.Alert != "" && s.Check == "" {
			t.Errorf("%s: forcefence check shows nothing of it", w.Resource)
		}
		removes := strings.HasPrefix(s.Cleanup, "removes") || strings.HasPrefix(s.Cleanup, "deletes")
		if s.Cleanup == "" || !removes && !strings.Contains(uninstall, "`"+w.Resource+"`") {
			t.Errorf("%s: neither cleanup nor the uninstall page ends it", w.Resource)
		}
	}
}
