package proof

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// Limits limit a level's part in a power-off. The zero value: at once, one attempt in a turn, no deadline of its own.
type Limits struct {
	// Delay is the time before its first power-off: from the announcement, or from the end of the previous level's
	// turn.
	Delay time.Duration
	// Timeout is the time from its first power-off until the machine is off; then the next level has its turn. Zero:
	// none.
	Timeout time.Duration
	// Attempts is how often a power-off is sent through each of its devices in one turn; less than one counts as one.
	Attempts int
}

func (l Limits) maxAttempts() int { return max(l.Attempts, 1) }

// EffectAfter is how long an accepted power-off may have no effect before it counts as failed: some BMCs accept one and
// do nothing.
const EffectAfter = 10 * time.Second

// PowerOffs is what one process remembers of the power-offs of one fence: which level has its turn, and how its devices
// responded. The zero value: none was sent. A copy keeps its own.
type PowerOffs struct {
	LastSent providers.Instant // when the last was sent; zero: never
	LastErr  error             // why the device did not accept it; nil: it did

	start int               // the level that had the first turn
	level int               // the level with the current turn, once a power-off was sent
	began providers.Instant // when the first power-off of this turn was sent
	// refused counts the rounds over all levels in a row that ended with a power-off that was not accepted.
	refused int
	round   int              // finished rounds
	tried   map[string]tries // by the devices' names
}

// tries are the power-offs sent through one device.
type tries struct {
	sent     int               // in this turn of its level
	at       providers.Instant // when the last was sent
	err      error             // why the last was not accepted
	accepted bool              // at least one was
}

// Move is the next step of a power-off.
type Move struct {
	Device int           // the index of the device to send it through
	Turn   bool          // its level begins its turn: the previous level's turn ended, or there was none
	Why    string        // "" or why the previous level's turn ended, for a person
	Wait   time.Duration // not zero: nothing is sent yet
	Err    error         // why the last was not accepted, if the wait is for that
}

// level is one level, as far as a power-off goes through it.
type level struct {
	number int
	places []int // the indexes of its devices
	limits Limits
	may    bool // the machine's power may be touched through all of its devices
	never  bool // one of its devices refuses permanently
}

// levelsOf returns the levels of the devices, in their order.
func (p PowerOffs) levelsOf(devices []Device) []level {
	var out []level
	for i, d := range devices {
		if n := len(out); n == 0 || out[n-1].number != d.Level {
			out = append(out, level{number: d.Level, limits: d.Limits, may: true})
		}
		l := &out[len(out)-1]
		l.places = append(l.places, i)
		l.may = l.may && d.NoPower == ""
		l.never = l.never || isPermanentRefusal(p.tried[d.Name].err)
	}
	return out
}

// SameLevel returns the devices of the level of the device at that index, in their order.
func SameLevel(devices []Device, place int) []taint.DeviceRef {
	var out []taint.DeviceRef
	for _, d := range devices {
		if d.Level == devices[place].Level {
			out = append(out, d.toSpeaker())
		}
	}
	return out
}

// CanPowerOff reports whether at least one level may power the machine off.
func CanPowerOff(devices []Device) bool {
	return slices.ContainsFunc(PowerOffs{}.levelsOf(devices), func(l level) bool { return l.may })
}

// IsExhausted reports whether no level would accept another power-off: in each a device refused permanently, and so did
// the device that was asked last.
func (p PowerOffs) IsExhausted(devices []Device) bool {
	return isPermanentRefusal(p.LastErr) &&
		!slices.ContainsFunc(p.levelsOf(devices), func(l level) bool { return l.may && !l.never })
}

// ApplySent folds in that a move's power-off was sent at that time; err is the device's refusal, or nil.
func (p *PowerOffs) ApplySent(at providers.Instant, devices []Device, m Move, err error) {
	if m.Device >= len(devices) {
		return
	}
	d := devices[m.Device]
	tried := maps.Clone(p.tried)
	if tried == nil {
		tried = map[string]tries{}
	}
	if m.Turn {
		switch {
		case p.LastSent.IsZero():
			p.start = d.Level
		case p.startsRound(p.levelsOf(devices), d.Level):
			if p.round++; p.LastErr != nil {
				p.refused++
			}
		}
		p.level, p.began = d.Level, at
		for name, t := range tried {
			t.sent = 0
			tried[name] = t
		}
	}
	tried[d.Name] = tries{tried[d.Name].sent + 1, at, err, tried[d.Name].accepted || err == nil}
	p.LastSent, p.LastErr, p.tried = at, err, tried
	if err == nil {
		p.refused = 0
	}
}

