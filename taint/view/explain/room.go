package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
)

// Replacement estimates whether the replacement of a moved pod finds room. Replacements take room from each other in
// the pods' order.
type Replacement struct {
	Pod   string `json:"pod"`
	Owner string `json:"owner"` // kind/name; "": no owner, so there is no replacement
	Fits  bool   `json:"fits"`
	Node  string `json:"node,omitempty"` // a node where it fits
	Why   string `json:"why,omitempty"`  // why it fits nowhere
	// Unchecked lists the scheduler's rules that this estimate does not check.
	Unchecked []string `json:"unchecked,omitempty"`
}

// place is another node with its free resources.
type place struct {
	node  *corev1.Node
	shut  string // "" or why no pod can go there at all
	free  corev1.ResourceList
	slots map[string]int64 // free attach slots by CSI driver; negative or zero: none left
	runs  map[string]bool  // CSI drivers that run there; nil: unknown
	has   map[string]bool  // attached PersistentVolumes
}

// refusal is why a pod does not fit. Of several nodes with the same what, it has the numbers of the node where least is
// missing.
type refusal struct {
	what string
	most *resource.Quantity
	asks resource.Quantity
}

func findReplacements(s Snapshot) []Replacement {
	out := []Replacement{}
	places := s.otherNodes()
	objects := map[string]*corev1.Pod{}
	for i := range s.All {
		objects[string(s.All[i].UID)] = &s.All[i]
	}
	for _, p := range decide.PodsToMove(s.Pods) {
		r := Replacement{Pod: podName(p)}
		pod := objects[p.UID]
		if pod == nil {
			continue
		}
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			r.Owner = ref.Kind + "/" + ref.Name
			r.Unchecked = uncheckedRules(pod)
			s.placeReplacement(&r, pod, p, places)
		} else {
			r.Why = "no controller owns it, so it gets no replacement"
		}
		out = append(out, r)
	}
	return out
}

// uncheckedRules lists the pod's scheduling rules that this estimate does not check.
func uncheckedRules(pod *corev1.Pod) (out []string) {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil &&
		len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		out = append(out, "pod affinity")
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil &&
		len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		out = append(out, "pod anti-affinity")
	}
	if slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	}) {
		out = append(out, "topology spread")
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		out = append(out, "resource claims")
	}
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}) {
		out = append(out, "host ports")
	}
	return out
}

// placeReplacement puts the replacement on the node with most room, and sets r.
func (s Snapshot) placeReplacement(r *Replacement, pod *corev1.Pod, p action.Pod, places []*place) {
	asks := podRequests(pod)
	var best *place
	no := map[string]refusal{}
	count := map[string]int{}
	for _, at := range places {
		why := s.checkPlace(at, pod, p, asks)
		switch {
		case why.what == "" && (best == nil || best.freeShare() < at.freeShare()):
			best = at
		case why.what != "":
			count[why.what]++
			if before, had := no[why.what]; !had || why.most != nil && why.most.Cmp(*before.most) > 0 {
				no[why.what] = why
			}
		}
	}
	if best != nil {
		r.Fits, r.Node = true, best.node.Name
		best.takeResources(asks)
		for _, v := range p.Volumes {
			if v.Driver != "" && !best.has[v.PV] {
				best.attachVolume(v.Driver, v.PV)
			}
		}
		return
	}
	var all []string
	for _, what := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	}) {
		text := fmt.Sprintf("%d %s", count[what], what)
		if w := no[what]; w.most != nil {
			text += fmt.Sprintf(" (it asks for %s, at most %s is free)", w.asks.String(), w.most.String())
		}
		all = append(all, text)
	}
	r.Why = fmt.Sprintf("fits on none of %d other nodes: %s", len(places), strings.Join(all, ", "))
}

// podRequests returns the resources that a pod requests, with one for the pod itself.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	asks := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}).DeepCopy()
	if asks == nil {
		asks = corev1.ResourceList{}
	}
	asks[corev1.ResourcePods] = resource.MustParse("1")
	return asks
}

