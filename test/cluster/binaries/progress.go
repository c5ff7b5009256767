package binaries

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	quietPeriod = 15 * time.Second // between lines, where no terminal is
	livePeriod  = 500 * time.Millisecond
	tailLines   = 20
)

// progress turns `go build -v`, which prints a line for each package that it compiles, into a count and the elapsed
// time.
type progress struct {
	out   io.Writer
	what  string
	live  bool // a terminal: one line, rewritten
	start time.Time
	stop  chan struct{}
	ended chan struct{}

	mu    sync.Mutex // guards the rest
	built int
	part  []byte   // of a line
	last  []string // of what go printed
}

func newProgress(out io.Writer, what string) *progress {
	p := &progress{
		out: out, what: what, live: isTerminal(out), start: time.Now(), stop: make(chan struct{}),
		ended: make(chan struct{}),
	}
	period := quietPeriod
	if p.live {
		period = livePeriod
	}
	p.line()
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
	return p
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
	built := p.built
	p.mu.Unlock()
	begin, end := "", "\n"
	if p.live {
		begin, end = "\r\x1b[K", ""
	}
	fmt.Fprintf(p.out, "%s%s: %d packages, %s%s", begin, p.what, built, time.Since(p.start).Round(time.Second), end)
}

func (p *progress) done(err error) {
	close(p.stop)
	<-p.ended
	p.line()
	if p.live {
		fmt.Fprintln(p.out)
	}
	if err == nil {
		fmt.Fprintf(p.out, "%s: done\n", p.what)
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
