// Package cited finds what the source and the documentation cite: steps of the protocol ("step 8"), invariants
// ("invariant 9"), facts ("F3"), and relative links between Markdown files. All of it must exist: steps and invariants
// in docs/design.md, facts in docs/facts.md, linked files and headings at the end of the link.
//
// It imports the standard library only. It reads Go comments, and all of the Markdown and YAML files; strings in Go
// programs are not read, because a test may speak of its own steps. The KEP has three steps of its own: "KEP step 3"
// and "step 3 of the KEP" are those.
package cited

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Where the numbers are defined.
const (
	Design = "docs/design.md"
	Facts  = "docs/facts.md"
)

// Citation is one number that a file cites.
type Citation struct {
	File string
	Line int
	Kind string // "step", "invariant", "fact" or "KEP step"
	N    int
}

// String is the citation as a person would write it, with its place.
func (c Citation) String() string {
	if c.Kind == "fact" {
		return fmt.Sprintf("%s:%d: F%d", c.File, c.Line, c.N)
	}
	return fmt.Sprintf("%s:%d: %s %d", c.File, c.Line, c.Kind, c.N)
}

// Numbers are the defined numbers by kind.
type Numbers map[string]map[int]bool

// Defined reads the numbers from the documentation. A kind without numbers, a number that is defined twice, and
// one that is left out are errors.
func Defined(root fs.FS) (Numbers, error) {
	design, err := fs.ReadFile(root, Design)
	if err != nil {
		return nil, fmt.Errorf("reading definitions: %w", err)
	}
	facts, err := fs.ReadFile(root, Facts)
	if err != nil {
		return nil, fmt.Errorf("reading definitions: %w", err)
	}
	n := Numbers{"step": {}, "invariant": {}, "fact": {}, "KEP step": {1: true, 2: true, 3: true}}
	for _, from := range []struct {
		kind, file, text string
		line             *regexp.Regexp
	}{
		{"step", Design, section(string(design), "The protocol"), item},
		{"invariant", Design, section(string(design), "Invariants"), item},
		{"fact", Facts, string(facts), factHeading},
	} {
		for _, m := range from.line.FindAllStringSubmatch(from.text, -1) {
			i, _ := strconv.Atoi(m[1]) // digits only
			if n[from.kind][i] {
				return nil, fmt.Errorf("%s: %s %d is defined twice", from.file, from.kind, i)
			}
			n[from.kind][i] = true
		}
		if len(n[from.kind]) == 0 {
			return nil, fmt.Errorf("%s: no %s is defined", from.file, from.kind)
		}
		for i := 1; i <= len(n[from.kind]); i++ {
			if !n[from.kind][i] {
				return nil, fmt.Errorf("%s: %s %d is missing below the highest", from.file, from.kind, i)
			}
		}
	}
	return n, nil
}

var (
	item        = regexp.MustCompile(`(?m)^(\d+)\. `)
	factHeading = regexp.MustCompile(`(?m)^#+ F(\d+)\b`)
	heading     = regexp.MustCompile(`(?m)^(#+) +(.+?) *$`)
)

// section returns the text below the heading with that title, up to the next one of its level or above; "" if there is
// none.
func section(text, title string) string {
	level, from := 0, 0
	for _, m := range heading.FindAllStringSubmatchIndex(text, -1) {
		l := m[3] - m[2]
		switch {
		case level == 0 && text[m[4]:m[5]] == title:
			level, from = l, m[1]
		case level > 0 && l <= level:
			return text[from:m[0]]
		}
	}
	if level == 0 {
		return ""
	}
	return text[from:]
}

// Citations returns all that the files below root cite, without hidden and built folders, testdata, and this package.
func Citations(root fs.FS) ([]Citation, error) {
	var out []Citation
	err := walk(root, func(name string, text []byte) error {
		passages, err := passagesOf(name, string(text))
		if err != nil {
			return err
		}
		for _, p := range passages {
			out = append(out, p.citations(name)...)
		}
		return nil
	})
	return out, err
}

func walk(root fs.FS, f func(name string, text []byte) error) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			hidden := strings.HasPrefix(d.Name(), ".") && name != "."
			if hidden || slices.Contains([]string{"out", "bin", "test/cited"}, name) || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		case !slices.Contains([]string{".go", ".md", ".yaml"}, path.Ext(name)):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return f(name, text)
	})
}

// passage is text that reads as one, and the line of the file that it begins on.
type passage struct {
	line int
	text string
}

// passagesOf splits a file: Go into its groups of comments, anything else is one passage.
func passagesOf(name, text string) ([]passage, error) {
	switch path.Ext(name) {
	case ".go":
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		var out []passage
		for _, g := range file.Comments {
			out = append(out, passage{set.Position(g.Pos()).Line, comment(g)})
		}
		return out, nil
	case ".yaml":
		return []passage{{1, yamlComment.ReplaceAllString(text, "")}}, nil
	default:
		return []passage{{1, text}}, nil
	}
}

