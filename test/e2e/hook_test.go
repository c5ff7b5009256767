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
	"github.com/forcefence/forcefence/test/nodes"
)

// hookName is the DaemonSet, its namespace and its program.
const hookName = "forcefence-node"

// hookDaemonSet is the node's side as deploy has it, required by the runtime. Only the image is the test's own, and
// where its program lies in it.
func (w *world) hookDaemonSet() {
	w.t.Helper()
	folder := filepath.Join(w.dir, "overlay")
	w.must(os.Mkdir(folder, 0o755))
	deploy, err := filepath.Abs(filepath.Join("..", "..", "deploy", "kustomize"))
	w.must(err)
	if deploy, err = filepath.Rel(folder, deploy); err != nil { // kustomize wants it so
		w.t.Fatal(err)
	}
	name, tag, _ := strings.Cut(nodeImage, ":")
	w.must(os.WriteFile(filepath.Join(folder, "kustomization.yaml"),
		fmt.Appendf(nil, `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/node]
components: [%[1]s/components/required-plugins]
images: [{name: forcefence, newName: %[2]s, newTag: "%[3]s"}]
patches:
- target: {kind: DaemonSet}
  patch: |
    - {op: replace, path: /spec/template/spec/initContainers/0/command/0, value: /bin/forcefence-node}
    - {op: replace, path: /spec/template/spec/containers/0/command/0, value: /bin/forcefence-node}
    - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/exec/command/0, value: /bin/forcefence-node}
`, deploy, name, tag), 0o600))
	w.kubectl("apply", "--server-side", "-k", folder)
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
