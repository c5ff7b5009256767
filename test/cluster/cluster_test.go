package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		os.Exit(orphan(dir))
	}
	os.Exit(cluster.Main(m, cluster.Options{NodeGrace: cluster.FastNodeGrace}, func(c *cluster.Cluster) { shared = c }))
}

// world is a test's share of the cluster: a namespace, nodes with a label of their own, and the time it may take.
type world struct {
	t   *testing.T
	c   *cluster.Cluster
	ctx context.Context
	ns  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ns, err := shared.CreateNamespace(ctx, "test")
	kit.Must(t, err)
	return &world{t: t, c: shared, ctx: ctx, ns: ns}
}

func (w *world) selector() map[string]string { return map[string]string{"world": w.ns} }

func (w *world) nodes(count int, change func(*cluster.NodeOptions)) []*cluster.Node {
	w.t.Helper()
	nodes, err := w.c.AddNodes(w.ctx, count, func(i int) cluster.NodeOptions {
		o := cluster.NodeOptions{Name: w.ns + "-" + string(rune('a'+i)), Labels: w.selector()}
		if change != nil {
			change(&o)
		}
		return o
	})
	kit.Must(w.t, err)
	w.t.Cleanup(func() {
		for _, n := range nodes {
			kit.Must(w.t, n.Remove(context.Background()))
		}
	})
	return nodes
}

func (w *world) workload(replicas int) cluster.Workload {
	return cluster.Workload{Namespace: w.ns, Name: "app", Replicas: replicas, NodeSelector: w.selector()}
}

func (w *world) statefulSet(replicas int) {
	w.t.Helper()
	wl := w.workload(replicas)
	wl.Volume = true
	_, err := w.c.Client().AppsV1().StatefulSets(w.ns).Create(w.ctx, wl.StatefulSet(), metav1.CreateOptions{})
	kit.Must(w.t, err)
	kit.Must(w.t, w.c.WaitReadyPods(w.ctx, w.ns, replicas))
}

func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	if err := cluster.Until(w.ctx, func(context.Context) (bool, error) { return check(), nil }); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *world) kubectl(args ...string) {
	w.t.Helper()
	_, err := w.c.Kubectl(w.ctx, args...)
	kit.Must(w.t, err)
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	kit.Must(w.t, err)
	return node
}

func (w *world) events(selector string) int {
	evs, err := w.c.Client().CoreV1().Events(w.ns).List(w.ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return 0
	}
	return len(evs.Items)
}

func (w *world) noDoubles() {
	w.t.Helper()
	for _, v := range w.c.Ledger().Violations(cluster.TwoPods, cluster.TwoWriters) {
		if strings.Contains(v.What, w.ns) || strings.Contains(strings.Join(v.Nodes, " "), w.ns) {
			w.t.Errorf("violation: %s", v)
		}
	}
}

func TestVolumesRunAndEnd(t *testing.T) {
	w := newWorld(t)
	nodes := w.nodes(2, func(o *cluster.NodeOptions) { o.StopDelay = 200 * time.Millisecond })
	w.statefulSet(3)
	ran := 0
	for _, n := range nodes {
		runs := n.Running()
		ran += len(runs)
		node := w.node(n.Name())
		for _, r := range runs {
			if r.Identity != w.ns+"/"+r.Name || len(r.Volumes) != 1 {
				t.Errorf("run %+v: want an identity and one volume", r)
			}
		}
		if len(node.Status.VolumesInUse) != len(runs) || len(node.Status.VolumesAttached) != len(runs) {
			t.Errorf("node %s: status %+v, want %d volumes in use and attached", n.Name(), node.Status, len(runs))
		}
		if node.Status.NodeInfo.BootID != n.BootID() || node.Status.NodeInfo.SystemUUID != n.SystemUUID() {
			t.Errorf("node %s: info %+v", n.Name(), node.Status.NodeInfo)
		}
	}
	if ran != 3 {
		t.Fatalf("running: got %d, want 3", ran)
	}
	w.kubectl("-n", w.ns, "scale", "statefulset", "app", "--replicas=0")
	w.until("graceful deletion", func() bool { return len(w.c.Pods(w.ns)) == 0 })
	for _, n := range nodes {
		w.until("volumes detached", func() bool {
			node := w.node(n.Name())
			return len(node.Status.VolumesInUse) == 0 && len(node.Status.VolumesAttached) == 0 && len(n.Running()) == 0
		})
	}
	w.noDoubles()
}

