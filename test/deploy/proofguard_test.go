package deploy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// proofGuarded is a world with the webhook of the chart's proofGuard, which runs as its own account.
type proofGuarded struct {
	*world
	admin   client.Client
	webhook *cluster.Part
	config  *admissionv1.ValidatingWebhookConfiguration
	signer  signing.Signer
	keyFile string
	binary  string
}

const guardName = "forcefence-proof-guard"

// signingValues are those by which the controller signs proofs, and proofGuardOn those of the webhook that demands them.
const (
	signingValues = "config: {signing: {keyFile: /etc/forcefence-signing/key.pem}}\n"
	proofGuardOn  = signingValues + "proofGuard: {enabled: true}"
)

// newGuarded starts the webhook, and makes a key as an administrator does. Only the webhook's address differs from the
// chart's: there are no Services here.
func newGuarded(t *testing.T, dir string, w *world) *proofGuarded {
	t.Helper()
	g := &proofGuarded{
		world: w, admin: w.as(), binary: build(t, dir, "forcefence"), keyFile: filepath.Join(dir, "key.pem"),
	}
	g.mustRun("proof", "keys", "--new", "--namespace", namespace)
	var secret corev1.Secret
	kit.Must(t, g.admin.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: "forcefence-signing"}, &secret))
	kit.Must(t, os.WriteFile(g.keyFile, secret.Data["key.pem"], 0o600))
	var err error
	g.signer, err = signing.ParseSigner(secret.Data["key.pem"])
	kit.Must(t, err)

	authority := kit.NewAuthority("reviews")
	kit.Must(t, authority.Server("127.0.0.1").Write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))
	address := kit.FreeAddress(t)
	var args []string
	for _, u := range parse(t, charted(t, proofGuardOn)) {
		switch {
		case u.GetName() == guardName && u.GetKind() == "Deployment":
			args = typed[appsv1.Deployment](t, u.Object).Spec.Template.Spec.Containers[0].Args
		case u.GetName() != guardName || slices.Contains([]string{"Secret", "Service", "PodDisruptionBudget"},
			u.GetKind()):
		case u.GetKind() == "ValidatingWebhookConfiguration":
			g.config = typed[admissionv1.ValidatingWebhookConfiguration](t, u.Object)
			kit.Must(t, g.admin.Create(w.ctx, g.config.DeepCopy(), client.DryRunAll))
			for i := range g.config.Webhooks {
				url := "https://" + address + *g.config.Webhooks[i].ClientConfig.Service.Path
				g.config.Webhooks[i].ClientConfig = admissionv1.WebhookClientConfig{URL: &url, CABundle: authority.Cert}
			}
		default:
			kit.Must(t, g.admin.Create(w.ctx, &unstructured.Unstructured{Object: u.Object}))
		}
	}
	kubeconfig := filepath.Join(dir, "guard.kubeconfig")
	kit.Must(t, w.c.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+namespace+":"+guardName,
		"system:serviceaccounts", "system:authenticated"))
	g.webhook = cluster.NewPart("proof-guard", g.binary, append(args, "--listen="+address,
		"--certificates="+dir, "--kubeconfig="+kubeconfig, "--namespace="+namespace),
		filepath.Join(dir, "guard.log"), func(context.Context) error {
			conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: authority.Pool()})
			if err == nil {
				err = conn.Close()
			}
			return err
		}, nil)
	w.endsWithTest(g.webhook)
	kit.Must(t, g.webhook.Start(w.ctx))
	return g
}

