package proof

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// Host is a hypervisor on which a guest may be, and what was answered about it in one question.
type Host struct {
	Hypervisor string                // its name
	Device     string                // provider/device that speaks for its host
	First      providers.PlaceAnswer // the hypervisor's first answer about the guest; zero: no answer yet
	Off        providers.Answer      // the answer of the host's device; zero: it was not asked
	Second     providers.PlaceAnswer // the hypervisor's second answer; zero: it was not asked again
}

// errMisplaced is the error of a hypervisor that answers although its host's device answers Off.
var errMisplaced = fmt.Errorf(
	"%w: a hypervisor answers although its host's device answers Off: it just died, or the device is another host's",
	providers.ErrPermanent,
)

// VerdictOfHosts returns the combined verdict of hosts about a guest that is on exactly one of them. It is Off if the
// own device of at least one hypervisor's host answers Off. Every other hypervisor must answer before and after that it
// has no such guest.
//
// The second answer is the proof: a guest that left a host before that host died has arrived by then, in any state. The
// first answer prevents that both of two live hypervisors miss a guest that moves between them. The verdict is never
// On.
//
// Without a proof, the error says why. It is nil if the guest is on a live hypervisor, whose own device reports more.
// At is that of the oldest answer that counts.
func VerdictOfHosts(hosts []Host) (out providers.Observation, err error) {
	var off, absent []string
	var known providers.Instant // when the required answers had arrived, before a hypervisor is asked again
	for _, h := range hosts {
		switch {
		case !h.isOff():
			known = latestOf(known, h.First.Got)
		case h.First.HasAnswer() || h.Second.HasAnswer():
			return providers.Observation{}, fmt.Errorf("%w (%s, %s)", errMisplaced, h.Hypervisor, h.Device)
		default:
			known = latestOf(known, h.Off.Got)
			off = append(off, h.Device+" is Off")
			out.At = earliestOf(out.At, h.Off.At)
		}
	}
	for _, h := range hosts {
		for _, p := range []providers.PlaceAnswer{h.First, h.Second} {
			if p.HasAnswer() && !p.Absent {
				return providers.Observation{Raw: p.Raw, At: p.At}, h.Off.Err
			}
		}
	}
	for _, h := range hosts {
		switch {
		case h.isOff():
			continue
		case !h.First.HasAnswer():
			return providers.Observation{}, h.silenceError(h.First)
		case len(off) == 0:
			continue
		case !h.Second.HasAnswer():
			return providers.Observation{}, h.silenceError(h.Second)
		case h.Second.At.Before(known):
			return providers.Observation{}, fmt.Errorf(
				"%w: hypervisor %s was asked before the hosts were known to be off", providers.ErrStale, h.Hypervisor)
		}
		absent = append(absent, h.Second.Raw)
		out.At = earliestOf(out.At, h.First.At)
	}
	if len(off) == 0 {
		return providers.Observation{}, fmt.Errorf(
			"%w: no hypervisor has the guest, and all of them answer", providers.ErrNotFound)
	}
	out.State, out.Raw = providers.PowerOff, strings.Join(slices.Concat(off, absent), ", ")
	return out, nil
}

// isOff reports whether the host's own device proves it off.
func (h Host) isOff() bool { return withoutStaleOff(h.Off).State == providers.PowerOff }

// silenceError returns why nothing is known of a hypervisor that did not answer. It may have the guest, unless its host
// is off.
func (h Host) silenceError(p providers.PlaceAnswer) error {
	err := p.Err
	if err == nil {
		err = fmt.Errorf("%w: no answer yet", providers.ErrUnreachable)
	}
	host := h.Off.State.String()
	if h.Off.Err != nil {
		host = providers.ErrorCause(h.Off.Err)
	}
	return fmt.Errorf("hypervisor %s may have the guest: %w (its host, by %s: %s)", h.Hypervisor, err, h.Device, host)
}

func latestOf(a, b providers.Instant) providers.Instant {
	if b.After(a) {
		return b
	}
	return a
}

func earliestOf(a, b providers.Instant) providers.Instant {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
