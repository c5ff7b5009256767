package docs

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// citations checks what the source and the documentation cite: steps of the protocol ("step 8") and invariants
// ("invariant 9") of docs/protocol.md, and facts ("F3") of docs/reference/facts.md. It reads Go comments, and all of
// Markdown and YAML; strings in Go programs are not read, because a test may speak of its own steps. The KEP has three
// steps of its own: "KEP step 3" and "step 3 of the KEP" are those.
type citations struct {
	highest map[string]int // by kind: step, invariant, fact, KEP step
	found   map[string]int // how many numbers are cited, by kind
	faults  []string

	upstream []upstream // what is cited of other projects' sources
}

var factHeading = regexp.MustCompile(`^F(\d+)\b`)

// newCitations reads the definitions. A kind without numbers, a number that is missing or defined twice is an error.
func newCitations(pages map[string]page) (*citations, error) {
	c := &citations{highest: map[string]int{"KEP step": 3}, found: map[string]int{}}
	var err error
	if c.highest["step"], err = pages["docs/protocol.md"].items("Steps"); err != nil {
		return nil, fmt.Errorf("counting steps: %w", err)
	}
	if c.highest["invariant"], err = pages["docs/protocol.md"].items("Invariants"); err != nil {
		return nil, fmt.Errorf("counting invariants: %w", err)
	}
	var facts []int
	for _, heading := range pages["docs/reference/facts.md"].headings {
		if m := factHeading.FindStringSubmatch(heading); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits only
			facts = append(facts, n)
		}
	}
	slices.Sort(facts)
	for i, n := range facts {
		if n != i+1 {
			return nil, fmt.Errorf("counting facts: F%d is missing, or a lower one is there twice", i+1)
		}
	}
	if c.highest["fact"] = len(facts); len(facts) == 0 {
		return nil, fmt.Errorf("counting facts: none in docs/reference/facts.md")
	}
	return c, nil
}

// readFile checks one file.
func (c *citations) readFile(name string, source []byte) error {
	if path.Ext(name) != ".go" {
		c.read(name, string(source))
		return nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, g := range file.Comments {
		c.read(set.Position(g.Pos()).String(), g.Text())
	}
	return nil
}

var (
	numbered = regexp.MustCompile(
		`(?i)\b(kep(?:'s)?\s+)?(step|invariant)(s?)[\s#]+` +
			`(\d+(?:\s*\([^)]*\))?(?:(?:,\s+(?:and\s+)?|\s+(?:and|or|to)\s+)\d+)*)(\s+of\s+the\s+kep\b)?`)
	fact   = regexp.MustCompile(`(?:^|[^\w:./#-])F(\d+)\b`)
	number = regexp.MustCompile(`\b\d+`)
	aside  = regexp.MustCompile(`\([^)]*\)`)
)

// read checks one passage. Of a range it checks the ends: all numbers up to the highest are defined.
func (c *citations) read(place, text string) {
	c.readUpstream(place, text)
	for _, m := range numbered.FindAllStringSubmatch(text, -1) {
		kind := strings.ToLower(m[2])
		if kind == "step" && (m[1] != "" || m[5] != "") {
			kind = "KEP step"
		}
		numbers := number.FindAllString(aside.ReplaceAllString(m[4], ""), -1)
		if m[3] == "" { // "step 8, 110 pods" cites one
			numbers = numbers[:1]
		}
		for _, n := range numbers {
			c.cite(place, kind, n)
		}
	}
	for _, m := range fact.FindAllStringSubmatch(text, -1) {
		c.cite(place, "fact", m[1])
	}
}

func (c *citations) cite(place, kind, number string) {
	c.found[kind]++
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > c.highest[kind] {
		c.faults = append(c.faults, fmt.Sprintf("%s: there is no %s %s", place, kind, number))
	}
}

var scheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)

// brokenLinks returns the relative links that lead to no file or folder of the repository, or to no heading of a page.
func brokenLinks(root fs.FS, pages map[string]page) (faults []string) {
	for name, p := range pages {
		for _, link := range p.links {
			file, anchor, _ := strings.Cut(link, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if scheme.MatchString(link) {
				continue
			}
			if _, err := fs.Stat(root, target); err != nil || strings.HasPrefix(file, "/") {
				faults = append(faults, fmt.Sprintf("%s: the link %s leads to no file", name, link))
			} else if anchor != "" && !slices.Contains(pages[target].anchors(), anchor) {
				faults = append(faults, fmt.Sprintf("%s: the link %s leads to no heading", name, link))
			}
		}
	}
	return faults
}