// TestProofGuardPath: the API server asks at the one path that the program answers. The chart makes it from the key,
// and so keeps both.
func TestProofGuardPath(t *testing.T) {
	for _, own := range []string{"", "/" + strings.Repeat("a1", 16)} {
		values, path, args := proofGuardOn, own, []string(nil)
		if own != "" {
			values = signingValues + "proofGuard: {enabled: true, certificate: {secret: mine, path: " + own + "}}"
		}
		asked := map[string]int{}
		for _, u := range parse(t, charted(t, values)) {
			switch {
			case u.GetName() != guardName:
			case u.GetKind() == "Secret":
				path = fmt.Sprintf("/review/%x", sha256.Sum256(typed[corev1.Secret](t, u.Object).Data["tls.key"]))
			case u.GetKind() == "Deployment":
				args = typed[appsv1.Deployment](t, u.Object).Spec.Template.Spec.Containers[0].Args
			case u.GetKind() == "ValidatingWebhookConfiguration":
				for _, h := range typed[admissionv1.ValidatingWebhookConfiguration](t, u.Object).Webhooks {
					asked[*h.ClientConfig.Service.Path]++
				}
			}
		}
		if asked[path] != 4 || len(asked) != 1 {
			t.Errorf("%s: the API server asks at %v, want four times at %q", values, asked, path)
		}
		if want := fmt.Sprintf("--path-hash=%x", sha256.Sum256([]byte(path))); !slices.Contains(args, want) {
			t.Errorf("%s: got arguments %q, want %s", values, args, want)
		}
	}
}

// TestProofGuardPlace: the proof guard runs where the controller does, on control-plane nodes by default, and its pods
// on different ones where there are two.
func TestProofGuardPlace(t *testing.T) {
	plane := []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node-role.kubernetes.io/etcd", "CriticalAddonsOnly"}
	for values, want := range map[string]struct {
		affine   bool
		selector map[string]string
		keys     []string // of the tolerations
	}{
		"": {true, map[string]string{corev1.LabelOSStable: "linux"}, plane},
		"\ncontroller: {onControlPlane: false, nodeSelector: {pool: forcefence}, tolerations: [{key: pool}]}": {false,
			map[string]string{corev1.LabelOSStable: "linux", "pool": "forcefence"},
			append(plane, "pool")},
	} {
		pod := find[appsv1.Deployment](t, parse(t, charted(t, proofGuardOn+values)), "Deployment",
			guardName).Spec.Template.Spec
		var keys []string
		for _, each := range pod.Tolerations {
			keys = append(keys, each.Key)
		}
		affine := pod.Affinity != nil && pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.
			NodeSelectorTerms[0].MatchExpressions[0].Key == "node-role.kubernetes.io/control-plane"
		if affine != want.affine || !maps.Equal(pod.NodeSelector, want.selector) || !slices.Equal(keys, want.keys) {
			t.Errorf("%q: got %+v, %v, %v, want %+v", values, pod.Affinity, pod.NodeSelector, keys, want)
		}
		if s := pod.TopologySpreadConstraints; len(s) != 1 || s[0].WhenUnsatisfiable != corev1.DoNotSchedule ||
			s[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != guardName {
			t.Errorf("%q: got %+v, want the pods on different nodes", values, s)
		}
	}
}

// installWebhook puts the webhook in force, and waits until it is.
func (g *proofGuarded) installWebhook() {
	g.t.Helper()
	kit.Must(g.t, g.admin.Create(g.ctx, g.config.DeepCopy()))
	g.node("probe", nil)
	g.until("the webhook is in force", func() (bool, error) {
		err := g.taintOut("probe")
		if err == nil {
			g.untaint("probe")
		}
		return err != nil, nil
	})
}

func (g *proofGuarded) mustRun(args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.ctx, g.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+g.c.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("forcefence %s: %v: %s", args, err, out)
	}
	return string(out)
}

// node makes a Node without a kubelet, which has a volume in use, and lets edit sign or confirm what it wants.
func (g *proofGuarded) node(name string, edit func(*corev1.Node)) *corev1.Node {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	kit.Must(g.t, g.admin.Create(g.ctx, n))
	before := n.DeepCopy() // the control plane writes to it, too
	n.Status.NodeInfo.BootID = "boot"
	inUse := corev1.UniqueVolumeName("kubernetes.io/csi/csi.example.net^" + name)
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{inUse}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	kit.Must(g.t, g.admin.Status().Patch(g.ctx, n, client.MergeFrom(before)))
	if edit != nil {
		before = n.DeepCopy()
		n.Annotations = map[string]string{}
		edit(n)
		kit.Must(g.t, g.admin.Patch(g.ctx, n, client.MergeFrom(before)))
	}
	return n
}

