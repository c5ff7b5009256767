package redfish

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// maxEvent is the maximum length of an event, and of a line of a stream, in bytes.
const maxEvent = 256 << 10

var errEvent = fmt.Errorf("an event is larger than %d bytes", maxEvent)

// stream reads server-sent events, as HTML defines them: lines that end in CR, LF or both, fields "data", an empty line
// after each event. It skips all other fields. After a lost connection all machines are asked, so no old events are
// needed.
type stream struct {
	r    *bufio.Reader
	data []byte // of the event that is being read
	line []byte
	any  bool // a data field was there
	cr   bool // the last line ended in CR: an LF that follows belongs to it
	read bool // the first line was
}

func newStream(r io.Reader) *stream { return &stream{r: bufio.NewReaderSize(r, 1<<10)} }

// nextEvent returns the next event's data, which is valid until the next call. It blocks. It drops an event that the
// stream's end cuts off.
func (s *stream) nextEvent() ([]byte, error) {
	const kept = 4 << 10 // of a large event's memory, until the next
	if s.data, s.any = s.data[:0], false; cap(s.data) > kept {
		s.data = nil
	}
	if cap(s.line) > kept {
		s.line = nil
	}
	for {
		if err := s.readLine(); err != nil {
			return nil, err
		}
		line := s.line
		if !s.read {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			s.read = true
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0 && s.any:
			return s.data, nil
		case len(line) == 0 || string(field) != "data":
			continue
		}
		if s.any {
			s.data = append(s.data, '\n')
		}
		s.any = true
		if s.data = append(s.data, bytes.TrimPrefix(value, []byte(" "))...); len(s.data) > maxEvent {
			return nil, errEvent
		}
	}
}

// readLine reads one line without its end.
func (s *stream) readLine() error {
	for s.line = s.line[:0]; ; {
		c, err := s.r.ReadByte()
		if err != nil {
			return err
		}
		after := s.cr
		s.cr = c == '\r'
		switch {
		case c == '\n' && after:
			continue
		case c == '\n', c == '\r':
			return nil
		case len(s.line) >= maxEvent:
			return errEvent
		}
		s.line = append(s.line, c)
	}
}

// openEvents starts to read a stream of events at a path of the BMC; the stream ends with ctx. It follows no redirect.
// Connection, certificate and credential are those of every other request.
func (b *bmc) openEvents(ctx context.Context, path string) (body io.ReadCloser, _ error) {
	err := b.withLogin(ctx, func(l *login) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Device+path, http.NoBody)
		if err != nil {
			return withoutURL(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Accept-Encoding", "identity") // else net/http unpacks it without a limit
		r.Header.Set("Cache-Control", "no-store")
		r.Header.Set("User-Agent", b.p.opts.Agent)
		l.authorizeRequest(r)
		resp, err := b.p.plain.RoundTrip(r)
		if err != nil {
			return withoutURL(err)
		}
		if resp.StatusCode != http.StatusOK {
			defer resp.Body.Close()
			return statusError(resp)
		}
		kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if encoding := resp.Header.Get("Content-Encoding"); err != nil || kind != "text/event-stream" ||
			encoding != "" && encoding != "identity" {
			_ = resp.Body.Close()
			return providers.WithClass(providers.ErrPermanent, errors.New("the answer is no stream of events"))
		}
		b.markProven(l)
		body = resp.Body
		return nil
	})
	return body, err
}

// timedBody is a stream's body with a timer that expires when nothing arrives for a while.
type timedBody struct {
	io.ReadCloser
	timer *time.Timer
	quiet time.Duration
}

func (w *timedBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.timer.Reset(w.quiet)
	return n, err
}
