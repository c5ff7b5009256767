package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// presets is a configuration with a policy of each preset, each on nodes of its own.
const presets = `
policies:
- {name: noobaa, preset: noobaa, nodes: pair=noobaa, namespaces: [default], withoutProof: accept-duplicates}
- {name: sets, preset: longhorn, nodes: "pair in (free, longhorn)", drivers: [` + cluster.CSIDriver + `],
   nodeDownPodDeletionPolicy: delete-statefulset-pod, withoutProof: accept-duplicates}
- {name: both, preset: longhorn, nodes: pair=both, drivers: [` + cluster.CSIDriver + `],
   nodeDownPodDeletionPolicy: delete-both-statefulset-and-deployment-pod, withoutProof: accept-duplicates}
- {name: waits, preset: longhorn, nodes: pair=waits, drivers: [` + cluster.CSIDriver + `],
   volumeAttachmentRecoveryPolicy: wait, withoutProof: accept-duplicates}
`

// pair are two nodes that alone may run a workload: one is cut off, and the other one gets the replacement.
type pair struct {
	name  string
	hosts map[string]*host
}

// down cuts the node of that pod off. Its machine and its containers run on.
func (p pair) down(w *world, pod string) *corev1.Pod {
	w.t.Helper()
	old := w.like(pod)
	if old == nil {
		w.t.Fatalf("no pod %s", pod)
	}
	p.hosts[old.Spec.NodeName].StopHeartbeats()
	return old
}

// like is the newest pod whose name begins so.
func (w *world) like(prefix string) (found *corev1.Pod) {
	for _, p := range w.c.Pods("default") {
		if strings.HasPrefix(p.Name, prefix) && (found == nil || found.CreationTimestamp.Before(&p.CreationTimestamp)) {
			found = p
		}
	}
	return found
}

// untilReplaced waits until another pod is there in its place, and runs if it need not wait for the old one's volume:
// without a proof that stays attached for six minutes.
func (w *world) untilReplaced(old *corev1.Pod, prefix string, runs bool) {
	w.t.Helper()
	w.until(old.Name+" is replaced", func() (bool, error) {
		found := false
		for _, p := range w.c.Pods("default") {
			if p.UID == old.UID {
				return false, fmt.Errorf("the old one is still there")
			}
			found = found ||
				strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != old.Spec.NodeName && p.Spec.NodeName != "" &&
					(!runs || p.Status.Phase == corev1.PodRunning)
		}
		return found, fmt.Errorf("no pod is there in its place")
	})
}

// untilSays waits for an Event about that object which says this.
func (w *world) untilSays(about string, why reason.Reason, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("an Event %s about %s says %s", why, about, text), func() (bool, error) {
		list, err := w.c.Client().EventsV1().Events("").
			List(w.ctx, metav1.ListOptions{FieldSelector: "reason=" + string(why)})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items,
				func(e eventsv1.Event) bool { return e.Regarding.Name == about && strings.Contains(e.Note, text) }),
			fmt.Errorf("%d of that reason", len(list.Items))
	})
}

// TestPreset runs the real binary under a token of the ServiceAccount and what the manifests grant it, a cluster for
// each subtest.
func TestPreset(t *testing.T) {
	t.Parallel()
	binary := build(t, t.TempDir(), "forcefence")
	t.Run("node down", func(t *testing.T) { presetNodeDown(t, binary) })
	t.Run("storageos", func(t *testing.T) { presetStorageOS(t, binary) })
	t.Run("drain", func(t *testing.T) { presetDrain(t, binary) })
}

