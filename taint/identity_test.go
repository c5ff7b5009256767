package taint

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	uuid1 = "11223344-5566-7788-99aa-bbccddeeff01"
	uuid2 = "11223344-5566-7788-99aa-bbccddeeff02"
	uuidX = "11223344-5566-7788-99aa-bbccddeeffee"
)

var (
	bmc1 = MachineRef{"racks", "https://bmc1", uuid1}
	bmc2 = MachineRef{"racks", "https://bmc2", uuid2}
	bmcX = MachineRef{"racks", "https://bmcx", uuidX} // of no node

	// Of a provider whose IDs are a Node's for good.
	ec2a = MachineRef{"aws", "aws:///eu-west-1a/i-0000000a", uuid1}
	ec2b = MachineRef{"aws", "aws:///eu-west-1a/i-0000000b", uuid1}
)

func withUUID(m MachineRef, uuid string) MachineRef { m.SystemUUID = uuid; return m }

func TestPin(t *testing.T) {
	seen := map[string]MachineRef{}
	for _, m := range []MachineRef{
		{}, bmc1, bmc2, withUUID(bmc1, uuid2), withUUID(bmc1, ""), {"other", "https://bmc1", uuid1},
		{"racks", "", uuid1}, {"racks", "", uuid2},
		{"racks", uuid1, uuid1}, {"rack", "shttps://bmc1", uuid1}, {"racks", strings.Repeat("x", 512), uuid1},
	} {
		pin := m.Pin()
		if errs := validation.IsValidLabelValue(pin); len(errs) > 0 {
			t.Errorf("%+v: %q is no label's value: %v", m, pin, errs)
		}
		if other, twice := seen[pin]; twice {
			t.Errorf("%+v and %+v have one pin", m, other)
		}
		seen[pin] = m
	}
	if errs := validation.IsQualifiedName(PinLabel); len(errs) > 0 ||
		!strings.HasSuffix(strings.Split(PinLabel, "/")[0], ".node-restriction.kubernetes.io") {
		t.Errorf("%s: kubelets are not kept from it: %v", PinLabel, errs)
	}
	if id, uuid := (Claim{Pin: bmc1.Pin()}).splitPin(); id != bmc1.idPin() || uuid != bmc1.uuidPin() {
		t.Errorf("the pin does not read back: %q and %q", id, uuid)
	}
}

// The label names each device that named the machine, and forgets none that the node still has. Machines that the node
// was led to before go first.
func TestNamedLabel(t *testing.T) {
	all := func(from, to int) (out []MachineRef) {
		for i := from; i < to; i++ {
			out = append(out, MachineRef{Provider: "racks", ID: fmt.Sprintf("https://bmc%d", i), SystemUUID: uuid1})
		}
		return out
	}
	for _, tt := range []struct {
		name            string
		before          []MachineRef // named one after the other
		machines, named []MachineRef
		want, not       []MachineRef
	}{
		{"none", nil, all(0, 2), nil, nil, all(0, 2)},
		{"the first", nil, all(0, 2), all(0, 1), all(0, 1), all(1, 2)},
		{"the second, too", all(0, 1), all(0, 2), all(1, 2), all(0, 2), nil},
		{"again", all(0, 2), all(0, 2), all(0, 1), all(0, 2), nil},
		{"none any more", all(0, 2), all(0, 2), nil, all(0, 2), nil},
		{"led elsewhere", all(0, 2), all(2, 3), all(2, 3), all(0, 3), nil},
		{"as many as there may be", all(0, 5), all(0, MaxDevices), all(0, MaxDevices), all(0, MaxDevices), nil},
		{"more than fit", all(0, 20), all(30, 30+MaxDevices), all(30, 30+MaxDevices), all(30, 30+MaxDevices),
			all(0, 13)},
		{"one of the node's own is silent", all(0, maxNamed), all(0, 3), nil, all(0, 3), nil},
		{"a silent one stays where others go", all(0, maxNamed), append(all(0, 2), all(30, 30+4)...),
			all(30, 30+4), append(all(0, 2), all(30, 30+4)...), nil},
	} {
		label := ""
		for _, m := range tt.before {
			label = AddNamed(label, []MachineRef{m}, []MachineRef{m})
		}
		label = AddNamed(label, tt.machines, tt.named)
		if errs := validation.IsValidLabelValue(label); len(errs) > 0 {
			t.Errorf("%s: %q is no label's value: %v", tt.name, label, errs)
		}
		for _, m := range tt.want {
			if other := (MachineRef{"racks", m.ID, uuid2}); !m.IsNamed(label) || !other.IsNamed(label) {
				t.Errorf("%s: %q lacks %s", tt.name, label, m)
			}
		}
		for _, m := range tt.not {
			if m.IsNamed(label) {
				t.Errorf("%s: %q has %s", tt.name, label, m)
			}
		}
		if again := AddNamed(label, tt.machines, tt.named); again != label {
			t.Errorf("%s: named again, %q becomes %q", tt.name, label, again)
		}
	}
	if got, want := AddNamed("by.a-person", all(0, 1), all(0, 1)), all(0, 1)[0].namedHash(); got != want {
		t.Errorf("over a person's words: got %q", got)
	}
	if errs := validation.IsQualifiedName(NamedLabel); len(errs) > 0 ||
		!strings.HasSuffix(strings.Split(NamedLabel, "/")[0], ".node-restriction.kubernetes.io") {
		t.Errorf("%s: kubelets are not kept from it: %v", NamedLabel, errs)
	}
}

