package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// request is what a controller has on its way. A write is held in ctl.write beside it.
type request uint8

const (
	idle request = iota
	looking
	listing
	resolving
	listingAttachments
	naming
	asking
	writing
	sendingOff
)

// kind is what a controller sends.
type kind uint8

const (
	noWrite kind = iota
	records
	marks
	unmarks
	tellsOn
	expires
	clears
	powersOff
	tombstones
	deletes
	spares
)

func (k kind) String() string {
	return [...]string{"nothing", "record", "mark", "end of the mark", "condition", "end of Ready", "clearing",
		"power-off", "tombstone", "deletion", "spare"}[k]
}

// ctl is one controller: the real course of the first node, its fleet, and one request. It is never changed once it is
// part of a state.
type ctl struct {
	course decide.Node
	fleet  *fleet.Fleet

	request request
	sent    providers.Instant
	had     bool // looking: one of the two reads was made: the Node's, unless hadLease
	lease   bool
	node    node // what it brought
	leaseRV id
	write   *write // writing
	rest    []action.Pod
	how     map[string]action.WriteResult
	step    kind // of the batch; noWrite: there is none
	back    bool // its pods are those of a node that returned

	after    time.Duration // idle: how long to wait; zero: until something changes
	looked   bool
	sawNode  id // what the last look saw
	sawLease id

	said said // the last answer of the device, for the checks
}

// said is what was true when the device was asked last.
type said struct {
	off     bool // the machine was
	mark    id   // the mark that stood when the question was sent
	unready bool // and Ready was not True, at some time since that mark
	boot    id
	lease   id
}

// write is a write on its way, with its preconditions.
type write struct {
	do        kind
	rv        id // of the Node
	rec       *taint.Record
	on        bool
	inUse     bool
	listed    bool
	uid, prv  id // or of a pod
	fence     id
	daemonPod bool
}

var (
	errTimeOut  = errors.New("time-out")
	errConflict = errors.New("conflict")
	errDumb     = fmt.Errorf("asking: %w", providers.ErrUnreachable)
)

func (c *ctl) clone() *ctl {
	n := *c
	n.fleet = cloneFleet(c.fleet)
	n.how = maps.Clone(c.how)
	return &n
}

// begin starts a controller that remembers nothing and leads.
func (s *state) begin(i int) {
	c := &ctl{fleet: &fleet.Fleet{}}
	other := node{rv: s.node.boot, boot: s.node.boot}
	for i, l := range []taint.Look{
		s.node.look(s.node.lease, s.now(), s.now()), other.look(s.node.boot, s.now(), s.now())} {
		l.Name = []string{nodeName, otherName}[i]
		c.fleet.ApplyLook(l, s.now())
	}
	c.fleet.ApplyLease(nodeName, s.node.lease.rv(), 40*time.Second, s.now())
	s.beat(c)
	s.tick()
	s.ctl[i] = c
}

// beat is the other node's heartbeat, which comes to all controllers.
func (s *state) beat(c *ctl) {
	c.fleet.ApplyLease(otherName, strconv.FormatInt(int64(s.clock), 10), 40*time.Second, s.now())
	c.fleet.Tick(s.now())
}

// pass lets time pass, up to 10 s.
func (s *state) pass(d time.Duration) {
	s.clock += d
	for i, c := range s.ctl {
		if c != nil {
			c = c.clone()
			s.beat(c)
			s.ctl[i] = c
		}
	}
}

// idles reports that a controller finds nothing to look at.
func (s *state) idles(c *ctl) bool {
	l := s.node.look(s.node.lease, s.now(), s.now())
	return c.course.IsIdle(l, cloneFleet(c.fleet).View(nodeName, s.now()))
}

// stall is how long a late answer is late: longer than an answer of the device proves anything.
const stall = 6 * time.Second

// turns appends the transitions of the controllers.
func (s *state) turns(o *Options, out []act) []act {
	for i, c := range s.ctl {
		add := func(v verb) { out = append(out, act{v, uint8(i)}) }
		fault := func(left int8, v verb) {
			if left > 0 && s.left.Total > 0 {
				add(v)
			}
		}
		if c == nil {
			switch {
			case i >= o.Controllers:
			case s.ctl[1-i] == nil:
				add(begins)
			default:
				fault(s.left.Seconds, second)
			}
			continue
		}
		fault(s.left.Crashes, crash)
		switch c.request {
		case idle:
			if s.idles(c) {
				continue
			}
			if !c.looked || c.sawNode != s.node.rv || c.sawLease != s.node.lease {
				add(wake)
			}
			if c.looked && c.after > 0 {
				add(timer)
			}
			continue
		case looking:
			if add(deliver); !c.had {
				fault(s.left.Torn, first)
				fault(s.left.Torn, last)
			}
		case asking:
			add(deliver)
			fault(s.left.Dumb, dumb)
		case writing, sendingOff:
			add(deliver)
			fault(s.left.TimeOuts, timeOut)
		default:
			add(deliver)
		}
		fault(s.left.Late, late)
	}
	return out
}

