//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/csi"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes"
)

const (
	probeImage = "forcefence.test/probe:1"
	nodeImage  = "forcefence.test/forcefence-node:1"

	previousImage = "forcefence.test/forcefence-node:0" // the version that people upgrade from

	bmcAnnotation = "example.com/bmc"
	tolerate      = "forcefence.io/tolerate-missing"
	guard         = "ForcefenceGuard"

	stepTimeout = 3 * time.Minute // on a busy machine; the attach/detach controller looks once a minute
)

// line is one that the probe wrote (test/e2e/probe).
type line struct {
	Time                 time.Time
	Node, Boot, Pod, UID string
	Count                int
	Sum, Fault           string
}

// world is three real nodes with their machines, volumes, the hook and the controller. Scenarios are played in it one
// after the other.
type world struct {
	t          *testing.T // of the scenario that runs
	c          *cluster.Cluster
	site       *nodes.Site
	csi        *csi.Driver
	storage    *disks
	fence      *cluster.Part
	config     string // the controller's configuration file
	settings   string // what it says in all scenarios
	dir        string
	shared     string // storage that every node sees: the probe's log and locks
	ns         string
	n1, n2, n3 *nodes.Node
	accepted   []string // identities that a policy may double
}

func newWorld(t *testing.T) *world {
	nodes.Need(t)
	ctx := t.Context()
	w := &world{t: t, dir: t.TempDir()}
	w.c = cluster.ForTest(t, cluster.Options{NodeGrace: nodes.NodeGrace})
	w.shared = t.TempDir()
	source := filepath.Join(w.dir, "source")
	t.Logf("the previous version is %s", kit.Previous(t, source))
	images := []string{nodes.Image(t, probeImage, kit.BuildProgram(t, "test/e2e/probe")),
		nodes.Image(t, nodeImage, kit.BuildProgram(t, "cmd/forcefence-node")),
		nodes.Image(t, previousImage, kit.BuildProgramOf(t, source, "previous", "cmd/forcefence-node"))}
	w.site = nodes.NewSite(t,
		nodes.Options{Cluster: w.c, Images: images, Shared: map[string]string{w.shared: w.shared}},
		datacenter.Options{}, filepath.Join(w.shared, "volumes"))
	w.csi = w.site.CSI
	var err error
	w.ns, err = w.c.CreateNamespace(ctx, "e2e")
	w.must(err)
	static, err := yaml.Marshal(
		w.pod("static", func(p *corev1.Pod) { p.Annotations = map[string]string{tolerate: "true"} }))
	w.must(err)
	all := w.site.AddNodes(t, []string{"n1", "n2", "n3"},
		func(o *nodes.NodeOptions) { o.StaticPods = map[string][]byte{"static": static} })
	w.n1, w.n2, w.n3 = all[0], all[1], all[2]
	w.kubectl("label", "node", "--all", "world=e2e")
	for name, bmc := range w.site.BMCs {
		w.kubectl("annotate", "node", name, bmcAnnotation+"="+bmc.URL())
	}
	w.installHook()
	w.storage = w.newDisks()
	w.controller()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) nodes() []*nodes.Node { return []*nodes.Node{w.n1, w.n2, w.n3} }

// controller starts forcefence in mode observe: who is on is left alone.
func (w *world) controller() {
	w.t.Helper()
	file := func(name string) string { return filepath.Join(w.dir, name) }
	w.must(w.site.Racks.WriteCA(file("ca.pem")))
	w.must(os.WriteFile(file("password"), []byte(w.site.Racks.Password()), 0o600))
	ip, err := kit.FreePodIP()
	w.must(err)
	w.config = file("config.yaml")
	w.settings = fmt.Sprintf(`mode: observe
listen: {metrics: ""}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 500ms}
providers:
- name: racks
  timeout: 2s
  ratePerSecond: 100
  redfish: {username: fence, passwordFile: "%[1]s/password", caFile: "%[1]s/ca.pem"}
nodes:
- name: machines
  selector: world=e2e
  provider: racks
  machine: {from: annotation, annotation: %[2]s, allow: [127.0.0.1]}
%[3]s`, w.dir, bmcAnnotation, w.policies())
	w.must(os.WriteFile(w.config, []byte(w.settings), 0o600))
	w.fence = w.c.Forcefence(kit.BuildProgram(w.t, "cmd/forcefence"), w.dir, w.c.Kubeconfig(), ip)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			text, _ := os.ReadFile(w.fence.LogFile())
			w.t.Logf("forcefence printed:\n%s", text[max(0, len(text)-20000):])
		}
		w.fence.Stop()
	})
	w.must(w.fence.Start(w.t.Context()))
}

// installHook puts the hook on every node, lets the runtimes require it, and waits until every Node says fail-closed.
func (w *world) installHook() {
	w.t.Helper()
	w.hookDaemonSet()
	for _, n := range w.nodes() {
		w.until(n.Name()+" has the hook", func() bool { return w.guardOf(n) != "" })
		w.must(n.RestartContainerd()) // required_plugins and the pre-installed plugin are read at its start
	}
	for _, n := range w.nodes() {
		w.until(n.Name()+" is fail-closed", func() bool { return w.guardOf(n) == "FailClosed" })
	}
}

