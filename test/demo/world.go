package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	nodeCount = 6
	namespace = "shop"

	// bmcAnnotation is how a Node names its BMC here; the configuration says so.
	bmcAnnotation = "example.net/bmc"

	podStart = 100 * time.Millisecond // of a pod's containers
	attach   = 200 * time.Millisecond // of a volume, as of detaching it
	slow     = 8 * time.Second        // of detaching in round 3
	bmcTakes = time.Second            // from an accepted ForceOff until the machine is off
)

// The workloads. The names make forcefence, which goes by name among equals, begin with the database.
const (
	dbPods    = 20
	queuePods = 80
	webPods   = 10
	movable   = dbPods + queuePods + webPods
	allPods   = movable + nodeCount // with the DaemonSet's
)

// World is all that the demo runs: a data centre in software, a real control plane with simulated kubelets on it, and
// forcefence.
type World struct {
	out      string // folder for what the demo leaves behind
	power    Power
	machines map[string]Machine // by node
	settings string             // of the configuration's provider
	rule     string             // the machine of its rule
	c        *cluster.Cluster
	watch    *Watch
	fence    *cluster.Part // nil until it was started

	mode string // in the configuration file
	page int    // of its status page

	mu   sync.Mutex // guards what Power calls
	call func(node string, at time.Time, on bool)
}

// files the demo leaves behind.
func (w *World) file(name string) string { return filepath.Join(w.out, name) }

// begin prepares the folder and the data centre.
func begin(ctx context.Context, out, power string) (*World, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	w := &World{out: out, machines: map[string]Machine{}, mode: "observe"}
	for _, old := range []string{
		"cluster", "timeline.json", "objects.json", "forcefence.log", "config.yaml", "kubeconfig", "bmc-password",
		"bmc-ca.pem"} {
		if err := os.RemoveAll(w.file(old)); err != nil {
			return nil, err
		}
	}
	w.power, err = newPower(ctx, power)
	return w, err
}

// startControlPlane builds the programs, if they are not in the cache, and starts them.
func (w *World) startControlPlane(ctx context.Context) (err error) {
	w.c, err = cluster.Start(ctx, cluster.Options{
		Dir: w.file("cluster"), NodeGrace: cluster.FastNodeGrace, AttachDelay: attach, DetachDelay: attach,
	})
	if err != nil {
		return err
	}
	if _, err := os.Stat(fencings); err == nil { // make demo runs where it is
		if _, err := w.c.Kubectl(ctx, "apply", "--server-side", "-f", fencings); err != nil {
			return err
		}
	}
	return w.c.WriteKubeconfig(w.file("kubeconfig"), "demo", "system:masters")
}

// fencings is the definition of the objects that tell what became of each fence.
const fencings = "deploy/kustomize/base/forcefence.io_fencings.yaml"

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// addNodes makes the machines and a node on each, which lives and dies with its machine's power.
func (w *World) addNodes(ctx context.Context) error {
	for i := range nodeCount {
		m, err := w.power.Add(ctx, nodeName(i))
		if err != nil {
			return err
		}
		w.machines[m.Name()] = m
	}
	_, err := w.c.AddNodes(ctx, nodeCount, func(i int) cluster.NodeOptions {
		m := w.machine(nodeName(i))
		o := cluster.NodeOptions{Name: m.Name(), SystemUUID: m.SystemUUID(), BootID: m.BootID(), StartDelay: podStart}
		if a := m.Address(); a != "" {
			o.Annotations = map[string]string{bmcAnnotation: a}
		}
		return o
	})
	if err != nil {
		return err
	}
	for _, m := range w.machines {
		node := w.c.Node(m.Name())
		m.OnChange(func(on bool) {
			w.onPower(m.Name(), time.Now(), on)
			if on {
				node.PowerOn(m.BootID())
			} else {
				node.PowerOff()
			}
		})
	}
	w.watch, err = newWatch(ctx, w.c.RESTConfig())
	return err
}

