package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/view"
)

// waitingPage is how many pods are read at once: their metadata alone may have a quarter of a megabyte each.
const waitingPage = 100

// CountWaiting returns how many pods of the cluster are Pending without a node, at most view.MaxWaiting. It blocks for
// the API server.
func CountWaiting(ctx context.Context, c client.Reader) (n int, _ error) {
	waiting := fields.AndSelectors(fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)),
		fields.OneTermEqualSelector("spec.nodeName", ""))
	for next := ""; n < view.MaxWaiting; {
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := c.List(ctx, pods, client.MatchingFieldsSelector{Selector: waiting}, client.Limit(waitingPage),
			client.Continue(next))
		if err != nil {
			return 0, fmt.Errorf("listing waiting pods: %w", err)
		}
		n += len(pods.Items)
		if next = pods.Continue; next == "" {
			break
		}
	}
	return min(n, view.MaxWaiting), nil
}

// waitingEvery is the time between two counts of waiting pods for the status page.
const waitingEvery = 30 * time.Second

// waitingCounter counts waiting pods for the status page now and then.
type waitingCounter struct {
	mu   sync.Mutex // guards what follows; not held during a count
	at   time.Time  // when the last count began
	last int        // what it found
}

// count returns how many pods wait, at most waitingEvery ago. While they cannot be counted it returns 0, which claims
// nothing. It blocks for the API server.
func (w *waitingCounter) count(ctx context.Context, c client.Reader, now time.Time) int {
	w.mu.Lock()
	fresh, last := now.Sub(w.at) < waitingEvery, w.last
	if !fresh {
		w.at = now
	}
	w.mu.Unlock()
	if fresh {
		return last
	}
	n, err := CountWaiting(ctx, c)
	if err != nil {
		n = 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = n
	return n
}
