package main

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// TestRunInstalled runs the DaemonSet's plugin: its process becomes the runtime's plugin if that is the same program,
// and stays what it is if not.
func TestRunInstalled(t *testing.T) {
	program := kit.BuildProgram(t, "cmd/forcefence-node")
	for name, tt := range map[string]struct {
		installed func(file string) error
		becomes   bool
	}{
		"the same program":     {func(string) error { return nil }, true},
		"another version":      {func(file string) error { return appendTo(file, "x") }, false},
		"one of the same size": {overwriteEnd, false},
		"none":                 {os.Remove, false},
		"it may not run":       {func(file string) error { return os.Chmod(file, 0o644) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := kit.SocketDir(t)
			installed, config := filepath.Join(dir, "10-forcefence"), filepath.Join(dir, "forcefence.conf")
			copyFile(t, program, installed)
			kit.Must(t, tt.installed(installed))
			text, err := nri.Config{NodeName: "n1", Kubeconfig: filepath.Join(dir, "none"), LogFile: "none",
				StateDir: filepath.Join(dir, "run"), DataDir: filepath.Join(dir, "data"), Program: installed}.Marshal()
			kit.Must(t, err)
			kit.Must(t, os.WriteFile(config, text, 0o600))
			cmd := osexec.CommandContext(t.Context(), program, "run", "--config", config, "--nri-socket",
				filepath.Join(dir, "none.sock"))
			kit.Must(t, cmd.Start())
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			kit.Until(t, "the plugin runs", func() bool {
				all, err := nri.ReadStatuses(filepath.Join(dir, "run"))
				return err == nil && len(all) == 1 && all[0].PID == cmd.Process.Pid
			})
			want := program
			if tt.becomes {
				want = installed
			}
			got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
			if err != nil || got != want {
				t.Errorf("it runs %s, %v; want %s", got, err, want)
			}
		})
	}
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// overwriteEnd changes the last byte of a file.
func overwriteEnd(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0xff}, info.Size()-1)
	return err
}
