package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// upstream is a citation of another project's source: lines of a file or the whole file, and a text that must be there.
// Documentation and comments write the file, a colon, the lines and, behind a comma, the text; or file and text alone.
// File and text are in backquotes. A path that begins with a module names that module; any other is of Kubernetes.
// Lines are cited of Kubernetes alone, because `make test` needs no other of these modules.
type upstream struct {
	place, file, text string
	from, to          int // zero: anywhere in the file
}

const kubernetes = "k8s.io/kubernetes"

var (
	goFile  = "`((?:[\\w.-]+/)*[\\w.-]+\\.go)"
	cited   = regexp.MustCompile(goFile + "(?::(\\d+)(?:-(\\d+))?)?`(?:,\\s+`([^`]+)`)?")
	byHand  = regexp.MustCompile("[\\w.-]+\\.go`?(?::|,?\\s+(?:at\\s+)?lines?\\s+)\\d+")
	pinned  = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) (v\S+)$`)
	spaces  = regexp.MustCompile(`\s+`)
	ownRoot = regexp.MustCompile(`^(cmd|kubelet-admit|providers|taint|test)/`)
)

// readUpstream collects a passage's citations of other projects. One with lines and without a text is a fault, and so
// are lines in another form.
func (c *citations) readUpstream(place, text string) {
	for _, m := range cited.FindAllStringSubmatch(text, -1) {
		u := upstream{place: place, file: m[1], text: m[4]}
		u.from, _ = strconv.Atoi(m[2]) // "" is 0: digits only
		if u.to, _ = strconv.Atoi(m[3]); u.to == 0 {
			u.to = u.from
		}
		switch {
		case u.text == "" && u.from > 0:
			c.faults = append(c.faults, fmt.Sprintf("%s: %s:%d has no text behind it that must be there",
				place, u.file, u.from))
		case u.text != "" && !ownRoot.MatchString(u.file):
			c.upstream = append(c.upstream, u)
		}
	}
	rest := cited.ReplaceAllStringFunc(text, func(m string) string {
		if strings.Contains(m, ".go:") {
			return ""
		}
		return m
	})
	for _, m := range byHand.FindAllString(rest, -1) {
		c.faults = append(c.faults, fmt.Sprintf("%s: %s is no citation: see upstream.go of test/docs", place, m))
	}
}

// modules is where the pinned modules are read.
type modules struct {
	versions map[string]string // by module
	cache    fs.FS
}

// readModules reads the pinned versions. Of a module in several files the first counts.
func readModules(root, cache fs.FS, patterns ...string) (modules, error) {
	m := modules{versions: map[string]string{}, cache: cache}
	for _, pattern := range patterns {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			return m, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return m, err
			}
			for _, r := range pinned.FindAllStringSubmatch(string(text), -1) {
				if _, known := m.versions[r[1]]; !known {
					m.versions[r[1]] = r[2]
				}
			}
		}
	}
	if m.versions[kubernetes] == "" {
		return m, fmt.Errorf("no version of %s is pinned", kubernetes)
	}
	return m, nil
}

// folder is the module's folder in the cache.
func (m modules) folder(module string) string { return module + "@" + m.versions[module] }

// fault returns "", or why a citation does not hold. A module that is not in the cache is not checked.
func (m modules) fault(u upstream) string {
	module, file := kubernetes, u.file
	for name := range m.versions {
		if rest, ok := strings.CutPrefix(u.file, name+"/"); ok && (module == kubernetes || len(name) > len(module)) {
			module, file = name, rest
		}
	}
	if module != kubernetes && u.from > 0 {
		return fmt.Sprintf("%s: cite a symbol of %s: its lines are not checked everywhere", u.place, u.file)
	}
	if _, err := fs.Stat(m.cache, m.folder(module)); err != nil {
		return ""
	}
	source, err := fs.ReadFile(m.cache, path.Join(m.folder(module), file))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s: %s has no file %s", u.place, m.folder(module), file)
	case err != nil:
		return fmt.Sprintf("%s: %v", u.place, err)
	}
	text, where := spaces.ReplaceAllString(u.text, " "), "it"
	passage := strings.Split(string(source), "\n")
	if u.from > 0 {
		where = fmt.Sprintf("lines %d to %d", u.from, u.to)
		if u.to < u.from || u.to > len(passage) {
			return fmt.Sprintf("%s: %s has no %s", u.place, u.file, where)
		}
		passage = passage[u.from-1 : u.to]
	}
	if slices.ContainsFunc(passage, func(line string) bool { return strings.Contains(line, text) }) {
		return ""
	}
	for i, line := range strings.Split(string(source), "\n") {
		if strings.Contains(line, text) {
			return fmt.Sprintf("%s: %s at %s: %s do not have `%s`, line %d has",
				u.place, u.file, m.versions[module], where, text, i+1)
		}
	}
	return fmt.Sprintf("%s: %s at %s does not have `%s`", u.place, u.file, m.versions[module], text)
}
