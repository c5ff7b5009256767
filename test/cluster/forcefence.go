package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// Forcefence is its program over dir/config.yaml, which must say that it answers at health. It logs JSON to
// dir/forcefence.log, and has started once it is ready and a process holds the Lease.
func (c *Cluster) Forcefence(bin, dir, kubeconfig, podIP string) *Part {
	args := []string{"run", "--config", filepath.Join(dir, "config.yaml"), "--kubeconfig", kubeconfig, "--log-format",
		"json"}
	p := NewPart("forcefence", bin, args, filepath.Join(dir, "forcefence.log"), func(ctx context.Context) error {
		if err := kit.Answers(ctx, fmt.Sprintf("http://%s:%d/readyz", podIP, kit.HealthPort)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		lease, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).
			Get(ctx, "forcefence", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("no leader")
		}
		return nil
	}, nil)
	p.Env = []string{"POD_IP=" + podIP}
	return p
}
