package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// nodeUpdates is the rule of updates of Nodes.
var nodeUpdates = admissionv1.RuleWithOperations{
	Operations: []admissionv1.OperationType{admissionv1.Update},
	Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
}

// byLabel selects the Nodes with the label reject=value.
func byLabel(value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"reject": value}}
}

// rejectMark has an admission policy reject the mark on Nodes with the label reject=value, until stop is called.
func (w *world) rejectMark(value, message string) (stop func()) {
	w.t.Helper()
	api, name := w.Client().AdmissionregistrationV1(), "mark-"+w.ns
	_, err := api.ValidatingAdmissionPolicies().Create(w.ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: byLabel(value),
				ResourceRules:  []admissionv1.NamedRuleWithOperations{{RuleWithOperations: nodeUpdates}},
			},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf(`!object.spec.?taints.orValue([]).exists(t, t.key == %q)`, taint.DefaultKey),
				Message:    message,
			}},
		},
	}, metav1.CreateOptions{})
	kit.Must(w.t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(w.ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	kit.Must(w.t, err)
	stop = func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	w.t.Cleanup(stop)
	return stop
}

// deadWebhook has a webhook without a backend admit the updates of Nodes with the label reject=value, until stop is
// called.
func (w *world) deadWebhook(value string) (stop func()) {
	w.t.Helper()
	api, name := w.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations(), "dead-"+w.ns
	url, none := "https://"+kit.FreeAddress(w.t)+"/admit", admissionv1.SideEffectClassNone
	_, err := api.Create(w.ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "nodes.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none,
			Rules: []admissionv1.RuleWithOperations{nodeUpdates}, ObjectSelector: byLabel(value),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	kit.Must(w.t, err)
	stop = func() { _ = api.Delete(context.Background(), name, metav1.DeleteOptions{}) }
	w.t.Cleanup(stop)
	return stop
}

// The API server rejects the mark at every attempt: an admission policy that does not know the key, and a webhook whose
// backend is gone. After a minute an Event has its message. Once nothing rejects the mark, the nodes are recovered.
func TestRejectedMark(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	denied, hooked := w.hosts[0], w.hosts[1]
	for i, h := range []*host{denied, hooked} {
		w.fill(h, i+1, w.volumes("db-"+h.Name(), 1))
	}
	w.start(settings{})
	w.untilPinned(w.hosts...)
	w.kubectl("label", "node", denied.Name(), "reject=policy-"+w.ns)
	w.kubectl("label", "node", hooked.Name(), "reject=webhook-"+w.ns)
	stops := []func(){w.rejectMark("policy-"+w.ns, "this taint is not allowed"), w.deadWebhook("webhook-" + w.ns)}
	denied.cut()
	hooked.cut()
	for h, text := range map[*host]string{denied: "this taint is not allowed", hooked: "nodes.example.com"} {
		if note := w.untilEvent("Node", h.Name(), "RecoveryStepFails"); !strings.Contains(note, text) {
			t.Errorf("%s: got %q, want %q in it", h.Name(), note, text)
		}
		if w.marked(h) {
			t.Errorf("%s is marked", h.Name())
		}
	}
	for _, stop := range stops {
		stop()
	}
	for _, h := range []*host{denied, hooked} {
		w.untilDone(h, taint.ResultEvicted)
	}
	for _, h := range w.hosts[2:] {
		kit.Must(t, w.alone(h))
	}
}
