package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-licenses/v2/licenses"
)

// legalFolder is where the image has forcefence's licence and, in licences/MODULE@VERSION, all others.
const legalFolder = "usr/share/doc/forcefence"

// allowed are the licences that a linked module may have, by their SPDX names: those whose terms are kept by shipping
// their text, and the MPL, whose sources are public and unchanged. Another one is a decision for people.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016"}

// chosen are the licences that we take where a module lets us choose.
var chosen = map[string]string{"kernel.org/pub/linux/libs/security/libcap/psx": "BSD-3-Clause"} // or the GPL

var (
	legal = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|notices?|patents|copyright)(\.(txt|md)|[_-].*)?$`)
	upper = regexp.MustCompile(`![a-z]`) // in Go's cache of modules
)

// legalTexts are the licences and notices of all that is linked into the programs.
type legalTexts struct {
	to    string              // their folder
	names map[string][]string // licences by module, such as golang.org/x/net@v0.56.0
}

// collectLicences copies the licences and notices of all that is linked into the programs, as go-licenses finds them.
// It is an error if a package has none, or one that is not allowed.
func collectLicences(ctx context.Context, to string) (map[string][]string, error) {
	env, err := output(ctx, "go", "env", "GOROOT", "GOVERSION", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	dirs := strings.Split(env, "\n")
	goroot, std, cache := dirs[0], "std@"+dirs[1], dirs[2]
	classifier, err := licenses.NewClassifier()
	if err != nil {
		return nil, fmt.Errorf("read go-licenses' texts: %w", err)
	}
	all := legalTexts{to: to, names: map[string][]string{}}
	own, _ := filepath.Glob(goroot + "/src/vendor/golang.org/x/*/LICENSE")
	for _, file := range append(own, goroot+"/LICENSE") { // go-licenses leaves out Go's own library
		found, err := classifier.Identify(file)
		lib := &licenses.Library{LicenseFile: file, Licenses: found}
		if err := errors.Join(err, all.add(lib, std+strings.TrimPrefix(file, goroot))); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Concat(platforms, darwin) {
		main := []string{"./cmd/forcefence", "./cmd/forcefence-node"}
		if p.OS == "darwin" {
			main = main[:1]
		}
		_, _ = os.Setenv("GOOS", p.OS), os.Setenv("GOARCH", p.Architecture)
		libraries, err := licenses.Libraries(ctx, classifier, false, []string{project}, main...)
		for _, lib := range libraries {
			name := strings.TrimPrefix(lib.LicenseFile, cache+"/")
			name = upper.ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
			err = errors.Join(err, all.add(lib, name))
		}
		if err != nil {
			return nil, fmt.Errorf("find licences for %s: %w", p, err)
		}
	}
	_, _ = os.Unsetenv("GOOS"), os.Unsetenv("GOARCH")
	return all.names, copyLegal(".", to)
}

// add copies the licence of a library and what lies beside it. name is its file, such as
// golang.org/x/net@v0.56.0/LICENSE.
func (t legalTexts) add(lib *licenses.Library, name string) error {
	path, rest, _ := strings.Cut(name, "@")
	version, _, ok := strings.Cut(rest, "/")
	module := path + "@" + version
	switch {
	case len(lib.Licenses) == 0:
		return fmt.Errorf("%s@%s has no licence that go-licenses knows", lib, lib.Version())
	case !ok || filepath.IsAbs(name):
		return fmt.Errorf("%s is replaced by %s, which others cannot look up", lib, lib.LicenseFile)
	}
	var found []string
	for _, l := range lib.Licenses {
		found = append(found, l.Name)
	}
	if slices.Contains(found, chosen[path]) {
		found = []string{chosen[path]}
	}
	for _, name := range found {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("%s is under %s, which is not on the list of %v", module, name, allowed)
		}
	}
	t.names[module] = append(t.names[module], found...)
	slices.Sort(t.names[module])
	t.names[module] = slices.Compact(t.names[module])
	return copyLegal(filepath.Dir(lib.LicenseFile), filepath.Join(t.to, "licences", filepath.Dir(name)))
}

// copyLegal copies a folder's licences and notices, without those of folders in it.
func copyLegal(from, to string) error {
	entries, err := os.ReadDir(from)
	err = errors.Join(err, os.MkdirAll(to, 0o755))
	for _, e := range entries {
		if e.Type().IsRegular() && legal.MatchString(e.Name()) {
			text, err2 := os.ReadFile(filepath.Join(from, e.Name()))
			err = errors.Join(err, err2, os.WriteFile(filepath.Join(to, e.Name()), text, 0o644))
		}
	}
	return err
}
