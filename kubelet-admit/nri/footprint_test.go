package nri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// TestFootprint holds the memory of a node's two processes to a budget. They are the real program: as the runtime's own
// plugin, and as the DaemonSet's. The runtime's half of NRI and the API server are real. The memory that a process
// shares with the other counts as half in each. The budgets are well above what was measured, and well below what it
// was before.
func TestFootprint(t *testing.T) {
	l := newLab(t)
	t.Setenv("PATH", ownPath) // a hook of another test has set its own
	program := kit.BuildProgram(t, "cmd/forcefence-node")
	l.addNode()
	boot, err := os.ReadFile(bootIDFile)
	l.must(err)
	l.change(readyOn(strings.TrimSpace(string(boot))))
	h := l.startBoth(program)
	h.holdTo("at rest", 25.5, 41.0, 31)
	h.stopBoth()
	l.addManyPods(500)
	h = l.startBoth(program)
	h.waitFor("all pods", func(s Status) bool { return len(s.Pods) == 500 })
	h.holdTo("with 500 pods", 27.2, 55.4, 33)
	for range 3 {
		l.change(mark)
		h.waitFor("the mark", func(s Status) bool { return s.Node.Marked })
		l.change(unmark)
		h.waitFor("no mark", func(s Status) bool { return !s.Node.Marked })
	}
	h.holdTo("after three marks", 29.4, 72.1, 33)
	for _, s := range h.readStatuses() {
		peak := readMemoryOf(t, s.PID)["VmHWM"]
		t.Logf("%s: at most %.1f MB; when this was written 24.2, before that 37.7", s.Plugin, peak)
		if peak > 31 {
			t.Errorf("%s: had %.1f MB, want at most 31", s.Plugin, peak)
		}
	}
	h.stopBoth()
}

var ownPath = os.Getenv("PATH")

// bothHooks are a node's two processes.
type bothHooks struct {
	l      *lab
	daemon *exec.Cmd
}

// startBoth restarts the runtime with the program in its folder, and runs the program as the DaemonSet does.
func (l *lab) startBoth(program string) *bothHooks {
	l.t.Helper()
	l.stopNRI()
	installed, own := filepath.Join(l.dir, "plugins", "10-"+BaseName), filepath.Join(l.dir, "own.conf")
	l.must(os.RemoveAll(l.config.StateDir))
	l.must(os.MkdirAll(filepath.Dir(installed), 0o755))
	text, err := os.ReadFile(program)
	l.must(err)
	l.must(os.RemoveAll(installed))
	l.must(os.WriteFile(installed, text, 0o755))
	config := l.config
	for _, file := range []string{filepath.Join(filepath.Dir(installed), ConfigFile), own} {
		text, err := config.Marshal()
		l.must(err)
		l.must(os.WriteFile(file, text, 0o600))
		config.Program = installed
	}
	containerd := filepath.Join(l.dir, "containerd")
	l.must(os.WriteFile(containerd, []byte(`#!/bin/sh
case $* in
*dump*) printf "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = false\nplugin_path = '%s'\n" `+
		filepath.Dir(installed)+` ;;
*) echo containerd x v2.4.2 x ;;
esac
`), 0o755))
	l.startNRI()
	h := &bothHooks{l: l, daemon: exec.Command(program, "run", "--config", own, "--nri-socket", l.socket(),
		"--runtime-command", containerd)}
	h.daemon.Stderr = l.t.Output()
	l.must(kit.StartChild(h.daemon))
	h.waitFor("both are registered and have read the Node",
		func(s Status) bool { return !s.Registered.IsZero() && s.Node.Read })
	return h
}

func (h *bothHooks) readStatuses() []Status {
	all, err := ReadStatuses(h.l.config.StateDir)
	h.l.must(err)
	return all
}

// waitFor waits until the statuses of both pass the check.
func (h *bothHooks) waitFor(what string, check func(Status) bool) {
	h.l.t.Helper()
	kit.Until(h.l.t, what, func() bool {
		all := h.readStatuses()
		return len(all) == 2 && check(all[0]) && check(all[1])
	})
}

func (h *bothHooks) stopBoth() {
	_ = h.daemon.Process.Kill()
	_ = h.daemon.Wait()
	h.l.stopNRI()
}

// holdTo waits until both need at most so many MB together, and logs what they need of which kind.
func (h *bothHooks) holdTo(when string, measured, before, budget float64) {
	h.l.t.Helper()
	time.Sleep(2 * time.Second) // for a report of the protection
	text := ""
	kit.Until(h.l.t, fmt.Sprintf("%s: at most %.1f MB", when, budget), func() bool {
		sum := 0.
		text = when + ":"
		for _, s := range h.readStatuses() {
			m := readMemoryOf(h.l.t, s.PID)
			sum += m["Pss"]
			text += fmt.Sprintf(" %s %.1f MB (of its own %.1f, resident %.1f);", s.Plugin, m["Pss"], m["Anonymous"],
				m["Rss"])
		}
		text += fmt.Sprintf(" together %.1f; when it was written %.1f, before that %.1f", sum, measured, before)
		return sum <= budget
	})
	h.l.t.Log(text)
}

// readMemoryOf returns a process's memory in MB, by the kernel's words. Rss counts shared pages in each process, Pss
// divides them.
func readMemoryOf(t *testing.T, pid int) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, file := range []string{"smaps_rollup", "status"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		kit.Must(t, err)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
				kib, err := strconv.ParseFloat(f[1], 64)
				kit.Must(t, err)
				all[strings.TrimSuffix(f[0], ":")] = kib * 1024 / 1e6
			}
		}
	}
	return all
}

// addManyPods binds pods to the node that are as large as those of services.
func (l *lab) addManyPods(n int) {
	l.t.Helper()
	pods := shared.Client().CoreV1().Pods("default")
	l.t.Cleanup(func() {
		_ = pods.DeleteCollection(context.Background(), *metav1.NewDeleteOptions(0),
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + l.node})
	})
	var creators sync.WaitGroup
	for k := range 4 {
		creators.Go(func() {
			for i := k; i < n; i += 4 {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(l.node, "-", i)}}
				p.Annotations = map[string]string{"example.net/notes": strings.Repeat("note ", 200)}
				c := corev1.Container{Name: "c", Image: "x"}
				for v := range 40 {
					c.Env = append(c.Env,
						corev1.EnvVar{Name: fmt.Sprint("SETTING_", v), Value: strings.Repeat("v", 40)})
				}
				p.Spec.NodeName, p.Spec.Containers = l.node, []corev1.Container{c}
				uses(fmt.Sprint("data-", i))(p)
				if _, err := pods.Create(l.t.Context(), p, metav1.CreateOptions{}); err != nil {
					l.t.Errorf("creating a pod: %v", err)
					return
				}
			}
		})
	}
	creators.Wait()
}
