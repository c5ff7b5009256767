package main

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/semver"
)

// choose is the version of a release of sources at a commit with these tags; wanted is "" for the commit's own. A
// rehearsal needs neither a tag nor unchanged sources, but a version: it must not be taken for a release that there
// will be.
func choose(wanted string, tags []string, changed, rehearsal bool) (string, error) {
	tags = slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return !is(t) })
	switch {
	case wanted != "" && !is(wanted):
		return "", fmt.Errorf("version %q is none of Semantic Versioning's: write v1.2.3, or v1.2.3-rc.1, and no + "+
			"(no tag of an image has one)", wanted)
	case rehearsal && wanted == "":
		return "", errors.New("a rehearsal has no tag to take its version from: set VERSION")
	case rehearsal:
		return wanted, nil
	case changed:
		return "", errors.New("the sources are changed (git status): commit first, or set REHEARSAL=1")
	case wanted == "" && len(tags) != 1:
		return "", fmt.Errorf("HEAD has the tags %q, want one such as v1.2.3: git tag it, or set VERSION", tags)
	case wanted == "":
		return tags[0], nil
	case !slices.Contains(tags, wanted):
		return "", fmt.Errorf("HEAD has the tags %q, and not %s: git tag it, or set REHEARSAL=1", tags, wanted)
	}
	return wanted, nil
}

func is(version string) bool { return semver.IsValid(version) && semver.Canonical(version) == version }
