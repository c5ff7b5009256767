package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var blocks = regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```")

// sample is the one sample of a page that has that in it.
func sample(t *testing.T, page, has string) (found string) {
	t.Helper()
	text, err := os.ReadFile(page)
	kit.Must(t, err)
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], has) {
			if found != "" {
				t.Fatalf("%s has two samples with %s", page, has)
			}
			found = m[1]
		}
	}
	if found == "" {
		t.Fatalf("%s has no sample with %s", page, has)
	}
	return found
}

// applies applies a text, as soon as its kinds are served.
func (w *world) applies(text string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "objects.yaml")
	kit.Must(w.t, os.WriteFile(file, []byte(text), 0o600))
	w.until("applied", func() (bool, error) {
		_, err := w.c.Kubectl(w.ctx, "apply", "--server-side", "-f", file)
		return err == nil, err
	})
}

// quiet checks that the controller was never refused anything.
func (w *world) quiet(controller *cluster.Part) {
	w.t.Helper()
	controller.Stop()
	text, err := os.ReadFile(controller.LogFile())
	kit.Must(w.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			w.t.Errorf("the controller was refused: %s", line)
		}
	}
}

// presetDrain is docs/drain.md's sample with the component drain and the rule of README.md: a real drain waits for the
// last healthy replica.
func presetDrain(t *testing.T, binary string) {
	const ns = "disks-system"
	dir := t.TempDir()
	w := newWorld(t, cluster.Options{})
	disks, err := os.ReadFile("testdata/disks.yaml")
	kit.Must(t, err)
	w.install(overlay(t, []string{"base"}, []string{"drain"},
		map[string]string{"disks.yaml": sample(t, "../../deploy/README.md", "forcefence-disks")}))
	// afterwards: Kubernetes holds the types of policies about the core's nodes against those of any group
	w.applies(string(disks))
	w.machines(dir, 5)
	drained, other := "n3", "n4" // the Deployment's own pods run on the others
	replica := func(node string) {
		t.Helper()
		w.applies(fmt.Sprintf(`apiVersion: disks.example.com/v1
kind: Replica
metadata: {name: vol-%s, namespace: %s}
spec: {node: %[1]s, volume: vol, evict: false}
status: {healthy: true, running: true, started: true}
`, node, ns))
	}
	for _, n := range []string{drained, other} {
		_, err := w.c.Client().CoreV1().Nodes().
			Patch(w.ctx, n, types.MergePatchType, []byte(`{"metadata":{"labels":{"disks":"here"}}}`),
				metav1.PatchOptions{})
		kit.Must(t, err)
		w.applies(fmt.Sprintf("apiVersion: disks.example.com/v1\nkind: Node\nmetadata: {name: %s, namespace: "+
			"%s}\nspec: {evict: false}\nstatus: {ready: true}\n", n, ns))
	}
	grace := int64(1)
	engine := cluster.Workload{Namespace: ns, Name: "engine", Replicas: 2, GracePeriod: &grace,
		NodeSelector: map[string]string{"disks": "here"}}.StatefulSet()
	engine.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: engine.Spec.Selector, TopologyKey: corev1.LabelHostname}},
	}}
	_, err = w.c.Client().AppsV1().StatefulSets(ns).Create(w.ctx, engine, metav1.CreateOptions{})
	kit.Must(t, err)
	kit.Must(t, w.c.WaitReadyPods(w.ctx, ns, 2))
	replica(drained)
	controller := w.replica(binary, dir, "drain", sample(t, "../../docs/drain.md", "identity: ["))

	budgets := func(nodes ...string) {
		t.Helper()
		w.until(fmt.Sprintf("budgets before the engines of %v", nodes), func() (bool, error) {
			list, err := w.c.Client().PolicyV1().PodDisruptionBudgets(ns).
				List(w.ctx, metav1.ListOptions{LabelSelector: taint.DrainGuardLabel})
			if err != nil {
				return false, err
			}
			found := map[string]bool{}
			for _, b := range list.Items {
				found[b.Annotations[taint.GuardedNodeAnnotation]] = true
			}
			for _, n := range nodes {
				if !found[n] {
					return false, fmt.Errorf("none for %s", n)
				}
			}
			return len(list.Items) == len(nodes), fmt.Errorf("%d", len(list.Items))
		})
	}
	budgets(drained, other)
	var held *corev1.Pod
	for _, p := range w.c.ReadyPods(ns) {
		if p.Spec.NodeName == drained {
			held = p
		}
	}
	evict := func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: held.Name, Namespace: ns},
			DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
		})
	}
	asked := func(want string) {
		t.Helper()
		w.until("the replica's request for eviction is "+want, func() (bool, error) {
			out, err := w.c.Kubectl(w.ctx, "get", "replicas.disks.example.com", "-n", ns, "vol-"+drained, "-o",
				`jsonpath={.spec.evict} {.metadata.annotations.`+
					strings.ReplaceAll(storage.EvictionAnnotation, ".", `\.`)+"}")
			return err == nil && strings.TrimSpace(out) == want, fmt.Errorf("%q, %v", out, err)
		})
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.c.Kubectl(w.ctx, "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5m")
		ended <- err
	}()
	w.untilSays(drained, reason.DrainHeld, "drain-status "+drained)
	asked("true true") // and that it is ours
	if err := evict(w.ctx, nil, w.c.Client()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting the engine before the last healthy replica: got %v, want it held up", err)
	}
	t.Run("what it still may not do", func(t *testing.T) {
		theirs := drainBudget("theirs", func(b *policyv1.PodDisruptionBudget) { b.Labels = nil })
		_, err := w.c.Client().PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, theirs, metav1.CreateOptions{})
		kit.Must(t, err)
		write := func(what string) request {
			return func(ctx context.Context, _, c kubernetes.Interface) error {
				return c.CoreV1().RESTClient().Patch(types.MergePatchType).
					AbsPath("/apis/disks.example.com/v1/namespaces/"+ns+"/"+what).
					Param("dryRun", "All").Body([]byte(`{"spec":{"evict":false}}`)).Do(ctx).Error()
			}
		}
		accounts := map[string]kubernetes.Interface{
			us: w.as(account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)}
		for _, a := range []attempt{
			{"delete a budget that is no guard's", us, deleteBudget("theirs", nil), budgetTheirs},
			{"make one that is no guard's", us, createBudget(func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }),
				budgetNobodys},
			{"another annotation of the node", us, onNode(drained, note("example.net/drain", "x")), otherNote},
			{"uncordon", us, onNode(drained, func(n *corev1.Node) { n.Spec.Unschedulable = false }), otherSpec},
			{"evict a pod", us, evict, byRBAC},
			{"write the storage system's node", us, write("nodes/" + drained), byRBAC},
			{"take a request for eviction back", us, write("replicas/vol-" + drained), ""},
		} {
			if bad := w.verdict(accounts, a); bad != "" {
				t.Errorf("%s: %s", a.name, bad)
			}
		}
	})
	select {
	case err := <-ended:
		t.Fatalf("the drain ended with %v before another replica was healthy", err)
	default:
	}
	replica(other)
	if err := <-ended; err != nil {
		t.Errorf("the drain, when another replica is healthy: %v", err)
	}
	w.untilSays(drained, reason.DrainAllowed, "")
	if p := w.pod(ns, held.Name); p != nil && p.UID == held.UID {
		t.Errorf("after the drain: pod %s is still there", p.Name)
	}
	_, err = w.c.Kubectl(w.ctx, "uncordon", drained)
	kit.Must(t, err)
	budgets(drained, other)
	asked("false")
	w.quiet(controller)
}
