package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/cmd/internal/page"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view"
)

// addPage serves the status page on every replica, if the file configures it.
func (p *process) addPage(context.Context) error {
	l := p.cfg.Listen
	if l.Status == "" {
		return nil
	}
	c, err := kubernetes.NewForConfig(p.restConfig)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	source := page.NewSource(page.SourceOptions{
		Cache:      p.mgr.GetCache(),
		Client:     c,
		Dynamic:    p.dynamic,
		NodeConfig: p.confs.nodeConfig,
		Key:        p.cfg.TaintKey,
		Log:        p.Log,
		Now:        time.Now,
	})
	return p.addRunnables(onEveryReplica(source.Run), onEveryReplica(func(ctx context.Context) error {
		return page.Serve(ctx, page.Options{
			Address: l.Status, CertFile: l.StatusCertFile, KeyFile: l.StatusKeyFile,
			Fleet: source.Fleet, Review: page.NewReviewer(c), Log: p.Log, Now: time.Now,
			About: fmt.Sprintf("forcefence %s, %s", version.String(), p.Identity),
		})
	}))
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
