package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// version is a program and its chart.
type version struct {
	name, binary, chart string
}

// TestRollover upgrades the release in the middle of a fence, and rolls it back in the middle of another: from the
// previous version's chart and program to this one's, and back. At each turn the one that leads goes on with the
// other's rights, policies and definition, as it does while Kubernetes replaces the pods; then the other takes over.
func TestRollover(t *testing.T) {
	dir := t.TempDir()
	now := version{name: "this", binary: build(t, dir, "forcefence"), chart: chart}
	source := filepath.Join(dir, "source")
	commit := kit.Previous(t, source)
	t.Logf("the previous version is %s", commit)
	before := version{name: "previous", binary: filepath.Join(dir, "previous"),
		chart: filepath.Join(source, "deploy/helm/forcefence")}
	kit.GoBuild(t, source, "./cmd/forcefence", before.binary)

	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	r := &rollover{world: w, dir: dir, hosts: w.machines(dir, 5), values: valuesFile(t, rolloverValues)}
	r.fill()
	r.release("install", before, "--create-namespace")
	p := r.starts(before)

	// Its machine is On: the first leader powers it off, and no later one does so again.
	n3 := r.hosts["n3"]
	keep := r.staying(n3)
	w.c.Attacher().SetDelays(0, time.Hour)
	n3.StopHeartbeats()
	id := r.evicting(n3)
	r.goesOn(n3, p, before)
	hooks := r.hooks()
	r.release("upgrade", now)
	r.goesOn(n3, p, before)
	p = r.replaced(p, now)
	r.goesOn(n3, p, now)
	r.ends(n3, id, taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone)
	moved := r.untilMoved(n3)
	if got := n3.bmc.Count(http.MethodPost, "/redfish/v1/Systems/n3/Actions/ComputerSystem.Reset"); got != 1 {
		t.Errorf("power-offs of n3: got %d, want 1", got)
	}
	r.untouched(keep)
	// On the dead node the fence finishes what the DaemonSet's controller has begun. Its roll-out waits for that node,
	// as docs/upgrade.md says.
	others := r.hooks()
	delete(hooks, "n3")
	delete(others, "n3")
	if !maps.Equal(others, hooks) {
		t.Errorf("the hook's pods of the other nodes are %v, want those from before the upgrade, %v", others, hooks)
	}
	n3.machine.PowerOn()
	n3.ResumeHeartbeats()
	kit.Must(t, w.c.WaitNode(w.ctx, n3.Name(), cluster.IsReady))
	w.until("the hook's roll-out ends", func() (bool, error) {
		_, ds := w.objects(t)
		return ds.Status.UpdatedNumberScheduled == 5 && ds.Status.NumberReady == 5,
			fmt.Errorf("the DaemonSet says %+v", ds.Status)
	})

	// A drill writes what the former policies refuse: the label of who named the machine. On the way back this version
	// leads under them for a while, so no drill may have that left to write.
	w.until("drills of all nodes note who named their machines", func() (bool, error) {
		list, err := w.c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		lacks := slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return n.Labels[taint.NamedLabel] == "" })
		return len(list.Items) == len(r.hosts) && !lacks, nil
	})

	// The way back, with a machine that lost its power.
	n4 := r.hosts["n4"]
	keep = r.staying(n4)
	r.untouched(moved) // the first fence replaced them once
	w.c.Attacher().SetDelays(0, time.Hour)
	n4.machine.CutPower()
	id = r.evicting(n4)
	r.goesOn(n4, p, now)
	r.release("rollback", before)
	r.goesOn(n4, p, now)
	p = r.replaced(p, before)
	r.goesOn(n4, p, before)
	r.ends(n4, id, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone)
	moved = r.untilMoved(n4)
	r.untouched(keep)
	r.untouched(moved)

	p.Stop()
	if got := w.c.Ledger().Violations(); len(got) > 0 {
		t.Errorf("ran or was attached twice: %v", got)
	}
}

const rolloverValues = `image: {repository: registry.example.net/forcefence}
hook: {enabled: true}
config:
  mode: fence
  powerOffAfter: 20s
` + rackKeys

type rollover struct {
	*world
	dir, values string
	hosts       map[string]*host
	pods        int // of goesOn
}

// hooks returns the UID of the hook's pod on each node.
func (r *rollover) hooks() map[string]types.UID {
	r.t.Helper()
	list, err := r.c.Client().CoreV1().Pods("forcefence-node").List(r.ctx, metav1.ListOptions{})
	kit.Must(r.t, err)
	uids := map[string]types.UID{}
	for _, p := range list.Items {
		uids[p.Spec.NodeName] = p.UID
	}
	return uids
}

