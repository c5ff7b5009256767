package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint/features/recording/replay"
	"github.com/forcefence/forcefence/test/kit"
)

const recorded = "../../taint/features/recording/replay/testdata/recording-1.jsonl"

func TestReplay(t *testing.T) {
	text, err := os.ReadFile(recorded)
	kit.Must(t, err)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	whole := string(text)
	half := strings.Index(whole[len(whole)/2:], "\n") + len(whole)/2 + 1
	header := whole[:strings.Index(whole, "\n")+1]
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   []string
	}{
		"as it was": {[]string{recorded}, 0, []string{"Recorded by forcefence test from 2026-03-01 12:00:00 " +
			"on, mode fence.", "PowerOff through racks/https://bmc", "All are the same."}},
		"in two files": {[]string{file("1", whole[:half]), file("2", header+whole[half:])}, 0,
			[]string{"All are the same."}},
		"the second alone": {[]string{filepath.Join(dir, "2")}, 0,
			[]string{"lines, these files lack the beginning"}},
		"no header": {[]string{recorded, file("3", whole[half:])}, 1,
			[]string{"/3: line 1: not a recording"}},
		"torn": {[]string{file("torn", whole[:half+20])}, 0,
			[]string{"The last line is incomplete", "All are the same."}},
		"changed": {[]string{file("changed", strings.Replace(whole, `"state":"Off"`, `"state":"On"`, 1))}, 1,
			[]string{"1 differ.", "Left out: ", "decisions differ from those that were recorded"}},
		"a wait's length": {
			[]string{file("after", strings.Replace(whole, `"requeueAfter":"4.999s"`, `"requeueAfter":"5.999s"`, 2))}, 1,
			[]string{"Wait (KubeletHeartbeats), with other requeueAfter", "1 differ."}},
		"nothing but a head": {[]string{file("head", header)}, 0,
			[]string{"Compared 0 decisions of 1 line. Nothing could be compared."}},
		"a broken line": {[]string{file("broken", whole[:half]+"\x00\x00{\n"+whole[half:])}, 1,
			[]string{"All are the same.", "could not read or replay 1 line,",
				fmt.Sprintf("/broken: line %d", 1+strings.Count(whole[:half], "\n"))}},
		"the wrong order": {[]string{file("new", strings.Replace(header, "T12:", "T13:", 1)), recorded}, 1,
			[]string{"recording-1.jsonl begins at 2026-03-01 12:00:00", "name the oldest file first"}},
		"not there": {[]string{filepath.Join(dir, "none")}, 1,
			[]string{"opening recording: open", "no such file"}},
		"another format": {[]string{"-o", "xml", recorded}, 2,
			[]string{`--output" flag: use json, name, wide, yaml`}},
		"a newer recording": {[]string{file("newer", strings.Replace(whole, `"recordingVersion":1`, `"recordingVersion":9`, 1))}, 1,
			[]string{"recording of version 9", "Use that forcefence, or a newer one"}},
		"escapes": {[]string{file("escapes", strings.ReplaceAll(whole, `"n1"`, `"\u001b[2Jn1"`))}, 0,
			[]string{"[2Jn1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, told strings.Builder
			status := run(append([]string{"replay"}, tt.args...), all.Types(), &out, &told)
			got := out.String() + told.String()
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in it", want)
				}
			}
			if status != tt.status || strings.ContainsRune(got, '\x1b') || t.Failed() {
				t.Errorf("exit status %d, want %d:\n%s", status, tt.status, got)
			}
		})
	}
	var out, told strings.Builder
	if status := run([]string{"replay", "-o", "json", recorded}, all.Types(), &out, &told); status != 0 {
		t.Fatalf("exit status %d: %s", status, told.String())
	}
	var r replay.Report
	kit.Must(t, json.Unmarshal([]byte(out.String()), &r))
	if r.Compared == 0 || r.Differ != 0 || len(r.Decisions) == 0 || r.Decisions[0].Node != "n1" {
		t.Errorf("got %+v", r)
	}
}

// A user can stop a command that waits for a pipe without a writer, or that replays a month.
func TestReplayIsInterrupted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	kit.Must(t, syscall.Mkfifo(fifo, 0o600))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	root := newRoot(all.Types())
	root.SetArgs([]string{"replay", fifo})
	if err := root.ExecuteContext(ctx); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v, want that it was interrupted", err)
	}
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0) // so that the reader goes, too
	kit.Must(t, err)
	kit.Must(t, writer.Close())
}
