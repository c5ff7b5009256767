package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// What the API server has no room for is written again after as long as it asks for, each time under a proof that holds
// then (invariant 1); it counts as no pod's fault, and a run ends.
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
		{name: "at the second try", refuses: 1, after: 2, state: providers.PowerOn, want: []int{2, 2}, written: 2,
			took: 2 * time.Second},
		{name: "the proof is old by then, still off", refuses: 1, after: 5, state: providers.PowerOff,
			want: []int{2, 2}, written: 2, took: 5 * time.Second, asked: 1},
		{name: "the proof is old by then, on", refuses: 1, after: 5, state: providers.PowerOn, want: []int{1, 1},
			took: 5 * time.Second, asked: 1},
		{name: "the node shows life", refuses: 1, after: 2, state: providers.PowerOff, life: true, want: []int{1, 0}},
		{name: "it asks for nothing", refuses: 1, state: providers.PowerOn, want: []int{2, 2}, written: 2,
			took: 100 * time.Millisecond},
		{name: "it asks for an hour", refuses: 1, after: 3600, state: providers.PowerOff, want: []int{2, 2}, written: 2,
			took: maxCrowdedRest, asked: 1},
		{name: "never", refuses: 100, after: 1, state: providers.PowerOn, want: []int{crowdedTries, crowdedTries},
			took: (crowdedTries - 1) * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &oneMachine{state: providers.PowerOff}
				x := inMidst(t, m, taint.PhaseEvicting)
				x.live.pods = podsOf("n1", "a", "b")
				s := x.upTo("EndPods")
				m.state, m.asked = tc.state, 0
				tried := map[string]int{}
				var mu sync.Mutex // guards tried
				begun, from := time.Now(), x.c.now
				x.Now = func() time.Time { return from.Add(time.Since(begun)) }
				m.now = x.Now
				o := x.work().writePods(t.Context(), s.Action, func(_ context.Context, p action.Pod) error {
					mu.Lock()
					defer mu.Unlock()
					if tried[p.Name]++; tried[p.Name] > tc.refuses {
						return nil
					}
					if tc.life {
						x.stopWrites("n1")
					}
					return apierrors.NewTooManyRequests("no room", tc.after)
				})
				if got := []int{tried["a"], tried["b"]}; !slices.Equal(got, tc.want) || len(o.Results) != tc.written ||
					o.Err != nil || m.asked != tc.asked {
					t.Errorf("tried %v, %d written, asked %d times, error %v; want %v, %d, %d", got, len(o.Results),
						m.asked, o.Err, tc.want, tc.written, tc.asked)
				}
				if took := time.Since(begun); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
			})
		})
	}
}

// Where the API server has no room, or is late, fewer writes are under way; that of one pod is what it answers to that
// pod.
func TestWritesThatFindNoRoomAreFewer(t *testing.T) {
	late, denied := apierrors.NewTimeoutError("late", 0), apierrors.NewForbidden(schema.GroupResource{}, "a", nil)
	for _, tc := range []struct {
		name string
		err  error
		want int // writes that may be under way then
	}{
		{"none", nil, fleet.DefaultPace},
		{"no room", apierrors.NewTooManyRequests("no room", 1), fleet.DefaultPace / 2},
		{"late", late, fleet.DefaultPace / 2},
		{"refused", denied, fleet.DefaultPace},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			x.gate.pace.Most = 0
			x.live.pods = podsOf("n1", "a")
			s := x.upTo("EndPods")
			tried := false
			x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error {
				if tried {
					return nil
				}
				tried = true
				return tc.err
			})
			if got := x.gate.pace.CurrentLimit(); got != tc.want {
				t.Errorf("%s: %d writes may be under way, want %d", tc.name, got, tc.want)
			}
		})
	}
}

// A write that waits for room ends with its run: another one lost the proof, or the leadership.
func TestWaitingForRoomEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a", "b")
		s := x.upTo("EndPods")
		begun := time.Now()
		x.work().writePods(t.Context(), s.Action, func(_ context.Context, p action.Pod) error {
			if p.Name == "a" {
				return apierrors.NewTooManyRequests("no room", 4)
			}
			time.Sleep(time.Second)
			x.Leading = func() error { return errStale }
			return errStale
		})
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the run took %s, want 1s", took)
		}
	})
}

// A turn is held until the write's outcome is folded in: where that ends the run, no further write begins.
func TestTurnIsHeldForTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a", "b", "c")
		s := x.upTo("EndPods")
		x.Leading = func() error {
			time.Sleep(time.Second) // others would have their turn meanwhile
			return errStale
		}
		tried := 0
		o := x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error {
			tried++
			return errors.New("the connection is gone")
		})
		if tried != 1 || !errors.Is(o.Err, errStale) {
			t.Errorf("%d writes were tried after the leadership was lost, error %v; want one", tried, o.Err)
		}
	})
}

