//go:build linux

package nodes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// A process that is killed with a lab in it leaves no process and no mount, and the next lab takes its folder and its
// cgroups away.
func TestProcessDies(t *testing.T) {
	Need(t)
	var top, dir, cgroup string
	kit.KillTest(t, func() []string {
		lab := ForTest(t, Options{Cluster: cluster.ForTest(t, cluster.Options{NodeGrace: NodeGrace})})
		n, err := lab.Add(t.Context(), NodeOptions{Name: "n1"})
		kit.Must(t, err)
		return []string{space(t, n), lab.dir, n.cgroup}
	}, func(words []string) {
		top, dir, cgroup = words[0], words[1], words[2]
		if len(processes(top)) < 3 || len(mounts(t, dir+"/")) == 0 {
			t.Errorf("before: processes %v", processes(top))
		}
	})
	kit.Until(t, "no process is left", func() bool { return len(processes(top)) == 0 })
	kit.Until(t, "no mount is left", func() bool { return len(mounts(t, dir+"/")) == 0 })
	sweep()
	paths := []string{dir}
	for _, h := range hierarchies() {
		paths = append(paths, filepath.Join(h, cgroup))
	}
	for _, path := range paths {
		kit.Until(t, path+" is gone", func() bool {
			_, err := os.Stat(path)
			if err == nil {
				sweep() // a cgroup is busy for a moment
			}
			return errors.Is(err, fs.ErrNotExist)
		})
	}
}
