package deploy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	byBudget      = "'forcefence-controller-budget' with binding 'forcefence-controller-budget' denied request: "
	budgetTheirs  = byBudget + "forcefence may change and delete no PodDisruptionBudget but those of its drain guards"
	budgetNobodys = byBudget + "forcefence may make no PodDisruptionBudget without the label of a drain guard"
	budgetShape   = byBudget + "forcefence may demand of a PodDisruptionBudget nothing but that one pod is available"
	budgetForAll  = byBudget + "forcefence may make no PodDisruptionBudget for all pods"
	budgetByName  = byBudget + "forcefence may delete a PodDisruptionBudget only by its UID and resourceVersion"
)

// drainGuard makes what the controller makes.
var drainGuard = drain.Guard{Name: "disks", Namespace: "default", Identity: drain.Identity{"pod"},
	Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}}}

func drainBudget(name string, edit func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := drainGuard.BudgetFor(
		drain.Pod{Namespace: "default", Node: "plain", Labels: map[string]string{"app": "engine", "pod": name}})
	b.Name = name
	if edit != nil {
		edit(b)
	}
	return b
}

func createBudget(edit func(*policyv1.PodDisruptionBudget)) request {
	return func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.PolicyV1().PodDisruptionBudgets("default").
			Create(ctx, drainBudget("fresh", edit), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

func updateBudget(name string, edit func(*policyv1.PodDisruptionBudget)) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		b, err := admin.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(b)
		_, err = c.PolicyV1().PodDisruptionBudgets("default").Update(ctx, b, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
}

// deleteBudget deletes as the controller does, unless edit says otherwise.
func deleteBudget(name string, edit func(*metav1.Preconditions)) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		b, err := admin.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p := &metav1.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion}
		if edit != nil {
			edit(p)
		}
		return c.PolicyV1().PodDisruptionBudgets("default").
			Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun, Preconditions: p})
	}
}

func drainNotes(key string) request {
	return onNode("plain", func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, "x") })
}

// TestDrainPolicies tries what the controller may do with the component drain, and what it still may not.
func TestDrainPolicies(t *testing.T) {
	w := newWorld(t,
		cluster.Options{
			KCMArgs: []string{
				"--controllers=*,-node-lifecycle-controller,-pod-garbage-collector-controller,-disruption-controller"}})
	w.fixtures()
	dir := overlay(t, []string{"base"}, []string{"drain"}, nil)
	w.install(dir)
	for _, b := range []*policyv1.PodDisruptionBudget{
		drainBudget("ours", nil), drainBudget("theirs", func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }),
	} {
		_, err := w.c.Client().PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, b, metav1.CreateOptions{})
		kit.Must(t, err)
	}
	accounts := map[string]kubernetes.Interface{
		us: w.as(account, "system:serviceaccounts", "system:serviceaccounts:"+namespace), admin: w.c.Client()}
	rows := []attempt{
		{"make a guard's budget", us, createBudget(nil), ""},
		{"mend one", us,
			updateBudget("ours",
				func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["pod"] = "other" }), ""},
		{"delete one", us, deleteBudget("ours", nil), ""},
		{"make one that is no guard's", us, createBudget(func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }),
			budgetNobodys},
		{"take the guard off one", us, updateBudget("ours", func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }),
			budgetNobodys},
		{"make another owner's its own", us,
			updateBudget("theirs",
				func(b *policyv1.PodDisruptionBudget) {
					b.Labels = map[string]string{taint.DrainGuardLabel: "disks"}
				}), budgetTheirs},
		{"delete another owner's", us, deleteBudget("theirs", nil), budgetTheirs},
		{"delete by name", us, deleteBudget("ours", func(p *metav1.Preconditions) { p.UID = nil }), budgetByName},
		{"delete another version", us, deleteBudget("ours", func(p *metav1.Preconditions) { p.ResourceVersion = nil }),
			budgetByName},
		{"hold up all pods", us,
			createBudget(func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} }),
			budgetForAll},
		{"demand two pods", us,
			createBudget(func(b *policyv1.PodDisruptionBudget) {
				b.Spec.MinAvailable = &intstr.IntOrString{IntVal: 2}
			}), budgetShape},
		{"demand a share", us, createBudget(func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable = &intstr.IntOrString{Type: intstr.String, StrVal: "100%"}
		}), budgetShape},
		{"allow none to be away", us, createBudget(func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, &intstr.IntOrString{}
		}), budgetShape},
		{"say what holds a drain up", us, drainNotes(taint.DrainAnnotation), ""},
		{"say that replicas leave", us, drainNotes(taint.AutoEvictingAnnotation), ""},
		{"say anything else on a node", us, drainNotes("forcefence.io/other"), otherNote},
		{"say it in another's name", us, drainNotes("example.net/drain"), otherNote},
		{"cordon", us, onNode("plain", func(n *corev1.Node) { n.Spec.Unschedulable = true }), otherSpec},
		{"evict a pod", us, func(ctx context.Context, _, c kubernetes.Interface) error {
			return c.PolicyV1().Evictions("default").
				Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "alive", Namespace: "default"},
					DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}})
		}, byRBAC},
		{"patch a budget", us, func(ctx context.Context, _, c kubernetes.Interface) error {
			_, err := c.PolicyV1().PodDisruptionBudgets("default").
				Patch(ctx, "ours", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
					metav1.PatchOptions{DryRun: dryRun})
			return err
		}, byRBAC},
		{"anything with one's own budget", admin,
			updateBudget("theirs",
				func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &intstr.IntOrString{IntVal: 3} }), ""},
	}
	all := func() (bool, error) {
		for _, a := range rows {
			if bad := w.verdict(accounts, a); bad != "" {
				return false, fmt.Errorf("%s: %s", a.name, bad)
			}
		}
		return true, nil
	}
	w.until("all rows hold", all)
	var whole *admissionv1.ValidatingAdmissionPolicy
	for _, u := range manifests(t, w, dir) {
		if u.GetKind() == "ValidatingAdmissionPolicy" && u.GetName() == "forcefence-controller-budget" {
			whole = &admissionv1.ValidatingAdmissionPolicy{}
			kit.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, whole))
		}
	}
	for i, v := range whole.Spec.Validations {
		p := whole.DeepCopy()
		p.Spec.Validations[i].Expression = "true"
		w.replace(p)
		w.until("a row notices that no one asks: "+v.Message, func() (bool, error) {
			noticed := slices.ContainsFunc(rows,
				func(a attempt) bool { return a.want == byBudget+v.Message && w.verdict(accounts, a) != "" })
			return noticed, nil
		})
	}
	w.replace(whole)
	w.until("all rows hold again", all)
}

// TestDrainLonghornOverlay: the controller may write one setting of Longhorn's, and nothing else more.
func TestDrainLonghornOverlay(t *testing.T) {
	// people may list them, by forcefence-look
	counts := map[string]int{"node-drain-policy": 0, "poddisruptionbudgets": 1}
	wantCounts(t, render(t, base), counts)
	counts["node-drain-policy"] = 1
	counts["  - longhorn.io\n  resourceNames:\n  - node-drain-policy\n  resources:\n  - settings\n  verbs:\n  - "+
		"get\n  - list\n  - watch\n  - patch\n"] = 1
	wantCounts(t, render(t, overlay(t, []string{"base"}, []string{"drain-longhorn"}, nil)), counts)
}
