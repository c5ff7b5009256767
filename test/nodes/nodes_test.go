//go:build linux

package nodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

const writerImage = "forcefence.test/writer:1"

const stepTimeout = 3 * time.Minute // the join of two nodes takes 15 at most

// A story of two nodes, told in order: each step begins where the one before it ended.
func TestNodes(t *testing.T) {
	Need(t)
	w := newWorld(t.Context(), t)
	steps := []struct {
		name string
		run  func(*world, *testing.T)
	}{
		{"join", (*world).join},
		{"identity", (*world).identity},
		{"folders", (*world).folders},
		{"pods run", (*world).pods},
		{"ways in and out", (*world).ways},
		{"power cut by the BMC", (*world).powerCut},
		{"power on by the BMC", (*world).powerOn},
		{"power cut at the plug", (*world).plug},
		{"network cut", (*world).network},
		{"kubelet stopped", (*world).kubelet},
		{"containerd killed", (*world).containerd},
		{"NRI plugin", (*world).nri},
		{"image later", (*world).image},
		{"stop", (*world).stop},
	}
	for _, step := range steps {
		begin := time.Now()
		if !t.Run(step.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					for _, n := range w.lab.Nodes() {
						t.Log(n.Logs())
					}
				}
			})
			var cancel context.CancelFunc
			w.ctx, cancel = context.WithTimeout(t.Context(), stepTimeout)
			defer cancel()
			step.run(w, t)
		}) {
			return
		}
		t.Logf("%-24s %6.1f s", step.name, time.Since(begin).Seconds())
	}
}

type world struct {
	ctx    context.Context
	c      *cluster.Cluster
	dc     *datacenter.DataCenter
	m      *datacenter.Machine
	bmc    *datacenter.BMC
	lab    *Lab
	n1, n2 *Node
	ns     string
	tmp    string
}

func newWorld(ctx context.Context, t *testing.T) *world {
	c := cluster.ForTest(t, cluster.Options{NodeGrace: NodeGrace})
	w := &world{ctx: ctx, c: c, dc: datacenter.New(datacenter.Options{}), tmp: t.TempDir()}
	t.Cleanup(func() { kit.Must(t, w.dc.Close()) })
	w.m = w.dc.AddMachine("n1")
	w.bmc = w.dc.AddBMC(w.m)
	writer, err := BuildProgram(ctx, w.tmp, "test/nodes/testdata/writer")
	kit.Must(t, err)
	image := filepath.Join(w.tmp, "writer.tar")
	kit.Must(t, WriteImage(image, writerImage, writer))
	w.lab = ForTest(t,
		Options{Cluster: c, Images: []string{image}, Shared: map[string]string{"/mnt/store": t.TempDir()}})
	w.ns, err = c.CreateNamespace(ctx, "nodes")
	kit.Must(t, err)
	return w
}

func (w *world) join(t *testing.T) {
	static, err := yaml.Marshal(writerPod(metav1.ObjectMeta{Namespace: "default", Name: "static"}, "static"))
	kit.Must(t, err)
	begin := time.Now()
	w.n1, err = w.lab.Add(w.ctx, NodeOptions{Name: "n1", Machine: w.m, StaticPods: map[string][]byte{"static": static}})
	kit.Must(t, err)
	t.Logf("n1 Ready after %s", time.Since(begin).Round(time.Millisecond))
	plugin, err := BuildProgram(w.ctx, w.tmp, "test/nodes/testdata/nrilog")
	kit.Must(t, err)
	data, err := os.ReadFile(plugin)
	kit.Must(t, err)
	begin = time.Now()
	w.n2, err = w.lab.Add(w.ctx, NodeOptions{Name: "n2", Files: map[string][]byte{
		NRIPlugins + "/10-nrilog": data, NRIConfig + "/10-nrilog.conf": []byte("hello"),
	}})
	kit.Must(t, err)
	t.Logf("n2 Ready after %s", time.Since(begin).Round(time.Millisecond))
}

