package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// The pages that a person reads have bounds. Pages of docs/reference are looked up, not read, and do not count.
const (
	mostPages = 22
	mostWords = 45_000
	mostPath  = 10_000 // words of the reading path for bare metal
)

// TestSize: docs has at most so many pages and words, and so has the reading path for bare metal.
func TestSize(t *testing.T) {
	all := pages(t)
	read, words := 0, 0
	for name, p := range all {
		if path.Dir(name) == "docs" {
			read++
			words += countWords(p)
		}
	}
	if read > mostPages || words > mostWords {
		t.Errorf("docs has %d pages and %d words, want at most %d and %d", read, words, mostPages, mostWords)
	}
	if read < 10 {
		t.Errorf("docs has %d pages: is the right tree read?", read)
	}
	onPath := readingPath(all["docs/README.md"], "have servers with BMCs")
	if len(onPath) < 3 {
		t.Fatalf("the reading path for bare metal has the pages %q, want at least 3", onPath)
	}
	words = 0
	for _, name := range onPath {
		p, ok := all[path.Join("docs", name)]
		if !ok {
			t.Errorf("the reading path for bare metal names %s, which is no page", name)
		}
		words += countWords(p)
	}
	if words > mostPath {
		t.Errorf("the reading path for bare metal, %q, has %d words, want at most %d", onPath, words, mostPath)
	}
}

// countWords counts as wc does: marks of Markdown between blanks are words, too.
func countWords(p page) int { return len(strings.Fields(string(p.source))) }

var pageLink = regexp.MustCompile(`\]\(([^)#]+\.md)`)

// readingPath returns the pages in the row of an index that is for these readers, in order.
func readingPath(index page, readers string) (names []string) {
	for line := range strings.Lines(string(index.source)) {
		if strings.HasPrefix(line, "| "+readers+" |") {
			for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// TestReadingPath: only the row of the named readers counts, and a link to a section is a link to its page.
func TestReadingPath(t *testing.T) {
	p, err := parse("x.md", []byte("| you | read |\n| --- | --- |\n| b | [x](x.md) |\n| a | [y](y.md#z), [z](../z.md) |\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(readingPath(p, "a"), " "); got != "y.md ../z.md" {
		t.Errorf("got %q, want y.md and ../z.md", got)
	}
	if got := readingPath(p, "c"); len(got) > 0 {
		t.Errorf("readers without a row: got %q, want no page", got)
	}
}
