package main

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/test/kit"
)

// words are what a shell offers for a command line that ends with begun.
func words(t *testing.T, args ...string) []string {
	t.Helper()
	status, out, stderr := exec(append([]string{"__complete"}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := len(lines) - 1
	if status != 0 || !strings.HasPrefix(lines[last], ":") {
		t.Fatalf("%q: got %d, %q, %q", args, status, out, stderr)
	}
	return lines[:last]
}

func TestCompletions(t *testing.T) {
	file := kubeconfigOf(t, "https://127.0.0.1:1")
	for _, tc := range []struct {
		args string // the last word is begun
		want string
	}{
		{"status -o ", "json name wide yaml"},
		{"drill -o ", "json name wide yaml"},
		{"providers ", "agents guests plain redfish"},
		{"pause --for ", "30m 2h 8h forever"},
		{"drain policy --for ", "30m 2h 8h forever"},
		{"drain policy --set ", strings.Join(policyNames(), " ")},
		{"run --log-level ", "debug error info warn"},
		{"status --kubeconfig " + file + " --context ", "c"},
		{"timeline --kubeconfig " + file + " --user ", "u"},
		{"explain --kubeconfig " + file + " --cluster d", ""},
		{"status --kubeconfig " + file + " n", ""}, // no API server answers
		{"cleanup ", ""},
		{"repl", ""}, // the main help does not list it
		{"rel", "release\tEnd a node's fence: remove the mark and close the record"},
	} {
		if got := strings.Join(words(t, strings.Split(tc.args, " ")...), " "); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.args, got, tc.want)
		}
	}
	for args, want := range map[string]string{
		"check-config ": ":0\n", "discover --ca-file ": ":0\n", "discover --output ": ":0\n", "cleanup ": ":4\n",
	} { // files, files, files, no files
		_, out, _ := exec(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if !strings.HasSuffix(out, want) {
			t.Errorf("%q: got %q, want the directive %q", args, out, want)
		}
	}
}

// Names come from the API server, with the flags that are on the line.
func TestCompletionsOfCluster(t *testing.T) {
	d := newDesert(t)
	for _, name := range []string{"named-1", "named-2", "other"} {
		d.node(name, func(*corev1.Node) {})
	}
	rec := taint.Record{ID: "f-00000000000e", NodeUID: "u", By: "ff-1", Since: time.Now()}.EnterPhase(
		taint.PhaseDone, taint.ResultEvicted, time.Now())
	d.fencing(journal.Update{Node: "named-1", At: time.Now(), Record: rec}, nil)
	for args, want := range map[string]string{
		"status named-1 named":              "named-2",
		"drain status named":                "named-1 named-2",
		"drain status named-1 ":             "",
		"power off oth":                     "other",
		"timeline ":                         "f-00000000000e named-1",
		"status -n forcefence-":             homeSpace,
		"timeline named-1 ":                 "",
		"release --context elsewhere named": "",
	} {
		args := strings.Split(args, " ")
		command := 1
		if args[0] == "power" || args[0] == "drain" { // the flag belongs to its command
			command = 2
		}
		args = slices.Insert(args, command, "--kubeconfig", shared.Kubeconfig())
		if got := strings.Join(words(t, args...), " "); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}

// asPlugin makes this process the program that kubectl runs as its plugin.
func asPlugin(t *testing.T) {
	t.Helper()
	name := os.Args[0]
	os.Args[0] = "/usr/local/bin/kubectl-forcefence"
	t.Cleanup(func() { os.Args[0] = name })
}

// TestPlugin: each command that a plugin prints can be typed as it is.
func TestPlugin(t *testing.T) {
	asPlugin(t)
	root := newRoot(nil)
	var all []string
	for _, c := range root.Commands() {
		all = append(all, "forcefence "+c.Name())
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if strings.Contains(cmd.CommandPath(), " completion") || cmd.Name() == "help" {
			return // cobra's own
		}
		_, out, _ := exec(append(commandPath(cmd), "--help")...)
		if !strings.Contains(out, "\n  kubectl forcefence ") {
			t.Errorf("%s: got no usage of the plugin:\n%s", cmd.Name(), out)
		}
		if text := strings.ReplaceAll(out, "kubectl forcefence ", ""); slices.ContainsFunc(all,
			func(name string) bool { return strings.Contains(text, name) }) {
			t.Errorf("%s: a command lacks kubectl:\n%s", cmd.Name(), out)
		}
	}
	check(root)
	for args, want := range map[string]string{
		"timeline":     "Usage: kubectl forcefence timeline NODE|ID",
		"stats":        "Error: unknown command \"stats\" for \"kubectl forcefence\"\n\nDid you mean this?\n\tstatus\n",
		"power cycle":  "kubectl forcefence power --help lists its commands",
		"status --wat": "`kubectl forcefence status --help` lists the flags",
		"--version":    "kubectl forcefence version ",
		"explain n1 --kubeconfig " + kubeconfigOf(t, "https://127.0.0.1:1"): "-- /ko-app/forcefence explain n1",
		"check-config x": "Error: reading configuration: open x: no such file",
	} {
		if _, out, stderr := exec(strings.Fields(args)...); !strings.Contains(out+stderr, want) {
			t.Errorf("%s: got %q, want %q", args, out+stderr, want)
		}
	}
}

func TestNameCommands(t *testing.T) {
	asPlugin(t)
	root := newRoot(nil)
	for text, want := range map[string]string{
		"Run `forcefence release n1 --yes`.":            "Run `kubectl forcefence release n1 --yes`.",
		"forcefence releases nothing":                   "forcefence releases nothing",
		"first: forcefence resume":                      "first: kubectl forcefence resume",
		"-- /ko-app/forcefence drill":                   "-- /ko-app/forcefence drill",
		"kubectl-forcefence drill, forcefence-node run": "kubectl-forcefence drill, forcefence-node run",
		"try kubectl forcefence drill":                  "try kubectl forcefence drill",
	} {
		if got := nameCommands(root, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// kubectl finds the file by its name, and passes the words of the command line.
func TestKubectlComplete(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := kit.SocketDir(t) // scripts contain its path
	kit.Must(t, os.Symlink(kit.BuildProgram(t, "cmd/forcefence"), filepath.Join(dir, "kubectl-forcefence")))
	kubectl := "#!/bin/sh\nplugin=kubectl-$1; shift; exec $plugin \"$@\"\n"
	kit.Must(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755))
	script, err := filepath.Abs("kubectl_complete-forcefence")
	kit.Must(t, err)
	cmd := osexec.CommandContext(t.Context(), script, "drain", "status", "-o", "")
	cmd.Env = append(os.Environ(), fmt.Sprintf("PATH=%s:%s", dir, os.Getenv("PATH")))
	if out, err := cmd.Output(); err != nil || string(out) != "json\nname\nwide\nyaml\n:4\n" {
		t.Errorf("got %q, %v", out, err)
	}
}