// Who gets a machine that several nodes are led to, or pinned to.
func TestClash(t *testing.T) {
	kubelet := func(node string, m MachineRef, pin ...MachineRef) Claim {
		c := Claim{Node: node, Machine: m, Claimed: true}
		if len(pin) > 0 {
			c.Pin = pin[0].Pin()
		}
		return c
	}
	operator := func(node string, m MachineRef, pin ...MachineRef) Claim {
		c := kubelet(node, m, pin...)
		c.Claimed = false
		return c
	}
	none := MachineRef{}
	for _, tc := range []struct {
		name   string
		mine   Claim
		others []Claim
		want   string // "" or what the refusal says
		noPin  bool
	}{
		{"alone", kubelet("n1", bmc1), nil, "", false},
		{"others have others", kubelet("n1", bmc1), []Claim{kubelet("n2", bmc2, bmc2)}, "", false},
		{"led nowhere", kubelet("n1", none), []Claim{kubelet("n2", bmc2, bmc2)}, "", false},
		{"none is pinned", kubelet("n1", bmc1), []Claim{kubelet("n2", bmc1)}, "claimed by node n2", false},
		{"the pinned one keeps it", kubelet("n1", bmc1, bmc1), []Claim{kubelet("n2", withUUID(bmc1, uuid2))}, "",
			false},
		{"a newcomer does not get it", kubelet("n2", withUUID(bmc1, uuid2)), []Claim{kubelet("n1", bmc1, bmc1)},
			"pinned to node n1", false},
		{"a newcomer with the right UUID, either", kubelet("n2", bmc1, bmc2), []Claim{kubelet("n1", bmc1, bmc1)},
			"pinned to node n1", false},
		{"several are pinned", kubelet("n1", bmc1, bmc1), []Claim{kubelet("n2", bmc1, bmc1)}, "pinned to node n2",
			false},
		{"the other was pinned and is led elsewhere", kubelet("n1", bmc1), []Claim{kubelet("n2", bmc2, bmc1)},
			"pinned to node n2", false},
		{"the other was pinned and is led nowhere", kubelet("n1", bmc1), []Claim{kubelet("n2", none, bmc1)},
			"pinned to node n2", false},
		{"another's UUID", kubelet("n1", withUUID(bmc1, uuid2)), []Claim{kubelet("n2", bmc2, bmc2)},
			"system UUID " + uuid2, false},
		{"another's UUID, of an operator's node", kubelet("n1", withUUID(bmc1, uuid2)),
			[]Claim{operator("n2", bmc2, bmc2)}, "pinned to node n2", false},
		{"another reports mine", kubelet("n1", bmc1, bmc1), []Claim{kubelet("n2", withUUID(bmc2, uuid1))}, "", false},
		{"an operator's node reports mine", kubelet("n1", bmc1, bmc1), []Claim{operator("n2", withUUID(bmc2, uuid1))},
			"",
			false},
		{"both tell one UUID", kubelet("n1", bmc1), []Claim{kubelet("n2", withUUID(bmc2, uuid1))}, "claimed by node n2",
			false},
		{"neither reports a UUID", kubelet("n1", withUUID(bmc1, "")),
			[]Claim{kubelet("n2", withUUID(bmc2, ""), withUUID(bmc2, ""))}, "", false},
		{"by UUID", kubelet("n1", MachineRef{"hv", "", uuid2}),
			[]Claim{kubelet("n2", MachineRef{"hv", "", uuid2}, MachineRef{"hv", "", uuid2})}, "pinned to node n2",
			false},
		{"by UUID, the pinned one", kubelet("n2", MachineRef{"hv", "", uuid2}, MachineRef{"hv", "", uuid2}),
			[]Claim{kubelet("n1", MachineRef{"hv", "", uuid2})}, "", false},

		{"an operator's word against a kubelet's", operator("n1", bmc1), []Claim{kubelet("n2", withUUID(bmc1, uuid2))},
			"", false},
		{"and against its pin", operator("n1", bmc1),
			[]Claim{kubelet("n2", withUUID(bmc1, uuid2), withUUID(bmc1, uuid2))}, "", false},
		{"a kubelet's against it", kubelet("n2", withUUID(bmc1, uuid2)), []Claim{operator("n1", bmc1)},
			"claimed by node n1", false},
		{"a pinned kubelet's against it", kubelet("n2", withUUID(bmc1, uuid2), withUUID(bmc1, uuid2)),
			[]Claim{operator("n1", bmc1)}, "claimed by node n1", false},
		{"an operator's word against an operator's", operator("n1", bmc1),
			[]Claim{operator("n2", withUUID(bmc1, uuid2))}, "claimed by node n2", false},
		{"of two, the pinned one keeps it", operator("n1", bmc1, bmc1), []Claim{operator("n2", withUUID(bmc1, uuid2))},
			"", false},
		{"of two, the newcomer does not get it", operator("n2", withUUID(bmc1, uuid2)),
			[]Claim{operator("n1", bmc1, bmc1)}, "pinned to node n1", false},
		{"an operator's node with another's UUID is not pinned to it", operator("n1", withUUID(bmc1, uuid2)),
			[]Claim{kubelet("n2", bmc2, bmc2)}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NewClaims(append(tc.others, tc.mine)).FindClash(tc.mine, nil)
			if (got.Refused == "") != (tc.want == "") || !strings.Contains(got.Refused, tc.want) ||
				(got.NoPin != "") != tc.noPin {
				t.Errorf("got %+v, want refused %q, no pin %v", got, tc.want, tc.noPin)
			}
			// What was read a moment ago may hold an older claim of this very node.
			old := tc.mine
			old.Machine, old.Pin = bmcX, bmcX.Pin()
			if again := NewClaims(append(tc.others, old)).FindClash(tc.mine, nil); !reflect.DeepEqual(again, got) {
				t.Errorf("against an older look: got %+v, want %+v", again, got)
			}
		})
	}
	if got := (*Claims)(nil).FindClash(kubelet("n1", bmc1), nil); !reflect.DeepEqual(got, Clash{}) {
		t.Errorf("a nil Claims: got %+v", got)
	}
}