// The stock way out, to show that every controller involved is real: NotReady, then the out-of-service taint, then
// volumes move.
func TestOutOfServiceRecovers(t *testing.T) {
	w := newWorld(t)
	w.nodes(3, nil)
	w.statefulSet(3)
	victim := w.c.Node(w.c.ReadyPods(w.ns)[0].Spec.NodeName)
	held := len(victim.Running())
	victim.PowerOff()
	begun := time.Now()
	if got := len(victim.Running()); got != 0 {
		t.Fatalf("running after power-off: got %d, want 0", got)
	}
	before := w.node(victim.Name())
	kit.Must(t, w.c.WaitNode(w.ctx, victim.Name(), cluster.IsNotReady))
	t.Logf("NotReady after %s", time.Since(begun).Round(time.Millisecond))
	after := w.node(victim.Name())
	if len(after.Status.VolumesInUse) != held || after.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID {
		t.Errorf("dead node's status changed: in use %v, want %d", after.Status.VolumesInUse, held)
	}
	w.kubectl("taint", "node", victim.Name(), "node.kubernetes.io/out-of-service=test:NoExecute")
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 3))
	t.Logf("recovered after %s", time.Since(begun).Round(time.Millisecond))
	for _, r := range w.c.Ledger().Running() {
		if r.Namespace == w.ns && r.Node == victim.Name() {
			t.Errorf("runs on the dead node: %+v", r)
		}
	}
	w.noDoubles()
}

func TestHookHoldsOnMarkedNode(t *testing.T) {
	w := newWorld(t)
	n := w.nodes(1, nil)[0]
	w.statefulSet(2)
	wl := w.workload(1)
	wl.Name, wl.Tolerations = "tolerating", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err := w.c.Client().AppsV1().Deployments(w.ns).Create(w.ctx, wl.Deployment(), metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 3))
	w.kubectl("taint", "node", n.Name(), taint.DefaultKey+"=manual:NoSchedule")
	if got := len(n.Running()); got != 3 {
		t.Errorf("running under the mark: got %d, want 3", got)
	}
	n.Reboot()
	kit.Must(t, n.WaitReady(w.ctx))
	w.until("held pods have Events", func() bool { return w.events("reason=FailedCreatePodSandBox") >= 2 })
	w.until("the tolerating pod runs", func() bool { return len(n.Running()) == 1 })
	if r := n.Running()[0]; !strings.HasPrefix(r.Name, "tolerating-") {
		t.Errorf("running: got %+v, want the tolerating pod", r)
	}
	w.until("held pods are not ready", func() bool { return len(w.c.ReadyPods(w.ns)) == 1 })
	w.kubectl("taint", "node", n.Name(), taint.DefaultKey+"-")
	w.kubectl("-n", w.ns, "annotate", "pods", "--all", "nudge=1")
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 3))
	w.noDoubles()
}

