package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Screen prints the story. It is safe for concurrent use.
type Screen struct {
	mu    sync.Mutex // held while something is printed
	out   io.Writer
	color bool
}

// NewScreen writes to out, with colours if that is a terminal and NO_COLOR is not set.
func NewScreen(out *os.File) *Screen {
	info, err := out.Stat()
	color := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb"
	return &Screen{out: out, color: color}
}

const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func (s *Screen) paint(style, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Say prints a paragraph.
func (s *Screen) Say(format string, args ...any) { s.print(fmt.Sprintf(format, args...) + "\n") }

func (s *Screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.out, text)
}

// Title prints a heading.
func (s *Screen) Title(text string) {
	s.Say("\n%s\n%s", s.paint(bold, text), strings.Repeat("=", len(text)))
}

// Step says what is begun, and returns a function that says how long it took.
func (s *Screen) Step(format string, args ...any) (done func(format string, args ...any)) {
	begin := time.Now()
	s.print(fmt.Sprintf("  %-66s", fmt.Sprintf(format, args...)))
	return func(format string, args ...any) {
		s.Say("%5.1fs  %s", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// Check prints a check's outcome.
func (s *Screen) Check(ok bool, text string) {
	mark := s.paint(green, "ok    ")
	if !ok {
		mark = s.paint(red, "FAILED")
	}
	s.Say("  %s %s", mark, text)
}