// Claims that were replaced, node by node and in any order, are those of the nodes as they are now.
// Five names are all named; more are counted.
func TestJoinNames(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for n, want := range map[int]string{1: "a", 5: "a, b, c, d, e", 7: "a, b, c, d, e and 2 more"} {
		if got := joinNames(names[:n]); got != want {
			t.Errorf("%d names: got %q, want %q", n, got, want)
		}
	}
}

// What names no machine is in no index: nodes without a UUID would otherwise all be holders of one.
func TestClaimsOfNothing(t *testing.T) {
	none := withUUID(bmc1, "")
	c := NewClaims([]Claim{{Node: "n1"}, {Node: "n2", Machine: none, Pin: none.Pin()}})
	if len(c.uuids) > 0 || len(c.ids) != 1 || len(c.ids[none.idPin()]) != 1 {
		t.Errorf("got %+v, want the ID of n2 alone", c)
	}
}

func TestReplaceClaims(t *testing.T) {
	machines := []MachineRef{{}, bmc1, bmc2, withUUID(bmc1, uuid2), withUUID(bmc2, ""), {"racks", "", uuid1}}
	pins := []string{"", bmc1.Pin(), bmc2.Pin(), withUUID(bmc2, "").Pin(), "no pin of ours", "." + bmc1.uuidPin()}
	words := func(c Clash) []string { // the order of the nodes' names does not count
		return slices.Sorted(strings.FieldsSeq(strings.ReplaceAll(c.Refused+" no pin "+c.NoPin, ",", "")))
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		nodes := map[string][]Claim{}
		claims := NewClaims(nil)
		for range 30 {
			name := []string{"n1", "n2", "n3"}[random.IntN(3)]
			var now []Claim
			for range random.IntN(3) {
				now = append(now, Claim{
					Node: name, Machine: machines[random.IntN(len(machines))], Claimed: random.IntN(2) > 0,
					Pin: pins[random.IntN(len(pins))],
				})
			}
			claims.Replace(nodes[name], now)
			nodes[name] = now
			var all []Claim
			for _, of := range nodes {
				all = append(all, of...)
			}
			want := NewClaims(all)
			for _, mine := range all {
				got, want := claims.FindClash(mine, nil), want.FindClash(mine, nil)
				if !slices.Equal(words(got), words(want)) {
					t.Fatalf("seed %d: claim %+v: got %+v, want %+v", seed, mine, got, want)
				}
			}
		}
		for name := range nodes {
			claims.Replace(nodes[name], nil)
		}
		if len(claims.ids)+len(claims.uuids) > 0 {
			t.Fatalf("seed %d: no node is left, but the claims hold %+v", seed, claims)
		}
	}
}

