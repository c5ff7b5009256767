package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine is how many bytes a line may have. A line of 500 pods with all their written fields has a tenth.
const maxLine = 8 << 20

// MaxValues is how many values a line may have, counted by the brackets that begin them; a line of 500 pods has a
// tenth. Empty values need a hundred times as much memory as space in a file.
const MaxValues = 1 << 16

// countValues returns how many values a text has, or more.
func countValues(text []byte) int {
	return bytes.Count(text, []byte("{")) + bytes.Count(text, []byte("["))
}

func checkDensity(text []byte) error {
	if n := countValues(text); n > MaxValues {
		return fmt.Errorf("it has %d values; a line of a recording has fewer", n)
	}
	return nil
}

// Tally counts what was read.
type Tally struct {
	Headers []Header `json:"headers"`
	Lines   int      `json:"lines"`
	Dropped int      `json:"dropped,omitempty"` // lines that the controller could not write
	Torn    bool     `json:"torn,omitempty"`    // the last line is incomplete: the process died, or is writing it now
	Broken  int      `json:"broken,omitempty"`  // other lines that cannot be read or played: their courses lack them
	First   string   `json:"first,omitempty"`   // the first of these: where it is, and what is wrong with it
}

// AddBroken counts a line that cannot be read or played.
func (t *Tally) AddBroken(in string, n int, why error) {
	if t.Broken++; t.First == "" {
		t.First = CleanText(fmt.Sprintf("%s: line %d: %v", in, n, why))
	}
}

// ReadLines calls each with every line of a recording, except headers and dropped counts. The last line may be torn,
// and others broken: these are counted. It returns an error if the whole recording cannot be read.
func (t *Tally) ReadLines(name string, in io.Reader, each func(n int, l Line) error) error {
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		text, err := lineOf(r)
		last := errors.Is(err, io.EOF)
		switch {
		case last && len(text) == 0:
			if n == 1 {
				return errors.New("it is empty")
			}
			return nil
		case err != nil && !last:
			return fmt.Errorf("line %d: %w", n, err)
		}
		var l struct {
			Line
			RecordingVersion int  `json:"recordingVersion"`
			Dropped          *int `json:"dropped"`
		}
		bad := checkDensity(text)
		if bad == nil {
			bad = json.Unmarshal(text, &l)
		}
		var header Header
		if bad == nil && l.RecordingVersion != 0 {
			bad = json.Unmarshal(text, &header)
		}
		switch {
		case bad != nil && last && n > 1:
			t.Torn = true
			return nil
		case bad != nil && n == 1:
			return fmt.Errorf("line 1: not a recording of forcefence: %s", CleanText(bad.Error()))
		}
		t.Lines++
		switch {
		case bad != nil:
			t.AddBroken(name, n, bad)
			continue
		case l.RecordingVersion > version:
			return fmt.Errorf("line %d: recording of version %d, by forcefence %s; this forcefence reads versions up "+
				"to %d. Use that forcefence, or a newer one", n, l.RecordingVersion, CleanText(header.By), version)
		case l.RecordingVersion == version:
			t.Headers = append(t.Headers, header)
			continue
		case n == 1:
			return errors.New("line 1: not a recording of forcefence: its version is missing")
		case l.Dropped != nil:
			t.Dropped += max(*l.Dropped, 0)
			continue
		case l.RecordingVersion != 0 || l.Node == "":
			t.AddBroken(name, n, errors.New("its node is missing"))
			continue
		}
		if err := each(n, l.Line); err != nil {
			t.AddBroken(name, n, err)
		}
	}
}

// lineOf returns the next line without its end. It returns the last line, which has no end, with io.EOF.
func lineOf(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(out)+len(part) > maxLine {
			return nil, fmt.Errorf("it is longer than %d bytes; a line of a recording is shorter", maxLine)
		}
		out = append(out, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(out, []byte("\n")), err
		}
	}
}
