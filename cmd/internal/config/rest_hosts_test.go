package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// plugDescription describes devices of one machine each, whose addresses are the machines' IDs.
const plugDescription = `name: plugs
off: the outlet is off
identity: none
id: '(?P<outlet>[0-9]+)'
addressIDs: true
login: {kind: basic}
state:
  requests: [{name: got, send: "GET /outlets/{outlet}"}]
  power: 'got.body.on == false ? {"state": "Off", "word": "off"} : {"state": "On", "word": "on"}'
powerOff: {requests: [{name: off, send: "POST /outlets/{outlet}/off"}], accepted: off.status == 200}
powerOn: {requests: [{name: on, send: "POST /outlets/{outlet}/on"}], accepted: on.status == 200}
cases:
- {name: "off", id: "1", answers: {got: {body: {on: false}}}, want: {state: "Off", word: "off"}}
- {name: "on", like: "off", change: {got/on: true}, want: {state: "On", word: "on"}}
`

// What a node writes sends the password to no host that the file does not allow, also if a description makes IDs
// addresses.
func TestDescribedHosts(t *testing.T) {
	t.Setenv("PW", "12345678")
	file := filepath.Join(t.TempDir(), "plugs.yaml")
	if err := os.WriteFile(file, []byte(plugDescription), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, allow, written string
		want                 string // the ID
		err                  error
	}{
		{"an allowed network", "[10.0.0.0/24]", "10.0.0.7/1", "https://10.0.0.7/1", nil},
		{"another network", "[10.0.0.0/24]", "10.0.1.7/1", "", config.ErrNotAllowed},
		{"an allowed domain", "['*.plugs.example.net']", "a.plugs.example.net:8443/1",
			"https://a.plugs.example.net:8443/1", nil},
		{"another domain", "['*.plugs.example.net']", "a.example.net/1", "", config.ErrNotAllowed},
		{"an allowed host before the true one", "[10.0.0.0/24]", "10.0.0.7@evil.example.net/1", "", config.ErrNoID},
		{"an allowed host in the path", "[10.0.0.0/24]", "evil.example.net/10.0.0.7/1", "", config.ErrNoID},
		{"clear text", "[10.0.0.0/24]", "http://10.0.0.7/1", "", config.ErrNotAllowed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "providers: [{name: p, rest: {description: " + file +
				", allowHTTP: true, username: u, passwordEnv: PW}}]\n" +
				"nodes: [{name: n, provider: p, machine: {from: annotation, annotation: plug, allow: " +
				tc.allow + "}}]\n"
			cfg, err := config.Parse("f", []byte(text), all.Types())
			if err != nil {
				t.Fatal(err)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
				Annotations: map[string]string{"plug": tc.written}}}
			m, err := cfg.FindMachine(node)
			if m.Target.ID != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %q, %v, want %q, %v", m.Target.ID, err, tc.want, tc.err)
			}
		})
	}
	text := "providers: [{name: p, rest: {description: " + file + ", username: u, passwordEnv: PW}}]\n" +
		"nodes: [{name: n, provider: p, machine: {from: annotation, annotation: plug}}]\n"
	if _, err := config.Parse("f", []byte(text), all.Types()); err == nil {
		t.Error("without allow: got no fault")
	}
}

// A description decides whether a whole providerID is the ID. Such a Node never gets another machine.
func TestDescribedProviderIDs(t *testing.T) {
	t.Setenv("PW", "12345678")
	for _, tc := range []struct {
		settings, providerID string
		want                 string // the ID
		fixed                bool
	}{
		{"hetzner: {address: 'https://api.example.net', passwordEnv: PW}", "hcloud://42", "hcloud://42", true},
		{"proxmox: {address: 'https://pve.example.net', username: u, passwordEnv: PW}",
			"proxmox://lab/101", "101", false},
	} {
		text := "providers: [{name: p, " + tc.settings + "}]\n" +
			"nodes: [{name: n, provider: p, machine: {from: providerID}}]\n"
		cfg, err := config.Parse("f", []byte(text), all.Types())
		if err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		node.Spec.ProviderID = tc.providerID
		m, err := cfg.FindMachine(node)
		if m.Target.ID != tc.want || m.Fixed != tc.fixed || err != nil {
			t.Errorf("%s: got %q, fixed %t, %v; want %q, %t", tc.providerID, m.Target.ID, m.Fixed, err, tc.want,
				tc.fixed)
		}
	}
}
