package world

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// ForTest returns a world without hosts on the cluster, with a data centre in software that ends with the test. What
// configurations name is in dir: the BMCs' password in the file password, their authority in ca.pem.
func ForTest(t testing.TB, c *cluster.Cluster, dir string, o datacenter.Options) (*World, *Redfish) {
	t.Helper()
	racks := NewRedfish(o)
	t.Cleanup(func() { kit.Must(t, racks.DataCenter.Close()) })
	kit.Must(t, racks.WriteCA(filepath.Join(dir, "ca.pem")))
	kit.Must(t, os.WriteFile(filepath.Join(dir, "password"), []byte(racks.Password()+"\n"), 0o600))
	return New(c, racks), racks
}
