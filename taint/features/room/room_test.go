package room

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	zone   = corev1.LabelTopologyZone
	host   = corev1.LabelHostname
	driver = "csi.example.com"
)

// world is the objects of a cluster.
type world struct {
	nodes    []*corev1.Node
	pods     []*corev1.Pod
	volumes  []*corev1.PersistentVolume
	attached []*storagev1.VolumeAttachment
	csi      []*storagev1.CSINode
}

func (w *world) cluster() *Cluster {
	c := New(taint.DefaultKey, []string{zone})
	for _, o := range w.pods {
		c.AddPod(o)
	}
	for _, o := range w.nodes {
		c.AddNode(o)
	}
	for _, o := range w.volumes {
		c.AddVolume(o)
		c.AddClaim(o.Spec.ClaimRef.Namespace, o.Spec.ClaimRef.Name, o.Name)
	}
	for _, o := range w.attached {
		c.AddAttachment(o)
	}
	for _, o := range w.csi {
		c.AddCSINode(o)
	}
	if w.csi != nil {
		c.CSINodesRead()
	}
	return c
}

// node adds n1, n2 and so on, in zones a, b and c by turns: 4 cores, 10 pods, 2 attach slots.
func (w *world) node() *corev1.Node {
	name := fmt.Sprintf("n%d", len(w.nodes)+1)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		host: name, zone: string(rune('a' + len(w.nodes)%3))}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"pods": resource.MustParse("10")}
	w.nodes = append(w.nodes, n)
	w.csi = append(w.csi, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(2))}}}}})
	return n
}

// pod binds a pod of a ReplicaSet to a node.
func (w *world) pod(name, node, cpu string, set ...func(*corev1.Pod)) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of",
			Controller: new(true)}}}}
	o.Spec.NodeName = node
	o.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
	for _, f := range set {
		f(o)
	}
	w.pods = append(w.pods, o)
	return o
}

// volume gives the pod a volume that the zone reaches; "": every node.
func (w *world) volume(name, within string) func(*corev1.Pod) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: name}
	if within != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{within}}}}}}}
	}
	w.volumes = append(w.volumes, v)
	return claim(name)
}

func claim(name string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
}

func app(name string) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.Labels = map[string]string{"app": name} }
}

func of(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func affinity(o *corev1.Pod) *corev1.Affinity {
	if o.Spec.Affinity == nil {
		o.Spec.Affinity = &corev1.Affinity{}
	}
	return o.Spec.Affinity
}

// apart keeps the pod away from pods of an app.
func apart(name, topology string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		affinity(o).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.
			PodAffinityTerm{{TopologyKey: topology, LabelSelector: of(name)}}}
	}
}

func together(name, topology string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		affinity(o).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.
			PodAffinityTerm{{TopologyKey: topology, LabelSelector: of(name)}}}
	}
}

func spreads(name, topology string, set ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		t := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: topology, LabelSelector: of(name),
			WhenUnsatisfiable: corev1.DoNotSchedule}
		for _, f := range set {
			f(&t)
		}
		o.Spec.TopologySpreadConstraints = append(o.Spec.TopologySpreadConstraints, t)
	}
}

func hostPorts(port int32) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port}} }
}

func priority(p int32) func(*corev1.Pod) { return func(o *corev1.Pod) { o.Spec.Priority = &p } }

