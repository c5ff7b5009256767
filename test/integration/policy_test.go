package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// uids are those of pods whose name begins so.
func uids(list []corev1.Pod, prefix string) []string {
	var out []string
	for _, p := range list {
		if strings.HasPrefix(p.Name, prefix) {
			out = append(out, string(p.UID))
		}
	}
	return out
}

// NooBaa's pods on a node that becomes not Ready are ended at once, with any owner, except its database. No other pod
// is, and a controller that begins later replays nothing. With a proof the node is recovered as any other, and its
// database with it.
func TestNooBaa(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, doubles: true, own: &options})
	cut, before, dead := w.hosts[0], w.hosts[1], w.hosts[2]
	noobaa := func(name string, o metav1.ObjectMetaAccessor, template *corev1.PodTemplateSpec,
		selector *metav1.LabelSelector) any {
		selector.MatchLabels = map[string]string{"part": name}
		template.Labels = map[string]string{"part": name, "app": "noobaa"}
		if name == "pg" || name == "db" {
			template.Labels["noobaa-db"] = "postgres"
		}
		return o
	}
	set := func(name string) any {
		s := w.volumes(name, 1)
		return noobaa(name, s, &s.Spec.Template, s.Spec.Selector)
	}
	endpoint := w.plain("endpoint", 1)
	pg := w.volumes("pg", 1)
	w.fill(cut, 4, set("core"), noobaa("endpoint", endpoint, &endpoint.Spec.Template, endpoint.Spec.Selector),
		w.volumes("other", 1), noobaa("pg", pg, &pg.Spec.Template, pg.Spec.Selector))
	w.fill(before, 5, set("early"))
	w.fill(dead, 6, set("db"))
	list := w.podsOn(cut)
	other := slices.DeleteFunc(slices.Clone(list), func(p corev1.Pod) bool {
		return p.Labels["app"] == "noobaa" && p.Labels["noobaa-db"] == ""
	})
	early := w.podsOn(before)
	rules := w.installed(settings{Top: fmt.Sprintf("policies: [{name: noobaa, preset: noobaa, namespaces: [%s], "+
		"withoutProof: accept-duplicates}]", w.ns)}, "") // it needs no right beside those of a plain fence

	before.partition()
	w.until("NotReady", func() bool { return !w.ready(before) })
	w.start(rules)
	w.untilEvent("Node", before.Name(), "PoweredOnNotReady")

	cut.partition()
	w.until("NooBaa's pods to be others", func() bool {
		now := w.pods()
		for _, name := range []string{"core-", "endpoint-"} {
			if now := uids(now, name); len(now) != 1 || now[0] == uids(list, name)[0] {
				return false
			}
		}
		return true
	})
	w.untilEvent("Node", cut.Name(), "PolicyEndingPods")
	if note := w.untilEvent("Pod", "core-", "PolicyEndedPod"); !strings.Contains(note,
		"policy noobaa, without proof: accept-duplicates") {
		t.Errorf("Event of an ended pod: got %q, want the policy and its word", note)
	}
	w.during(2*time.Second, "its database, other pods, and those of a node that fell before the controller began",
		func() error {
			return untouched(append(slices.Clone(other), early...), w.pods())
		})
	for _, h := range []*host{cut, before} {
		kit.Must(t, w.alone(h))
	}

	// of NooBaa's others some wait for their volumes
	lost := slices.DeleteFunc(w.podsOn(dead), func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, "db-") })
	dead.cut()
	w.untilDone(dead, taint.ResultEvicted)
	w.untilReplaced(dead, lost)
	if a := w.attachments(dead); len(a) > 0 {
		t.Errorf("attachments of a machine that is proven off: got %v, want none", a)
	}
}

