package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

const (
	uuid1 = "11223344-5566-7788-99aa-bbccddeeff01"
	uuid2 = "11223344-5566-7788-99aa-bbccddeeff02"
)

// byNote leads each node to the machine that its annotation names, as a configuration would.
func byNote() Finder {
	made := func(n *corev1.Node, m taint.MachineRef) Machine {
		return Machine{
			Name: m.Provider, Device: m.Provider + "/" + m.ID, Identity: m,
			Target: providers.Target{Node: n.Name, ID: m.ID, SystemUUID: m.SystemUUID, Claimed: true},
		}
	}
	return Finder{
		Led: func(n *corev1.Node) (Machine, error) {
			id := n.Annotations["bmc"]
			if id == "" {
				return Machine{}, errors.New("annotation bmc is missing")
			}
			return made(n,
				taint.MachineRef{Provider: "racks", ID: id,
					SystemUUID: providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID)}), nil
		},
		Recorded: func(n *corev1.Node, m taint.MachineRef) (Machine, error) {
			if m.Provider != "racks" {
				return Machine{}, errors.New("no such provider any more")
			}
			out := made(n, m)
			out.Target.Claimed = false // a configuration does not know how the node was led there
			return out, nil
		},
	}
}

func noted(id, uuid string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{"bmc": id},
			Labels: map[string]string{}}}
	n.Status.NodeInfo.SystemUUID = uuid
	return n
}

// broken is a device that cannot be asked.
type broken struct{ providers.Provider }

// An open fence goes on with the machine that its record names, or with none.
func TestOpenFenceKeepsItsMachine(t *testing.T) {
	bmc1, bmc2 := taint.MachineRef{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1},
		taint.MachineRef{Provider: "racks", ID: "https://bmc2", SystemUUID: uuid2}
	gone := taint.MachineRef{Provider: "gone", ID: "https://bmc1", SystemUUID: uuid1}
	open := func(m *taint.MachineRef, device string) *taint.Record {
		return &taint.Record{ID: "f1", Phase: taint.PhasePoweringOff, NodeUID: "u1", By: "me", Machine: m,
			Device: device}
	}
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		pin    string
		record *taint.Record
		want   taint.MachineRef // zero: an error
		says   string
	}{
		{"no fence", noted("https://bmc1", uuid1), bmc1.Pin(), nil, bmc1, ""},
		{"the same", noted("https://bmc1", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, ""},
		{"redirected", noted("https://bmc2", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, ""},
		{"redirected, with the other's UUID", noted("https://bmc2", uuid2), bmc1.Pin(), open(&bmc1, ""), bmc1, ""},
		{"led nowhere", noted("", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, ""},
		{"against the pin", noted("https://bmc1", uuid1), bmc1.Pin(), open(&bmc2, ""), taint.MachineRef{},
			"the fence began with machine https://bmc2"},
		{"the provider is gone", noted("https://bmc1", uuid1), gone.Pin(), open(&gone, ""), taint.MachineRef{},
			"no such provider any more"},
		{"an older version's, the same device", noted("https://bmc1", uuid1), bmc1.Pin(),
			open(nil, "racks/https://bmc1"), bmc1, ""},
		{"an older version's, another device", noted("https://bmc1", uuid1), bmc1.Pin(),
			open(nil, "racks/https://bmc2"), taint.MachineRef{}, "the fence began with device racks/https://bmc2"},
		{"redirected while silent, no fence yet", noted("https://bmc2", uuid1), bmc1.Pin(), nil, taint.MachineRef{},
			"names machine https://bmc2"},
		{"never pinned", noted("https://bmc1", uuid1), "", nil, bmc1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.node.Labels[taint.PinLabel] = tc.pin
			m, _, err := byNote().FindBelieved(tc.node, tc.record, false)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got error %v, want %q", err, tc.says)
			}
			if m.Identity != tc.want {
				t.Errorf("got %+v, want %+v", m.Identity, tc.want)
			}
			if err == nil &&
				(m.Target.ID != tc.want.ID || m.Target.SystemUUID != tc.want.SystemUUID || !m.Target.Claimed) {
				t.Errorf("got target %+v", m.Target)
			}
		})
	}
}