// Which machine a node is believed to be.
func TestBelieve(t *testing.T) {
	open := func(m *MachineRef) *Record {
		return &Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", Machine: m}
	}
	done := &Record{ID: "f1", Phase: PhaseDone, Result: ResultEvicted, NodeUID: "u1", By: "me", Machine: &bmcX}
	moved := MachineRef{"racks", "https://bmc1-new", uuid1}
	believed := func(m MachineRef) Belief { return Belief{Machine: m} }
	claimed := func(m MachineRef) Belief { return Belief{Machine: m, Claimed: true} }
	pinning := func(b Belief) Belief { b.Pin = b.Machine.Pin(); return b }
	repinning := func(b Belief) Belief { b.Pin, b.Repin = b.Machine.Pin(), true; return b }
	const refused, noPower = "refused", "no power"
	for _, tc := range []struct {
		name    string
		machine MachineRef
		claimed bool
		pin     string
		healthy bool
		record  *Record
		clash   Clash
		want    Belief // NoPower and Refused: whether there is a text
	}{
		{"led nowhere", MachineRef{}, false, "", true, nil, Clash{}, Belief{}},
		{"led nowhere, pinned", MachineRef{}, true, bmc1.Pin(), true, nil, Clash{}, Belief{}},

		{"operator's, healthy", bmc1, false, "", true, nil, Clash{}, pinning(believed(bmc1))},
		{"operator's, pinned", bmc1, false, bmc1.Pin(), true, nil, Clash{}, believed(bmc1)},
		{"operator's, silent, never pinned", bmc1, false, "", false, nil, Clash{}, believed(bmc1)},
		{"operator's, silent, changed by the operator", moved, false, bmc1.Pin(), false, nil, Clash{}, believed(moved)},
		{"operator's, healthy, changed by the operator", bmcX, false, bmc1.Pin(), true, nil, Clash{},
			repinning(believed(bmcX))},
		{"operator's, clash", bmc1, false, bmc1.Pin(), true, nil, Clash{Refused: "x"}, Belief{Refused: refused}},
		{"operator's, another's UUID", bmc1, false, "", true, nil, Clash{NoPin: "x"}, believed(bmc1)},

		{"kubelet's, healthy", bmc1, true, "", true, nil, Clash{},
			pinning(Belief{Machine: bmc1, Claimed: true, NoPower: noPower})},
		{"kubelet's, healthy, no UUID", withUUID(bmc1, ""), true, "", true, nil, Clash{},
			pinning(Belief{Machine: withUUID(bmc1, ""), Claimed: true, NoPower: noPower})},
		{"kubelet's, pinned", bmc1, true, bmc1.Pin(), true, nil, Clash{}, claimed(bmc1)},
		{"kubelet's, pinned, silent", bmc1, true, bmc1.Pin(), false, nil, Clash{}, claimed(bmc1)},
		{"kubelet's, pinned, silent, an old fence of another", bmc1, true, bmc1.Pin(), false, done, Clash{},
			claimed(bmc1)},
		{"kubelet's, silent, never pinned", bmc1, true, "", false, nil, Clash{},
			Belief{Machine: bmc1, Claimed: true, NoPower: noPower}},
		{"kubelet's, healthy, another ID", moved, true, bmc1.Pin(), true, nil, Clash{},
			repinning(Belief{Machine: moved, Claimed: true, NoPower: noPower})},
		{"kubelet's, silent, another ID", moved, true, bmc1.Pin(), false, nil, Clash{}, Belief{Refused: refused}},
		{"kubelet's, healthy, another UUID", withUUID(bmc1, uuidX), true, bmc1.Pin(), true, nil, Clash{},
			Belief{Refused: refused}},
		{"kubelet's, silent, another UUID", withUUID(bmc1, uuidX), true, bmc1.Pin(), false, nil, Clash{},
			Belief{Refused: refused}},
		{"kubelet's, healthy, no UUID any more", withUUID(bmc1, ""), true, bmc1.Pin(), true, nil, Clash{},
			Belief{Refused: refused}},
		{"kubelet's, healthy, a UUID at last", bmc1, true, withUUID(bmc1, "").Pin(), true, nil, Clash{},
			Belief{Refused: refused}},
		{"kubelet's, healthy, a foreign BMC and its UUID", bmcX, true, bmc1.Pin(), true, nil, Clash{},
			Belief{Refused: refused}},
		{"kubelet's, a pin that is none", bmc1, true, "x", true, nil, Clash{}, Belief{Refused: refused}},
		{"kubelet's, clash", bmc1, true, "", true, nil, Clash{Refused: "x"}, Belief{Refused: refused}},
		{"kubelet's, by UUID, pinned", MachineRef{"hv", "", uuid1}, true, MachineRef{"hv", "", uuid1}.Pin(), false, nil,
			Clash{}, claimed(MachineRef{"hv", "", uuid1})},
		{"kubelet's, by UUID, changed", MachineRef{"hv", "", uuid2}, true, MachineRef{"hv", "", uuid1}.Pin(), true, nil,
			Clash{}, Belief{Refused: refused}},

		{"for good, healthy", ec2a, true, "", true, nil, Clash{},
			pinning(Belief{Machine: ec2a, Claimed: true, NoPower: noPower})},
		{"for good, pinned", ec2a, true, ec2a.Pin(), false, nil, Clash{}, claimed(ec2a)},
		{"for good, healthy, another ID", ec2b, true, ec2a.Pin(), true, nil, Clash{}, Belief{Refused: refused}},
		{"for good, silent, another ID", ec2b, true, ec2a.Pin(), false, nil, Clash{}, Belief{Refused: refused}},
		{"for good, healthy, pinned to another provider's", ec2a, true, bmc1.Pin(), true, nil, Clash{},
			Belief{Refused: refused}},
		{"for good, operator's, changed by the operator", ec2b, false, ec2a.Pin(), true, nil, Clash{},
			repinning(believed(ec2b))},
		{"for good, open fence", ec2b, true, ec2a.Pin(), false, open(&ec2a), Clash{}, claimed(ec2a)},

		{"open fence, the same", bmc1, true, bmc1.Pin(), false, open(&bmc1), Clash{}, claimed(bmc1)},
		{"open fence, the annotation changed", bmcX, true, bmc1.Pin(), false, open(&bmc1), Clash{}, claimed(bmc1)},
		{"open fence, the UUID changed", withUUID(bmc1, uuid2), true, bmc1.Pin(), false, open(&bmc1),
			Clash{Refused: "x"}, claimed(bmc1)},
		{"open fence, led nowhere", MachineRef{}, false, bmc1.Pin(), false, open(&bmc1), Clash{}, claimed(bmc1)},
		{"open fence, operator's, the UUID changed", withUUID(bmc1, uuidX), false, bmc1.Pin(), false, open(&bmc1),
			Clash{}, believed(bmc1)},
		{"open fence, operator's, never pinned", bmc1, false, "", false, open(&bmc1), Clash{}, believed(bmc1)},
		{"open fence, operator's list changed, pinned", bmcX, false, bmc1.Pin(), false, open(&bmc1), Clash{},
			claimed(bmc1)},
		{"open fence, operator's list changed, never pinned", bmcX, false, "", false, open(&bmc1), Clash{},
			Belief{Refused: refused}},
		{"open fence, operator's, clash", bmc1, false, "", false, open(&bmc1), Clash{Refused: "x"},
			Belief{Refused: refused}},
		{"open fence, kubelet's, never pinned", bmc1, true, "", false, open(&bmc1), Clash{},
			Belief{Machine: bmc1, Claimed: true, NoPower: noPower}},
		{"open fence, kubelet's, never pinned, changed", bmcX, true, "", false, open(&bmc1), Clash{},
			Belief{Refused: refused}},
		{"open fence, kubelet's, never pinned, clash", bmc1, true, "", false, open(&bmc1), Clash{Refused: "x"},
			Belief{Refused: refused}},
		{"open fence, the record contradicts the pin", bmc1, true, bmc1.Pin(), false, open(&bmcX), Clash{},
			Belief{Refused: refused}},
		{"open fence, a forged record and annotation", bmcX, true, bmc1.Pin(), false, open(&bmcX), Clash{},
			Belief{Refused: refused}},
		{"open fence of an older version", bmc1, true, bmc1.Pin(), false, open(nil), Clash{}, claimed(bmc1)},
		{"open fence of an older version, changed", moved, true, bmc1.Pin(), false, open(nil), Clash{},
			Belief{Refused: refused}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := DecideMachine(Identity{
				Claim: Claim{Node: "n1", Fixed: tc.machine.Provider == "aws", Machine: tc.machine, Claimed: tc.claimed,
					Pin: tc.pin}, Clash: tc.clash, Record: tc.record, Healthy: tc.healthy,
			})
			if got.Refused != "" {
				got.Refused = refused
			}
			if got.NoPower != "" {
				got.NoPower = noPower
			}
			if got != tc.want {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
			if got.Pin != "" && !tc.healthy {
				t.Error("a node that looks dead is pinned")
			}
		})
	}
}

