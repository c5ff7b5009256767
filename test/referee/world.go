package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/test/kit"
)

// world is the control plane with three nodes that stay, in which one run follows the other.
type world struct {
	ctx     context.Context
	dir     string
	command string
	lag     atomic.Int64 // of the second API server, in nanoseconds
	second  string       // URL of the API server that lags, once it was started
	noLease bool         // the judged command elects no leader by a Lease in its namespace
	say     func(string, ...any)
	control *control
	hub     *hub
	ledger  *ledger
	bmc     *bmc
	slots   [2]*slot
	stay    []*kubelet
	stalls  stalls
	audits  []*auditLog
	wg      sync.WaitGroup
	faults  atomic.Pointer[faults] // nil: none

	mu   sync.Mutex // guards the rest
	rng  *rand.Rand
	hits int
}

// everything is no selection.
var everything = metav1.ListOptions{}

func (w *world) log(format string, args ...any) { w.say(format, args...) }

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

// hit counts a fault that was injected.
func (w *world) hit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits++
}

const namespace = "forcefence-system"

// bystanders are the nodes that stay.
var bystanders = []string{"n1", "n2", "n3"}

// startWorld returns one in which runs may begin. The caller ends ctx, then calls stop, also after an error.
func startWorld(ctx context.Context, dir, deploy, config string, say func(string, ...any)) (*world, error) {
	w := &world{ctx: ctx, dir: dir, say: say, ledger: &ledger{}, rng: rand.New(rand.NewPCG(0, 0))}
	var err error
	w.control, err = startControl(ctx, dir)
	if err != nil {
		return w, err
	}
	w.audits = []*auditLog{{file: filepath.Join(dir, "audit-main.log")},
		{file: filepath.Join(dir, "audit-lagging.log")}}
	if w.bmc, err = startBMC(w.control.authority); err != nil {
		return w, err
	}
	if err := w.control.kubectl(ctx, "apply", "--server-side", "-k", deploy); err != nil {
		return w, err
	}
	if err := w.control.kubectl(ctx, "-n", namespace, "delete", "deployment", "--all"); err != nil { // ours run outside
		return w, err
	}
	c := w.control.client
	yes := true
	if _, err := c.StorageV1().CSIDrivers().
		Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: &yes}}, metav1.CreateOptions{}); err != nil {
		return w, err
	}
	seconds := int64(24 * 3600)
	token, err := c.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, "forcefence",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
			metav1.CreateOptions{})
	if err != nil {
		return w, err
	}
	for i, name := range []string{"a", "b"} {
		ip, err := kit.FreePodIP()
		if err != nil {
			return w, err
		}
		s := &slot{w: w, name: name, log: filepath.Join(dir, "judged-"+name+".log"), podIP: ip}
		if s.proxy, err = startProxy(ctx, s, w.control.authority, w.control.url); err != nil {
			return w, err
		}
		s.proxy.token = token.Status.Token
		if err := writeKubeconfig(s.kubeconfig(), s.proxy.url, w.control.authority.Cert, "token: none"); err != nil {
			return w, err
		}
		w.slots[i] = s
	}
	if err := os.WriteFile(filepath.Join(dir, "device-password"), []byte(devicePassword), 0o600); err != nil {
		return w, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(w.words(w.slots[0]).Replace(config)),
		0o600); err != nil {
		return w, err
	}
	w.hub = newHub(c)
	if err := w.hub.start(ctx, &w.wg); err != nil {
		return w, err
	}
	w.wg.Go(func() { w.attach(ctx) })
	w.wg.Go(func() { w.stalls.watch(ctx) })
	for _, name := range bystanders {
		w.stay = append(w.stay, w.machine(name))
	}
	return w, until(ctx, startLimit, "the nodes are Ready", func() (bool, error) {
		for _, k := range w.stay {
			if n := w.hub.node(k.name); n == nil || !readyNow(n) {
				return false, nil
			}
		}
		return true, nil
	})
}

func readyNow(n *corev1.Node) bool { return readyOf(n) == corev1.ConditionTrue }

