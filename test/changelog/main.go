// Command changelog prints what CHANGELOG.md says of a version: a release's notes. It is run in the repository's root.
// Its tests check that the file has the form of Keep a Changelog.
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	unreleased = "Unreleased"
	repository = "https://github.com/forcefence/forcefence"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want a version, such as 1.2.3")
		os.Exit(2)
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err == nil {
		var notes string
		if notes, err = notesOf(string(text), os.Args[1]); err == nil {
			fmt.Print(notes)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// sections are those that a version may have, in this order. Keep a Changelog has all but the first.
var sections = []string{"Upgrade notes", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// release is one version of the file.
type release struct {
	name string // without a v
	date string // 2026-01-31; "" for Unreleased
	text string // the text below the heading, without space around it
}

var (
	heading  = regexp.MustCompile(`^\[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?\n`)
	relative = regexp.MustCompile(`\]\([^)#:]+(#[^)]*)?\)`)
)

// parse returns the versions, newest first. The error names the first fault of the form.
func parse(text string) (all []release, err error) {
	parts := strings.Split(text, "\n## ")
	if !strings.HasPrefix(text, "# Changelog\n") {
		return nil, fmt.Errorf("CHANGELOG.md does not begin with # Changelog")
	}
	for _, part := range parts[1:] {
		m := heading.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("## %.40q is no version and date, as [1.2.3] - 2026-01-31", part)
		}
		all = append(all, release{m[1], m[2], part[len(m[0]):]})
	}
	if len(all) == 0 || all[0].name != unreleased {
		return nil, fmt.Errorf("the first version is not [%s]", unreleased)
	}
	last := &all[len(all)-1]
	var linked bool
	last.text, linked = strings.CutSuffix(last.text, "\n"+links(all))
	for i := range all {
		r := &all[i]
		r.text = strings.TrimSpace(r.text)
		if err := r.checkSections(); err != nil {
			return nil, err
		}
		if err := checkOrder(all[:i+1]); err != nil {
			return nil, err
		}
	}
	if !linked {
		return nil, fmt.Errorf("the file does not end with these links:\n%s", links(all))
	}
	return all, nil
}

func (r release) checkSections() error {
	if r.text == "" && r.name != unreleased {
		return fmt.Errorf("version %s is empty", r.name)
	}
	before := -1
	for _, part := range strings.Split("\n"+r.text, "\n### ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		now := slices.Index(sections, title)
		switch {
		case now <= before:
			return fmt.Errorf("version %s: section %q: want one of %q, in this order", r.name, title, sections)
		case strings.TrimSpace(text) == "":
			return fmt.Errorf("version %s: section %s is empty", r.name, title)
		}
		before = now
	}
	return nil
}

// checkOrder checks the last version beside the one before it.
func checkOrder(all []release) error {
	r := all[len(all)-1]
	if len(all) == 1 {
		if r.date != "" {
			return fmt.Errorf("[%s] has a date", r.name)
		}
		return nil
	}
	v, err := version.ParseSemantic(r.name)
	if err != nil || v.String() != r.name {
		return fmt.Errorf("%s is not a version of Semantic Versioning", r.name)
	}
	if _, err := time.Parse(time.DateOnly, r.date); err != nil {
		return fmt.Errorf("version %s has no date", r.name)
	}
	newer := all[len(all)-2]
	if len(all) > 2 && (!v.LessThan(version.MustParseSemantic(newer.name)) || newer.date < r.date) {
		return fmt.Errorf("%s of %s is below %s of %s", r.name, r.date, newer.name, newer.date)
	}
	return nil
}

// links lead from each version's heading to what changed since the version before.
func links(all []release) string {
	var out strings.Builder
	for i, r := range all {
		tag, path := "v"+r.name, "/releases/tag/v"+r.name
		if r.name == unreleased {
			tag, path = "HEAD", "/commits/main"
		}
		if i+1 < len(all) {
			path = "/compare/v" + all[i+1].name + "..." + tag
		}
		fmt.Fprintf(&out, "[%s]: %s%s\n", r.name, repository, path)
	}
	return out.String()
}

// notesOf returns what the file says of a version, to be read elsewhere: its links lead to the pages of that version. A
// version that has no section is an error.
func notesOf(text, name string) (string, error) {
	all, err := parse(text)
	if err != nil {
		return "", err
	}
	name = strings.TrimPrefix(name, "v")
	for _, r := range all[1:] {
		if r.name == name {
			to := "](" + repository + "/blob/v" + name + "/"
			return relative.ReplaceAllStringFunc(r.text, func(l string) string {
				return to + strings.TrimPrefix(l, "](")
			}) + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section [%s]", name)
}