func writerPod(meta metav1.ObjectMeta, file string) *corev1.Pod {
	create := corev1.HostPathDirectoryOrCreate
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta,
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "writer", Image: writerImage, ImagePullPolicy: corev1.PullNever, Args: []string{"/data/" + file},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/srv/data", Type: &create},
			}}},
		},
	}
}

func (w *world) identity(t *testing.T) {
	for _, n := range []*Node{w.n1, w.n2} {
		node, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, n.Name(), metav1.GetOptions{})
		kit.Must(t, err)
		info := node.Status.NodeInfo
		if info.BootID != n.BootID() || info.SystemUUID != n.SystemUUID() ||
			info.MachineID != strings.ReplaceAll(n.SystemUUID(), "-", "") {
			t.Errorf("%s: nodeInfo has boot %s, system %s, machine %s; want %s and %s",
				n.Name(), info.BootID, info.SystemUUID, info.MachineID, n.BootID(), n.SystemUUID())
		}
		if info.ContainerRuntimeVersion != "containerd://v2.4.2" &&
			info.ContainerRuntimeVersion != "containerd://2.4.2" {
			t.Errorf("runtime: got %s", info.ContainerRuntimeVersion)
		}
		host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		kit.Must(t, err)
		inside := w.exec(t, n, "cat", "/proc/sys/kernel/random/boot_id", "/sys/class/dmi/id/product_uuid",
			"/etc/hostname")
		if want := n.BootID() + "\n" + n.SystemUUID() + "\n" + n.Name() + "\n"; inside != want ||
			strings.Contains(inside, string(host)) {
			t.Errorf("inside %s: got %q, want %q, not the machine's %q", n.Name(), inside, want, host)
		}
		if got := w.exec(t, n, "containerd", "config", "dump"); !strings.Contains(got, PauseImage) {
			t.Errorf("containerd config dump on %s does not know %s", n.Name(), PauseImage)
		}
	}
	if w.n1.SystemUUID() != w.m.SystemUUID() || w.n1.BootID() != w.m.BootID() {
		t.Errorf("n1 is %s, boot %s; its machine %s, boot %s", w.n1.SystemUUID(), w.n1.BootID(), w.m.SystemUUID(),
			w.m.BootID())
	}
	const file = "/var/lib/kubelet/config.yaml"
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s on the machine itself: %v", file, err)
	}
}

func (w *world) folders(t *testing.T) {
	w.exec(t, w.n1, "sh", "-c", "echo seen > /mnt/store/x; echo own > /srv/x; echo gone > /usr/x")
	if got := w.exec(t, w.n2, "sh", "-c", "cat /mnt/store/x; ls /srv"); got != "seen\n" {
		t.Errorf("n2 sees %q of what n1 wrote", got)
	}
	if _, err := os.Stat("/usr/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a node wrote to the machine: %v", err)
	}
	host, err := w.n1.HostPath("/srv/x")
	kit.Must(t, err)
	if data, err := os.ReadFile(host); string(data) != "own\n" || err != nil {
		t.Errorf("%s: got %q, %v", host, data, err)
	}
	if host, err := w.n1.HostPath("/srv/../usr/x"); err == nil {
		t.Errorf("a path that does not outlive a boot: got %s", host)
	}
	// Else nothing that a CSI driver's container mounts would reach the kubelet.
	if got := w.exec(t, w.n1, "findmnt", "-no", "PROPAGATION", "/var/lib"); got != "shared\n" {
		t.Errorf("mounts under /var/lib: got %q", got)
	}
}

func (w *world) exec(t *testing.T, n *Node, argv ...string) string {
	t.Helper()
	out, err := n.Exec(w.ctx, argv...)
	kit.Must(t, err)
	return out
}

func (w *world) pods(t *testing.T) {
	pod := writerPod(metav1.ObjectMeta{}, "deployment")
	labels := map[string]string{"app": "writer"}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
	_, err := w.c.Client().AppsV1().Deployments(w.ns).Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	kit.Must(t, err)
	w.bothWrite(t)
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 1))
	ready := w.c.ReadyPods(w.ns)[0]
	if ip := ready.Status.PodIP; !strings.HasPrefix(ip, "10.251.1.") {
		t.Errorf("pod's address: got %s, want one of n1's subnet", ip)
	}
}

