package fenceagent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/test/kit"
)

// outside makes a folder with a token that is not the agents' to read, and leaves agents the test's own folder for
// their files.
func outside(t *testing.T) (dir, token string) {
	t.Helper()
	if err := fenceagent.Sandboxed(); err != nil {
		t.Skip(err)
	}
	dir = kit.SocketDir(t) // an option that names it takes no quotes
	token = filepath.Join(dir, "token")
	must(t, os.WriteFile(token, []byte("on"), 0o600))
	t.Setenv("TMPDIR", filepath.Dir(t.TempDir()))
	return dir, token
}

// An agent reaches neither the controller's token nor its processes. The control is the same attempt without the
// sandbox: it succeeds.
func TestSandbox(t *testing.T) {
	dir, token := outside(t)
	// Before Landlock's version 6 (Linux 6.12), a sandbox confines no signals.
	abi, err := landlocksys.LandlockGetABIVersion()
	must(t, err)
	for _, tt := range []struct {
		name, attempt string
		allowed       bool
	}{
		{"reads the token", "cat " + token, false},
		{"by a link", "ln -sf " + token + ` "$dir/link" && cat "$dir/link"`, false},
		{"by another name", "ln -f " + token + ` "$dir/name" && cat "$dir/name"`, false},
		{"by the controller's root", fmt.Sprintf("cat /proc/%d/root%s", os.Getpid(), token), false},
		{"lists its folder", "ls " + dir, false},
		{"writes into it", "echo off > " + dir + "/new", false},
		{"opens it to write", "true >> " + token, false},
		{"removes a file", `touch "$dir/x"; rm ` + dir + "/old", false},
		{"reads the controller's environment", fmt.Sprintf("cat /proc/%d/environ", os.Getpid()), false},
		{"reads processes' arguments", fmt.Sprintf("cat /proc/%d/cmdline", os.Getpid()), false},
		{"looks for settings of the host", "ls /etc", false},
		{"signals the controller", fmt.Sprintf("kill -0 %d", os.Getpid()), abi < 6},
		{"reads what it needs", "cat /etc/passwd /dev/null && echo > /dev/null && sh -c true", true},
		{"speaks on its outputs", "echo said > /dev/stderr", true},
		{"writes its own files", "mktemp", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
			c := script(t, "if ("+tt.attempt+") >/dev/null 2>\"$dir/why\"; then echo 'Status: ON'; else "+
				"echo 'Status: FAILED'; fi")
			control := exec.Command("/bin/sh", "-c", "dir="+kit.QuoteShell(c.Dir)+"; "+tt.attempt)
			if out, err := control.CombinedOutput(); err != nil {
				t.Fatalf("without the sandbox: %v: %s", err, out)
			}
			must(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
			for _, name := range []string{"link", "name"} {
				_ = os.Remove(filepath.Join(c.Dir, name)) // the control's
			}
			a := ask(t, newProvider(t, c, nil), n1)
			if a.Err != nil || (a.State == providers.PowerOn) != tt.allowed {
				t.Errorf("got %s (%q), %v, want allowed: %t; the agent: %s", a.State, a.Raw, a.Err, tt.allowed,
					read(t, c.Dir, "why"))
			}
		})
	}
}

// What the operator's options name is an agent's to read; what an ID names is not, because a kubelet may have chosen
// it.
func TestSandboxFiles(t *testing.T) {
	_, token := outside(t)
	for _, tt := range []struct {
		name, option, id string
		allowed          bool
	}{
		{"an option", token, "1", true},
		{"within an option", "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=" + token, "1", true},
		{"neither", "x", "1", false},
		{"a part of it", "x" + token, "1", false},
		{"an ID", "x", token, false},
		{"the root", "/.", "1", false},
	} {
		c := script(t, "if cat "+token+" >/dev/null 2>&1; then echo 'Status: ON'; else echo 'Status: FAILED'; fi")
		c.Options = map[string]string{"word": tt.option}
		a := ask(t, newProvider(t, c, nil), providers.Target{Node: "n1", ID: tt.id})
		if a.Err != nil || (a.State == providers.PowerOn) != tt.allowed {
			t.Errorf("%s: got %s (%q), %v, want allowed: %t", tt.name, a.State, a.Raw, a.Err, tt.allowed)
		}
	}
}

// fence_dummy reads a file where it may, and none where it may not.
func TestSandboxOfDummy(t *testing.T) {
	needs(t, sbin+"/fence_dummy")
	_, token := outside(t)
	own := filepath.Join(t.TempDir(), "n1.status")
	must(t, os.WriteFile(own, []byte("on"), 0o600))
	c := &fenceagent.Config{Agent: "fence_dummy", Dir: sbin, AllowGuessedOff: true}
	p := newProvider(t, c, nil)
	wants(t, ask(t, p, providers.Target{Node: "n1", ID: own}), providers.PowerOn, "Status: ON", "ok")
	control := exec.Command(sbin + "/fence_dummy")
	control.Stdin = strings.NewReader("action=status\nstatus_file=" + token + "\n")
	if out, err := control.CombinedOutput(); string(out) != "Status: ON\n" {
		t.Fatalf("without the sandbox: %q, %v", out, err)
	}
	if a := ask(t, p, providers.Target{Node: "n1", ID: token}); a.State != providers.PowerUnknown {
		t.Errorf("got %s (%q), %v", a.State, a.Raw, a.Err)
	}
}