// Longhorn's two settings, all combinations, on one node that is down: whose pods are deleted once they are past their
// deletionTimestamp, and whose volumes are released.
// TestLonghornNodeDown/<nodeDownPodDeletionPolicy>/<volumeAttachmentRecoveryPolicy>.
func TestLonghornNodeDown(t *testing.T) {
	w := newWorld(t, plan{nodes: 5, doubles: true, own: &options})
	h, lost := w.hosts[0], w.hosts[1]
	type combination struct {
		id                 int
		deletion, recovery string
		owners             []string // whose pods are deleted
	}
	var all []combination
	var rules strings.Builder
	rules.WriteString("policies:\n")
	var objects []any
	for _, d := range policy.DeletionValues {
		for _, r := range policy.RecoveryValues {
			c := combination{len(all), d.Value, r.Value, d.Owners}
			all = append(all, c)
			fmt.Fprintf(&rules, "- {name: p%d, preset: longhorn, drivers: [%s], pods: combination=%d, "+
				"nodeDownPodDeletionPolicy: %s, volumeAttachmentRecoveryPolicy: %s, withoutProof: accept-duplicates}\n",
				c.id, cluster.CSIDriver, c.id, c.deletion, c.recovery)
			grace := 20 * time.Second
			if c.recovery == "immediate" { // its pods are ended within it, and the machine has other work
				grace = 90 * time.Second
			}
			objects = append(objects, w.nodeDownPods(h, c.id, grace)...)
		}
	}
	w.fill(h, len(objects), objects...)
	w.fill(lost, len(objects)+2,
		w.orphans(all[slices.IndexFunc(all,
			func(c combination) bool { return len(c.owners) == 2 && c.recovery == "never" })].id)...)
	before := map[string]corev1.Pod{} // by kind and combination
	for _, p := range w.pods() {
		kind, _, _ := strings.Cut(p.Name, "-")
		before[kind] = p
	}
	w.start(w.installed(settings{Top: rules.String()}, "config: {policies: [{name: longhorn, preset: longhorn, "+
		"drivers: ["+cluster.CSIDriver+"], withoutProof: accept-duplicates}]}"))
	h.partition()
	orphaned := w.deletes(lost)

	// What becomes of a pod, and of its replacement: whether it was ended before its time, and when its replacement
	// ran.
	deleted, early, ran := map[string]time.Time{}, map[string]bool{}, map[string]time.Duration{}
	state := func(list []corev1.Pod, kind string, id int) string {
		name := fmt.Sprintf("%s%d", kind, id)
		old, next := "gone", "none"
		for _, p := range list {
			k, _, _ := strings.Cut(p.Name, "-")
			ready := slices.ContainsFunc(p.Status.Conditions,
				func(c corev1.PodCondition) bool {
					return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
				})
			switch {
			case k != name:
			case p.UID == before[name].UID && p.DeletionTimestamp == nil:
				old = "runs"
			case p.UID == before[name].UID:
				deleted[name] = p.DeletionTimestamp.Time
				if old = "Terminating"; taint.IsTombstone(&p) {
					old = "ended, Terminating"
					early[name] = early[name] || time.Now().Before(p.DeletionTimestamp.Time)
				}
				if old == "Terminating" && time.Now().Before(p.DeletionTimestamp.Time) {
					old = "in its grace"
				}
			case ready:
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodReady {
						ran[name] = c.LastTransitionTime.Sub(deleted[name])
					}
				}
				next = "runs"
			default:
				next = "waits"
			}
		}
		return old + "; " + next
	}
	forced := map[int]bool{}
	want := func(kind string, c combination) string {
		released := c.recovery != "never" && (kind == "deployment" || kind == "apart")
		deletes := kind == "set" && slices.Contains(c.owners, "StatefulSet") ||
			kind == "deployment" && slices.Contains(c.owners, "Deployment")
		old, next := "Terminating", "none"
		switch {
		case deletes, forced[c.id] && kind == "deployment":
			old = "gone"
		case released:
			old = "ended, Terminating"
		}
		switch {
		case released, forced[c.id] && kind == "deployment":
			next = "runs"
		// Kubernetes itself detaches six minutes after the node was last heard
		case kind == "deployment", kind == "apart", deletes:
			next = "waits"
		}
		return old + "; " + next
	}
	kinds := []string{"set", "deployment", "apart", "plain", "alone"}
	wrong := func() (out []string) {
		list := w.pods()
		for _, c := range all {
			for _, kind := range kinds {
				if got, want := state(list, kind, c.id), want(kind, c); got != want {
					out = append(out,
						fmt.Sprintf("%s/%s: %s: got %q, want %q", c.deletion, c.recovery, kind, got, want))
				}
			}
		}
		return out
	}
	var left []string
	err := poll(w.ctx, func() (bool, error) {
		left = wrong()
		stuck := func(line string) bool { return strings.HasPrefix(line, "do-nothing/never: deployment") }
		if !forced[0] && !slices.ContainsFunc(left, stuck) && len(left) < len(all)*len(kinds)/2 {
			// The document's way out: the pod is deleted by hand; and the attachment, for which Kubernetes would take
			// its six minutes.
			w.kubectl("delete", "pod", "-n", w.ns, before["deployment0"].Name, "--force", "--grace-period=0")
			w.kubectl("delete", "volumeattachment", "--wait=false", w.attachmentOf(h, "deployment0"))
			forced[0] = true
		}
		return len(left) == 0 && forced[0], nil
	})
	if err == nil { // for ever
		w.during(7*time.Second, "what every policy leaves as it is", func() error {
			if left = wrong(); len(left) > 0 {
				return errors.New(strings.Join(left, "\n"))
			}
			return nil
		})
	}
	attached := w.attachments(h)
	for _, d := range policy.DeletionValues {
		t.Run(d.Value, func(t *testing.T) {
			for _, c := range all {
				if c.deletion != d.Value {
					continue
				}
				t.Run(c.recovery, func(t *testing.T) {
					for _, line := range left {
						if strings.HasPrefix(line, c.deletion+"/"+c.recovery+": ") {
							t.Error(line)
						}
					}
					for _, kind := range kinds {
						name := fmt.Sprintf("%s%d", kind, c.id)
						released := strings.HasSuffix(want(kind, c), "; runs")
						if kind != "plain" && slices.Contains(attached, w.volumeOf(name)) == released {
							t.Errorf("%s: volume attached to the dead node: got %t, want %t", kind, !released, released)
						}
						if early[name] != (c.recovery == "immediate" && (kind == "deployment" || kind == "apart")) {
							t.Errorf("%s: ended before its deletionTimestamp: got %t", kind, early[name])
						}
						if at, ok := ran[name]; ok {
							t.Logf("%s: its replacement ran %s after the deletionTimestamp", kind, at)
						}
					}
				})
			}
		})
	}
	if note := w.untilEvent("Node", h.Name(), "PolicyDeletingAttachments"); !strings.Contains(note,
		"without proof: accept-duplicates") {
		t.Errorf("Event: got %q, want the policy's word", note)
	}
	t.Run("node deleted", func(t *testing.T) {
		o := <-orphaned
		if o.err != nil {
			t.Fatal(o.err)
		}
		t.Logf("its pods were gone %s after the Node was deleted", o.after.Round(time.Second))
		if o.after > 2*time.Minute {
			t.Errorf("pods of the deleted Node: gone after %s, want two minutes at most", o.after)
		}
		for _, name := range []string{"orphan-", "left-"} {
			if list := w.events("Pod", name, "PolicyEndedPod"); len(list) > 0 {
				t.Errorf("pods %s of a Node that was deleted: a policy ended one (%s), want them left to Kubernetes",
					name, list[0].Note)
			}
		}
		w.until("the replacement without a volume to run", func() bool {
			return slices.ContainsFunc(w.ReadyPods(w.ns),
				func(p *corev1.Pod) bool { return strings.HasPrefix(p.Name, "left-") })
		})
		// six minutes are more than this world has
		if now := w.attachments(lost); !slices.Equal(now, o.attached) || len(now) != 1 {
			t.Errorf("attachments to the deleted Node: got %v, at its pods' end %v, want the one volume in both", now,
				o.attached)
		}
	})
}

