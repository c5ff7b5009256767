package providers

import "context"

// Hypervisors is a Config whose machines are guests of hypervisors.
type Hypervisors interface {
	// Hypervisors returns the names, as the file writes them, of all hypervisors on which the guests may be.
	Hypervisors() []string
}

// Placer is a Provider that reports whether a hypervisor has a guest; its Config is a Hypervisors. A guest that no live
// hypervisor has is off if the hosts of all other hypervisors are off (proof.VerdictOfHosts).
type Placer interface {
	// FindGuest asks one hypervisor, by its name in Hypervisors, never a cache, for the target's ID and its system
	// UUID. A guest in any state counts as present, also paused, saved, shut off, or only defined. A target without a
	// usable system UUID is an error, because a wrong ID alone would be absent everywhere.
	FindGuest(ctx context.Context, hypervisor string, t Target) (Placement, error)
}

// Placement is one hypervisor's answer about one guest. The zero value: the guest is there.
type Placement struct {
	Absent bool    // the hypervisor knows no such guest
	Raw    string  // where it is, or is not, as a person reads it: "not on hv2.example.net"
	At     Instant // when the question was sent
}

// PlaceAnswer is the result of AskPlace. The zero value: no hypervisor was asked.
type PlaceAnswer struct {
	Placement
	Got Instant // when the answer was there
	Err error   // why nothing is known
}

// HasAnswer reports whether the hypervisor answered that it has the guest, or that it has not.
func (p PlaceAnswer) HasAnswer() bool { return !p.Got.IsZero() && p.Err == nil }

// AskPlace asks one hypervisor under the rules of Ask: the answer is from this call (ErrStale), and a panic is no
// answer. It blocks until p answers or ctx ends.
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