// A kubelet that believes an old list starts pods that were deleted meanwhile: the hook is what stops it.
func TestStaleFirstList(t *testing.T) {
	for _, tc := range []struct {
		name   string
		noHook bool
		want   int
	}{{"hook", false, 0}, {"no hook", true, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.nodes(2, func(o *cluster.NodeOptions) { o.StaleFirstList, o.NoHook = 2*time.Second, tc.noHook })
			wl := w.workload(1)
			_, err := w.c.Client().AppsV1().StatefulSets(w.ns).Create(w.ctx, wl.StatefulSet(), metav1.CreateOptions{})
			kit.Must(t, err)
			kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 1))
			victim := w.c.Node(w.c.ReadyPods(w.ns)[0].Spec.NodeName)
			old := victim.Running()[0].UID
			w.kubectl("cordon", victim.Name())
			victim.PowerOff()
			w.kubectl("-n", w.ns, "delete", "pod", "app-0", "--force", "--grace-period=0")
			w.until("the replacement runs", func() bool {
				pods := w.c.ReadyPods(w.ns)
				return len(pods) == 1 && pods[0].UID != old
			})
			victim.PowerOn("")
			doubles := func() (n int) {
				for _, v := range w.c.Ledger().Violations(cluster.TwoPods) {
					if v.What == w.ns+"/app-0" {
						n++
					}
				}
				return n
			}
			if tc.want == 0 {
				w.until("the hook holds the old pod",
					func() bool { return w.events("involvedObject.uid="+string(old)) > 0 })
			} else {
				w.until("both pods run", func() bool { return doubles() > 0 })
			}
			if got := doubles(); got != tc.want {
				t.Errorf("violations: got %d, want %d", got, tc.want)
			}
			w.until("the old pod is ended", func() bool { return len(victim.Running()) == 0 })
		})
	}
}

func TestPartition(t *testing.T) {
	w := newWorld(t)
	n := w.nodes(1, nil)[0]
	w.statefulSet(1)
	uid := n.Running()[0].UID
	n.StopHeartbeats()
	w.kubectl("-n", w.ns, "delete", "statefulset", "app", "--cascade=orphan")
	w.kubectl("-n", w.ns, "delete", "pod", "app-0", "--force", "--grace-period=0")
	kit.Must(t, w.c.WaitNode(w.ctx, n.Name(), cluster.IsNotReady))
	if runs := n.Running(); len(runs) != 1 || runs[0].UID != uid {
		t.Fatalf("running while cut off: got %+v, want %s", runs, uid)
	}
	n.ResumeHeartbeats()
	kit.Must(t, w.c.WaitNode(w.ctx, n.Name(), cluster.IsReady))
	w.until("the deleted pod is ended", func() bool { return len(n.Running()) == 0 })
}