// Each case has three nodes, n1 in zone a, n2 in b and n3 in c, and asks what becomes of p on n1.
func TestReplacements(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(w *world)
		want string // its node, or why there is none, or "unknown: " and what was not checked
	}{
		"room": {func(w *world) { w.pod("p", "n1", "1") }, "n2"},
		"cpu": {func(w *world) { w.pod("p", "n1", "2"); w.pod("a", "n2", "3"); w.pod("b", "n3", "2500m") },
			"2 with too little cpu (it asks for 2, at most 1500m is free)"},
		"memory": {func(w *world) {
			w.pod("p", "n1", "1").Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("9Gi")
		}, "2 with too little memory (it asks for 9Gi, at most 8Gi is free)"},
		"overhead": {func(w *world) {
			w.pod("p", "n1", "1").Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("3500m")}
		}, "it asks for 4500m"},
		"init containers": {func(w *world) {
			o := w.pod("p", "n1", "1")
			o.Spec.InitContainers = slices.Clone(w.pod("other", "n1", "5").Spec.Containers)
		}, "it asks for 5"},
		"a sidecar": {func(w *world) {
			o := w.pod("p", "n1", "3")
			o.Spec.InitContainers = slices.Clone(w.pod("other", "n1", "2").Spec.Containers)
			o.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}, "it asks for 5"},
		"absurd": {func(w *world) { w.pod("p", "n1", "9E"); w.pod("q", "n1", "9E") }, "2 with too little cpu"},
		"an absurd neighbour": {func(w *world) {
			w.pod("p", "n1", "1")
			for i := range 20 {
				w.pod(fmt.Sprint("a", i), "n2", "999999999E")
			}
		}, "n3"},
		"finished": {func(w *world) {
			w.pod("p", "n1", "2")
			w.pod("a", "n2", "3").Status.Phase = corev1.PodSucceeded
		}, "n2"},
		"larger first":   {func(w *world) { w.pod("q", "n1", "4"); w.pod("p", "n1", "1") }, "n3"},
		"priority first": {func(w *world) { w.pod("q", "n1", "4"); w.pod("p", "n1", "1", priority(9)) }, "n2"},
		"a device": {func(w *world) {
			w.pod("p", "n1", "1").Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}, "2 with too little example.com/gpu (it asks for 1, at most 0 is free)"},
		"not Ready": {func(w *world) {
			w.pod("p", "n1", "1")
			w.nodes[1].Status.Conditions[0].Status, w.nodes[2].Spec.Unschedulable = corev1.ConditionUnknown, true
		}, "1 cordoned, 1 not Ready"},
		"taints": {func(w *world) {
			w.pod("p", "n1", "1")
			w.nodes[1].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			w.nodes[2].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, "n3"},
		"tolerated": {func(w *world) {
			w.pod("p", "n1", "1").Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: "Exists"}}
			w.nodes[1].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, "n2"},
		"selector": {func(w *world) { w.pod("p", "n1", "1").Spec.NodeSelector = map[string]string{zone: "c"} }, "n3"},
		"no such node": {func(w *world) { w.pod("p", "n1", "1").Spec.NodeSelector = map[string]string{host: "n1"} },
			"2 not of its node selector or affinity"},
		"node affinity": {func(w *world) {
			affinity(w.pod("p", "n1", "1")).NodeAffinity = &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.
					NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zone,
					Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}}}}}}}
		}, "n3"},
		"host port": {func(w *world) {
			w.pod("p", "n1", "1", hostPorts(80))
			w.pod("a", "n2", "1", hostPorts(80))
		}, "n3"},
		"volume's zone": {func(w *world) { w.pod("p", "n1", "1", w.volume("v", "c")) }, "n3"},
		"volume's zone fails": {func(w *world) { w.pod("p", "n1", "1", w.volume("v", "a")) },
			"2 out of reach of its volume pv-v"},
		"an ephemeral volume is made again": {func(w *world) {
			w.volume("p-v", "a")
			o := w.pod("p", "n1", "1")
			o.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{}}}}
			w.pod("a", "n2", "1", w.volume("a1", ""), w.volume("a2", ""))
		}, "n3"},
		"attach slots": {func(w *world) {
			w.pod("p", "n1", "1", w.volume("v", ""))
			w.pod("a", "n2", "1", w.volume("a1", ""), w.volume("a2", ""))
		}, "n3"},
		"attachments": {func(w *world) {
			w.pod("p", "n1", "1", w.volume("v", "b"))
			for _, pv := range []string{"x", "y"} {
				va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: pv}}
				va.Spec.NodeName, va.Spec.Attacher, va.Spec.Source.PersistentVolumeName = "n2", driver, &pv
				w.attached = append(w.attached, va, va)
			}
		}, "1 out of reach of its volume pv-v, 1 without a free attach slot of " + driver},
		"more than all slots": {func(w *world) {
			w.pod("p", "n1", "1", w.volume("v1", ""), w.volume("v2", ""), w.volume("v3", ""))
		}, "2 without a free attach slot"},
		"no driver": {func(w *world) {
			w.pod("p", "n1", "1", w.volume("v", ""))
			w.csi = w.csi[:2]
			w.csi[1].Spec.Drivers = nil
		}, "2 without CSI driver " + driver},
		"drivers not read": {func(w *world) { w.pod("p", "n1", "1", w.volume("v", "")); w.csi = nil }, "n2"},
		"one volume for two": {func(w *world) {
			w.pod("q", "n1", "4", w.volume("v", ""))
			w.pod("p", "n1", "1", claim("v"))
		}, "1 other than where another pod has its volume pv-v, 1 with too little cpu"},
		"unbound": {func(w *world) { w.pod("p", "n1", "1", claim("v")) }, "unknown: claim v"},
		"another's volume": {func(w *world) {
			w.pod("p", "n1", "1", w.volume("v", ""))
			w.volumes[0].Spec.ClaimRef = &corev1.ObjectReference{Namespace: "theirs", Name: "v"}
		}, "unknown: claim v"},
		"resource claims": {func(w *world) {
			w.pod("p", "n1", "1").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, "unknown: resource claims"},
		"apart": {func(w *world) { w.pod("p", "n1", "1", apart("a", host)); w.pod("a", "n2", "1") }, "n3"},
		"apart by zone": {func(w *world) {
			w.node() // n4 in zone a
			w.pod("p", "n1", "1", apart("a", zone))
			w.pod("a", "n2", "1")
			w.pod("b", "n3", "1", app("a"))
		}, "n4"},
		"kept away": {func(w *world) { w.pod("p", "n1", "1"); w.pod("a", "n2", "1", apart("p", host)) }, "n3"},
		"kept away by one that fails": {func(w *world) {
			w.node()
			w.pod("p", "n1", "1")
			w.pod("a", "n1", "2", apart("p", host))
		}, "n3"},
		"of another namespace": {func(w *world) {
			w.pod("p", "n1", "1", apart("a", host))
			w.pod("a", "n2", "1").Namespace = "other"
		}, "n2"},
		"of all namespaces": {func(w *world) {
			o := w.pod("p", "n1", "1", apart("a", host))
			o.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector =
				&metav1.LabelSelector{}
			w.pod("a", "n2", "1").Namespace = "other"
		}, "n3"},
		"of some namespaces": {func(w *world) {
			o := w.pod("p", "n1", "1", apart("a", host))
			terms := o.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			terms[0].NamespaceSelector = of("x")
		}, "unknown: pod anti-affinity with a namespaceSelector"},
		"together": {func(w *world) {
			w.pod("p", "n1", "1", together("a", host))
			w.pod("a", "n3", "1")
		}, "n3"},
		"together with none": {func(w *world) { w.pod("p", "n1", "1", together("a", host)) }, "2 without the pods"},
		"together by itself": {func(w *world) { w.pod("p", "n1", "1", together("p", host)) }, "n2"},
		"together in a group": {func(w *world) {
			w.pod("p", "n1", "1", together("p", host))
			w.pod("q", "n3", "1", app("p"))
		}, "n3"},
		"spread": {func(w *world) { w.pod("p", "n1", "1", spreads("p", zone)); w.pod("q", "n2", "1", app("p")) },
			"n3"},
		"spread counts the zone that fails": {func(w *world) {
			w.pod("p", "n1", "1", spreads("p", zone))
			w.pod("q", "n2", "1", app("p"))
			w.pod("r", "n3", "1", app("p"))
		}, "2 where its topology spread is exceeded"},
		"spread honours taints": {func(w *world) {
			w.pod("p", "n1", "1", spreads("p", zone, func(t *corev1.TopologySpreadConstraint) {
				t.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
			}))
			w.pod("q", "n2", "1", app("p"))
			w.pod("r", "n3", "1", app("p"))
		}, "n2"},
		"spread over its own nodes": {func(w *world) {
			w.node().Labels["disk"] = "ssd" // n4
			w.nodes[1].Labels["disk"] = "ssd"
			o := w.pod("p", "n4", "1", spreads("p", host))
			o.Spec.NodeName, o.Spec.NodeSelector = "n1", map[string]string{"disk": "ssd"}
			w.pod("q", "n2", "1", app("p"))
			w.pod("r", "n4", "1", app("p"))
		}, "n2"},
		"spread counts its own nodes": {func(w *world) {
			w.nodes[1].Labels["disk"], w.nodes[2].Labels["disk"] = "ssd", "ssd"
			w.node().Labels[zone] = "b" // n4, without the disk
			w.pod("p", "n1", "1", spreads("p", zone)).Spec.NodeSelector = map[string]string{"disk": "ssd"}
			w.pod("q", "n4", "1", app("p"))
			w.pod("r", "n4", "1", app("p"))
		}, "n2"},
		"spread counts no pod that is being deleted": {func(w *world) {
			w.pod("p", "n1", "1", spreads("p", zone))
			w.pod("q", "n2", "1", app("p")).DeletionTimestamp = new(metav1.Now())
		}, "n2"},
		"apart from a pod that is being deleted": {func(w *world) {
			w.pod("p", "n1", "1", apart("a", host))
			w.pod("a", "n2", "1").DeletionTimestamp = new(metav1.Now())
		}, "n3"},
		"a pod that was cut": {func(w *world) {
			w.pod("p", "n1", "1").Annotations = map[string]string{taint.CutAnnotation: "spec.affinity"}
		}, "unknown: too large fields"},
		"large labels": {func(w *world) {
			w.pod("p", "n1", "1").Labels = map[string]string{"x": strings.Repeat("x", maxLabels)}
		}, "unknown: too large labels"},
		"min domains": {func(w *world) {
			w.pod("p", "n1", "1", spreads("p", zone, func(t *corev1.TopologySpreadConstraint) {
				t.NodeTaintsPolicy, t.MinDomains = new(corev1.NodeInclusionPolicyHonor), new(int32(3))
			}))
			w.pod("q", "n2", "1", app("p"))
			w.pod("r", "n3", "1", app("p"))
		}, "2 where its topology spread is exceeded"},
		"spread by revision": {func(w *world) {
			revision := func(r string) func(*corev1.Pod) {
				return func(o *corev1.Pod) { o.Labels = map[string]string{"app": "p", "rev": r} }
			}
			w.pod("p", "n1", "1", revision("2"), spreads("p", zone, func(t *corev1.TopologySpreadConstraint) {
				t.MatchLabelKeys = []string{"rev"}
			}))
			w.pod("q", "n2", "1", revision("1"))
			w.pod("r", "n3", "1", revision("1"))
		}, "n2"},
		"too many rules": {func(w *world) {
			w.pod("p", "n1", "1", func(o *corev1.Pod) {
				for i := range 10000 {
					spreads(fmt.Sprint(i), zone)(o)
				}
			})
		}, "unknown: too large scheduling rules"},
		"many rules": {func(w *world) {
			w.pod("p", "n1", "1", func(o *corev1.Pod) {
				for i := range maxTerms + 1 {
					spreads(fmt.Sprint(i), zone)(o)
				}
			})
		}, "unknown: too many scheduling rules"},
		"a large selector": {func(w *world) { w.pod("p", "n1", "1", apart(strings.Repeat("x", maxTermBytes), host)) },
			"unknown: pod anti-affinity"},
		"large rules use room": {func(w *world) {
			w.pod("p", "n1", "2")
			w.pod("a", "n2", "3").Spec.NodeSelector = map[string]string{"x": strings.Repeat("x", maxSpecBytes)}
		}, "n3"},
		"no owner": {func(w *world) { w.pod("p", "n1", "1").OwnerReferences = nil }, "it gets no replacement"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			for range 3 {
				w.node()
			}
			tt.set(&w)
			all := w.cluster().Replacements("n1")
			i := slices.IndexFunc(all, func(r Replacement) bool { return r.Pod == "ns/p" })
			if i < 0 {
				t.Fatalf("no word of p: %+v", all)
			}
			r := all[i]
			what, unknown := strings.CutPrefix(tt.want, "unknown: ")
			switch {
			case unknown && !slices.Equal(r.Unchecked, []string{what}),
				!unknown && len(r.Unchecked) > 0,
				!unknown && r.Fits != (r.Node == tt.want),
				!unknown && !r.Fits && !strings.Contains(r.Why, tt.want):
				t.Errorf("got %+v, want %q", r, tt.want)
			}
		})
	}
}

