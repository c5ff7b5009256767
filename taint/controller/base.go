package controller

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/sharing"
)

// base is what the work on all nodes shares: the API server, the machines, and the memory across nodes.
type base struct {
	Options
	writer kube.Writer
	gate   *gate        // of pod writes
	runs   atomic.Int32 // batches of pod writes that are under way
	pauses sync.Map     // the shared calls that read the ConfigMaps of Config.Exclusions

	attached sharing.Call[map[string][]action.Attachment] // all of them, by node

	fleetMu sync.Mutex // guards fleet
	fleet   fleet.Fleet
}

func newBase(o Options) *base {
	return &base{
		Options: o, gate: &gate{pace: fleet.Pace{Most: o.Workers}, let: map[*fleet.Turn]chan struct{}{}},
		writer: kube.Writer{Client: o.Client, Key: o.Key, Leading: o.Leading, Now: o.Now},
	}
}

// WithFleet lends the memory across nodes to f, which must not block. It blocks while another goroutine has it.
func (b *base) WithFleet(f func(*fleet.Fleet)) {
	b.fleetMu.Lock()
	defer b.fleetMu.Unlock()
	f(&b.fleet)
}

// writesPods reports whether any batch of pod writes is under way.
func (b *base) writesPods() bool { return b.runs.Load() > 0 }

// fleetView returns what the fleet's memory knows of a node now.
func (b *base) fleetView(name string) (v fleet.View) {
	b.WithFleet(func(f *fleet.Fleet) { v = f.View(name, b.Now.Instant()) })
	return v
}

// noteReadResult records how a read of ours ended. If the API server itself returned the error, it did answer. A
// failure that many callers share counts once.
func (b *base) noteReadResult(err error) {
	var again sharing.Shared
	if errors.Is(err, context.Canceled) || errors.As(err, &again) {
		return
	}
	var status apierrors.APIStatus
	failed := err != nil && (!errors.As(err, &status) || status.Status().Code >= 500)
	b.WithFleet(func(f *fleet.Fleet) { f.ApplyReadResult(failed, b.Now.Instant()) })
}

// attachedTo lists the VolumeAttachments that name the node, live. The API server cannot select them by node, so
// concurrent callers share one list of all nodes' attachments. That list begins after the call, and its error goes to
// all of them.
func (b *base) attachedTo(ctx context.Context, node string) ([]action.Attachment, error) {
	list := func(ctx context.Context) (map[string][]action.Attachment, error) {
		return kube.ListAttachments(ctx, b.Live)
	}
	all, err := b.attached.Ask(ctx, kube.Timeout, list)
	return all[node], err
}
