package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// withDrivers is an overlay in which a list of the component's admission policies, by its variable, names the test's
// driver.
func withDrivers(t *testing.T, component, variable string, policies []string, files map[string]string) string {
	t.Helper()
	all := map[string]string{"drivers.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: drivers, annotations: {config.kubernetes.io/local-config: "true"}}
data: {drivers: "['` + cluster.CSIDriver + `']"}
`}
	for name, text := range files {
		all[name] = text
	}
	dir := overlay(t, []string{"base"}, []string{component}, all)
	file := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	text = append(text, "replacements:\n- source: {kind: ConfigMap, name: drivers, fieldPath: data.drivers}\n  "+
		"targets:\n"...)
	for _, p := range policies {
		text = fmt.Appendf(text, "  - {select: {kind: ValidatingAdmissionPolicy, name: %s}, fieldPaths: "+
			"['spec.variables.[name=%s].expression']}\n", p, variable)
	}
	kit.Must(t, os.WriteFile(file, text, 0o600))
	return dir
}

// storageRole is the rule that the component storageos shows, bound to the controller's account.
func storageRole(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kustomize/components/storageos/kustomization.yaml")
	kit.Must(t, err)
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#   "); ok {
			b.WriteString(rest)
		}
	}
	return b.String() + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: forcefence-storage}
subjects: [{kind: ServiceAccount, name: forcefence, namespace: forcefence-system}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: forcefence-storage}
`
}

// pool is a configuration with a storage system of the test's driver and StorageOS' rule over it.
const pool = `
storage:
- name: pool
  drivers: [` + cluster.CSIDriver + `]
  node:
    resource: storagenodes.v1.storage.example.net
    name: object.metadata.name
    healthy: '{"online": true, "offline": false}[object.health]'
  volume:
    resource: storagevolumes.v1.storage.example.net
    find: pv
    key: object.metadata.name
    healthy: '{"online": true, "offline": false}[object.health]'
policies:
- {name: fences, preset: storageos, storage: pool, withoutProof: storage-fences, pollInterval: 1s, retryInterval: 1s}
`

// attached reports whether a volume is attached to a node, and whether it is in the node's list of those in use.
func (w *world) attached(node, pv string) (attachment string, inUse corev1.UniqueVolumeName) {
	w.t.Helper()
	v, err := w.c.Client().CoreV1().PersistentVolumes().Get(w.ctx, pv, metav1.GetOptions{})
	kit.Must(w.t, err)
	n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	kit.Must(w.t, err)
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + v.Spec.CSI.Driver + "^" + v.Spec.CSI.VolumeHandle)
	if slices.Contains(n.Status.VolumesInUse, name) {
		inUse = name
	}
	list, err := w.c.Client().StorageV1().VolumeAttachments().List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	for _, va := range list.Items {
		if va.Spec.NodeName == node && va.Spec.Source.PersistentVolumeName != nil &&
			*va.Spec.Source.PersistentVolumeName == pv {
			attachment = va.Name
		}
	}
	return attachment, inUse
}

// volumeOf is the PersistentVolume of a claim.
func (w *world) volumeOf(claim string) string {
	w.t.Helper()
	c, err := w.c.Client().CoreV1().PersistentVolumeClaims("default").Get(w.ctx, claim, metav1.GetOptions{})
	kit.Must(w.t, err)
	return c.Spec.VolumeName
}

