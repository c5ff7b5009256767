package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// exec runs a command line and returns what a shell would see.
func exec(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Setenv("PATH", os.Getenv("PATH")) // restored after the test: a command changes it
	var out, err strings.Builder
	status = run(args, &out, &err)
	return status, out.String(), err.String()
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// plugin returns a status as a plugin writes it.
func plugin(index string, change func(*nri.Status)) nri.Status {
	s := nri.Status{
		Plugin: index + "-forcefence", Version: "v1", Runtime: "containerd v2.4.2", Registered: noon.Add(-time.Hour),
		Node: nri.NodeView{Name: "n1", At: noon.Add(-time.Minute), Node: admit.Node{Read: true, ReadySeen: true}},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func held(name string, since time.Duration, times int) nri.Held {
	return nri.Held{Namespace: "ns", Name: name, UID: name, Why: admit.NodeMarked, Since: noon.Add(-since),
		Times: times}
}

func TestView(t *testing.T) {
	marked := func(s *nri.Status) {
		s.Node.Mark, s.Node.Marked, s.Node.At = "forcefence.io/node-shutdown=f1:NoSchedule", true, noon
		s.Held = []nri.Held{held("b", 10*time.Second, 3), held("a", 10*time.Second, 1), held("old", time.Minute, 7)}
	}
	for _, tc := range []struct {
		name    string
		plugins []nri.Status
		want    string
		status  int // exitStatus; 1: another error
	}{
		{"clear", []nri.Status{plugin("10", nil), plugin("20", nil)}, `
node:        n1: not marked
protection:  fail-open: It may. Do it.
plugin:      10-forcefence v1: registered with containerd v2.4.2 for 1h0m0s
plugin:      20-forcefence v1: registered with containerd v2.4.2 for 1h0m0s
held:        no pod
`, 0},
		{"held by one, the other is behind and has lost the API server",
			[]nri.Status{plugin("10", marked), plugin("20", func(s *nri.Status) {
				s.Error = "connection refused"
				s.Held = []nri.Held{held("b", 12*time.Second, 2)}
			})}, `
node:        n1: marked forcefence.io/node-shutdown=f1:NoSchedule
protection:  fail-open: It may. Do it.
plugin:      10-forcefence v1: registered with containerd v2.4.2 for 1h0m0s
plugin:      20-forcefence v1: registered with containerd v2.4.2 for 1h0m0s
             reading the API server: connection refused
held:        ns/old for 1m0s, asked 7 times: node is marked as shut down
held:        ns/b for 12s, asked 3 times: node is marked as shut down
held:        ns/a for 10s, asked 1 times: node is marked as shut down
`, 3},
		{"none registered", []nri.Status{plugin("10", func(s *nri.Status) {
			s.Registered, s.Node.Read = time.Time{}, false
			s.Held = []nri.Held{held("b", time.Minute, 1)}
		})}, `
node:        n1: not read on this boot
protection:  fail-open: It may. Do it.
plugin:      10-forcefence v1: not registered
held:        no pod
`, 1},
		{"none at all", nil, `
node:        unknown: not read on this boot
protection:  fail-open: It may. Do it.
plugin:      none has run on this boot
held:        no pod
`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newHookStatus(tc.plugins)
			v.Protection = &install.Protection{Level: install.FailOpen, Reason: "It may.", Advice: "Do it."}
			var b strings.Builder
			kit.Must(t, v.printStatus(&b, "text", noon))
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), b.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			status := 0
			if err := v.exitError(); err != nil {
				status = 1
				if s, ok := err.(exitStatus); ok { //nolint:errorlint // answer does not wrap it
					status = int(s)
				}
			}
			if status != tc.status {
				t.Errorf("got status %d, want %d", status, tc.status)
			}
		})
	}
}

// TestStatus runs the command on a machine without a known runtime: it still prints what the plugins say.
func TestStatus(t *testing.T) {
	dir := t.TempDir()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	kit.Must(t, err)
	write := func(s nri.Status) {
		t.Helper()
		text, err := json.Marshal(s)
		kit.Must(t, err)
		kit.Must(t, os.WriteFile(filepath.Join(dir, s.Plugin[:2]+".json"), text, 0o644))
	}
	command := []string{"status", "--state-dir", dir, "--runtime-command", "/nowhere/containerd"}

	if status, out, stderr := exec(t, command...); status != 1 || !strings.Contains(stderr, "cannot tell whether") ||
		!strings.Contains(out, "none has run") {
		t.Errorf("nothing there: got %d, %q, %q", status, out, stderr)
	}
	if status, _, stderr := exec(t, "status", "--state-dir", dir, "--ready"); status != 1 ||
		stderr != "plugin 20-forcefence has not run on this boot\n" {
		t.Errorf("nothing there: got %d, %q", status, stderr)
	}
	this := func(s *nri.Status) { s.BootID = strings.TrimSpace(string(boot)) }
	write(plugin("10", func(s *nri.Status) { s.BootID = "another boot's" }))
	write(plugin("20", this))
	status, out, stderr := exec(t, command...)
	if status != 0 || stderr != "" || strings.Contains(out, "10-forcefence") ||
		!strings.Contains(out, "protection:  unknown: reading the runtime's version: ") {
		t.Errorf("clear: got %d, %q, %q", status, out, stderr)
	}
	for _, tc := range []struct {
		args []string
		want int
	}{{[]string{"--ready"}, 0}, {[]string{"--ready=20"}, 0}, {[]string{"--ready=10"}, 1}} {
		args := append([]string{"status", "--state-dir", dir}, tc.args...)
		if status, _, stderr := exec(t, args...); status != tc.want {
			t.Errorf("%q: got %d, %q", tc.args, status, stderr)
		}
	}
	write(plugin("20", func(s *nri.Status) {
		this(s)
		s.Held = []nri.Held{held("a", time.Minute, 2)}
	}))
	status, out, stderr = exec(t, append(command, "--output", "json")...)
	var v hookStatus
	if err := json.Unmarshal([]byte(out), &v); err != nil || status != 3 || stderr != "" {
		t.Fatalf("held: got %d, %q, %q (%v)", status, out, stderr, err)
	}
	if v.Clear || len(v.Held) != 1 || v.Held[0].Name != "a" || len(v.Plugins) != 1 || v.Problem == "" {
		t.Errorf("held: got %+v", v)
	}
	write(plugin("20", func(s *nri.Status) {
		this(s)
		s.Registered = time.Time{}
	}))
	if status, _, stderr := exec(t, "status", "--state-dir", dir, "--ready"); status != 1 ||
		stderr != "20-forcefence is not registered with the runtime\n" {
		t.Errorf("gone: got %d, %q", status, stderr)
	}
	kit.Must(t, os.WriteFile(filepath.Join(dir, "10.json"), []byte("{"), 0o644))
	if status, _, stderr := exec(t, command...); status != 1 || !strings.Contains(stderr, "10.json") {
		t.Errorf("broken: got %d, %q", status, stderr)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "-o", "xml"}, "--output \"xml\": text or json\n"},
		{[]string{"install", "n1"}, "unknown command \"n1\" for \"forcefence-node install\"\n"},
		{[]string{"install", "--node-name", "", "--kubeconfig", "/k", "--runtime-command", "containerd"},
			"writing the hook's configuration: nodeName: missing\n"},
		{[]string{"install", "--node-name", "n1", "--runtime-command", "dockerd"},
			"finding the kubelet and its container runtime: --runtime-command \"dockerd\" is neither containerd nor " +
				"crio\nno process of this host is its kubelet: mount the host's /proc, or set --kubeconfig\n"},
		{[]string{"install", "--root", "/nowhere"}, "changing the root to /nowhere: no such file or directory\n"},
	} {
		if status, stdout, stderr := exec(t, tc.args...); status != 1 || stdout != "" || stderr != tc.want {
			t.Errorf("%q: got %d, %q, %q; want %q", tc.args, status, stdout, stderr, tc.want)
		}
	}
}
