package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// shared is a real API server; nil under -short. Only tests change its objects.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	nrilog.Set(quiet{})
	os.Exit(cluster.Main(m, cluster.Options{}, func(c *cluster.Cluster) {
		if shared = c; c != nil {
			c.ControllerManager().Stop()
			c.Scheduler().Stop()
		}
	}))
}

type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

// lab is a node in pieces: the runtime's half of NRI (the real one), a Node with pods on the real API server, a
// kubelet's kubeconfig that leads there through a cable that a test can cut, and the hook.
type lab struct {
	t      *testing.T
	node   string
	dir    string
	cable  *cable // to the API server
	cord   *cable // to the runtime
	nri    *adaptation.Adaptation
	config Config
	boot   string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	l := &lab{t: t, node: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), dir: kit.SocketDir(t),
		boot: testBoot}
	l.cable = newCable(t, "tcp", "127.0.0.1:0", "tcp", strings.TrimPrefix(shared.URL(), "https://"))
	l.config = l.ownConfig()
	l.kubeconfig("system:node:" + l.node)
	l.startNRI()
	return l
}

func (l *lab) ownConfig() Config {
	return Config{
		NodeName: l.node, Kubeconfig: filepath.Join(l.dir, "kubelet.conf"), StateDir: filepath.Join(l.dir, "run"),
		DataDir: filepath.Join(l.dir, "data"), LogFile: "none",
	}
}

// kubeconfig writes the kubelet's kubeconfig, through the cable. A user without groups has no rights.
func (l *lab) kubeconfig(user string, groups ...string) {
	l.t.Helper()
	if strings.HasPrefix(user, "system:node:") {
		groups = append(groups, "system:nodes")
	}
	file := filepath.Join(l.dir, "kubeconfig.new")
	l.must(shared.WriteKubeconfig(file, user, groups...))
	c, err := clientcmd.LoadFromFile(file)
	l.must(err)
	for _, cluster := range c.Clusters {
		cluster.Server = "https://" + l.cable.address
	}
	l.must(clientcmd.WriteToFile(*c, file))
	l.must(os.Rename(file, l.config.Kubeconfig))
}

func (l *lab) startNRI() {
	l.t.Helper()
	sync := func(ctx context.Context, cb adaptation.SyncCB) error { _, err := cb(ctx, nil, nil); return err }
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	n, err := adaptation.New("containerd", "v2.4.2", sync, update, adaptation.WithSocketPath(l.socket()+".runtime"),
		adaptation.WithPluginPath(filepath.Join(l.dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(l.dir, "conf")))
	l.must(err)
	l.must(n.Start())
	l.nri = n
	l.t.Cleanup(n.Stop)
	l.cord = newCable(l.t, "unix", l.socket(), "unix", l.socket()+".runtime")
}

// stopNRI ends the runtime: its connections break and its socket is gone.
func (l *lab) stopNRI() {
	l.nri.Stop()
	l.cord.snap()
}

func (l *lab) socket() string { return filepath.Join(l.dir, "nri.sock") }

// hook starts the hook and returns once it has registered; it ends with the test, or by stop.
func (l *lab) hook() (stop func()) {
	l.t.Helper()
	text, err := l.config.Marshal()
	l.must(err)
	file, bootID := filepath.Join(l.dir, "forcefence.conf"), filepath.Join(l.dir, "boot_id")
	l.must(errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(bootID, []byte(l.boot+"\n"), 0o600)))
	ctx, cancel := context.WithCancel(l.t.Context())
	registered, done := make(chan struct{}, 8), make(chan error, 1)
	opts := Options{Version: "test", Log: l.t.Output(), ConfigFile: file, Socket: l.socket(), bootIDFile: bootID}
	opts.Registered = func(context.Context, Config, *slog.Logger) { registered <- struct{}{} }
	go func() { done <- Run(ctx, opts) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("the hook ended: %v", err)
		}
	})
	l.t.Cleanup(stop)
	select {
	case <-registered:
	case err := <-done:
		done <- err
		l.t.Fatalf("the hook ended: %v", err)
	case <-time.After(time.Minute):
		l.t.Fatal("the hook did not register")
	}
	// The runtime asks a plugin only a moment after its registration. An unknown pod is always held.
	unknown := &corev1.Pod{}
	unknown.Name, unknown.UID = "unknown", "unknown"
	l.until(unknown, "held on node")
	return stop
}