// machine makes one, with a device, and boots it.
func (w *world) machine(name string) *kubelet {
	k := &kubelet{w: w, name: name}
	w.bmc.put(name, &machine{uuid: w.uuid(name), power: func(on bool) {
		if on {
			k.on()
		} else {
			k.off()
		}
	}})
	k.on()
	return k
}

// stop ends all, once the world's ctx has ended.
func (w *world) stop() {
	for _, s := range w.slots {
		if s != nil {
			s.stop()
			s.proxy.server.Close()
			s.proxy.transport.CloseIdleConnections()
		}
	}
	for _, k := range w.stay {
		k.off()
	}
	w.wg.Wait()
	if w.bmc != nil {
		w.bmc.server.Close()
	}
	if w.control != nil {
		w.control.stop()
	}
}

// The workload of a run: so many pods move.
const (
	plainPods  = 20
	volumePods = 5
)

// workload puts a run's pods on its node, and returns the names of those that move and of those that stay.
func (w *world) workload(ctx context.Context, run string, victim *kubelet) (moves, stays []string, err error) {
	c := w.control.client
	if _, err := c.CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: run}}, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	home := homeLabel + run
	if err := w.label(ctx, victim.name, home, "victim"); err != nil {
		return nil, nil, err
	}
	sets := []struct {
		role     string
		replicas int32
		volume   bool
	}{{rolePlain, plainPods, false}, {roleVolume, volumePods, true}, {roleTolerating, 1, true}}
	none := ""
	claimed := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &none,
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	for _, s := range sets {
		labels := map[string]string{roleLabel: s.role}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: s.role}, Spec: appsv1.StatefulSetSpec{
			Replicas: &s.replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template(labels, home, corev1.NodeSelectorOpExists),
		}}
		if s.role == roleTolerating {
			set.Spec.Template = template(labels, home, corev1.NodeSelectorOpIn, "victim")
			set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		for i := range s.replicas {
			name := fmt.Sprintf("%s-%d", s.role, i)
			if s.role == roleTolerating {
				stays = append(stays, run+"/"+name)
			} else {
				moves = append(moves, run+"/"+name)
			}
			if !s.volume {
				continue
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: run + "-" + name},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi")},
					AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
					ClaimRef:                      &corev1.ObjectReference{Namespace: run, Name: "data-" + name},
					PersistentVolumeSource: corev1.PersistentVolumeSource{
						CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: run + "-" + name}},
				}}
			if _, err := c.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
				return nil, nil, err
			}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + name, Labels: labels},
				Spec: claimed}
			claim.Spec.VolumeName = pv.Name
			if _, err := c.CoreV1().PersistentVolumeClaims(run).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return nil, nil, err
			}
		}
		if s.volume {
			// A pod whose claim the attach/detach controller does not know to be bound is looked at again after a
			// minute or more.
			if err := until(ctx, runLimit, "the claims are bound", func() (bool, error) {
				claims, err := c.CoreV1().PersistentVolumeClaims(run).List(ctx, everything)
				return err == nil &&
					!slices.ContainsFunc(claims.Items,
						func(c corev1.PersistentVolumeClaim) bool { return c.Status.Phase != corev1.ClaimBound }), err
			}); err != nil {
				return nil, nil, err
			}
			set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
				{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimed}}
			set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		}
		if _, err := c.AppsV1().StatefulSets(run).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
	}
	daemon := map[string]string{roleLabel: roleDaemon}
	if _, err := c.AppsV1().DaemonSets(run).
		Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemon"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: daemon},
			Template: template(daemon, home, corev1.NodeSelectorOpIn, "victim"),
		}}, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	for role, node := range map[string]string{
		roleStatic: victim.name, roleFinished: victim.name, roleOther: bystanders[0]} {
		t := template(map[string]string{roleLabel: role}, "", "")
		pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
		pod.Name, pod.Spec.NodeName = role, node
		if role == roleStatic {
			pod.Annotations = map[string]string{"kubernetes.io/config.source": "file",
				"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x"}
		}
		if _, err := c.CoreV1().Pods(run).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
		if role != roleFinished {
			stays = append(stays, run+"/"+role)
			continue
		}
		if _, err := c.CoreV1().Pods(run).
			Patch(ctx, role, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{},
				"status"); err != nil {
			return nil, nil, err
		}
	}
	if err := until(ctx, runLimit, "the workload runs on "+victim.name,
		func() (bool, error) { return w.runOnce(slices.Concat(moves, stays), "") }); err != nil {
		return nil, nil, err
	}
	for _, name := range bystanders {
		if err := w.label(ctx, name, home, "other"); err != nil {
			return nil, nil, err
		}
	}
	return moves, stays, nil
}

