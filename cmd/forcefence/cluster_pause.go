package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Names under which the manifests in deploy/ store the controller's configuration.
const (
	configMapName = "forcefence"
	configKey     = "config.yaml"
)

// pauseConfigMap returns the key of the ConfigMap that pauses the whole cluster.
func pauseConfigMap(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: config.PauseConfigMap}
}

// readClusterPause returns what pauses the whole cluster; nil: nothing does.
func readClusterPause(ctx context.Context, c client.Reader, at client.ObjectKey, now time.Time) (*fence.Pause, error) {
	var cm corev1.ConfigMap
	switch err := c.Get(ctx, at, &cm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	if p := fence.PauseOf(cm.Data); !p.IsOver(now) {
		return &p, nil
	}
	return nil, nil
}