// A DaemonSet's pods have a rule each, which names their node. They leave the namespace's other pods theirs.
func TestManyDaemons(t *testing.T) {
	var w world
	for i := range 2 * maxRules {
		n := w.node()
		o := w.pod(fmt.Sprint("a", i), n.Name, "1")
		o.OwnerReferences[0].Kind = "DaemonSet"
		affinity(o).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.
			NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n.Name}}}}}}}
	}
	w.pod("p", "n1", "1").Spec.NodeSelector = map[string]string{zone: "b"}
	if all := w.cluster().Replacements("n1"); len(all) != 1 || !all[0].Fits || all[0].Unchecked != nil {
		t.Errorf("got %+v, want that p fits", all)
	}
}

// A kubelet that names many resources hides none that other nodes have. What is not counted is unknown.
func TestManyResources(t *testing.T) {
	var w world
	for range 3 {
		w.node()
	}
	for i := range 2 * maxResources {
		w.nodes[0].Status.Allocatable[corev1.ResourceName(fmt.Sprintf("a.example.com/%d", i))] = resource.MustParse("1")
	}
	for _, n := range w.nodes[1:] {
		n.Status.Allocatable["z.example.com/gpu"] = resource.MustParse("1")
	}
	w.pod("p", "n1", "1").Spec.Containers[0].Resources.Requests["z.example.com/gpu"] = resource.MustParse("1")
	w.pod("q", "n1", "1").Spec.Containers[0].Resources.Requests["a.example.com/99"] = resource.MustParse("1")
	all := w.cluster().Replacements("n1")
	for i, r := range all {
		if p := r.Pod == "ns/p"; p != r.Fits || p != (r.Unchecked == nil) {
			t.Errorf("%d: got %+v, want that p fits, and that q is unknown", i, r)
		}
	}
	if len(all) != 2 {
		t.Errorf("got %d pods, want 2", len(all))
	}
}

