package reason

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A reason that leads a person to an alert's section has a state for which that alert fires, and a remedy. A state for
// which a critical alert fires calls a person; a warning can wait for the working day. The runbook has each section.
func TestPersonSection(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	exprs, critical := map[Section]string{}, map[Section]bool{} // of all alerts
	for _, alert := range strings.Split(read("../../deploy/alerts/forcefence.rules.yaml"), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(alert, "\n")
		exprs[Section(name)], rest, _ = strings.Cut(rest, "labels:")
		critical[Section(name)] = strings.HasPrefix(rest, " {severity: critical}")
	}
	firesFor := func(s Section, state State) bool {
		return state != "" && regexp.MustCompile(`state=[^}]*\b`+string(state)+`\b`).MatchString(exprs[s])
	}
	for _, row := range Table() {
		section := PersonSection(row.Reason)
		_, isAlert := exprs[section]
		switch {
		case section == "":
			for alert := range exprs {
				// A machine that goes off is Changing for seconds: the view calls a person once the node waits for minutes.
				// Healthy nodes are what an alert compares others with.
				harmless := row.State == StateChanging || row.State == StateHealthy
				if critical[alert] && !harmless && firesFor(alert, row.State) {
					t.Errorf("%s: its state %s fires %s, but no person is called", row.Reason, row.State, alert)
				}
			}
		case row.Remedy == "":
			t.Errorf("%s: got section %s and no remedy, want one", row.Reason, section)
		case isAlert && waitsForPerson[row.Reason] == "" && !firesFor(section, row.State):
			t.Errorf("%s: its state %s does not fire %s", row.Reason, row.State, section)
		case !isAlert && section != SectionNothing:
			t.Errorf("%s: got section %q, want an alert's", row.Reason, section)
		}
	}
	runbook := read("../../docs/runbook.md")
	for _, value := range constants(t, "runbook.go", "Section") {
		if !strings.Contains(runbook, "\n## "+value+"\n") {
			t.Errorf("docs/runbook.md has no section %q", value)
		}
	}
}

func TestAnchor(t *testing.T) {
	for s, want := range map[Section]string{
		SectionUnproven: "forcefencenodeunproven", SectionNothing: "when-nothing-happens",
	} {
		if got := s.Anchor(); got != want {
			t.Errorf("%s: got %q, want %q", s, got, want)
		}
	}
}
