package request

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// requested returns a request called n1 in the namespace ns, changed by edits.
func requested(edits ...func(*api.ForcefenceRemediation)) *api.ForcefenceRemediation {
	r := &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "n1", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		Annotations: map[string]string{}, Labels: map[string]string{"remediation.medik8s.io/isControlPlaneNode": ""},
	}}
	for _, edit := range edits {
		edit(r)
	}
	return r
}

type edit = func(*api.ForcefenceRemediation)

func annotated(key, value string) edit {
	return func(r *api.ForcefenceRemediation) { r.Annotations[key] = value }
}

func forNode(name string) edit { return annotated(nodeNameAnnotation, name) }

func named(name string) edit { return func(r *api.ForcefenceRemediation) { r.Name = name } }

func deleted(r *api.ForcefenceRemediation) { r.DeletionTimestamp = &metav1.Time{Time: now} }

func ownedBy(version, kind, name string) edit {
	return func(r *api.ForcefenceRemediation) {
		r.OwnerReferences = append(r.OwnerReferences,
			metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: "u-m1"})
	}
}

var ownedByMachine = ownedBy("cluster.x-k8s.io/v1beta2", "Machine", "m1")

// machine is the Machine m1, whose node is n1.
func machine(edits ...func(*Machine)) Machine {
	m := Machine{Namespace: "ns", Name: "m1", UID: "u-m1", NodeName: "n1", ProviderID: "fake://1"}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

// seenIn has forcefence have seen the request first in that life of the node.
func seenIn(uid, boot string) edit {
	return func(r *api.ForcefenceRemediation) { r.Status.NodeUID, r.Status.BootID = uid, boot }
}

// notedSinceAfter notes a Ready that changed that long after the request was made.
func notedSinceAfter(after time.Duration) edit {
	return func(r *api.ForcefenceRemediation) {
		r.Status.ReadySince = &metav1.Time{Time: now.Add(-time.Minute + after)}
	}
}

// notReadySince makes the node not Ready that long after the request was made.
func notReadySince(after time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Minute + after))}}
	}
}

// nodeOf returns the Node n1, which Cluster API's Machine m1 has, changed by edits.
func nodeOf(edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{
			"cluster.x-k8s.io/cluster-namespace": "ns", "cluster.x-k8s.io/machine": "m1",
		}},
		Spec:   corev1.NodeSpec{ProviderID: "fake://1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"}},
	}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

