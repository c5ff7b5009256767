// Package replay plays a recording (package recording): through the same course of the node (taint/decide), which must
// decide the same, or with another configuration. It is pure: what plays a recording asks nobody.
package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/recording"
	"github.com/forcefence/forcefence/taint/view/explain"
)

// Report is what a recording was played to.
type Report struct {
	recording.Tally
	Compared  int        `json:"compared"` // decisions, of those that were looked at
	Differ    int        `json:"differ"`
	Skipped   int        `json:"left,omitempty"` // lines of courses that do not begin in what was read, or have a gap
	Truncated int        `json:"cut,omitempty"`  // courses that went on for longer than was recorded
	Decisions []Decision `json:"decisions"`
}

// Decision is one that was made then, and the one that is made now. One that says the same as the one before of its node is left out.
type Decision struct {
	At      time.Time      `json:"at"`
	Node    string         `json:"node"`
	Line    int            `json:"line"`
	Then    recording.Step `json:"then"`
	Now     recording.Step `json:"now"`
	Differs bool           `json:"differs"`
	In      []string       `json:"in,omitempty"` // what of the decision differs, as Step's JSON names it; with another configuration: nothing
	// With another configuration: what would have become of the node from here on, by explain's model; the recording tells no more of it.
	Estimate *explain.Scenario `json:"estimate,omitempty"`
	Unknown  string            `json:"unknown,omitempty"` // why what would have been decided cannot be told
}

// PlayRecordings plays recordings, the oldest first. With nil for other each decision is made again as it was; that one differs is told, and nothing
// further of that course. A line that cannot be read or played is counted and named, and nothing further of its course is played. The error is one
// that keeps all from being read: another file, a newer version, the wrong order.
func PlayRecordings(in []io.Reader, other *OtherConfig) (Report, error) {
	p := player{other: other, tracks: map[string]*track{}, out: Report{Decisions: []Decision{}}}
	var first time.Time // of the file before
	for i, r := range in {
		name := fmt.Sprintf("recording %d", i+1)
		if f, has := r.(interface{ Name() string }); has {
			name = f.Name()
		}
		before := len(p.out.Headers)
		if err := p.out.ReadLines(name, r, p.playLine); err != nil {
			return p.out, fmt.Errorf("%s: %w", name, err)
		}
		begun := p.out.Headers[before].At
		if begun.Before(first) {
			return p.out, fmt.Errorf("%s begins at %s, before the file that stands before it: the oldest must stand first", name, begun.UTC().Format(time.DateTime))
		}
		first = begun
	}
	for _, t := range p.tracks {
		if err := p.runSafely(t, func() error { return p.playPass(t) }); err != nil {
			p.out.AddBroken("the end", p.out.Lines, err)
		}
	}
	slices.SortStableFunc(p.out.Decisions, func(a, b Decision) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node)) })
	return p.out, nil
}

type player struct {
	other  *OtherConfig
	tracks map[string]*track
	out    Report
}

// track is one node's course as it is played.
type track struct {
	node   string
	course decide.Node
	began  int64
	lines  int
	lost   bool // a line is missing: nothing more can be played
	last   map[recording.Kind]json.RawMessage
	view   fleet.View
	shown  [2]string // the decisions that were shown last, then and now
	otherRun
}

// playLine plays one line.
func (p *player) playLine(n int, l recording.Line) error {
	t := p.tracks[l.Node]
	if l.Kind == recording.Begins {
		if t != nil { // the process that wrote it is another, or the Node is
			if err := p.runSafely(t, func() error { return p.playPass(t) }); err != nil {
				return err
			}
		}
		t = &track{node: l.Node, began: l.Course, last: map[recording.Kind]json.RawMessage{}}
		p.tracks[l.Node] = t
	}
	if t == nil || t.lost || l.Course != t.began || l.N != t.lines {
		if t != nil && l.Course == t.began {
			t.lost = true
		}
		p.out.Skipped++
		return nil
	}
	t.lines++
	switch {
	case !l.Same:
		t.last[l.Kind] = l.Body
	case t.last[l.Kind] == nil:
		t.lost = true
		return errors.New("it says the same as a line before that is not there")
	default:
		l.Body = t.last[l.Kind]
	}
	if l.Fleet != nil && l.Fleet.View != nil {
		t.view = *l.Fleet.View
	}
	return p.runSafely(t, func() error { return p.applyLine(n, t, l) })
}