// runPod asks the runtime for a sandbox, as the kubelet does, and returns "" or why it failed.
func (l *lab) runPod(pod *corev1.Pod) string {
	sandbox := &api.PodSandbox{
		Id: "sandbox", Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID),
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
	}
	if err := l.nri.RunPodSandbox(l.t.Context(), &adaptation.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		return err.Error()
	}
	return ""
}

// createContainer asks for a container in the same way.
func (l *lab) createContainer(pod *corev1.Pod) string {
	_, err := l.nri.CreateContainer(l.t.Context(), &adaptation.CreateContainerRequest{
		Pod:       &api.PodSandbox{Id: "sandbox", Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Container: &api.Container{Id: "container", Name: "c"},
	})
	if err != nil {
		return err.Error()
	}
	return ""
}

// until waits for an answer that contains word; "" lets the pod start.
func (l *lab) until(pod *corev1.Pod, word string) time.Duration {
	l.t.Helper()
	start := time.Now()
	for ; time.Since(start) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
		if got := l.runPod(pod); word == "" && got == "" || word != "" && strings.Contains(got, word) {
			return time.Since(start)
		}
	}
	l.t.Fatalf("pod %s: got answer %q, want %q", pod.Name, l.runPod(pod), word)
	return 0
}

func (l *lab) addNode() *corev1.Node {
	l.t.Helper()
	node, err := shared.Client().CoreV1().Nodes().
		Create(l.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.node}}, metav1.CreateOptions{})
	l.must(err)
	l.t.Cleanup(func() {
		_ = shared.Client().CoreV1().Nodes().Delete(context.Background(), l.node, metav1.DeleteOptions{})
	})
	return node
}

// change applies f to the Node as it is now, status included.
func (l *lab) change(f func(*corev1.Node)) {
	l.t.Helper()
	nodes := shared.Client().CoreV1().Nodes()
	node, err := nodes.Get(l.t.Context(), l.node, metav1.GetOptions{})
	l.must(err)
	f(node)
	updated, err := nodes.Update(l.t.Context(), node, metav1.UpdateOptions{})
	l.must(err)
	updated.Status = node.Status
	_, err = nodes.UpdateStatus(l.t.Context(), updated, metav1.UpdateOptions{})
	l.must(err)
}

func readyOn(boot string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
}

func mark(n *corev1.Node)   { n.Spec.Taints = append(n.Spec.Taints, testMark) }
func unmark(n *corev1.Node) { n.Spec.Taints = taint.WithoutMark(n.Spec.Taints, taint.DefaultKey, "f1") }

// addPod binds a pod to the node.
func (l *lab) addPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: l.node + "-" + name, Namespace: "default"}}
	p.Spec.NodeName, p.Spec.Containers = l.node, []corev1.Container{{Name: "c", Image: "x"}}
	for _, f := range change {
		f(p)
	}
	p, err := shared.Client().CoreV1().Pods("default").Create(l.t.Context(), p, metav1.CreateOptions{})
	l.must(err)
	l.t.Cleanup(func() {
		_ = shared.Client().CoreV1().Pods("default").Delete(context.Background(), p.Name, *metav1.NewDeleteOptions(0))
	})
	return p
}