// sign writes the record of a fence that is in phase Evicting by a proof.
func sign(s signing.Signer, n *corev1.Node, at time.Time, edit func(*taint.Record)) {
	at = at.UTC().Truncate(time.Millisecond)
	rec := taint.Record{ID: "f-0123456789ab", NodeUID: string(n.UID), BootID: "boot", Since: at, By: "ff-1"}.
		EnterPhase(taint.PhaseEvicting, "", at).
		WithEvidence(taint.Evidence{At: at, From: "racks/7", State: "Off", Raw: "Off"})
	rec.Proof = s.Sign(taint.Look{Name: n.Name}, rec, true)
	if edit != nil {
		edit(&rec)
	}
	n.Annotations[taint.RecordAnnotation] = rec.Encode()
}

func (g *proofGuarded) taintOut(node string) error {
	return g.admin.Patch(g.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(
		types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service",`+
			`"value":"nodeshutdown","effect":"NoExecute"}]}}`)))
}

func (g *proofGuarded) untaint(node string) {
	g.t.Helper()
	kit.Must(g.t, g.admin.Patch(g.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(
		types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service",`+
			`"effect":"NoExecute","$patch":"delete"}]}}`))))
}

// bound makes a StatefulSet's pod on a node.
func (g *proofGuarded) bound(name, node string, edit func(*corev1.Pod)) *corev1.Pod {
	g.t.Helper()
	yes := true
	owner := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "none", Controller: &yes,
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{owner},
	}, Spec: corev1.PodSpec{
		NodeName: node, Hostname: name, Containers: []corev1.Container{{Name: "c", Image: "image"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}
	if edit != nil {
		edit(p)
	}
	phase := p.Status.Phase
	kit.Must(g.t, g.admin.Create(g.ctx, p))
	if phase != "" {
		created := p.DeepCopy() // the controller-manager marks pods of silent nodes, too: no precondition
		p.Status.Phase = phase
		kit.Must(g.t, g.admin.Status().Patch(g.ctx, p, client.MergeFrom(created)))
	}
	return p
}

func (g *proofGuarded) force(c client.Client, p *corev1.Pod) error {
	return c.Delete(g.ctx, p, client.GracePeriodSeconds(0))
}

// attachment makes a VolumeAttachment of a volume, and a PersistentVolume with that handle; "": its volume is gone.
func (g *proofGuarded) attachment(name, node, handle string) *storagev1.VolumeAttachment {
	g.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "csi.example.net", VolumeHandle: handle,
		}},
	}}
	if handle != "" {
		kit.Must(g.t, g.admin.Create(g.ctx, pv))
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "csi.example.net", NodeName: node,
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
	}}
	kit.Must(g.t, g.admin.Create(g.ctx, va))
	return va
}