// Events of other nodes wait while any run of pod writes is under way.
func TestWritesPods(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	x.live.pods = podsOf("n1", "a")
	s := x.upTo("EndPods")
	before, during := x.writesPods(), false
	x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error {
		during = x.writesPods()
		return nil
	})
	if after := x.writesPods(); before || !during || after {
		t.Errorf("pods are written before %t, during %t and after the run %t; want only during it", before, during,
			after)
	}
}

// Two nodes' runs share the gate: storage pods go first, then the older fence; which of them came first does not
// matter.
func TestRunsShareTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting),
			inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		old.gate = young.gate // that of one process
		var order []string
		run := func(x *midst, age time.Duration, pods ...string) {
			x.live.pods = podsOf("n1", pods...)
			s := x.upTo("EndPods")
			for i := range action.PodsOf(s.Action) {
				action.PodsOf(s.Action)[i].First = strings.HasPrefix(action.PodsOf(s.Action)[i].Name, "storage")
			}
			slices.SortStableFunc(action.PodsOf(s.Action),
				func(a, b action.Pod) int { return strings.Compare(b.Name, a.Name) })
			l := x.st.course.Look()
			if l.Record == nil {
				t.Fatal("no record")
			}
			l.Record.Since = l.Record.Since.Add(-age)
			go x.work().writePods(t.Context(), s.Action, func(_ context.Context, p action.Pod) error {
				time.Sleep(time.Second)
				order = append(order, p.Name)
				return nil
			})
		}
		busy := &fleet.Turn{}
		young.gate.takeTurn(t.Context(), busy)
		run(young, 0, "storage-y", "a-y")
		synctest.Wait()
		run(old, time.Hour, "storage-o", "a-o")
		synctest.Wait()
		young.gate.returnTurn(busy, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"storage-o", "storage-y", "a-o", "a-y"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
	})
}

// A node whose run waits for its turns lets another be looked at: the gate is to know the storage pods of all.
func TestWaitingToWriteLetsOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a")
		s := x.upTo("EndPods")
		looked := 0
		x.st.releaseSlot = func() { looked++ }
		busy := &fleet.Turn{}
		x.gate.takeTurn(t.Context(), busy)
		go x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error { return nil })
		synctest.Wait()
		if looked != 1 {
			t.Errorf("%d others were let in while the run waits, want one", looked)
		}
		x.gate.returnTurn(busy, false)
	})
}

// shut is a cache that answers nobody until it is opened, and then knows nothing.
type shut struct {
	client.Reader
	asked atomic.Int32
	open  chan struct{}
}

func (s *shut) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	s.asked.Add(1)
	<-s.open
	return apierrors.NewNotFound(schema.GroupResource{}, "n")
}

func (s *shut) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// However many nodes are worked on, so many are looked at at the same time, and the others after them.
func TestLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &shut{open: make(chan struct{})}
		sinks, _ := sinksTo(nil)
		r := New(Options{Cache: cache, Now: time.Now, Sinks: sinks, Leading: func() error { return nil },
			Config: func() *Config { return &Config{} }})
		r.fleetLoaded = true
		var all sync.WaitGroup
		for i := range 3 * looksAtOnce {
			all.Go(func() {
				name := types.NamespacedName{Name: fmt.Sprint("n", i)}
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := cache.asked.Load(); n != looksAtOnce {
			t.Errorf("%d nodes are looked at, want %d", n, looksAtOnce)
		}
		close(cache.open)
		all.Wait()
		if n := cache.asked.Load(); n != 3*looksAtOnce || len(r.lookSlots) > 0 {
			t.Errorf("%d nodes were looked at in the end, and %d still are", n, len(r.lookSlots))
		}
	})
}

func TestGateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{pace: fleet.Pace{Most: 1}, let: map[*fleet.Turn]chan struct{}{}}
		a, b, c := &fleet.Turn{}, &fleet.Turn{}, &fleet.Turn{}
		if !g.takeTurn(t.Context(), a) {
			t.Fatal("nobody was there")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if g.takeTurn(ctx, b) || len(g.let) != 0 {
			t.Error("entered while another was in")
		}
		g.returnTurn(a, false)
		for range 50 { // either of both may be seen first
			if g.takeTurn(ctx, b) || len(g.let) != 0 {
				t.Fatal("entered though the context had ended")
			}
		}
		if !g.takeTurn(t.Context(), c) {
			t.Error("those who gave up still have their turn")
		}
	})
}