// bothWrite waits until the pod of the Deployment and the static one have written a line under the current boot.
func (w *world) bothWrite(t *testing.T) {
	t.Helper()
	for _, file := range []string{"deployment", "static"} {
		w.until(t, func() error {
			line := last(w.lines(t, file))
			return unless(strings.HasSuffix(line, " "+w.n1.BootID()), "%s: last line %q", file, line)
		})
	}
}

// until waits until check has no error, and fails the test with its last one.
func (w *world) until(t *testing.T, check func() error) {
	t.Helper()
	kit.Must(t, cluster.Until(w.ctx, func(context.Context) (bool, error) { err := check(); return err == nil, err }))
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

func (w *world) lines(t *testing.T, file string) []string {
	t.Helper()
	host, err := w.n1.HostPath("/srv/data/" + file)
	kit.Must(t, err)
	data, err := os.ReadFile(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kit.Must(t, err)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// reset is what an operator's tool would send to the BMC.
func (w *world) reset(t *testing.T, word string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.dc.CA())
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	url := w.bmc.SystemURL(w.m) + "/Actions/ComputerSystem.Reset"
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, url,
		strings.NewReader(fmt.Sprintf(`{"ResetType":%q}`, word)))
	kit.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.SetBasicAuth(w.dc.Username(), w.dc.Password())
	resp, err := client.Do(req)
	kit.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("%s: got %s", word, resp.Status)
	}
}

func (w *world) powerCut(t *testing.T) {
	top := space(t, w.n1)
	if len(processes(top)) < 6 { // init, containerd, kubelet, a shim, two of a pod
		t.Fatalf("before: got %v", processes(top))
	}
	loop := w.loopDevice(t)
	begin := time.Now()
	w.reset(t, "ForceOff")
	took := time.Since(begin)
	w.nothingRuns(t, top, w.n1)
	w.until(t, func() error {
		_, err := os.Stat("/sys/block/" + loop + "/loop")
		return unless(loop == "" || errors.Is(err, fs.ErrNotExist), "loop device %s stays, %v", loop, err)
	})
	if w.n1.IsOn() || len(w.n1.Processes()) > 0 {
		t.Errorf("n1 is off and has %v", w.n1.Processes())
	}
	before := len(w.lines(t, "deployment"))
	kit.Must(t, w.c.WaitNode(w.ctx, "n1", cluster.IsNotReady))
	t.Logf("ForceOff took %s, NotReady after %s", took.Round(time.Millisecond),
		time.Since(begin).Round(time.Millisecond))
	if after := len(w.lines(t, "deployment")); after != before {
		t.Errorf("a container wrote %d lines on a node without power", after-before)
	}
	if _, err := w.n1.Exec(w.ctx, "true"); err == nil {
		t.Error("a program ran on a node without power")
	}
}

// loopDevice mounts a file on n1, as a CSI driver may, and returns its device's name; "" where the machine has none to
// give.
func (w *world) loopDevice(t *testing.T) string {
	t.Helper()
	script := `truncate -s 16M /srv/disk && mkfs.ext4 -q /srv/disk && mkdir -p /srv/mounted &&
		mount -o loop /srv/disk /srv/mounted && findmnt -no SOURCE /srv/mounted`
	out, err := w.n1.Exec(w.ctx, "sh", "-c", script)
	if err != nil {
		t.Logf("No loop device: %v", err)
		return ""
	}
	name := filepath.Base(strings.TrimSpace(out))
	if _, err := os.Stat("/sys/block/" + name + "/loop"); err != nil {
		t.Fatalf("loop device of n1: %v", err)
	}
	return name
}

func space(t *testing.T, n *Node) string {
	t.Helper()
	top, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.current().cmd.Process.Pid))
	kit.Must(t, err)
	return top
}

