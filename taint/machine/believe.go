package machine

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// ErrNotBelieved is the class of errors about a machine that something leads to, but that is not believed to be the
// node's.
var ErrNotBelieved = errors.New("the node's machine is not believed")

// Finder finds the machines of nodes by a configuration.
type Finder struct {
	// Led returns the machine that a node is led to, or why no provider knows it. FindMachine decides whether it is
	// believed. Further devices are returned even with an error of the first.
	Led func(*corev1.Node) (Machine, error)
	// Recorded returns the machine that an open fence began with.
	Recorded func(*corev1.Node, taint.MachineRef) (Machine, error)
}

// FindMachine returns the devices that know a node's machine: the first, if it is believed (taint.DecideMachine), and
// those of the further levels, to which the operator's configuration leads. It omits a whole level if another node has
// one of the level's devices as well, or if one of them is used already: the other devices of the level alone would
// prove too much. The error is why there is none.
func (f Finder) FindMachine(node *corev1.Node, rec *taint.Record) (Machine, error) {
	led, _ := f.Led(node)
	m, b, err := f.FindBelieved(node, rec, false)
	m.NoPower = b.NoPower
	if m.Device != led.Device &&
		slices.ContainsFunc(led.Further, func(o Machine) bool { return o.Device == m.Device }) {
		m = Machine{} // the fence began with it as one device of a level, and it proves only with that level
	}
	out := map[int]bool{}
	for i, d := range led.Further {
		if d.Clash.Refused != "" || d.Device == m.Device ||
			slices.ContainsFunc(led.Further[:i], func(o Machine) bool { return o.Device == d.Device }) {
			out[d.Level] = true
		}
	}
	m.Further = slices.DeleteFunc(slices.Clone(led.Further), func(d Machine) bool { return out[d.Level] })
	if len(m.Further) == 0 {
		return m, err
	}
	return m, nil
}

// FindBelieved returns the first device of a node: by its open fence's record, else by what leads to one now, as far as
// taint.DecideMachine believes it. healthy allows a pin, which the Belief then requests.
func (f Finder) FindBelieved(node *corev1.Node, rec *taint.Record, healthy bool) (Machine, taint.Belief, error) {
	m, err := f.Led(node)
	v := taint.Identity{
		Claim: taint.Claim{
			Node: node.Name, Machine: m.Identity, Claimed: m.Target.Claimed, Fixed: m.Fixed,
			Pin: node.Labels[taint.PinLabel],
		},
		Clash: m.Clash, Record: rec, Healthy: healthy,
	}
	b := taint.DecideMachine(v)
	switch {
	case b.Refused != "":
		return Machine{}, b, fmt.Errorf("%w: %s", ErrNotBelieved, b.Refused)
	case b.Machine != m.Identity: // the record's
		limits := m.Limits
		if m, err = f.Recorded(node, b.Machine); err == nil {
			m.Limits = limits
		}
	}
	if err == nil && rec.IsOpen() && rec.Machine == nil && rec.Device != "" && rec.Device != m.Device {
		err = fmt.Errorf("%w: the fence began with device %s, but the node now names %s",
			ErrNotBelieved, rec.Device, m.Device)
	}
	if err != nil {
		return Machine{}, b, err
	}
	m.Target.Claimed = b.Claimed
	m.Further = nil
	return m, b, nil
}