func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}}
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestBoot plays a boot as in the KEP's scenarios 1 and 2: no network, then the mark, then none.
func TestBoot(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn("the boot before"))
	l.change(mark)
	ordinary, exempt := l.addPod("a"), l.addPod("b", tolerant)
	l.cable.cut()
	l.hook()
	l.until(ordinary, "node was not read yet on this boot")
	if got := l.createContainer(ordinary); !strings.Contains(got, "held on node "+l.node) {
		t.Errorf("a container of it: got %q", got)
	}
	l.cable.mend()
	t.Logf("network back: %s until the mark was known",
		l.until(ordinary, "forcefence.io/node-shutdown=f1:NoSchedule").Round(time.Millisecond))
	l.until(exempt, "")
	if got := l.createContainer(exempt); got != "" {
		t.Errorf("a container of an exempt pod: got %q", got)
	}
	l.change(unmark)
	l.until(ordinary, "node was not Ready yet on this boot")
	l.change(readyOn(testBoot))
	l.until(ordinary, "")
	if got := l.createContainer(ordinary); got != "" {
		t.Errorf("a container: got %q", got)
	}
	l.change(mark)
	l.until(ordinary, "marked")
	l.change(unmark)
	t.Logf("mark taken off: %s until the pod may start", l.until(ordinary, "").Round(time.Millisecond))
}

// TestVolumeDetaches checks that under a mark that waits for one volume a pod starts that does not use it, and one that
// uses it starts once it is detached.
func TestVolumeDetaches(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	l.change(mark)
	l.hook()
	free, user, disk := l.addPod("a"), l.addPod("b", uses("db")), l.addPod("c", inline)
	for _, p := range []*corev1.Pod{free, user, disk} {
		l.until(p, "marked")
	}
	l.change(func(n *corev1.Node) { detaching(n) })
	l.until(free, "")
	for _, p := range []*corev1.Pod{user, disk} {
		l.until(p, "still to be detached")
		if got := l.createContainer(p); !strings.Contains(got, "still to be detached") {
			t.Errorf("container of %s: got %q", p.Name, got)
		}
	}
	late := l.addPod("d", uses("db")) // it comes meanwhile
	l.until(late, "still to be detached")
	l.change(unmark)
	for _, p := range []*corev1.Pod{user, disk, late} {
		l.until(p, "")
	}
}

// TestEndedUnderTheMark checks that a pod that was ended under the mark is unknown once the mark goes, and never
// starts.
func TestEndedUnderTheMark(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	ended, other := l.addPod("a"), l.addPod("b")
	l.hook()
	l.until(ended, "")
	l.change(mark)
	l.until(ended, "marked")
	ended.Status.Phase = corev1.PodFailed
	_, err := shared.Client().CoreV1().Pods("default").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{})
	l.must(err)
	l.change(unmark)
	for range 200 {
		if got := l.runPod(ended); got == "" {
			t.Fatal("a pod that was ended may start")
		}
		if l.runPod(other) == "" {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.until(other, "")
	l.until(ended, "not known")
}

// TestAPIOutage checks that a clear node goes on during an API outage, even if the hook restarts, but not after a boot.
func TestAPIOutage(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	pod := l.addPod("a")
	stop := l.hook()
	l.until(pod, "")
	l.cable.cut()
	if got := l.runPod(pod); got != "" {
		t.Errorf("API server gone: got %q", got)
	}
	l.status("what the next plugin restores", func(s Status) bool { return s.Node.ReadySeen && len(s.Pods) == 1 })
	stop()
	stop = l.hook()
	if got := l.runPod(pod); got != "" {
		t.Errorf("the hook restarted: got %q", got)
	}
	stop()
	l.boot = "7b1f8a6e-4bb5-41b0-8a5c-7d4fd1f8cc00"
	l.hook()
	if got := l.runPod(pod); !strings.Contains(got, "not read yet") {
		t.Errorf("the machine booted again: got %q", got)
	}
}

// TestBootWithBrokenCredential boots a node whose hook cannot read the API server. Pods with a lasting exemption start,
// as the KEP wants it: CNI, CSI. Ordinary pods, new pods and pods that can lose their exemption are held until the
// credential works again. Then only the API server's state counts.
func TestBootWithBrokenCredential(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	owned := func(p *corev1.Pod) { daemon(p); p.OwnerReferences[0].UID = "cni" }
	tolerating, network, ordinary := l.addPod("tolerating", tolerant), l.addPod("network", owned), l.addPod("ordinary")
	briefly := l.addPod("briefly", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	})
	stop := l.hook()
	for _, p := range []*corev1.Pod{tolerating, network, ordinary, briefly} {
		l.until(p, "")
	}
	l.untilRemembered(tolerating, network)
	stop()

	l.boot = "7b1f8a6e-4bb5-41b0-8a5c-7d4fd1f8cc00"
	l.must(os.RemoveAll(l.config.StateDir))
	late := l.addPod("late", owned)
	l.must(os.Remove(l.config.Kubeconfig))
	l.hook()
	l.untilStatus("reading kubeconfig")
	for _, p := range []*corev1.Pod{tolerating, network} {
		if got := l.runPod(p) + l.createContainer(p); got != "" {
			t.Errorf("%s, exempt before the boot: got %q", p.Name, got)
		}
	}
	for _, p := range []*corev1.Pod{ordinary, briefly, late} {
		if got := l.runPod(p); !strings.Contains(got, "not read yet") {
			t.Errorf("%s: got %q, want it held", p.Name, got)
		}
	}

	l.must(shared.Client().CoreV1().Pods("default").Delete(t.Context(), network.Name, *metav1.NewDeleteOptions(0)))
	l.kubeconfig("system:node:" + l.node)
	l.until(late, "")
	l.until(briefly, "")
	l.until(ordinary, "not Ready yet")
	l.until(network, "not Ready yet") // the list of this boot does not have it
	l.untilRemembered(tolerating, late)
	l.change(readyOn(l.boot))
	l.until(ordinary, "")
}

