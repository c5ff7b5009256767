//go:build linux

package deploy

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes"
)

const image = "registry.example.net/forcefence:v1"

// TestHost applies the DaemonSet to a real node, with containerd and a kubelet: that its few capabilities suffice, its
// mounts show what they should, and nothing of it stays behind.
func TestHost(t *testing.T) {
	nodes.Need(t)
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	lab := nodes.ForTest(t, nodes.Options{Cluster: w.c,
		Images: []string{nodes.Image(t, image, kit.BuildProgram(t, "cmd/forcefence-node"))}})
	n, err := lab.Add(w.ctx, nodes.NodeOptions{Name: "n1"})
	kit.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := w.c.Kubectl(context.Background(), "-n", nodeNamespace, "describe", "pods")
			logs, _ := w.c.Kubectl(context.Background(), "-n", nodeNamespace, "logs", "ds/forcefence-node",
				"--all-containers")
			t.Logf("%s\n%s", out, logs)
		}
	})
	plugin := install.PluginFile

	w.installHook("")
	w.rolledOut("hook")
	w.guard(install.FailOpen, "started before the plugin was installed")
	if _, err := n.Exec(w.ctx, "test", "-x", nodes.NRIPlugins+"/"+plugin); err != nil {
		t.Errorf("the plugin is not on the host: %v", err)
	}

	// It holds, on the word of a container that has one capability; and the kubelet's own restart of the runtime
	// changes nothing.
	_, err = w.c.Kubectl(w.ctx, "taint", "node", "n1", key+"=manual:NoSchedule")
	kit.Must(t, err)
	w.until("the hook knows of the mark", func() (bool, error) {
		out, err := n.Exec(w.ctx, nodes.NRIPlugins+"/"+plugin, "status")
		return strings.Contains(out, key+"=manual:"), fmt.Errorf("%s %w", out, err)
	})
	w.ordinary("first")
	w.held("first")
	kit.Must(t, n.RestartContainerd())
	w.until("both plugins are connected", func() (bool, error) {
		a, errA := n.Exec(w.ctx, nodes.NRIPlugins+"/"+plugin, "status", "--ready=10")
		b, errB := n.Exec(w.ctx, nodes.NRIPlugins+"/"+plugin, "status", "--ready=20")
		return errA == nil && errB == nil, fmt.Errorf("%s %s %w", a, b, errA)
	})
	w.guard(install.FailOpen, "does not require the plugin")
	_, err = w.c.Kubectl(w.ctx, "taint", "node", "n1", key+"-")
	kit.Must(t, err)
	w.ended("first")

	// What the host mounts and unmounts is seen in the container: a volume can go.
	_, err = n.Exec(w.ctx, "mkdir", "-p", "/run/volume")
	kit.Must(t, err)
	pid := w.inside(n)
	if _, err := n.Exec(w.ctx, "sh", "-c", "[ /proc/"+pid+"/exe -ef "+nodes.NRIPlugins+"/"+plugin+" ]"); err != nil {
		t.Errorf("the container does not run the runtime's plugin, so they share no memory: %v", err)
	}
	_, err = n.Exec(w.ctx, "mount", "-t", "tmpfs", "volume", "/run/volume")
	kit.Must(t, err)
	w.mounted(n, pid, true)
	_, err = n.Exec(w.ctx, "umount", "/run/volume")
	kit.Must(t, err)
	w.mounted(n, pid, false)
	w.writesItsOwn(n, pid)

	w.installHook("hook: {requiredPlugins: true}")
	w.rolledOut("hook")
	kit.Must(t, n.RestartContainerd())
	w.guard(install.FailClosed, "requires the plugin")
	w.bootsMarked(n)

	// Not required any more, and read so: the uninstall need not restart the runtime, which has no systemd here.
	w.installHook("")
	w.rolledOut("hook")
	kit.Must(t, n.RestartContainerd())
	w.guard(install.FailOpen, "does not require the plugin")
	w.installHook("hook: {uninstall: true}")
	w.rolledOut("uninstalled")
	// The kubelet's own logs of the pods are named after them.
	out, err := n.Exec(w.ctx, "find", "/opt/nri", "/etc/nri", "/etc/containerd", "/var/log", "(", "-path",
		"/var/log/pods", "-o", "-path",
		"/var/log/containers", ")", "-prune", "-o", "-name", "*forcefence*", "-print")
	if err != nil || out != "" {
		t.Errorf("left on the host: %s %v", out, err)
	}
	if out, err := n.Exec(w.ctx, "ls", nri.DefaultDataDir); err == nil {
		t.Errorf("left on the host: %s: %s", nri.DefaultDataDir, out)
	}
	// The plugin that the runtime started runs until its next start, and may tell its status once more, on a tmpfs.
	out, err = n.Exec(w.ctx, "find", "/run", "-path", "/run/forcefence/*", "!", "-name", "10.json")
	if err != nil || out != "" {
		t.Errorf("left on the host: %s %v", out, err)
	}
	node, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
	kit.Must(t, err)
	for _, c := range node.Status.Conditions {
		if c.Type == taint.ProtectionCondition {
			t.Errorf("left on the Node: %+v", c)
		}
	}

	// Where there is no NRI nothing is installed, and the Node says so.
	off := "printf \"version = 3\\n[plugins.'io.containerd.nri.v1.nri']\\ndisable = true\\n\" " +
		">/etc/containerd/conf.d/off.toml"
	out, err = n.Exec(w.ctx, "sh", "-c", "mkdir -p /etc/containerd/conf.d && "+off)
	if err != nil {
		t.Fatalf("switching NRI off: %v: %s", err, out)
	}
	kit.Must(t, n.RestartContainerd())
	w.installHook("")
	w.guard(install.None, "NRI is switched off")
}

