package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/page"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view"
)

// addPage makes every replica serve the status page, if the file configures one.
func addPage(
	mgr manager.Manager,
	cfg *config.Config,
	confs *configs,
	o Options,
	rc *rest.Config,
	api dynamic.Interface,
) error {
	if cfg.Listen.Status == "" {
		return nil
	}
	c, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	source := page.NewSource(page.SourceOptions{
		Cache:      mgr.GetCache(),
		Client:     c,
		Dynamic:    api,
		NodeConfig: confs.nodeConfig,
		Key:        cfg.TaintKey,
		Log:        o.Log,
		Now:        time.Now,
	})
	return errors.Join(
		mgr.Add(onEveryReplica(source.Run)),
		mgr.Add(onEveryReplica(func(ctx context.Context) error {
			return page.Serve(ctx, page.Options{
				Address: cfg.Listen.Status, CertFile: cfg.Listen.StatusCertFile, KeyFile: cfg.Listen.StatusKeyFile,
				Fleet: source.Fleet, Review: page.NewReviewer(c), Log: o.Log, Now: time.Now,
				About: fmt.Sprintf("forcefence %s, %s", version.String(), o.Identity),
			})
		})),
	)
}

// nodeConfig returns what the configuration in force says about a node, for people.
func (p *configs) nodeConfig(n *corev1.Node) view.NodeConfig {
	c := p.activeConfig()
	m, err := c.Machines.Led(n)
	l := view.NodeConfig{NoDeviceReason: providers.ErrorText(err)}
	for _, d := range m.Devices() {
		l.Devices = append(l.Devices, view.OneLine(d.Device, 253))
	}
	if c.Mode != nil {
		l.Mode = c.Mode(n).Mode.String()
	}
	return l
}
