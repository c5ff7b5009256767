// Package changelog reads CHANGELOG.md: whether it has the form of Keep a Changelog, and what a version's notes are.
package changelog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Unreleased is the name of the first section, which has no date.
const Unreleased = "Unreleased"

// sections are those that a version may have, in this order. Keep a Changelog has all but the first.
var sections = []string{"Upgrade notes", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// Repository is where links of a page lead that is read elsewhere.
const Repository = "https://github.com/forcefence/forcefence"

// Version is one section of the file.
type Version struct {
	Name string // without a v
	Date string // 2026-01-31; "" for Unreleased
	Text string // the text below the heading, without space around it
}

var (
	heading   = regexp.MustCompile(`^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$`)
	reference = regexp.MustCompile(`^\[([^\]]+)\]: (\S+)$`)
	relative  = regexp.MustCompile(`\]\([^)#:]+(#[^)]*)?\)`)
)

// Parse returns the versions, newest first. The error says all that is wrong with the form, a line for each fault.
func Parse(text string) ([]Version, error) {
	var all []Version
	var faults []string
	bad := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("CHANGELOG.md:%d: ", line)+fmt.Sprintf(format, args...))
	}
	if !strings.HasPrefix(text, "# Changelog\n") {
		bad(1, "does not begin with # Changelog")
	}
	links, section, filled := map[string]string{}, -1, true
	end := func(line int) { // of a section
		if !filled {
			bad(line, "the section before is empty")
		}
		filled = true
	}
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		switch m := heading.FindStringSubmatch(line); {
		case m != nil:
			end(n)
			section = -1
			all = append(all, Version{Name: m[1], Date: m[2]})
			if fault := order(all); fault != "" {
				bad(n, "%s", fault)
			}
			continue
		case strings.HasPrefix(line, "## "):
			bad(n, "%q is no version and date, as [1.2.3] - 2026-01-31", line)
		case strings.HasPrefix(line, "### "):
			end(n)
			now := slices.Index(sections, strings.TrimPrefix(line, "### "))
			if len(all) == 0 || now < 0 || now <= section {
				bad(n, "%q: want one of %q, in this order, in a version", line, sections)
			}
			section, filled = now, false
		case reference.MatchString(line):
			m := reference.FindStringSubmatch(line)
			if links[m[1]] != "" {
				bad(n, "%s is linked twice", m[1])
			}
			links[m[1]] = m[2]
			continue
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			filled = true
		}
		if len(all) > 0 {
			all[len(all)-1].Text += line + "\n"
		}
	}
	end(strings.Count(text, "\n") + 1)
	if len(all) == 0 || all[0].Name != Unreleased {
		bad(1, "the first version is not [%s]", Unreleased)
	}
	for i := range all {
		v := &all[i]
		v.Text = strings.TrimSpace(v.Text)
		if want := link(all, i); links[v.Name] != want {
			bad(1, "[%s] links to %q, want %s", v.Name, links[v.Name], want)
		}
		delete(links, v.Name)
		if v.Name != Unreleased && v.Text == "" {
			bad(1, "version %s says nothing", v.Name)
		}
	}
	for name := range links {
		bad(1, "[%s] is linked, and no version", name)
	}
	if len(faults) > 0 {
		return all, fmt.Errorf("%s", strings.Join(faults, "\n"))
	}
	return all, nil
}

// order reports what is wrong with the last version beside the one before it.
func order(all []Version) string {
	v := all[len(all)-1]
	if v.Name == Unreleased {
		if len(all) > 1 || v.Date != "" {
			return "[Unreleased] comes first, and has no date"
		}
		return ""
	}
	if !semantic(v.Name) {
		return v.Name + " is not a version of Semantic Versioning"
	}
	if _, err := time.Parse(time.DateOnly, v.Date); err != nil {
		return "version " + v.Name + " has no date"
	}
	if len(all) < 2 || all[len(all)-2].Name == Unreleased {
		return ""
	}
	newer := all[len(all)-2]
	if !semantic(newer.Name) {
		return "" // said
	}
	if !version.MustParseSemantic(v.Name).LessThan(version.MustParseSemantic(newer.Name)) || newer.Date < v.Date {
		return fmt.Sprintf("%s of %q is below %s of %q", v.Name, v.Date, newer.Name, newer.Date)
	}
	return ""
}

func semantic(name string) bool {
	v, err := version.ParseSemantic(name)
	return err == nil && v.String() == name
}

// link is where the heading of a version leads: to what changed since the one before.
func link(all []Version, i int) string {
	older := i + 1
	switch {
	case all[i].Name == Unreleased && older == len(all):
		return Repository + "/commits/main"
	case all[i].Name == Unreleased:
		return Repository + "/compare/v" + all[older].Name + "...HEAD"
	case older == len(all):
		return Repository + "/releases/tag/v" + all[i].Name
	}
	return Repository + "/compare/v" + all[older].Name + "...v" + all[i].Name
}

// Notes are what the file says of a version, to be read elsewhere: its links lead to the pages of that version. A
// version that has no section is an error.
func Notes(text, name string) (string, error) {
	all, err := Parse(text)
	if err != nil {
		return "", err
	}
	name = strings.TrimPrefix(name, "v")
	i := slices.IndexFunc(all, func(v Version) bool { return v.Name == name && v.Name != Unreleased })
	if i < 0 {
		return "", fmt.Errorf("CHANGELOG.md has no section [%s]", name)
	}
	return relative.ReplaceAllStringFunc(all[i].Text, func(l string) string {
		return "](" + Repository + "/blob/v" + name + "/" + strings.TrimPrefix(l, "](")
	}) + "\n", nil
}
