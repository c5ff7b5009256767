package recording

import (
	"crypto/sha256"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// Recorder is a decide.Decider that decides as its Node does, and writes the node's course as it goes.
type Recorder struct {
	*decide.Node // decides; not nil
	// Tape writes one line, and returns false if it has no room. It must not block, nor change the line. After false
	// nothing more of the node is written until it is idle: what follows a gap cannot be played. nil: nothing is
	// written.
	Tape func([]byte) bool
	Name string // the node's

	lines int   // how many lines this course has; 0: it has not begun
	began int64 // when the course began, in Unix milliseconds
	bytes int   // the total length of its lines
	gap   bool  // Tape refused a line, or the last line is written
	last  map[Kind]digest
}

// digest identifies a body. Keeping all bodies of a lost zone's nodes would take as much memory as everything else.
type digest = [sha256.Size]byte

// maxCourseBytes is how many bytes are written of one course. A node that stays silent while its machine is on needs as
// much in some hours. It would push all others out of the recording.
const maxCourseBytes = 8 << 20

// writeLine writes a line of the course. It begins the course first if it has not begun.
func (c *Recorder) writeLine(l Line, body any) {
	if c.Tape == nil || c.gap {
		return
	}
	if c.lines == 0 && l.Kind != Begins {
		if c.writeLine(Line{Kind: Begins, At: l.At}, c.PolicyMemory()); c.gap {
			return
		}
	}
	if l.Kind == Begins {
		c.last, c.began = map[Kind]digest{}, l.At.Wall.UnixMilli()
	}
	if body != nil {
		text := EncodeJSON(body)
		if text == nil {
			c.stopWriting()
			return
		}
		if l.Same = c.isRepeated(l.Kind, text); !l.Same {
			l.Body = text
		}
	}
	if c.bytes > maxCourseBytes && l.Kind != Rests {
		l = Line{Kind: Truncated, At: l.At}
	}
	l.Node, l.Course, l.N = c.Name, c.began, c.lines
	text := EncodeJSON(l)
	c.lines++
	c.bytes += len(text)
	if text == nil || !c.Tape(text) || l.Kind == Truncated {
		c.stopWriting()
	}
}

// isRepeated reports whether a body equals that of the last line of its kind, and remembers it.
func (c *Recorder) isRepeated(of Kind, text []byte) bool {
	sum := sha256.Sum256(text)
	last, known := c.last[of]
	c.last[of] = sum
	return known && sum == last
}

// stopWriting ends writing until the node is idle.
func (c *Recorder) stopWriting() { c.gap, c.last = true, nil }

// resetLines prepares for the next course of an idle node.
func (c *Recorder) resetLines() { c.lines, c.bytes, c.gap, c.last = 0, 0, false, nil }

// Apply implements decide.Decider like decide.Node, and records the observation.
func (c *Recorder) Apply(now providers.Instant, f decide.Fleet, o decide.Observation) {
	if _, rests := o.(decide.NodeIdle); rests {
		defer c.resetLines()
	}
	if !c.isRecorded(o) {
		c.Node.Apply(now, f, o)
		return
	}
	l, body := toLine(o)
	if l.At = now; l.Kind == NodeRead {
		l.At = o.(decide.NodeRead).Look.Got
	}
	if l.Kind != Answers {
		c.writeLine(l, body)
		c.Node.Apply(now, f, o)
		return
	}
	wrapped := &recordingFleet{Fleet: f}
	c.Node.Apply(now, wrapped, o)
	l.Fleet = wrapped.toFleetFacts(func(*fleet.View) bool { return false })
	c.writeLine(l, body)
}

// isRecorded reports whether an observation is written. An observation between looks begins no course.
func (c *Recorder) isRecorded(o decide.Observation) bool {
	switch o.(type) {
	case decide.ReadFailed:
		return false
	case decide.StorageReported, decide.NodeIdle:
		return c.lines > 0
	}
	return c.Tape != nil
}

// toLine returns an observation as a line and its body.
func toLine(o decide.Observation) (l Line, body any) {
	switch o := o.(type) {
	case decide.NodeRead:
		l.Kind, l.Sent, l.NewID = NodeRead, o.Look.Sent, o.Facts.NewID
		body = nodeBody{slimNode(o.Node), o.Look.LeaseRV, o.Look.LeaseDuration, factsOf(o.Facts)}
	case decide.PodsListed:
		l.Kind, body = Pods, podsOf(o.Pods)
	case decide.VolumesRead:
		l.Kind, body = Volumes, o.ByPod
	case decide.OwnersRead:
		l.Kind, body = Owners, o.ByPod
	case decide.StorageSettingRead:
		l.Kind, body = StorageSetting, o.Why
	case decide.EtcdPodsListed:
		l.Kind, body = EtcdPods, o.Ready
	case decide.AwaitedClaimsRead:
		l.Kind, body = AwaitedClaims, o.Claims
	case decide.ClaimsRead:
		l.Kind, body = Claims, o.ByVolume
	case decide.AttachmentsListed:
		if l.Kind, body = CachedAttachments, o.Attachments; o.Live {
			l.Kind = LiveAttachments
		}
	case decide.DevicesAnswered:
		l.Kind, body = Answers, answersOf(o.Answers)
	case decide.ActionDone:
		l.Kind, body = ActionDone, outcome{faultOf(o.Err), o.SentAt, o.Withheld, o.Results}
	case decide.StorageReported:
		l.Kind, body = Storage, storageBody{rulesOf(o.Policies), o.Health}
	case decide.NodeIdle:
		l.Kind = Rests
	}
	return l, body
}

// Next implements decide.Decider like decide.Node, and records the decision.
func (c *Recorder) Next(now providers.Instant, f decide.Fleet) action.Decision {
	if c.Tape == nil || c.gap {
		return c.Node.Next(now, f)
	}
	if c.lines == 0 { // written with the policies' memory of before the step
		c.writeLine(Line{Kind: Begins, At: now}, c.PolicyMemory())
	}
	wrapped := &recordingFleet{Fleet: f}
	s := c.Node.Next(now, wrapped)
	known := func(v *fleet.View) bool {
		text := EncodeJSON(v)
		return text != nil && !c.gap && c.isRepeated(viewKind, text)
	}
	c.writeLine(Line{Kind: Next, At: now, Fleet: wrapped.toFleetFacts(known)}, StepOf(s, c.Devices()))
	return s
}

// recordingFleet is a fleet that keeps its answers.
type recordingFleet struct {
	decide.Fleet
	view         *fleet.View
	reserved     bool
	distrustedBy map[string]string
}

func (e *recordingFleet) View(name string, now providers.Instant) fleet.View {
	v := e.Fleet.View(name, now)
	e.view = &v
	return v
}

func (e *recordingFleet) ReserveTurn(name string, now providers.Instant) bool {
	e.reserved = e.Fleet.ReserveTurn(name, now)
	return e.reserved
}

func (e *recordingFleet) DistrustingNode(m taint.MachineRef, device, of string) string {
	by := e.Fleet.DistrustingNode(m, device, of)
	if by != "" {
		if e.distrustedBy == nil {
			e.distrustedBy = map[string]string{}
		}
		e.distrustedBy[device] = by
	}
	return by
}

// toFleetFacts returns the fleet's answers, or nil if there were none. It leaves out a view that known reports as the
// course's last one.
func (e *recordingFleet) toFleetFacts(known func(*fleet.View) bool) *FleetFacts {
	out := FleetFacts{View: e.view, Reserved: e.reserved, DistrustedBy: e.distrustedBy}
	if e.view != nil && known(e.view) {
		out.View = nil
	}
	if out.View == nil && !out.Reserved && out.DistrustedBy == nil {
		return nil
	}
	return &out
}