// refusedWith reports whether the webhook refused a request for that reason; "" means a request that passed.
func refusedWith(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

// TestProofGuard: of nodes that are not Ready, the three requests pass with a proof or a confirmation, and otherwise
// not, even for an administrator. Nothing else is affected. What the controller says of a refusal is what the webhook
// says. While the webhook is down they are refused, and pass once its configuration is deleted.
func TestProofGuard(t *testing.T) {
	dir := t.TempDir()
	// The pods' owner does not exist, so the garbage collector would delete them.
	w := newWorld(t, cluster.Options{KCMArgs: []string{quiet.KCMArgs[0] + ",-garbage-collector-controller"}})
	kit.Must(t, w.as().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	g := newGuarded(t, dir, w)
	g.installWebhook()
	now := time.Now()
	other := signing.Signer{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), By: "ff-1"}
	confirm := func(at time.Time) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations[taint.ConfirmAnnotation] = taint.Confirmation{
				By: "ann", Reason: "both plugs", NodeUID: string(n.UID), BootID: "boot", Fence: "f-1",
				At: at.UTC().Truncate(time.Second),
			}.Encode()
		}
	}
	said := map[string]string{} // by node, why the webhook refuses as the controller knows it
	for _, tc := range []struct {
		node string
		edit func(*corev1.Node)
		want string // in the refusal; "": all three pass
	}{
		{"proven", func(n *corev1.Node) { sign(g.signer, n, now, nil) }, ""},
		{"confirmed", confirm(now), ""},
		{"silent", nil, "forcefence has no fence of the node"},
		{"unsigned", func(n *corev1.Node) {
			sign(g.signer, n, now, func(r *taint.Record) { r.Proof = "" })
		}, "is not signed"},
		{"forged", func(n *corev1.Node) { sign(other, n, now, nil) }, "is not among the 1 public keys"},
		{"other-word", func(n *corev1.Node) {
			sign(g.signer, n, now, func(r *taint.Record) {
				r.Proof = strings.Replace(r.Proof, `"raw":"Off"`, `"raw":"off"`, 1)
			})
		}, "link 1 (Evicting"},
		{"others-proof", func(n *corev1.Node) {
			copied := n.DeepCopy()
			copied.Name = "proven"
			sign(g.signer, copied, now, nil)
			n.Annotations = copied.Annotations
		}, `about node "proven"`},
		{"replayed", func(n *corev1.Node) {
			sign(g.signer, n, now, func(r *taint.Record) { r.ID = "f-ba9876543210" })
		}, "about fence"},
		{"old", func(n *corev1.Node) { sign(g.signer, n, now.Add(-time.Hour), nil) }, "longer than 15m0s"},
		{"alive", func(n *corev1.Node) {
			sign(g.signer, n, now, nil)
			_, err := g.c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(g.ctx,
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, metav1.CreateOptions{})
			kit.Must(t, err)
		}, "the node has renewed its Lease since"},
		{"confirmed-long-ago", confirm(now.Add(-time.Hour)), "it was given 1h0m"},
		{"said-on", func(n *corev1.Node) {
			sign(g.signer, n, now, func(r *taint.Record) {
				next := r.WithEvidence(taint.Evidence{At: now.UTC(), From: "racks/7", State: "On", Raw: "On"})
				next.Proof = g.signer.Sign(taint.Look{Name: n.Name, Record: r}, next, false)
				*r = next
			})
		}, "or one said On since"},
	} {
		n, leaseRV := g.node(tc.node, tc.edit), ""
		if tc.node == "alive" {
			lease, err := g.c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(g.ctx, n.Name,
				metav1.GetOptions{})
			kit.Must(t, err)
			leaseRV = lease.ResourceVersion
		}
		if why := signing.FindRefusal(n, leaseRV); why != nil {
			said[tc.node] = why.Error()
		}
		if !signing.NeedsProof(n, "kubernetes.io/csi/csi.example.net^") {
			t.Errorf("%s: the controller does not know that a detach needs a proof", tc.node)
		}
		for what, err := range map[string]error{
			"the taint":         g.taintOut(tc.node),
			"a forced deletion": g.force(g.admin, g.bound(tc.node+"-0", tc.node, nil)),
			"an attachment":     g.admin.Delete(g.ctx, g.attachment("va-"+tc.node, tc.node, tc.node)),
		} {
			if !refusedWith(err, tc.want) || !strings.Contains(fmt.Sprint(err), said[tc.node]) {
				t.Errorf("%s: %s: got %v, want %q; the controller says %q", tc.node, what, err, tc.want, said[tc.node])
			}
		}
	}
	if got := slices.Sorted(maps.Keys(said)); !slices.Equal(got, []string{"alive", "said-on"}) {
		t.Errorf("the controller says for certain that the webhook refuses %q, want alive and said-on", got)
	}

	evict := func(p *corev1.Pod) error {
		zero := int64(0)
		return g.admin.SubResource("eviction").Create(g.ctx, p, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &zero},
		})
	}
	for _, tc := range []struct {
		name string
		do   func() error
		want string
	}{
		{"without its owner", func() error {
			return g.force(g.admin, g.bound("orphan", "silent", func(p *corev1.Pod) { p.OwnerReferences = nil }))
		}, "may still run"},
		{"no grace of its own", func() error {
			return g.admin.Delete(g.ctx, g.bound("hasty", "silent", func(p *corev1.Pod) {
				zero := int64(0)
				p.Spec.TerminationGracePeriodSeconds = &zero
			}))
		}, "may still run"},
		{"an eviction", func() error { return evict(g.bound("evicted", "silent", nil)) }, "may still run"},
		{"an eviction of a pod that has ended", func() error {
			return evict(g.bound("evicted-ended", "silent", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		}, ""},
		{"a confirmation in the same write", func() error {
			n := g.node("both", nil)
			before := n.DeepCopy()
			n.Annotations = map[string]string{}
			confirm(time.Now())(n)
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			return g.admin.Patch(g.ctx, n, client.MergeFrom(before))
		}, "no valid confirmation"},
		{"all at once", func() error {
			p := g.bound("collected", "silent", func(p *corev1.Pod) { p.Labels = map[string]string{"all": "yes"} })
			return g.admin.DeleteAllOf(g.ctx, p, client.InNamespace(p.Namespace), client.MatchingLabels(p.Labels),
				client.GracePeriodSeconds(0))
		}, "may still run"},
		{"a volume that is not known", func() error {
			return g.admin.Delete(g.ctx, g.attachment("va-unknown", "silent", ""))
		}, "may still write"},
		{"a Ready node's taint", func() error { g.ready("ready"); return g.taintOut("ready") }, "may still run"},
		{"a Ready node's pod", func() error { return g.force(g.admin, g.bound("ready-0", "ready", nil)) }, ""},
		{"a Ready node's volume", func() error {
			return g.admin.Delete(g.ctx, g.attachment("va-ready", "ready", "ready"))
		}, ""},
		{"with grace", func() error { return g.admin.Delete(g.ctx, g.bound("plain", "silent", nil)) }, ""},
		{"ended by a fence", func() error {
			return g.force(g.admin, g.bound("ended", "silent", func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodFailed
			}))
		}, ""},
		{"a Deployment's", func() error {
			return g.force(g.admin, g.bound("web", "silent", func(p *corev1.Pod) {
				p.OwnerReferences[0].Kind, p.Spec.Hostname = "ReplicaSet", ""
			}))
		}, ""},
		{"by its own kubelet", func() error {
			return g.force(g.as("system:node:silent", "system:nodes"), g.bound("stopped", "silent", nil))
		}, ""},
		{"of a Node that is gone", func() error { return g.force(g.admin, g.bound("gone", "no-node", nil)) }, ""},
		{"an unmounted volume", func() error {
			return g.admin.Delete(g.ctx, g.attachment("va-unmounted", "silent", "another"))
		}, ""},
	} {
		if err := tc.do(); !refusedWith(err, tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}

	g.webhook.Stop()
	if err := g.force(g.admin, g.bound("down", "proven", nil)); !refusedWith(err, "failed calling webhook") {
		t.Errorf("while the webhook is down: got %v, want a refusal", err)
	}
	if err := g.force(g.admin, g.bound("down-ended", "proven", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
	})); err != nil {
		t.Errorf("while it is down, a pod that a fence ended: %v", err)
	}
	kit.Must(t, g.admin.Delete(g.ctx, g.config.DeepCopy()))
	g.until("the requests pass without the configuration", func() (bool, error) {
		err := g.taintOut("silent")
		return err == nil, err
	})
}