var yamlComment = regexp.MustCompile(`(?m)^[ \t]*#[ \t]?`)

// comment joins a group's lines, one for each line of the source.
func comment(g *ast.CommentGroup) string {
	lines := make([]string, len(g.List))
	for i, c := range g.List {
		lines[i] = strings.TrimPrefix(c.Text, "//")
	}
	return strings.Join(lines, "\n")
}

var (
	numbered = regexp.MustCompile(
		`(?i)\b(kep(?:'s)?\s+)?(step|invariant)(s?)\s+` +
			`(\d+(?:\s*\([^)]*\))?(?:(?:,\s+(?:and\s+)?|\s+(?:and|or|to)\s+)\d+)*)(\s+of\s+the\s+kep\b)?`)
	fact   = regexp.MustCompile(`(?:^|[^\w:./#-])F(\d+)\b`)
	number = regexp.MustCompile(`(to\s+)?\b(\d+)`)
	aside  = regexp.MustCompile(`\([^)]*\)`)
)

func (p passage) citations(file string) (out []Citation) {
	cite := func(at int, kind string, n int) {
		out = append(out, Citation{file, p.line + strings.Count(p.text[:at], "\n"), kind, n})
	}
	for _, m := range numbered.FindAllStringSubmatchIndex(p.text, -1) {
		kind := strings.ToLower(p.text[m[4]:m[5]])
		if kind == "step" && (m[2] >= 0 || m[10] >= 0) {
			kind = "KEP step"
		}
		all := number.FindAllStringSubmatch(aside.ReplaceAllString(p.text[m[8]:m[9]], ""), -1)
		if m[6] == m[7] { // "step 8, 110 pods" cites one
			all = all[:1]
		}
		last := 0
		for _, one := range all {
			n, _ := strconv.Atoi(one[2]) // digits only; one too large for an int is the greatest, and not there either
			if one[1] == "" {
				last = n - 1
			}
			for i := last + 1; i < n && n-last < 100; i++ {
				cite(m[0], kind, i)
			}
			cite(m[0], kind, n)
			last = n
		}
	}
	for _, m := range fact.FindAllStringSubmatchIndex(p.text, -1) {
		n, _ := strconv.Atoi(p.text[m[2]:m[3]])
		cite(m[2], "fact", n)
	}
	return out
}

// Link is one relative link of a Markdown file.
type Link struct {
	File   string
	Line   int
	Target string
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	quoted = regexp.MustCompile("`[^`\n]*`")
	scheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// Links returns the relative links of all Markdown files below root, but those in code.
func Links(root fs.FS) ([]Link, error) {
	var out []Link
	err := walk(root, func(name string, raw []byte) error {
		if path.Ext(name) != ".md" {
			return nil
		}
		text := withoutCode(string(raw))
		for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
			if target := text[m[2]:m[3]]; !scheme.MatchString(target) {
				out = append(out, Link{name, 1 + strings.Count(text[:m[0]], "\n"), target})
			}
		}
		return nil
	})
	return out, err
}

// withoutCode blanks what Markdown shows letter by letter, and keeps every line's number.
func withoutCode(text string) string {
	text = fenced.ReplaceAllStringFunc(text,
		func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	return quoted.ReplaceAllString(text, "")
}

// Broken says why a link does not resolve; "" if it does.
func (l Link) Broken(root fs.FS) string {
	file, anchor, _ := strings.Cut(l.Target, "#")
	name := l.File
	if file != "" {
		name = path.Join(path.Dir(l.File), file)
	}
	if strings.HasPrefix(file, "/") || !fs.ValidPath(name) {
		return "leads out of the repository"
	}
	info, err := fs.Stat(root, name)
	switch {
	case err != nil:
		return "is not there"
	case anchor == "":
		return ""
	case info.IsDir():
		return "names a heading of a folder"
	}
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return "names a heading that is not there"
	}
	return ""
}

// anchors are the names by which a code host links to a file's headings.
func anchors(text string) []string {
	var out []string
	times := map[string]int{}
	text = fenced.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[2])
		if n := times[slug]; n > 0 {
			out = append(out, fmt.Sprintf("%s-%d", slug, n))
		} else {
			out = append(out, slug)
		}
		times[slug]++
	}
	return out
}

// Check returns every citation of a number that does not exist, and every link that does not resolve.
func Check(root fs.FS) (faults []string, err error) {
	defined, err := Defined(root)
	if err != nil {
		return nil, err
	}
	cites, err := Citations(root)
	if err != nil {
		return nil, err
	}
	for _, c := range cites {
		if !defined[c.Kind][c.N] {
			faults = append(faults, c.String()+" does not exist")
		}
	}
	links, err := Links(root)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if why := l.Broken(root); why != "" {
			faults = append(faults, fmt.Sprintf("%s:%d: link %s %s", l.File, l.Line, l.Target, why))
		}
	}
	return faults, nil
}
