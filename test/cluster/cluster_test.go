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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// TestPodsAndVolumes plays simulated kubelets and the CSI driver with the real controllers.
func TestPodsAndVolumes(t *testing.T) {
	if shared == nil {
		t.Skip("needs a control plane")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	api := shared.Client().CoreV1()
	ns, err := shared.CreateNamespace(ctx, "test")
	kit.Must(t, err)
	nodes, err := shared.AddNodes(ctx, 2, func(i int) cluster.NodeOptions {
		return cluster.NodeOptions{Name: fmt.Sprintf("%s-n%d", ns, i)}
	})
	kit.Must(t, err)
	defer func() {
		for _, n := range nodes {
			kit.Must(t, n.Remove(context.Background()))
		}
	}()
	until := func(what string, so func() bool) {
		t.Helper()
		if err := cluster.Until(ctx, func(context.Context) (bool, error) { return so(), nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	node := func(n *cluster.Node) corev1.NodeStatus {
		t.Helper()
		o, err := api.Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
		kit.Must(t, err)
		return o.Status
	}
	app := cluster.Workload{Namespace: ns, Name: "app", Replicas: 3, Volume: true}
	kit.Must(t, shared.Create(ctx, app.StatefulSet()))
	kit.Must(t, shared.WaitReadyPods(ctx, ns, 3))
	ran := 0
	for _, n := range nodes {
		runs, status := n.Running(), node(n)
		ran += len(runs)
		for _, r := range runs {
			if r.Identity != ns+"/"+r.Name || len(r.Volumes) != 1 {
				t.Errorf("run %+v: want an identity and one volume", r)
			}
		}
		if len(status.VolumesInUse) != len(runs) || len(status.VolumesAttached) != len(runs) ||
			status.NodeInfo.BootID != n.BootID() || status.NodeInfo.SystemUUID != n.SystemUUID() {
			t.Errorf("node %s: status %+v, want %d volumes in use and attached", n.Name(), status, len(runs))
		}
		_, err := api.Nodes().Patch(ctx, n.Name(), types.MergePatchType, []byte(`{"status":{"volumesInUse":null}}`),
			metav1.PatchOptions{}, "status")
		kit.Must(t, err)
		until("the list is whole again", func() bool { return len(node(n).VolumesInUse) == len(runs) })
	}
	if ran != 3 {
		t.Fatalf("running: got %d, want 3", ran)
	}
	old, err := api.Pods(ns).Patch(ctx, "app-0", types.StrategicMergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	until("a replacement runs instead of the ended pod", func() bool {
		runs := shared.Ledger().Running()
		return len(runs) == 3 && runs[0].Name == "app-0" && runs[0].UID != old.UID
	})
	_, err = shared.Kubectl(ctx, "-n", ns, "scale", "statefulset", "app", "--replicas=0")
	kit.Must(t, err)
	until("graceful deletion", func() bool { return len(shared.Pods(ns)) == 0 })
	for _, n := range nodes {
		until("volumes are detached", func() bool {
			status := node(n)
			return len(status.VolumesInUse) == 0 && len(status.VolumesAttached) == 0 && len(n.Running()) == 0
		})
	}
	if v := shared.Ledger().Violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestStartFailureShowsLog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel()
	_, err := cluster.Start(t.Context(), cluster.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error: got %v, want the API server's complaint", err)
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
	kit.Must(t, c.Create(ctx, cluster.Workload{Namespace: ns, Name: "app", Replicas: 2, Volume: true}.StatefulSet()))
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