// nothingRuns checks the machine: no process of the namespace, and no process anywhere that sees a mount of the node's
// disk.
func (w *world) nothingRuns(t *testing.T, top string, n *Node) {
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

func (w *world) powerOn(t *testing.T) {
	old := w.n1.BootID()
	begin := time.Now()
	w.reset(t, "On")
	kit.Must(t, w.n1.WaitReady(w.ctx))
	ready := time.Since(begin)
	if w.n1.BootID() == old || w.n1.BootID() != w.m.BootID() {
		t.Errorf("boot id: got %s after %s, the machine's is %s", w.n1.BootID(), old, w.m.BootID())
	}
	w.bothWrite(t)
	t.Logf("Ready after %s, pods wrote after %s", ready.Round(time.Millisecond),
		time.Since(begin).Round(time.Millisecond))
	if len(mounts(t, w.n1.dir+"/")) == 0 {
		t.Error("a node that runs has no mounts: the check of mounts cannot fail")
	}
	if got := w.exec(t, w.n1, "sh", "-c", "cat /srv/x; ls /usr/x 2>/dev/null || true"); got != "own\n" {
		t.Errorf("after a boot: got %q, want what was written to /srv and not what was written to /usr", got)
	}
	if out, err := w.n1.Exec(w.ctx, "findmnt", "/srv/mounted"); err == nil {
		t.Errorf("a mount came back: %s", out)
	}
}

func (w *world) plug(t *testing.T) {
	old := w.n2.BootID()
	for _, n := range []*Node{w.n1, w.n2} { // one with a machine, one without
		top := space(t, n)
		n.PowerCut()
		w.nothingRuns(t, top, n)
		kit.Must(t, n.PowerOn())
	}
	for _, n := range []*Node{w.n1, w.n2} {
		kit.Must(t, n.WaitReady(w.ctx))
	}
	if w.n2.BootID() == old || w.m.State() != datacenter.On {
		t.Errorf("n2 has boot id %s after %s; n1's machine is %s", w.n2.BootID(), old, w.m.State())
	}
	w.bothWrite(t)
}

// ways leads into the nodes' network and out of it: to what is exposed, to the API server by its Service's address, and
// to a kubelet.
func (w *world) ways(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer l.Close()
	serving.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = io.WriteString(c, "hello\n") // what does not arrive is seen below
			c.Close()
		}
	})
	address, err := w.lab.Expose(l.Addr().String())
	kit.Must(t, err)
	host, port, err := net.SplitHostPort(address)
	kit.Must(t, err)
	if out, err := w.n1.Exec(w.ctx, "bash", "-c", "cat </dev/tcp/"+host+"/"+port); err != nil || out != "hello\n" {
		t.Errorf("what is exposed: got %q, %v", out, err)
	}
	if out, err := w.n1.Exec(w.ctx, "bash", "-c", "exec 3<>/dev/tcp/"+serviceHost+"/443"); err != nil {
		t.Errorf("the Service's address: %s %v", out, err)
	}
	c, err := w.lab.Dial(w.n1.IP() + ":10250")
	kit.Must(t, err)
	kit.Must(t, c.Close())
}

func (w *world) network(t *testing.T) {
	boot := w.n1.BootID()
	runtime, err := w.n1.ContainerdPID()
	kit.Must(t, err)
	begin := time.Now()
	kit.Must(t, w.n1.CutNetwork())
	kit.Must(t, w.c.WaitNode(w.ctx, "n1", cluster.IsNotReady))
	cut := time.Since(begin)
	before := len(w.lines(t, "deployment"))
	w.until(t, func() error { return unless(len(w.lines(t, "deployment")) > before+1, "no new lines") })
	if now, err := w.n1.ContainerdPID(); err != nil || now != runtime || now == 0 {
		t.Errorf("containerd: was %d, is %d, %v", runtime, now, err)
	}
	begin = time.Now()
	kit.Must(t, w.n1.RestoreNetwork())
	kit.Must(t, w.n1.WaitReady(w.ctx))
	t.Logf("NotReady after %s, Ready again after %s", cut.Round(time.Millisecond),
		time.Since(begin).Round(time.Millisecond))
	if w.n1.BootID() != boot {
		t.Errorf("boot id: got %s, want still %s", w.n1.BootID(), boot)
	}
}

