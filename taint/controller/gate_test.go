package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fleet"
	"github.com/forcefence/forcefence/taint/recovery"
)

// What the API server has no room for is written again after as long as it asks for, each time under a proof that holds then (invariant 1);
// it counts as no pod's fault, and a run ends.
func TestWritesThatFindNoRoom(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refuses int                  // of the first writes of each pod
		after   int                  // the patience that the API server asks for, in seconds
		state   providers.PowerState // the device's next answer
		life    bool                 // the node shows life after the first refusal
		want    []int                // writes of each pod that were tried; one pod at a time
		written int
		took    time.Duration
		asked   int
	}{
		{name: "at the second try", refuses: 1, after: 2, state: providers.PowerOn, want: []int{2, 2}, written: 2, took: 2 * time.Second},
		{name: "the proof is old by then, still off", refuses: 1, after: 5, state: providers.PowerOff, want: []int{2, 2}, written: 2, took: 5 * time.Second, asked: 1},
		{name: "the proof is old by then, on", refuses: 1, after: 5, state: providers.PowerOn, want: []int{1, 1}, took: 5 * time.Second, asked: 1},
		{name: "the node shows life", refuses: 1, after: 2, state: providers.PowerOff, life: true, want: []int{1, 0}, took: 2 * time.Second},
		{name: "never", refuses: 100, after: 1, state: providers.PowerOn, want: []int{patient, patient}, took: 2 * patient * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &oneMachine{state: providers.PowerOff}
				x := inMidst(t, m, taint.PhaseEvicting)
				x.live.pods = podsOf("n1", "a", "b")
				s := x.upTo(recovery.Tombstone)
				m.state, m.asked = tc.state, 0
				tried := map[string]int{}
				var mu sync.Mutex // guards tried
				begun, from := time.Now(), x.c.now
				x.Now = func() time.Time { return from.Add(time.Since(begun)) }
				m.now = x.Now
				o := x.forEach(t.Context(), x.st, s, func(_ context.Context, p evict.Pod) error {
					mu.Lock()
					defer mu.Unlock()
					if tried[p.Name]++; tried[p.Name] > tc.refuses {
						return nil
					}
					if tc.life {
						x.stopBatch("n1")
					}
					return apierrors.NewTooManyRequests("no room", tc.after)
				})
				if got := []int{tried["a"], tried["b"]}; !slices.Equal(got, tc.want) || len(o.How) != tc.written || o.Err != nil || m.asked != tc.asked {
					t.Errorf("tried %v, %d written, asked %d times, error %v; want %v, %d, %d", got, len(o.How), m.asked, o.Err, tc.want, tc.written, tc.asked)
				}
				if took := time.Since(begun); took > tc.took {
					t.Errorf("took %s, want %s at most", took, tc.took)
				}
			})
		})
	}
}

// Two nodes' runs share the gate: storage pods go first, then the older fence; which of them came first does not matter.
func TestRunsShareTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting), inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		old.gate = young.gate // that of one process
		var order []string
		run := func(x *midst, age time.Duration, pods ...string) {
			x.live.pods = podsOf("n1", pods...)
			s := x.upTo(recovery.Tombstone)
			for i := range s.Pods {
				s.Pods[i].First = strings.HasPrefix(s.Pods[i].Name, "storage")
			}
			slices.SortStableFunc(s.Pods, func(a, b evict.Pod) int { return strings.Compare(b.Name, a.Name) })
			l := x.st.course.Look()
			if l.Record == nil {
				t.Fatal("no record")
			}
			l.Record.Since = l.Record.Since.Add(-age)
			go x.forEach(t.Context(), x.st, s, func(_ context.Context, p evict.Pod) error {
				time.Sleep(time.Second)
				order = append(order, p.Name)
				return nil
			})
		}
		busy := &fleet.Turn{}
		young.gate.enter(t.Context(), busy)
		run(young, 0, "storage-y", "a-y")
		synctest.Wait()
		run(old, time.Hour, "storage-o", "a-o")
		synctest.Wait()
		young.gate.leave(busy, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"storage-o", "storage-y", "a-o", "a-y"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
	})
}

func TestGateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{pace: fleet.Pace{Most: 1}, let: map[*fleet.Turn]chan struct{}{}}
		a, b, c := &fleet.Turn{}, &fleet.Turn{}, &fleet.Turn{}
		if !g.enter(t.Context(), a) {
			t.Fatal("nobody was there")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if g.enter(ctx, b) {
			t.Error("entered while another was in")
		}
		if g.leave(a, false); g.enter(ctx, b) || len(g.let) != 0 {
			t.Error("entered though the context had ended")
		}
		if !g.enter(t.Context(), c) {
			t.Error("those who gave up still have their turn")
		}
	})
}