// acts is a transition of a controller.
func (s *state) acts(o *Options, a act) {
	i := int(a.of)
	switch a.verb {
	case begins:
		s.begin(i)
		return
	case second:
		s.left.Total--
		s.left.Seconds--
		s.begin(i)
		return
	case crash:
		s.left.Total--
		s.left.Crashes--
		s.orphan(s.ctl[i])
		s.ctl[i] = nil
		return
	}
	c := s.ctl[i].clone()
	s.ctl[i] = c
	s.tick()
	switch a.verb {
	case first:
		s.left.Total--
		s.left.Torn--
		c.had, c.lease, c.node = true, false, s.node
		return
	case last:
		s.left.Total--
		s.left.Torn--
		c.had, c.lease, c.leaseRV = true, true, s.node.lease
		return
	case wake:
		c.fleet.ApplyLook(s.node.look(s.node.lease, s.now(), s.now()), s.now())
	case timer:
		s.pass(roundUp(c.after))
		c = s.ctl[i]
	case late, deliver, dumb:
		switch a.verb {
		case dumb:
			s.left.Total--
			s.left.Dumb--
		case late:
			s.left.Total--
			s.left.Late--
		}
		s.served(c, i, o, a.verb)
		c = s.ctl[i]
	case timeOut:
		s.left.Total--
		s.left.TimeOuts--
		s.orphan(c)
		if c.request == sendingOff {
			c.course.Apply(s.now(), c.fleet, decide.ActionDone{SentAt: c.sent, Err: errDumb})
			break
		}
		s.written(c, errTimeOut)
		if c.request == writing {
			return
		}
	}
	if c.request == writing { // the next of a batch
		return
	}
	s.next(c)
}

// roundUp keeps the clock on half seconds, except for moments.
func roundUp(d time.Duration) time.Duration {
	const half = 500 * time.Millisecond
	return min((d+half-1)/half*half, 10*time.Second)
}

// orphan leaves a controller's write on its way.
func (s *state) orphan(c *ctl) {
	w := c.write
	if c.request == sendingOff {
		w = &write{do: powersOff}
	}
	if c.request != writing && c.request != sendingOff {
		return
	}
	for i := range s.orphans {
		if s.orphans[i] == nil {
			s.orphans[i] = w
			return
		}
	}
}

// served is a request that arrives, and its answer that comes back at once, or late.
func (s *state) served(c *ctl, i int, o *Options, how verb) {
	back := func() {
		if how == late {
			s.pass(stall)
			*c = *s.ctl[i]
			s.ctl[i] = c
		}
		s.tick()
	}
	switch c.request {
	case looking:
		if !c.had || c.lease {
			c.node = s.node
		}
		if !c.had || !c.lease {
			c.leaseRV = s.node.lease
		}
		back()
		l := c.node.look(c.leaseRV, c.sent, s.now())
		c.looked, c.sawNode, c.sawLease, c.had = true, c.node.rv, c.leaseRV, false
		facts := decide.Facts{Evict: patience}
		facts.Facts = fence.Facts{Settings: settings, Mode: o.Mode, Devices: devices, NewID: s.draw().name(), By: "ff"}
		if c.node.paused {
			facts.Excluded = "paused"
		}
		c.course.Apply(l.Got, c.fleet, decide.NodeRead{Look: l, Facts: facts})
	case listing:
		ps := s.podsOn()
		back()
		c.course.Apply(s.now(), c.fleet, decide.PodsListed{Pods: ps})
	case resolving:
		back()
		of := map[string][]action.Volume{}
		if u := s.pods[0].uid; u != 0 { // claims do not change
			of[u.name()] = volumes
		}
		c.course.Apply(s.now(), c.fleet, decide.VolumesRead{ByPod: of})
	case listingAttachments:
		atts := s.attachments()
		back()
		c.course.Apply(s.now(), c.fleet, decide.AttachmentsListed{Attachments: atts, Live: true})
	case naming:
		back()
		claims := map[string]string{volume: claim} // they do not change
		c.course.Apply(s.now(), c.fleet, decide.ClaimsRead{ByVolume: claims})
	case asking:
		m := &s.m[bad]
		a := providers.Answer{Observation: providers.Observation{State: providers.PowerOn, At: c.sent}, By: "bmc"}
		switch {
		case how == dumb:
			a.State, a.Err = providers.PowerUnknown, errDumb
		case !m.power:
			a.State = providers.PowerOff
		case m.changing:
			a.State = providers.PowerChanging
		}
		c.said.off = !m.power
		back()
		a.Got = s.now()
		c.course.Apply(s.now(), c.fleet, decide.DevicesAnswered{Answers: []providers.Answer{a}})
		if c.step != noWrite { // in the middle of a batch
			s.batch(c)
		}
	case sendingOff: // the device was busy until now
		if c.still(s) != nil {
			c.course.Apply(s.now(), c.fleet, decide.ActionDone{Withheld: true})
			break
		}
		s.powersOff(c)
		_ = s.arrive(&write{do: powersOff})
		at := c.sent
		back()
		c.course.Apply(s.now(), c.fleet, decide.ActionDone{SentAt: at})
	case writing:
		err := s.arrive(c.write)
		back()
		s.written(c, err)
	}
}

