package binaries

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	quietPeriod = 15 * time.Second // between lines, where no terminal is
	livePeriod  = 500 * time.Millisecond
	tailLines   = 20
)

// progress turns `go build -v`, which prints a line for each package that it compiles, into a count, the elapsed time,
// and about how long the rest takes.
type progress struct {
	out   io.Writer
	total int  // packages to compile; 0 if that is not known
	live  bool // a terminal: one line, rewritten
	start time.Time
	stop  chan struct{}
	ended chan struct{}

	mu    sync.Mutex // guards the rest
	what  string
	built int
	part  []byte   // of a line
	last  []string // of what go printed
}

// newProgress reports from begin until finish.
func newProgress(out io.Writer, total int) *progress {
	return &progress{out: out, total: total, live: isTerminal(out), start: time.Now()}
}

// begin says what is built from now on. The first call starts the report.
func (p *progress) begin(what string) {
	p.mu.Lock()
	p.what = what
	p.mu.Unlock()
	p.line()
	if p.stop != nil {
		return
	}
	period := quietPeriod
	if p.live {
		period = livePeriod
	}
	p.stop, p.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.ended)
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.line()
			case <-p.stop:
				return
			}
		}
	}()
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.part = append(p.part, b...)
	for {
		line, rest, ok := bytes.Cut(p.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.part = rest
		p.built++
		p.last = append(p.last, string(line))
		if len(p.last) > tailLines {
			p.last = p.last[1:]
		}
	}
}

func (p *progress) line() {
	p.mu.Lock()
	what, built := p.what, p.built
	p.mu.Unlock()
	begin, end := "", "\n"
	if p.live {
		begin, end = "\r\x1b[K", ""
	}
	fmt.Fprintf(p.out, "%s%s: %s%s", begin, what,
		describeProgress(built, p.total, time.Since(p.start), runtime.NumCPU()), end)
}

// describeProgress says how far a build is. It estimates the rest by what the packages before took; before a twentieth
// is compiled, by perPackage.
func describeProgress(built, total int, elapsed time.Duration, cores int) string {
	took := elapsed.Round(time.Second)
	if total == 0 {
		return fmt.Sprintf("%d packages, %s", built, took)
	}
	left := time.Duration(max(0, total-built)) * perPackage / time.Duration(cores)
	if built >= total/20+1 {
		left = elapsed / time.Duration(built) * time.Duration(max(0, total-built))
	}
	rest := fmt.Sprintf("about %d min left", int((left + 30*time.Second).Minutes()))
	if left < 30*time.Second {
		rest = "less than a minute left"
	}
	return fmt.Sprintf("%d of %d packages, %s, %s", built, max(built, total), took, rest)
}

// perPackage is what a core takes for a package of the control plane or of forcefence (two cores of 2026, 2,900
// packages).
const perPackage = 250 * time.Millisecond

func (p *progress) finish(err error) {
	if p.stop != nil {
		close(p.stop)
		<-p.ended
	}
	p.line()
	if p.live {
		fmt.Fprintln(p.out)
	}
	if err == nil {
		fmt.Fprintln(p.out, "built all in", time.Since(p.start).Round(time.Second))
	}
}

func (p *progress) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.last, string(p.part)), "\n")
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "" && f.Name() != os.DevNull
}