func (w *world) guardOf(n *nodes.Node) string {
	for _, c := range w.node(n).Status.Conditions {
		if c.Type == guard {
			return c.Reason
		}
	}
	return ""
}

// pod runs the probe; change it before it is created.
func (w *world) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	folder := corev1.HostPathDirectory
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			EnableServiceLinks: new(false),
			Containers: []corev1.Container{{
				Name: "probe", Image: probeImage, ImagePullPolicy: corev1.PullNever, Args: []string{w.shared},
				Env: []corev1.EnvVar{
					{Name: "NODE", ValueFrom: field("spec.nodeName")},
					{Name: "NAMESPACE", ValueFrom: field("metadata.namespace")},
					{Name: "POD", ValueFrom: field("metadata.name")},
					{Name: "POD_UID", ValueFrom: field("metadata.uid")},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: w.shared}},
			}},
			Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: w.shared, Type: &folder},
			}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func on(n *nodes.Node) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = n.Name() } }

// tolerant pods are exempt by a toleration, and carry the annotation that lets them start without the hook.
func tolerant(p *corev1.Pod) {
	p.Annotations = map[string]string{tolerate: "true"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}}
}

// create binds a pod to a node at once, past the scheduler.
func (w *world) create(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	p, err := w.c.Client().CoreV1().Pods(w.ns).Create(w.t.Context(), p, metav1.CreateOptions{})
	w.must(err)
	return p
}

// volume makes one, and a pod that mounts it at /data and writes there; change it before it is created.
func (w *world) volume(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	w.csi.NewVolume(w.t, name)
	p := w.pod(name, change...)
	c := &p.Spec.Containers[0]
	c.Args = append(c.Args, "/data")
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	return p
}

// claim is for the volume of that name.
func claim(volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(csi.StorageClass),
		VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Mi")}},
	}
}

// database is a StatefulSet of one with a volume, whose first pod runs on that node.
func (w *world) database(name string, n *nodes.Node, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.volume(name, change...)
	var pod *corev1.Pod
	w.only(n, func() {
		w.statefulSet(name, p, data(name))
		pod = w.running(name+"-0", "")
	})
	if pod.Spec.NodeName != n.Name() {
		w.t.Fatalf("%s runs on %s", pod.Name, pod.Spec.NodeName)
	}
	return pod
}

// only lets the scheduler choose that node alone meanwhile.
func (w *world) only(n *nodes.Node, do func()) {
	w.t.Helper()
	for _, verb := range []string{"cordon", "uncordon"} {
		for _, other := range w.nodes() {
			if other != n {
				w.kubectl(verb, other.Name())
			}
		}
		if verb == "cordon" {
			do()
		}
	}
}

// statefulSet makes one of the pod; change it before it is created.
func (w *world) statefulSet(name string, p *corev1.Pod, change ...func(*appsv1.StatefulSetSpec)) {
	w.t.Helper()
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
		ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec},
	}}
	for _, f := range change {
		f(&s.Spec)
	}
	_, err := w.c.Client().AppsV1().StatefulSets(w.ns).Create(w.t.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

// data is the volume of that name, for the pod's mount data.
func data(volume string) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claim(volume)}}
	}
}

// running waits for a pod of that name, or with a name that begins so where that ends with a dash. It runs, has
// written, and is not the one with that UID.
func (w *world) running(name string, not types.UID) (found *corev1.Pod) {
	w.t.Helper()
	w.until(name+" runs", func() bool {
		list, err := w.c.Client().CoreV1().Pods(w.ns).List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		for i := range list.Items {
			p := &list.Items[i]
			named := p.Name == name || strings.HasSuffix(name, "-") && strings.HasPrefix(p.Name, name)
			if named && p.UID != not && p.Status.Phase == corev1.PodRunning && w.wrote(p, "") {
				found = p
			}
		}
		return found != nil
	})
	return found
}

// wrote reports whether the pod has written; on that boot, if one is given.
func (w *world) wrote(p *corev1.Pod, boot string) bool {
	w.t.Helper()
	return slices.ContainsFunc(w.lines(),
		func(l line) bool { return l.UID == string(p.UID) && (boot == "" || l.Boot == boot) })
}

// wroteAs is wrote for a pod whose UID the node makes up: a static one.
func (w *world) wroteAs(name, boot string) bool {
	w.t.Helper()
	return slices.ContainsFunc(w.lines(), func(l line) bool { return l.Pod == w.ns+"/"+name && l.Boot == boot })
}

// lines are all that probes wrote, in the order in which they did.
func (w *world) lines() []line {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.shared, "log"))
	if os.IsNotExist(err) {
		return nil
	}
	w.must(err)
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may still be on its way
	var out []line
	for written := range bytes.Lines(text) {
		var l line
		w.must(json.Unmarshal(written, &l))
		out = append(out, l)
	}
	return out
}