// MayHaveAccepted reports whether the device of that name accepted a power-off, or may have: a lost answer may have
// been a yes.
func (p PowerOffs) MayHaveAccepted(name string) bool {
	t, sent := p.tried[name]
	return sent && (t.accepted || !isPermanentRefusal(t.err))
}

// AcceptedBy returns the devices that may have accepted a power-off, in their order; nil if none is known to have
// accepted.
func (p PowerOffs) AcceptedBy(devices []Device) []taint.DeviceRef {
	var out []taint.DeviceRef
	took := false
	for _, d := range devices {
		if p.MayHaveAccepted(d.Name) {
			took = took || p.tried[d.Name].accepted
			out = append(out, d.toSpeaker())
		}
	}
	if !took {
		return nil
	}
	return out
}

// IsOverdue reports whether the current level has used up its time and another would accept the power-off.
func (p PowerOffs) IsOverdue(now providers.Instant, devices []Device, a Answers) bool {
	if p.LastSent.IsZero() {
		return false
	}
	all := p.levelsOf(devices)
	i := slices.IndexFunc(all, func(l level) bool { return l.number == p.level })
	if i < 0 || all[i].limits.Timeout <= 0 || now.Sub(p.began) < all[i].limits.Timeout {
		return false
	}
	next, ok := p.nextLevel(all, i, a)
	return ok && next != i
}

// NextMove returns the next step to get the machine off, for a fence whose power-off was announced at that time. The
// levels have their turns in order, beginning with the first one that answers. A level sends a power-off through each
// of its devices that does not answer Off, one after the other. Its turn ends if a device refuses permanently, when its
// attempts are used up, or after its deadline. After the last level the first begins again, until the caller gives up.
func (p PowerOffs) NextMove(now, announced providers.Instant, devices []Device, a Answers) Move {
	all := p.levelsOf(devices)
	switch {
	case len(all) == 0:
		return Move{Wait: EffectAfter}
	case p.LastSent.IsZero():
		i := p.firstLevel(all, a)
		if wait := all[i].limits.Delay - now.Sub(announced); wait > 0 {
			return Move{Wait: wait}
		}
		return Move{Device: all[i].placeToSend(a), Turn: true}
	}
	i := slices.IndexFunc(all, func(l level) bool { return l.number == p.level })
	if i < 0 { // the configuration changed meanwhile
		return Move{Device: all[p.firstLevel(all, a)].placeToSend(a), Turn: true}
	}
	why, over := p.endOfTurn(now, all[i], devices, a)
	if why == "" {
		return p.moveInLevel(now, all[i], devices, a)
	}
	next, ok := p.nextLevel(all, i, a)
	if !ok {
		return Move{Wait: EffectAfter, Err: p.LastErr}
	}
	due := over
	if newRound := p.startsRound(all, all[next].number); newRound && p.LastErr != nil {
		due = p.LastSent.Add(backoffFor(p.refused + 1))
	} else if !newRound && p.round == 0 {
		due = over.Add(all[next].limits.Delay)
	}
	if wait := due.Sub(now); wait > 0 {
		return Move{Wait: wait, Err: p.LastErr}
	}
	m := Move{Device: all[next].placeToSend(a), Turn: true}
	if next != i {
		m.Why = why
	}
	return m
}

// startsRound reports whether another round begins with the turn of the level of that number.
func (p PowerOffs) startsRound(all []level, number int) bool {
	since := func(number int) int { // how many levels after the one with the first turn
		at := func(number int) int {
			return slices.IndexFunc(all, func(l level) bool { return l.number == number })
		}
		return (at(number) - at(p.start) + len(all)) % len(all)
	}
	return since(number) <= since(p.level)
}

