package deploy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// What the chart demands of a page beyond loopback, and of a BMC.
const (
	certificate = "statusCertFile: /etc/forcefence-bmc/tls.crt, statusKeyFile: /etc/forcefence-bmc/tls.key"
	login       = "username: a, passwordFile: /etc/forcefence-bmc/password"
)

// TestNetworkPolicy checks that only those who need a port may connect to it, and that egress is not restricted.
func TestNetworkPolicy(t *testing.T) {
	prometheus :=
		`{"from":[{"podSelector":{"matchLabels":{"app.kubernetes.io/name":"prometheus"}},"namespaceSelector":{}}],` +
			`"ports":[{"protocol":"TCP","port":8080}]}`
	for values, want := range map[string]string{ // its ingress
		"{}": "[" + prometheus + "]",
		"networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {metrics: scraped}}}]}": "" +
			`[{"from":[{"namespaceSelector":{"matchLabels":{"metrics":"scraped"}}}],` +
			`"ports":[{"protocol":"TCP","port":8080}]}]`,
		"networkPolicy: {metricsFrom: []}":             `[]`,
		`config: {listen: {status: "127.0.0.1:8082"}}`: "[" + prometheus + "]",
		`config: {listen: {status: "localhost:8082"}}`: "[" + prometheus + "]",
		`config: {listen: {status: "[::1]:8082"}}`:     "[" + prometheus + "]",
		`config: {listen: {status: ":8443", ` + certificate + `}}`: "[" + prometheus +
			`,{"ports":[{"protocol":"TCP","port":8443}]}]`,
		`config: {listen: {status: "[::]:8443", ` + certificate + `}}`: "[" + prometheus +
			`,{"ports":[{"protocol":"TCP","port":8443}]}]`,
		`config: {providers: [{name: a, ipmi: {` + login + `}}, ` +
			`{name: b, redfish: {` + login + `, events: sse}}]}`: "[" + prometheus + "]",
		`config: {providers: [{name: a, redfish: {` + login + `, events: push, push: {listen: ":8443"}}}, ` +
			`{name: b, redfish: {` + login + `, push: {listen: ":8443"}}}]}`: "" +
			"[" + prometheus + `,{"ports":[{"protocol":"TCP","port":8443}]}]`,
	} {
		got := find[networkingv1.NetworkPolicy](t, parse(t, charted(t, values)), "NetworkPolicy", "forcefence")
		if diff := cmp.Diff(
			metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "forcefence"}},
			got.Spec.PodSelector); diff != "" {
			t.Errorf("%s: pods (-want +got):\n%s", values, diff)
		}
		if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			got.Spec.PolicyTypes); diff != "" || got.Spec.Egress != nil {
			t.Errorf("%s: what is restricted (-want +got):\n%s", values, diff)
		}
		var rules []networkingv1.NetworkPolicyIngressRule
		kit.Must(t, json.Unmarshal([]byte(want), &rules))
		if diff := cmp.Diff(rules, got.Spec.Ingress); diff != "" {
			t.Errorf("%s: who connects (-want +got):\n%s", values, diff)
		}
	}
}
