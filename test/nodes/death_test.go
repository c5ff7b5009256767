//go:build linux

package nodes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// childEnv makes this test's process the one that dies; its value is a folder for the cluster.
const childEnv = "FORCEFENCE_NODES_CHILD"

type left struct{ Top, Dir, Cgroup string }

// A process that is killed with a lab in it leaves no process and no mount, and the next lab takes its folder and its
// cgroups away.
func TestProcessDies(t *testing.T) {
	Need(t)
	if dir := os.Getenv(childEnv); dir != "" {
		child(t, dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessDies$", "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	kit.Must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, kit.StartChild(cmd))
	said, err := bufio.NewReader(stdout).ReadBytes('\n')
	kit.Must(t, err)
	var l left
	if err := json.Unmarshal(said, &l); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	if len(processes(l.Top)) < 3 || len(mounts(t, l.Dir+"/")) == 0 {
		t.Errorf("before: processes %v", processes(l.Top))
	}
	kit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	kit.Until(t, "no process is left", func() bool { return len(processes(l.Top)) == 0 })
	kit.Until(t, "no mount is left", func() bool { return len(mounts(t, l.Dir+"/")) == 0 })
	sweep()
	paths := []string{l.Dir}
	for _, h := range hierarchies() {
		paths = append(paths, filepath.Join(h, l.Cgroup))
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

// child starts a node, says where it is, and waits to be killed.
func child(t *testing.T, dir string) {
	c := cluster.ForTest(t, cluster.Options{NodeGrace: NodeGrace, Dir: dir})
	lab := ForTest(t, Options{Cluster: c})
	n, err := lab.Add(t.Context(), NodeOptions{Name: "n1"})
	kit.Must(t, err)
	line, err := json.Marshal(left{Top: space(t, n), Dir: lab.dir, Cgroup: n.cgroup})
	kit.Must(t, err)
	fmt.Println(string(line))
	_, _ = io.ReadAll(os.Stdin) // ends if our parent ends first; then the lab ends the usual way
}
