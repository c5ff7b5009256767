package drain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The index finds the same budgets of a pod as a comparison of each with each, for any selector.
func TestIndex(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		v := View{Guard: guardWith(BlockIfLast)}
		for i := range 6 {
			p := pod(fmt.Sprint("n", r.IntN(4)))
			p.UID, p.Finished = fmt.Sprint(i), r.IntN(4) == 0
			p.Labels = map[string]string{"app": pick("engine", "db"), identity: pick("a", "b"),
				"zone": pick("x", "y", "z")}
			v.Pods = append(v.Pods, p)
		}
		for i := range 5 {
			var s *metav1.LabelSelector
			switch r.IntN(6) {
			case 0: // nothing
			case 1:
				s = &metav1.LabelSelector{}
			case 2:
				s = &metav1.LabelSelector{
					MatchLabels: map[string]string{"app": pick("engine", "db"), identity: pick("a", "b")}}
			default:
				op := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
					metav1.LabelSelectorOpExists}[r.IntN(3)]
				one := metav1.LabelSelectorRequirement{Key: pick("app", "zone"), Operator: op}
				if op != metav1.LabelSelectorOpExists {
					one.Values = []string{"engine", "x", "y"}[r.IntN(3):][:1]
					if r.IntN(2) == 0 {
						one.Values = []string{"y", "x", "db"}
					}
				}
				s = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{one}}
			}
			b := SeeBudget(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: fmt.Sprint("b", i)},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: s},
			})
			if r.IntN(2) == 0 {
				b.Guard = v.Guard.Name
			}
			v.Budgets = append(v.Budgets, b)
		}
		x := v.WithIndex()
		before := map[string][]string{} // by budget, of the pods that have not finished
		for _, p := range v.Pods {
			if p.Finished {
				continue
			}
			var ours, foreign []string
			for _, b := range v.Budgets {
				switch {
				case !b.selectsPod(p):
					continue
				case b.Guard == v.Guard.Name:
					ours = append(ours, b.Name)
				default:
					foreign = append(foreign, b.Name)
				}
				before[b.Name] = append(before[b.Name], p.UID)
			}
			c := x.budgetsOf(p)
			if got := names(c.ours); !slices.Equal(got, ours) {
				t.Fatalf("seed %d, pod %v: got %v of ours, want %v", seed, p.Labels, got, ours)
			}
			if got := names(c.foreign); !slices.Equal(got, foreign) {
				t.Fatalf("seed %d, pod %v: got %v of others, want %v", seed, p.Labels, got, foreign)
			}
		}
		for _, b := range x.index.budgets {
			if !slices.Equal(b.pods, before[b.Name]) {
				t.Fatalf("seed %d, %s: got pods %v, want %v", seed, b.Name, b.pods, before[b.Name])
			}
		}
		for node, pods := range x.index.podsByNode {
			if slices.ContainsFunc(pods, func(p Pod) bool { return p.Finished || p.Node != node }) {
				t.Fatalf("seed %d: on %s: %v", seed, node, pods)
			}
		}
	}
}

func names(all []indexedBudget) (out []string) {
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}