func (g *proofGuarded) ready(name string) {
	g.t.Helper()
	n := g.node(name, nil)
	before := n.DeepCopy()
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	kit.Must(g.t, g.admin.Status().Patch(g.ctx, n, client.MergeFrom(before)))
}

// TestProvenFence: a whole fence by the real controller with a key. Its volumes are detached by the stock controllers
// past the webhook, and its Fencing verifies.
func TestProvenFence(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	hosts := w.machines(dir, 4)
	w.install(someRacks)
	g := newGuarded(t, dir, w)
	kit.Must(t, g.admin.Create(g.ctx, g.config.DeepCopy()))
	w.untilReplicas(nil)
	pod := w.c.ReadyPods(namespace)[0]
	w.replica(g.binary, dir, pod.Name, fmt.Sprintf("\nsigning: {keyFile: %s}\n", g.keyFile))
	w.leader("")
	var victim *host
	for _, h := range hosts {
		if h.Name() == "n3" { // a worker
			victim = h
		}
	}
	w.busy(victim)
	victim.machine.CutPower()
	rec := w.untilDone(victim.Name(), taint.ResultEvicted)
	w.untilMoved(victim)
	if rec.Proof == "" {
		t.Fatal("the record is not signed")
	}
	t.Logf("the proof of the record has %d bytes", len(rec.Proof))
	var said string
	w.until("the Fencing verifies", func() (bool, error) {
		cmd := exec.CommandContext(w.ctx, g.binary, "proof", "verify", victim.Name(), "--namespace", namespace)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+w.c.Kubeconfig())
		out, err := cmd.CombinedOutput()
		said = string(out)
		return err == nil, errors.New(said)
	})
	t.Log(said)
}

