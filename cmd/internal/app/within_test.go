package app

import (
	"context"
	"errors"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/machine"
)

// lodging is a provider type of guests on the hypervisors a and b.
type lodging struct{ device }

func (*lodging) Hypervisors() []string { return []string{"a", "b"} }

func (l *lodging) New(o providers.Options) (providers.Provider, error) {
	i, err := l.device.New(o)
	if err != nil {
		return nil, err
	}
	return guests{i.(*instance)}, nil
}

// guests are on no hypervisor, and a does not answer.
type guests struct{ *instance }

func (guests) FindGuest(_ context.Context, hypervisor string, _ providers.Target) (providers.Placement, error) {
	if hypervisor == "a" {
		return providers.Placement{}, providers.ErrUnreachable
	}
	return providers.Placement{Absent: true, Raw: "not on " + hypervisor, At: providers.Now()}, nil
}

// idle is a device that says Off.
type idle struct{ device }

func (d *idle) New(o providers.Options) (providers.Provider, error) {
	i, err := d.device.New(o)
	if err != nil {
		return nil, err
	}
	return off{i.(*instance)}, nil
}

type off struct{ *instance }

func (o off) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs, err := o.instance.State(ctx, t)
	obs.State = providers.PowerOff
	return obs, err
}

// The hosts of a rule's hypervisors speak for its nodes, beside their own device and after all levels. Nobody is
// powered off by them.
func TestHostsOfARule(t *testing.T) {
	r := newRules(t)
	defer r.p.providers.closeAll()
	r.types = append(r.types,
		providers.Type{Name: "lodging", NewConfig: func() providers.Config { return &lodging{device{made: &r.made}} }},
		providers.Type{Name: "idle", NewConfig: func() providers.Config { return &idle{device{made: &r.made}} }})
	r.use(`
mode: fence
providers: [{name: group, lodging: {}}, {name: bmcs, idle: {}}, {name: pdus, device: {}}]
nodes:
- name: guests
  provider: group
  machine: {from: list, list: [{node: n1, id: vm-1}, {node: n2, id: vm-2}]}
  levels:
  - devices: [{provider: pdus, machine: {from: list, list: [{node: n1, id: p1}]}}]
  within:
  - {hypervisor: a, provider: bmcs, id: bmc-a, systemUUID: 4C4C4544-0042-3510-8053-B4C04F38383A}
  - {hypervisor: b, provider: bmcs, id: bmc-b}
- name: more-guests
  provider: group
  machine: {from: list, list: [{node: n3, id: vm-3}]}
  within:
  - {hypervisor: b, provider: bmcs, id: bmc-b}
  - {hypervisor: a, provider: bmcs, id: bmc-a, systemUUID: 4C4C4544-0042-3510-8053-B4C04F38383A}
`)
	n1, n2, n3 := aNode("n1", "4c4c4544-0042-3510-8053-b4c04f383831"), aNode("n2", ""), aNode("n3", "")
	feedNodes(r.p, n1, n2, n3)
	m1, err := r.p.activeConfig().Machines.FindMachine(&n1, nil)
	m3, err3 := r.p.activeConfig().Machines.FindMachine(&n3, nil)
	if err = errors.Join(err, err3); err != nil {
		t.Fatal(err)
	}
	all := m1.Devices()
	if len(all) != 3 || all[2].Device != "group/within/vm-1" || all[2].Level != 2 || all[2].NoPower == "" ||
		!all[2].Quiet ||
		all[2].Identity.Provider != "group/within" || all[2].Identity.ID != "vm-1" {
		t.Fatalf("got %+v", all)
	}
	if of1, of3 := all[2].Provider.(*machine.Within), m3.Devices()[1].Provider.(*machine.Within); of1 == of3 ||
		of1.Hosts[0] != of3.Hosts[1] {
		t.Error("two rules do not share what is asked of their hosts")
	}
	a := providers.Ask(t.Context(), all[2].Provider, all[2].Name, all[2].Target, providers.Now)
	if a.State != providers.PowerOff || a.Raw != "bmcs/shelf of bmc-a is Off, not on b" || a.By != "group/within" {
		t.Errorf("got %s %q, %v", a.State, a.Raw, a.Err)
	}
	for _, i := range r.made {
		if i.name != "bmcs" {
			continue
		}
		if len(i.asked) != 1 || i.asked[0].ID != "bmc-a" ||
			i.asked[0].SystemUUID != "4C4C4544-0042-3510-8053-B4C04F38383A" {
			t.Errorf("hosts: asked %+v, want the one whose hypervisor is silent, and who it is", i.asked)
		}
	}
	if m, _ := r.p.activeConfig().Machines.FindMachine(&n2, nil); len(m.Devices()) != 2 {
		t.Errorf("got %+v, want a node that its level leaves out, and its hosts", m.Devices())
	}
}
