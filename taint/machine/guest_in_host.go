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

// Within is the provider of guests that are off because their hypervisors' hosts are off: proof.VerdictOfHosts defines
// when. It is asked beside the guests' own provider, which is silent while one of its hypervisors is. It has no power
// action: a host runs other guests.
type Within struct {
	Guests providers.Placer
	Hosts  []*Host
	Now    func() providers.Instant
}

// Host is a hypervisor of the guests, and the device of the host that it runs on.
type Host struct {
	Hypervisor string             // its name, of providers.Hypervisors
	Device     providers.Question // to that device
	Name       string             // provider/device, for the record

	asked sharing.Call[providers.Answer]
}

// hostAskDelay is how long a hypervisor may take before its host's device is asked as well: a hypervisor that lost its
// power refuses nothing.
const hostAskDelay = 500 * time.Millisecond

// State asks all hypervisors and hosts whose answers are needed. It first asks each hypervisor whether it has the
// guest. It asks a host's device if the hypervisor does not answer. It also asks if the hypervisor has the guest, so
// that a drill finds out whether that device could prove Off. Then, if that may prove anything, it asks the live
// hypervisors once more. It blocks for them; it gives up what takes longer than an answer is valid.
func (w *Within) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, proof.TTL)
	defer cancel()
	hosts := make([]proof.Host, len(w.Hosts))
	late := make([]<-chan providers.PlaceAnswer, len(w.Hosts))
	w.forEachHost(func(i int, h *Host) { hosts[i], late[i] = w.askHypervisor(ctx, h, t) })
	open := func(h proof.Host) bool { return h.Off.State != providers.PowerOff && !h.First.Absent }
	if !slices.ContainsFunc(hosts, open) {
		w.forEachHost(func(i int, h *Host) {
			if hosts[i].Off.State != providers.PowerOff {
				hosts[i].Second = providers.AskPlace(ctx, w.Guests, h.Hypervisor, t, w.Now)
			}
		})
	}
	for i := range hosts {
		select {
		case hosts[i].First = <-late[i]: // it is alive, no matter what its host's device answered
		default:
		}
	}
	return proof.VerdictOfHosts(hosts)
}

// askHypervisor asks a hypervisor, and the device of its host if that may be needed. late delivers a hypervisor's
// answer that comes after that.
func (w *Within) askHypervisor(
	ctx context.Context, h *Host, t providers.Target,
) (out proof.Host, late <-chan providers.PlaceAnswer) {
	out = proof.Host{Hypervisor: h.Hypervisor, Device: h.Name}
	placed := make(chan providers.PlaceAnswer, 1)
	go func() { placed <- providers.AskPlace(ctx, w.Guests, h.Hypervisor, t, w.Now) }() // its owner is ctx
	slow := time.NewTimer(hostAskDelay)
	defer slow.Stop()
	select {
	case out.First = <-placed:
	case <-slow.C:
	}
	if out.First.HasAnswer() && out.First.Absent {
		return out, nil
	}
	out.Off = h.askDevice(ctx, w.Now)
	if out.First.Got.IsZero() && out.Off.State != providers.PowerOff {
		out.First = <-placed // it may only be slow
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

// askDevice asks the host's device. A host may have many guests, which fall silent together, and a BMC is a small
// computer: so concurrent questions share one call.
func (h *Host) askDevice(ctx context.Context, now func() providers.Instant) providers.Answer {
	a, err := h.asked.Ask(ctx, proof.TTL, func(ctx context.Context) (providers.Answer, error) {
		return providers.Ask(ctx, h.Device.Provider, h.Device.By, h.Device.Target, now), nil
	})
	if err != nil {
		return providers.Answer{
			Observation: providers.Observation{At: now()}, By: h.Device.By, Got: now(),
			Err: providers.WithClass(providers.ErrUnreachable, err),
		}
	}
	return a
}

// NoHostPower is why no machine is powered off through its host.
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