// Distrust belongs to a machine, not to other machines at its address.
func TestDistrusts(t *testing.T) {
	lied := func(m *MachineRef) *Record {
		return &Record{Result: ResultNeverPoweredOff, Phase: PhaseDone, Device: "racks/https://bmc", Machine: m}
	}
	other := MachineRef{"racks", "https://bmc/redfish/v1/Systems/2", uuid2}
	first := MachineRef{"racks", "https://bmc/redfish/v1/Systems/1", uuid1}
	for _, tc := range []struct {
		name   string
		record *Record
		m      MachineRef
		own    bool
		want   bool
	}{
		{"its own", lied(&first), first, true, true},
		{"its own, with another UUID by now", lied(&first), withUUID(first, uuidX), true, true},
		{"its own, another machine by now", lied(&first), other, true, false},
		{"another node's, the same machine", lied(&first), first, false, true},
		{"another node's, no UUID", lied(&first), withUUID(first, ""), false, true},
		{"another node's, behind the same device", lied(&first), other, false, false},
		{"another node's, which reported another UUID", lied(&first), withUUID(first, uuid2), false, false},
		{"an older version's", lied(nil), other, false, true},
		{"another result", &Record{Result: ResultEvicted, Phase: PhaseDone, Machine: &first}, first, true, false},
		{"none", nil, first, true, false},
	} {
		if got := tc.record.DistrustsDevice(tc.m, "racks/https://bmc", tc.own); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