func (w *world) kubelet(t *testing.T) {
	kit.Must(t, w.n1.StopKubelet())
	if pid, err := w.n1.KubeletPID(); pid != 0 || err != nil {
		t.Errorf("kubelet: process %d, %v", pid, err)
	}
	kit.Must(t, w.c.WaitNode(w.ctx, "n1", cluster.IsNotReady))
	before := len(w.lines(t, "deployment"))
	w.until(t, func() error { return unless(len(w.lines(t, "deployment")) > before, "no new line") })
	if len(w.n1.Find("kubelet")) > 0 {
		t.Error("a stopped kubelet was started again")
	}
	kit.Must(t, w.n1.StartKubelet())
	kit.Must(t, w.n1.WaitReady(w.ctx))
}

func (w *world) containerd(t *testing.T) {
	old, err := w.n1.ContainerdPID()
	kit.Must(t, err)
	kit.Must(t, w.n1.KillContainerd())
	w.until(t, func() error {
		pid, err := w.n1.ContainerdPID()
		return unless(pid != 0 && pid != old, "containerd: was %d, is %d, %v", old, pid, err)
	})
	kit.Must(t, w.n1.WaitContainerd(w.ctx))
	kit.Must(t, w.n1.StopContainerd())
	if found := w.n1.Find("containerd"); len(found) > 0 {
		t.Errorf("containerd was stopped: got %v", found)
	}
	if len(w.n1.Find("writer")) != 2 {
		t.Errorf("containers without containerd: got %v", w.n1.Processes())
	}
	kit.Must(t, w.n1.StartContainerd())
	kit.Must(t, w.n1.WaitContainerd(w.ctx))
}

func (w *world) nri(t *testing.T) {
	found := w.n2.Find("10-nrilog")
	if len(found) != 1 {
		t.Fatalf("plugin's processes on n2: got %v of %v", found, w.n2.Processes())
	}
	pod := writerPod(metav1.ObjectMeta{Name: "asked"}, "asked")
	pod.Spec.NodeName = "n2"
	_, err := w.c.Client().CoreV1().Pods(w.ns).Create(w.ctx, pod, metav1.CreateOptions{})
	kit.Must(t, err)
	host, err := w.n2.HostPath("/var/log/nrilog.log")
	kit.Must(t, err)
	for _, want := range []string{"configured containerd v2.4.2 \"hello\"\n", "sandbox " + w.ns + "/asked\n"} {
		w.until(t, func() error {
			data, err := os.ReadFile(host)
			return unless(strings.Contains(string(data), want), "want %q in %q, %v", want, data, err)
		})
	}
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 2))
}

func (w *world) image(t *testing.T) {
	tar := filepath.Join(w.tmp, "later.tar")
	kit.Must(t, WriteImage(tar, "forcefence.test/later:1", filepath.Join(w.tmp, "writer")))
	kit.Must(t, w.lab.Import(w.ctx, tar))
	pod := writerPod(metav1.ObjectMeta{Name: "later"}, "later")
	pod.Spec.NodeName, pod.Spec.Containers[0].Image = "n1", "forcefence.test/later:1"
	_, err := w.c.Client().CoreV1().Pods(w.ns).Create(w.ctx, pod, metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 3))
}

func (w *world) stop(t *testing.T) {
	tops := []string{space(t, w.n1), space(t, w.n2)}
	var groups []string
	for _, h := range hierarchies() {
		for _, n := range w.lab.Nodes() {
			groups = append(groups, filepath.Join(h, n.cgroup))
		}
	}
	for _, g := range groups {
		if _, err := os.Stat(g); err != nil {
			t.Errorf("before: %v", err)
		}
	}
	dir := w.lab.Dir()
	kit.Must(t, w.lab.Stop())
	for i, n := range []*Node{w.n1, w.n2} {
		w.nothingRuns(t, tops[i], n)
	}
	for _, path := range append(groups, dir) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if conns, err := filepath.Glob("/proc/self/task/*/ns/net"); err != nil {
		t.Error(err)
	} else {
		own, _ := os.Readlink("/proc/self/ns/net")
		for _, link := range conns {
			if ns, err := os.Readlink(link); err == nil && ns != own {
				t.Errorf("thread %s still is in the lab's network %s", link, ns)
			}
		}
	}
}
