//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/nodes"
)

// hookName is the DaemonSet, its namespace and its program.
const hookName = "forcefence-node"

// hookDaemonSet is the node's side as the chart has it, required by the runtime. Only the image is the test's own, and
// where its program lies in it.
func (w *world) hookDaemonSet() {
	w.t.Helper()
	name, tag, _ := strings.Cut(nodeImage, ":")
	text, err := cluster.RenderChart(w.t.Context(), "../../deploy/helm/forcefence",
		fmt.Sprintf("image: {repository: %s, tag: %q}\nhook: {requiredPlugins: true}\n", name, tag),
		"node/namespace.yaml", "node/people.yaml", "node/policy-tolerate.yaml", "node/daemonset.yaml")
	w.must(err)
	file := filepath.Join(w.dir, "hook.yaml")
	w.must(os.WriteFile(file, []byte(strings.ReplaceAll(text, "/ko-app/", "/bin/")), 0o600))
	w.kubectl("apply", "--server-side", "-f", file)
}

// plugin finds a process of the hook: by its index, 10 the runtime's own, 20 the DaemonSet's.
func (w *world) plugin(n *nodes.Node, index string) (pid int) {
	w.t.Helper()
	s := w.hookStatus(n, index)
	if s == nil {
		return 0
	}
	for _, p := range n.Processes() {
		preInstalled := strings.HasPrefix(p.Name(), nri.PreInstalledIndex+"-"+nri.BaseName)
		ours := preInstalled || p.Name() == hookName
		if ours && preInstalled == (index == nri.PreInstalledIndex) {
			return p.PID
		}
	}
	return 0
}

// hookStatus is what `forcefence-node status` reads.
func (w *world) hookStatus(n *nodes.Node, index string) *nri.Status {
	w.t.Helper()
	text, err := n.Exec(w.t.Context(), "cat", nri.DefaultStateDir+"/"+index+".json")
	if err != nil {
		return nil
	}
	var s nri.Status
	w.must(json.Unmarshal([]byte(text), &s))
	return &s
}

func (w *world) registered(n *nodes.Node, index string) bool {
	s := w.hookStatus(n, index)
	return s != nil && !s.Registered.IsZero() && w.plugin(n, index) != 0
}

func (w *world) untilRegistered(n *nodes.Node, indexes ...string) {
	w.t.Helper()
	for _, index := range indexes {
		w.until(fmt.Sprintf("plugin %s of %s is registered", index, n.Name()),
			func() bool { return w.registered(n, index) })
	}
}

func (w *world) signal(n *nodes.Node, index string, s syscall.Signal) {
	w.t.Helper()
	pid := w.plugin(n, index)
	if pid == 0 {
		w.t.Fatalf("plugin %s of %s does not run", index, n.Name())
	}
	w.must(syscall.Kill(pid, s))
}
