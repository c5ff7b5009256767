package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// refuses has an admission policy refuse updates of a resource for which an expression is false, until stop is called.
func (w *world) refuses(resource, selector, expression, message string) (stop func()) {
	w.t.Helper()
	name := "refusal-" + w.ns
	w.kubectlApply(fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    %[2]s
    resourceRules: [{apiGroups: ["", coordination.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [%[3]s]}]
  validations: [{expression: %[4]q, message: %[5]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name, selector, resource, expression, message))
	stop = func() {
		api := w.Client().AdmissionregistrationV1()
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	w.t.Cleanup(stop)
	return stop
}

// The API server rejects the mark at every attempt: an admission policy does not know the key. After a minute an Event
// has its message. Once nothing rejects the mark, the node is recovered.
func TestRejectedMark(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.oneEach(h)
	w.start(settings{})
	w.untilPinned(w.hosts...)
	w.kubectl("label", "node", h.Name(), "reject="+w.ns)
	const message = "this taint is not allowed"
	stop := w.refuses("nodes", "objectSelector: {matchLabels: {reject: "+w.ns+"}}",
		fmt.Sprintf(`!object.spec.?taints.orValue([]).exists(t, t.key == %q)`, taint.DefaultKey), message)
	h.cut()
	if note := w.untilEvent("Node", h.Name(), "RecoveryStepFails"); !strings.Contains(note, message) || w.marked(h) {
		t.Errorf("got %q, marked %t; want %q in it, and no mark", note, w.marked(h), message)
	}
	stop()
	w.untilDone(h, taint.ResultEvicted)
	kit.Must(t, w.othersAlone(h))
}

// A webhook with a dead backend refuses to delete the pods of a fence. The newest FenceNeedsPerson says so, although
// the fence needed a person for another cause before. Once the webhook is gone, the node is recovered.
func TestNewestCauseIsReadable(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 2))
	w.start(settings{Detach: "30s"})
	w.untilPinned(w.hosts...)
	before := w.podsOn(h)
	webhook := "refusal-" + w.ns
	w.kubectlApply(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ` + webhook + `}
webhooks:
- name: pods-delete.example.com
  clientConfig: {url: "https://127.0.0.1:1/check"}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + w.ns + `}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}]
`)
	stop := func() {
		_ = w.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), webhook,
			metav1.DeleteOptions{})
	}
	t.Cleanup(stop)
	h.cut()
	w.until("the newest FenceNeedsPerson to name a pod that cannot be deleted", func() bool {
		all := w.events("Node", h.Name(), "FenceNeedsPerson")
		slices.SortFunc(all, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		return len(all) > 1 && strings.Contains(all[len(all)-1].Note, "cannot be deleted")
	})
	stop()
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
}
