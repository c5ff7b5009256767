package proof

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// Limits are how a level takes its part in a power-off. The zero value: at once, one attempt in a turn, no deadline of its own.
type Limits struct {
	Delay    time.Duration // before its first power-off: from the announcement, or from when the level before it gave way
	Timeout  time.Duration // from its first power-off until the machine is off; then the next level has its turn. Zero: none
	Attempts int           // how often a power-off is sent through each of its devices in one turn; less than one is one
}

func (l Limits) maxAttempts() int { return max(l.Attempts, 1) }

// ErrDisagree is a verdict of levels that contradict each other. It proves nothing, however long it stands.
var ErrDisagree = fmt.Errorf("%w: its devices disagree", providers.ErrPermanent)

// verdictOf is what the answers say together: of one device its answer, of one level what all of them say, of several levels what the
// first says that says anything, unless another gainsays it.
func verdictOf(of []deviceAnswer) providers.Answer {
	if len(of) == 0 {
		return providers.Answer{}
	}
	if len(of) == 1 {
		return of[0].answer
	}
	var levels []deviceAnswer
	for _, s := range of {
		if n := len(levels); n > 0 && levels[n-1].device.Level == s.device.Level {
			continue // told with the first of its level
		}
		same := slices.DeleteFunc(slices.Clone(of), func(o deviceAnswer) bool { return o.device.Level != s.device.Level })
		levels = append(levels, deviceAnswer{
			device: Device{Level: s.device.Level, Feeds: !slices.ContainsFunc(same, func(o deviceAnswer) bool { return !o.device.Feeds })},
			answer: verdictOfLevel(same),
		})
	}
	out := verdictOfLevels(levels)
	var raw []string
	for _, s := range of {
		raw = append(raw, s.device.Name+": "+answerText(s.answer))
		if s.answer.Got.After(out.Got) {
			out.Got = s.answer.Got
		}
	}
	out.Raw = strings.Join(raw, ", ")
	if errors.Is(out.Err, ErrDisagree) {
		out.Err = fmt.Errorf("%w: %s", ErrDisagree, out.Raw)
	}
	return out
}

// answerText is what a device said, for a person.
func answerText(a providers.Answer) string {
	switch {
	case a.Err != nil:
		return providers.ErrorClass(a.Err)
	case a.Raw != "":
		return a.Raw
	default:
		return a.State.String()
	}
}

// verdictOfLevels is the verdict over levels: the first that says anything, unless one says Off and another On, which is a disagreement. Where one
// says Off and another that the machine is changing, it is changing. On of what feeds the machine counts only while nothing else says
// anything: a machine that was shut down has power.
func verdictOfLevels(levels []deviceAnswer) providers.Answer {
	known := slices.DeleteFunc(slices.Clone(levels), func(s deviceAnswer) bool { return s.answer.State == providers.PowerUnknown })
	if len(known) == 0 {
		return levels[0].answer
	}
	runs := slices.DeleteFunc(slices.Clone(known), func(s deviceAnswer) bool { return s.device.Feeds && s.answer.State == providers.PowerOn })
	if len(runs) == 0 {
		return known[0].answer
	}
	off, on, changing := indexOfState(runs, providers.PowerOff), indexOfState(runs, providers.PowerOn), indexOfState(runs, providers.PowerChanging)
	switch {
	case off >= 0 && on >= 0:
		out := runs[off].answer
		out.State, out.Err = providers.PowerUnknown, ErrDisagree
		return out
	case off >= 0 && changing >= 0:
		return runs[changing].answer
	default:
		return runs[0].answer
	}
}

// IsDecided reports whether the answers so far decide what the devices say together, so that the missing ones (zero
// Answers) need not be awaited. An Off does: it grows old, and most of TTL must be left to act on it. A disagreement
// does, because no further answer settles it. So does what a device knows of the machine itself. The On of what feeds
// the machine does not, because another device may still say Off. On proves nothing, so nothing is lost by waiting.
// Part of a level decides nothing either.
func IsDecided(devices []Device, answers []providers.Answer) bool {
	var a Answers
	a.SetDevices(devices...)
	a.ApplyAnswers(answers...)
	knows := func(s deviceAnswer) bool { return !s.device.Feeds && s.answer.State != providers.PowerUnknown }
	switch a.Answer.State {
	case providers.PowerOff:
		return true
	case providers.PowerOn, providers.PowerChanging:
		return slices.ContainsFunc(a.lastAnswers, knows)
	default:
		return a.HasDisagreement()
	}
}

