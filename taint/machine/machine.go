// Package machine holds which devices know a node's machine, asks all of them at the same time, and decides which
// machine a node is believed to be. It also has a device for guests whose hypervisors' hosts are off (Within).
//
// It guarantees: an answer is one device's own and as old as its question; only taint/decide/proof judges several
// devices; only taint.DecideMachine decides which machine is believed. It powers nothing off, and does
// not read the cluster: the configuration leads to machines, by the functions of a Finder.
package machine

import (
	"context"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// Machine is a node's machine as one device knows it, with the further devices that know it, too.
type Machine struct {
	Provider providers.Provider // asks with a deadline: providers/limiter
	Watcher  providers.Watcher  // nil: its devices report nothing unasked
	Name     string             // the provider's name in the configuration
	Device   string             // provider/device, for the record; nodes behind one device share it
	Target   providers.Target
	Identity taint.MachineRef // as it is pinned and recorded
	Fixed    bool             // the node gets no other machine as long as it exists (providers.ProviderIDs)
	Clash    taint.Clash      // with what leads other nodes to their machines
	Feeds    bool             // its device gives the machine power (providers.Feeder)
	Orders   bool             // its power-off remains until it is taken back (providers.Withdrawer)
	Quiet    bool             // its device gives no answer while the machine runs (providers.Quiet)
	NoPower  string           // "" or why its power must not be touched through this device
	Poll     Polling          // how its device is asked while nothing is wrong; the zero value: not at all
	Level    int              // the number of its device's level; the node's own device is alone in the first, 0
	Limits   proof.Limits     // of that level
	// Further are the devices of the other levels, in their order. The operator's configuration leads to each.
	Further []Machine
}

// Devices returns all devices that know the node's machine, in their order: this Machine's own, and the further ones.
func (m Machine) Devices() []Machine {
	if m.Provider == nil {
		return m.Further
	}
	return append([]Machine{m}, m.Further...)
}

// ProofDevices returns the devices in the form that the pure packages use.
func (m Machine) ProofDevices() []proof.Device {
	var out []proof.Device
	for _, d := range m.Devices() {
		out = append(out, proof.Device{
			Name: d.Device, Machine: d.Identity, Level: d.Level, Limits: d.Limits, NoPower: d.NoPower, Feeds: d.Feeds,
			Orders: d.Orders,
		})
	}
	return out
}

// Withdraw takes back what this device may still do to power the machine off. Nil: nothing. It blocks for the device.
func (m Machine) Withdraw(ctx context.Context, t providers.Target) error {
	if w, ok := m.Provider.(providers.Withdrawer); ok {
		return w.Withdraw(ctx, t)
	}
	return nil
}

// WithHeardAt returns a copy whose devices know when this process last heard from the node.
func (m Machine) WithHeardAt(at time.Time) Machine {
	m.Target.Heard = at
	m.Further = slices.Clone(m.Further)
	for i := range m.Further {
		m.Further[i].Target.Heard = at
	}
	return m
}

// AskDevices sends the question to all devices of the node at the same time, and returns one answer of each. It blocks
// until their answers decide. distrustedBy returns the node whose record makes a device untrusted; "" if none does. The
// Off of such a device must not end the wait for the others.
func (m Machine) AskDevices(
	ctx context.Context, distrustedBy func(Machine) string, now func() providers.Instant,
) []providers.Answer {
	devices, proofs := m.Devices(), m.ProofDevices()
	var qs []providers.Question
	for _, d := range devices {
		qs = append(qs, providers.Question{Provider: d.Provider, By: d.Name, Target: d.Target})
	}
	enough := func(answers []providers.Answer) bool {
		answers = slices.Clone(answers)
		for i, a := range answers {
			if a.State == providers.PowerOff && distrustedBy(devices[i]) != "" {
				answers[i] = proof.WithoutOff(a)
			}
		}
		return proof.IsDecided(proofs, answers)
	}
	return providers.AskEach(ctx, qs, enough, now)
}

// AskVerdict is AskDevices, and returns the combined answer. The Off of a distrusted device does not count.
func (m Machine) AskVerdict(
	ctx context.Context, distrustedBy func(Machine) string, now func() providers.Instant,
) providers.Answer {
	answers := m.AskDevices(ctx, distrustedBy, now)
	for i, d := range m.Devices() {
		if distrustedBy(d) != "" {
			answers[i] = proof.WithoutOff(answers[i])
		}
	}
	return m.VerdictOf(answers)
}

// DistrustedBy returns a function for AskDevices that reads the memory across nodes, which withFleet lends.
func DistrustedBy(withFleet func(func(*fleet.Fleet))) func(Machine) string {
	return func(m Machine) (by string) {
		withFleet(func(f *fleet.Fleet) { by = f.DistrustingNode(m.Identity, m.Device, m.Target.Node) })
		return by
	}
}

// VerdictOf returns the combined answer of several answers of AskDevices.
func (m Machine) VerdictOf(answers []providers.Answer) providers.Answer {
	var a proof.Answers
	a.SetDevices(m.ProofDevices()...)
	a.ApplyAnswers(answers...)
	return a.Answer
}

// AllQuiet reports whether no device of the node answers while the machine runs: a drill cannot find out whether the
// node could be fenced.
func (m Machine) AllQuiet() bool {
	return !slices.ContainsFunc(m.Devices(), func(d Machine) bool { return !d.Quiet })
}

// Polling is how a provider's devices are asked while nothing is wrong. The zero value is not at all.
type Polling struct {
	Every     time.Duration // each machine
	PerSecond float64       // calls that the shared limit allows; half of them stay free for fences. 0: any number
}

// Sharers returns the other nodes that are led to the machine, as any of its devices knows it.
func (m Machine) Sharers() []string {
	out := slices.Clone(m.Clash.Sharers)
	for _, d := range m.Further {
		out = append(out, d.Clash.Sharers...)
	}
	return out
}
