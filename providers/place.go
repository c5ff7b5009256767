package providers

import "context"

// Hypervisors is a Config whose machines are guests of hypervisors.
type Hypervisors interface {
	// Hypervisors are the names, as they stand in the file, of all hypervisors on which the guests may be.
	Hypervisors() []string
}

// Placer is a Provider that tells whether a hypervisor has a guest. Its Config is a Hypervisors. A guest that none of those that live has
// is off with the hosts of the others, where their own devices say so (proof.VerdictOfHosts).
type Placer interface {
	// FindGuest asks one hypervisor, by its name in Hypervisors, never a cache. It looks for whatever is the target's: its ID and its system
	// UUID. A guest is there in whatever state: running, arriving, paused, saved, shut off or forgotten by everybody but its definition.
	// An error tells nothing; a target without a usable system UUID is one, since a wrong ID alone would be absent everywhere.
	FindGuest(ctx context.Context, hypervisor string, t Target) (Placement, error)
}

// Placement is what one hypervisor says of one guest. The zero value: it is there.
type Placement struct {
	Absent bool    // the hypervisor knows no such guest
	Raw    string  // where it is, or is not, as a person reads it: "not on hv2.example.net"
	At     Instant // when the question was sent
}

// PlaceAnswer is what AskPlace brings back. The zero value: nobody was asked.
type PlaceAnswer struct {
	Placement
	Got Instant // when the answer was there
	Err error   // why nothing is known
}

// HasAnswer reports that the hypervisor said whether it has the guest.
func (p PlaceAnswer) HasAnswer() bool { return !p.Got.IsZero() && p.Err == nil }

// AskPlace asks one hypervisor under the rules of Ask: it was asked during this call (ErrStale), and one that panics has said nothing. It
// blocks until p answers or ctx ends.
func AskPlace(ctx context.Context, p Placer, hypervisor string, t Target, now func() Instant) PlaceAnswer {
	sent := now()
	placed, err := recoverPanic(hypervisor, func() (Placement, error) { return p.FindGuest(ctx, hypervisor, t) })
	out := PlaceAnswer{Placement: placed, Got: now(), Err: err}
	out.Raw = clipWord(placed.Raw)
	if err == nil && placed.At.Before(sent) {
		out.Err = staleError(sent, placed.At)
	}
	if out.Err != nil || placed.At.After(out.Got) {
		out.At = sent
	}
	if out.Err != nil {
		out.Absent = false
	}
	return out
}
