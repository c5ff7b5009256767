package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// slowly is an API server whose answers tell what was so when the read was sent, and take a second.
type slowly struct {
	client.Reader

	mu    sync.Mutex // guards what follows
	so    bool       // the cluster is paused, and each node has a volume
	err   error
	reads int
}

func (s *slowly) is(so bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.so, s.err, s.reads = so, err, 0
}

func (s *slowly) read(ctx context.Context) (so bool, err error) {
	s.mu.Lock()
	s.reads++
	so, err = s.so, s.err
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(time.Second):
		return so, err
	}
}

func (s *slowly) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	so, err := s.read(ctx)
	o.(*corev1.ConfigMap).
		Data = map[string]string{"until": map[bool]string{false: "1999-01-01T00:00:00Z", true: ""}[so]}
	return err
}

func (s *slowly) List(ctx context.Context, l client.ObjectList, _ ...client.ListOption) error {
	so, err := s.read(ctx)
	for i := range 50 {
		if va := (storagev1.VolumeAttachment{}); so {
			va.Name, va.Spec.NodeName = fmt.Sprint("of n", i), fmt.Sprint("n", i)
			l.(*storagev1.VolumeAttachmentList).Items = append(l.(*storagev1.VolumeAttachmentList).Items, va)
		}
	}
	return err
}

// Nodes that die together read together what is one for all, but none takes a read that was sent before it asked; none
// waits for another that gave up; and a read that fails fails for all, and once.
func TestReadTogether(t *testing.T) {
	for name, of := range map[string]func(r *Reconciler, ctx context.Context, node string) (so bool, err error){
		"the cluster's pause": func(r *Reconciler, ctx context.Context, node string) (bool, error) {
			n := &corev1.Node{}
			n.Name = node
			got, err := r.readExclusions(ctx,
				ExclusionSources{Pause: client.ObjectKey{Namespace: "fencing", Name: "pause"}}, n)
			return got.Excluded != "", err
		},
		"attachments": func(r *Reconciler, ctx context.Context, node string) (bool, error) {
			got, err := r.attachedTo(ctx, node)
			if len(got) > 0 && !slices.Equal(got, []action.Attachment{{Name: "of " + node, NeverAttached: true}}) {
				return false, fmt.Errorf("got %v", got)
			}
			return len(got) == 1, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			synctest.Test(t, func(t *testing.T) {
				live, broken := &slowly{}, errors.New("broken")
				w.r.Live = live
				var all sync.WaitGroup
				ask := func(ctx context.Context, node int, want bool, fails error) {
					all.Go(func() {
						so, err := of(w.r, ctx, fmt.Sprint("n", node))
						if w.r.noteReadResult(err); so != want || !errors.Is(err, fails) {
							t.Errorf("got %t, %v; want %t, %v", so, err, want, fails)
						}
					})
				}
				reads := func(want int, within time.Duration) {
					t.Helper()
					began := time.Now()
					all.Wait()
					if took := time.Since(began); live.reads != want || took > within {
						t.Errorf("read %d times in %s, want %d in %s", live.reads, took, want, within)
					}
				}
				short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				ask(short, 0, false, context.DeadlineExceeded)
				time.Sleep(time.Millisecond / 2)
				live.is(true, nil)
				for i := range 40 {
					ask(t.Context(), i, true, nil)
				}
				reads(1, 2*time.Second)

				live.is(true, broken)
				ask(t.Context(), 0, false, broken)
				time.Sleep(time.Millisecond)
				for i := range 40 {
					ask(t.Context(), i, false, broken)
				}
				reads(2, 2*time.Second)
				if n := w.r.fleetView("n1").Storm.Failed; n != 0 {
					t.Errorf("two reads that failed are %d", n)
				}
			})
		})
	}
}

// slowPause is an API server whose ConfigMaps, of which there is none, take longer to read than a look holds.
type slowPause struct{ *server }

func (s slowPause) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, pause := o.(*corev1.ConfigMap); pause {
		time.Sleep(proof.TTL + time.Second)
		return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
	}
	return s.server.Get(ctx, k, o, opts...)
}

// The pause is part of a look, however long it takes to read. The last check does not wait for it, so the power-off is
// sent.
func TestSlowPauseKeepsNoPowerOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &oneMachine{state: providers.PowerOn}
		x := inMidst(t, m, taint.PhasePoweringOff)
		x.live.pods = podsOf("n1", "a")
		last := time.Now()
		x.Now = func() time.Time { // its clock goes on while it waits
			x.c.now, last = x.c.now.Add(time.Since(last)), time.Now()
			return x.c.now
		}
		m.now = x.Now
		config := x.Config()
		config.Exclusions.Pause = client.ObjectKey{Namespace: "fencing", Name: "pause"}
		x.Config = func() *Config { return config }
		x.Live = slowPause{x.live}
		for range 20 {
			s := x.step(t.Context(), "n1", x.st)
			after, err := s.Decision.RequeueAfter, s.Err()
			must(t, err)
			if x.pass(after); m.off > 0 {
				break
			}
			x.c.now = x.c.now.Add(time.Millisecond)
		}
		if m.off == 0 {
			t.Errorf("no power-off was sent; said %s", x.heard.reason)
		}
		time.Sleep(time.Minute) // the read that the last check did not wait for
	})
}
