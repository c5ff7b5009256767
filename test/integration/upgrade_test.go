package integration

import (
	"context"
	"encoding/json"
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

// previous is the program of the commit before this one, made once. It is "" where there is no such commit: a source
// without its history.
var previous = sync.OnceValues(func() (string, error) {
	ctx, root := context.Background(), filepath.Join("..", "..")
	if _, err := kit.Git(ctx, root, nil, "rev-parse", "--quiet", "--verify", "HEAD~1^{commit}"); err != nil {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(binary), "previous")
	if err := kit.Checkout(ctx, root, "HEAD~1", dir); err != nil {
		return "", err
	}
	out := binary + "-previous"
	return out, build(out, dir)
})

// Two versions lead in turn during one fence, and each dies in the middle: while the machine is being powered off, and
// while its volumes do not detach. Whoever comes next goes on under the same fence, with a proof of its own, and leaves
// in the record what only a newer version knows.
func TestUpgradeInTheMiddle(t *testing.T) {
	if binary == "" {
		t.Skip("needs a control plane")
	}
	old, err := previous()
	kit.Must(t, err)
	if old == "" {
		t.Skip("needs the commit before this one: git fetch --unshallow")
	}
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
			w.c.Attacher().SetDelays(0, forever)
			leads := func(binary string) *child {
				c := w.start(settings{Mode: "fence", Binary: binary, Mortal: true})
				w.until("it leads", c.leads)
				return c
			}
			goesOn := func(c *child, id, pod string) {
				t.Helper()
				w.create(w.bare(pod, h)) // nothing but a new answer allows that it is ended
				w.until(pod+" ended", func() bool { return !w.has(pod) })
				if !c.log.told(id, "Machine answered", "Off") {
					t.Errorf("log of %s: got no answer Off for fence %s", c.identity, id)
				}
			}

			first := leads(tt.leader[0])
			w.untilPinned(h)
			h.partition()
			id := w.untilPhase(h, taint.PhasePoweringOff).ID
			// else nobody sends it: powerOffTimeout is over before the next has heard the silence itself
			w.until("power-off sent", func() bool { return h.resets() == 1 })
			first.kill()

			second := leads(tt.leader[1])
			w.untilPhase(h, taint.PhaseEvicting)
			goesOn(second, id, "late")
			second.kill()
			rec := w.record(h)
			rec.Newer = map[string]json.RawMessage{"plan": json.RawMessage(`{"steps":["a","b"]}`)}
			patch, err := json.Marshal(
				map[string]any{
					"metadata": map[string]any{"annotations": map[string]string{taint.RecordAnnotation: rec.Encode()}}})
			kit.Must(t, err)
			_, err = w.c.Client().CoreV1().Nodes().
				Patch(w.ctx, h.Name(), types.MergePatchType, patch, metav1.PatchOptions{})
			kit.Must(t, err)

			third := leads(tt.leader[2])
			goesOn(third, id, "later")
			w.c.Attacher().SetDelays(0, 0)
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
