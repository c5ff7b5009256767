package taint

import (
	"fmt"
	"slices"
	"strings"
)

// DistrustsDevice reports whether this record makes answers about a machine untrusted: its device reported Off while it
// was on. own means that the machine is that of the record's own node, whose kubelet can report any system UUID.
// Another node's record does not apply to a machine with another system UUID. A record of an older version, without a
// machine, applies to its device.
func (r *Record) DistrustsDevice(m MachineRef, device string, own bool) bool {
	return slices.ContainsFunc(r.DistrustedDevices(), func(l DeviceRef) bool {
		if l.Machine == nil {
			return l.Device == device
		}
		return l.Machine.isSame(m) &&
			(own || l.Machine.SystemUUID == m.SystemUUID || l.Machine.SystemUUID == "" || m.SystemUUID == "")
	})
}

// Claim is what leads one node to a machine now.
type Claim struct {
	Node    string
	Machine MachineRef // zero: to none
	Claimed bool       // the node's own kubelet can write what leads there; else the operator wrote it
	Fixed   bool       // the node never gets another machine: a providerID leads there
	Pin     string     // the Node's PinLabel; "" if it has none
}

func (c Claim) hasMachine() bool { return c.Machine.Provider != "" }

// machinePins returns the hashes of the claimed machine's ID and system UUID; "" without a machine.
func (c Claim) machinePins() (id, uuid string) {
	if !c.hasMachine() {
		return "", ""
	}
	return c.Machine.idPin(), c.Machine.uuidPin()
}

// splitPin splits a pin into its two hashes. A label of another shape matches no machine, but is not an empty pin.
func (c Claim) splitPin() (id, uuid string) {
	id, uuid, _ = strings.Cut(c.Pin, ".")
	return id, uuid
}

// Claims holds what all nodes claim and are pinned to. A nil Claims holds none.
type Claims struct{ ids, uuids holders }

// holders holds which nodes name a machine, by the hash of its ID or UUID.
type holders map[string][]holder

// holder is one node that names a machine's ID or UUID, by its claim, its pin, or both.
type holder struct {
	node     string
	claims   bool
	operator bool // the operator wrote its claim
	pinned   bool
}

// NewClaims indexes the claims of all nodes, including nodes without a machine: their pins count.
func NewClaims(all []Claim) *Claims {
	c := &Claims{ids: holders{}, uuids: holders{}}
	c.Replace(nil, all)
	return c
}

// Replace replaces all claims of some nodes. The caller gives the old ones unchanged, and lets no other goroutine use c
// meanwhile.
func (c *Claims) Replace(old, now []Claim) {
	for _, cl := range old {
		id, uuid := cl.splitPin()
		claimedID, claimedUUID := cl.machinePins()
		c.ids.remove(cl.Node, claimedID, id)
		c.uuids.remove(cl.Node, claimedUUID, uuid)
	}
	for _, cl := range now {
		id, uuid := cl.splitPin()
		claimedID, claimedUUID := cl.machinePins()
		c.ids.add(cl.Node, !cl.Claimed, claimedID, id)
		c.uuids.add(cl.Node, false, claimedUUID, uuid) // the node reports it, so the operator never wrote it
	}
}

func (h holders) add(node string, operator bool, claimed, pinned string) {
	if pinned != "" && pinned != noUUID {
		h[pinned] = append(h[pinned], holder{node, pinned == claimed, operator && pinned == claimed, true})
	}
	if claimed != "" && claimed != noUUID && claimed != pinned {
		h[claimed] = append(h[claimed], holder{node, true, operator, false})
	}
}

func (h holders) remove(node string, hashes ...string) {
	for _, k := range hashes {
		h[k] = slices.DeleteFunc(h[k], func(o holder) bool { return o.node == node })
		if len(h[k]) == 0 {
			delete(h, k)
		}
	}
}

// Clash is how other nodes' claims and pins conflict with a claim. The zero value is no conflict.
type Clash struct {
	Refused string // why the node may not have the machine
	NoPin   string // why the machine may not be pinned, though it may be asked
	// Sharers are the other nodes that are led to the same machine.
	Sharers []string
	// SameUUID are the other nodes that have a machine and report the same system UUID: it does not tell them apart.
	SameUUID []string
}

