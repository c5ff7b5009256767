package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/kit"
)

// TestChangelog: the file has its form.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	kit.Must(t, err)
	all, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(all[0].text, "### ") {
		t.Errorf("[Unreleased]: got %q, want sections: is the right file read?", all[0].text)
	}
}

const two = `# Changelog

Words.

## [Unreleased]

## [1.1.0] - 2026-03-01

### Upgrade notes

- Read [this](docs/upgrade.md#before), [that](https://example.net/x) and [below](#added).

### Added

- A thing.

## [1.0.0-rc.1] - 2026-02-28

### Fixed

- Another.

[Unreleased]: https://github.com/forcefence/forcefence/compare/v1.1.0...HEAD
[1.1.0]: https://github.com/forcefence/forcefence/compare/v1.0.0-rc.1...v1.1.0
[1.0.0-rc.1]: https://github.com/forcefence/forcefence/releases/tag/v1.0.0-rc.1
`

func TestNotes(t *testing.T) {
	got, err := notesOf(two, "v1.1.0")
	kit.Must(t, err)
	want := `### Upgrade notes

- Read [this](https://github.com/forcefence/forcefence/blob/v1.1.0/docs/upgrade.md#before), ` +
		`[that](https://example.net/x) and [below](#added).

### Added

- A thing.
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	for _, version := range []string{"1.2.0", "Unreleased", "", "1.0.0"} {
		if notes, err := notesOf(two, version); err == nil {
			t.Errorf("notes of %q: got %q, want an error", version, notes)
		}
	}
}

func TestForm(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"as it is", "", "", ""},
		{"no heading", "# Changelog", "# Changes", "does not begin"},
		{"not first", "## [Unreleased]\n\n", "", "is not [Unreleased]"},
		{"a date too much", "## [Unreleased]", "## [Unreleased] - 2026-03-02", "has a date"},
		{"no date", "[1.1.0] - 2026-03-01", "[1.1.0]", "version 1.1.0 has no date"},
		{"no such day", "2026-03-01", "2026-02-30", "version 1.1.0 has no date"},
		{"older than the one below", "2026-03-01", "2026-01-01", "is below"},
		{"versions out of order", "## [1.0.0-rc.1]", "## [1.1.1]", "is below"},
		{"twice", "## [1.0.0-rc.1]", "## [1.1.0]", "is below"},
		{"a v", "## [1.1.0]", "## [v1.1.0]", "not a version"},
		{"half a version", "## [1.1.0]", "## [1.1]", "not a version"},
		{"no brackets", "## [1.1.0] - 2026-03-01", "## 1.1.0", "is no version and date"},
		{"a section of one's own", "### Fixed", "### Repaired", "want one of"},
		{"sections out of order", "### Upgrade notes", "### Fixed", "want one of"},
		{"an empty section", "- Another.\n", "", "is empty"},
		{"no link", "[1.1.0]: ", "[1.1.9]: ", "does not end with these links"},
		{"another link", "compare/v1.1.0...HEAD", "compare/v1.0.0...HEAD", "does not end with these links"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(strings.Replace(two, tt.old, tt.new, 1))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse: got %v, want %q", err, tt.want)
			}
		})
	}
}