// runSafely runs what goes through the rooms that decide: these trust who calls them, and a recording may be anybody's. After an error nothing more
// of the track is played.
func (p *player) runSafely(t *track, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be played: %s", recording.CleanText(fmt.Sprint(r)))
		}
		if err != nil {
			t.lost, t.over, t.events, t.fleets = true, true, nil, nil
		}
	}()
	return do()
}

// applyLine folds one line in.
func (p *player) applyLine(n int, t *track, l recording.Line) error {
	f := replayFleet{view: t.view}
	if l.Fleet != nil {
		f.FleetFacts = *l.Fleet
	}
	e, err := p.decodeEvent(n, l)
	switch {
	case err != nil:
		return err
	case l.Kind == recording.Begins:
		t.course = decide.NewIdleNode(e.memory)
		t.rerun = t.course
		return nil
	case l.Kind == recording.Truncated:
		p.out.Truncated++
	case p.other != nil:
		return p.collectPass(t, e, f)
	case l.Kind == recording.Rests:
		delete(p.tracks, t.node)
	case l.Kind == recording.Next:
		d := t.course.Next(l.At, f)
		s := recording.StepOf(d, t.course.Devices())
		p.out.Compared++
		in := diffSteps(e.step, s)
		t.lost = in != nil
		p.addDecision(t, Decision{At: l.At.Wall, Node: t.node, Line: n, Then: e.step, Now: s, Differs: t.lost, In: in})
	default:
		t.course.Apply(e.At, f, e.seen)
	}
	return nil
}

// event is a line that was read.
type event struct {
	recording.Line
	n      int
	key    string
	memory policy.Memory      // Begins
	step   recording.Step     // Next
	seen   decide.Observation // of all others but Cut
}

// decodeEvent reads a line.
func (p *player) decodeEvent(n int, l recording.Line) (e event, err error) {
	e = event{Line: l, n: n, key: p.out.Headers[len(p.out.Headers)-1].Key}
	switch l.Kind {
	case recording.Begins:
		e.memory, err = l.DecodeMemory()
	case recording.Truncated:
	case recording.Next:
		e.step, err = l.DecodeStep()
	default:
		e.seen, err = l.DecodeObservation(e.key)
	}
	return e, err
}

// slack is by how much a wait may differ: a recording of an older version has one clock, and the process counted time
// by another.
const slack = 10 * time.Millisecond

// diffSteps is in what two decisions differ, by the names of Step's JSON; nil: they are the same.
func diffSteps(a, b recording.Step) (in []string) {
	x, bad := time.ParseDuration(a.RequeueAfter)
	y, worse := time.ParseDuration(b.RequeueAfter)
	if bad == nil && worse == nil && (x-y).Abs() <= slack {
		a.RequeueAfter = b.RequeueAfter
	}
	then, now := recording.EncodeJSON(a), recording.EncodeJSON(b)
	if bytes.Equal(then, now) {
		return nil
	}
	var was, is map[string]json.RawMessage
	if json.Unmarshal(then, &was) != nil || json.Unmarshal(now, &is) != nil {
		return []string{"all"}
	}
	for name := range was {
		if !bytes.Equal(was[name], is[name]) {
			in = append(in, name)
		}
	}
	for name := range is {
		if was[name] == nil {
			in = append(in, name)
		}
	}
	slices.Sort(in)
	return in
}

// addDecision puts a decision into the report, unless the node's last says the same.
func (p *player) addDecision(t *track, d Decision) {
	words := [2]string{d.Then.String(), d.Now.String()}
	if over := t.lost || t.over; !over && words == t.shown || !d.Differs && !d.Now.IsDecision() {
		return
	}
	t.shown = words
	if d.Differs {
		p.out.Differ++
	}
	p.out.Decisions = append(p.out.Decisions, d)
}

// replayFleet is a fleet that says again what it said.
type replayFleet struct {
	recording.FleetFacts
	view fleet.View
}

func (replayFleet) ApplyLease(string, string, time.Duration, providers.Instant) bool { return false }
func (replayFleet) ApplyLook(taint.Look, providers.Instant)                          {}
func (replayFleet) ApplyAnswer(string, providers.Answer)                             {}
func (e replayFleet) View(string, providers.Instant) fleet.View                      { return e.view }
func (e replayFleet) ReserveTurn(string, providers.Instant) bool                     { return e.Reserved }
func (replayFleet) ReleaseTurn(string)                                               {}
func (e replayFleet) DistrustingNode(_ taint.Machine, device, _ string) string {
	return e.DistrustedBy[device]
}
