package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is one Markdown file.
type page struct {
	blocks   []Block
	headings []string // as they are written
	links    []string // targets of links and images
	source   []byte
	doc      ast.Node
}

// readFiles calls f for each file below root of one of these types. It leaves out testdata, and folders that are hidden
// or built.
func readFiles(root fs.FS, types []string, f func(name string, source []byte) error) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			hidden := strings.HasPrefix(d.Name(), ".") && name != "."
			if hidden || name == "out" || name == "bin" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		case !slices.Contains(types, path.Ext(name)):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return f(name, source)
	})
}

// readPages returns all pages below root, by name.
func readPages(root fs.FS) (map[string]page, error) {
	pages := map[string]page{}
	err := readFiles(root, []string{".md"}, func(name string, source []byte) (err error) {
		pages[name], err = parse(name, source)
		return err
	})
	return pages, err
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table)).Parser()

func parse(name string, source []byte) (page, error) {
	p := page{source: source, doc: markdown.Parse(text.NewReader(source))}
	err := ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			b := Block{Page: name, Line: 1 + bytes.Count(source[:n.Pos()], []byte("\n")), Text: p.text(n)}
			if n.Info != nil {
				b.Words = strings.Fields(string(n.Info.Value(source)))
				b.Lang, b.Words = b.Words[0], b.Words[1:]
			}
			if strings.Contains("\n"+b.Text, "\n```") {
				return ast.WalkStop, fmt.Errorf("%s: a fence opens in this block", b)
			}
			p.blocks = append(p.blocks, b)
		case *ast.Heading:
			p.headings = append(p.headings, p.text(n))
		case *ast.Link:
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		}
		return ast.WalkContinue, nil
	})
	return p, err
}

func (p page) text(n ast.Node) string { return string(n.Lines().Value(p.source)) }

// items returns how many numbered items the section with that title has. The numbers must go on from list to list.
func (p page) items(title string) (items int, err error) {
	level := 0 // of the section's heading, within the section
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if p.text(n) == title {
				level = n.Level
			} else if n.Level <= level {
				level = 0
			}
		case *ast.List:
			if level == 0 || !n.IsOrdered() {
				continue
			}
			if n.Start != items+1 {
				return 0, fmt.Errorf("%s: a list begins with %d, want %d", title, n.Start, items+1)
			}
			items += n.ChildCount()
		}
	}
	if items == 0 {
		return 0, fmt.Errorf("%s: no numbered items", title)
	}
	return items, nil
}

// anchors are the names by which a code host links to the page's headings.
func (p page) anchors() []string {
	var all []string
	for _, heading := range p.headings {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading)
		anchor := slug
		for n := 1; slices.Contains(all, anchor); n++ {
			anchor = fmt.Sprintf("%s-%d", slug, n)
		}
		all = append(all, anchor)
	}
	return all
}