// indexOfState is the place of the first that says so; negative: none does.
func indexOfState(all []deviceAnswer, what providers.PowerState) int {
	return slices.IndexFunc(all, func(s deviceAnswer) bool { return s.answer.State == what })
}

// verdictOfLevel is the verdict over one level. It was asked for when the first question was sent. It proves nothing until every device has
// answered. Off takes all of them: they speak of different parts, such as the two outlets that feed a server, so one that is off does not
// contradict one that is on.
func verdictOfLevel(of []deviceAnswer) providers.Answer {
	out := of[0].answer
	if len(of) == 1 {
		return out
	}
	count := map[providers.PowerState]int{}
	for _, s := range of {
		count[s.answer.State]++
		if s.answer.At.Before(out.At) {
			out.At = s.answer.At
		}
		if out.Err == nil {
			out.Err = s.answer.Err
		}
	}
	out.State = providers.PowerUnknown
	switch {
	case count[providers.PowerOff] == len(of):
		out.State = providers.PowerOff
	case count[providers.PowerOn] > 0:
		out.State, out.Err = providers.PowerOn, nil
	case count[providers.PowerUnknown] == 0:
		out.State = providers.PowerChanging
	}
	return out
}

// EffectAfter is how long a power-off that was accepted may have no effect before it counts as failed: some BMCs accept one and do nothing.
const EffectAfter = 10 * time.Second

// PowerOffs is what one process remembers of the power-offs of one fence: which level has its turn, and how its devices took them. The
// zero value: none was sent. A copy keeps its own.
type PowerOffs struct {
	LastSent providers.Instant // when the last was sent; zero: never
	LastErr  error             // why the device did not accept it; nil: it did

	start   int               // the level that had the first turn
	level   int               // whose turn it is, once one was sent
	began   providers.Instant // when its first power-off of this turn was
	refused int               // rounds over all levels in a row that ended with one that was not accepted
	round   int               // rounds that are over
	tried   map[string]tries  // by the devices' names
}

// tries are the power-offs through one device.
type tries struct {
	sent     int               // in this turn of its level
	at       providers.Instant // the last
	err      error             // why it was not accepted
	accepted bool              // one was
}

// Move is what to do next about a power-off.
type Move struct {
	Device int           // the place of the device to send it through
	Turn   bool          // with that its level begins its turn: the one before gave way, or there was none
	Why    string        // "" or why the level before gave way, for a person
	Wait   time.Duration // not zero: nothing is sent yet
	Err    error         // why the last was not accepted, where it is that which is waited for
}

// level is one, as far as a power-off goes through it.
type level struct {
	number int
	places []int // of its devices
	limits Limits
	may    bool // the machine's power may be touched through all of them
	never  bool // one of them refuses for good
}

// levelsOf are those of the devices, in their order.
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

// SameLevel returns the devices of the level to which the device at that place belongs, in their order.
func SameLevel(devices []Device, place int) []taint.DeviceRef {
	var out []taint.DeviceRef
	for _, d := range devices {
		if d.Level == devices[place].Level {
			out = append(out, d.toSpeaker())
		}
	}
	return out
}

// CanPowerOff reports whether the machine may be powered off by one of the levels.
func CanPowerOff(devices []Device) bool {
	return slices.ContainsFunc(PowerOffs{}.levelsOf(devices), func(l level) bool { return l.may })
}

// IsExhausted reports that no level would take another power-off: in each a device refused for good, and the last that was asked, too.
func (p PowerOffs) IsExhausted(devices []Device) bool {
	return isPermanentRefusal(p.LastErr) &&
		!slices.ContainsFunc(p.levelsOf(devices), func(l level) bool { return l.may && !l.never })
}

// ApplySent folds in that a power-off was sent at that time by a move, and how the device took it.
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

// MayHaveAccepted reports whether the device of that name accepted a power-off, or may have: an answer that was lost
// may have been a yes.
func (p PowerOffs) MayHaveAccepted(name string) bool {
	t, sent := p.tried[name]
	return sent && (t.accepted || !isPermanentRefusal(t.err))
}

