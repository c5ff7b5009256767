package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

// agentsImage is the variable that names the archive of the image with fence agents. `make image-test` makes it and
// sets it.
const agentsImage = "FORCEFENCE_AGENTS_IMAGE"

// withAgents is the Deployment for a provider of type fenceagent.
func withAgents(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return find[appsv1.Deployment](t, parse(t, charted(t, features["agents"])), "Deployment", "forcefence")
}

// container is the controller's, run by Podman as the Deployment runs it.
type container struct {
	t   *testing.T
	ctx context.Context
	dir string // Podman's, and that of the volumes
	pod corev1.PodSpec
	id  string

	driver string // of Podman's storage
}

// startContainer starts forcefence in the archive's image, over the pod's volumes: their files by the volumes' names.
// It ends with the test.
func startContainer(ctx context.Context, t *testing.T, archive string, volumes map[string]map[string][]byte,
	args ...string) *container {
	t.Helper()
	dir, err := kit.MakeSocketDir()
	kit.Must(t, err)
	c := &container{t: t, ctx: ctx, dir: dir, pod: withAgents(t).Spec.Template.Spec}
	t.Cleanup(c.remove)
	// Podman must not raise limits that a test may not raise.
	const limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n"
	kit.Must(t, os.WriteFile(dir+"/containers.conf", []byte(limits), 0o600))
	var image string
	// the one that copies nothing does not work everywhere, such as in a container
	for _, c.driver = range []string{"overlay", "vfs"} {
		if image, err = c.podman(ctx, "pull", "--quiet", "oci-archive:"+archive); err == nil {
			break
		}
	}
	kit.Must(t, err)
	ip, err := kit.FreePodIP()
	kit.Must(t, err)
	run := append(
		[]string{"run", "--detach", "--network=host", "--env=POD_NAMESPACE=" + namespace, "--env=POD_IP=" + ip},
		c.rights()...)
	for _, m := range c.pod.Containers[0].VolumeMounts {
		v := c.pod.Volumes[slices.IndexFunc(c.pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		if v.EmptyDir != nil {
			run = append(run, fmt.Sprintf("--tmpfs=%s:rw,size=%d,mode=0777", m.MountPath, v.EmptyDir.SizeLimit.Value()))
			continue
		}
		files := volumes[m.Name]
		if files == nil && v.Secret != nil && v.Secret.Optional != nil && *v.Secret.Optional {
			files = map[string][]byte{} // as a kubelet mounts a Secret that does not exist
		}
		run = append(run, "--volume="+c.folder(m.Name, files)+":"+m.MountPath+":ro")
	}
	// where a pod has its ServiceAccount's token
	run = append(run, "--volume="+c.folder("kube", volumes["kube"])+":/kube:ro")
	c.id, err = c.podman(ctx, append(append(run, strings.TrimSpace(image)), args...)...)
	kit.Must(t, err)
	c.id = strings.TrimSpace(c.id)
	return c
}

// rights are what the manifests give to the container, as Podman's flags.
func (c *container) rights() []string {
	pod, own := c.pod.SecurityContext, c.pod.Containers[0].SecurityContext
	switch {
	case pod.RunAsUser == nil || pod.RunAsGroup == nil || *pod.RunAsUser == 0:
		c.t.Fatal("the pods run as root")
	case own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem:
		c.t.Fatal("the pods may write to their root")
	case own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation || own.Capabilities == nil ||
		len(own.Capabilities.Drop) != 1:
		c.t.Fatal("the pods have rights that this test does not know")
	}
	return []string{fmt.Sprintf("--user=%d:%d", *pod.RunAsUser, *pod.RunAsGroup), "--read-only",
		"--read-only-tmpfs=false",
		fmt.Sprintf("--memory=%db", c.pod.Containers[0].Resources.Limits.Memory().Value()),
		"--security-opt=no-new-privileges", "--cap-drop=" + string(own.Capabilities.Drop[0])}
}

// folder makes a volume that the pods' group can read, as a Secret is.
func (c *container) folder(name string, files map[string][]byte) string {
	c.t.Helper()
	if files == nil {
		c.t.Fatalf("the pods mount %s, which this test does not have", name)
	}
	dir := filepath.Join(c.dir, "volumes", name)
	kit.Must(c.t, os.MkdirAll(dir, 0o755))
	for file, content := range files {
		file = filepath.Join(dir, file)
		kit.Must(c.t, os.WriteFile(file, content, 0o440))
		kit.Must(c.t, os.Chown(file, 0, int(*c.pod.SecurityContext.FSGroup)))
	}
	return dir
}

// command is one of Podman's.
func (c *container) command(ctx context.Context, args ...string) *exec.Cmd {
	dir := c.dir + "/" + c.driver // Podman sticks to the driver that a folder began with
	cmd := exec.CommandContext(ctx, "podman",
		append([]string{"--root", dir + "/root", "--runroot", dir + "/run", "--tmpdir", dir + "/tmp",
			"--storage-driver", c.driver, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend",
			"file"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+c.dir+"/containers.conf")
	return cmd
}

// podman returns what it says on its output; the error has what it says beside that.
func (c *container) podman(ctx context.Context, args ...string) (string, error) {
	cmd := c.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return stdout.String(), nil
}

// exec runs a command beside the controller, as kubectl exec does.
func (c *container) exec(command ...string) (string, error) {
	return c.podman(c.ctx, append([]string{"exec", c.id}, command...)...)
}

func (c *container) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the test's is over
	defer cancel()
	if c.id != "" {
		if text, err := c.command(ctx, "logs", c.id).CombinedOutput(); c.t.Failed() {
			c.t.Logf("forcefence printed: %v\n%s", err, text)
		}
		_, err := c.podman(ctx, "rm", "--force", "--time=5", c.id)
		kit.Must(c.t, err)
	}
	for _, mount := range []string{"root/" + c.driver, "root", "run/netns"} { // what Podman mounts for itself
		_ = syscall.Unmount(filepath.Join(c.dir, c.driver, mount), syscall.MNT_DETACH)
	}
	kit.Must(c.t, os.RemoveAll(c.dir))
}

// TestAgents: in the image with fence agents, run as the Deployment's pods run it, the controller finds that a node can
// be fenced. Its commands ask and switch the machine, through fence_ipmilan, ipmitool and a BMC. Everything else that
// agents use works, too: their metadata, ssh, telnet, SNMP, TLS.
func TestAgents(t *testing.T) {
	archive := os.Getenv(agentsImage)
	switch {
	case archive == "":
		t.Skip("SKIPPED: " + agentsImage + " names no archive: make image-test")
	case os.Geteuid() != 0:
		t.Fatal("containers are run as root")
	}
	bmc := ipmisim.New(t, ipmisim.Options{})
	kit.Must(t, bmc.SetPower(t.Context(), true))
	w := newWorld(t, cluster.Options{})
	w.install(noHook)
	_, err := w.c.AddNode(w.ctx, cluster.NodeOptions{Name: "n1"}) // it stays healthy, so no fence begins
	kit.Must(t, err)

	host, port, err := net.SplitHostPort(bmc.Address())
	kit.Must(t, err)
	password, err := os.ReadFile(bmc.PasswordFile())
	kit.Must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	kit.Must(t, w.tokenKubeconfig(kubeconfig))
	token, err := os.ReadFile(kubeconfig)
	kit.Must(t, err)
	in := []string{"--config=/etc/forcefence/config.yaml", "--kubeconfig=/kube/config"}
	c := startContainer(w.ctx, t, archive, map[string]map[string][]byte{
		"kube": {"config": token},
		"bmc":  {"password": password},
		"config": {"config.yaml": fmt.Appendf(nil, `
listen: {metrics: ""}
providers:
- name: cards
  timeout: 5s # a busy machine starts an agent late
  fenceagent:
    agent: fence_ipmilan
    options: {ipport: "%s", lanplus: "1", cipher: "3", privlvl: operator, username: %s, power_wait: "0"}
    secrets: [{option: password, file: /etc/forcefence-bmc/password}]
nodes:
- name: all
  provider: cards
  machine: {from: list, list: [{node: n1, id: %s}]}
`, port, ipmisim.Operator, host)},
	}, append([]string{"run", "--log-format=json"}, in...)...)

	w.until("the controller says that n1 can be fenced", func() (bool, error) {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == taint.FenceableCondition {
				return condition.Status == corev1.ConditionTrue,
					fmt.Errorf("it says %s: %s", condition.Status, condition.Message)
			}
		}
		return false, errors.New("it says nothing")
	})
	for _, step := range []struct {
		command string
		want    string
		runs    bool // the machine, afterwards
	}{
		{"drill", "n1", true},
		{"drill n1", `"Status: ON"`, true},
		{"power off n1 --yes", "the machine is Off", false},
		{"drill n1", `"Status: OFF"`, false},
		{"power on n1 --yes", "the machine is On", true},
	} {
		var out string
		// the machine may be too busy for an agent to answer in time
		w.until("forcefence "+step.command, func() (_ bool, err error) {
			out, err = c.exec(append(append([]string{"/ko-app/forcefence"}, strings.Fields(step.command)...), in...)...)
			return err == nil, err
		})
		if !strings.Contains(out, step.want) {
			t.Errorf("forcefence %s: got this, want %q in it:\n%s", step.command, step.want, out)
		}
		if got := bmc.Running(); got != step.runs {
			t.Errorf("forcefence %s: the machine runs: %t, want %t", step.command, got, step.runs)
		}
	}

	// the controller's log is what it says on its standard error
	text, err := c.command(w.ctx, "logs", c.id).CombinedOutput()
	kit.Must(t, err)
	if want := fmt.Sprintf(`"bytes":%d}`,
		int64(0.9*float64(c.pod.Containers[0].Resources.Limits.Memory().Value()))); !strings.Contains(string(text),
		want) {
		t.Errorf("the collector's limit: want nine tenths of the container's, %s, in the log:\n%s", want, text)
	}

	// fence_ack_manual asks a person at a terminal, and has no metadata.
	out, err := c.exec("/bin/sh", "-c",
		`cd /usr/sbin
		for a in fence_*; do ./$a -o metadata >/dev/null 2>&1 && set -- "$@" $a || echo "fails: $a"; done
		echo "work: $#"`)
	if want := "fails: fence_ack_manual\nwork: 83\n"; err != nil || out != want {
		t.Errorf("agents' metadata: got %q, %v, want %q", out, err, want)
	}
	for command, want := range map[string]string{ // port 1 is closed
		"ssh -o BatchMode=yes -p 1 127.0.0.1":                     "Connection refused",
		"telnet 127.0.0.1 1":                                      "Connection refused",
		"snmpget -v2c -c x -r0 -t1 127.0.0.1:1 1.3.6.1.2.1.1.3.0": "Timeout",
		`python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)'`: "True",
		`python3 -c 'import pycurl, pexpect, suds, boto3, googleapiclient, requests
print(requests.__cached__)'`: ".pyc",
		"echo x 2>&1 >/usr/x || echo refused; echo x >/tmp/x && echo written": "refused\nwritten",
		`python3 -c 'import os; print(os.getuid(), os.environ["HOME"])'`:      "65532 /tmp",
	} {
		if out, _ := c.exec("/bin/sh", "-c", command+" 2>&1"); !strings.Contains(out, want) {
			t.Errorf("%s: got %q, want %q in it", command, out, want)
		}
	}
}