// writesItsOwn checks that the hook has what it writes on the host, and that the host's root is mounted read-only for
// it.
func (w *world) writesItsOwn(n *nodes.Node, pid string) {
	w.t.Helper()
	for _, file := range []string{
		nri.DefaultDataDir + "/" + nri.MemoryFile, nri.DefaultStateDir + "/20.json", nri.DefaultLogFile} {
		w.until(file+" is on the host", func() (bool, error) {
			_, err := n.Exec(w.ctx, "test", "-s", file)
			return err == nil, err
		})
	}
	out, err := n.Exec(w.ctx, "cat", "/proc/"+pid+"/mountinfo")
	kit.Must(w.t, err)
	got := map[string]string{}
	for mount := range strings.Lines(out) { // its root is the host's: it has changed it
		fields := strings.Fields(mount)
		how, _, _ := strings.Cut(fields[5], ",")
		got[fields[4]] = how
	}
	for place, want := range map[string]string{
		"/": "ro", nri.DefaultDataDir: "rw", nri.DefaultStateDir: "rw", "/var/log": "rw"} {
		if got[place] != want {
			w.t.Errorf("the hook's container has %s mounted %q, want %q", place, got[place], want)
		}
	}
}

// bootsMarked is a node that requires the hook, has lost it, and boots with the mark on: it must not lock itself out,
// which is the annotation's work, nor let an ordinary pod in.
func (w *world) bootsMarked(n *nodes.Node) {
	w.t.Helper()
	_, err := w.c.Kubectl(w.ctx, "taint", "node", "n1", key+"=manual:NoSchedule")
	kit.Must(w.t, err)
	n.PowerCut()
	kit.Must(w.t, w.c.WaitNode(w.ctx, "n1", cluster.IsNotReady))
	w.ordinary("second")
	plugin, err := n.HostPath(nodes.NRIPlugins + "/" + install.PluginFile)
	kit.Must(w.t, err)
	kit.Must(w.t, os.Remove(plugin))
	kit.Must(w.t, n.PowerOn())
	kit.Must(w.t, n.WaitReady(w.ctx))
	w.until("the hook's pod runs on the marked node", func() (bool, error) {
		out, err := n.Exec(w.ctx, nodes.NRIPlugins+"/"+install.PluginFile, "status", "--ready=20")
		return err == nil, fmt.Errorf("%s %w", out, err)
	})
	w.rolledOut("hook")
	w.refused("second")
	_, err = w.c.Kubectl(w.ctx, "taint", "node", "n1", key+"-")
	kit.Must(w.t, err)
	w.ended("second")
}