func (w *world) label(ctx context.Context, node, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: orNil(value)}}})
	if err != nil {
		return err
	}
	_, err = w.control.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func template(labels map[string]string, home string, op corev1.NodeSelectorOperator,
	values ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	if home != "" {
		t.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: home, Operator: op, Values: values}}}},
			}}}
	}
	return t
}

// runOnce reports whether each of the pods runs in exactly one place, and not on the node not.
func (w *world) runOnce(pods []string, not string) (bool, error) {
	for _, p := range pods {
		if n, node := w.ledger.running(p); n != 1 || node == not {
			return false, fmt.Errorf("%s runs %d times, on %q", p, n, node)
		}
	}
	return true, nil
}

// clean takes a run's objects away.
func (w *world) clean(ctx context.Context, run string, victim *kubelet) error {
	c := w.control.client
	background := metav1.DeletePropagationOrphan
	zero := int64(0)
	gone := metav1.DeleteOptions{PropagationPolicy: &background}
	at := metav1.DeleteOptions{GracePeriodSeconds: &zero}
	_ = c.AppsV1().StatefulSets(run).DeleteCollection(ctx, gone, metav1.ListOptions{})
	_ = c.AppsV1().DaemonSets(run).DeleteCollection(ctx, gone, metav1.ListOptions{})
	err := until(ctx, runLimit, "the run's pods are gone", func() (bool, error) {
		left := w.hub.podsWhere(func(p *corev1.Pod) bool { return p.Namespace == run })
		if len(left) == 0 {
			return true, nil
		}
		return false, c.CoreV1().Pods(run).DeleteCollection(ctx, at, metav1.ListOptions{})
	})
	if err != nil {
		return err
	}
	volume := func(a *storagev1.VolumeAttachment) bool {
		pv := a.Spec.Source.PersistentVolumeName
		return pv != nil && len(*pv) > len(run) && (*pv)[:len(run)+1] == run+"-"
	}
	if err := until(ctx, runLimit, "the run's volumes are detached", func() (bool, error) {
		left := w.hub.attachments(volume)
		for _, a := range left {
			_ = c.StorageV1().VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{})
		}
		return len(left) == 0, nil
	}); err != nil {
		return err
	}
	victim.off()
	w.bmc.put(victim.name, nil)
	_ = c.CoreV1().Namespaces().Delete(ctx, run, metav1.DeleteOptions{})
	for i := range volumePods {
		_ = c.CoreV1().PersistentVolumes().
			Delete(ctx, fmt.Sprintf("%s-%s-%d", run, roleVolume, i), metav1.DeleteOptions{})
	}
	_ = c.CoreV1().PersistentVolumes().Delete(ctx, run+"-"+roleTolerating+"-0", metav1.DeleteOptions{})
	for _, name := range bystanders {
		_ = w.label(ctx, name, homeLabel+run, "")
	}
	_ = c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, victim.name, metav1.DeleteOptions{})
	_ = c.StorageV1().CSINodes().Delete(ctx, victim.name, metav1.DeleteOptions{})
	// who led is dead
	_ = c.CoordinationV1().Leases(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	return c.CoreV1().Nodes().Delete(ctx, victim.name, metav1.DeleteOptions{})
}

// silence says what the node lifecycle controller would say after its grace: nothing is heard of the node.
func (w *world) silence(ctx context.Context, node string) error {
	now := metav1.NewTime(time.Now())
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: now,
		LastHeartbeatTime: now,
	}}}})
	if err != nil {
		return err
	}
	_, err = w.control.client.CoreV1().Nodes().PatchStatus(ctx, node, patch)
	return err
}