// OnPower has f called with every machine that loses or gets its power, before its node does.
func (w *World) OnPower(f func(node string, at time.Time, on bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call = f
}

func (w *World) onPower(node string, at time.Time, on bool) {
	w.mu.Lock()
	f := w.call
	w.mu.Unlock()
	if f != nil {
		f(node, at, on)
	}
}

func (w *World) machine(node string) Machine { return w.machines[node] }

// config is the configuration file as a user would write it.
func (w *World) config() string {
	return fmt.Sprintf(`# As a user would write it. Every key is explained in config.example.yaml.
mode: %s
powerOffAfter: 20s
powerOffTimeout: 30s
detachTimeout: 1m
listen:
  metrics: ""
  status: 127.0.0.1:%d
providers:
- name: racks
  timeout: 2s
  %s
nodes:
- name: workers
  provider: racks
  machine: %s
`, w.mode, w.page, w.settings, w.rule)
}

// setMode edits the configuration file as an editor does: a new file takes the old one's place.
func (w *World) setMode(mode string) error {
	w.mode = mode
	tmp := w.file("config.yaml.new")
	if err := os.WriteFile(tmp, []byte(w.config()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, w.file("config.yaml"))
}

// startForcefence starts the real program and returns once it leads.
func (w *World) startForcefence(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(bin); err != nil {
		return fmt.Errorf("finding the forcefence program (make build makes it): %w", err)
	}
	if err := kit.FreePorts(&w.page); err != nil {
		return err
	}
	if w.settings, w.rule, err = w.power.Prepare(w.out); err != nil {
		return err
	}
	if err := w.setMode("observe"); err != nil {
		return err
	}
	ip, err := kit.FreePodIP()
	if err != nil {
		return err
	}
	w.fence = w.c.Forcefence(bin, w.out, w.file("kubeconfig"), ip)
	return w.fence.Start(ctx)
}

// letLook gives the users of the demo's kubeconfig an account for the status page, as
// deploy/kustomize/components/status does.
func (w *World) letLook(ctx context.Context) error {
	for _, args := range [][]string{
		{"create", "serviceaccount", "forcefence-status"},
		{"create", "clusterrole", "forcefence-status", "--verb=get", "--non-resource-url=/forcefence/status"},
		{"create", "clusterrolebinding", "forcefence-status", "--clusterrole=forcefence-status",
			"--serviceaccount=default:forcefence-status"},
	} {
		if _, err := w.c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// dump writes what the API server knows, for a look into a failure. It does without if the API server does not answer.
func (w *World) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if out, err := w.c.Kubectl(ctx, "get", "nodes,pods,volumeattachments,events", "-A", "-o", "json",
		"--show-managed-fields"); err == nil {
		_ = os.WriteFile(w.file("objects.json"), []byte(out), 0o644)
	}
}

// stop ends everything that begin and the others started, and waits.
func (w *World) stop() {
	if w.fence != nil {
		w.fence.Stop()
	}
	if w.watch != nil {
		w.watch.Stop()
	}
	w.power.Close()
	if w.c != nil {
		w.c.Stop()
	}
}

// createWorkloads creates the pods' owners.
func (w *World) createWorkloads(ctx context.Context) error {
	apps := w.c.Client().AppsV1()
	_, err := w.c.Client().CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	db := cluster.Workload{Namespace: namespace, Name: "db", Replicas: dbPods, Volume: true}.StatefulSet()
	db.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	queue := cluster.Workload{Namespace: namespace, Name: "queue", Replicas: queuePods}.StatefulSet()
	for _, s := range []*appsv1.StatefulSet{db, queue} {
		if _, err := apps.StatefulSets(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create StatefulSet: %w", err)
		}
	}
	web := cluster.Workload{Namespace: namespace, Name: "web", Replicas: webPods}.Deployment()
	if _, err := apps.Deployments(namespace).Create(ctx, web, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Deployment: %w", err)
	}
	agent := cluster.Workload{Namespace: namespace, Name: "agent"}.DaemonSet()
	if _, err := apps.DaemonSets(namespace).Create(ctx, agent, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create DaemonSet: %w", err)
	}
	return nil
}

// gather brings all movable pods to one node: the others are cordoned, their pods are deleted as by kubectl drain (or
// created, by create), and come up on the only node that is left.
func (w *World) gather(ctx context.Context, node string, create func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not done after %s", 2*patience))
	defer cancel()
	if err := w.cordon(ctx, node, true); err != nil {
		return err
	}
	w.c.Attacher().SetDelays(0, 0) // this part is not shown
	if create != nil {
		if err := create(ctx); err != nil {
			return err
		}
	}
	for _, p := range w.c.Pods(namespace) {
		if p.Spec.NodeName == node || daemon(p) {
			continue
		}
		err := w.c.Client().CoreV1().Pods(namespace).
			Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil {
			return fmt.Errorf("moving pod %s: %w", p.Name, err)
		}
	}
	var last string
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		here := 0
		for _, p := range w.c.ReadyPods(namespace) {
			if p.Spec.NodeName == node && !daemon(p) {
				here++
			}
		}
		if last = w.discrepancy(); last == "" && here != movable {
			last = fmt.Sprintf("%d of %d pods are on %s", here, movable, node)
		}
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("gathering pods on %s: %s: %w", node, last, err)
	}
	w.c.Attacher().SetDelays(attach, attach)
	return w.cordon(ctx, node, false)
}

// cordon cordons all nodes but one, or uncordons them.
func (w *World) cordon(ctx context.Context, but string, on bool) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"unschedulable": on}})
	if err != nil {
		return err
	}
	for _, n := range w.c.Nodes() {
		if n.Name() == but {
			continue
		}
		_, err := w.c.Client().CoreV1().Nodes().
			Patch(ctx, n.Name(), types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("cordoning %s: %w", n.Name(), err)
		}
	}
	return nil
}

