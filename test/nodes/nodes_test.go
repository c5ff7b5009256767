//go:build linux

package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

const probeImage = "forcefence.test/probe:1"

// A story of two nodes, one on a machine of a data centre. What networks, kubelets, runtimes and NRI plugins do on
// nodes, the scenarios of test/e2e show.
func TestNodes(t *testing.T) {
	Need(t)
	c := cluster.ForTest(t, cluster.Options{NodeGrace: NodeGrace})
	dc := datacenter.New(datacenter.Options{})
	t.Cleanup(func() { kit.Must(t, dc.Close()) })
	m := dc.AddMachine("n1")
	image := Image(t, probeImage, kit.BuildProgram(t, "test/e2e/probe"))
	shared := map[string]string{"/mnt/store": t.TempDir()}
	lab := ForTest(t, Options{Cluster: c, Images: []string{image}, Shared: shared})
	static, err := yaml.Marshal(probe("static"))
	kit.Must(t, err)
	n1, err := lab.Add(t.Context(),
		NodeOptions{Name: "n1", Machine: m, StaticPods: map[string][]byte{"static": static}})
	kit.Must(t, err)
	n2, err := lab.Add(t.Context(), NodeOptions{Name: "n2"})
	kit.Must(t, err)
	both := []*Node{n1, n2}

	for _, n := range both {
		hasIdentity(t, c, n)
	}
	for _, file := range []string{"/usr/x", "/var/lib/kubelet/config.yaml"} {
		run(t, n1, "sh", "-c", "[ -e "+file+" ] || echo gone > "+file)
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, which a node wrote, on the machine itself: %v", file, err)
		}
	}
	run(t, n1, "sh", "-c", "echo seen > /mnt/store/x; echo own > /srv/x")
	if got := run(t, n2, "sh", "-c", "cat /mnt/store/x; ls /srv"); got != "seen\n" {
		t.Errorf("n2 sees %q of what n1 wrote", got)
	}
	host, err := n1.HostPath("/srv/x")
	kit.Must(t, err)
	if data, err := os.ReadFile(host); string(data) != "own\n" || err != nil {
		t.Errorf("%s: got %q, %v", host, data, err)
	}
	if host, err := n1.HostPath("/srv/../usr/x"); err == nil {
		t.Errorf("a path that does not outlive a boot: got %s", host)
	}
	// Else nothing that a CSI driver's container mounts would reach the kubelet.
	if got := run(t, n1, "findmnt", "-no", "PROPAGATION", "/var/lib"); got != "shared\n" {
		t.Errorf("mounts under /var/lib: got %q", got)
	}

	pod := probe("pod")
	pod.Spec.NodeName = "n1"
	_, err = c.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	kit.Must(t, err)
	bothWrite(t, n1)

	before := 0
	for _, n := range both {
		top := space(t, n)
		if len(processes(top)) < 3 || len(mounts(t, n.dir+"/")) == 0 { // process 1, containerd, kubelet
			t.Errorf("before the power cut: got %v, %v", processes(top), mounts(t, n.dir+"/"))
		}
		n.PowerCut()
		nothingRuns(t, top, n)
		if _, err := n.Exec(t.Context(), "true"); err == nil {
			t.Errorf("a program ran on %s, which has no power", n.Name())
		}
		before = len(lines(t, n1, "pod"))
	}
	kit.Must(t, c.WaitNode(t.Context(), "n1", cluster.IsNotReady))
	if after := len(lines(t, n1, "pod")); after != before {
		t.Errorf("a container wrote %d lines on a node without power", after-before)
	}

	old := []string{n1.BootID(), n2.BootID()}
	for i, n := range both {
		kit.Must(t, n.PowerOn())
		kit.Must(t, n.WaitReady(t.Context()))
		if n.BootID() == old[i] {
			t.Errorf("%s has its old boot id %s", n.Name(), old[i])
		}
		hasIdentity(t, c, n)
	}
	bothWrite(t, n1)
	if got := run(t, n1, "sh", "-c", "cat /srv/x; ls /usr/x 2>/dev/null || true"); got != "own\n" {
		t.Errorf("after a boot: got %q, want what was written to /srv and not what was written to /usr", got)
	}
	tops, left := []string{space(t, n1), space(t, n2)}, []string{lab.dir}
	for _, h := range hierarchies() {
		left = append(left, filepath.Join(h, n1.cgroup), filepath.Join(h, n2.cgroup))
	}
	for _, path := range left {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("before the lab's stop: %v", err)
		}
	}
	kit.Must(t, lab.stop())
	for i, n := range both {
		nothingRuns(t, tops[i], n)
	}
	for _, path := range left {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// probe is a pod that logs the boot that it sees to a file of the node's, ten times a second.
func probe(name string) *corev1.Pod {
	create := corev1.HostPathDirectoryOrCreate
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "probe", Image: probeImage, ImagePullPolicy: corev1.PullNever, Args: []string{"/data"},
				Env:          []corev1.EnvVar{{Name: "POD", Value: name}},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/srv/data", Type: &create},
			}}},
		},
	}
}

