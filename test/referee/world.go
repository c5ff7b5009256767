package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/peers"
	"github.com/forcefence/forcefence/test/referee/judge"
	testworld "github.com/forcefence/forcefence/test/world"
)

// world is a cluster with three nodes that stay, and the judged beside it. In it one run follows the other.
type world struct {
	*testworld.World
	ctx     context.Context
	dir     string
	o       options
	system  system
	command string // of forcefence, or of its mutant
	config  string // of rows that have none of their own
	dynamic dynamic.Interface
	say     func(string, ...any)
	power   *testworld.Redfish
	peers   *peers.Peers      // of a peer
	systems map[string]string // by node: its machine's address, of nodes that may be fenced
	slots   []*slot
	writes  int // of a fence without faults; 0: not known yet
	lagging lagging
	beside  bool // there are the neighbours' kinds, and forcefence's rights on them
	wg      sync.WaitGroup
	faults  atomic.Pointer[faults] // nil: none
	accounts

	hits atomic.Int64 // faults that were injected

	mu  sync.Mutex // guards the rest
	rng *rand.Rand
}

// chance draws; safe for concurrent use.
func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

const (
	namespace = "forcefence-system"
	recordKey = "forcefence.io/fence" // an annotation, from the public documents

	// foreign names the label, annotation and taint on each Node that the judged must leave alone.
	foreign = judge.ForeignKey
)

// bystanders are the nodes that stay.
var bystanders = []string{"n1", "n2", "n3"}

// startWorld returns one in which runs may begin. The caller ends ctx, then calls stop, also after an error.
func startWorld(ctx context.Context, dir, config string, s system, o options, say func(string, ...any)) (
	*world, error,
) {
	w := &world{ctx: ctx, dir: dir, o: o, system: s, systems: map[string]string{}, command: o.command, config: config,
		say: say, rng: rand.New(rand.NewPCG(0, 0))}
	w.history.last = map[string]judge.Version{}
	if err := os.WriteFile(w.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return w, err
	}
	for _, server := range []string{"main", "lagging"} {
		w.audits = append(w.audits, &judge.AuditLog{File: w.path("audit-" + server + ".log")})
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: w.path("cluster"), KeepSpans: true, APIServerArgs: []string{
		"--audit-policy-file=" + w.path("audit.yaml"), "--audit-log-path=" + w.audits[0].File,
		"--audit-log-maxsize=100000", "--audit-log-mode=blocking"}})
	if err != nil {
		return w, err
	}
	w.power = testworld.NewRedfish(datacenter.Options{Username: "referee", RequestLog: 1 << 20})
	w.power.OneBMC = true
	w.World = testworld.New(c, w.power)
	c.Watch(w.history.see)
	w.wg.Go(func() { w.stalls.watch(ctx) })
	if err := w.addHosts(ctx, bystanders...); err != nil {
		return w, err
	}
	w.bmc().SetFault(datacenter.Fault{NoEvents: true}) // the judged are to ask
	if _, _, err := w.power.Prepare(dir); err != nil {
		return w, err
	}
	if w.dynamic, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		return w, err
	}
	return w, w.addSlots(ctx)
}

