package config_test

import (
	"slices"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
)

// The hosts speak for the guest that the rule's own device speaks for, in a level after all others.
func TestWithin(t *testing.T) {
	c := parse(t, `
providers:
- {name: group, guests: {hypervisors: [a, b]}}
- {name: bmcs, redfish: {username: u, passwordEnv: P}}
- {name: strips, plain: }
nodes:
- name: guests
  provider: group
  machine: {from: list, list: [{node: n1, id: vm-1}, {node: n2, id: vm-2}]}
  levels:
  - devices: [{provider: strips, machine: {from: list, list: [{node: n2, id: s-2}]}}]
  within:
  - {hypervisor: b, provider: bmcs, id: " HTTPS://B.example.net/ "}
  - {hypervisor: a, provider: bmcs, systemUUID: 4c4c4544-0042-3510-8053-b4c04f383831}
`)
	want := []config.Host{
		{Hypervisor: "b", Provider: "bmcs", ID: "https://b.example.net"},
		{Hypervisor: "a", Provider: "bmcs", SystemUUID: "4c4c4544-0042-3510-8053-b4c04f383831"},
	}
	for name, levels := range map[string][]string{
		"n1": {"2:group/within/vm-1"}, "n2": {"1:strips/s-2", "2:group/within/vm-2"}} {
		m, err := c.FindMachine(node(name))
		if err != nil || !slices.Equal(said(m), levels) {
			t.Fatalf("%s: got %q, %v; want %q", name, said(m), err, levels)
		}
		last := m.Further[len(m.Further)-1]
		if !slices.Equal(last.Within, want) || last.Target != m.Target || last.Target.Claimed {
			t.Errorf("%s: got %+v, want these hosts, and the same guest", name, last)
		}
		if m.Within != nil || len(m.Further) > 1 && m.Further[0].Within != nil {
			t.Errorf("%s: hosts speak where a device does", name)
		}
	}
	if m, err := c.FindMachine(node("n3")); err == nil {
		t.Errorf("got %+v of a node that no rule claims", m)
	}
}
