package limiter

import (
	"errors"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// confirmedFor is how long a machine's identity counts as confirmed, from when the question was sent. It covers the
// time from the controller's question to its act; moving a cable takes longer.
const confirmedFor = 15 * time.Second

// identities remembers which devices have recently confirmed their machine. Each confirmation serves one action.
type identities struct {
	mu        sync.Mutex // guards what follows
	known     map[string]identity
	lastSweep providers.Instant
}

// identity is what is remembered for one Target's Key.
type identity struct {
	target providers.Target  // whom the device was compared with
	sent   providers.Instant // when the question was sent of the last answer that confirmed it; zero: none is left
	used   providers.Instant // when an action used one up: an older question confirms nothing
}

// learnIdentity evaluates State's answer for t to a question sent at sent. Another machine's revokes the confirmation.
func (i *identities) learnIdentity(t providers.Target, sent providers.Instant, obs providers.Observation, err error) {
	t.Heard = time.Time{}
	wrong := providers.CheckIdentity(t, sent, obs, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgetStale(sent)
	was := i.known[t.Key()]
	switch {
	case wrong == nil && !sent.Before(was.used) && (was.target != t || sent.After(was.sent)):
		was.target, was.sent = t, sent
	case errors.Is(wrong, providers.ErrIdentity), errors.Is(wrong, providers.ErrStale):
		was.sent = providers.Instant{}
	default:
		return
	}
	if i.known == nil {
		i.known = map[string]identity{}
	}
	i.known[t.Key()] = was
}

// useConfirmation reports whether t's identity is confirmed at now, and uses up the confirmation.
func (i *identities) useConfirmation(t providers.Target, now providers.Instant) bool {
	t.Heard = time.Time{}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgetStale(now)
	was := i.known[t.Key()]
	if i.known == nil {
		i.known = map[string]identity{}
	}
	i.known[t.Key()] = identity{used: now}
	return was.target == t && !was.sent.IsZero() && was.sent.Age(now) <= confirmedFor
}

// forgetStale removes entries that are too old to count, once per confirmedFor. The caller holds mu.
func (i *identities) forgetStale(now providers.Instant) {
	if i.lastSweep.Age(now) < confirmedFor {
		return
	}
	i.lastSweep = now
	for key, k := range i.known {
		if k.sent.Age(now) > confirmedFor && k.used.Age(now) > confirmedFor {
			delete(i.known, key)
		}
	}
}