// installHook applies the hook's objects with these values. The image of this test is not that of `make image`, which
// takes a minute: its program has another path.
func (w *world) installHook(values string) {
	w.t.Helper()
	text, err := cluster.RenderChart(w.ctx, chart,
		"image: {repository: registry.example.net/forcefence, tag: v1}\n"+values,
		"node/namespace.yaml", "node/people.yaml", "node/policy-tolerate.yaml", "node/daemonset.yaml")
	kit.Must(w.t, err)
	w.apply(strings.ReplaceAll(text, "/ko-app/", "/bin/"))
}

// rolledOut waits until the DaemonSet's pod is the one of what was applied last, and ready; a container of it has that
// name.
func (w *world) rolledOut(container string) {
	w.t.Helper()
	w.until("the DaemonSet is rolled out", func() (bool, error) {
		ds, err := w.c.Client().AppsV1().DaemonSets(nodeNamespace).Get(w.ctx, "forcefence-node", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s := ds.Status
		return ds.Spec.Template.Spec.Containers[0].Name == container && done(ds), fmt.Errorf("%+v", s)
	})
}

func done(ds *appsv1.DaemonSet) bool {
	s := ds.Status
	return s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled == 1 && s.UpdatedNumberScheduled == 1 &&
		s.NumberAvailable == 1
}

// guard waits for the Node's condition.
func (w *world) guard(level install.Level, says string) {
	w.t.Helper()
	reason := map[install.Level]string{install.FailClosed: "FailClosed", install.FailOpen: "FailOpen",
		install.None: "None"}[level]
	want := corev1.ConditionTrue
	if level == install.None {
		want = corev1.ConditionFalse
	}
	w.until("the Node says "+reason, func() (bool, error) {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == taint.ProtectionCondition {
				return c.Status == want && c.Reason == reason && strings.Contains(c.Message, says),
					fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return false, fmt.Errorf("no condition")
	})
}

// ordinary starts a pod that is not exempt, and ends by itself if it may start.
func (w *world) ordinary(name string) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: meta(name),
		Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{
				{Name: "main", Image: image, ImagePullPolicy: corev1.PullNever,
					Command: []string{"/bin/forcefence-node", "--help"}}}}}
	_, err := w.c.Client().CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	kit.Must(w.t, err)
}

func (w *world) held(pod string) {
	w.t.Helper()
	w.until(pod+" is held", func() (bool, error) {
		list, err := w.c.Client().CoreV1().Events("default").
			List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return false, err
		}
		var said []string
		for _, e := range list.Items {
			said = append(said, e.Reason+": "+e.Message)
			if e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "held") {
				w.t.Log(e.Message)
				return true, nil
			}
		}
		return false, fmt.Errorf("events %q", said)
	})
}

// refused waits for the refusal of a container whose sandbox came before the hook did.
func (w *world) refused(pod string) {
	w.t.Helper()
	w.until(pod+"'s container is refused", func() (bool, error) {
		p, err := w.c.Client().CoreV1().Pods("default").Get(w.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range p.Status.ContainerStatuses {
			if s := c.State.Waiting; s != nil && s.Reason == "CreateContainerError" && c.RestartCount == 0 {
				w.t.Log(s.Message)
				return true, nil
			}
		}
		return false, fmt.Errorf("%s %+v", p.Status.Phase, p.Status.ContainerStatuses)
	})
}

func (w *world) ended(pod string) {
	w.t.Helper()
	w.until(pod+" has run", func() (bool, error) {
		p, err := w.c.Client().CoreV1().Pods("default").Get(w.ctx, pod, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodSucceeded, err
	})
}

// inside is the pid of the DaemonSet's container, as the node sees it.
func (w *world) inside(n *nodes.Node) string {
	w.t.Helper()
	out, err := n.Exec(w.ctx, "pgrep", "-f", "^/bin/forcefence-node run")
	kit.Must(w.t, err)
	return strings.TrimSpace(out)
}

func (w *world) mounted(n *nodes.Node, pid string, want bool) {
	w.t.Helper()
	w.until(fmt.Sprintf("the container sees the mount: %t", want), func() (bool, error) {
		out, err := n.Exec(w.ctx, "cat", "/proc/"+pid+"/mountinfo")
		return err == nil && strings.Contains(out, "/run/volume ") == want, err
	})
}
