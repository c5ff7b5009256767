package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// previous is the program of the commit before this one, made once. Without that commit the error is kit.ErrNoHistory.
var previous = sync.OnceValues(func() (string, error) {
	const root, commit = "../..", "HEAD~1"
	ctx := context.Background()
	if _, err := kit.Git(ctx, root, nil, "rev-parse", "--quiet", "--verify", commit+"^{commit}"); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 { // git works, and has no such commit
			err = fmt.Errorf("%w: it lacks the commit before this one: git fetch --unshallow", kit.ErrNoHistory)
		}
		return "", err
	}
	dir := filepath.Join(filepath.Dir(binary), "previous")
	if err := kit.Checkout(ctx, root, commit, dir); err != nil {
		return "", err
	}
	out := binary + "-previous"
	return out, build(out, dir)
})

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
	t.Parallel()
	if binary == "" {
		t.Skip("needs a control plane")
	}
	old, err := previous()
	if errors.Is(err, kit.ErrNoHistory) {
		t.Skip("SKIPPED:", err)
	}
	kit.Must(t, err)
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
				c := w.start(settings{Mode: "fence", Binary: binary, Mortal: true})
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
