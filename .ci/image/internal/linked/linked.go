// Package linked lists the modules that are linked into a program, and their licences.
package linked

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Module is one that is linked into a program. Go's own library is the module std, whose version is Go's and which has
// no Sum.
type Module struct {
	Path, Version string
	Sum           string // "h1:...", as in go.sum
}

// Std is the Path of Go's own library.
const Std = "std"

// Name is how folders and people name it: "golang.org/x/net@v0.56.0".
func (m Module) Name() string { return m.Path + "@" + m.Version }

// In reads from a program what is linked into it, the program's own module left out, sorted by path.
func In(program io.ReaderAt) ([]Module, error) {
	info, err := buildinfo.Read(program)
	if err != nil {
		return nil, err
	}
	all := []Module{{Path: Std, Version: info.GoVersion}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s, which others cannot look up", dep.Path, dep.Replace.Path)
		}
		all = append(all, Module{dep.Path, dep.Version, dep.Sum})
	}
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// Env is added to the environment of a build, so that other variables cannot change what is linked.
var Env = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off"}

// Folder is where an image has the licences: a folder for each module, by its Name.
const Folder = "usr/share/doc/forcefence/licences"

var (
	legal   = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|notices?|patents|copyright)([._-][^/]*)?$`)
	licence = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense)([._-][^/]*)?$`)
	code    = regexp.MustCompile(`(?i)\.(go|sh|py|tmpl|yaml|yml|json)$`)
)

// IsLegal reports whether a file's name is that of a licence or a notice.
func IsLegal(file string) bool { return legal.MatchString(path.Base(file)) && !code.MatchString(file) }

// Allowed are the licences that a linked module may have, by their SPDX names: those whose terms are kept by shipping
// their text, and the MPL, whose sources are public and unchanged. Another one is a decision for people.
var Allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016"}

// enough is how many per cent of a licence's file must be words that a known licence has.
const enough = 75

// TermsIn are the Terms of a module among files of an image.
func TermsIn(files map[string][]byte, m Module) ([]string, error) {
	own, folder := map[string][]byte{}, path.Join(Folder, m.Name())+"/"
	for name, text := range files {
		if strings.HasPrefix(name, folder) {
			own[name] = text
		}
	}
	return Terms(own)
}

// Terms are the licences of a module with these files, by name, in SPDX' words and sorted. It is an error if there is
// none, if one is not Allowed, and if a file that is named like a licence has other words.
func Terms(files map[string][]byte) ([]string, error) {
	var all []string
	for name, text := range files {
		if !licence.MatchString(path.Base(name)) {
			continue
		}
		found := licensecheck.Scan(text)
		if found.Percent < enough {
			return nil, fmt.Errorf("%s: only %.0f %% of it is a known licence", name, found.Percent)
		}
		var here []string
		for _, m := range found.Match {
			if !m.IsURL {
				here = append(here, m.ID)
			}
		}
		all = append(all, chosen(text, here)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, id := range all {
		if !slices.Contains(Allowed, id) {
			return nil, fmt.Errorf("is under %s, which is not on the list of %v", id, Allowed)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("has no licence")
	}
	return all, nil
}

// choice is what a licence file begins with that lets the user choose one of several licences.
var choice = regexp.MustCompile(`^\W*SPDX-License-Identifier: (\S+(?: OR \S+)+)`)

// chosen returns the licences of a file that apply to us: the first Allowed one that it lets us choose, else all. One
// of a choice may have words that licensecheck does not know, as the BSD part of libcap's has.
func chosen(text []byte, found []string) []string {
	if m := choice.FindSubmatch(text); m != nil {
		for _, id := range strings.Split(string(m[1]), " OR ") {
			if slices.Contains(Allowed, id) {
				return []string{id}
			}
		}
	}
	return found
}