// writeConfig writes forcefence's configuration of a run.
func (w *world) writeConfig(f *faults) error {
	text := w.words(w.slots[0]).Replace(cmp.Or(f.config, w.config))
	return os.WriteFile(w.path("config.yaml"), []byte(text), 0o600)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// addSlots installs the system and gives each of its programs a proxy to the API server, which speaks with the rights
// of the program's ServiceAccount.
func (w *world) addSlots(ctx context.Context) error {
	if w.system.install == nil {
		return nil
	}
	programs, err := w.system.install(ctx, w)
	if err != nil {
		return err
	}
	authority, roots := kit.NewAuthority("referee"), x509.NewCertPool()
	roots.AppendCertsFromPEM(w.RESTConfig().CAData)
	if err := authority.WriteCA(w.path("ca.crt")); err != nil {
		return err
	}
	for _, p := range programs {
		s := &slot{w: w, program: p}
		if s.podIP, err = kit.FreePodIP(); err != nil {
			return err
		}
		if s.proxy, err = startProxy(ctx, s, authority, roots, w.URL()); err != nil {
			return err
		}
		w.slots = append(w.slots, s)
		if err := os.WriteFile(s.kubeconfig(), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {token: none}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, s.proxy.url, w.path("ca.crt")), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// addHosts adds machines with a node each, and returns once these are Ready.
func (w *world) addHosts(ctx context.Context, names ...string) error {
	return w.AddHosts(ctx, names, func(_ int, o *cluster.NodeOptions) {
		o.Labels = map[string]string{foreign: "here"}
		o.Annotations[foreign] = "here"
		o.Taints = []corev1.Taint{{Key: foreign, Value: "here", Effect: corev1.TaintEffectPreferNoSchedule}}
		o.LeaseDuration, o.RenewEvery = 10*time.Second, 2500*time.Millisecond
		o.StatusInterval, o.SandboxRetry = time.Second, time.Second
		o.StopDelay = 500 * time.Millisecond // long enough for a second copy to start beside what ends
	})
}

func (w *world) machine(node string) testworld.RedfishMachine {
	return w.Host(node).Machine.(testworld.RedfishMachine)
}

// bmc is in front of all machines.
func (w *world) bmc() *datacenter.BMC { return w.machine(bystanders[0]).BMC }

// stop ends all, once the world's ctx has ended.
func (w *world) stop() {
	for _, s := range w.slots {
		s.stop()
		s.proxy.server.Close()
		s.proxy.transport.CloseIdleConnections()
	}
	w.wg.Wait()
	if w.World == nil {
		return
	}
	if w.lagging.server != nil {
		w.lagging.server.Stop()
	}
	w.power.Close()
	w.Stop()
}

// until calls check until it says true, and after five minutes returns an error that says what was waited for and
// check's last one.
func until(ctx context.Context, what string, check func() (bool, error)) error {
	return untilWithin(ctx, runLimit, what, check)
}

func untilWithin(ctx context.Context, limit time.Duration, what string, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := cluster.Until(ctx, func(context.Context) (bool, error) { return check() }); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// The workload of a run: so many pods move.
const (
	plainPods  = 20
	volumePods = 5
)

// addWorkload puts a run's pods on its node. While it does, no other node is open.
func (r *run) addWorkload(ctx context.Context) error {
	w := r.w
	if err := w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name}}); err != nil {
		return err
	}
	if err := w.Open(ctx, r.victim); err != nil {
		return err
	}
	here := map[string]string{corev1.LabelHostname: r.victim}
	for _, load := range []cluster.Workload{
		{Name: judge.RolePlain, Replicas: plainPods},
		{Name: judge.RoleVolume, Replicas: volumePods, Volume: true},
		{Name: judge.RoleTolerating, Replicas: 1, Volume: true, NodeSelector: here,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	} {
		load.Namespace = r.name
		set := w.system.workload(load)
		if err := w.bindClaims(ctx, set); err != nil {
			return err
		}
		if err := w.Create(ctx, set); err != nil {
			return err
		}
		list := &r.moves
		if load.Name == judge.RoleTolerating {
			list = &r.stays
		}
		for i := range load.Replicas {
			*list = append(*list, fmt.Sprintf("%s/%s-%d", r.name, load.Name, i))
		}
	}
	daemon := cluster.Workload{Namespace: r.name, Name: judge.RoleDaemon, NodeSelector: here}.DaemonSet()
	if err := w.Create(ctx, daemon); err != nil {
		return err
	}
	for role, node := range map[string]string{
		judge.RoleStatic: r.victim, judge.RoleFinished: r.victim, judge.RoleOther: bystanders[0]} {
		if role == judge.RoleStatic && w.compares() {
			continue // a real kubelet makes it again if it is deleted
		}
		t := cluster.Workload{Name: role}.StatefulSet().Spec.Template
		pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
		pod.Namespace, pod.Name, pod.Spec.NodeName = r.name, role, node
		switch role {
		case judge.RoleStatic:
			pod.Annotations = map[string]string{"kubernetes.io/config.source": "file",
				"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x"}
		case judge.RoleFinished:
			pod.Annotations = map[string]string{cluster.RunForAnnotation: "1ms"}
		}
		if err := w.Create(ctx, pod); err != nil {
			return err
		}
		if role != judge.RoleFinished {
			r.stays = append(r.stays, r.name+"/"+role)
		}
	}
	if err := until(ctx, "the workload runs on "+r.victim, func() (bool, error) {
		finished := slices.ContainsFunc(w.Pods(r.name),
			func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		once, err := w.runOnce(slices.Concat(r.moves, r.stays), "")
		return finished && once, err
	}); err != nil {
		return err
	}
	for _, run := range w.Ledger().Running() {
		if run.Namespace == r.name && strings.HasPrefix(run.Name, judge.RoleTolerating) {
			for _, v := range run.Volumes {
				r.kept = append(r.kept, "kubernetes.io/csi/"+cluster.CSIDriver+"^"+v)
			}
		}
	}
	return w.Open(ctx)
}

// bindClaims makes the claims of a StatefulSet's pods and waits until each has its volume. A pod whose claim the
// attach/detach controller does not know to be bound is looked at again after a minute or more.
func (w *world) bindClaims(ctx context.Context, set *appsv1.StatefulSet) error {
	claims := w.Client().CoreV1().PersistentVolumeClaims(set.Namespace)
	for _, t := range set.Spec.VolumeClaimTemplates {
		for i := range *set.Spec.Replicas {
			claim := t.DeepCopy()
			claim.Name, claim.Labels = fmt.Sprintf("%s-%s-%d", t.Name, set.Name, i), set.Spec.Template.Labels
			claim.Namespace = set.Namespace
			if err := w.Create(ctx, claim); err != nil {
				return err
			}
		}
	}
	return until(ctx, "the claims are bound", func() (bool, error) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool {
			return c.Status.Phase != corev1.ClaimBound
		}), err
	})
}

// hasMoved is what a run waits for whose faults name nothing else.
func (r *run) hasMoved() (bool, error) {
	w, not := r.w, r.victim
	if r.f.cut {
		return w.moved(r.moves, r.victim)
	}
	if r.f.back {
		not = ""
	}
	if ok, err := w.runOnce(r.moves, not); !ok {
		return false, err
	}
	if n := w.history.node(r.victim); n == nil || judge.IsMarked(n) {
		return false, fmt.Errorf("%s is marked", r.victim)
	}
	return true, nil
}

// runOnce reports whether each of the pods runs in exactly one place, and not on the node not.
func (w *world) runOnce(pods []string, not string) (bool, error) {
	on := map[string][]string{}
	for _, r := range w.Ledger().Running() {
		on[r.Namespace+"/"+r.Name] = append(on[r.Namespace+"/"+r.Name], r.Node)
	}
	for _, p := range pods {
		if len(on[p]) != 1 || on[p][0] == not {
			return false, fmt.Errorf("%s runs on %q", p, on[p])
		}
	}
	return true, nil
}

// clean takes a run's objects and its node away.
func (r *run) clean(ctx context.Context) error {
	w, c := r.w, r.w.Client()
	orphan, zero := metav1.DeletePropagationOrphan, int64(0)
	alone, now := metav1.DeleteOptions{PropagationPolicy: &orphan}, metav1.DeleteOptions{GracePeriodSeconds: &zero}
	all := metav1.ListOptions{}
	_ = c.AppsV1().StatefulSets(r.name).DeleteCollection(ctx, alone, all)
	_ = c.AppsV1().DaemonSets(r.name).DeleteCollection(ctx, alone, all)
	if err := until(ctx, "the run's pods are gone", func() (bool, error) {
		return len(w.Pods(r.name)) == 0, c.CoreV1().Pods(r.name).DeleteCollection(ctx, now, all)
	}); err != nil {
		return err
	}
	if err := until(ctx, "the run's volumes are detached", func() (bool, error) { // no other's are there
		list, err := w.Attachments(ctx)
		if len(list) == 0 || err != nil {
			return err == nil, err
		}
		return false, c.StorageV1().VolumeAttachments().DeleteCollection(ctx, metav1.DeleteOptions{}, all)
	}); err != nil {
		return err
	}
	_ = c.CoreV1().Namespaces().Delete(ctx, r.name, metav1.DeleteOptions{}) // with its claims
	if err := r.cleanNeighbours(ctx); err != nil {
		return err
	}
	if w.system.end != nil {
		if err := w.system.end(ctx, r); err != nil {
			return err
		}
	}
	// who led is dead
	_ = c.CoordinationV1().Leases(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all)
	_ = c.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "forcefence", metav1.DeleteOptions{})
	h := w.Host(r.victim)
	w.Hosts = slices.DeleteFunc(w.Hosts, func(o *testworld.Host) bool { return o == h })
	r.machine.CutPower()
	return h.Remove(ctx)
}

// moved reports whether each of the pods runs on some other node than the victim, on which it may run as well.
func (w *world) moved(pods []string, victim string) (bool, error) {
	elsewhere := map[string]bool{}
	for _, r := range w.Ledger().Running() {
		elsewhere[r.Namespace+"/"+r.Name] = elsewhere[r.Namespace+"/"+r.Name] || r.Node != victim
	}
	for _, p := range pods {
		if !elsewhere[p] {
			return false, fmt.Errorf("%s runs on no other node", p)
		}
	}
	return true, nil
}

// asBefore reports whether a node has no mark of any system.
func asBefore(n *corev1.Node) bool {
	return !n.Spec.Unschedulable &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key != foreign })
}

// silence says what the node lifecycle controller would say after its grace: nothing is heard of the node.
func (w *world) silence(ctx context.Context, node string) error {
	now := metav1.NewTime(time.Now())
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: now,
	}}}})
	if err != nil {
		return err
	}
	_, err = w.Client().CoreV1().Nodes().PatchStatus(ctx, node, patch)
	return err
}