// fill puts work on n3 alone, which n4 may take over, and a pod on each of the two that stays through a fence.
func (r *rollover) fill() {
	r.t.Helper()
	api := r.c.Client()
	patch := func(node, text string) {
		_, err := api.CoreV1().Nodes().Patch(r.ctx, node, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		kit.Must(r.t, err)
	}
	_, err := api.CoreV1().Namespaces().
		Create(r.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
	kit.Must(r.t, err)
	patch("n3", `{"metadata":{"labels":{"pool":"work"}}}`)
	pool, apps := map[string]string{"pool": "work"}, api.AppsV1()
	sets := []cluster.Workload{{Name: "db", Replicas: 3, Volume: true, NodeSelector: pool}}
	for _, node := range []string{"n3", "n4"} {
		sets = append(sets,
			cluster.Workload{Name: "stays-" + node, Replicas: 1, Volume: true,
				NodeSelector: map[string]string{corev1.LabelHostname: node},
				Tolerations:  []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}})
	}
	for _, s := range sets {
		_, err = apps.StatefulSets("work").Create(r.ctx, s.StatefulSet(), metav1.CreateOptions{})
		kit.Must(r.t, err)
	}
	web, agent := cluster.Workload{Name: "web", Replicas: 2, NodeSelector: pool}, cluster.Workload{Name: "agent"}
	_, err = apps.Deployments("work").Create(r.ctx, web.Deployment(), metav1.CreateOptions{})
	kit.Must(r.t, err)
	_, err = apps.DaemonSets("work").Create(r.ctx, agent.DaemonSet(), metav1.CreateOptions{})
	kit.Must(r.t, err)
	kit.Must(r.t, r.c.WaitReadyPods(r.ctx, "work", 3+2+2+len(r.hosts)))
	patch("n4", `{"metadata":{"labels":{"pool":"work"}}}`)
}

// release has Helm do it, and waits until Kubernetes runs the version's pods and the policies are in force.
func (r *rollover) release(verb string, to version, more ...string) {
	r.t.Helper()
	args := append([]string{verb, "forcefence", "--namespace", namespace}, more...)
	if verb != "rollback" {
		args = append(args, to.chart, "--values", r.values, "--set", "image.tag="+to.name)
	}
	_, err := helm(r.t, r.c.Kubeconfig(), args...)
	kit.Must(r.t, err)
	r.until("both replicas are of the "+to.name+" version", func() (bool, error) {
		d, _ := r.objects(r.t)
		s := d.Status
		if !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":"+to.name) {
			return false, fmt.Errorf("the image is %s", d.Spec.Template.Spec.Containers[0].Image)
		}
		ready := s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 2 && s.AvailableReplicas == 2 &&
			s.Replicas == 2
		return ready, fmt.Errorf("the Deployment says %+v", s)
	})
	r.checked()
}

// starts runs a version's program as the Deployment's pods do: by the ConfigMap's file, with a token of the
// ServiceAccount.
func (r *rollover) starts(v version) *cluster.Part {
	r.t.Helper()
	return r.process(v.binary, r.dir, fmt.Sprintf("%s-%d", v.name, time.Now().UnixMilli()),
		func(metrics, _ string) string {
			var config map[string]any
			kit.Must(r.t, yaml.Unmarshal([]byte(r.world.config(r.t)), &config))
			config["listen"] = map[string]string{"metrics": metrics}
			text, err := yaml.Marshal(config)
			kit.Must(r.t, err)
			return strings.ReplaceAll(string(text), "/etc/forcefence-bmc/", r.dir+"/")
		})
}

// replaced has another version take over: it waits beside the leader, which then gets the signal to stop.
func (r *rollover) replaced(p *cluster.Part, by version) *cluster.Part {
	r.t.Helper()
	next := r.starts(by)
	p.Stop()
	text, err := os.ReadFile(p.LogFile())
	kit.Must(r.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			r.t.Errorf("%s missed a right: %s", p.Name(), line)
		}
	}
	return next
}