// untilRemembered waits until exactly these pods are on the disk.
func (l *lab) untilRemembered(pods ...*corev1.Pod) {
	l.t.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, string(p.UID))
	}
	slices.Sort(want)
	config := l.config
	config.setDefaults()
	var got []string
	var err error
	for range 200 {
		if got, err = readMemory(config); err == nil && slices.Equal(got, want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.t.Fatalf("remembered: %q, %v, want %q", got, err, want)
}

// TestAnExemptionLasts holds, on a real API server, what package admit relies on: no client can remove a lasting
// exemption from a pod while its UID exists. A toleration that can get an end is no lasting exemption.
func TestAnExemptionLasts(t *testing.T) {
	l := newLab(t)
	l.addNode()
	for i, toleration := range []corev1.Toleration{
		{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists},
		{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Operator: corev1.TolerationOpExists},
	} {
		pod := l.addPod(fmt.Sprint("firm-", i),
			func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{toleration} })
		if !hasLastingExemption(pod, taint.DefaultKey) {
			t.Errorf("%+v: not remembered", toleration)
		}
		for name, change := range map[string]func(ts []corev1.Toleration) []corev1.Toleration{
			"removed":     func(ts []corev1.Toleration) []corev1.Toleration { return ts[1:] },
			"another key": func(ts []corev1.Toleration) []corev1.Toleration { ts[0].Key = "example.net/x"; return ts },
			"for another value": func(ts []corev1.Toleration) []corev1.Toleration {
				ts[0].Key, ts[0].Operator, ts[0].Value = "a/b", "Equal", "x"
				return ts
			},
			"preferred": func(ts []corev1.Toleration) []corev1.Toleration {
				ts[0].Effect = corev1.TaintEffectPreferNoSchedule
				return ts
			},
			"given an end": func(ts []corev1.Toleration) []corev1.Toleration {
				ts[0].TolerationSeconds = new(int64(1))
				return ts
			},
			"given an end, and its effect": func(ts []corev1.Toleration) []corev1.Toleration {
				ts[0].TolerationSeconds, ts[0].Effect = new(int64(1)), corev1.TaintEffectNoExecute
				return ts
			},
		} {
			if now, err := l.tolerate(pod, change); !apierrors.IsInvalid(err) {
				t.Errorf("%+v %s: got %+v, %v, want it refused", toleration, name, now, err)
			}
		}
	}

	brief := l.addPod("brief", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	})
	if taint.ExemptionOf(brief, taint.DefaultKey) == taint.NotExempt || hasLastingExemption(brief, taint.DefaultKey) {
		t.Error("a toleration of NoExecute: want it exempt, and not remembered")
	}
	now, err := l.tolerate(brief,
		func(ts []corev1.Toleration) []corev1.Toleration { ts[0].TolerationSeconds = new(int64(1)); return ts })
	l.must(err)
	if taint.ExemptionOf(now, taint.DefaultKey) != taint.NotExempt {
		t.Errorf("given an end: still exempt, %+v", now.Spec.Tolerations)
	}
}