// count is the last one that a pod's identity wrote.
func (w *world) count(name string) (n int) {
	for _, l := range w.lines() {
		if l.Pod == w.ns+"/"+name {
			n = l.Count
		}
	}
	return n
}

// check is invariant 10 as the probes and the storage saw it: no lock had two holders, no writer wrote once another had
// begun, and no volume had two nodes.
func (w *world) check() {
	w.t.Helper()
	lines := slices.DeleteFunc(w.lines(), func(l line) bool { return slices.Contains(w.accepted, l.Pod) })
	for _, fault := range faults(lines) {
		kit.Harm(w.t, "%s", fault)
	}
	for _, v := range w.csi.Violations() {
		kit.Harm(w.t, "storage: %s", v)
	}
}

func faults(lines []line) (out []string) {
	type life struct{ node, boot, uid string }
	now, over := map[string]life{}, map[string]map[life]bool{}
	for _, l := range lines {
		at := life{l.Node, l.Boot, l.UID}
		if l.Fault != "" {
			out = append(out, fmt.Sprintf("%s on %s at %s: %s", l.Pod, l.Node, l.Time, l.Fault))
		}
		if over[l.Pod] == nil {
			over[l.Pod] = map[life]bool{}
		}
		if before, ok := now[l.Pod]; ok && before != at {
			over[l.Pod][before] = true
		}
		if over[l.Pod][at] {
			out = append(out,
				fmt.Sprintf("%s wrote on %s at %s after %s had taken over", l.Pod, l.Node, l.Time, now[l.Pod].node))
		}
		now[l.Pod] = at
	}
	return out
}

func (w *world) node(n *nodes.Node) *corev1.Node {
	w.t.Helper()
	node, err := w.c.Client().CoreV1().Nodes().Get(w.t.Context(), n.Name(), metav1.GetOptions{})
	w.must(err)
	return node
}

// mark is the node's mark as the hook shows it; "" if there is none.
func (w *world) mark(n *nodes.Node) string {
	w.t.Helper()
	m, ok := taint.FindMark(w.node(n), taint.DefaultKey, "")
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s=%s:%s", taint.DefaultKey, m.Value, m.Effect)
}

// untilEvicting waits until the fence has confirmed that the machine is off: a machine that is back before that is let
// alone.
func (w *world) untilEvicting(n *nodes.Node) {
	w.t.Helper()
	w.until("eviction of "+n.Name(), func() bool {
		rec, err := taint.RecordOf(w.node(n))
		return err == nil && rec.IsOpen() && rec.Phase == taint.PhaseEvicting
	})
}

// untilFree waits for the mark to go and returns when it was seen gone.
func (w *world) untilFree(n *nodes.Node) time.Time {
	w.t.Helper()
	w.until("no mark on "+n.Name(), func() bool { return w.mark(n) == "" })
	return time.Now()
}

func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
	defer cancel()
	if err := cluster.Until(ctx, func(context.Context) (bool, error) { return check(), nil }); err != nil {
		w.t.Fatalf("waiting for: %s: %v", what, err)
	}
}

// never checks that check stays false for that long.
func (w *world) never(what string, long time.Duration, check func() bool) {
	w.t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if check() {
			kit.Harm(w.t, "this must not be: %s", what)
			w.t.FailNow()
		}
	}
}

// held waits for the Event that tells a person why the pod does not start on that boot ("": any), and returns its text.
func (w *world) held(p *corev1.Pod, boot string) string {
	w.t.Helper()
	text := ""
	w.until(p.Name+" is held", func() bool {
		text = w.event(p, "FailedCreatePodSandBox", "forcefence: held on node")
		return text != ""
	})
	if w.wrote(p, boot) {
		kit.Harm(w.t, "%s runs, though it was held", p.Name)
		w.t.FailNow()
	}
	return text
}

// event is the text of an Event about the pod with that reason and word, or "".
func (w *world) event(p *corev1.Pod, reason, word string) string {
	w.t.Helper()
	list, err := w.c.Client().CoreV1().Events(w.ns).
		List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	w.must(err)
	for _, e := range list.Items {
		if e.Reason == reason && strings.Contains(e.Message, word) {
			return e.Message
		}
	}
	return ""
}

// told reports whether an object of that name has an Event with that reason.
func (w *world) told(name, reason string) bool {
	w.t.Helper()
	list, err := w.c.Client().CoreV1().Events("").
		List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	w.must(err)
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason })
}

func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	out, err := w.c.Kubectl(w.t.Context(), args...)
	if err != nil {
		w.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// cut takes the node's power and tells the storage that what was mounted there is mounted no more.
func (w *world) cut(n *nodes.Node) {
	w.t.Helper()
	boot := n.BootID()
	n.PowerCut()
	w.must(w.csi.PowerCut(n.Name(), boot))
}