// evicting waits until a node's pods are being evicted, and returns the fence's id.
func (r *rollover) evicting(h *host) string {
	r.t.Helper()
	var rec *taint.Record
	r.until(h.Name()+" is evicted", func() (bool, error) {
		n, err := r.c.Client().CoreV1().Nodes().Get(r.ctx, h.Name(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if rec, err = taint.RecordOf(n); err != nil || rec == nil {
			return false, err
		}
		return rec.Phase == taint.PhaseEvicting, fmt.Errorf("phase %s", rec.Phase)
	})
	return rec.ID
}

// goesOn checks that a program leads and goes on with the fence: a new pod is ended on nothing but a new answer of the
// machine's.
func (r *rollover) goesOn(h *host, p *cluster.Part, v version) {
	r.t.Helper()
	r.pods++
	name := fmt.Sprintf("late-%d", r.pods)
	began := time.Now()
	_, err := r.c.Client().CoreV1().Pods("work").
		Create(r.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: h.Name(), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}},
		}}, metav1.CreateOptions{})
	kit.Must(r.t, err)
	r.until(fmt.Sprintf("%s ends %s", p.Name(), name), func() (bool, error) {
		list, err := r.c.Client().CoreV1().Pods("work").
			List(r.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0, err
	})
	l, err := r.c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(r.ctx, "forcefence", metav1.GetOptions{})
	kit.Must(r.t, err)
	if who := *l.Spec.HolderIdentity; who != p.Name() || !strings.HasPrefix(who, v.name) {
		r.t.Errorf("leader: got %s, want %s", who, p.Name())
	}
	r.t.Logf("%s ended a new pod of %s after %s", p.Name(), h.Name(), time.Since(began).Round(100*time.Millisecond))
}

// ends lets the volumes go, and checks that the fence is the one that began, with each phase once.
func (r *rollover) ends(h *host, id string, want ...taint.Phase) {
	r.t.Helper()
	r.c.Attacher().SetDelays(0, 0)
	rec := r.untilDone(h.Name(), taint.ResultEvicted)
	var got []taint.Phase
	for _, e := range r.fencing(id).Status.Timeline {
		got = append(got, taint.Phase(e.Phase))
	}
	if rec.ID != id || !slices.Equal(got, want) {
		r.t.Errorf("fence of %s: got %s with the phases %v, want %s with %v", h.Name(), rec.ID, got, id, want)
	}
}

// fencing is the record of a fence once it says that it is over.
func (r *rollover) fencing(id string) (found api.Fencing) {
	r.t.Helper()
	r.until("the Fencing of "+id+" is finished", func() (bool, error) {
		out, err := r.c.Kubectl(r.ctx, "get", "fcg", "-l", api.FenceLabel+"="+id, "-o", "json")
		if err != nil {
			return false, err
		}
		var list api.FencingList
		kit.Must(r.t, json.Unmarshal([]byte(out), &list))
		if len(list.Items) != 1 {
			return false, fmt.Errorf("there are %d", len(list.Items))
		}
		found = list.Items[0]
		return found.Status.FinishedAt != nil, fmt.Errorf("%+v", found.Status)
	})
	return found
}

// staying returns the pods of a node that a fence leaves alone, except those of the hook, which Helm itself replaces.
func (r *rollover) staying(h *host) (out []*corev1.Pod) {
	r.t.Helper()
	for _, p := range r.c.ReadyPods("work") {
		if p.Spec.NodeName == h.Name() && taint.ExemptionOf(p, key) != taint.NotExempt {
			out = append(out, p)
		}
	}
	if len(out) != 2 {
		r.t.Fatalf("%d pods of %s are exempt, want those of agent and stays-%[2]s", len(out), h.Name())
	}
	return out
}

func (r *rollover) untouched(pods []*corev1.Pod) {
	r.t.Helper()
	for _, p := range pods {
		got, err := r.c.Client().CoreV1().Pods("work").Get(r.ctx, p.Name, metav1.GetOptions{})
		if err != nil || got.UID != p.UID || got.DeletionTimestamp != nil || got.Status.Phase != corev1.PodRunning {
			r.t.Errorf("pod %s: got %+v, %v, want it as it was", p.Name, got, err)
		}
	}
}

// untilMoved waits until db and web run elsewhere, and returns their pods.
func (r *rollover) untilMoved(h *host) (pods []*corev1.Pod) {
	r.t.Helper()
	r.until("the pods of "+h.Name()+" run elsewhere", func() (bool, error) {
		pods = slices.DeleteFunc(r.c.ReadyPods("work"), func(p *corev1.Pod) bool {
			return p.Spec.NodeName == h.Name() || taint.ExemptionOf(p, key) != taint.NotExempt
		})
		return len(pods) == 5, fmt.Errorf("%d of 5 do", len(pods))
	})
	return pods
}
