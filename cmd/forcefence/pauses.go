package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Names under which the manifests in deploy/ store the controller's configuration.
const (
	configMapName = "forcefence"
	configKey     = "config.yaml"
)

// pauseConfigMap returns the ConfigMap that pauses the whole cluster. unsure explains why the controller may read
// another one, and is "" if that is certain. It returns an error if the controller reads none.
func pauseConfigMap(
	ctx context.Context,
	c client.Reader,
	namespace string,
) (key client.ObjectKey, unsure string, err error) {
	named := struct {
		PauseConfigMap *string
	}{}
	key = client.ObjectKey{Namespace: namespace, Name: config.Default().PauseConfigMap}
	var cm corev1.ConfigMap
	where := client.ObjectKey{Namespace: namespace, Name: configMapName}
	err = c.Get(ctx, where, &cm)
	if err == nil {
		err = yaml.Unmarshal([]byte(cm.Data[configKey]), &named)
	}
	switch {
	case err != nil:
		return key, fmt.Sprintf(
			"Whether the controller's configuration has pauseConfigMap: %s is not known: reading ConfigMap %s: %v",
			key.Name, where, err,
		), nil
	case named.PauseConfigMap == nil:
		return key, "", nil
	case *named.PauseConfigMap == "":
		return key, "", fmt.Errorf(
			`the controller's configuration (ConfigMap %s) has pauseConfigMap: "": nothing pauses the whole cluster. Pause nodes, or correct it`,
			where,
		)
	}
	key.Name = *named.PauseConfigMap
	return key, "", nil
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