// presetNodeDown: NooBaa's preset, and Longhorn's for StatefulSets of other storage, need no component; where Longhorn
// is there, or Deployments count, it is the component longhorn.
func presetNodeDown(t *testing.T, binary string) {
	dir := t.TempDir()
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	w.install(base)
	pairs := map[string]pair{}
	names := []string{"noobaa", "free", "longhorn", "both", "waits"}
	hosts := w.machines(dir, 2*len(names))
	for i, name := range names {
		p := pair{name: name, hosts: map[string]*host{}}
		for j := range 2 {
			h := hosts[fmt.Sprintf("n%d", 2*i+j)]
			p.hosts[h.Name()] = h
			_, err := w.c.Client().CoreV1().Nodes().
				Patch(w.ctx, h.Name(), types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{"pair":%q}}}`, name), metav1.PatchOptions{})
			kit.Must(t, err)
		}
		pairs[name] = p
		grace, second := int64(2), int64(1)
		wl := cluster.Workload{Namespace: "default", Name: name, Replicas: 1, Volume: true, GracePeriod: &grace,
			NodeSelector: map[string]string{"pair": name}}
		for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			wl.Tolerations = append(wl.Tolerations,
				corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
					TolerationSeconds: &second})
		}
		var err error
		switch name {
		case "both", "waits":
			wl.Volume, wl.Mixed = false, true
			_, err = w.c.Client().AppsV1().Deployments("default").Create(w.ctx, wl.Deployment(), metav1.CreateOptions{})
		case "noobaa": // its pods are ended before Kubernetes deletes them
			wl.Tolerations, wl.Volume = nil, false
			s := wl.StatefulSet()
			s.Spec.Template.Labels["app"] = name
			s.Spec.Selector.MatchLabels["app"] = name
			_, err = w.c.Client().AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
		default:
			_, err = w.c.Client().AppsV1().StatefulSets("default").
				Create(w.ctx, wl.StatefulSet(), metav1.CreateOptions{})
		}
		kit.Must(t, err)
	}
	kit.Must(t, w.c.WaitReadyPods(w.ctx, "default", len(names)))
	controller := w.replica(binary, dir, "presets", presets)

	t.Run("noobaa needs no component", func(t *testing.T) {
		old := pairs["noobaa"].down(w, "noobaa-")
		w.untilReplaced(old, "noobaa-", true)
		w.untilSays(old.Name, reason.PolicyEnded, "policy noobaa, without proof: accept-duplicates")
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, old.Spec.NodeName, metav1.GetOptions{})
		kit.Must(t, err)
		if l := taint.NewLook(n, nil, key, providers.Now(), providers.Now()); !l.HasAnnounced("noobaa",
			"accept-duplicates") {
			t.Errorf("annotation of the node: got %q, want it to name the policy and its word",
				n.Annotations[taint.PolicyAnnotation])
		}
	})
	t.Run("longhorn's rules need none for StatefulSets where Longhorn is not there", func(t *testing.T) {
		w.untilReplaced(pairs["free"].down(w, "free-"), "free-", false)
	})
	t.Run("longhorn", func(t *testing.T) { w.longhorn(t, pairs, controller.LogFile()) })
	t.Run("what it still may not do", func(t *testing.T) { w.bounds(t, pairs["noobaa"]) })
	t.Run("attachments", func(t *testing.T) { w.released(t, pairs["waits"], controller.LogFile()) })
	controller.Stop()
	t.Run("cleanup leaves nothing of it", func(t *testing.T) {
		out, err := exec.CommandContext(w.ctx, binary, "cleanup", "--kubeconfig", w.c.Kubeconfig(), "--yes", "--force").
			CombinedOutput()
		list, listed := w.c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		kit.Must(t, listed)
		for _, n := range list.Items {
			if note, there := n.Annotations[taint.PolicyAnnotation]; err != nil || there {
				t.Errorf("%s still tells %q: %v\n%s", n.Name, note, err, out)
			}
		}
		if !strings.Contains(string(out), "annotation "+taint.PolicyAnnotation) {
			t.Errorf("got\n%s\nwant the annotation in it", out)
		}
	})
}

// longhorn is a cluster with Longhorn: whose own setting counts first, and cannot be read before the component grants
// it.
func (w *world) longhorn(t *testing.T, pairs map[string]pair, log string) {
	_, err := w.c.Kubectl(w.ctx, "apply", "-f", "testdata/longhorn-settings.yaml")
	kit.Must(t, err)
	set := func(value string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "setting.yaml")
		kit.Must(t, os.WriteFile(file,
			[]byte(`{"apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "value": "`+value+`",
"metadata": {"namespace": "longhorn-system", "name": "node-down-pod-deletion-policy"}}`), 0o600))
		w.until("Longhorn's setting is "+value, func() (bool, error) { // a CRD is served a moment after it is there
			_, err := w.c.Kubectl(w.ctx, "apply", "-f", file)
			return err == nil, err
		})
	}
	set("delete-statefulset-pod")
	old := pairs["longhorn"].down(w, "longhorn-")
	const about = "Longhorn's own setting node-down-pod-deletion-policy "
	w.untilSays(old.Spec.NodeName, reason.PolicyYields, "policy sets: "+about+"cannot be read (Forbidden)")
	accounts := map[string]kubernetes.Interface{us: w.as(account)}
	if bad := w.verdict(accounts, attempt{"without the component", us, detach, byRBAC}); bad != "" {
		t.Errorf("take a volume away without the component: %s", bad)
	}
	w.install(overlay(t, []string{"base"}, []string{"longhorn"}, nil))
	// in the log: the Events of one reason about one object are counted as one
	w.until("the setting is read", func() (bool, error) {
		text, err := os.ReadFile(log)
		return strings.Contains(string(text), "policy sets: "+about+`is \"delete-statefulset-pod\"`), err
	})
	if now := w.like("longhorn-"); now == nil || now.UID != old.UID || now.DeletionTimestamp == nil ||
		time.Now().Before(now.DeletionTimestamp.Time) {
		t.Errorf("while Longhorn's own setting counts: got %+v, want the pod as it was, past its deletionTimestamp",
			now)
	}
	deployment := pairs["both"].down(w, "both-")
	w.untilSays(deployment.Spec.NodeName, reason.PolicyYields, "policy both: "+about)
	set("do-nothing")
	w.untilReplaced(old, "longhorn-", false)
	w.untilReplaced(deployment, "both-", true)
	w.untilSays(deployment.Name, reason.PolicyEnded, "policy both, without proof: accept-duplicates")
}