var (
	guardNodes  = flag.Int("proofguard.nodes", 0, "nodes of TestProofGuardLatency; 0: it is skipped")
	guardRounds = flag.Int("proofguard.rounds", 200, "how often it sends each request")
)

// TestProofGuardLatency measures what the webhook adds to each of the requests, and how much memory it takes.
func TestProofGuardLatency(t *testing.T) {
	if *guardNodes == 0 {
		t.Skip("it measures: set -proofguard.nodes=5000")
	}
	dir := t.TempDir()
	w := newWorld(t, cluster.Options{})
	kit.Must(t, w.as().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	g := newGuarded(t, dir, w)
	var crowd errgroup.Group
	crowd.SetLimit(32)
	for i := range *guardNodes {
		crowd.Go(func() error {
			return g.admin.Create(g.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("crowd-%d", i)}})
		})
	}
	kit.Must(t, crowd.Wait())
	g.node("proven", func(n *corev1.Node) { sign(g.signer, n, time.Now(), nil) })
	for _, with := range []bool{false, true} {
		if with {
			g.installWebhook()
		}
		took := map[string][]time.Duration{}
		measure := func(what string, do func() error) {
			t.Helper()
			began := time.Now()
			kit.Must(t, do())
			took[what] = append(took[what], time.Since(began))
		}
		for i := range *guardRounds {
			name := fmt.Sprintf("m-%t-%d", with, i)
			pod, va := g.bound(name, "proven", nil), g.attachment(name, "proven", "proven")
			measure("pod", func() error { return g.force(g.admin, pod) })
			measure("attachment", func() error { return g.admin.Delete(g.ctx, va) })
			measure("taint", func() error { return g.taintOut("proven") })
			g.untaint("proven")
		}
		for _, what := range []string{"pod", "attachment", "taint"} {
			d := took[what]
			slices.Sort(d)
			t.Logf("webhook %t, %d nodes: %s: p50 %s, p99 %s", with, *guardNodes, what, d[len(d)/2], d[len(d)*99/100])
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.webhook.PID()))
	kit.Must(t, err)
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "VmHWM") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
