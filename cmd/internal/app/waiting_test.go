package app

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/view"
)

// podPages is an API server with so many waiting pods.
type podPages struct {
	client.Reader
	t    *testing.T
	left int // of the list that is read
}

func (p *podPages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if got := o.FieldSelector.String(); got != "status.phase=Pending,spec.nodeName=" || o.Limit != waitingPage {
		p.t.Errorf("got the selector %q with the limit %d", got, o.Limit)
	}
	pods := list.(*metav1.PartialObjectMetadataList)
	pods.Items = make([]metav1.PartialObjectMetadata, min(p.left, int(o.Limit)))
	if p.left -= len(pods.Items); p.left > 0 {
		pods.Continue = "more"
	}
	return nil
}

// Only Pending pods without a node are counted, page by page, and not without end.
func TestCountWaiting(t *testing.T) {
	for left, want := range map[int]int{
		0: 0, 1: 1, waitingPage: waitingPage, waitingPage + 1: waitingPage + 1, 2 * view.MaxWaiting: view.MaxWaiting,
	} {
		if got, err := CountWaiting(t.Context(), &podPages{t: t, left: left}); got != want || err != nil {
			t.Errorf("of %d: got %d, %v, want %d", left, got, err, want)
		}
	}
}

// The status page counts at most twice a minute.
func TestWaitingCounter(t *testing.T) {
	var counter waitingCounter
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, want := range []int{1, 1, 3} {
		at := now.Add(time.Duration(i) * waitingEvery / 2)
		if got := counter.count(t.Context(), &podPages{t: t, left: i + 1}, at); got != want {
			t.Errorf("after %s: got %d, want %d", at.Sub(now), got, want)
		}
	}
}
