// Package replay plays a recording (package recording). It feeds the recording to the same course of the node
// (taint/decide), which must decide the same. It is pure: it calls no API and no device.
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
	"github.com/forcefence/forcefence/taint/features/recording"
)

// Report is the result of playing recordings.
type Report struct {
	recording.Tally
	Compared  int        `json:"compared"` // decisions that were compared
	Differ    int        `json:"differ"`
	Skipped   int        `json:"skipped,omitempty"`   // lines of courses that begin before the recording, or have a gap
	Truncated int        `json:"truncated,omitempty"` // courses that lasted longer than what was recorded of them
	Decisions []Decision `json:"decisions"`
}

// Decision is a decision that was made then, with the one made now. A decision that equals the node's last one is left
// out.
type Decision struct {
	At      time.Time      `json:"at"`
	Node    string         `json:"node"`
	Line    int            `json:"line"`
	Then    recording.Step `json:"then"`
	Now     recording.Step `json:"now"`
	Differs bool           `json:"differs"`
	In      []string       `json:"in,omitempty"` // what differs, by the names of Step's JSON
}

// PlayRecordings plays recordings, the oldest first. It makes each decision again. A decision that differs is reported,
// and the rest of its course is skipped unless only Detail differs. A line that cannot be read or played is counted and
// named, and the rest of its course is skipped. It returns an error if a recording cannot be read at all: another file,
// a newer version, the wrong order.
func PlayRecordings(in []io.Reader) (Report, error) {
	p := player{tracks: map[string]*track{}, out: Report{Decisions: []Decision{}}}
	var first time.Time // when the file before began
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
			return p.out,
				fmt.Errorf("%s begins at %s, before the previous file begins: name the oldest file first",
					name, begun.UTC().Format(time.DateTime))
		}
		first = begun
	}
	slices.SortStableFunc(p.out.Decisions, func(a, b Decision) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node))
	})
	return p.out, nil
}

type player struct {
	tracks map[string]*track
	out    Report
}

// track is one node's course as it is played.
type track struct {
	node   string
	course decide.Node
	began  int64
	lines  int
	lost   bool // a line is missing: the rest cannot be played
	last   map[recording.Kind]json.RawMessage
	view   fleet.View
	shown  [2]string // the decisions that were reported last, then and now
}

// playLine plays one line.
func (p *player) playLine(n int, l recording.Line) error {
	t := p.tracks[l.Node]
	if l.Kind == recording.Begins {
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
		return errors.New("it repeats an earlier line that is missing")
	default:
		l.Body = t.last[l.Kind]
	}
	if l.Fleet != nil && l.Fleet.View != nil {
		t.view = *l.Fleet.View
	}
	return t.runSafely(func() error { return p.applyLine(n, t, l) })
}

// runSafely runs code of the deciding packages, and turns a panic into an error. These packages trust their caller, and
// a recording may come from anybody. After an error the rest of the track is skipped.
func (t *track) runSafely(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be played: %s", recording.CleanText(fmt.Sprint(r)))
		}
		if err != nil {
			t.lost = true
		}
	}()
	return do()
}

// applyLine applies one line to its track.
func (p *player) applyLine(n int, t *track, l recording.Line) error {
	f := replayFleet{view: t.view}
	if l.Fleet != nil {
		f.FleetFacts = *l.Fleet
	}
	switch l.Kind {
	case recording.Begins:
		memory, err := l.DecodeMemory()
		if err != nil {
			return err
		}
		t.course = decide.NewIdleNode(memory)
	case recording.Truncated:
		p.out.Truncated++
	case recording.Rests:
		delete(p.tracks, t.node)
	case recording.Next:
		then, err := l.DecodeStep()
		if err != nil {
			return err
		}
		now := recording.StepOf(t.course.Next(l.At, f), t.course.Devices())
		p.out.Compared++
		in := diffSteps(then, now)
		t.lost = in != nil && !slices.Equal(in, []string{"detail"}) // other words for the same decision
		p.addDecision(
			t, Decision{At: l.At.Wall, Node: t.node, Line: n, Then: then, Now: now, Differs: in != nil, In: in},
		)
	default:
		seen, err := l.DecodeObservation(p.out.Headers[len(p.out.Headers)-1].TaintKey)
		if err != nil {
			return err
		}
		t.course.Apply(l.At, f, seen)
	}
	return nil
}

// slack is by how much a wait may differ: a recording of an older version has one clock, and its process used another.
const slack = 10 * time.Millisecond

// diffSteps returns what differs between two decisions, by the names of Step's JSON, or nil if they are the same.
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

// addDecision adds a decision to the report, unless it equals the node's last one.
func (p *player) addDecision(t *track, d Decision) {
	words := [2]string{d.Then.String(), d.Now.String()}
	if !d.Differs && (words == t.shown || !d.Now.IsDecision()) {
		return
	}
	t.shown = words
	if d.Differs {
		p.out.Differ++
	}
	p.out.Decisions = append(p.out.Decisions, d)
}

// replayFleet is a fleet that repeats its recorded answers.
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
func (replayFleet) ApplyStorageFences(string, bool, providers.Instant)               {}
func (e replayFleet) DistrustingNode(_ taint.MachineRef, device, _ string) string {
	return e.DistrustedBy[device]
}
