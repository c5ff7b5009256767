package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machines "github.com/forcefence/forcefence/test/world"
)

const (
	namespace  = "forcefence-system"
	blockTakes = 3 * time.Minute // at most; seconds on a quiet machine
)

// world is where a page's commands are typed: a real control plane with the nodes cp1 (of the control plane) and n1 to
// n4, each on a machine with a BMC in software, which a page calls https://10.0.0.10 to https://10.0.0.14; a folder
// with the programs below bin, deploy, the BMCs' password and authority, and a configuration; bash, kubectl and helm.
// The controller is the real program as well: it runs while the Deployment wants replicas, under the ServiceAccount's
// name, with the ConfigMap's file and the Secret's files.
type world struct {
	t          *testing.T
	ctx        context.Context
	c          *cluster.Cluster
	dir        string
	env        []string
	addresses  *strings.Replacer
	podIP      string // and metrics: where the controller answers
	metrics    string
	controller *cluster.Part // nil while the Deployment wants none
}

// programs are built once.
type programs struct {
	dir, helm string
	// defaults is the configuration that the chart renders of no values. Only the test of configurations uses it.
	defaults string
	// objects are what the chart renders of the pages' configurations: each text once, with a block that it comes from.
	// Only the test of configurations uses it.
	objects map[string]Block
}

func buildPrograms(t *testing.T) programs {
	t.Helper()
	p := programs{dir: t.TempDir(), objects: map[string]Block{}}
	for _, name := range []string{"forcefence", "forcefence-node"} {
		kit.GoBuild(t, "", "../../cmd/"+name, filepath.Join(p.dir, name))
	}
	var err error
	p.helm, err = binaries.Build(t.Context(), binaries.Options{Names: []string{binaries.Helm}})
	kit.Must(t, err)
	return p
}

func newWorld(t *testing.T, p programs) *world {
	t.Helper()
	c := cluster.ForTest(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	podIP, err := kit.FreePodIP()
	kit.Must(t, err)
	w := &world{t: t, ctx: t.Context(), c: c, dir: t.TempDir(), podIP: podIP, metrics: kit.FreeAddress(t)}
	for _, name := range []string{"bin", "etc", "home"} {
		kit.Must(t, os.Mkdir(filepath.Join(w.dir, name), 0o755))
	}
	hosts, racks := machines.ForTest(t, c, t.TempDir(), datacenter.Options{Username: "forcefence"})
	names := []string{"cp1", "n1", "n2", "n3", "n4"}
	replace := []string{"/etc/forcefence-bmc/", filepath.Join(w.dir, "etc") + "/"}
	kit.Must(t, hosts.AddHosts(w.ctx, names, func(i int, o *cluster.NodeOptions) {
		if i == 0 {
			const role = "node-role.kubernetes.io/control-plane"
			o.Labels = map[string]string{role: ""}
			o.Taints = []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}}
		}
	}))
	for i, h := range hosts.Hosts {
		replace = append(replace, fmt.Sprintf("https://10.0.0.%d", 10+i), h.Machine.Address())
	}
	w.addresses = strings.NewReplacer(replace...)
	commands := c.RunCommands(filepath.Join(p.dir, "forcefence"), "forcefence-uninstall")
	t.Cleanup(commands.Stop)
	for _, name := range []string{"forcefence", "forcefence-node"} {
		kit.Must(t, os.Symlink(filepath.Join(p.dir, name), filepath.Join(w.dir, "bin", name)))
	}
	kit.Must(t, os.CopyFS(filepath.Join(w.dir, "deploy"), os.DirFS("../../deploy")))
	w.bringFiles()
	w.write("bmc-password", racks.Password()+"\n")
	kit.Must(t, racks.WriteCA(filepath.Join(w.dir, "bmc-ca.pem")))
	w.write("config.yaml", w.addresses.Replace(worldConfig))
	home := filepath.Join(w.dir, "home")
	kubectl, err := cluster.KubectlPath(w.ctx)
	kit.Must(t, err)
	w.env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+home, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"PATH="+
			strings.Join([]string{filepath.Join(w.dir, "bin"), filepath.Dir(kubectl), p.helm, os.Getenv("PATH")}, ":"))
	t.Cleanup(w.stop)
	return w
}

