package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/policy"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// uids are those of pods whose name begins so.
func uids(list []corev1.Pod, prefix string) []string {
	var out []string
	for _, p := range list {
		if strings.HasPrefix(p.Name, prefix) {
			out = append(out, string(p.UID))
		}
	}
	return out
}

// NooBaa's pods on a node that becomes not Ready are ended at once, whatever owns them; no other pod is, and a controller that begins
// later replays nothing. With a proof the node is recovered as any other, volumes included.
func TestNooBaa(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, doubles: true, seconds: 150})
	cut, before, dead := w.hosts[0], w.hosts[1], w.hosts[2]
	noobaa := func(name string, o metav1.ObjectMetaAccessor, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector) any {
		selector.MatchLabels = map[string]string{"part": name}
		template.Labels = map[string]string{"part": name, "app": "noobaa"}
		return o
	}
	set := func(name string) any {
		s := w.volumes(name, 1)
		return noobaa(name, s, &s.Spec.Template, s.Spec.Selector)
	}
	endpoint := w.plain("endpoint", 1)
	w.fill(cut, 3, set("core"), noobaa("endpoint", endpoint, &endpoint.Spec.Template, endpoint.Spec.Selector), w.volumes("other", 1))
	w.fill(before, 4, set("early"))
	w.fill(dead, 5, set("db"))
	list := w.podsOn(cut)
	other := slices.DeleteFunc(slices.Clone(list), func(p corev1.Pod) bool { return p.Labels["app"] == "noobaa" })
	early := w.podsOn(before)
	rules := settings{Top: fmt.Sprintf("policies: [{name: noobaa, preset: noobaa, namespaces: [%s], withoutProof: accept-duplicates}]", w.ns)}

	before.partition()
	w.until("NotReady", func() bool { return !w.ready(before) })
	w.start(rules)
	w.untilEvent("Node", before.Name(), "PoweredOnNotReady")

	cut.partition()
	w.until("NooBaa's pods to be others", func() bool {
		now := w.pods()
		for _, name := range []string{"core-", "endpoint-"} {
			if now := uids(now, name); len(now) != 1 || now[0] == uids(list, name)[0] {
				return false
			}
		}
		return true
	})
	w.untilEvent("Node", cut.Name(), "PolicyEndingPods")
	if note := w.untilEvent("Pod", "core-", "PolicyEndedPod"); !strings.Contains(note, "policy noobaa, without proof: accept-duplicates") {
		t.Errorf("Event of an ended pod: got %q, want the policy and its word", note)
	}
	w.during(2*time.Second, "pods that are not NooBaa's, and those of a node that fell before the controller began", func() error {
		return untouched(append(slices.Clone(other), early...), w.pods())
	})
	for _, h := range []*host{cut, before} {
		kit.Must(t, w.alone(h))
	}

	lost := slices.DeleteFunc(w.podsOn(dead), func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, "db-") }) // of NooBaa's others some wait for their volumes
	dead.cut()
	w.untilDone(dead, taint.ResultEvicted)
	w.untilReplaced(dead, lost)
	if a := w.attachments(dead); len(a) > 0 {
		t.Errorf("attachments of a machine that is proven off: got %v, want none", a)
	}
}

// A pod on a node that is down is ended once its deletionTimestamp has passed, if it has a volume of the driver and its owner is of the
// policy's. Every value of Longhorn's setting, on a node of its own.
func TestLonghornNodeDown(t *testing.T) {
	values := len(policy.Deletion)
	w := newWorld(t, plan{nodes: 2*values + 2, doubles: true, seconds: 200})
	var rules strings.Builder
	rules.WriteString("policies:\n")
	pods := 0
	for i, d := range policy.Deletion {
		h := w.hosts[i]
		w.kubectl("label", "node", h.Name(), fmt.Sprintf("value=%d", i))
		fmt.Fprintf(&rules, "- {name: %s, preset: longhorn, drivers: [%s], nodes: value=%d, nodeDownPodDeletionPolicy: %s, withoutProof: accept-duplicates}\n",
			d.Value, cluster.CSIDriver, i, d.Value)
		with := func(name string, volume, mixed bool) cluster.Workload {
			wl := w.workload(fmt.Sprintf("%s%d", name, i), 1)
			grace := int64(2)
			wl.Volume, wl.Mixed, wl.GracePeriod, wl.Tolerations = volume, mixed, &grace, leavingWithin(1)
			return wl
		}
		apart := with("apart", false, true).Deployment()
		alone := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: apart.Name, Namespace: w.ns},
			Spec:       appsv1.ReplicaSetSpec{Replicas: apart.Spec.Replicas, Selector: apart.Spec.Selector, Template: apart.Spec.Template},
		}
		pods += 4
		w.fill(h, pods, with("set", true, false).StatefulSet(), with("deployment", false, true).Deployment(), with("plain", false, false).StatefulSet(), alone)
	}
	before := w.pods()
	w.start(settings{Top: rules.String()})
	for i := range policy.Deletion {
		w.hosts[i].partition()
	}
	gone := func(name string) bool {
		now := w.pods()
		return !slices.ContainsFunc(uids(before, name), func(uid string) bool { return slices.Contains(uids(now, name), uid) })
	}
	terminating := func(name string) bool {
		return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool {
			return slices.Contains(uids(before, name), string(p.UID)) && p.DeletionTimestamp != nil && time.Now().After(p.DeletionTimestamp.Time)
		})
	}
	for i, d := range policy.Deletion {
		for kind, name := range map[string]string{"StatefulSet": "set", "Deployment": "deployment", "": "apart", "no volume": "plain"} {
			name := fmt.Sprintf("%s%d-", name, i)
			if slices.Contains(d.Owners, kind) {
				w.until(name+" to be gone", func() bool { return gone(name) })
			} else {
				w.until(name+" to be past its deletionTimestamp", func() bool { return terminating(name) })
			}
		}
	}
	w.during(6*time.Second, "pods that no policy ends", func() error {
		for i, d := range policy.Deletion {
			for kind, name := range map[string]string{"StatefulSet": "set", "Deployment": "deployment", "": "apart", "no volume": "plain"} {
				if name := fmt.Sprintf("%s%d-", name, i); !slices.Contains(d.Owners, kind) && !terminating(name) {
					return fmt.Errorf("%s: pod %s: got it ended, want it Terminating for ever", d.Value, name)
				}
			}
		}
		return nil
	})
}
