package drain

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/forcefence/forcefence/taint/features/storage"
)

// View is what was observed for one guard. DecideNode and DecideLeftovers read it and change nothing.
type View struct {
	Guard   Guard
	Nodes   map[string]Node // all existing nodes, by name
	Pods    []Pod           // the storage system's pods on all nodes
	Budgets []Budget        // all budgets in the pods' namespace, ours and others
	Storage storage.System  // nil: its state is unknown

	index *index // nil: DecideNode and DecideLeftovers each build one
}

// index holds what DecideNode and DecideLeftovers look up of a View's pods and budgets. With it a pass over many nodes
// does not compare each pod with each budget.
type index struct {
	podsByNode     map[string][]Pod // pods that have not finished, by node
	podsByIdentity map[string][]Pod // pods that have not finished, by the values of the guard's Identity
	budgets        []indexedBudget
	budgetsByName  map[string]int   // positions in budgets, by namespace and name
	budgetsByPod   map[string][]int // positions of the budgets that select a pod that has not finished, by its UID
}

// indexedBudget is a budget with the UIDs of the pods that it selects and that have not finished.
type indexedBudget struct {
	Budget
	pods []string
}

// WithIndex returns the View with its index, so that any number of DecideNode calls costs about as much as one. The
// View's Guard, Pods and Budgets must not change afterwards.
func (v View) WithIndex() View {
	x := &index{
		podsByNode:     map[string][]Pod{},
		podsByIdentity: map[string][]Pod{},
		budgetsByPod:   map[string][]int{},
		budgetsByName:  map[string]int{},
	}
	by, rest := groupByLabel(v.Budgets)
	for i, b := range v.Budgets {
		x.budgetsByName[b.Namespace+"/"+b.Name] = i
		x.budgets = append(x.budgets, indexedBudget{Budget: b})
	}
	for _, p := range v.Pods {
		if p.Finished {
			continue
		}
		x.podsByNode[p.Node] = append(x.podsByNode[p.Node], p)
		if values := v.Guard.Identity.valuesOf(p); values != nil {
			x.podsByIdentity[identityKey(values)] = append(x.podsByIdentity[identityKey(values)], p)
		}
		try := func(candidates []int) {
			for _, i := range candidates {
				if b := &x.budgets[i]; b.selectsPod(p) {
					b.pods = append(b.pods, p.UID)
					x.budgetsByPod[p.UID] = append(x.budgetsByPod[p.UID], i)
				}
			}
		}
		for key, value := range p.Labels {
			try(by[label{key, value}])
		}
		try(rest)
	}
	for _, found := range x.budgetsByPod { // of several of ours the same one stays in any order of the list
		slices.SortFunc(found, func(a, b int) int { return strings.Compare(v.Budgets[a].Name, v.Budgets[b].Name) })
	}
	v.index = x
	return v
}

func identityKey(values []string) string { return strings.Join(values, "\n") }

type label struct{ key, value string }

// groupByLabel groups the budgets by a label that every pod they select must have. Of several such labels it uses the
// one that the fewest budgets require. rest holds the budgets that require no such label.
func groupByLabel(budgets []Budget) (by map[label][]int, rest []int) {
	asked := make([][]label, len(budgets))
	count := map[label]int{}
	for i, b := range budgets {
		requirements, _ := b.selector.Requirements()
		for _, r := range requirements {
			switch op := r.Operator(); {
			case op != selection.In && op != selection.Equals && op != selection.DoubleEquals:
			case len(r.ValuesUnsorted()) == 1:
				l := label{r.Key(), r.ValuesUnsorted()[0]}
				asked[i] = append(asked[i], l)
				count[l]++
			}
		}
	}
	by = map[label][]int{}
	for i := range budgets {
		if len(asked[i]) == 0 {
			rest = append(rest, i)
			continue
		}
		rarest := asked[i][0]
		for _, l := range asked[i][1:] {
			if count[l] < count[rarest] {
				rarest = l
			}
		}
		by[rarest] = append(by[rarest], i)
	}
	return by, rest
}

// podsOn returns the storage pods of a node that have not finished.
func (v View) podsOn(name string) []Pod { return v.index.podsByNode[name] }

// podBudgets are the budgets that select a pod.
type podBudgets struct {
	ok       bool            // there is one budget of ours, for this pod alone, and no other budget
	ours     []indexedBudget // the one with the name that this pod's budget gets first
	foreign  []indexedBudget
	sameName *Budget // has the name that this pod's budget gets, and may select other pods; nil: there is none
}

func (v View) budgetsOf(p Pod) (c podBudgets) {
	at, exists := v.index.budgetsByName[p.Namespace+"/"+v.Guard.budgetName(p)]
	if exists {
		c.sameName = &v.index.budgets[at].Budget
	}
	for _, i := range v.index.budgetsByPod[p.UID] {
		switch b := v.index.budgets[i]; {
		case b.Guard != v.Guard.Name:
			c.foreign = append(c.foreign, b)
		case exists && i == at:
			c.ours = slices.Insert(c.ours, 0, b)
		default:
			c.ours = append(c.ours, b)
		}
	}
	c.ok = len(c.foreign) == 0 && len(c.ours) == 1 && c.ours[0].isIntact(p)
	return c
}

// isIntact reports whether a budget of ours is as it was created and selects no pod but p.
func (b indexedBudget) isIntact(p Pod) bool {
	return b.Whole && !b.Deleting && !slices.ContainsFunc(b.pods, func(uid string) bool { return uid != p.UID })
}

// podWithSameLabels returns another storage pod that the pod's budget would select as well, or "" if there is none.
func (v View) podWithSameLabels(p Pod) string {
	for _, o := range v.index.podsByIdentity[identityKey(v.Guard.Identity.valuesOf(p))] {
		if o.UID != p.UID {
			return o.Namespace + "/" + o.Name
		}
	}
	return ""
}

// policyOn returns the policy in force on a node: AlwaysAllow where the guard is withdrawn.
func (v View) policyOn(n Node) Policy {
	if n.Withdrawn {
		return AlwaysAllow
	}
	return cmp.Or(n.Policy, v.Guard.Policy)
}
