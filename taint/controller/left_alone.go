package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fence"
)

// readExclusions returns the exclusions of a live Node that other objects state now. If we may not read one of them,
// the node counts as excluded. It blocks for the API server.
func (b *base) readExclusions(ctx context.Context, at ExclusionSources, node *corev1.Node) (Exclusions, error) {
	w, err := at.ReadExclusions(ctx, sharedReader{b.Live, &b.pauses}, b.Client.RESTMapper(), node, b.Now())
	for _, name := range w.Denied {
		w.Excluded += "; forcefence may not read " + name + ", which may exclude the node"
	}
	w.Excluded = strings.TrimPrefix(w.Excluded, "; ")
	return w, err
}

// LeftAlone returns why nothing may be begun on a node now; "" if something may. The name "" means the whole cluster. A
// Node that does not exist is not left alone: the caller has to decide. It blocks for the API server, and may be
// repeated.
func (b *base) LeftAlone(ctx context.Context, name string) (string, error) {
	config, node, why := b.Config(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forcefence"}}, ""
	if name != "" {
		switch err := b.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("reading node %s live: %w", name, err)
		}
		why = cmp.Or(config.Excluded(node), fence.ExclusionReason(node, b.Now()))
	}
	exclusions, err := b.readExclusions(ctx, config.Exclusions, node)
	return cmp.Or(why, exclusions.Excluded), err
}

// pauseRead is how long the last check waits for the cluster's pause. The look read it as well, so a slow API server
// does not keep machines on.
const pauseRead = 500 * time.Millisecond

// pausedNow returns why the whole cluster is paused; "" if it is not. An answer that takes longer than pauseRead counts
// as none.
func (b *base) pausedNow(ctx context.Context, key client.ObjectKey) string {
	if key.Name == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pauseRead)
	defer cancel()
	s, err := readPause(ctx, sharedReader{b.Live, &b.pauses}, key, b.Now())
	if err != nil {
		b.Sinks.Log.Debug("Cannot read the pause again", "error", err)
	}
	return cmp.Or(s.why, s.denied)
}
