package controller

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fence"
)

// readPause returns what the ConfigMap that pauses the whole cluster states at now.
func readPause(ctx context.Context, c client.Reader, key client.ObjectKey, now time.Time) (exclusion, error) {
	var cm corev1.ConfigMap
	return readExclusion(ctx, c, "ConfigMap", key, &cm, func() string {
		if p := fence.PauseOf(cm.Data); !p.IsOver(now) {
			return p.String()
		}
		return ""
	})
}

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