// FindClash compares a node's claim as it is now with those of all others. A machine that an operator gave to a node
// belongs to that node. Among the other nodes, the one that is pinned to it keeps it. If none or several are pinned, no
// node has it: powering it off would kill another node. System UUIDs are compared only among nodes whose kubelets
// choose them, since they make a device's identity match. A deleted Node's machine belongs to no node that was heard
// beside it, unless an operator gave it to that node.
func (c *Claims) FindClash(mine Claim, former *FormerMachines) Clash {
	if c == nil || !mine.hasMachine() {
		return Clash{}
	}
	pinnedID, pinnedUUID := mine.splitPin()
	id, uuid := mine.Machine.idPin(), mine.Machine.uuidPin()
	out := Clash{Sharers: c.ids.othersClaiming(id, mine.Node)}
	if uuid != noUUID {
		out.SameUUID = c.uuids.othersClaiming(uuid, mine.Node)
	}
	byID := describeRival(c.ids[id], mine, pinnedID == id)
	byUUID := ""
	if uuid != noUUID {
		byUUID = describeRival(c.uuids[uuid], Claim{Node: mine.Node, Claimed: true}, pinnedUUID == uuid)
	}
	was := former.findFormer(mine)
	switch {
	case byID != "":
		out.Refused = fmt.Sprintf("machine %s is %s", mine.Machine, byID)
	case byUUID != "" && mine.Claimed:
		out.Refused = fmt.Sprintf("system UUID %s is %s", mine.Machine.SystemUUID, byUUID)
	case mine.Claimed && pinnedID != id && was != "":
		out.Refused = fmt.Sprintf("machine %s was pinned to node %s until that Node was deleted, and both nodes were "+
			"heard at once; if it is this node's machine, name it in a list", mine.Machine, was)
	case byUUID != "":
		out.NoPin = fmt.Sprintf("system UUID %s is %s", mine.Machine.SystemUUID, byUUID)
	}
	return out
}

// othersClaiming returns the other nodes that claim the ID or UUID of that hash.
func (h holders) othersClaiming(hash, node string) (others []string) {
	for _, o := range h[hash] {
		if o.claims && o.node != node {
			others = append(others, o.node)
		}
	}
	return others
}

// describeRival returns which other node prevents mine from having what all holders name; "" if none does.
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

// joinNames joins names for a person, and names at most five.
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
	Healthy bool    // the node does not look dead, carries no mark, and has no open fence
}

// Belief is the machine that a node is believed to be.
type Belief struct {
	Machine MachineRef // the machine to ask about; zero if Refused or if nothing leads to one
	// the node's kubelet may have chosen it: the device's own identity must match before a power action
	Claimed bool
	NoPower string // "" or why its power must not be touched
	Refused string // "" or why no machine is believed: it is neither asked nor powered off
	Pin     string // the PinLabel to write; "": leave it as it is
	Repin   bool   // Pin replaces another
}

// DecideMachine decides which machine a node is. It is pure.
//
// It believes what the operator wrote. It believes what a kubelet can write only as it was while the node was healthy,
// which the pin records. The system UUID is pinned for good. The ID is pinned until it changes on a healthy node, or
// for good if it is Fixed: a kubelet can fake everything that the device reports there. An open fence continues with
// the machine that its record names, no matter what leads where by now.
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
		return Belief{Refused: fmt.Sprintf("the node's system UUID is now %q, and was different when its machine was "+
			"pinned; if that is right, remove the label %s from the Node",
			v.Machine.SystemUUID, PinLabel)}
	case v.Pin != "" && v.Claimed && v.Fixed && id != v.Machine.idPin():
		return Belief{Refused: fmt.Sprintf("the node now names machine %s, but was pinned to another one, and no "+
			"node gets another instance; if that is right, remove the label %s from the Node",
			v.Machine, PinLabel)}
	case v.Pin != "" && v.Claimed && !v.Healthy:
		return Belief{Refused: fmt.Sprintf("the node now names machine %s, but was pinned to another one while it "+
			"was healthy",
			v.Machine)}
	case v.Healthy && v.NoPin == "":
		b.Pin, b.Repin = v.Machine.Pin(), v.Pin != ""
	}
	if v.Claimed && id != v.Machine.idPin() { // a pin counts only once it is written
		b.NoPower = "its kubelet can write what leads to its machine, the node has not been healthy since forcefence " +
			"began, and its machine was never pinned"
	}
	return b
}

// believeRecorded returns the belief for an open fence. A kubelet may have written the record, so the record alone is
// not enough. It must agree with the machine that the operator's configuration leads to now, or with the pin.
func (v Identity) believeRecorded(m MachineRef) Belief {
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
	return Belief{Refused: fmt.Sprintf("the fence began with machine %s, but the node now names %s and is not pinned "+
		"to the fence's machine",
		m, now)}
}
