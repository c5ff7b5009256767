//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/csi"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/nodes"
)

// policies are in force in all scenarios, for the pods of three of them, and so is the storage system of disks_test.go.
func (w *world) policies() string {
	return w.disks() + fmt.Sprintf(`policies:
- {name: longhorn, preset: longhorn, pods: policy=longhorn, drivers: [%[1]s],
   nodeDownPodDeletionPolicy: delete-both-statefulset-and-deployment-pod, withoutProof: accept-duplicates}
- {name: wait, preset: longhorn, pods: policy=wait, drivers: [%[1]s], nodeDownPodDeletionPolicy: do-nothing,
   volumeAttachmentRecoveryPolicy: wait, withoutProof: accept-duplicates}
- {name: immediate, preset: longhorn, pods: policy=immediate, drivers: [%[1]s], nodeDownPodDeletionPolicy: do-nothing,
   volumeAttachmentRecoveryPolicy: immediate, withoutProof: accept-duplicates}
- {name: noobaa, preset: noobaa, namespaces: [%[2]s], withoutProof: accept-duplicates}
- {name: storageos, preset: storageos, storage: disks, pollInterval: 1s, timeout: 10s, expiryInterval: 15s,
   withoutProof: storage-fences}
`, csi.Name, w.ns)
}

// ofLonghorn pods are that policy's, and evicted by Kubernetes after a second.
func ofLonghorn(policy string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels["policy"] = policy
		for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(1)),
			})
		}
	}
}

// ofStorageOS pods are StorageOS' policy's.
func ofStorageOS(p *corev1.Pod) { p.Labels["storageos.com/fenced"] = "true" }

// ofNooBaa pods are NooBaa's policy's.
func ofNooBaa(p *corev1.Pod) { p.Labels = map[string]string{"app": "noobaa", "part": p.Name} }

// shell is a Deployment of one with a volume, whose pod runs on that node.
func (w *world) shell(name string, n *nodes.Node, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.volume(name, change...)
	_, err := w.c.Client().CoreV1().PersistentVolumeClaims(w.ns).Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claim(name),
	}, metav1.CreateOptions{})
	w.must(err)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}})
	w.only(n, func() {
		_, err = w.c.Client().AppsV1().Deployments(w.ns).Create(w.t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec},
			},
		}, metav1.CreateOptions{})
		w.must(err)
		p = w.running(name+"-", "")
	})
	return p
}

// wroteUpTo are the first and the last number that a pod wrote.
func (w *world) wroteUpTo(p *corev1.Pod) (first, last int) {
	w.t.Helper()
	for _, l := range w.lines() {
		if l.UID == string(p.UID) {
			if last = l.Count; first == 0 {
				first = l.Count
			}
		}
	}
	return first, last
}

// goesOn waits for the pod of that name's beginning that takes over from the old one, and checks that it read what that
// wrote, and writes.
func (w *world) goesOn(prefix string, old *corev1.Pod) {
	w.t.Helper()
	next := w.running(prefix, old.UID)
	_, before := w.wroteUpTo(old)
	w.until(prefix+" writes", func() bool { first, last := w.wroteUpTo(next); return last > first })
	if first, _ := w.wroteUpTo(next); first <= before {
		w.t.Errorf("%s counts from %d, after %d: not what the old pod wrote", prefix, first, before)
	}
}

// deadMachine is what the documents of Longhorn (TestLonghornNodeDown: access, read and write the volume on the new
// pod, for a StatefulSet and a Deployment) and NooBaa (TestNooBaa: the database's volume) want of data. The machine is
// dead and so is the way to its BMC: nothing is proven, the policies end the pods, and their volumes stay where they
// are. Then the BMC answers, and the new pods go on counting.
func (w *world) deadMachine() string {
	bmc := w.site.BMCs["n1"]
	olds := map[string]*corev1.Pod{"shellp-": w.shell("shellp", w.n1, ofLonghorn("longhorn"))}
	for name, of := range map[string]func(*corev1.Pod){"setp": ofLonghorn("longhorn"), "dbp": ofNooBaa} {
		olds[name+"-"] = w.database(name, w.n1, of)
	}
	bmc.SetFault(datacenter.Fault{Silent: true})
	begin := time.Now()
	w.cut(w.n1)
	w.until("the policies have ended the pods", func() bool {
		list, err := w.c.Client().CoreV1().Pods(w.ns).List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		return !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
			return slices.ContainsFunc([]types.UID{olds["shellp-"].UID, olds["setp-"].UID, olds["dbp-"].UID},
				func(uid types.UID) bool { return uid == p.UID })
		})
	})
	for name, policy := range map[string]string{"shellp-": "longhorn", "setp-": "longhorn", "dbp-": "noobaa"} {
		if w.event(olds[name], "PolicyEndedPod", "policy "+policy+", without proof: accept-duplicates") == "" {
			w.t.Errorf("%s has no Event that names policy %s and its word", name, policy)
		}
	}
	if m := w.mark(w.n1); m != "" {
		w.t.Errorf("n1 is marked %s, without a way to know that its machine is off", m)
	}
	ended, proven := time.Since(begin), time.Now()
	bmc.SetFault(datacenter.Fault{})
	for name, old := range olds {
		w.goesOn(name, old)
	}
	wrote := time.Since(proven)
	w.untilFree(w.n1)
	w.must(w.n1.PowerOn())
	w.must(w.n1.WaitReady(w.t.Context()))
	w.kubectl("-n", w.ns, "delete", "deployment/shellp", "statefulset/dbp", "--cascade=foreground", "--wait")
	w.clear("setp")
	return fmt.Sprintf("cut to ended %s; BMC back to data read and written %s", ms(ended), ms(wrote))
}