// presetStorageOS is the preset storageos with its component, for a storage system and a driver that are not
// StorageOS': a node that its storage cuts off, and that is not Ready.
func presetStorageOS(t *testing.T, binary string) {
	dir := t.TempDir()
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	definitions, err := os.ReadFile("testdata/pool.yaml")
	kit.Must(t, err)
	w.applies(string(definitions))
	w.install(withDrivers(t, "storageos", "drivers",
		[]string{"forcefence-controller-storageos-attachment", "forcefence-controller-node-status"},
		map[string]string{"storage.yaml": storageRole(t)}))
	hosts := w.machines(dir, 5)
	cut, well := "n3", "n4" // the Deployment's own pods run on the others
	says := func(kind, name, health string) {
		t.Helper()
		w.applies(fmt.Sprintf("apiVersion: storage.example.net/v1\nkind: %s\nmetadata: {name: %s}\nhealth: %s\n", kind,
			name, health))
	}
	patch := func(node, text string) {
		t.Helper()
		_, err := w.c.Client().CoreV1().Nodes().
			Patch(w.ctx, node, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		kit.Must(t, err)
	}
	patch(cut, `{"metadata":{"labels":{"pool":"here"}}}`)
	for _, name := range []string{"fenced", "plain"} {
		s := cluster.Workload{Namespace: "default", Name: name, Replicas: 1, Volume: true,
			NodeSelector: map[string]string{"pool": "here"}}.StatefulSet()
		if name == "fenced" {
			s.Spec.Template.Labels["storageos.com/fenced"] = "true"
		}
		_, err := w.c.Client().AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
		kit.Must(t, err)
	}
	kit.Must(t, w.c.WaitReadyPods(w.ctx, "default", 2))
	patch(well, `{"metadata":{"labels":{"pool":"here"}}}`)
	fenced, plain := w.volumeOf("data-fenced-0"), w.volumeOf("data-plain-0")
	for _, pv := range []string{fenced, plain} {
		says("StorageVolume", pv, "online")
	}
	says("StorageNode", cut, "online")
	theirs := "pv-theirs"
	_, err = w.c.Client().StorageV1().VolumeAttachments().
		Create(w.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.storageos.com", NodeName: cut,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &theirs}}}, metav1.CreateOptions{})
	kit.Must(t, err)
	controller := w.replica(binary, dir, "storageos", pool)
	hosts[cut].StopHeartbeats()
	w.until("the node is not Ready", func() (bool, error) {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, cut, metav1.GetOptions{})
		return err == nil && !cluster.IsReady(n), err
	})
	old, other := w.pod("default", "fenced-0"), w.pod("default", "plain-0")
	if va, inUse := w.attached(cut, fenced); va == "" || inUse == "" {
		t.Fatalf("volume of the labelled pod: got attachment %q, in use %q, want both", va, inUse)
	}

	says("StorageNode", cut, "offline")
	w.untilReplaced(old, "fenced-", true)
	w.untilSays(old.Name, reason.PolicyEnded, "policy fences, without proof: storage-fences")
	if va, inUse := w.attached(cut, fenced); va != "" || inUse != "" {
		t.Errorf("volume of the labelled pod, on the node that was cut off: got attachment %q, in use %q, want neither",
			va, inUse)
	}
	left, inUse := w.attached(cut, plain)
	if left == "" || inUse == "" {
		t.Errorf("volume of the other pod: got attachment %q, in use %q, want both", left, inUse)
	}
	if now := w.pod("default", other.Name); now == nil || now.UID != other.UID || taint.IsTombstone(now) {
		t.Errorf("the pod without the label: got %+v, want it untouched", now)
	}
	t.Run("what it still may not do", func(t *testing.T) {
		_, running := w.attached(well, fenced)
		asIs := func(*metav1.Preconditions) {}
		write := func(ctx context.Context, _, c kubernetes.Interface) error {
			return c.CoreV1().RESTClient().Patch(types.MergePatchType).
				AbsPath("/apis/storage.example.net/v1/storagenodes/"+cut).
				Param("dryRun", "All").Body([]byte(`{"health":"online"}`)).Do(ctx).Error()
		}
		accounts := map[string]kubernetes.Interface{
			us: w.as(account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)}
		for _, a := range []attempt{
			{"another driver's attachment", us, deleteAttachment("theirs", asIs), attachmentOther},
			{"an attachment by its name", us,
				deleteAttachment(left, func(p *metav1.Preconditions) { *p = metav1.Preconditions{} }),
				attachmentByName},
			{"the lists of a Ready node", us, onNode(well, unlist(running), "status"), listStorage},
			{"the list of attached volumes", us,
				onNode(cut, func(n *corev1.Node) { n.Status.VolumesAttached = nil }, "status"), listStorage},
			{"a pod that it has not ended", us, deletePod(other.Name, func(*metav1.DeleteOptions) {}), podAlive},
			{"what the storage says", us, write, byRBAC},
			{"an attachment of the driver", us, deleteAttachment(left, asIs), ""},
			{"the driver's volume on a node that is not Ready", us, onNode(cut, unlist(inUse), "status"), ""},
		} {
			if bad := w.verdict(accounts, a); bad != "" {
				t.Errorf("%s: %s", a.name, bad)
			}
		}
		if running == "" {
			t.Error("the replacement's volume is not in use")
		}
	})
	w.quiet(controller)
}
