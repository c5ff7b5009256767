package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// previous is the program of the commit before this one, made once.
var previous = sync.OnceValues(func() (string, error) { return buildCommit("previous", "HEAD~1") })

// customKeys is the program of the last commit whose file names the leader's Lease, made once.
var customKeys = sync.OnceValues(func() (string, error) {
	removed, err := kit.Git(context.Background(), root, nil, "log", "-1", "--format=%H", `-Syaml:"pauseConfigMap"`,
		"--", "cmd/internal/config/config.go")
	if removed == "" {
		return "", err
	}
	return buildCommit("custom-keys", removed+"~1")
})

const root = "../.."

// buildCommit makes the program of a commit. It returns "" where there is no such commit: a source without its history.
func buildCommit(name, commit string) (string, error) {
	ctx := context.Background()
	if _, err := kit.Git(ctx, root, nil, "rev-parse", "--quiet", "--verify", commit+"^{commit}"); err != nil {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(binary), name)
	if err := kit.Checkout(ctx, root, commit, dir); err != nil {
		return "", err
	}
	out := binary + "-" + name
	return out, build(out, dir)
}

// earlier returns the program of an earlier version, and skips the test where it cannot be made.
func earlier(t *testing.T, program func() (string, error)) string {
	t.Helper()
	if binary == "" {
		t.Skip("needs a control plane")
	}
	old, err := program()
	kit.Must(t, err)
	if old == "" {
		t.Skip("needs the commits before this one: git fetch --unshallow")
	}
	return old
}

// takesCustomKeys reports whether a program takes the keys that settings.CustomKeys writes.
func takesCustomKeys(t *testing.T, binary string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	kit.Must(t, os.WriteFile(file, []byte("listen: {health: ':8081'}\nleaderElection: {namespace: a, name: b}\n"),
		0o600))
	return exec.CommandContext(t.Context(), binary, "check-config", file).Run() == nil
}

// goesOn checks that the process goes on with a fence: it ends a new pod of the node's, on an answer of its own.
func (c *child) goesOn(h *host, id, pod string) {
	c.w.t.Helper()
	c.w.create(c.w.bare(pod, h)) // nothing but a new answer allows that it is ended
	c.w.until(pod+" ended", func() bool { return !c.w.has(pod) })
	if !c.log.told(id, "Machine answered", "Off") {
		c.w.t.Errorf("log of %s: got no answer Off for fence %s", c.identity, id)
	}
}

// Two versions lead in turn during one fence, and each dies in the middle: while the machine is being powered off, and
// while its volumes do not detach. The next leader goes on under the same fence, with a proof of its own, and leaves in
// the record the fields of a newer version.
func TestUpgradeInTheMiddle(t *testing.T) {
	old := earlier(t, previous)
	oldKeys := takesCustomKeys(t, old)
	for _, tt := range []struct {
		name   string
		leader [3]string
	}{
		{"up and down again", [3]string{old, binary, old}},
		{"down and up again", [3]string{binary, old, binary}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, plan{nodes: 3, powerOffDelay: 3 * time.Second})
			h := w.hosts[0]
			w.busy(h)
			before := w.pods()
			w.Attacher().SetDelays(0, forever)
			leads := func(binary string) *child {
				c := w.start(
					settings{Mode: "fence", Binary: binary, Mortal: true, CustomKeys: oldKeys && binary == old})
				w.until("it leads", c.leads)
				return c
			}

			first := leads(tt.leader[0])
			w.untilPinned(h)
			h.partition()
			id := w.untilPhase(h, taint.PhasePoweringOff).ID
			// else it is never sent: powerOffTimeout is over before the next has seen the silence itself
			w.until("power-off sent", func() bool { return h.resets() == 1 })
			first.Kill()

			second := leads(tt.leader[1])
			w.untilPhase(h, taint.PhaseEvicting)
			second.goesOn(h, id, "late")
			second.Kill()
			rec := w.record(h)
			rec.Newer = map[string]json.RawMessage{"plan": json.RawMessage(`{"steps":["a","b"]}`)}
			patch, err := json.Marshal(
				map[string]any{
					"metadata": map[string]any{"annotations": map[string]string{taint.RecordAnnotation: rec.Encode()}}})
			kit.Must(t, err)
			_, err = w.Client().CoreV1().Nodes().
				Patch(w.ctx, h.Name(), types.MergePatchType, patch, metav1.PatchOptions{})
			kit.Must(t, err)

			third := leads(tt.leader[2])
			third.goesOn(h, id, "later")
			w.Attacher().SetDelays(0, 0)
			done := w.untilDone(h, taint.ResultEvicted)
			w.untilReplaced(h, before)
			if got := string(done.Newer["plan"]); got != string(rec.Newer["plan"]) && tt.leader[2] == binary {
				t.Errorf("record's field of a newer version: got %q, want %q", got, rec.Newer["plan"])
			}
			want := []taint.Phase{taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
			if got := w.seen.phases(h.Name(), id); done.ID != id || !slices.Equal(got, want) {
				t.Errorf("fence: got %s with phases %v, want %s with %v", done.ID, got, id, want)
			}
			kit.Must(t, w.othersAlone(h))
		})
	}
}

// An earlier version leads under a Lease of another name and namespace, in the middle of a fence. This one waits beside
// it, names it, and goes on with the fence when it ends. On the way back the earlier version waits for this one.
func TestUpgradeFromAnotherLease(t *testing.T) {
	old := earlier(t, customKeys)
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	w.Attacher().SetDelays(0, forever)
	first := w.start(settings{Mode: "fence", Binary: old, CustomKeys: true, Mortal: true})
	w.until("it leads", first.leads)
	w.untilPinned(h)
	h.cut()
	id := w.untilPhase(h, taint.PhaseEvicting).ID

	takesOver := func(next, leader *child, lease, pod string) {
		t.Helper()
		w.until("the next one waits for the leader", func() bool {
			return next.log.has("Not leading while another forcefence leads this cluster",
				lease+" held by "+leader.identity)
		})
		w.create(w.bare("before-"+pod, h))
		w.until("the leader ends another pod", func() bool { return !w.has("before-" + pod) })
		if next.leads() {
			kit.Harm(t, "%s leads beside %s", next.identity, leader.identity)
		}
		leader.end()
		next.goesOn(h, id, pod)
		if !next.leads() {
			t.Errorf("%s ended a pod, and does not lead", next.identity)
		}
	}
	second := w.start(settings{Mode: "fence", Mortal: true})
	takesOver(second, first, w.customLease().String(), "up")
	third := w.start(settings{Mode: "fence", Binary: old, CustomKeys: true, Mortal: true})
	takesOver(third, second, w.ns+"/forcefence", "down")

	w.Attacher().SetDelays(0, 0)
	done := w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	want := []taint.Phase{taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
	if got := w.seen.phases(h.Name(), id); done.ID != id || !slices.Equal(got, want) {
		t.Errorf("fence: got %s with phases %v, want %s with %v", done.ID, got, id, want)
	}
	kit.Must(t, w.othersAlone(h))
}
