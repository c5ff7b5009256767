// Package machine holds which devices speak for a node, asks all of them at the same time, and says which machine a node is believed to
// be. Guests whose hypervisors' hosts are off have a device here, too (Within).
//
// It guarantees that an answer is one device's own and as old as its question, that several devices are judged by taint/decide/proof alone,
// and that no machine is believed but by taint.DecideMachine. It powers nothing off, and reads no cluster: the configuration leads to machines,
// by the functions of a Finder.
package machine

import (
	"context"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// Machine is what the configuration knows of one node's machine.
type Machine struct {
	Provider providers.Provider // asks with a deadline: providers/guard
	Watcher  providers.Watcher  // nil: its devices tell nothing by themselves
	Name     string             // the provider's name in the configuration
	Device   string             // provider/device, for the record; nodes behind one device share it
	Target   providers.Target
	Mode     fence.Mode
	Identity taint.Machine // as it is pinned and recorded
	Fixed    bool          // the node gets no other machine as long as it exists (providers.ProviderIDs)
	Clash    taint.Clash   // with what leads other nodes to their machines
	Feeds    bool          // its device gives the machine power (providers.Feeder)
	Quiet    bool          // its device says nothing of a machine that runs (providers.Quiet)
	NoPower  string        // "" or why its power must not be touched through this device
	Poll     Polling       // how its device is asked while nothing is wrong; the zero value: not at all
	Level    int           // the number of the level that its device is of; the node's own is alone in the first, 0
	Limits   proof.Limits  // of that level
	// Further are the devices of the other levels, in their order. The operator's word leads to each; they have no Mode.
	Further []Machine
}

// Devices are all devices that speak for the node, in their order: this Machine's own, and the further ones.
func (m Machine) Devices() []Machine {
	if m.Provider == nil {
		return m.Further
	}
	return append([]Machine{m}, m.Further...)
}

// ProofDevices are the devices as the pure rooms know them.
func (m Machine) ProofDevices() []proof.Device {
	var out []proof.Device
	for _, d := range m.Devices() {
		out = append(out, proof.Device{Name: d.Device, Machine: d.Identity, Level: d.Level, Limits: d.Limits, NoPower: d.NoPower, Feeds: d.Feeds})
	}
	return out
}

// WithHeardAt tells the devices when this process heard the node last.
func (m Machine) WithHeardAt(at time.Time) Machine {
	m.Target.Heard = at
	m.Further = slices.Clone(m.Further)
	for i := range m.Further {
		m.Further[i].Target.Heard = at
	}
	return m
}

// AskDevices sends the question to all devices of the node at the same time, and returns one answer of each. It blocks until
// their answers decide. liar names the node whose record keeps a device from being believed. The Off of such a device
// must not end the wait for the others.
func (m Machine) AskDevices(ctx context.Context, distrustedBy func(Machine) string, now func() providers.Instant) []providers.Answer {
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

// VerdictOf is what answers of AskDevices say together.
func (m Machine) VerdictOf(answers []providers.Answer) providers.Answer {
	var a proof.Answers
	a.SetDevices(m.ProofDevices()...)
	a.ApplyAnswers(answers...)
	return a.Answer
}

// AllQuiet reports that no device of the node says anything while the machine runs: a drill cannot tell whether it could be fenced.
func (m Machine) AllQuiet() bool {
	return !slices.ContainsFunc(m.Devices(), func(d Machine) bool { return !d.Quiet })
}

// Polling is how a provider's devices are asked while nothing is wrong. The zero value is not at all.
type Polling struct {
	Every     time.Duration // each machine
	PerSecond float64       // calls that what shares limits bears; half of them are left to those who must know. 0: any number
}