// A request permits a power-off of one node at most: that in the annotation, of the Machine, or of its own name. The
// node must exist, and a Machine's node must name the Machine.
func TestRefusal(t *testing.T) {
	none, owner := Machine{}, machine()
	for _, tc := range []struct {
		name    string
		request *api.ForcefenceRemediation
		machine Machine
		node    *corev1.Node
		want    string // part of the refusal; "": it permits a power-off
	}{
		{"by its name", requested(), none, nodeOf(), ""},
		{"by the annotation", requested(named("n1-x7"), forNode("n1")), none, nodeOf(), ""},
		{"foreign annotations", requested(annotated("remediation.medik8s.io/healthy-delay", "1m"),
			annotated("nodehealthcheck.medik8s.io/old-remediation-cr-flag", "")), none, nodeOf(), ""},
		{"named as the Machine of OpenShift", requested(named("m1"), forNode("n1"),
			ownedBy("machine.openshift.io/v1beta1", "Machine", "m1")), none, nodeOf(), ""},
		{"owned by a NodeHealthCheck", requested(ownedBy("remediation.medik8s.io/v1alpha1", "NodeHealthCheck",
			"check")),
			none, nodeOf(), ""},
		{"owned by a Machine", requested(named("m1"), ownedByMachine), owner, nodeOf(), ""},
		{"an older version of Cluster API", requested(named("m1"),
			ownedBy("cluster.x-k8s.io/v1beta1", "Machine", "m1")), owner, nodeOf(), ""},
		{"both name the node", requested(named("m1"), ownedByMachine, forNode("n1")), owner, nodeOf(), ""},

		{"a part of it was not kept", requested(annotated(taint.CutAnnotation, "metadata.annotations")), none, nodeOf(),
			"too large: metadata.annotations"},
		{"no such node", requested(), none, nil, "node n1 does not exist"},
		{"another node", requested(forNode("n2")), none, nodeOf(), "it is for node n2"},
		{"an empty annotation", requested(forNode("")), none, nodeOf(), "cannot exist"},
		{"an annotation that is no name", requested(forNode("n1,n2")), none, nodeOf(), "cannot exist"},
		{"another node than its Machine's", requested(ownedByMachine, forNode("n2")), owner,
			nodeOf(func(n *corev1.Node) { n.Name = "n2" }), "another node than its owner"},
		{"its Machine is unread", requested(ownedByMachine), none, nodeOf(), "cannot be read"},
		{"another Machine of that name", requested(ownedByMachine), machine(func(m *Machine) { m.UID = "u-old" }),
			nodeOf(), "another one of that name"},
		{"a Machine of another namespace", requested(ownedByMachine), machine(func(m *Machine) { m.Namespace = "x" }),
			nodeOf(), "cannot be read"},
		{"a Machine without a node, named like one", requested(ownedByMachine),
			machine(func(m *Machine) { m.NodeName = "" }), nodeOf(), "has no node"},
		{"the node names another Machine", requested(ownedByMachine), owner, nodeOf(func(n *corev1.Node) {
			n.Annotations["cluster.x-k8s.io/machine"] = "m2"
		}), "does not name Machine m1"},
		{"of another namespace", requested(ownedByMachine), owner, nodeOf(func(n *corev1.Node) {
			n.Annotations["cluster.x-k8s.io/cluster-namespace"] = "x"
		}), "does not name Machine m1"},
		{"the node names none", requested(ownedByMachine), owner,
			nodeOf(func(n *corev1.Node) { n.Annotations = nil }), "does not name Machine m1"},
		{"another providerID", requested(ownedByMachine), owner,
			nodeOf(func(n *corev1.Node) { n.Spec.ProviderID = "fake://2" }), "another providerID"},
		{"a node that claims another's Machine", requested(ownedByMachine), owner,
			nodeOf(func(n *corev1.Node) { n.Name = "n2" }), "it is for node n1"},

		{"older than its Node", requested(), none, nodeOf(func(n *corev1.Node) {
			n.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
		}), "older than its Node"},
		{"seen in this life", requested(seenIn("u1", "b1")), none, nodeOf(), ""},
		{"seen on the boot before", requested(seenIn("u1", "b0")), none, nodeOf(), "has booted since"},
		{"seen for a Node that was deleted", requested(seenIn("u0", "b1")), none, nodeOf(), "it is another Node"},
		{"an outage that began before it", requested(), none, nodeOf(notReadySince(-time.Minute)), ""},
		{"an outage that began after it", requested(), none, nodeOf(notReadySince(time.Second)),
			"no controller watched"},
		{"Ready again, and seen too late", requested(annotated(healthyDelayAnnotation, "1m")), none,
			nodeOf(notReadySince(time.Second), func(n *corev1.Node) {
				n.Status.Conditions[0].Status = corev1.ConditionTrue
			}), "no controller watched"},
		{"an outage that began after it, and that was shown", requested(waited(refused)), none,
			nodeOf(notReadySince(time.Second)), "no controller watched"},
		{"another kind of the outage, watched", requested(seenIn("u1", "b1"), notedSinceAfter(time.Second)), none,
			nodeOf(notReadySince(time.Second)), ""},
		{"an outage that began while no controller ran", requested(seenIn("u1", "b1"), notedSinceAfter(0)), none,
			nodeOf(notReadySince(time.Second)), "no controller watched"},
		{"noted without the time of Ready", requested(seenIn("u1", "b1")), none, nodeOf(notReadySince(0)),
			"no controller watched"},
		{"back in its fence", requested(waited(isBack), seenIn("u1", "b1"), notedSinceAfter(0)), none,
			nodeOf(notReadySince(0)), "Ready again since"},
		{"being deleted", requested(deleted), none, nodeOf(), "being deleted"},
		{"answered", requested(shown(metav1.ConditionTrue)), none, nodeOf(), ""},
		{"for an earlier outage", requested(shown(metav1.ConditionTrue), answeredAs(recovered)), none, nodeOf(),
			"Ready again since"},
		{"not answered, for that reason", requested(shown(metav1.ConditionUnknown), answeredAs(recovered)), none,
			nodeOf(), ""},
		{"timed out", requested(annotated(timedOutAnnotation, "2026-11-27T12:00:00Z")), none, nodeOf(), "is over"},
		{"timed out, without a time", requested(annotated(timedOutAnnotation, "")), none, nodeOf(), "is over"},
		{"a Machine that is left alone", requested(ownedByMachine), machine(func(m *Machine) { m.Excluded = "paused" }),
			nodeOf(), "Machine m1: paused"},
		{"paused", requested(annotated("cluster.x-k8s.io/paused", "")), none, nodeOf(), "cluster.x-k8s.io/paused"},
	} {
		got := Refusal(tc.request, tc.machine, tc.node)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A request goes on in another kind of the outage only if its process saw each change of Ready.
func TestWatched(t *testing.T) {
	const off, unknown, on = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	look := func(status corev1.ConditionStatus, after time.Duration) taint.Look {
		return taint.Look{Exists: true, Name: "n1", UID: "u1", BootID: "b1", Ready: status,
			ReadySince: now.Add(-time.Minute + after)}
	}
	noted := func(after time.Duration) *api.ForcefenceRemediation {
		return requested(seenIn("u1", "b1"), notedSinceAfter(after))
	}
	for _, tc := range []struct {
		name  string
		noted *api.ForcefenceRemediation
		looks []taint.Look
		goes  bool // the last look is noted
	}{
		{"the outage goes on", noted(0), []taint.Look{look(off, 0), look(off, 0)}, true},
		{"a kubelet that says it is sick falls silent", noted(0), []taint.Look{look(off, 0), look(unknown, 1)}, true},
		{"noted, and changed before it was read again", requested(),
			[]taint.Look{look(off, 0), look(unknown, 1)}, true},
		{"changed twice before it was noted", noted(0),
			[]taint.Look{look(off, 0), look(unknown, 1), look(off, 2)}, true},
		{"Ready meanwhile, unseen", noted(0), []taint.Look{look(unknown, 0), look(unknown, 1)}, false},
		{"another process saw the change", noted(0), []taint.Look{look(unknown, 1)}, false},
		{"a gap is not made good", noted(0), []taint.Look{look(off, 0), look(off, 1), look(unknown, 2)}, false},
		{"Ready, and silent again, while NodeHealthCheck waits", noted(0),
			[]taint.Look{look(unknown, 0), look(on, 1), look(unknown, 2)}, true},
		{"never noted", seenOnly(), []taint.Look{look(off, 0), look(unknown, 1)}, false},
	} {
		var w Watched
		for i, l := range tc.looks {
			if w = w.Next(tc.noted, l); i == 0 && tc.noted.Status.NodeUID == "" {
				tc.noted = noted(0) // the first look is written
			}
		}
		last := tc.looks[len(tc.looks)-1]
		if got := w.Note(tc.noted).Status.ReadySince; (got != nil && got.Time.Equal(last.ReadySince)) != tc.goes {
			t.Errorf("%s: noted %v, want the last look: %v", tc.name, got, tc.goes)
		}
	}
}

// seenOnly is a request with a life, and without a time of Ready.
func seenOnly() *api.ForcefenceRemediation { return requested(seenIn("u1", "b1")) }
