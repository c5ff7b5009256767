package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/recording/replay"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// replayed runs forcefence replay, which must end with that status.
func (w *world) replayed(status int, file string) (r replay.Report) {
	w.t.Helper()
	args := []string{"replay", file}
	table, got := w.forcefence(args...)
	w.t.Logf("forcefence %s: exit status %d\n%s", strings.Join(args, " "), got, table)
	if got != status {
		w.t.Fatalf("exit status %d, want %d", got, status)
	}
	text, err := exec.CommandContext(w.ctx, binary, append(args, "-o", "json")...).Output()
	if status == 0 {
		kit.Must(w.t, err)
	}
	kit.Must(w.t, json.Unmarshal(text, &r))
	return r
}

// The shipped process records a fence and what mode shadow reported. Played again, everything is decided the same. No
// secret is in the recording.
func TestReplay(t *testing.T) {
	modes := []string{"fence", "shadow"}
	w := newWorld(t, plan{nodes: 6, node: func(i int, o *cluster.NodeOptions) {
		if i < len(modes) {
			o.Labels["mode"] = modes[i]
		}
	}})
	fenced, shadowed := w.hosts[0], w.hosts[1]
	const secret = "of-the-pod-only"
	for _, h := range w.hosts[:2] {
		pod := w.bare("app-"+h.Name(), h)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: secret}}
		pod.Spec.Containers[0].Args = []string{"--token=" + secret}
		pod.Annotations = map[string]string{"example.net/token": secret}
		w.create(pod)
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, 2))
	file := filepath.Join(w.dir, "recording")
	c := w.start(settings{Top: "recording: {file: " + file + "}\nmodes:\n- {selector: mode=shadow, mode: shadow}\n- " +
		"{selector: mode=fence, mode: fence}"})
	w.untilPinned(fenced, shadowed)
	if _, err := os.Stat(file); err == nil {
		text, _ := os.ReadFile(file)
		t.Errorf("quiet time was recorded:\n%s", text)
	}

	shadowed.partition()
	w.untilEvent("Node", shadowed.Name(), "WouldPowerOff")
	fenced.partition()
	w.untilDone(fenced, taint.ResultEvicted)
	if got := c.metric(`forcefence_record_lines_total{result="dropped"}`); got != 0 {
		t.Errorf("%v lines were dropped", got)
	}

	text, err := os.ReadFile(file)
	kit.Must(t, err)
	for _, never := range []string{secret, strings.TrimSpace(w.dc.Password())} {
		if strings.Contains(string(text), never) {
			t.Errorf("%q is in the recording", never)
		}
	}
	info, err := os.Stat(file)
	kit.Must(t, err)
	t.Logf("%d bytes", info.Size())
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the recording: %s", info.Mode())
	}

	r := w.replayed(0, file)
	off, told := 0, 0
	for _, d := range r.Decisions {
		switch {
		case d.Node == fenced.Name() && d.Now.Do == "PowerOff":
			off++
		case d.Node == shadowed.Name() && d.Now.Why == "WouldPowerOff":
			told++
		}
	}
	if r.Differ != 0 || r.Skipped != 0 || off != 1 || told != 1 {
		t.Errorf("got %d decisions that differ, %d lines left out, %d power-offs and %d told; want 0, 0, 1, 1",
			r.Differ, r.Skipped, off, told)
	}

	// In a recording that was changed, the same rules show the difference.
	changed := filepath.Join(w.dir, "changed")
	kit.Must(t, os.WriteFile(changed, []byte(strings.ReplaceAll(string(text), `"state":"On"`, `"state":"Off"`)), 0o600))
	if r := w.replayed(1, changed); r.Differ == 0 {
		t.Error("answers of Off in the place of On: no decision differs")
	}
}
