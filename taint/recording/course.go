package recording

import (
	"crypto/sha256"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// Course is a node's course that is written down as it goes: a decide.Course that decides as its Node does. The zero
// value writes nothing.
type Course struct {
	decide.Node
	// Tape takes one line; false: it has no room. It must not block, nor change the line. Then nothing more is written of the node until it is
	// idle: what follows a gap can not be played. nil: nothing is written.
	Tape func([]byte) bool
	Name string // the node's

	lines int   // of this course; 0: it has not begun
	began int64 // when it did
	bytes int   // of its lines
	gap   bool  // a line was refused, or is the last
	last  map[Kind]digest
}

// digest is by what a body is known again: all bodies of a lost zone's nodes would take as much memory as all the rest.
type digest = [sha256.Size]byte

// mostOfCourse is how many bytes are written of one course. A node that stays silent while its machine is on takes as much in some hours, and for as
// long as it stays so it would push all others out of the recording.
const mostOfCourse = 8 << 20

// put writes a line of the course, which begins with it if it has not.
func (c *Course) put(l Line, body any) {
	if c.Tape == nil || c.gap {
		return
	}
	if c.lines == 0 && l.Kind != Begins {
		if c.put(Line{Kind: Begins, At: l.At}, c.Kept()); c.gap {
			return
		}
	}
	if l.Kind == Begins {
		c.last, c.began = map[Kind]digest{}, l.At.Wall.UnixMilli()
	}
	if body != nil {
		text := Encode(body)
		if text == nil {
			c.end()
			return
		}
		if l.Same = c.same(l.Kind, text); !l.Same {
			l.Body = text
		}
	}
	if c.bytes > mostOfCourse && l.Kind != Rests {
		l = Line{Kind: Cut, At: l.At}
	}
	l.Node, l.Course, l.N = c.Name, c.began, c.lines
	text := Encode(l)
	c.lines++
	c.bytes += len(text)
	if text == nil || !c.Tape(text) || l.Kind == Cut {
		c.end()
	}
}

// same reports that a body is that of the kind's line before.
func (c *Course) same(of Kind, text []byte) bool {
	sum := sha256.Sum256(text)
	last, known := c.last[of]
	c.last[of] = sum
	return known && sum == last
}

// end ends what is written, until the node is idle.
func (c *Course) end() { c.gap, c.last = true, nil }

// rest ends what is written of an idle node.
func (c *Course) rest() { c.lines, c.bytes, c.gap, c.last = 0, 0, false, nil }

// Apply is decide.Node's.
func (c *Course) Apply(now providers.Instant, f decide.Fleet, o decide.Observation) {
	if _, rests := o.(decide.Rested); rests {
		defer c.rest()
	}
	if !c.writes(o) {
		c.Node.Apply(now, f, o)
		return
	}
	l, body := told(o)
	if l.At = now; l.Kind == Life {
		l.At = o.(decide.NodeRead).Look.Got
	}
	if l.Kind != Answers {
		c.put(l, body)
		c.Node.Apply(now, f, o)
		return
	}
	heard := &ear{Fleet: f}
	c.Node.Apply(now, heard, o)
	l.Fleet = heard.said(func(*fleet.View) bool { return false })
	c.put(l, body)
}

// writes reports whether an observation is written. What is seen of a node between looks begins no course.
func (c *Course) writes(o decide.Observation) bool {
	switch o.(type) {
	case decide.ReadFailed:
		return false
	case decide.StorageHeard, decide.Rested:
		return c.lines > 0
	}
	return c.Tape != nil
}

// told is an observation as it is written.
func told(o decide.Observation) (l Line, body any) {
	switch o := o.(type) {
	case decide.NodeRead:
		l.Kind, l.Sent, l.NewID = Life, o.Look.Sent, o.Facts.NewID
		body = lived{slim(o.Node), o.Look.LeaseRV, o.Look.LeaseDuration, factsOf(o.Facts, o.Elsewhere)}
	case decide.PodsListed:
		l.Kind, body = Pods, podsOf(o.Pods)
	case decide.VolumesRead:
		l.Kind, body = Volumes, o.Of
	case decide.OwnersRead:
		l.Kind, body = Owners, o.Of
	case decide.RivalRead:
		l.Kind, body = Rival, o.Why
	case decide.MembersRead:
		l.Kind, body = Members, o.Ready
	case decide.WaitingRead:
		l.Kind, body = Waiting, o.Claims
	case decide.ClaimsRead:
		l.Kind, body = Claims, o.Of
	case decide.AttachmentsListed:
		if l.Kind, body = Cached, o.Attachments; o.Live {
			l.Kind = Listed
		}
	case decide.DevicesAnswered:
		l.Kind, body = Answers, answersOf(o.Answers)
	case decide.ActionDone:
		l.Kind, body = Did, outcome{faultOf(o.Err), o.Sent, o.Late, o.How}
	case decide.StorageHeard:
		l.Kind, body = Storage, storageSays{rulesOf(o.Policies), o.Says}
	case decide.Rested:
		l.Kind = Rests
	}
	return l, body
}

// Next is decide.Node's.
func (c *Course) Next(now providers.Instant, f decide.Fleet) action.Decision {
	if c.Tape == nil || c.gap {
		return c.Node.Next(now, f)
	}
	if c.lines == 0 { // with what is remembered before the step
		c.put(Line{Kind: Begins, At: now}, c.Kept())
	}
	heard := &ear{Fleet: f}
	s := c.Node.Next(now, heard)
	known := func(v *fleet.View) bool {
		text := Encode(v)
		return text != nil && !c.gap && c.same(viewKind, text)
	}
	c.put(Line{Kind: Next, At: now, Fleet: heard.said(known)}, StepOf(s, c.Devices()))
	return s
}

// ear is a fleet, and what it said.
type ear struct {
	decide.Fleet
	view     *fleet.View
	reserved bool
	liars    map[string]string
}

func (e *ear) View(name string, now providers.Instant) fleet.View {
	v := e.Fleet.View(name, now)
	e.view = &v
	return v
}

func (e *ear) Reserve(name string, now providers.Instant) bool {
	e.reserved = e.Fleet.Reserve(name, now)
	return e.reserved
}

func (e *ear) Distrusted(m taint.Machine, device, of string) string {
	by := e.Fleet.Distrusted(m, device, of)
	if by != "" {
		if e.liars == nil {
			e.liars = map[string]string{}
		}
		e.liars[device] = by
	}
	return by
}

// said is what it said; nil: nothing. A view that is the course's last by known is left out.
func (e *ear) said(known func(*fleet.View) bool) *Said {
	out := Said{View: e.view, Reserved: e.reserved, Liars: e.liars}
	if e.view != nil && known(e.view) {
		out.View = nil
	}
	if out.View == nil && !out.Reserved && out.Liars == nil {
		return nil
	}
	return &out
}