// checkPlace returns why the pod cannot go there, by the first rule that refuses it. Its what is "" if the pod can.
func (s Snapshot) checkPlace(at *place, pod *corev1.Pod, p action.Pod, asks corev1.ResourceList) refusal {
	if at.shut != "" {
		return refusal{what: at.shut}
	}
	for _, t := range at.node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(pod.Spec.Tolerations, func(tol corev1.Toleration) bool {
				return evict.StockTolerates(tol, t)
			}) {
			return refusal{what: "with taint " + t.Key + ":" + string(t.Effect)}
		}
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(at.node); err != nil || !ok {
		return refusal{what: "not of its node selector or affinity"}
	}
	for _, v := range p.Volumes {
		if pv := s.Volumes[v.PV]; pv != nil && pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
			if sel, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required); err != nil ||
				!sel.Match(at.node) {
				return refusal{what: "out of reach of its volume " + v.PV}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		if need, free := asks[name], at.free[name]; !need.IsZero() && need.Cmp(free) > 0 {
			return refusal{what: "with too little " + string(name), most: &free, asks: need}
		}
	}
	return s.checkAttachSlots(at, p)
}

// checkAttachSlots refuses a node where the CSI driver does not run, or has no free attach slot.
func (s Snapshot) checkAttachSlots(at *place, p action.Pod) refusal {
	if at.runs == nil {
		return refusal{}
	}
	more := map[string]int64{}
	for _, v := range p.Volumes {
		switch {
		case v.Driver == "":
		case !at.runs[v.Driver]:
			return refusal{what: "without CSI driver " + v.Driver}
		case !at.has[v.PV]:
			more[v.Driver]++
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(more)) {
		if left, limited := at.slots[driver]; limited && more[driver] > left {
			return refusal{what: "without a free attach slot of " + driver}
		}
	}
	return refusal{}
}

// otherNodes returns the other nodes with what is free there.
func (s Snapshot) otherNodes() []*place {
	var out []*place
	by := map[string]*place{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Name == s.Node.Name {
			continue
		}
		at := &place{node: n, free: n.Status.Allocatable.DeepCopy(), slots: map[string]int64{}, has: map[string]bool{}}
		switch {
		case taint.Condition(n, corev1.NodeReady).Status != corev1.ConditionTrue:
			at.shut = "not Ready"
		case n.Spec.Unschedulable:
			at.shut = "cordoned"
		}
		if csi := s.CSINodes[n.Name]; s.CSINodes != nil {
			at.runs = map[string]bool{}
			if csi == nil {
				csi = &storagev1.CSINode{}
			}
			for _, d := range csi.Spec.Drivers {
				at.runs[d.Name] = true
				if d.Allocatable != nil && d.Allocatable.Count != nil {
					at.slots[d.Name] = int64(*d.Allocatable.Count)
				}
			}
		}
		out, by[n.Name] = append(out, at), at
	}
	for i := range s.All {
		pod := &s.All[i]
		if at := by[pod.Spec.NodeName]; at != nil && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed {
			at.takeResources(podRequests(pod))
		}
	}
	for i := range s.Attached {
		va := &s.Attached[i]
		at := by[va.Spec.NodeName]
		if at == nil {
			continue
		}
		pv := ""
		if va.Spec.Source.PersistentVolumeName != nil {
			pv = *va.Spec.Source.PersistentVolumeName
		}
		at.attachVolume(va.Spec.Attacher, pv)
	}
	return out
}

func (at *place) takeResources(asks corev1.ResourceList) {
	if at.free == nil {
		at.free = corev1.ResourceList{}
	}
	for name, q := range asks {
		free := at.free[name]
		free.Sub(q)
		at.free[name] = free
	}
}

func (at *place) attachVolume(driver, pv string) {
	if _, limited := at.slots[driver]; limited {
		at.slots[driver]--
	}
	at.has[pv] = true
}

// freeShare returns the sum of the free shares of cpu, memory and pods there; each share is 0 to 1.
func (at *place) freeShare() (sum float64) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if all := at.node.Status.Allocatable[name]; !all.IsZero() {
			free := at.free[name]
			sum += free.AsApproximateFloat64() / all.AsApproximateFloat64()
		}
	}
	return sum
}
