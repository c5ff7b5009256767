package remote

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"time"
)

// MaxEvent is the maximum length of an event, and of a line of a stream, in bytes.
const MaxEvent = 256 << 10

// ErrEventTooLarge is the error of an event that is longer than MaxEvent.
var ErrEventTooLarge = fmt.Errorf("an event is larger than %d bytes", MaxEvent)

// EventStream reads server-sent events, as HTML defines them: lines that end in CR, LF or both, fields "data", an empty
// line after each event. It skips all other fields. No old events are needed, because all machines are asked after a
// lost connection.
type EventStream struct {
	r    *bufio.Reader
	data []byte // of the event that is being read
	line []byte
	any  bool // a data field was there
	cr   bool // the last line ended in CR: an LF that follows belongs to it
	read bool // the first line was
}

// NewEventStream returns an EventStream of r.
func NewEventStream(r io.Reader) *EventStream {
	return &EventStream{r: bufio.NewReaderSize(r, 1<<10)}
}

// Next returns the next event's data, which is valid until the next call. It blocks. It drops an event that the
// stream's end cuts off.
func (s *EventStream) Next() ([]byte, error) {
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
		if s.data = append(s.data, bytes.TrimPrefix(value, []byte(" "))...); len(s.data) > MaxEvent {
			return nil, ErrEventTooLarge
		}
	}
}

// readLine reads one line without its end.
func (s *EventStream) readLine() error {
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
		case len(s.line) >= MaxEvent:
			return ErrEventTooLarge
		}
		s.line = append(s.line, c)
	}
}

// TimedBody is a stream's body with a timer that expires when nothing arrives for a while.
type TimedBody struct {
	io.ReadCloser
	Timer *time.Timer
	Quiet time.Duration
}

// Read implements io.Reader.
func (w *TimedBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.Timer.Reset(w.Quiet)
	return n, err
}
