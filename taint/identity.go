package taint

import (
	"fmt"
	"slices"
	"strings"
)

// DistrustsDevice reports whether this record keeps a machine from being believed: its device said Off of it while it was on. own tells that
// the machine is that of the record's own node, which tells what system UUID it likes. Another node's record says nothing of a machine
// with another system UUID, and one of an older version, without a machine, speaks of its device.
func (r *Record) DistrustsDevice(m Machine, device string, own bool) bool {
	return slices.ContainsFunc(r.DistrustedDevices(), func(l DeviceRef) bool {
		if l.Machine == nil {
			return l.Device == device
		}
		return l.Machine.isSame(m) && (own || l.Machine.SystemUUID == m.SystemUUID || l.Machine.SystemUUID == "" || m.SystemUUID == "")
	})
}

// Claim is what leads one node to a machine now.
type Claim struct {
	Node    string
	Machine Machine // zero: to none
	Claimed bool    // what leads there can be written by the node's own kubelet; else it is the operator's word
	Fixed   bool    // a node that has one machine never gets another: what leads there is a providerID
	Pin     string  // the Node's PinLabel; "" if it has none
}

func (c Claim) hasMachine() bool { return c.Machine.Provider != "" }

// splitPin splits a pin; a label of another shape pins nothing that exists, and still is no empty pin.
func (c Claim) splitPin() (id, uuid string) {
	id, uuid, _ = strings.Cut(c.Pin, ".")
	return id, uuid
}

// Claims is what all nodes claim and are pinned to, as of one look at them. A nil Claims holds none.
type Claims struct{ ids, uuids map[string][]holder }

// holder is one node that names a machine's ID or UUID, by its claim, its pin, or both.
type holder struct {
	node     string
	claims   bool
	operator bool // it claims by the operator's word
	pinned   bool
}

// NewClaims indexes the claims of all nodes, those without a machine included: their pins count.
func NewClaims(all []Claim) *Claims {
	c := &Claims{ids: map[string][]holder{}, uuids: map[string][]holder{}}
	add := func(m map[string][]holder, node string, operator bool, claimed, pinned string) {
		if pinned != "" && pinned != noUUID {
			m[pinned] = append(m[pinned], holder{node, pinned == claimed, operator && pinned == claimed, true})
		}
		if claimed != "" && claimed != noUUID && claimed != pinned {
			m[claimed] = append(m[claimed], holder{node, true, operator, false})
		}
	}
	for _, cl := range all {
		id, uuid := cl.splitPin()
		claimedID, claimedUUID := "", ""
		if cl.hasMachine() {
			claimedID, claimedUUID = cl.Machine.idPin(), cl.Machine.uuidPin()
		}
		add(c.ids, cl.Node, !cl.Claimed, claimedID, id)
		add(c.uuids, cl.Node, false, claimedUUID, uuid) // what a node tells is never an operator's word
	}
	return c
}

// Clash is what other nodes' claims and pins have to say about a claim. The zero value is nothing.
type Clash struct {
	Refused string // why the machine is not the node's to have
	NoPin   string // why it may not be pinned, though it may be asked
}

// FindClash compares a node's claim as it is now with those of all others. A machine that an operator gave to a node is that node's. Of
// the others the one that is pinned to it keeps it; where none or several are, nobody has it: powering one off would kill another.
// System UUIDs are compared among nodes whose kubelets choose, since they make a device's identity match.
func (c *Claims) FindClash(mine Claim) Clash {
	if c == nil || !mine.hasMachine() {
		return Clash{}
	}
	pinnedID, pinnedUUID := mine.splitPin()
	id, uuid := mine.Machine.idPin(), mine.Machine.uuidPin()
	byID := describeRival(c.ids[id], mine, pinnedID == id)
	byUUID := ""
	if uuid != noUUID {
		byUUID = describeRival(c.uuids[uuid], Claim{Node: mine.Node, Claimed: true}, pinnedUUID == uuid)
	}
	switch {
	case byID != "":
		return Clash{Refused: fmt.Sprintf("machine %s is %s", mine.Machine, byID)}
	case byUUID != "" && mine.Claimed:
		return Clash{Refused: fmt.Sprintf("system UUID %s is %s", mine.Machine.SystemUUID, byUUID)}
	case byUUID != "":
		return Clash{NoPin: fmt.Sprintf("system UUID %s is %s", mine.Machine.SystemUUID, byUUID)}
	}
	return Clash{}
}