// tolerate changes the first of a pod's tolerations.
func (l *lab) tolerate(pod *corev1.Pod, change func([]corev1.Toleration) []corev1.Toleration) (*corev1.Pod, error) {
	pods := shared.Client().CoreV1().Pods(pod.Namespace)
	now, err := pods.Get(l.t.Context(), pod.Name, metav1.GetOptions{})
	l.must(err)
	now.Spec.Tolerations = change(now.Spec.Tolerations)
	return pods.Update(l.t.Context(), now, metav1.UpdateOptions{})
}

// TestMarkedDuringOutage checks that the hook reads the Node again after an outage.
func TestMarkedDuringOutage(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	pod := l.addPod("a")
	l.hook()
	l.until(pod, "")
	l.cable.cut()
	l.change(mark)
	l.cable.mend()
	t.Logf("network back: %s until the mark was known", l.until(pod, "marked").Round(time.Millisecond))
}

// TestCredentials uses a kubeconfig that is refused, then one that cannot be read, then a good one in its place.
func TestCredentials(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	pod := l.addPod("a")
	l.kubeconfig("stranger")
	l.hook()
	l.until(pod, "not read yet")
	l.untilStatus("forbidden")
	l.must(os.WriteFile(l.config.Kubeconfig, []byte("clusters: ["), 0o600))
	l.untilStatus("reading kubeconfig")
	l.kubeconfig("system:node:" + l.node)
	l.until(pod, "")
	l.untilStatus("")
}

func (l *lab) untilStatus(word string) {
	l.t.Helper()
	l.status("error "+word, func(s Status) bool {
		return word == "" && s.Error == "" || word != "" && strings.Contains(s.Error, word)
	})
}

// status waits until the status file passes the check.
func (l *lab) status(want string, check func(Status) bool) {
	l.t.Helper()
	var all []Status
	for range 200 {
		var err error
		all, err = ReadStatuses(l.config.StateDir)
		l.must(err)
		if len(all) == 1 && check(all[0]) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.t.Fatalf("status: got %+v, want %s", all, want)
}

// TestNodeDeleted checks that a deleted Node counts as not read. A recreated one has lost its taints, and counts again.
func TestNodeDeleted(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	pod := l.addPod("a")
	l.hook()
	l.until(pod, "")
	l.must(shared.Client().CoreV1().Nodes().Delete(t.Context(), l.node, metav1.DeleteOptions{}))
	l.until(pod, "not read yet")
	l.untilStatus("not found")
	l.addNode()
	l.until(pod, "")
}

// TestSocketVanishes stops the runtime and its socket: the hook connects to the next runtime.
func TestSocketVanishes(t *testing.T) {
	l := newLab(t)
	l.addNode()
	l.change(readyOn(testBoot))
	pod := l.addPod("a")
	l.hook()
	l.until(pod, "")
	l.stopNRI()
	l.change(mark)
	l.status("not registered", func(s Status) bool { return s.Registered.IsZero() && s.Node.Marked })
	l.startNRI()
	if got := l.runPod(pod); got != "" {
		t.Fatalf("no plugin is registered with the new runtime: got %q", got)
	}
	l.until(pod, "marked")
}

func TestRunWithoutConfiguration(t *testing.T) {
	dir := t.TempDir()
	if err := Run(t.Context(), Options{ConfigFile: filepath.Join(dir, "none")}); err == nil ||
		!strings.Contains(err.Error(), "installed") {
		t.Errorf("no file: got %v", err)
	}
	file := filepath.Join(dir, "c")
	if err := os.WriteFile(file, []byte("nodeName: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), Options{ConfigFile: file}); err == nil ||
		!strings.Contains(err.Error(), "kubeconfig: missing") {
		t.Errorf("faults: got %v", err)
	}
}

func TestKnowsValidators(t *testing.T) {
	for version, want := range map[string]bool{
		"": false, "unknown": false, "v0.9.0": false, "v0.9.1-0.20250219030224-e597e7849f24": false, "v0.10.0": true,
		"v0.12.3": true,
		"v1.0.0":  true, "0.12.3": false, "v0": false,
	} {
		if got := knowsValidators(version); got != want {
			t.Errorf("knowsValidators(%q) = %v, want %v", version, got, want)
		}
	}
}

// cable is a relay between two addresses. Once cut it drops everything and lets no new connection through, like a
// network that is down.
type cable struct {
	address string
	listen  net.Listener
	to      func() (net.Conn, error)
	ctx     context.Context
	relays  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	down  chan struct{}
	up    chan struct{}
	conns []net.Conn
}

func newCable(t *testing.T, network, address, toNetwork, toAddress string) *cable {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &cable{
		address: ln.Addr().String(), listen: ln, ctx: ctx, down: make(chan struct{}), up: make(chan struct{}),
		to: func() (net.Conn, error) { return net.Dial(toNetwork, toAddress) },
	}
	close(c.up)
	t.Cleanup(func() {
		cancel()
		c.snap()
		c.relays.Wait()
	})
	c.relays.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.relays.Go(func() { c.relay(conn) })
		}
	})
	return c
}

