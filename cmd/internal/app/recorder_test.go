package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forcefence/forcefence/taint/features/recording"
	"github.com/forcefence/forcefence/test/kit"
)

// tape is a recorder for a file of a test's own.
func tape(t *testing.T, file string, most int, digest *string) *recorder {
	t.Helper()
	header := func() recording.Header { return recording.Header{By: "test", ConfigDigest: *digest} }
	return newRecorder(file, int64(most), header, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// wrote runs the recorder over lines, and waits until it has written them.
func wrote(t *testing.T, r *recorder, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !r.PutLine([]byte(l)) {
			t.Fatalf("no room for %q", l)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop() // what waits is written all the same
	kit.Must(t, r.Run(ctx))
	<-r.ended // a busy disk may need longer than Run waits
	if r.bytes != 0 || r.out != nil {
		t.Errorf("%d bytes still count as waiting, the file is open: %v", r.bytes, r.out != nil)
	}
}

func fileText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	return string(text)
}

// begins counts headers, which say what the rest was decided by.
func begins(text string) int { return strings.Count(text, `{"recordingVersion":1,"by":"test"`) }

func TestRecorder(t *testing.T) {
	file, digest := filepath.Join(t.TempDir(), "recording"), "a"
	r := tape(t, file, 1<<20, &digest)
	kit.Must(t, r.Run(done(t)))
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was made for nothing")
	}
	wrote(t, r, "1", "2")
	digest = "b"
	wrote(t, r, "3")
	text := fileText(t, file)
	if lines := strings.Split(text, "\n"); begins(text) != 2 || len(lines) != 6 || lines[1]+lines[2]+lines[4] != "123" {
		t.Errorf("got\n%s\nwant each configuration's header and its lines", text)
	}
	info, err := os.Stat(file)
	kit.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, want that only the owner may read it", info.Mode())
	}
}

func done(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}

// A line that a process did not write to its end is taken off by the next one.
func TestRecorderAfterACrash(t *testing.T) {
	const head = `{"recordingVersion":1}` + "\n"
	for name, before := range map[string]string{
		"torn": head + "x\ny\n" + `{"node`, "no line": `{"recordi`, "long": head + strings.Repeat("z", 200_000),
		"whole": head + "x\n", "nothing": "",
	} {
		file, digest := filepath.Join(t.TempDir(), "recording"), "a"
		kit.Must(t, os.WriteFile(file, []byte(before), 0o600))
		wrote(t, tape(t, file, 1<<20, &digest), "next")
		want := before[:strings.LastIndex(before, "\n")+1]
		if text := fileText(t, file); !strings.HasPrefix(text, want+`{"recordingVersion":1`) ||
			!strings.HasSuffix(text, "}\nnext\n") {
			t.Errorf("%s: got %.80q", name, text)
		}
	}
}

// Two files take turns, and together are never larger than was allowed.
func TestRecorderIsBounded(t *testing.T) {
	file, digest := filepath.Join(t.TempDir(), "recording"), "a"
	const most = 10_000
	r := tape(t, file, most, &digest)
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("line %04d", i))
	}
	wrote(t, r, lines...)
	last, before := fileText(t, file), fileText(t, file+".1")
	if size := len(last) + len(before); size > most || size < most/4 {
		t.Errorf("got %d bytes, want at most %d", size, most)
	}
	if !strings.HasSuffix(last, "line 0999\n") || begins(last) != 1 || begins(before) != 1 {
		t.Errorf("got\n%.200s\nwant the newest lines behind a header", last)
	}
	if first := strings.Split(last, "\n")[1]; !strings.HasSuffix(before,
		fmt.Sprintf("line %04d\n", number(t, first)-1)) {
		t.Errorf("between %q and %.40q a line is missing", before[len(before)-20:], first)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 2 {
		t.Errorf("got files %v, want two", left)
	}
}

func number(t *testing.T, line string) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(line, "line %d", &n)
	kit.Must(t, err)
	return n
}

// A disk that hangs delays no caller: lines without room are refused, counted, and reported in the recording.
func TestRecorderOnASlowDisk(t *testing.T) {
	file, digest := filepath.Join(t.TempDir(), "recording"), "a"
	r := tape(t, file, 64<<20, &digest)
	line := []byte(strings.Repeat("x", 1<<20))
	taken := 0
	for range 20 {
		if r.PutLine(line) {
			taken++
		}
	}
	if taken != maxQueuedBytes>>20 {
		t.Errorf("%d MiB wait for the disk, want %d", taken, maxQueuedBytes>>20)
	}
	if got := testutil.ToFloat64(r.lines.WithLabelValues("dropped")); got != float64(20-taken) {
		t.Errorf("got %v dropped lines, want %d", got, 20-taken)
	}
	kit.Must(t, r.Run(done(t)))
	wrote(t, r, "next")
	if text := fileText(t, file); !strings.HasSuffix(text, string(recording.DroppedLine(20-taken))+"\nnext\n") {
		t.Errorf("got ...%q, want that lines are missing", text[len(text)-60:])
	}
}