// still is the last check before a power-off, with a cache that is as old as the look.
func (c *ctl) still(s *state) error {
	l := c.course.Look()
	facts := fence.Facts{Mode: fence.Fence}
	if s.observe {
		facts.Mode = fence.Observe
	}
	return c.course.StillHolds(s.now(), decide.Recheck{Seen: l, Facts: facts, Fleet: c.fleet.View(l.Name, s.now())})
}

// written tells the course how a write ended, or sends the next of a batch.
func (s *state) written(c *ctl, err error) {
	w := c.write
	c.write = nil
	switch w.do {
	case tombstones, deletes, spares:
		switch {
		case err == nil:
			c.how[w.uid.name()] = action.Accepted
		case errors.Is(err, errConflict):
			c.how[w.uid.name()] = action.Changed
		default:
			c.how[w.uid.name()], c.rest = action.Failed, nil
		}
		s.batch(c)
	default:
		c.request = idle
		c.course.Apply(s.now(), c.fleet, decide.ActionDone{Err: err})
	}
}

// holds says whether a write of the step may be sent now.
func (c *ctl) holds(s *state, uid string) decide.Hold {
	return c.course.HoldsFor(uid, s.now(), c.fleet.View(c.course.Look().Name, s.now()))
}

// batch sends the next write of pods, while that holds, or says how they ended.
func (s *state) batch(c *ctl) {
	again := c.request == asking
	c.request = idle
	for len(c.rest) > 0 && c.holds(s, c.rest[0].UID) == decide.HoldSkipPod {
		c.rest = c.rest[1:]
	}
	if len(c.rest) > 0 {
		switch hold := c.holds(s, c.rest[0].UID); {
		case hold == decide.HoldAskFirst && !again:
			c.request = asking
			s.asks(c)
			return
		case hold == decide.HoldYes:
			p := c.rest[0]
			c.rest = c.rest[1:]
			c.request, c.sent = writing, s.now()
			c.write = &write{do: c.step, uid: idOf(p.UID), prv: idOf(p.ResourceVersion),
				fence: idOf(c.course.Look().Record.ID), daemonPod: p.UID == daemon}
			s.sends(c, p)
			return
		}
	}
	c.rest, c.step = nil, noWrite
	c.course.Apply(s.now(), c.fleet, decide.ActionDone{Results: c.how})
	c.how = nil
}

func (s *state) asks(c *ctl) {
	c.sent = s.now()
	n := &s.node
	c.said = said{mark: n.mark, unready: n.unready, boot: n.boot, lease: n.lease}
}

// next goes on with the course until something is on its way.
func (s *state) next(c *ctl) {
	for {
		if c.request == asking && c.step != noWrite || c.request == writing && c.write != nil {
			return
		}
		c.fleet.Tick(s.now())
		d := c.course.Next(s.now(), c.fleet)
		s.tick()
		c.sent = s.now()
		switch {
		case action.Is[action.NoAction](d):
			c.request, c.after = idle, 0
			return
		case action.Is[action.Wait](d):
			c.request, c.after = idle, d.RequeueAfter
			return
		}
		switch o := decide.Do(context.Background(), d.Action, executor{s: s, c: c}); {
		case o != nil:
			c.course.Apply(s.now(), c.fleet, o)
		case c.request != idle: // it is on its way
			return
		}
	}
}

// executor is the World of a controller's course. What it puts on its way is observed when it has arrived.
type executor struct {
	decide.World // the actions to which no course comes here

	s *state
	c *ctl
}

func (e executor) sends(r request) decide.Observation {
	e.c.request = r
	return nil
}

func (e executor) ReadNode(context.Context) decide.Observation { return e.sends(looking) }

func (e executor) ListPods(context.Context) decide.Observation { return e.sends(listing) }

