package nri

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// Two plugins run on a node: only the one that the runtime started writes to the file.
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
	log, closeLog := newLog("none", nil)
	log.Info("Started") // nowhere, and no panic
	closeLog()
}
