package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint/features/recording"
)

// maxQueuedBytes is how many bytes of lines may wait for the disk. Further lines are dropped: no fence waits for the
// disk.
const maxQueuedBytes = 8 << 20

// finalWriteTimeout is how long the end of the process, and with it the next leader, waits for the disk.
const finalWriteTimeout = 2 * time.Second

// recorder writes a recording (package replay) to two files in turn: FILE, and its predecessor FILE.1. It writes
// nothing, and makes no file, before the first line.
type recorder struct {
	file         string
	maxFileBytes int64                   // of each of the two files
	header       func() recording.Header // of the configuration in force
	log          *slog.Logger
	lines        *prometheus.CounterVec
	ready        chan struct{} // there are lines

	mu    sync.Mutex // guards what follows
	queue []queuedLine
	bytes int
	lost  int // lines, since the last that was accepted

	ended chan struct{} // writing has ended; if the disk hangs, Run returns earlier

	// Only the goroutine of writeLines uses these.
	out    *os.File
	size   int64
	digest string // of the last written header
	failed bool   // the last write: logged once
}

// queuedLine is a line that waits for the disk. lost is how many lines before it were dropped.
type queuedLine struct {
	line []byte
	lost int
}

// newRecorder returns a recorder that keeps file and the one before it, FILE.1, within maxBytes together.
func newRecorder(
	file string,
	maxBytes int64,
	header func() recording.Header,
	log *slog.Logger,
	reg prometheus.Registerer,
) *recorder {
	r := &recorder{
		file: file, maxFileBytes: maxBytes / 2, header: header, log: log, ready: make(chan struct{}, 1),
		lines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_record_lines_total",
			Help: "Lines of the recording by result: written, or dropped because they did not fit or the disk was " +
				"slow.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "dropped"} {
		r.lines.WithLabelValues(result) // from the start
	}
	reg.MustRegister(r.lines)
	return r
}

// PutLine queues a line. It reports false if it drops the line. It does not block.
func (r *recorder) PutLine(line []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+len(line) > maxQueuedBytes {
		r.lost++
		r.lines.WithLabelValues("dropped").Inc()
		return false
	}
	r.queue = append(r.queue, queuedLine{line, r.lost})
	r.bytes, r.lost = r.bytes+len(line), 0
	select {
	case r.ready <- struct{}{}:
	default:
	}
	return true
}

// Run writes until ctx ends, and then the remaining lines, for at most finalWriteTimeout. A write error is logged once,
// and the next line tries again.
func (r *recorder) Run(ctx context.Context) error {
	r.ended = make(chan struct{})
	go r.writeLines(ctx)
	<-ctx.Done()
	select {
	case <-r.ended:
	case <-time.After(finalWriteTimeout): // a write that hangs cannot be awaited: it ends with the process
		r.log.Error("Could not write the end of the recording in time", "file", r.file)
	}
	return nil
}

func (r *recorder) writeLines(ctx context.Context) {
	defer close(r.ended)
	defer r.closeFile()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-r.ready:
		}
		r.mu.Lock()
		lines := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, w := range lines {
			result := "written"
			err := r.writeLine(w)
			if err != nil {
				result = "dropped"
				r.closeFile() // it is opened again, behind the last whole line
			}
			r.lines.WithLabelValues(result).Inc()
			if failed := err != nil; failed != r.failed {
				if r.failed = failed; failed {
					r.log.Error("Could not write the recording; fencing continues", "file", r.file, "error", err)
				} else {
					r.log.Info("Recording continues", "file", r.file)
				}
			}
			r.mu.Lock()
			if r.bytes -= len(w.line); err != nil {
				r.lost += w.lost + 1
			}
			r.mu.Unlock()
		}
	}
}

// writeLine appends a line. A header precedes it if the file, the process or the configuration changed.
func (r *recorder) writeLine(w queuedLine) error {
	h := r.header()
	h.At = time.Now().UTC().Truncate(time.Second)
	lines := [][]byte{h.EncodeLine(), w.line, nil}
	if w.lost > 0 {
		lines = [][]byte{h.EncodeLine(), recording.DroppedLine(w.lost), w.line, nil}
	}
	headed := bytes.Join(lines, []byte("\n"))
	if int64(len(headed)) > r.maxFileBytes {
		return fmt.Errorf("a line of %d bytes has no room in a file of %d bytes", len(w.line), r.maxFileBytes)
	}
	if r.out == nil {
		if err := r.openFile(); err != nil {
			return err
		}
	}
	if r.size+int64(len(headed)) > r.maxFileBytes {
		r.closeFile()
		if err := os.Rename(r.file, r.file+".1"); err != nil {
			return fmt.Errorf("rotating recording: %w", err)
		}
		if err := r.openFile(); err != nil {
			return err
		}
	}
	text := headed
	if h.ConfigDigest == r.digest && r.digest != "" {
		text = headed[len(lines[0])+1:]
	}
	n, err := r.out.Write(text)
	if err != nil {
		err = errors.Join(err, r.out.Truncate(r.size)) // no torn line in the middle
		return fmt.Errorf("writing recording: %w", err)
	}
	r.size += int64(n)
	r.digest = h.ConfigDigest
	return nil
}

// openFile opens the file, or makes it, to append behind its last whole line.
func (r *recorder) openFile() error {
	f, err := os.OpenFile(r.file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening recording: %w", err)
	}
	var size int64
	if err = r.checkFile(f); err == nil {
		size, err = wholeLinesSize(f)
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("continuing recording: %w", err), f.Close())
	}
	r.out, r.size, r.digest = f, size, ""
	return nil
}

// checkFile returns an error if a file is no recording, because it would be truncated and renamed like one. It also
// removes the rights of other users to read it.
func (r *recorder) checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	begin := make([]byte, min(info.Size(), int64(len(recording.HeaderPrefix))))
	if _, err := f.ReadAt(begin, 0); err != nil {
		return err
	}
	if string(begin) != recording.HeaderPrefix[:len(begin)] {
		return errors.New("not a recording, so it stays unchanged")
	}
	if info.Mode().Perm()&0o077 != 0 { // a volume may have given it to a group
		if err := f.Chmod(0o600); err != nil {
			r.log.Warn("Could not remove the rights of other users to read the recording", "file", r.file, "mode",
				info.Mode().String(), "error", err)
		}
	}
	return nil
}

func (r *recorder) closeFile() {
	if r.out == nil {
		return
	}
	if err := r.out.Close(); err != nil {
		r.log.Warn("Could not close the recording", "file", r.file, "error", err)
	}
	r.out = nil
}

// wholeLinesSize returns how many bytes a file's whole lines take.
func wholeLinesSize(f *os.File) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	part := make([]byte, 64<<10)
	for err == nil && end > 0 {
		n := min(int64(len(part)), end)
		if _, err = f.ReadAt(part[:n], end-n); err != nil {
			break
		}
		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, err
}