func TestVolumesInUseRepublished(t *testing.T) {
	w := newWorld(t)
	n := w.nodes(1, nil)[0]
	w.statefulSet(2)
	_, err := w.c.Client().CoreV1().Nodes().
		Patch(w.ctx, n.Name(), types.MergePatchType, []byte(`{"status":{"volumesInUse":null}}`),
			metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	w.until("list is whole again", func() bool { return len(w.node(n.Name()).Status.VolumesInUse) == 2 })
}

func TestTombstoneEndsContainers(t *testing.T) {
	w := newWorld(t)
	n := w.nodes(1, nil)[0]
	wl := w.workload(1)
	_, err := w.c.Client().AppsV1().StatefulSets(w.ns).Create(w.ctx, wl.StatefulSet(), metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, w.c.WaitReadyPods(w.ctx, w.ns, 1))
	old := n.Running()[0].UID
	_, err = w.c.Client().CoreV1().Pods(w.ns).Patch(w.ctx, "app-0", types.StrategicMergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	w.until("a replacement runs alone", func() bool {
		runs := n.Running()
		return len(runs) == 1 && runs[0].UID != old
	})
	w.noDoubles()
}

func TestJobCompletes(t *testing.T) {
	w := newWorld(t)
	w.nodes(1, nil)
	wl := w.workload(1)
	wl.Annotations = map[string]string{cluster.RunForAnnotation: "200ms"}
	template := wl.Deployment().Spec.Template
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := w.c.Client().BatchV1().Jobs(w.ns).Create(w.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	kit.Must(t, err)
	w.until("job succeeds", func() bool {
		job, err := w.c.Client().BatchV1().Jobs(w.ns).Get(w.ctx, "job", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 1
	})
}

func TestSlowDetach(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Options{NodeGrace: cluster.FastNodeGrace, DetachDelay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	n, err := c.AddNode(ctx, cluster.NodeOptions{Name: "n1"})
	kit.Must(t, err)
	set := cluster.Workload{Namespace: "default", Name: "app", Replicas: 1, Volume: true}.StatefulSet()
	_, err = c.Client().AppsV1().StatefulSets("default").Create(ctx, set, metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, c.WaitReadyPods(ctx, "default", 1))
	volume := n.Running()[0].Volumes[0]
	_, err = c.Kubectl(ctx, "scale", "statefulset", "app", "--replicas=0")
	kit.Must(t, err)
	attachments := func(check func(storagev1.VolumeAttachment) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			list, err := c.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) == 1 && check(list.Items[0]), err
		}
	}
	kit.Must(t, cluster.Until(ctx,
		attachments(func(va storagev1.VolumeAttachment) bool { return va.DeletionTimestamp != nil })))
	if got := c.Ledger().Attached(volume); len(got) != 1 || got[0] != "n1" {
		t.Errorf("attached to: got %v, want [n1]", got)
	}
	c.Attacher().SetDelays(0, 0)
	kit.Must(t, cluster.Until(ctx,
		func(context.Context) (bool, error) { return len(c.Ledger().Attached(volume)) == 0, nil }))
}

func TestStartFailureShowsLog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcd")
	}
	t.Parallel()
	_, err := cluster.Start(t.Context(), cluster.Options{EtcdArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error: got %v, want etcd's complaint", err)
	}
}

// A process that dies without calling Stop takes its children along.
func TestChildrenDieWithUs(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("starts a control plane; needs Pdeathsig")
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 4 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		kit.Must(t, err)
		pids = append(pids, pid)
	}
	kit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if len(pids) != 4 {
		t.Fatalf("children: got %v, want 4", pids)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, pid := range pids {
		kit.Must(t, cluster.Until(ctx, func(context.Context) (bool, error) { return !alive(pid), nil }))
	}
}

// orphanEnv makes the test's program start a cluster in that folder, print its processes and wait to be killed.
const orphanEnv = "FORCEFENCE_TEST_ORPHAN_DIR"

func orphan(dir string) int {
	c, err := cluster.Start(context.Background(), cluster.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, p := range c.Parts() {
		fmt.Println(p.PID())
	}
	select {}
}

// alive takes a zombie for dead: the process that inherits an orphan may not reap it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

// The cluster is not shared: its API server goes away.
func TestAPIServerOutage(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	pids := map[string]int{}
	for _, p := range c.Parts() {
		pids[p.Name()] = p.PID()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	n, err := c.AddNode(ctx, cluster.NodeOptions{Name: "n1"})
	kit.Must(t, err)
	ns, err := c.CreateNamespace(ctx, "test")
	kit.Must(t, err)
	set := cluster.Workload{Namespace: ns, Name: "app", Replicas: 2, Volume: true}.StatefulSet()
	_, err = c.Client().AppsV1().StatefulSets(ns).Create(ctx, set, metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, c.WaitReadyPods(ctx, ns, 2))

	begun := time.Now()
	c.APIServer().Stop()
	if c.APIServer().PID() != 0 {
		t.Fatal("API server still runs")
	}
	t.Logf("API server stopped in %s", time.Since(begun).Round(time.Millisecond))
	if got := len(n.Running()); got != 2 {
		t.Errorf("running without API server: got %d, want 2", got)
	}
	begun = time.Now()
	kit.Must(t, c.APIServer().Start(ctx))
	t.Logf("API server started in %s", time.Since(begun).Round(time.Millisecond))
	pids["kube-apiserver again"] = c.APIServer().PID()
	_, err = c.Kubectl(ctx, "-n", ns, "delete", "pod", "app-0", "--wait=false")
	kit.Must(t, err)
	// The scheduler may crash here and come back: app-0 was replaced before its watch returned.
	kit.Must(t, cluster.Until(ctx, func(context.Context) (bool, error) {
		runs := n.Running()
		return len(runs) == 2 && runs[0].Since.After(begun), nil
	}))
	t.Logf("the scheduler restarted %d times", c.Scheduler().Restarts())
	if v := c.Ledger().Violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}

	begun = time.Now()
	kit.Must(t, c.APIServer().Pause())
	c.Stop()
	t.Logf("all stopped in %s, API server paused", time.Since(begun).Round(time.Millisecond))
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s (pid %d) is alive after Stop", name, pid)
		}
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("folder %s: got %v, want it gone", c.Dir(), err)
	}
}
