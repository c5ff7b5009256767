//go:build linux

package walkthrough

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/csi"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes"
)

const (
	imageTar   = "FORCEFENCE_IMAGE" // what `make image` wrote; without it nothing is typed
	repository = "registry.example.net/forcefence"
	page       = "http://localhost:18082"
	blockTakes = 3 * time.Minute
)

// world is where it is typed.
type world struct {
	t     *testing.T
	ctx   context.Context
	c     *cluster.Cluster
	dir   string // where it is typed
	env   []string
	nodes map[string]*nodes.Node
	site  *nodes.Site
	book  strings.Builder
}

// TestWalkthrough writes docs/reference/walkthrough.md and its pictures.
func TestWalkthrough(t *testing.T) {
	image := os.Getenv(imageTar)
	if image == "" {
		t.Skip("SKIPPED: make walkthrough runs it")
	}
	w := newWorld(t, image)
	w.install()
	w.look()
	stop := w.openPage()
	w.powerCut()
	stop()
	w.release()
	w.upgrade()
	w.uninstall()
	file := filepath.Join(kit.Root(t), "docs", "reference", "walkthrough.md")
	kit.Must(t, os.WriteFile(file, []byte(w.book.String()), 0o644))
}

func newWorld(t *testing.T, image string) *world {
	nodes.Need(t)
	w := &world{t: t, ctx: t.Context(), dir: t.TempDir(), nodes: map[string]*nodes.Node{}}
	own := filepath.Join(t.TempDir(), "cluster")
	proxy := newEgress(t)
	pki := filepath.Join(own, "pki")
	w.c = cluster.ForTest(t,
		cluster.Options{Dir: own, NodeGrace: nodes.NodeGrace, Accounts: true, APIServerArgs: []string{
			"--egress-selector-config-file=" + proxy.config, "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=" + filepath.Join(pki, "admin.crt"),
			"--kubelet-client-key=" + filepath.Join(pki, "admin.key"),
		}})
	store := filepath.Join(w.dir, "volumes")
	w.site = nodes.NewSite(t, nodes.Options{Cluster: w.c, Shared: map[string]string{store: store}},
		datacenter.Options{Username: "forcefence", Addresses: []string{nodes.Gateway}}, store)
	proxy.serve(w.site.Lab)
	var bmcs strings.Builder
	for _, n := range w.site.AddNodes(t, []string{"cp1", "cp2", "n1", "n2"}, nil) {
		w.nodes[n.Name()] = n
		kit.Must(t, load(w.ctx, n, image, repository+":v1", repository+":v2"))
		address, err := w.site.Expose(strings.TrimPrefix(w.site.BMCs[n.Name()].URL(), "https://"))
		kit.Must(t, err)
		fmt.Fprintf(&bmcs, "        - {node: %s, id: \"https://%s\"}\n", n.Name(), address)
	}
	for i := range 2 {
		w.site.CSI.NewVolume(t, fmt.Sprintf("vol-%d", i))
	}

	bin, home := filepath.Join(w.dir, "bin"), filepath.Join(w.dir, "home")
	for _, dir := range []string{bin, home} {
		kit.Must(t, os.Mkdir(dir, 0o755))
	}
	kit.Must(t, os.Symlink(kit.BuildProgram(t, "cmd/forcefence"), filepath.Join(bin, "kubectl-forcefence")))
	helm, err := binaries.Build(w.ctx, binaries.Options{Names: []string{binaries.Helm}})
	kit.Must(t, err)
	kubectl, err := cluster.KubectlPath(w.ctx)
	kit.Must(t, err)
	kit.Must(t, os.Symlink(filepath.Join(kit.Root(t), "deploy"), filepath.Join(w.dir, "deploy")))
	w.write("bmc-password", w.site.Racks.Password()+"\n")
	kit.Must(t, w.site.Racks.WriteCA(filepath.Join(w.dir, "bmc-ca.pem")))
	w.write("values.yaml", fmt.Sprintf(values, bmcs.String()))
	w.write("db.yaml", database)
	w.env = append(os.Environ(), "KUBECONFIG="+w.c.Kubeconfig(), "HOME="+home, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"PATH="+strings.Join([]string{bin, filepath.Dir(kubectl), helm, os.Getenv("PATH")}, ":"))
	w.quietly("kubectl label node cp1 cp2 node-role.kubernetes.io/control-plane=")
	return w
}

const values = `image: {repository: registry.example.net/forcefence, tag: v1}
hook: {enabled: true}
config:
  mode: observe
  listen: {metrics: ":8080", status: "127.0.0.1:8082"}
  providers:
  - name: racks
    redfish: {username: forcefence, passwordFile: /etc/forcefence-bmc/password, caFile: /etc/forcefence-bmc/ca.pem}
  - name: people
    confirm: {validFor: 15m}
  nodes:
  - name: all
    selector: ""
    provider: racks
    levels:       # next, if no BMC answers: a person
    - devices: [{provider: people, machine: {from: name}}]
    machine:
      from: list
      list:
%s`

const database = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}]}}}
      containers:
      - name: db
        image: ` + nodes.PauseImage + `
        imagePullPolicy: Never
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: ` + csi.StorageClass + `
      resources: {requests: {storage: 8Mi}}
`

// load imports an OCI tar under these names: one without any of its own.
func load(ctx context.Context, n *nodes.Node, tar string, names ...string) error {
	const inside = "/var/lib/forcefence.oci.tar"
	file, err := n.HostPath(inside)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(tar)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return err
	}
	defer os.Remove(file) // a leftover only takes space
	for _, name := range names {
		if _, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--index-name", name,
			inside); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) write(name, text string) {
	w.t.Helper()
	kit.Must(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

// quietly types what the page does not show.
func (w *world) quietly(script string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, blockTakes)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.dir, w.env, time.Second // what bash started may hold its output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// say writes prose.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(&w.book, strings.TrimSpace(format)+"\n\n", args...)
}

// types types a command, and shows it with what it printed.
func (w *world) types(script string) string {
	w.t.Helper()
	out := w.quietly(script)
	w.typed(script)
	if text := strings.TrimRight(out, "\n "); text != "" {
		w.printed(text)
	}
	return out
}

func (w *world) typed(script string) {
	w.t.Log("$ " + script)
	fmt.Fprintf(&w.book, "```sh test=test/walkthrough.TestWalkthrough\n%s\n```\n\n", script)
}

func (w *world) printed(text string) {
	w.t.Log(text)
	fmt.Fprintf(&w.book, "```text\n%s\n```\n\n", text)
}

// record is the node's, in that phase.
func (w *world) record(node string, phase taint.Phase) (rec *taint.Record) {
	w.t.Helper()
	kit.Until(w.t, node+" is in phase "+string(phase), func() bool {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
		kit.Must(w.t, err)
		rec, err = taint.RecordOf(n)
		return err == nil && rec != nil && rec.Phase == phase
	})
	return rec
}

// untilReady waits until the database's two pods are.
func (w *world) untilReady() {
	w.t.Helper()
	kit.Until(w.t, "db runs", func() bool { return len(w.c.ReadyPods("default")) == 2 })
}