func daemon(p *corev1.Pod) bool {
	ref := metav1.GetControllerOf(p)
	return ref != nil && ref.Kind == "DaemonSet"
}

// victims are the pods of a node that are to be moved when it dies, with the attachments of their volumes.
func (w *World) victims(ctx context.Context, node string) ([]Victim, error) {
	attachments, err := w.attachments(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := w.c.Client().CoreV1().Pods(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var out []Victim
	for i := range pods.Items {
		p := &pods.Items[i]
		if daemon(p) {
			continue
		}
		v := Victim{Name: p.Name, UID: p.UID}
		for _, a := range attachments {
			if a.node == node && a.pod == p.Name {
				v.Attachments = append(v.Attachments, a.uid)
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// attachment is a VolumeAttachment, and the pod whose claim its volume belongs to.
type attachment struct {
	uid       types.UID
	node, pod string
	deleting  bool
}

func (w *World) attachments(ctx context.Context) ([]attachment, error) {
	list, err := w.c.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volume attachments: %w", err)
	}
	volumes, err := w.c.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	pods := map[string]string{}
	for _, v := range volumes.Items {
		if ref := v.Spec.ClaimRef; ref != nil {
			pods[v.Name] = strings.TrimPrefix(ref.Name, "data-") // a StatefulSet names a claim by template and pod
		}
	}
	var out []attachment
	for _, va := range list.Items {
		a := attachment{uid: va.UID, node: va.Spec.NodeName, deleting: va.DeletionTimestamp != nil}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			a.pod = pods[*pv]
		}
		out = append(out, a)
	}
	return out, nil
}

// discrepancy compares what really runs on the machines with what the API server says, and returns the first
// difference: "" if every pod of every workload is Ready and runs exactly once, where it should.
func (w *World) discrepancy() string {
	runs := map[types.UID][]string{}
	for _, r := range w.c.Ledger().Running() {
		if r.Namespace == namespace {
			runs[r.UID] = append(runs[r.UID], r.Node)
		}
	}
	return compare(w.c.Pods(namespace), w.c.ReadyPods(namespace), runs)
}

// compare is discrepancy's rule: pods are the API server's, ready those of them that are Ready and stay, runs the nodes
// that each UID runs on.
func compare(pods, ready []*corev1.Pod, runs map[types.UID][]string) string {
	stays := map[types.UID]bool{}
	for _, p := range ready {
		stays[p.UID] = true
	}
	counts := map[string]int{}
	known := map[types.UID]bool{}
	for _, p := range pods {
		known[p.UID] = true
		on := runs[p.UID]
		switch {
		case !stays[p.UID]:
			return fmt.Sprintf("pod %s on %s is not Ready, or is going", p.Name, p.Spec.NodeName)
		case len(on) != 1:
			return fmt.Sprintf("pod %s runs on %d machines %v", p.Name, len(on), on)
		case on[0] != p.Spec.NodeName:
			return fmt.Sprintf("pod %s runs on %s, the API server says %s", p.Name, on[0], p.Spec.NodeName)
		}
		counts[p.Labels["app"]]++
	}
	for uid, on := range runs {
		if !known[uid] {
			return fmt.Sprintf("a pod that the API server does not know runs on %v (UID %s)", on, uid)
		}
	}
	for _, want := range []struct {
		app  string
		pods int
	}{{"db", dbPods}, {"queue", queuePods}, {"web", webPods}, {"agent", nodeCount}} {
		if counts[want.app] != want.pods {
			return fmt.Sprintf("%s has %d pods, want %d", want.app, counts[want.app], want.pods)
		}
	}
	return ""
}

// racks is the picture's content: power is the machines' own, pods are what really runs.
func (w *World) racks(ctx context.Context, remarks map[string]string) ([]Rack, error) {
	attachments, err := w.attachments(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := w.c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []Rack
	for i := range nodes.Items {
		n := &nodes.Items[i]
		r := Rack{Node: n.Name, Power: w.machine(n.Name).State(), Ready: "NotReady", Mark: "-", Remark: remarks[n.Name]}
		if isTrue(n, corev1.NodeReady) {
			r.Ready = "Ready"
		}
		if marked(n) {
			r.Mark = "yes"
		}
		r.Pods = len(w.c.Node(n.Name).Running())
		for _, a := range attachments {
			if a.node == n.Name {
				r.Volumes++
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Rack) int { return strings.Compare(a.Node, b.Node) })
	return out, nil
}