// Many write at the same time, and each line is whole and there once.
func TestRecorderOfMany(t *testing.T) {
	file, digest := filepath.Join(t.TempDir(), "recording"), "a"
	r := tape(t, file, 64<<20, &digest)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	var wait sync.WaitGroup
	for node := range 8 {
		wait.Go(func() {
			for i := range 500 {
				r.PutLine(fmt.Appendf(nil, "node %d line %04d", node, i))
			}
		})
	}
	wait.Wait()
	stop()
	kit.Must(t, <-ended)
	lines := strings.Split(strings.TrimSpace(fileText(t, file)), "\n")
	slices.Sort(lines)
	if all := len(slices.Compact(slices.Clone(lines))); all != 8*500+1 || len(lines) != all {
		t.Errorf("got %d lines, %d of them different, want 4,001", len(lines), all)
	}
}

// A disk that fails costs the lines that it fails on; the recording goes on when it is well again.
func TestRecorderOnABadDisk(t *testing.T) {
	dir, digest := filepath.Join(t.TempDir(), "later"), "a"
	file := filepath.Join(dir, "recording")
	r := tape(t, file, 1<<20, &digest)
	wrote(t, r, "1", "2")
	wrote(t, r, "again")
	if got := testutil.ToFloat64(r.lines.WithLabelValues("dropped")); got != 3 || !r.failed {
		t.Errorf("got %v dropped lines, want 3", got)
	}
	kit.Must(t, os.Mkdir(dir, 0o700))
	wrote(t, r, "3")
	if text := fileText(t, file); r.failed || begins(text) != 1 || !strings.HasSuffix(text, "\n3\n") {
		t.Errorf("got %q", text)
	}
	if text := fileText(t, file); !strings.Contains(text, string(recording.DroppedLine(3))+"\n3\n") {
		t.Errorf("got %q, want that three lines are missing", text)
	}
	r = tape(t, file, 1<<20, &digest)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0) // takes no byte, and cannot be cut
	kit.Must(t, err)
	r.out = full
	wrote(t, r, "4")
	if got := testutil.ToFloat64(r.lines.WithLabelValues("dropped")); got != 1 {
		t.Errorf("a full disk: got %v dropped lines, want 1", got)
	}
}

// A disk that hangs holds neither the end of the process up, nor with it the next leader.
func TestRecorderOnADiskThatHangs(t *testing.T) {
	digest := "a"
	r := tape(t, filepath.Join(t.TempDir(), "recording"), 64<<20, &digest)
	in, out, err := os.Pipe() // without a reader
	kit.Must(t, err)
	r.out = out
	r.PutLine([]byte(strings.Repeat("x", 1<<20)))
	kit.Must(t, r.Run(done(t)))
	select {
	case <-r.ended:
		t.Error("nothing hung")
	default:
	}
	kit.Must(t, in.Close())
	<-r.ended
}

// The two files never exceed the limit, for lines of any size and any earlier content.
func TestRecorderIsAlwaysBounded(t *testing.T) {
	const most = 10_000
	for name, before := range map[string]func(file string) error{
		"nothing": func(string) error { return nil },
		"as much as two": func(file string) error {
			return os.WriteFile(file, []byte(`{"recordingVersion":1}`+"\n"+strings.Repeat("y\n", (most/2-20)/2)), 0o600)
		},
		"no way to turn": func(file string) error { return os.MkdirAll(file+".1/x", 0o700) },
	} {
		file, digest := filepath.Join(t.TempDir(), "recording"), "a"
		kit.Must(t, before(file))
		for i := range 40 {
			digest = fmt.Sprint(i) // a header of its own
			wrote(t, tape(t, file, most, &digest), strings.Repeat("x", 100*i))
		}
		wrote(t, tape(t, file, most, &digest), strings.Repeat("z", most*2/3))
		size := int64(0)
		for _, f := range []string{file, file + ".1"} {
			info, err := os.Stat(f)
			kit.Must(t, err)
			if !info.IsDir() {
				size += info.Size()
			}
		}
		if size > most || size == 0 {
			t.Errorf("%s: got %d bytes, want at most %d", name, size, most)
		}
	}
}

// A file that is no recording is left as it is, and what can be no file is no place for one.
func TestRecorderLeavesOtherFilesAlone(t *testing.T) {
	dir, digest := t.TempDir(), "a"
	const text = "mode: fence\nno end of a line"
	other, fifo := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "fifo")
	kit.Must(t, os.WriteFile(other, []byte(text), 0o644))
	kit.Must(t, syscall.Mkfifo(fifo, 0o600))
	for _, file := range []string{other, fifo, dir, "/dev/null"} {
		r := tape(t, file, 1<<20, &digest)
		wrote(t, r, "1")
		if got := testutil.ToFloat64(r.lines.WithLabelValues("dropped")); got != 1 {
			t.Errorf("%s: got %v dropped lines, want 1", file, got)
		}
	}
	if got := fileText(t, other); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
	mine := filepath.Join(dir, "recording")
	kit.Must(t, os.WriteFile(mine, nil, 0o644))
	wrote(t, tape(t, mine, 1<<20, &digest), "1")
	if info, err := os.Stat(mine); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want that only the owner may read it", info.Mode(), err)
	}
}
