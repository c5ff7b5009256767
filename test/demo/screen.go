package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// labels are the events in a newcomer's words.
var labels = map[Kind]string{
	PowerLost:           "POWER LOST",
	OffSeen:             "off seen",
	Marked:              "node marked",
	Confirmed:           "off confirmed",
	Evicting:            "eviction begins",
	Tombstoned:          "pods ended",
	VolumesCleared:      "volumes cleared",
	PodsDeleted:         "pods deleted",
	Detached:            "volumes detached",
	MarkRemoved:         "mark removed",
	ReplacementsRunning: "ALL RUNNING AGAIN",
}

// settleTime is how long a line waits for lines of an earlier time: they come from several watches and a log file.
const settleTime = 300 * time.Millisecond

// Screen prints the story. It is safe for concurrent use.
type Screen struct {
	out   io.Writer
	color bool
	now   func() time.Time
	begun time.Time

	mu      sync.Mutex // guards the rest
	pending []line
}

type line struct {
	at      time.Duration
	arrived time.Time
	text    string
}

// NewScreen writes to out, with colours if that is a terminal and NO_COLOR is not set.
func NewScreen(out *os.File) *Screen {
	info, err := out.Stat()
	color := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb"
	return &Screen{out: out, color: color, now: time.Now, begun: time.Now()}
}

const (
	bold  = "1"
	dim   = "2"
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
func (s *Screen) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Title prints a heading.
func (s *Screen) Title(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Say("\n%s\n%s", s.paint(bold, text), strings.Repeat("=", len(text)))
}

// Step says what is begun and returns a function that says how long it took.
func (s *Screen) Step(format string, args ...any) (done func(format string, args ...any)) {
	what, begin := fmt.Sprintf(format, args...), s.now()
	if s.color {
		s.mu.Lock()
		fmt.Fprintf(s.out, "  %-66s", what)
		s.mu.Unlock()
		what = ""
	}
	return func(format string, args ...any) {
		more := fmt.Sprintf(format, args...)
		took := fmt.Sprintf("%5.1fs", s.now().Sub(begin).Seconds())
		if what != "" {
			s.Say("  %-66s%s  %s", what, took, more)
			return
		}
		s.Say("%s  %s", took, more)
	}
}

// Event queues a line of the timeline.
func (s *Screen) Event(e Event) {
	label := fmt.Sprintf("%-18s", labels[e.Kind])
	switch e.Kind {
	case PowerLost:
		label = s.paint(red, label)
	case ReplacementsRunning:
		label = s.paint(green, label)
	default:
		label = s.paint(bold, label)
	}
	s.queue(e.at(), label+" "+e.Detail)
}

// Note queues a line beside the timeline.
func (s *Screen) Note(at time.Duration, text string) {
	s.queue(at, s.paint(dim, fmt.Sprintf("%-18s %s", "  ...", text)))
}

func (s *Screen) queue(at time.Duration, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, line{at, s.now(), text})
}

// Flush prints the lines that are old enough, or all of them, in the order of their time.
func (s *Screen) Flush(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.pending, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	// A line waits for those before it, so that what is printed is never out of order.
	n := 0
	for n < len(s.pending) && (all || s.now().Sub(s.pending[n].arrived) >= settleTime) {
		n++
	}
	for _, l := range s.pending[:n] {
		fmt.Fprintf(s.out, "  %7.2fs  %s\n", l.at.Seconds(), l.text)
	}
	s.pending = slices.Delete(s.pending, 0, n)
}

// Rack is one machine in the picture.
type Rack struct {
	Node, Power, Ready, Mark string
	Pods, Volumes            int
	Remark                   string
}

const podsPerSign = 4

// Picture draws the machines with what runs on each.
func (s *Screen) Picture(racks []Rack) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %-8s %-6s %-8s %-5s %4s %7s  # = %d running pods\n", "machine", "power", "node", "mark",
		"pods", "volumes", podsPerSign)
	for _, r := range racks {
		row := fmt.Sprintf("  %-8s %-6s %-8s %-5s %4d %7d  %s", r.Node, r.Power, r.Ready, r.Mark, r.Pods, r.Volumes,
			strings.Repeat("#", (r.Pods+podsPerSign-1)/podsPerSign))
		if r.Remark != "" {
			row += "  <-- " + r.Remark
		}
		if r.Power != "on" {
			row = s.paint(red, row)
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	s.Say("%s", b.String())
}

// Check prints a check's outcome.
func (s *Screen) Check(ok bool, text string) {
	mark := s.paint(green, "ok    ")
	if !ok {
		mark = s.paint(red, "FAILED")
	}
	s.Say("  %s %s", mark, text)
}

// Summary prints when what happened, for each round, in seconds.
func (s *Screen) Summary(rounds []*Round) {
	var b strings.Builder
	fmt.Fprintf(&b, "  %-20s", "seconds after")
	for _, r := range rounds {
		fmt.Fprintf(&b, "%18s", beginnings[r.number])
	}
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n  %-20s", strings.ToLower(labels[k]))
		for _, r := range rounds {
			cell := "-"
			if at, ok := r.When(k); ok {
				cell = fmt.Sprintf("%.2f", at.Seconds())
			}
			fmt.Fprintf(&b, "%18s", cell)
		}
	}
	s.Say("%s", b.String())
}

var kinds = []Kind{
	PowerLost, OffSeen, Marked, Confirmed, Evicting, Tombstoned, VolumesCleared, PodsDeleted, Detached, MarkRemoved,
	ReplacementsRunning,
}

// beginnings say what a round's time counts from.
var beginnings = map[int]string{1: "1: power cut", 2: "2: heartbeats end", 3: "3: power cut"}