func (c *cable) relay(near net.Conn) {
	defer near.Close()
	c.mu.Lock()
	up, down := c.up, c.down
	c.mu.Unlock()
	select {
	case <-up:
	case <-c.ctx.Done():
		return
	}
	far, err := c.to()
	if err != nil {
		return
	}
	defer far.Close()
	c.mu.Lock()
	c.conns = append(c.conns, near, far)
	c.mu.Unlock()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		c.relays.Go(func() {
			defer func() { ended <- struct{}{} }()
			buf := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(buf)
				select {
				case <-down: // dropped, and neither end learns of it
					<-c.ctx.Done()
					return
				default:
				}
				if err == nil {
					_, err = way[1].Write(buf[:n])
				}
				if err != nil {
					return
				}
			}
		})
	}
	<-ended
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.down)
	c.up = make(chan struct{})
}

// mend lets new connections through; the old ones stay dead, as after an outage that outlived them.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = make(chan struct{})
	close(c.up)
}

// snap breaks all connections and ends the relay.
func (c *cable) snap() {
	c.listen.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// TestRuntimeThatDropsThePlugin configures the plugin again and again without registering it: no goroutine stays, and
// Registered is called only for registrations.
func TestRuntimeThatDropsThePlugin(t *testing.T) {
	h := &hook{config: &Config{}, view: newView("n1", taint.DefaultKey, testBoot)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.ctx = ctx
	calls := make(chan struct{}, 8)
	h.opts.Registered = func(context.Context, Config, *slog.Logger) { calls <- struct{}{} }
	h.plugin = &plugin{configure: h.configureOnce, registeredNow: h.callRegistered}
	for range 3 {
		v, err := h.configureOnce("")
		if err != nil {
			t.Fatal(err)
		}
		h.plugin.view = v
		h.plugin.markDisconnected()
	}
	if _, err := h.plugin.Synchronize(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	h.work.Wait()
	if len(calls) != 1 {
		t.Errorf("Registered was called %d times, want 1", len(calls))
	}
}

// TestPluginThatEndedIsNotRegistered checks that the status shows no registration once the connection has ended. A
// person who reads it would believe that pods are held.
func TestPluginThatEndedIsNotRegistered(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	p := &plugin{configure: func(string) (*view, error) { return v, nil }, registeredNow: func() {}, view: v}
	if _, err := p.Synchronize(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	var before, after Status
	p.fillStatus(&before)
	err := p.serveRuntime(t.Context(), stub.WithPluginName(BaseName), stub.WithPluginIdx(DaemonIndex),
		stub.WithSocketPath(filepath.Join(kit.SocketDir(t), "no.sock")))
	p.fillStatus(&after)
	if err == nil || before.Registered.IsZero() || !after.Registered.IsZero() {
		t.Errorf("got %v, registered %s before, %s after; want an error, and no registration after", err,
			before.Registered, after.Registered)
	}
}