// worldConfig is what a page finds that does not begin fresh.
const worldConfig = `mode: observe
providers:
- name: racks
  redfish: {username: forcefence, passwordFile: /etc/forcefence-bmc/password, caFile: /etc/forcefence-bmc/ca.pem}
- name: people
  confirm: {validFor: 15m}
nodes:
- name: all
  levels:
  - devices: [{provider: racks, machine: {from: list, list: [
      {node: cp1, id: "https://10.0.0.10"}, {node: n1, id: "https://10.0.0.11"}, {node: n2, id: "https://10.0.0.12"},
      {node: n3, id: "https://10.0.0.13"}, {node: n4, id: "https://10.0.0.14"}]}}]
  - devices: [{provider: people, machine: {from: name}}]
`

// installed is the chart with the world's configuration.
const installed = `kubectl create namespace forcefence-system
kubectl -n forcefence-system create secret generic forcefence-bmc --from-file=password=bmc-password \
  --from-file=ca.pem=bmc-ca.pem
{ echo 'image: {repository: forcefence, tag: v1}'; echo config:; sed 's/^/  /' config.yaml; } > values.yaml
helm install forcefence deploy/helm/forcefence --namespace forcefence-system --values values.yaml
`

// bringFiles sets an annotation in the world's copy of the chart, as for an injector of files. The chart refuses files
// that no volume has, and the world's are in a folder of its own.
func (w *world) bringFiles() {
	w.t.Helper()
	name := filepath.Join("deploy", "helm", "forcefence", "values.yaml")
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	kit.Must(w.t, err)
	const none = "podAnnotations: {}"
	if !strings.Contains(string(text), none) {
		w.t.Fatalf("%s has no %q", name, none)
	}
	w.write(name, strings.Replace(string(text), none, "podAnnotations: {example.net/inject: files}", 1))
}

func (w *world) write(name, text string) {
	w.t.Helper()
	kit.Must(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

// types runs a block's commands, as one script, and brings the controller to what they asked for.
func (w *world) types(script string) (string, error) {
	ctx, cancel := context.WithTimeout(w.ctx, blockTakes)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.dir, w.env, time.Second // what bash started may hold its output open
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = w.follow()
	}
	return string(out), err
}

// follow does what the Deployment's pods would do.
func (w *world) follow() error {
	wanted := false
	d, err := w.c.Client().AppsV1().Deployments(namespace).Get(w.ctx, "forcefence", metav1.GetOptions{})
	switch {
	case err == nil:
		wanted = *d.Spec.Replicas > 0
	case !apierrors.IsNotFound(err):
		return err
	}
	if !wanted {
		w.stop()
		return nil
	}
	if secret, err := w.c.Client().CoreV1().Secrets(namespace).
		Get(w.ctx, "forcefence-bmc", metav1.GetOptions{}); err == nil {
		for name, value := range secret.Data {
			w.write(filepath.Join("etc", name), string(value))
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	cm, err := w.c.Client().CoreV1().ConfigMaps(namespace).Get(w.ctx, "forcefence", metav1.GetOptions{})
	if err != nil {
		return err
	}
	w.write("controller.yaml", w.addresses.Replace(cm.Data["config.yaml"]))
	if w.controller != nil {
		return nil // it reads the file again by itself
	}
	kubeconfig := filepath.Join(w.dir, "controller.kubeconfig")
	if err := w.c.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+namespace+":forcefence",
		"system:serviceaccounts"); err != nil {
		return err
	}
	// The ports of the pod's own network are taken by the environment, which wins over the file. The Deployment names
	// no more.
	args := append(
		[]string{"FORCEFENCE_LISTEN_METRICS=" + w.metrics, "POD_IP=" + w.podIP, "POD_NAMESPACE=" + namespace},
		filepath.Join(w.dir, "bin", "forcefence"), "run", "--config", filepath.Join(w.dir, "controller.yaml"),
		"--kubeconfig", kubeconfig)
	ready := func(ctx context.Context) error {
		return kit.Answers(ctx, fmt.Sprintf("http://%s:%d/readyz", w.podIP, kit.HealthPort))
	}
	w.controller = cluster.NewPart("forcefence", "/usr/bin/env", args, filepath.Join(w.dir, "forcefence.log"), ready,
		nil)
	return w.controller.Start(w.ctx)
}

func (w *world) stop() {
	if w.controller == nil {
		return
	}
	w.controller.Stop()
	if text, err := os.ReadFile(w.controller.LogFile()); w.t.Failed() && err == nil {
		w.t.Logf("forcefence printed:\n%s", text)
	}
	w.controller = nil
}