// Pods of which no two are alike need little memory, also on many nodes.
func TestManyShapes(t *testing.T) {
	var w world
	for range 1000 {
		w.node()
	}
	for i := range 20000 {
		w.pod(fmt.Sprint("p", i), w.nodes[i%1000].Name, fmt.Sprintf("%dm", 1+i)).Spec.NodeSelector = map[string]string{
			zone: "a"}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := w.cluster()
	c.Replacements("n1")
	if kept := heap() - before; kept/20000 > 2000 {
		t.Errorf("a pod needs %d bytes, want at most 2000", kept/20000)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(w)
}

// Static pods, DaemonSets' pods, and pods that tolerate the mark or are being deleted get no replacement.
func TestPodsThatStay(t *testing.T) {
	var w world
	w.node()
	w.node()
	w.pod("daemon", "n1", "1").OwnerReferences[0].Kind = "DaemonSet"
	w.pod("static", "n1", "1").Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	w.pod("tolerates", "n1", "1").Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.pod("deleted", "n1", "1").DeletionTimestamp = new(metav1.Now())
	w.pod("pending", "", "1")
	if all := w.cluster().Replacements("n1"); len(all) > 0 {
		t.Errorf("got %+v, want none", all)
	}
}

func TestEstimate(t *testing.T) {
	var w world
	for range 4 { // n1 and n4 are in zone a
		w.node()
	}
	w.pod("a", "n1", "3")
	w.pod("b", "n2", "3")
	w.pod("c", "n3", "1")
	w.pod("d", "n4", "3", w.volume("v", "a"))
	w.pod("e", "n3", "1", claim("unread"))
	w.pod("bare", "n3", "4").OwnerReferences = nil
	var got []string
	for _, f := range w.cluster().Estimate() {
		got = append(got, fmt.Sprintf("%s %s %d/%d %d %d %s %v", f.Kind, f.Name, f.Lacking, f.Pods, f.Unknown, f.Nodes,
			f.Verdict(), f.Without))
	}
	want := []string{
		"node n1 1/1 0 1 lacks [ns/a]",
		"node n2 1/1 0 1 lacks [ns/b]",
		"node n3 0/2 1 1 unknown []",
		"node n4 1/1 0 1 lacks [ns/d]",
		"domain " + zone + "=a 2/2 0 2 lacks [ns/a ns/d]",
		"domain " + zone + "=b 1/1 0 1 lacks [ns/b]",
		"domain " + zone + "=c 0/2 1 1 unknown []",
		"pair " + zone + "=a+b 3/3 0 3 lacks [ns/a ns/b ns/d]",
		"pair " + zone + "=a+c 3/4 0 3 lacks [ns/a ns/d ns/e]",
		"pair " + zone + "=b+c 1/3 1 2 lacks [ns/b]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// One namespace with too many rules makes its own pods unknown, and no others.
func TestNamespaceWithManyRules(t *testing.T) {
	var w world
	w.node()
	w.node()
	for i := range 10 * maxRules {
		w.pod(fmt.Sprint("p", i), "n3", "0").Spec.NodeSelector = map[string]string{"x": fmt.Sprint(i)}
	}
	w.pod("theirs", "n1", "1").Spec.NodeSelector = map[string]string{host: "n2"}
	good := w.pod("q", "n1", "1")
	good.Namespace, good.Spec.NodeSelector = "good", map[string]string{host: "n2"}
	c := w.cluster()
	for _, r := range c.Replacements("n1") {
		if good := r.Pod == "good/q"; good != (r.Fits && r.Unchecked == nil) {
			t.Errorf("got %+v", r)
		}
	}
	if len(c.wheres) > 2*maxRules {
		t.Errorf("got %d rules", len(c.wheres))
	}
}

// A pod that many nodes refuse because of other pods is unknown before all nodes were tried.
func TestManyRefusals(t *testing.T) {
	for nodes, want := range map[int]Verdict{maxTried: Lacks, maxTried + 1: Unknown} {
		var w world
		for range nodes {
			w.pod("a", w.node().Name, "1", apart("a", host))
		}
		if f := w.cluster().Estimate()[0]; f.Verdict() != want {
			t.Errorf("%d nodes: got %+v, want %s", nodes, f, want)
		}
	}
}

// TestAgainstReference plays small random clusters, and compares each node's and zone's failure with a scheduler that
// keeps no counts.
func TestAgainstReference(t *testing.T) {
	fits, lacks := 0, 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(rng)
		c := w.cluster()
		var got []Failure
		for range 2 { // the second time shows whether the first left something behind
			got = c.Estimate()
			for _, f := range got {
				if f.Kind == Pair {
					continue
				}
				failed := func(n *corev1.Node) bool { return n.Name == f.Name || zone+"="+n.Labels[zone] == f.Name }
				pods, lacking := w.reference(failed)
				if f.Pods != pods || f.Lacking != lacking {
					t.Fatalf("seed %d, %s: got %d of %d pods without room, want %d of %d", seed, f.Name, f.Lacking,
						f.Pods, lacking, pods)
				}
				fits, lacks = fits+f.Pods-f.Lacking, lacks+f.Lacking
			}
		}
	}
	if fits < 1000 || lacks < 1000 {
		t.Errorf("%d pods fit and %d did not: the clusters are too easy", fits, lacks)
	}
}

func randomWorld(rng *rand.Rand) *world {
	w := &world{}
	for range 3 + rng.IntN(5) {
		n := w.node()
		if rng.IntN(6) == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
		if rng.IntN(9) == 0 {
			n.Spec.Unschedulable = true
		}
	}
	for i := range rng.IntN(30) {
		var set []func(*corev1.Pod)
		apps := []string{"x", "y", "z"}
		set = append(set, app(apps[rng.IntN(3)]), priority(rng.Int32N(3)))
		other, topology := apps[rng.IntN(3)], []string{zone, host}[rng.IntN(2)]
		switch rng.IntN(8) {
		case 0:
			set = append(set, apart(other, topology))
		case 1:
			set = append(set, together(other, topology))
		case 2:
			set = append(set, spreads(other, topology))
			if rng.IntN(2) == 0 {
				set = append(set, func(o *corev1.Pod) { o.Spec.NodeSelector = map[string]string{zone: "b"} })
			}
		case 3:
			set = append(set, hostPorts(80))
		case 4:
			set = append(set, w.volume(fmt.Sprint(i), []string{"", "a", "b", "c"}[rng.IntN(4)]))
		case 5:
			set = append(set, func(o *corev1.Pod) { o.Spec.NodeSelector = map[string]string{zone: "b"} })
		case 6:
			set = append(set, func(o *corev1.Pod) {
				o.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
			})
		}
		w.pod(fmt.Sprint("p", i), w.nodes[rng.IntN(len(w.nodes))].Name, []string{"500m", "1", "2"}[rng.IntN(3)], set...)
	}
	return w
}

// reference returns how many pods need room if some nodes fail, and how many find none.
func (w *world) reference(failed func(*corev1.Node) bool) (pods, lacking int) {
	at := map[*corev1.Pod]*corev1.Node{}
	var movers []*corev1.Pod
	for _, p := range w.pods {
		n := w.nodes[slices.IndexFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName })]
		if failed(n) {
			movers = append(movers, p)
		} else {
			at[p] = n
		}
	}
	cpu := func(p *corev1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }
	slices.SortFunc(movers, func(a, b *corev1.Pod) int {
		for _, d := range []int64{int64(*b.Spec.Priority - *a.Spec.Priority), cpu(b) - cpu(a)} {
			if d != 0 {
				return int(d)
			}
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, p := range movers {
		i := slices.IndexFunc(w.nodes, func(n *corev1.Node) bool { return !failed(n) && w.admits(p, n, at, cpu) })
		if i < 0 {
			lacking++
			continue
		}
		at[p] = w.nodes[i]
	}
	return len(movers), lacking
}

func (w *world) admits(
	p *corev1.Pod, n *corev1.Node, at map[*corev1.Pod]*corev1.Node, cpu func(*corev1.Pod) int64,
) bool {
	if n.Spec.Unschedulable || len(n.Spec.Taints) > 0 && len(p.Spec.Tolerations) == 0 ||
		!labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	free, room, slots := int64(4000)-cpu(p), 9, 2-len(p.Spec.Volumes)
	same := func(t string, a, b *corev1.Node) bool { return a.Labels[t] == b.Labels[t] }
	selects := func(s *metav1.LabelSelector, o *corev1.Pod) bool { return s.MatchLabels["app"] == o.Labels["app"] }
	anti := func(o *corev1.Pod) []corev1.PodAffinityTerm {
		if o.Spec.Affinity == nil || o.Spec.Affinity.PodAntiAffinity == nil {
			return nil
		}
		return o.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	for o, on := range at {
		if on == n {
			free, room, slots = free-cpu(o), room-1, slots-len(o.Spec.Volumes)
			if len(o.Spec.Containers[0].Ports)+len(p.Spec.Containers[0].Ports) == 2 {
				return false
			}
		}
		for _, t := range anti(o) {
			if same(t.TopologyKey, on, n) && selects(t.LabelSelector, p) {
				return false
			}
		}
		for _, t := range anti(p) {
			if same(t.TopologyKey, on, n) && selects(t.LabelSelector, o) {
				return false
			}
		}
	}
	if free < 0 || room < 0 || len(p.Spec.Volumes) > 0 && slots < 0 {
		return false
	}
	for _, v := range p.Spec.Volumes {
		i := slices.IndexFunc(w.volumes, func(pv *corev1.PersistentVolume) bool {
			return pv.Spec.ClaimRef.Name == v.PersistentVolumeClaim.ClaimName
		})
		if a := w.volumes[i].Spec.NodeAffinity; a != nil &&
			a.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != n.Labels[zone] {
			return false
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		t := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		here, all := 0, 0
		for o, on := range at {
			if selects(t.LabelSelector, o) {
				if all++; same(t.TopologyKey, on, n) {
					here++
				}
			}
		}
		if here == 0 && (all > 0 || !selects(t.LabelSelector, p)) {
			return false
		}
	}
	for _, t := range p.Spec.TopologySpreadConstraints {
		count := map[string]int{}
		mine := func(any *corev1.Node) bool {
			return labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(any.Labels))
		}
		for _, any := range w.nodes {
			if mine(any) {
				count[any.Labels[t.TopologyKey]] += 0
			}
		}
		for o, on := range at {
			if selects(t.LabelSelector, o) && mine(on) {
				count[on.Labels[t.TopologyKey]]++
			}
		}
		least, here := 1<<30, count[n.Labels[t.TopologyKey]]
		for _, many := range count {
			least = min(least, many)
		}
		if selects(t.LabelSelector, p) {
			here++
		}
		if here-least > 1 {
			return false
		}
	}
	return true
}

// BenchmarkEstimate plays all failures of 5,000 nodes in three zones, with 20 pods each: what the leader repeats. It
// reports the memory that the kept objects need.
func BenchmarkEstimate(b *testing.B) {
	w := largeWorld(5000)
	var before, after runtime.MemStats
	var cpu syscall.Rusage
	kit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &cpu))
	began := cpu.Utime.Nano() + cpu.Stime.Nano()
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := w.cluster()
		lacking := 0
		for _, f := range c.Estimate() {
			lacking += f.Lacking
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(lacking), "lacking")
		runtime.KeepAlive(c)
	}
	kit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &cpu))
	b.ReportMetric(float64(cpu.Utime.Nano()+cpu.Stime.Nano()-began)/1e9/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
}

// largeWorld has nodes with 20 pods each, of 500 templates in 100 namespaces. Every fifth pod has a volume of its zone,
// every tenth an anti-affinity by hostname, and every 20th a spread over zones.
func largeWorld(nodes int) *world {
	rng := rand.New(rand.NewPCG(1, 2))
	w := &world{}
	for range nodes {
		n := w.node()
		n.Status.Allocatable["cpu"], n.Status.Allocatable["pods"] = resource.MustParse("32"), resource.MustParse("110")
	}
	for i := range 20 * nodes {
		n := w.nodes[i%nodes]
		template := rng.IntN(500)
		name := fmt.Sprintf("app-%d", template)
		set := []func(*corev1.Pod){app(name), priority(int32(template % 3))}
		switch {
		case template%5 == 0:
			set = append(set, w.volume(fmt.Sprint(i), n.Labels[zone]))
		case template%10 == 1:
			set = append(set, apart(name, host))
		case template%20 == 2:
			set = append(set, spreads(name, zone))
		}
		o := w.pod(fmt.Sprintf("%s-%d", name, i), n.Name, []string{"250m", "500m", "1", "2"}[template%4], set...)
		o.Namespace = fmt.Sprintf("ns-%d", template%100)
		if k := len(w.volumes); template%5 == 0 {
			w.volumes[k-1].Spec.ClaimRef.Namespace = o.Namespace
		}
	}
	for _, d := range w.csi {
		d.Spec.Drivers[0].Allocatable.Count = new(int32(25))
	}
	return w
}