// released is what Longhorn's document wants of data under volumeAttachmentRecoveryPolicy (TestLonghornNodeDown: access
// the volume on the replacement, the old pod stays Terminating for ever), and StorageOS' (TestStorageOS: the
// replacement of a fenced workload has its volume). The machine is dead, its BMC is silent all the time, and the
// storage says that the node is offline. Only what the policies release lets the volumes go to other nodes: Kubernetes
// itself would take more than six minutes.
func (w *world) released() string {
	d := w.storage
	bmc := w.site.BMCs["n1"]
	// immediate does not wait for that
	late := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	wait, immediate := w.shell("wait", w.n1, ofLonghorn("wait")),
		w.shell("immediate", w.n1, ofLonghorn("immediate"), late)
	fenced := w.database("fenced", w.n1, ofStorageOS)
	d.says("nodes", "n1", "online")
	d.says("volumes", "fenced", "online")
	// a volume without replicas has no data
	d.put("copies", "fenced-n2", &copyState{Node: "n2", Volume: "fenced", Healthy: true})
	bmc.SetFault(datacenter.Fault{Silent: true})
	begin := time.Now()
	w.cut(w.n1)
	w.until("n1 is NotReady", func() bool { return cluster.IsNotReady(w.node(w.n1)) })
	d.says("nodes", "n1", "offline")
	w.goesOn("fenced-", fenced)
	fast := time.Since(begin)
	w.goesOn("wait-", wait)
	w.goesOn("immediate-", immediate)
	took := time.Since(begin)
	for pod, policy := range map[*corev1.Pod]string{
		wait:      "policy wait, without proof: accept-duplicates",
		immediate: "policy immediate, without proof: accept-duplicates",
		fenced:    "policy storageos, without proof: storage-fences",
	} {
		if w.event(pod, "PolicyEndedPod", policy) == "" {
			w.t.Errorf("%s has no Event of %s", pod.Name, policy)
		}
	}
	for _, old := range []*corev1.Pod{wait, immediate} {
		p, err := w.c.Client().CoreV1().Pods(w.ns).Get(w.t.Context(), old.Name, metav1.GetOptions{})
		w.must(err)
		if p.DeletionTimestamp == nil {
			w.t.Errorf("%s is not Terminating", old.Name)
		}
		if old == immediate && time.Now().After(p.DeletionTimestamp.Time) {
			w.t.Errorf("%s is past its deletion time: nothing shows that its replacement did not wait for that",
				old.Name)
		}
	}
	if m := w.mark(w.n1); m != "" {
		w.t.Errorf("n1 is marked %s, without a way to know that its machine is off", m)
	}
	w.must(w.n1.PowerOn())
	w.must(w.n1.WaitReady(w.t.Context()))
	bmc.SetFault(datacenter.Fault{})
	d.says("nodes", "n1", "online")
	w.kubectl("-n", w.ns, "delete", "deployment/wait", "deployment/immediate", "--cascade=foreground", "--wait")
	w.clear("fenced")
	w.kubectl("-n", w.ns, "delete", "copies."+diskGroup, "--all")
	return fmt.Sprintf("cut to data read and written: StorageOS %s, attachment recovery %s", ms(fast), ms(took))
}

// doubles is what accept-duplicates costs: a node that is only cut off runs the old pod beside the new one, until it
// hears of its end.
func (w *world) doubles() string {
	var old *corev1.Pod
	w.only(w.n2, func() {
		w.statefulSet("twice", w.pod("twice", ofNooBaa))
		old = w.running("twice-0", "")
	})
	w.accepted = append(w.accepted, w.ns+"/twice-0")
	w.must(w.n2.CutNetwork())
	w.until("n2 is NotReady", func() bool { return cluster.IsNotReady(w.node(w.n2)) })
	next := w.running("twice-0", old.UID)
	_, before := w.wroteUpTo(old)
	w.until("both write", func() bool { _, now := w.wroteUpTo(old); return now > before })
	if !slices.ContainsFunc(w.lines(), func(l line) bool { return l.UID == string(next.UID) && l.Fault != "" }) {
		w.t.Error("the new pod got the lock that the old one holds: nothing was doubled")
	}
	w.must(w.n2.RestoreNetwork())
	w.must(w.n2.WaitReady(w.t.Context()))
	w.until("the old pod's container has ended", func() bool { // it wrote ten times a second
		var last time.Time
		for _, l := range w.lines() {
			if l.UID == string(old.UID) {
				last = l.Time
			}
		}
		return time.Since(last) > 3*time.Second
	})
	w.clear("twice")
	return ""
}
