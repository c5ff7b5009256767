package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is where a command writes for people. Nodes, Events and devices contain text from others, and a terminal would
// obey some of it. So each unprintable character except newline and tab is shown as a dot.
type screen struct {
	to    io.Writer
	width int // in columns; 0: no terminal, so lines have any length
}

// newScreen determines the width of w.
func newScreen(w io.Writer) screen {
	s := screen{to: w}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil { // an error: f is no terminal
			s.width = width
		}
	}
	return s
}

func (s screen) Write(text []byte) (int, error) {
	if _, err := io.WriteString(s.to, maskUnprintable(string(text), "\n\t")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// maskUnprintable replaces each unprintable character that is not in allowed by a dot.
func maskUnprintable(text, allowed string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) && c != utf8.RuneError || strings.ContainsRune(allowed, c) {
			return c
		}
		return '.'
	}, text)
}

// maxTextWidth is how wide a line of text is on a terminal, at most, in columns.
const maxTextWidth = 80

// printText writes a text. On a terminal it breaks lines longer than maxTextWidth or the terminal, if its words allow
// that. Lines after the first are indented by the width of head. Elsewhere the text is one line, for grep.
func printText(out io.Writer, head, format string, args ...any) {
	most := 0
	if s, ok := out.(screen); ok {
		most = min(maxTextWidth, s.width)
	}
	for _, line := range wrapText(head, fmt.Sprintf(format, args...), most) {
		fmt.Fprintln(out, line)
	}
}

// wrapText breaks a text behind a head into lines of at most most columns; 0: one line.
func wrapText(head, text string, most int) (lines []string) {
	line, indent := head, strings.Repeat(" ", utf8.RuneCountInString(head))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && most > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > most {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return append(lines, line)
}
