package machine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/sharing"
)

// Within is the provider of guests that are off because the hosts of their hypervisors are: proof.VerdictOfHosts says when. It is asked beside the
// guests' own provider, which is silent while one of its hypervisors is. It has no power action: a host runs other guests.
type Within struct {
	Guests providers.Placer
	Hosts  []*Host
	Now    func() providers.Instant
}

// Host is a hypervisor of the guests, and the device that speaks for the host that it runs on.
type Host struct {
	Hypervisor string             // its name, of providers.Hypervisors
	Device     providers.Question // to that device
	Name       string             // provider/device, for the record

	asked sharing.Call[providers.Answer]
}

// hostAskDelay is how long a hypervisor may take before its host's device is asked as well: one that lost its power refuses nothing.
const hostAskDelay = 500 * time.Millisecond

// State puts one question to all who must be heard. First to each hypervisor: has it the guest? The device of a host is asked where the
// hypervisor does not say, and where it has the guest, so that a drill finds out whether that device could tell. Then, if that may prove
// anything, the hypervisors that live are asked once more. It blocks for them; what takes longer than an answer is worth is given up.
func (w *Within) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, proof.TTL)
	defer cancel()
	hosts := make([]proof.Host, len(w.Hosts))
	late := make([]<-chan providers.PlaceAnswer, len(w.Hosts))
	w.forEachHost(func(i int, h *Host) { hosts[i], late[i] = w.askHypervisor(ctx, h, t) })
	open := func(h proof.Host) bool { return h.Off.State != providers.PowerOff && !h.Before.Absent }
	if !slices.ContainsFunc(hosts, open) {
		w.forEachHost(func(i int, h *Host) {
			if hosts[i].Off.State != providers.PowerOff {
				hosts[i].After = providers.AskPlace(ctx, w.Guests, h.Hypervisor, t, w.Now)
			}
		})
	}
	for i := range hosts {
		select {
		case hosts[i].Before = <-late[i]: // it lives, whatever is said of its host
		default:
		}
	}
	return proof.VerdictOfHosts(hosts)
}

// askHypervisor asks a hypervisor, and the device of its host where that may be needed. What the hypervisor says after that comes late.
func (w *Within) askHypervisor(ctx context.Context, h *Host, t providers.Target) (out proof.Host, late <-chan providers.PlaceAnswer) {
	out = proof.Host{Hypervisor: h.Hypervisor, Device: h.Name}
	placed := make(chan providers.PlaceAnswer, 1)
	go func() { placed <- providers.AskPlace(ctx, w.Guests, h.Hypervisor, t, w.Now) }() // its owner is ctx
	slow := time.NewTimer(hostAskDelay)
	defer slow.Stop()
	select {
	case out.Before = <-placed:
	case <-slow.C:
	}
	if out.Before.HasAnswer() && out.Before.Absent {
		return out, nil
	}
	out.Off = h.askDevice(ctx, w.Now)
	if out.Before.Got.IsZero() && out.Off.State != providers.PowerOff {
		out.Before = <-placed // it may only be slow
	}
	return out, placed
}

// forEachHost calls f for all hosts at once and waits.
func (w *Within) forEachHost(f func(i int, h *Host)) {
	var wait sync.WaitGroup
	for i, h := range w.Hosts {
		wait.Go(func() { f(i, h) })
	}
	wait.Wait()
}

// askDevice puts the question to the host's device. It may have many guests, which fall silent together, and a BMC is a small computer: so they share it.
func (h *Host) askDevice(ctx context.Context, now func() providers.Instant) providers.Answer {
	a, err := h.asked.Ask(ctx, proof.TTL, func(ctx context.Context) (providers.Answer, error) {
		return providers.Ask(ctx, h.Device.Provider, h.Device.By, h.Device.Target, now), nil
	})
	if err != nil {
		return providers.Answer{Observation: providers.Observation{At: now()}, By: h.Device.By, Got: now(), Err: providers.WithClass(providers.ErrUnreachable, err)}
	}
	return a
}

// NoHostPower is why no machine is powered off by way of its host.
const NoHostPower = "its host runs other machines, and is not powered off for one of them"

var errNoHostPower = providers.WithClass(providers.ErrPermanent, errors.New(NoHostPower))

// PowerOff refuses.
func (w *Within) PowerOff(context.Context, providers.Target, func() error) error {
	return errNoHostPower
}

// PowerOn refuses.
func (w *Within) PowerOn(context.Context, providers.Target, func() error) error {
	return errNoHostPower
}
