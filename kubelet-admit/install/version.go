package install

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is a runtime's version. Pre-releases and builds of a version count as that version.
type Version struct{ Major, Minor, Patch int }

// String returns 2.4.2.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

func (v Version) atLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// versionWord matches a version as a word of its own: containerd prints its module's path, which ends in /v2, before
// it. Builds without a version (1.7.x from source: "1.7.0+unknown") have three numbers as well.
var versionWord = regexp.MustCompile(`(?m)(?:^|\s)v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:[-+~.][0-9A-Za-z.+~-]*)?(?:\s|$)`)

// parseVersion returns the first version in the output of `containerd --version` or `crio --version`.
func parseVersion(text string) (Version, error) {
	m := versionWord.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("no version in %q", lastLines(text))
	}
	var v Version
	for i, n := range []*int{&v.Major, &v.Minor, &v.Patch} {
		*n, _ = strconv.Atoi(m[i+1]) // at most six digits
	}
	return v, nil
}