// orphans are pods for a Node that will be deleted, which that combination's policy would end 20 s after Kubernetes
// evicted them: one of a StatefulSet, with a volume, that Kubernetes evicts at once, and one of a Deployment that it
// leaves for five minutes.
func (w *world) orphans(id int) []any {
	wl := w.workload("orphan", 1)
	grace := int64(20)
	wl.Volume, wl.GracePeriod, wl.Tolerations = true, &grace, leavingWithin(1)
	set, left := wl.StatefulSet(), w.plain("left", 1)
	for _, t := range []*corev1.PodTemplateSpec{&set.Spec.Template, &left.Spec.Template} {
		t.Labels["combination"] = fmt.Sprint(id)
	}
	return []any{set, left}
}

// orphaned is how long after their Node was deleted its pods were gone, and which volumes were attached to it then.
type orphaned struct {
	after    time.Duration
	attached []string
	err      error
}

// deletes cuts a node off, deletes its Node once Kubernetes has evicted a pod there, and reports what becomes of the
// rest.
func (w *world) deletes(h *host) <-chan orphaned {
	w.t.Helper()
	h.partition()
	w.until("a pod to be evicted from the node that will be deleted", func() bool {
		return slices.ContainsFunc(w.podsOn(h), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	})
	w.kubectl("delete", "node", h.Name())
	begun, out := time.Now(), make(chan orphaned, 1)
	go func() {
		var o orphaned
		o.err = poll(w.ctx, func() (bool, error) {
			list, err := w.Client().CoreV1().Pods(w.ns).
				List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.Name()})
			return err == nil && len(list.Items) == 0, err
		})
		o.after = time.Since(begun)
		if o.err == nil {
			o.attached, o.err = w.attachedTo(h)
		}
		out <- o
	}()
	return out
}

