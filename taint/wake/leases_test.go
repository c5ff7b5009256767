package wake

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

func lease(node string, rv int) *coordinationv1.Lease {
	seconds := int32(40)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: strconv.Itoa(rv)},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}
}

// Each heartbeat is reported. A Lease that comes again unchanged is none.
func TestHeartbeatsAreTold(t *testing.T) {
	var heard []string
	o := optionsOf(nil, nil, nil)
	o.OnHeartbeat = func(node string) { heard = append(heard, node) }
	beats := heartbeats{Options: o, listed: make(chan struct{})}
	must(t, beats.Replace([]any{lease("n1", 1), lease("n2", 1)}, ""))
	heard = nil
	must(t, beats.Update(lease("n1", 1)))
	must(t, beats.Update(lease("n2", 2)))
	must(t, beats.Add(lease("n3", 1)))
	must(t, beats.Delete(lease("n1", 2)))
	if want := []string{"n2", "n3"}; !slices.Equal(heard, want) {
		t.Errorf("told of heartbeats of %q, want %q", heard, want)
	}
}

// Who has not heard of all Leases neither leads nor is ready: it would take each node for silent since its own start.
func TestHeardBeforeLeading(t *testing.T) {
	beats := heartbeats{Options: optionsOf(nil, nil, nil), listed: make(chan struct{})}
	ended, end := context.WithCancel(t.Context())
	end()
	if beats.GetCache().WaitForCacheSync(ended) || beats.checkReady(nil) == nil {
		t.Error("it leads, or is ready, and has heard of no Lease")
	}
	must(t, beats.Update(lease("n1", 7)))
	if beats.checkReady(nil) == nil {
		t.Error("it is ready, and has heard of one Lease of all")
	}
	for range 2 { // a watch that broke lists again
		must(t, beats.Replace(nil, ""))
		if err := beats.checkReady(nil); err != nil || !beats.GetCache().WaitForCacheSync(t.Context()) {
			t.Errorf("got %v, want it to be ready, and to lead", err)
		}
	}
}

// stored is an API server whose Leases are what a test says, and that counts how often they are listed.
type stored struct {
	client.Reader
	mu     sync.Mutex // guards what follows
	rv     int        // of both nodes' Leases; 0: the API server is down
	listed int
}

func (s *stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed++
	if s.rv == 0 {
		return errors.New("down")
	}
	list.(*coordinationv1.LeaseList).Items = []coordinationv1.Lease{*lease("n1", s.rv), *lease("n2", s.rv)}
	return nil
}

func (s *stored) set(rv int) (listed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, s.listed, s.rv = s.listed, 0, rv
	return listed
}

// A Lease that stops wakes its node, and while none is fresh they are listed live: the watch may be behind after an
// outage.
func TestScanOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, api := make(chan event.GenericEvent, 10), &stored{}
		o := optionsOf(nil, nodes, nil)
		o.Live = api
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		w := o
		w.Fleet(func(f *fleet.Fleet) { f.AddNode("n1", w.Now.Instant()); f.AddNode("n2", w.Now.Instant()) })
		wait.Go(func() { w.scanLeases(ctx) })
		woken := func() (names []string) {
			for len(nodes) > 0 {
				e := <-nodes
				names = append(names, e.Object.GetName())
			}
			slices.Sort(names)
			return names
		}
		for rv := range 6 { // n2 falls silent after the third
			w.observeLease(lease("n1", rv+1))
			w.observeLease(lease("n2", min(rv+1, 3)))
			time.Sleep(10 * time.Second)
		}
		if got := woken(); !slices.Contains(got, "n2") {
			t.Errorf("woken: %q, want n2, whose Lease stopped", got)
		}
		if n := api.set(0); n > 2 { // before the first was heard of
			t.Errorf("listed %d times while a node was heard", n)
		}
		time.Sleep(time.Minute) // no node is heard
		if n := api.set(9); n < 10 {
			t.Errorf("listed %d times in a minute without a heartbeat, want about every %s", n, relist)
		}
		time.Sleep(2 * relist)
		woken()
		if v := w.fleetView("n2"); v.Stale {
			t.Error("the live list was not heard")
		}
		cancel()
		wait.Wait()
	})
}