// describeRival says which other node keeps mine from having what all holders name, "" if none does.
func describeRival(holders []holder, mine Claim, pinned bool) string {
	var claims, operator, pins []string
	for _, h := range holders {
		if h.node == mine.Node {
			continue
		}
		if h.claims {
			claims = append(claims, h.node)
		}
		if h.operator {
			operator = append(operator, h.node)
		}
		if h.pinned && (mine.Claimed || h.operator) {
			pins = append(pins, h.node)
		}
	}
	switch {
	case len(pins) > 0:
		return "pinned to node " + joinNames(pins)
	case len(operator) > 0 && (mine.Claimed || !pinned):
		return "also claimed by node " + joinNames(operator)
	case pinned:
		return ""
	case mine.Claimed && len(claims) > 0:
		return "also claimed by node " + joinNames(claims)
	}
	return ""
}

// joinNames bounds a list for a person.
func joinNames(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// Identity is all that DecideMachine decides on.
type Identity struct {
	Claim           // as of the look that is decided on
	Clash           // with the other nodes
	Record  *Record // the node's; nil: none
	Healthy bool    // it does not look dead, carries no mark, and has no open fence
}

// Belief is which machine a node is.
type Belief struct {
	Machine Machine // whom to ask; zero where Refused or where nothing leads to one
	Claimed bool    // the node's kubelet may have chosen it: the device's own identity must match before a power action
	NoPower string  // "" or why its power must not be touched
	Refused string  // "" or why no machine is believed: it is neither asked nor powered off
	Pin     string  // the PinLabel to write; "": leave it as it is
	Repin   bool    // Pin takes the place of another
}

// DecideMachine decides which machine a node is. It is pure.
//
// What the operator wrote is believed. What a kubelet can write is believed as it was while the node was healthy, which the pin
// tells: the system UUID for good, the ID until it changes on a healthy node, or for good where it is Fixed: there nothing that the
// device tells is beyond the kubelet. An open fence goes on with the machine that its record
// names, whatever leads where by now.
func DecideMachine(v Identity) Belief {
	if v.Record.IsOpen() && v.Record.Machine != nil {
		return v.believeRecorded(*v.Record.Machine)
	}
	switch {
	case !v.hasMachine():
		return Belief{}
	case v.Refused != "":
		return Belief{Refused: v.Refused}
	}
	b := Belief{Machine: v.Machine, Claimed: v.Claimed}
	same := v.Pin == v.Machine.Pin()
	id, uuid := v.splitPin()
	switch {
	case same:
	case v.Pin != "" && v.Claimed && uuid != v.Machine.uuidPin():
		return Belief{Refused: fmt.Sprintf("the node's system UUID is now %q, and was different when its machine was pinned; if that is right, remove the label %s from the Node",
			v.Machine.SystemUUID, PinLabel)}
	case v.Pin != "" && v.Claimed && v.Fixed && id != v.Machine.idPin():
		return Belief{Refused: fmt.Sprintf("the node now names machine %s, but was pinned to another one, and no node gets another instance; if that is right, remove the label %s from the Node",
			v.Machine, PinLabel)}
	case v.Pin != "" && v.Claimed && !v.Healthy:
		return Belief{Refused: fmt.Sprintf("the node now names machine %s, but was pinned to another one while it was healthy", v.Machine)}
	case v.Healthy && v.NoPin == "":
		b.Pin, b.Repin = v.Machine.Pin(), v.Pin != ""
	}
	if v.Claimed && id != v.Machine.idPin() { // a pin that is about to be written counts once it is
		b.NoPower = "its kubelet can write what leads to its machine, the node has not been healthy since forcefence began, and its machine was never pinned"
	}
	return b
}

// believeRecorded is the machine of an open fence. A record that nobody but a kubelet may have written leads nowhere by itself: it must agree
// with what leads to a machine now by the operator's word, or with the pin.
func (v Identity) believeRecorded(m Machine) Belief {
	operator := v.hasMachine() && !v.Claimed && v.Machine.isSame(m) && v.Refused == ""
	switch {
	case operator:
		return Belief{Machine: m}
	case v.Pin == m.Pin():
		return Belief{Machine: m, Claimed: true}
	case v.Pin == "" && v.hasMachine() && v.Machine == m && v.Refused == "":
		return Belief{Machine: m, Claimed: true, NoPower: "its machine was never pinned"}
	}
	now := "no machine"
	if v.hasMachine() {
		now = "machine " + v.Machine.String()
	}
	return Belief{Refused: fmt.Sprintf("the fence began with machine %s, but the node now names %s and is not pinned to the fence's machine", m, now)}
}