// nodeDownPods are one of each kind of pod of a combination, all for one node: of a StatefulSet, a Deployment, a
// ReplicaSet without owner, a StatefulSet without a volume, and one without owner.
func (w *world) nodeDownPods(h *host, id int, grace time.Duration) []any {
	claimed := func(kind string) corev1.Volume {
		name := fmt.Sprintf("%s%d", kind, id)
		class := cluster.StorageClass
		_, err := w.Client().CoreV1().PersistentVolumeClaims(w.ns).
			Create(w.ctx,
				&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						StorageClassName: &class,
						Resources: corev1.VolumeResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
					}}, metav1.CreateOptions{})
		kit.Must(w.t, err)
		return corev1.Volume{Name: "data",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	with := func(kind string) cluster.Workload {
		wl := w.workload(fmt.Sprintf("%s%d", kind, id), 1)
		seconds := int64(grace.Seconds())
		wl.GracePeriod, wl.Tolerations = &seconds, leavingWithin(1)
		return wl
	}
	stateful := with("set")
	stateful.Volume = true
	set, plain, deployment, apart := stateful.StatefulSet(), with("plain").StatefulSet(),
		with("deployment").Deployment(), with("apart").Deployment()
	deployment.Spec.Template.Spec.Volumes = []corev1.Volume{claimed("deployment")}
	apart.Spec.Template.Spec.Volumes = []corev1.Volume{claimed("apart")}
	for _, t := range []*corev1.PodTemplateSpec{
		&set.Spec.Template, &plain.Spec.Template, &deployment.Spec.Template, &apart.Spec.Template} {
		t.Labels["combination"] = fmt.Sprint(id)
	}
	alone := w.bare(fmt.Sprintf("alone%d-pod", id), h)
	alone.Labels = map[string]string{"combination": fmt.Sprint(id)}
	alone.Spec.Volumes, alone.Spec.Tolerations = []corev1.Volume{claimed("alone")}, leavingWithin(1)
	return []any{set, plain, deployment, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: apart.Name, Namespace: w.ns},
		Spec: appsv1.ReplicaSetSpec{Replicas: apart.Spec.Replicas, Selector: apart.Spec.Selector,
			Template: apart.Spec.Template},
	}, alone}
}

// volumeOf is the PersistentVolume of a claim, or of the StatefulSet of that name.
func (w *world) volumeOf(name string) string {
	w.t.Helper()
	if strings.HasPrefix(name, "set") {
		name = "data-" + name + "-0"
	}
	claim, err := w.Client().CoreV1().PersistentVolumeClaims(w.ns).Get(w.ctx, name, metav1.GetOptions{})
	kit.Must(w.t, err)
	return claim.Spec.VolumeName
}

// attachmentOf is the attachment of a claim's volume to a node.
func (w *world) attachmentOf(h *host, claim string) string {
	w.t.Helper()
	list, err := w.Client().StorageV1().VolumeAttachments().List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	for _, va := range list.Items {
		if va.Spec.NodeName == h.Name() && va.Spec.Source.PersistentVolumeName != nil &&
			*va.Spec.Source.PersistentVolumeName == w.volumeOf(claim) {
			return va.Name
		}
	}
	w.t.Fatalf("claim %s: not attached to %s", claim, h.Name())
	return ""
}