// released is volumeAttachmentRecoveryPolicy of another driver than Longhorn's: its attachments may be deleted once the
// component's list names it.
func (w *world) released(t *testing.T, p pair, log string) {
	old := p.down(w, "waits-")
	pv := w.volumeOf(old.Name + "-scratch")
	w.until("its attachment is refused", func() (bool, error) {
		text, err := os.ReadFile(log)
		return strings.Contains(string(text), byAttachment), err
	})
	if va, _ := w.attached(old.Spec.NodeName, pv); va == "" {
		t.Error("the volume was detached, want its attachment refused: the component's list does not name its driver")
	}
	w.install(withDrivers(t, "longhorn", "attachers", []string{"forcefence-controller-attachment"}, nil))
	w.until("its volume is released", func() (bool, error) {
		va, _ := w.attached(old.Spec.NodeName, pv)
		return va == "", nil
	})
	w.untilSays(old.Spec.NodeName, reason.PolicyDetaching, "policy waits, without proof: accept-duplicates")
	if now := w.pod("default", old.Name); now == nil || now.UID != old.UID || now.DeletionTimestamp == nil ||
		!taint.IsTombstone(now) {
		t.Errorf("the old pod: got %+v, want it ended, and left Terminating", now)
	}
}

// detach deletes a VolumeAttachment.
func detach(ctx context.Context, admin, c kubernetes.Interface) error {
	list, err := admin.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return c.StorageV1().VolumeAttachments().Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{DryRun: dryRun})
}

// bounds checks the rights that the component grants to no account.
func (w *world) bounds(t *testing.T, p pair) {
	var alive *corev1.Pod
	for _, one := range w.c.ReadyPods("default") {
		if p.hosts[one.Spec.NodeName] != nil {
			alive = one
		}
	}
	if alive == nil {
		t.Fatal("no pod runs")
	}
	lists := ""
	w.until("a node has volumes", func() (bool, error) {
		list, err := w.c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, n := range list.Items {
			if len(n.Status.VolumesAttached) > 0 {
				lists = n.Name
			}
		}
		return lists != "", fmt.Errorf("none has")
	})
	accounts := map[string]kubernetes.Interface{
		us: w.as(account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)}
	listSets := func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
		return err
	}
	scale := func(ctx context.Context, admin, c kubernetes.Interface) error {
		s, err := admin.AppsV1().StatefulSets("default").Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Spec.Replicas = new(int32(0))
		_, err = c.AppsV1().StatefulSets("default").Update(ctx, s, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	setting := func(verb, name string) request {
		return func(ctx context.Context, _, c kubernetes.Interface) error {
			r := c.CoreV1().RESTClient().Verb(verb).
				AbsPath("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/"+name).Param("dryRun", "All")
			return r.Body([]byte(`{"value":"do-nothing"}`)).SetHeader("Content-Type", "application/merge-patch+json").
				Do(ctx).Error()
		}
	}
	const own = "node-down-pod-deletion-policy"
	for _, a := range []attempt{
		{"end a pod by deleting it", us, deletePod(alive.Name, func(*metav1.DeleteOptions) {}), podAlive},
		{"clear the lists of an unmarked node", us, onNode(lists, clearLists, "status"), listUnmarked},
		{"take a volume of another driver away", us, detach,
			"forcefence may delete no VolumeAttachment but those of its policies' drivers"},
		{"list ReplicaSets", us, listSets, byRBAC},
		{"write what owns pods", us, scale, byRBAC},
		{"read another setting of Longhorn's", us, setting("GET", "default-replica-count"), byRBAC},
		{"write Longhorn's setting", us, setting("PATCH", own), byRBAC},
		{"read Longhorn's setting", us, setting("GET", own), ""},
	} {
		if bad := w.verdict(accounts, a); bad != "" {
			t.Errorf("%s: %s", a.name, bad)
		}
	}
}
