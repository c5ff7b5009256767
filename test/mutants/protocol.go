package main

import (
	"bufio"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// protocol is the table of the mutants that people wrote: one or more for each invariant of docs/protocol.md. An entry
// is
//
//	== invariant 9: exempt pods are ended
//	taint/decide/evict.View.sortPods
//	- pod.Exempt != taint.NotExempt
//	+ false
//	tests ./taint/decide/evict -run TestPods
//
// The second line names the declaration. Lines with "-" are Go code that is there once, in any layout; those with "+"
// take its place. "tests" is there where the tests that testers chooses do not find it in time.
const protocol = "test/mutants/protocol.txt"

// protocolMutant is an entry of the table.
type protocolMutant struct {
	name  string
	in    string // package's folder, ".", and the declaration
	old   string
	new   string
	tests []string
}

func readProtocol(root string) (out []protocolMutant, err error) {
	f, err := os.Open(filepath.Join(root, protocol))
	if err != nil {
		return nil, fmt.Errorf("reading protocol mutants: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		mark, rest, _ := strings.Cut(line, " ")
		if mark == "==" {
			out = append(out, protocolMutant{name: rest})
			continue
		}
		if line == "" || mark == "#" {
			continue
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("reading protocol mutants: line %d belongs to none", n)
		}
		m := &out[len(out)-1]
		switch {
		case mark == "-":
			m.old += rest + "\n"
		case mark == "+":
			m.new += rest + "\n"
		case mark == "tests":
			m.tests = append(m.tests, rest)
		case m.in == "":
			m.in = line
		default:
			return nil, fmt.Errorf("reading protocol mutants: line %d is none of ==, -, + and tests: %q", n, line)
		}
	}
	return out, lines.Err()
}

// placeProtocol returns the table's mutants.
func (s *source) placeProtocol() (out []Candidate, err error) {
	table, err := readProtocol(s.root)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, m := range table {
		c, err := s.place(m)
		faults, out = append(faults, err), append(out, c)
	}
	return out, errors.Join(faults...)
}

// place finds where a mutant's code is.
func (s *source) place(m protocolMutant) (Candidate, error) {
	slash := strings.LastIndex(m.in, "/") + 1
	pkg, name, _ := strings.Cut(m.in[slash:], ".")
	dir := m.in[:slash] + pkg
	files, err := s.pkg(dir)
	if err != nil {
		return Candidate{}, err
	}
	old := tokensOf(m.old, 0)
	var found []Candidate
	declared := false
	for path, f := range files {
		for _, d := range declarations(f.tree)[name] {
			declared = true
			from, to := s.fset.Position(d.Pos()), s.fset.Position(d.End()).Offset
			tokens := tokensOf(f.text[from.Offset:to], from.Offset)
			for i := range tokens {
				n, body := matchTokens(tokens[i:], old)
				if n == 0 {
					continue
				}
				c := Candidate{
					ID: m.name, Tests: m.tests, Dir: dir, Path: path, Line: from.Line, From: tokens[i].at,
					To:  tokens[i+n-1].end(),
					New: strings.ReplaceAll(strings.TrimSpace(m.new), "{ ... }", "{"+f.text[body.from:body.to]+"}"),
				}
				if c.New == "" && strings.HasPrefix(f.text[c.To:], ",") {
					c.To++ // an element goes with its comma
				}
				found = append(found, c)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case !declared:
		return Candidate{}, fmt.Errorf("%s: %s declares no %s", m.name, dir, name)
	default:
		return Candidate{}, fmt.Errorf("%s: its code is %d times in %s", m.name, len(found), m.in)
	}
}

// codeToken is a token of Go, without layout and comments.
type codeToken struct {
	at   int
	text string
}

func (t codeToken) end() int { return t.at + len(t.text) }

func tokensOf(text string, offset int) (out []codeToken) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	f := fset.AddFile("", fset.Base(), len(text))
	s.Init(f, []byte(text), nil, 0)
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return out
		case tok == token.SEMICOLON && lit == "\n":
			continue // layout
		case lit == "":
			lit = tok.String()
		}
		out = append(out, codeToken{offset + f.Offset(pos), lit})
	}
}

// matchTokens returns how many tokens a pattern takes at the beginning of some; 0: they differ. "..." between braces
// takes all up to the closing one; body is what it took.
func matchTokens(tokens, pattern []codeToken) (n int, body struct{ from, to int }) {
	for i, p := range pattern {
		if p.text == "..." && i > 0 && pattern[i-1].text == "{" {
			body.from = tokens[n-1].end()
			for depth := 0; n < len(tokens) && depth >= 0; n++ {
				switch tokens[n].text {
				case "{":
					depth++
				case "}":
					depth--
				}
			}
			n-- // the brace that closes it
			body.to = tokens[n].at
			continue
		}
		if n == len(tokens) || tokens[n].text != p.text {
			return 0, body
		}
		n++
	}
	return n, body
}