// firstLevel returns the index of the level to begin with: the first whose devices all answer.
func (p PowerOffs) firstLevel(all []level, a Answers) int {
	silent := func(i int) bool { return a.State(i) == providers.PowerUnknown }
	if i := slices.IndexFunc(all, func(l level) bool {
		return l.may && !slices.ContainsFunc(l.places, silent)
	}); i >= 0 {
		return i
	}
	return max(slices.IndexFunc(all, func(l level) bool { return l.may }), 0)
}

// nextLevel returns the level whose turn follows that of level i, which may be i itself. It would accept a power-off,
// and is not off already.
func (p PowerOffs) nextLevel(all []level, i int, a Answers) (next int, ok bool) {
	for n := range len(all) {
		next = (i + 1 + n) % len(all)
		if l := all[next]; l.may && !l.never && !l.isOff(a) {
			return next, true
		}
	}
	return i, false
}

// isOff reports whether all devices of the level answer Off.
func (l level) isOff(a Answers) bool {
	return !slices.ContainsFunc(l.places, func(i int) bool { return a.State(i) != providers.PowerOff })
}

// placeToSend returns the index of the level's first device that does not answer Off.
func (l level) placeToSend(a Answers) int {
	if i := slices.IndexFunc(l.places, func(i int) bool { return a.State(i) != providers.PowerOff }); i >= 0 {
		return l.places[i]
	}
	return l.places[0]
}

// endOfTurn returns why and when the turn of a level ended; "" if it did not. A changing device has accepted its
// power-off; only the deadline ends its turn.
func (p PowerOffs) endOfTurn(
	now providers.Instant, l level, devices []Device, a Answers,
) (why string, at providers.Instant) {
	for _, i := range l.places {
		t, name := p.tried[devices[i].Name], devices[i].Name
		switch {
		case a.State(i) == providers.PowerOff:
		case isPermanentRefusal(t.err):
			return name + " refuses the power-off permanently", t.at
		case t.sent < l.limits.maxAttempts():
		case t.err != nil:
			return name + " did not accept it", t.at
		case now.Sub(t.at) >= EffectAfter && a.State(i) != providers.PowerChanging:
			return name + " accepted it, but the machine stayed on", t.at.Add(EffectAfter)
		}
	}
	if end := l.limits.Timeout; end > 0 && now.Sub(p.began) >= end {
		return fmt.Sprintf("the machine was not off within %s", end), p.began.Add(end)
	}
	return "", providers.Instant{}
}

// moveInLevel returns the next move within the current level.
func (p PowerOffs) moveInLevel(now providers.Instant, l level, devices []Device, a Answers) Move {
	m := Move{Wait: EffectAfter}
	for _, i := range l.places {
		t := p.tried[devices[i].Name]
		wait := time.Duration(0)
		switch {
		case a.State(i) == providers.PowerOff:
			continue
		// Others follow at once: all of them must be off before any is turned on again.
		case t.sent == 0:
		case t.err != nil:
			wait = t.at.Add(backoffFor(t.sent)).Sub(now)
		default:
			wait = t.at.Add(EffectAfter).Sub(now)
		}
		if a.State(i) == providers.PowerChanging && t.sent > 0 || t.err == nil && t.sent >= l.limits.maxAttempts() {
			continue
		}
		if wait <= 0 {
			return Move{Device: i}
		}
		if wait < m.Wait || t.err != nil {
			m.Wait, m.Err = wait, t.err
		}
	}
	return m
}

// backoffFor returns how long to wait after that many refusals: one second, doubled with each, at most 10 s.
func backoffFor(n int) time.Duration { return min(time.Second<<min(max(n-1, 0), 6), EffectAfter) }

// isPermanentRefusal reports whether sending the power-off again is useless: the device has none, or not for us, or
// belongs to another machine.
func isPermanentRefusal(err error) bool {
	for _, class := range []error{
		providers.ErrPermanent,
		providers.ErrDenied,
		providers.ErrNotFound,
		providers.ErrIdentity,
		providers.ErrUntrusted,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
