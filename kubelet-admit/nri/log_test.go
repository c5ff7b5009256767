package nri

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

func TestLogToFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook.log")
	log, closeLog := newLog(file, nil)
	log.Info("Started", "node", "n1")
	closeLog()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `msg=Started node=n1`) {
		t.Errorf("got %q, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode: got %v, %v: others may read it", info.Mode(), err)
	}
}

// TestLogToOutput checks that of a node's two plugins only the one that the runtime started writes to the file.
func TestLogToOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook.log")
	var out bytes.Buffer
	log, closeLog := newLog(file, &out)
	defer closeLog()
	log.Info("Started")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file: got %v", err)
	}
	if !strings.Contains(out.String(), "msg=Started") {
		t.Errorf("output: got %q", out.String())
	}
}

func TestNoLog(t *testing.T) {
	t.Chdir(t.TempDir())
	log, closeLog := newLog("none", nil)
	log.Info("Started") // nowhere, and no panic
	closeLog()
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("got files %v, %v, want none", files, err)
	}
}

// TestJournald checks that a line arrives, and that a journald that reads nothing does not block a writer.
func TestJournald(t *testing.T) {
	address := &net.UnixAddr{Name: filepath.Join(kit.SocketDir(t), "socket"), Net: "unixgram"}
	journal, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	log := slog.New(slog.NewTextHandler(journald{address.Name}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	log.Info("Holding pod", "pod", "a\nPRIORITY=0")
	buf := make([]byte, 1<<10)
	n, err := journal.Read(buf)
	want := "PRIORITY=6\nSYSLOG_IDENTIFIER=forcefence-node\nMESSAGE=level=INFO msg=\"Holding pod\" " +
		"pod=\"a\\nPRIORITY=0\"\n"
	if err != nil || string(buf[:n]) != want {
		t.Errorf("got %q, %v, want %q", buf[:n], err, want)
	}

	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 10_000 && err == nil; i++ { // net.unix.max_dgram_qlen is 10 or 512
			_, err = journald{address.Name}.Write([]byte("x"))
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the socket took 10000 lines without a reader")
		}
	case <-time.After(time.Minute):
		t.Error("a write waits for a journald that hangs")
	}
}
