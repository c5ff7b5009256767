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

// maxNamed is how many machines are remembered as named. Each of them costs about 150 bytes.
const maxNamed = 10_000

// identities remembers which devices have recently confirmed their machine. Each confirmation serves one action. It
// also remembers which devices have named their machine, until the Node's label does so (providers.NamedLabel).
type identities struct {
	mu        sync.Mutex // guards what follows
	known     map[string]identity
	lastSweep providers.Instant
	named     map[namedMachine]bool
}

// namedMachine is a machine that its device has named.
type namedMachine struct{ node, key string }

// identity is what is remembered for one Target's Key.
type identity struct {
	target providers.Target  // whom the device was compared with
	sent   providers.Instant // when the question was sent of the last answer that confirmed it; zero: none is left
	used   providers.Instant // when an action used one up: an older question confirms nothing
}

// learnIdentity evaluates State's answer for t to a question sent at sent. Another machine's revokes the confirmation.
// It returns err, or why the answer proves nothing: the device named the machine before, and does not in this answer.
func (i *identities) learnIdentity(t providers.Target, sent providers.Instant, obs providers.Observation,
	err error) error {
	t.Heard = time.Time{}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgetStale(sent)
	named := i.recallName(t, obs)
	wrong := providers.CheckIdentity(named, sent, obs, err)
	if err == nil && named != t {
		err = wrong
	}
	was := i.known[t.Key()]
	switch {
	case wrong == nil && !sent.Before(was.used) && (was.target != t || sent.After(was.sent)):
		was.target, was.sent = t, sent
	case errors.Is(wrong, providers.ErrIdentity), errors.Is(wrong, providers.ErrStale):
		was.sent = providers.Instant{}
	default:
		return err
	}
	if i.known == nil {
		i.known = map[string]identity{}
	}
	i.known[t.Key()] = was
	return err
}

// recallName remembers whether the answer names the machine. It returns t as Identified if an earlier answer named it
// and this one does not. The memory of a machine ends as soon as the Node's label has it: a person may remove that. The
// caller holds mu.
func (i *identities) recallName(t providers.Target, obs providers.Observation) providers.Target {
	m := namedMachine{t.Node, t.Key()}
	switch {
	case t.Identified:
		delete(i.named, m)
	case t.IsNamedBy(obs):
		i.rememberNamed(m)
	default:
		t.Identified = i.named[m]
	}
	return t
}

// rememberNamed forgets any other machine if there is no room. The caller holds mu.
func (i *identities) rememberNamed(m namedMachine) {
	if i.named == nil {
		i.named = map[namedMachine]bool{}
	}
	if i.named[m] = true; len(i.named) <= maxNamed {
		return
	}
	for other := range i.named {
		if other != m {
			delete(i.named, other)
			return
		}
	}
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