func (e executor) ReadVolumes(context.Context, action.ReadVolumes) decide.Observation {
	return e.sends(resolving)
}

func (e executor) ReadClaims(context.Context, action.ReadClaims) decide.Observation {
	return e.sends(naming)
}

func (e executor) ListAttachments(_ context.Context, a action.ListAttachments) decide.Observation {
	if a.Live {
		return e.sends(listingAttachments)
	}
	return decide.AttachmentsListed{Attachments: e.s.attachments()}
}

func (e executor) AskDevices(context.Context) decide.Observation {
	e.s.asks(e.c)
	return e.sends(asking)
}

// writes puts a write of the Node on its way.
func (e executor) writes(w write) decide.Observation {
	w.rv = idOf(e.c.course.Look().ResourceVersion)
	e.c.write = &w
	return e.sends(writing)
}

func (e executor) WriteRecord(_ context.Context, a action.WriteRecord) decide.Observation {
	e.s.announces(e.c, a.Record)
	return e.writes(write{do: records, rec: &a.Record, fence: idOf(a.Record.ID)})
}

func (e executor) SetMark(_ context.Context, a action.SetMark) decide.Observation {
	e.s.arms(e.c)
	return e.writes(write{do: marks, rec: &a.Record, fence: idOf(a.Record.ID)})
}

func (e executor) RemoveMark(_ context.Context, a action.RemoveMark) decide.Observation {
	return e.writes(write{do: unmarks, rec: &a.Record, fence: idOf(a.Record.ID)})
}

func (e executor) SetPoweredOnCondition(_ context.Context, a action.SetPoweredOnCondition) decide.Observation {
	return e.writes(write{do: tellsOn, on: a.On})
}

func (e executor) ExpireReady(context.Context) decide.Observation {
	e.s.expires(e.c)
	return e.writes(write{do: expires})
}

func (e executor) ClearVolumes(_ context.Context, a action.ClearVolumes) decide.Observation {
	if e.c.holds(e.s, "") != decide.HoldYes {
		return decide.ActionDone{Withheld: true}
	}
	e.s.proven(e.c, "clearing of volumes")
	return e.writes(write{do: clears, inUse: len(a.InUse) > 0, listed: len(a.Attached) > 0})
}

func (e executor) PowerOff(context.Context, action.PowerOff) decide.Observation {
	if e.c.still(e.s) != nil {
		return decide.ActionDone{Withheld: true}
	}
	e.s.powersOff(e.c)
	return e.sends(sendingOff)
}

// begins begins a batch of pod writes.
func (e executor) begins(do kind, pods []action.Pod, returned bool) decide.Observation {
	c := e.c
	c.rest, c.step, c.back, c.how, c.request = pods, do, returned, map[string]action.WriteResult{}, idle
	e.s.batch(c)
	return nil
}

func (e executor) EndPods(_ context.Context, a action.EndPods) decide.Observation {
	return e.begins(tombstones, a.Pods, false)
}

func (e executor) DeletePods(_ context.Context, a action.DeletePods) decide.Observation {
	return e.begins(deletes, a.Pods, a.Returned)
}

func (e executor) SparePods(_ context.Context, a action.SparePods) decide.Observation {
	return e.begins(spares, a.Pods, true)
}

// arrive is a write at the API server, or a power-off at the device.
func (s *state) arrive(w *write) error {
	n := &s.node
	switch w.do {
	case powersOff:
		s.m[bad].changing = s.m[bad].power
		return nil
	case tombstones, deletes, spares:
		return s.arrivePod(w)
	}
	if w.rv != n.rv {
		return errConflict
	}
	switch w.do {
	case records:
		if n.rec = w.rec; len(w.rec.Detaching) > 0 {
			s.names()
		}
	case marks:
		n.rec, n.mark, n.unready = w.rec, w.fence, n.unknown
	case unmarks:
		s.unmarks(w)
		n.rec, n.mark = w.rec, 0
	case tellsOn:
		n.poweredOn = w.on
	case expires:
		n.unknown, n.unready = true, true
	case clears:
		n.inUse, n.listed = w.inUse, w.listed
	}
	s.writeNode()
	return nil
}

func (s *state) arrivePod(w *write) error {
	for i := range s.pods {
		p := &s.pods[i]
		if p.uid != w.uid {
			continue
		}
		if p.rv != w.prv {
			return errConflict
		}
		switch w.do {
		case tombstones:
			p.tomb = true
			s.ended[i] = w.fence
		case spares:
			p.spared = w.fence
		default:
			*p = pod{}
			return nil
		}
		p.rv = s.draw()
		return nil
	}
	return nil // it is gone
}