// AcceptedBy are the devices that power-offs were sent through and that may have taken them, in their order; nil where none is known to have.
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

// IsOverdue reports that the level whose turn it is has had its time, and another would take the power-off.
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

// NextMove says what to do next to get the machine off, of a fence whose power-off was announced then. The levels have their turns in order,
// the first one that answers first. A level sends a power-off through each of its devices that does not say Off, one after the other, and
// gives way where one of them refuses for good, where its attempts are used up, or after its deadline. After the last the first begins
// anew, until whoever asks gives up.
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

// startsRound reports that with the turn of the level of that number another round begins.
func (p PowerOffs) startsRound(all []level, number int) bool {
	since := func(number int) int { // how many levels after the one that had the first turn
		at := func(number int) int {
			return slices.IndexFunc(all, func(l level) bool { return l.number == number })
		}
		return (at(number) - at(p.start) + len(all)) % len(all)
	}
	return since(number) <= since(p.level)
}

// firstLevel is the level to begin with: the first whose devices all answer.
func (p PowerOffs) firstLevel(all []level, a Answers) int {
	silent := func(i int) bool { return a.State(i) == providers.PowerUnknown }
	if i := slices.IndexFunc(all, func(l level) bool { return l.may && !slices.ContainsFunc(l.places, silent) }); i >= 0 {
		return i
	}
	return max(slices.IndexFunc(all, func(l level) bool { return l.may }), 0)
}

// nextLevel is the level that has its turn after that one, which may be itself: one that would take a power-off, and is not off already.
func (p PowerOffs) nextLevel(all []level, i int, a Answers) (next int, ok bool) {
	for n := range len(all) {
		next = (i + 1 + n) % len(all)
		if l := all[next]; l.may && !l.never && !l.isOff(a) {
			return next, true
		}
	}
	return i, false
}

// isOff reports that all devices of the level say Off.
func (l level) isOff(a Answers) bool {
	return !slices.ContainsFunc(l.places, func(i int) bool { return a.State(i) != providers.PowerOff })
}

// placeToSend is the place of the first device of the level that does not say Off.
func (l level) placeToSend(a Answers) int {
	if i := slices.IndexFunc(l.places, func(i int) bool { return a.State(i) != providers.PowerOff }); i >= 0 {
		return l.places[i]
	}
	return l.places[0]
}

// endOfTurn says why and when the turn of a level was over; "" if it is not. A device that is changing has taken its power-off, which only the
// deadline ends.
func (p PowerOffs) endOfTurn(
	now providers.Instant, l level, devices []Device, a Answers,
) (why string, at providers.Instant) {
	for _, i := range l.places {
		t, name := p.tried[devices[i].Name], devices[i].Name
		switch {
		case a.State(i) == providers.PowerOff:
		case isPermanentRefusal(t.err):
			return name + " refuses the power-off for good", t.at
		case t.sent < l.limits.maxAttempts():
		case t.err != nil:
			return name + " did not accept it", t.at
		case now.Sub(t.at) >= EffectAfter && a.State(i) != providers.PowerChanging:
			return name + " accepted it without effect", t.at.Add(EffectAfter)
		}
	}
	if end := l.limits.Timeout; end > 0 && now.Sub(p.began) >= end {
		return fmt.Sprintf("the machine was not off within %s", end), p.began.Add(end)
	}
	return "", providers.Instant{}
}

// moveInLevel is the next move of the level whose turn it is.
func (p PowerOffs) moveInLevel(now providers.Instant, l level, devices []Device, a Answers) Move {
	m := Move{Wait: EffectAfter}
	for _, i := range l.places {
		t := p.tried[devices[i].Name]
		wait := time.Duration(0)
		switch {
		case a.State(i) == providers.PowerOff:
			continue
		case t.sent == 0: // others follow at once: all of them are off before any is turned on again
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

// backoffFor is how long to wait after so many refusals: one second, doubled with each, 10 s at most.
func backoffFor(n int) time.Duration { return min(time.Second<<min(max(n-1, 0), 6), EffectAfter) }

// isPermanentRefusal reports a power-off that sending again does not cure: the device has none, or not for us, or is another machine's.
func isPermanentRefusal(err error) bool {
	for _, class := range []error{providers.ErrPermanent, providers.ErrDenied, providers.ErrNotFound, providers.ErrIdentity, providers.ErrUntrusted} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
