package writes

import (
	"os"
	"strings"
	"testing"
)

// TestEntries: each entry says how what is written ends. An order that stays in force has a metric, an alert by it or a
// person who notices, a line in `check`, and what `cleanup` and `release` do. The uninstall page names what stays.
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
	metrics := read("docs/reference/metrics.md")
	_, uninstall, _ := strings.Cut(upgrade, "\n## Uninstall\n")
	for _, w := range All {
		s := w.Standing
		if lacks := w.Lacks(); lacks != "" {
			t.Errorf("%+v: it lacks %s", w, lacks)
		}
		if s == nil {
			continue
		}
		_, alert, found := strings.Cut(rules, "- alert: "+s.Alert+"\n")
		alert, _, _ = strings.Cut(alert, "- alert: ")
		if s.Alert != "" && (!found || !strings.Contains(alert, s.Metric+"{")) {
			t.Errorf("%s: there is no alert %s by metric %s", w.Resource, s.Alert, s.Metric)
		}
		if !strings.Contains(metrics, "| `"+s.Metric+"` |") {
			t.Errorf("%s: the page of metrics has no %q", w.Resource, s.Metric)
		}
		removes := strings.HasPrefix(s.Cleanup, "removes") || strings.HasPrefix(s.Cleanup, "deletes")
		if !removes && !strings.Contains(uninstall, "`"+w.Resource+"`") {
			t.Errorf("%s: neither cleanup nor the uninstall page ends it", w.Resource)
		}
	}
}

// TestLacks: an entry that leaves out one of what an order needs is found.
func TestLacks(t *testing.T) {
	whole := func() Write {
		return Write{Resource: "r", Verbs: []string{"patch"}, Ends: "soon", Standing: order("deletes it", "leaves it")}
	}
	if got := whole().Lacks(); got != "" {
		t.Errorf("the whole entry lacks %s", got)
	}
	for name, leaveOut := range map[string]func(*Write){
		"resource": func(w *Write) { w.Resource = "" }, "verbs": func(w *Write) { w.Verbs = nil },
		"end": func(w *Write) { w.Ends = "" }, "metric": func(w *Write) { w.Standing.Metric = "" },
		"alert": func(w *Write) { w.Standing.Alert = "" }, "check": func(w *Write) { w.Standing.Check = "" },
		"cleanup": func(w *Write) { w.Standing.Cleanup = "" }, "release": func(w *Write) { w.Standing.Release = "" },
	} {
		w := whole()
		if leaveOut(&w); w.Lacks() == "" {
			t.Errorf("an entry without %s lacks nothing", name)
		}
	}
}
