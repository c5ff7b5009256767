package main

import (
	"bytes"
	"encoding/json"
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
	width int  // in columns; 0: unlimited
	color bool // a terminal without NO_COLOR
}

// newScreen determines the width and colour support of w. https://no-color.org defines the variable.
func newScreen(w io.Writer) screen {
	s := screen{to: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.width = width
	}
	s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
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

// printJSON writes a value as JSON. It escapes what a terminal would obey, so the value does not change.
func printJSON(out io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, c := range b.String() {
		switch {
		case unicode.IsPrint(c) || c == '\n':
			safe.WriteRune(c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(&safe, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			fmt.Fprintf(&safe, `\u%04x`, c)
		}
	}
	_, err := io.WriteString(out, safe.String())
	return err
}

// maxTextWidth is how wide a line of text is, at most, in columns.
const maxTextWidth = 80

// printText writes a text in lines no longer than maxTextWidth or the screen, if its words allow that. Lines after the
// first are indented by the width of head.
func printText(out io.Writer, head, format string, args ...any) {
	most := maxTextWidth
	if s, ok := out.(screen); ok && s.width > 0 {
		most = min(most, s.width)
	}
	for _, line := range wrapText(head, fmt.Sprintf(format, args...), most) {
		fmt.Fprintln(out, line)
	}
}

// wrapText breaks a text behind a head into lines.
func wrapText(head, text string, most int) (lines []string) {
	line, indent := head, strings.Repeat(" ", utf8.RuneCountInString(head))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > most {
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

// cell is one text of a grid. color is the number of its ECMA-48 SGR attribute; "" for none.
type cell struct{ text, color string }

// The colours of cells.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// plainCells returns a row without colours.
func plainCells(values ...any) (row []cell) {
	for _, v := range values {
		row = append(row, cell{text: fmt.Sprint(v)})
	}
	return row
}

// minNoteWidth is how many columns a grid's last column needs to be printed beside the others.
const minNoteWidth = 30

// printGrid writes rows in columns. The last column holds a text: if the screen is too narrow for it, it is printed
// below its row. If the other columns are too wide as well, each cell gets a line of its own.
func printGrid(out io.Writer, header []string, rows [][]cell) {
	s, ok := out.(screen)
	if !ok {
		s = screen{to: out}
	}
	last := len(header) - 1
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = len(h)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = strings.Join(strings.Fields(maskUnprintable(row[i].text, "\n\t")), " ")
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	used := 0 // by all columns but the last
	for _, w := range widths[:last] {
		used += w + 2
	}
	beside := s.width == 0 || used+min(widths[last], minNoteWidth) <= s.width
	if !beside && used-2 > s.width {
		s.printBlocks(header, rows)
		return
	}
	var b strings.Builder
	line := func(row []cell) {
		at := 0
		for i, c := range row[:last] {
			at += widths[i] + 2
			b.WriteString(s.paintCell(c) + strings.Repeat(" ", widths[i]+2-utf8.RuneCountInString(c.text)))
		}
		note := row[last]
		switch {
		case !beside && note.text != "":
			b.WriteString("\n")
			for _, l := range wrapText("  ", note.text, s.width) {
				b.WriteString(s.paintCell(cell{l, note.color}) + "\n")
			}
		case s.width == 0:
			b.WriteString(note.text + "\n")
		default:
			for i, l := range wrapText("", note.text, s.width-used) {
				if i > 0 {
					b.WriteString(strings.Repeat(" ", at))
				}
				b.WriteString(s.paintCell(cell{l, note.color}) + "\n")
			}
		}
	}
	head := make([]cell, len(header))
	for i, h := range header {
		head[i].text = h
	}
	if !beside {
		head[last].text = ""
	}
	for _, row := range append([][]cell{head}, rows...) {
		line(row)
	}
	s.writeRaw(b.String())
}

// printBlocks writes each row as lines of header and cell.
func (s screen) printBlocks(header []string, rows [][]cell) {
	wide := 0
	for _, h := range header[1:] {
		wide = max(wide, len(h))
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(s.paintCell(row[0]) + "\n")
		for i, c := range row[1:] {
			if c.text == "" || c.text == "-" {
				continue
			}
			for n, l := range wrapText(fmt.Sprintf("  %-*s  ", wide, header[i+1]), c.text, s.width) {
				if n == 0 {
					l = l[:wide+4] + s.paintCell(cell{l[wide+4:], c.color})
				}
				b.WriteString(l + "\n")
			}
		}
	}
	s.writeRaw(b.String())
}

// paintCell colours a text that is already printable.
func (s screen) paintCell(c cell) string {
	if !s.color || c.color == "" || c.text == "" {
		return c.text
	}
	return "\x1b[" + c.color + "m" + c.text + "\x1b[0m"
}

// writeRaw writes text that is already printable, with its colours. It trims the spaces at line ends.
func (s screen) writeRaw(text string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, _ = io.WriteString(s.to, strings.Join(lines, "\n"))
}