func run(t *testing.T, n *Node, argv ...string) string {
	t.Helper()
	out, err := n.Exec(t.Context(), argv...)
	kit.Must(t, err)
	return out
}

// hasIdentity checks what the API server and programs on the node see of the machine, and of the runtime.
func hasIdentity(t *testing.T, c *cluster.Cluster, n *Node) {
	t.Helper()
	node, err := c.Client().CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
	kit.Must(t, err)
	info := node.Status.NodeInfo
	if info.BootID != n.BootID() || info.SystemUUID != n.SystemUUID() ||
		info.MachineID != strings.ReplaceAll(n.SystemUUID(), "-", "") {
		t.Errorf("%s: nodeInfo has boot %s, system %s, machine %s; want %s and %s",
			n.Name(), info.BootID, info.SystemUUID, info.MachineID, n.BootID(), n.SystemUUID())
	}
	if !strings.HasSuffix(info.ContainerRuntimeVersion, "2.4.2") {
		t.Errorf("runtime: got %s", info.ContainerRuntimeVersion)
	}
	inside := run(t, n, "cat", bootIDFile, "/sys/class/dmi/id/product_uuid", "/etc/hostname")
	if want := n.BootID() + "\n" + n.SystemUUID() + "\n" + n.Name() + "\n"; inside != want {
		t.Errorf("inside %s: got %q, want %q", n.Name(), inside, want)
	}
	if got := run(t, n, "containerd", "config", "dump"); !strings.Contains(got, PauseImage) {
		t.Errorf("containerd config dump on %s does not know %s", n.Name(), PauseImage)
	}
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bothWrite waits until the pod and the static one have written a line under the current boot.
func bothWrite(t *testing.T, n *Node) {
	t.Helper()
	for _, pod := range []string{"pod", "static"} {
		kit.Until(t, pod+" writes", func() bool {
			all := lines(t, n, pod)
			return len(all) > 0 && strings.Contains(all[len(all)-1], n.BootID())
		})
	}
}

// lines are what a pod has logged.
func lines(t *testing.T, n *Node, pod string) (out []string) {
	t.Helper()
	host, err := n.HostPath("/srv/data/log")
	kit.Must(t, err)
	data, err := os.ReadFile(host)
	if !errors.Is(err, fs.ErrNotExist) {
		kit.Must(t, err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, fmt.Sprintf("%q", "/"+pod)) {
			out = append(out, line)
		}
	}
	return out
}

func space(t *testing.T, n *Node) string {
	t.Helper()
	top, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.current().cmd.Process.Pid))
	kit.Must(t, err)
	return top
}

// nothingRuns checks the machine: no process of the namespace, and no process anywhere that sees a mount of the node's
// disk.
func nothingRuns(t *testing.T, top string, n *Node) {
	t.Helper()
	if left := processes(top); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if mounted := mounts(t, n.dir+"/"); len(mounted) > 0 {
		t.Errorf("mounts left: %v", mounted)
	}
}

// mounts are the lines about dir in any process's table of mounts.
func mounts(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	kit.Must(t, err)
	var out []string
	for _, file := range files {
		data, _ := os.ReadFile(file) // it may have ended
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, dir) && !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	return out
}