// The first device is believed as far as its pin goes, a further one as long as no other node has it. Each is found
// without the other.
func TestFind(t *testing.T) {
	bmc1 := taint.MachineRef{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}
	further := func(clash string) Machine {
		return Machine{Name: "pdus", Device: "pdus/a1", Provider: broken{}, Clash: taint.Clash{Refused: clash},
			Level: 1}
	}
	outlet := func(id, clash string) Machine {
		return Machine{Name: "strips", Device: "strips/" + id, Provider: broken{}, Clash: taint.Clash{Refused: clash},
			Level: 2}
	}
	for _, tc := range []struct {
		name    string
		note    string
		pin     string
		further []Machine
		want    []string
		noPower string // of the first
		err     bool
	}{
		{"both", "https://bmc1", bmc1.Pin(), []Machine{further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "",
			false},
		{"never pinned", "https://bmc1", "", []Machine{further("")}, []string{"racks/https://bmc1", "pdus/a1"},
			"never pinned", false},
		{"redirected", "https://bmc2", bmc1.Pin(), []Machine{further("")}, []string{"pdus/a1"}, "", false},
		{"led nowhere", "", bmc1.Pin(), []Machine{further("")}, []string{"pdus/a1"}, "", false},
		{"another node has the further one", "https://bmc1", bmc1.Pin(), []Machine{further("n2 has it")},
			[]string{"racks/https://bmc1"}, "", false},
		{"another node has one outlet of two", "https://bmc1", bmc1.Pin(),
			[]Machine{outlet("a", ""), outlet("b", "n2 has it"), further("")},
			[]string{"racks/https://bmc1", "pdus/a1"}, "", false},
		{"an outlet of two is said twice", "https://bmc1", bmc1.Pin(),
			[]Machine{outlet("a", ""), outlet("a", ""), further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "",
			false},
		{"neither", "https://bmc2", bmc1.Pin(), []Machine{further("n2 has it")}, nil, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := byNote()
			inner := found.Led
			found.Led = func(n *corev1.Node) (Machine, error) {
				m, err := inner(n)
				m.Further = tc.further
				if err == nil {
					m.Provider = broken{}
				}
				return m, err
			}
			node := noted(tc.note, uuid1)
			node.Labels[taint.PinLabel] = tc.pin
			m, err := found.FindMachine(node, nil)
			var got []string
			for _, d := range m.Devices() {
				got = append(got, d.Device)
			}
			if !slices.Equal(got, tc.want) || (err != nil) != tc.err || err != nil && !errors.Is(err, ErrNotBelieved) {
				t.Fatalf("got %q, error %v, want %q", got, err, tc.want)
			}
			if tc.noPower != "" && (!strings.Contains(m.NoPower, tc.noPower) || m.Devices()[1].NoPower != "") {
				t.Errorf("power of the first: %q, of the second: %q", m.NoPower, m.Devices()[1].NoPower)
			}
		})
	}
}

// A fence goes on with its machine and the further levels, though the node is led to another machine by now.
func TestFenceOfARedirectedNode(t *testing.T) {
	began := taint.MachineRef{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}
	found := byNote()
	led, recorded := found.Led, found.Recorded
	found.Led = func(n *corev1.Node) (Machine, error) {
		m, err := led(n)
		m.Provider = broken{}
		m.Further = []Machine{{Name: "pdus", Device: "pdus/a1", Provider: broken{}, Level: 1}}
		return m, err
	}
	found.Recorded = func(n *corev1.Node, m taint.MachineRef) (Machine, error) {
		out, err := recorded(n, m)
		out.Provider = broken{}
		return out, err
	}
	node := noted("https://bmc2", uuid1)
	node.Labels[taint.PinLabel] = began.Pin()
	m, err := found.FindMachine(node, &taint.Record{ID: "f1", Phase: taint.PhasePoweringOff, NodeUID: "u1", By: "me",
		Device: "racks/https://bmc1", Machine: &began})
	var got []string
	for _, d := range m.Devices() {
		got = append(got, d.Device)
	}
	if want := []string{"racks/https://bmc1", "pdus/a1"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
}

// A fence that began with one outlet of a level goes on with the whole level, though the node is pinned to that outlet
// from before.
func TestFenceOfALevel(t *testing.T) {
	outlet := func(id string) Machine {
		return Machine{Name: "racks", Device: "racks/" + id, Provider: broken{}, Level: 1,
			Identity: taint.MachineRef{Provider: "racks", ID: id}}
	}
	a := taint.MachineRef{Provider: "racks", ID: "a", SystemUUID: uuid1}
	found := byNote()
	recorded := found.Recorded
	found.Led = func(*corev1.Node) (Machine, error) {
		return Machine{Further: []Machine{outlet("a"), outlet("b")}},
			errors.New("the rule has levels alone")
	}
	found.Recorded = func(n *corev1.Node, m taint.MachineRef) (Machine, error) {
		out, err := recorded(n, m)
		out.Provider = broken{}
		return out, err
	}
	node := noted("", uuid1)
	node.Labels[taint.PinLabel] = a.Pin()
	for name, rec := range map[string]*taint.Record{
		"no fence": nil,
		"its fence": {ID: "f1", Phase: taint.PhasePoweringOff, NodeUID: "u1", By: "me", Device: "racks/a",
			Machine: &a}} {
		m, err := found.FindMachine(node, rec)
		var got []string
		for _, d := range m.ProofDevices() {
			got = append(got, fmt.Sprintf("%d:%s", d.Level, d.Name))
		}
		if want := []string{"1:racks/a", "1:racks/b"}; !slices.Equal(got, want) || err != nil {
			t.Errorf("%s: got %q, error %v, want %q", name, got, err, want)
		}
	}
}

// The Off of any device is void if it is older than the node's last sign of life.
func TestEachDeviceKnowsWhenTheNodeWasHeard(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := Machine{Provider: broken{}, Name: "racks", Further: []Machine{{Provider: broken{}, Name: "pdus"}}}
	after := before.WithHeardAt(at)
	for _, d := range after.Devices() {
		if !d.Target.Heard.Equal(at) {
			t.Errorf("%s: got heard at %s, want %s", d.Name, d.Target.Heard, at)
		}
	}
	for _, d := range before.Devices() {
		if !d.Target.Heard.IsZero() {
			t.Errorf("%s: the Machine it was copied from was heard at %s, too", d.Name, d.Target.Heard)
		}
	}
}
