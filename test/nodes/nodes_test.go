//go:build linux

package nodes

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
)

func TestNodes(t *testing.T) {
	Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := cluster.ForTest(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	lab, err := Start(ctx, Options{Cluster: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Stop() })
	begin := time.Now()
	n1, err := lab.Add(ctx, NodeOptions{Name: "n1"})
	if err != nil {
		if out, err := os.ReadFile(filepath.Join(lab.Dir(), "n1/disk/var/log/kubelet.log")); err == nil {
			_ = os.WriteFile("/tmp/kubelet.log", out, 0o644)
		}
		t.Fatal(err)
	}
	t.Logf("join: %s", time.Since(begin).Round(time.Millisecond))
	out, err := n1.Exec(ctx, "sh", "-c", "mount | wc -l; cat /proc/sys/kernel/random/boot_id /sys/class/dmi/id/product_uuid /etc/machine-id; ps aux; ip addr; containerd config dump | head -12; which containerd runc kubelet; ls /sys/class/net")
	t.Logf("%s %v", out, err)
	time.Sleep(3 * time.Second)
}
