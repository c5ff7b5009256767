// Package fleet is what one process remembers across nodes: whose Lease was renewed when, who gave a hint of whose end, whose
// machine is being powered off. From that it says of one node, in a time that does not grow with their number, how silent it is and
// whether its silence means anything.
//
// It is pure: it names no client, no clock and no logger, and is told the time. It imports the codec and the contract. Its methods
// must not be called at the same time.
//
// It promises: a node's silence counts toward a power-off only while at least half of all nodes are heard, and begins anew when that
// is so again after an outage (invariant 15); no more machines are powered off at the same time than the limits allow, until the fences
// before are done; a Lease tells nothing of a Node that does not exist, and its duration is believed within bounds only. What the storm
// guard goes by is in storm.go: how many nodes are healthy, of all and of each failure domain (invariants 6 and 7).
package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// A kubelet renews its Lease every quarter of its duration (10 s of 40). A Lease is stale after two missed renewals and half of a
// third, and has missed one after half of the second. A renewal that comes after a missed one may have been sent at any
// time since the one before.
const (
	DefaultDuration = 40 * time.Second // of a Lease that names none, or one out of bounds
	MinDuration     = 10 * time.Second
	MaxDuration     = 5 * time.Minute

	staleAfter  = 2.5 / 4
	missedAfter = 1.5 / 4
)

// hintTTL is how long a hint keeps the node suspected. By then its Lease is stale, or the hint was wrong.
const hintTTL = 30 * time.Second

// catchUp is how long an informer may bring what a live read was ahead of. Later than that an older resourceVersion is a cluster
// restored from a backup.
const catchUp = time.Minute

// turnTTL is how long a fence with a power-off of ours may take, once its machine is off, before another machine may be powered off in
// its place: a volume that does not detach must not keep other nodes down (invariant 16).
const turnTTL = 5 * time.Minute

// Fleet is the memory. The zero value knows no node.
type Fleet struct {
	nodes      map[string]*node
	known      int                          // nodes that exist
	fresh      int                          // of these, those that are not stale, by their flags
	beating    int                          // of these, those that missed no renewal
	heardSince providers.Instant            // since when at least half of all beat; zero: they do not
	scanned    providers.Instant            // when the flags were last compared with the clock
	due        providers.Instant            // before that the clock alone changes no flag
	longest    time.Duration                // the longest Lease; of a node that is gone, until the next scan
	changed    []string                     // nodes whose flag changed, or the soundness of whose Lease, since the last Tick
	turns      map[string]providers.Instant // nodes with a power-off of ours -> when its turn ends; zero: with its fence
	// distrustRecords are by the node whose record says that a device said Off of a machine that was on.
	distrustRecords map[string]*taint.Record

	limit  *Limits // nil: defaults
	all    scope
	scopes map[string]*scope // by name
	plane  map[string]*node  // control-plane nodes
	failed int               // reads of ours that failed in a row
	cut    int               // how many those were that made us cut off last; 0: we never were
	back   providers.Instant // when that was over
}

type node struct {
	exists   bool
	stale    bool // its flags
	missed   bool
	rv       string
	at       providers.Instant // when this process saw the Lease change: never the node's own clock
	since    providers.Instant // no later than when the node sent that renewal, which may have been on its way for long
	beat     providers.Instant // as at, but zero at first sight: that is no heartbeat
	alive    providers.Instant // when it last became Ready, or had another boot id or UID than before; zero: never
	duration time.Duration
	odd      bool // its Lease names a duration out of bounds
	hint     providers.Instant
	hintBy   Source
	on       providers.Instant // when a device was last heard to say On; zero: never
	first    Source            // what made it suspect first since it was well last
	counted  bool              // Noticed told it

	recordVersion string            // the Node's resourceVersion when its record was folded in last
	recordAt      providers.Instant // when that was
	sights        taint.Sightings   // of the record
	reserved      bool              // its power-off is about to be announced on that resourceVersion

	uid          string
	boot         string
	seenVersion  string // the Node's resourceVersion when it was folded in last
	seenAt       providers.Instant
	name         string
	unready      bool              // not Ready
	fenced       bool              // marked, or with an open fence
	etcd         bool              // a control-plane node with the label of an etcd member
	domainValues []string          // the values of its domains' labels that count
	scopes       []*scope          // its domains; nil where it has no such label
	spoke        bool              // its devices answered once
	mute         providers.Instant // since when they lately do not; zero: they do, never did, or have been silent for long
}

// View is what the fleet says of one node. The zero value is a fleet that is silent: nobody is fenced.
type View struct {
	Stale  bool // the Lease missed two renewals
	Missed bool // the Lease missed one renewal
	// Hint is who gave a hint that the machine went off, while that lasts and no device answered since that it is on; else "".
	Hint   Source
	HintAt providers.Instant // when that was; zero without one
	OnAt   providers.Instant // when this process last heard from a device that the machine is on; zero: never
	Others int               // other nodes that exist
	Fresh  int               // of these, how many have a Lease that is not stale
	// Heard tells that at least half of the nodes missed no renewal: a node's silence is its own.
	Heard bool
	// HeardSince is since when that is so without a break, as far as this process knows; zero: it is not so.
	HeardSince providers.Instant
	Longest    time.Duration // the longest Lease of all nodes
	// SilentSince is when this node's silence began to count: it had lasted for as long as a Lease takes to be stale, all the while
	// most nodes were heard. It may lie in the future. Zero: it does not count.
	SilentSince providers.Instant
	// Beat is when this process last saw the Lease change; zero: never. The first sight of a Lease is no change.
	Beat providers.Instant
	// Alive is when this process last saw a sign of life: a heartbeat, or that the Node became Ready, or has another boot
	// id or UID than before; zero: never. What it sees first is no sign.
	Alive providers.Instant
	// Busy names the other nodes whose machines are being powered off, or whose fences after that are not done, if they are as many as
	// may be at once; else "".
	Busy     string
	Storm    Storm
	OddLease bool // the Lease names a duration out of bounds: DefaultDuration is taken
}

// Source is what makes a node suspect, from a closed set: its own Ready, its Lease, or a hint. It is a label of a metric.
type Source string

// The sources. The first two the fleet sees itself; the others are those of hints.
const (
	Ready         Source = "ready"        // the Node does not say Ready
	Lease         Source = "lease"        // it missed two renewals
	Push          Source = "push"         // a device told by itself
	Line          Source = "line"         // the connection to the node broke, and cannot be made again
	Poll          Source = "poll"         // a device said Off when it was asked without need
	ShutdownTaint Source = "taint"        // a cloud controller manager says so, on the Node
	Confirmation  Source = "confirmation" // a person says so, on the Node
)

// suspicions are the words for hints. Only what a device said may say so.
var suspicions = map[Source]string{
	Push: "MachineWentOff", Poll: "MachineFoundOff", Line: "LineBroke", ShutdownTaint: "ShutdownTaint", Confirmation: "ConfirmedOff",
}

// IsSettled reports whether most nodes have been heard for so long that every silent one among them would be known by
// now. A process that has just begun takes all nodes for heard.
func (v View) IsSettled(now providers.Instant) bool {
	return v.Heard && now.Sub(v.HeardSince) > shareOf(v.Longest, staleAfter)
}

// Suspicion says why the node looks dead, "" if it does not: by itself, by its silence, or by a hint. It only makes us ask. A
// stale Lease counts only while most nodes are heard: otherwise it is the API server, or our own watch, that is silent.
func (v View) Suspicion(l taint.Look) string {
	switch {
	case l.Exists && !l.IsReady():
		return "NotReady"
	case v.Stale && v.Heard:
		return "LeaseStale"
	default:
		return suspicions[v.Hint]
	}
}

// HasOutsideHint reports that somebody beside the device's own answers says that the machine went off: a device that is wrong says it as often as
// it is asked, and a poll is a question.
func (v View) HasOutsideHint() bool { return v.Hint != "" && v.Hint != Poll }

// AllSilent reports that no other node is alive: nobody is fenced then (invariant 7).
func (v View) AllSilent() bool { return v.Fresh == 0 }

// AddNode notes that a Node exists. It may have no Lease at all: its silence is counted from here.
func (f *Fleet) AddNode(name string, now providers.Instant) {
	f.scanIfDue(now)
	if n := f.ensureNode(name, now); !n.exists {
		f.countNode(n, -1)
		n.exists = true
		f.countNode(n, 1)
		f.updateHeard(now)
	}
}

// ApplyLease folds a Lease in, from a watch, a list or a look, in any order, and reports whether it was renewed since. rv "" is none.
// duration is what it says; zero: nothing.
func (f *Fleet) ApplyLease(name, rv string, duration time.Duration, now providers.Instant) bool {
	if rv == "" {
		return false
	}
	f.scanIfDue(now)
	_, before := f.nodes[name]
	n := f.ensureNode(name, now)
	if before && (n.rv == rv || taint.IsOlder(rv, n.rv) && now.Sub(n.at) < catchUp) {
		return false
	}
	if odd := duration != 0 && (duration < MinDuration || duration > MaxDuration); odd != n.odd {
		n.odd = odd
		f.changed = append(f.changed, name)
	}
	if duration == 0 || n.odd {
		duration = DefaultDuration
	}
	if n.rv != "" {
		f.countNode(n, -1) // the first renewal that this process sees makes it one that renews
		n.beat = now
		f.countNode(n, 1)
	}
	if n.since = now; n.at.Age(now) > shareOf(duration, missedAfter) {
		n.since = n.at // it may be of an outage that the node did not outlive
	}
	n.rv, n.at, n.duration = rv, now, duration
	f.longest = max(f.longest, duration)
	f.updateFlags(name, n, now)
	f.updateHeard(now)
	return true
}

// RemoveNode forgets a Node that does not exist any more.
func (f *Fleet) RemoveNode(name string, now providers.Instant) {
	f.scanIfDue(now)
	if n := f.nodes[name]; n != nil {
		f.countNode(n, -1)
		for _, s := range n.scopes {
			if s != nil && s.nodes == 0 {
				delete(f.scopes, s.name)
			}
		}
	}
	delete(f.plane, name)
	delete(f.nodes, name)
	delete(f.turns, name)
	delete(f.distrustRecords, name)
	f.updateHeard(now)
}

// ApplyHint notes that by says of the node's machine that it does not run. A hint proves nothing: it makes us ask. That of a poll does not
// replace another that lasts.
func (f *Fleet) ApplyHint(name string, by Source, now providers.Instant) {
	n := f.ensureNode(name, now)
	n.noteSuspicion(by, now)
	if by != Poll || !n.hasHint(now) {
		n.hint, n.hintBy = now, by
	}
}

// hasHint reports that a hint lasts.
func (n *node) hasHint(now providers.Instant) bool {
	return !n.hint.IsZero() && n.hint.Age(now) <= hintTTL
}

// noteSuspicion notes what makes a node suspect, before that counts, if it is the first since it was well.
func (n *node) noteSuspicion(by Source, now providers.Instant) {
	if n.first == "" || !n.unready && !n.stale && !n.hasHint(now) {
		n.first, n.counted = by, false
	}
}

// FirstSuspicion tells, once since the node was well last, what made it suspect first, and how long ago this process heard its last heartbeat
// (0: it heard none). It is to be called when its devices say Off; "" is nothing to tell.
func (f *Fleet) FirstSuspicion(name string, now providers.Instant) (by Source, silent time.Duration) {
	n := f.nodes[name]
	if n == nil || n.counted || n.first == "" {
		return "", 0
	}
	if n.counted = true; !n.beat.IsZero() {
		silent = now.Sub(n.beat)
	}
	return n.first, silent
}

// ApplyOnAnswer notes when a device said that the node's machine is on: asked for a fence or a poll, or by itself.
func (f *Fleet) ApplyOnAnswer(name string, at providers.Instant) {
	if n := f.nodes[name]; n != nil && at.After(n.on) {
		n.on = at
	}
}

// ApplyAnswer folds an answer in. It ends a hint that is older than an answer of On: the machine was started again, or the hint was wrong.
func (f *Fleet) ApplyAnswer(name string, a providers.Answer) {
	f.ApplyReachability(name, a)
	if n := f.nodes[name]; n != nil && a.State == providers.PowerOn && a.At.After(n.hint) {
		n.hint = providers.Instant{}
	}
}

// ApplyRecord folds in the record that a Node has at that resourceVersion, from a watch or a look, in any order; nil is none. A power-off of
// ours takes its turn until its fence is done, or hangs. A device that lied is not believed until the record is another.
func (f *Fleet) ApplyRecord(name, rv string, r *taint.Record, now providers.Instant) {
	n := f.ensureNode(name, now)
	if taint.IsOlder(rv, n.recordVersion) && now.Sub(n.recordAt) < catchUp || rv == n.recordVersion && n.reserved {
		return
	}
	n.recordVersion, n.recordAt, n.reserved, n.sights = rv, now, false, n.sights.WithRecord(r, now)
	delete(f.turns, name)
	delete(f.distrustRecords, name)
	switch {
	case r.IsOpen() && r.PowerOff && r.Phase == taint.PhasePoweringOff:
		f.setTurn(name, providers.Instant{})
	case r.IsOpen() && r.PowerOff:
		f.setTurn(name, n.sights.InstantOf(r.At, now).Add(turnTTL))
	}
	if len(r.DistrustedDevices()) > 0 {
		if f.distrustRecords == nil {
			f.distrustRecords = map[string]*taint.Record{}
		}
		f.distrustRecords[name] = r
	}
}

// ReserveTurn takes a turn for a node whose power-off is about to be announced, unless others have all there are: nodes that are decided on
// at the same moment cannot all announce. The next record of the node confirms it or gives it back, or ReleaseTurn does.
func (f *Fleet) ReserveTurn(name string, now providers.Instant) bool {
	if _, others := f.busyNodes(name, now); others != "" {
		return false
	}
	f.ensureNode(name, now).reserved = true
	f.setTurn(name, providers.Instant{})
	return true
}

// ReleaseTurn gives a turn back that was taken by ReserveTurn and not used.
func (f *Fleet) ReleaseTurn(name string) {
	if n := f.nodes[name]; n != nil && n.reserved {
		n.reserved = false
		delete(f.turns, name)
	}
}

// DistrustingNode returns the node whose record tells that the machine's device said Off while it was on, "" if there is none; of is the
// node that is led to the machine. A person ends that with forcefence release.
func (f *Fleet) DistrustingNode(m taint.Machine, device, of string) string {
	for _, name := range slices.Sorted(maps.Keys(f.distrustRecords)) { // seldom one
		if f.distrustRecords[name].DistrustsDevice(m, device, name == of) {
			return name
		}
	}
	return ""
}

// Tick compares the Leases with the clock and returns the nodes that turned stale or fresh since the last call, or whose Lease turned
// odd. It costs next to nothing before the first of them is due.
func (f *Fleet) Tick(now providers.Instant) []string {
	f.scanIfDue(now)
	t := f.changed
	f.changed = nil
	return t
}

// View says what is known of a node now.
func (f *Fleet) View(name string, now providers.Instant) View {
	f.scanIfDue(now)
	v := View{Others: f.known, Fresh: f.fresh}
	n := f.nodes[name]
	if n != nil {
		f.updateFlags(name, n, now)
		f.updateHeard(now)
		v.Fresh = f.fresh
		if n.exists {
			v.Others--
			if !n.stale {
				v.Fresh--
			}
		}
		v.Stale, v.Missed = n.stale, now.Sub(n.at) > shareOf(n.duration, missedAfter)
		v.OddLease, v.Beat, v.Alive = n.odd, n.beat, n.beat
		if n.alive.After(n.beat) {
			v.Alive = n.alive
		}
		v.OnAt = n.on
		if n.hasHint(now) {
			v.Hint, v.HintAt = n.hintBy, n.hint
		}
		if n.stale && !f.heardSince.IsZero() {
			from := n.at
			if f.heardSince.After(from) {
				from = f.heardSince
			}
			v.SilentSince = from.Add(shareOf(n.duration, staleAfter))
		}
	}
	v.Heard, v.HeardSince, v.Longest = !f.heardSince.IsZero(), f.heardSince, f.longest
	v.Storm = f.stormOf(name, n, now)
	v.Storm.PowerOffs, v.Busy = f.busyNodes(name, now)
	return v
}

// IsSilent reports that there are nodes and none is fresh: it is the API server that is silent, or our watch.
func (f *Fleet) IsSilent() bool {
	return f.known > 0 && f.fresh == 0
}

// ensureNode returns the entry of a name, made at its first mention.
func (f *Fleet) ensureNode(name string, now providers.Instant) *node {
	n := f.nodes[name]
	if n == nil {
		if f.nodes == nil {
			f.nodes = map[string]*node{}
		}
		n = &node{name: name, at: now, since: now, duration: DefaultDuration}
		f.nodes[name] = n
		f.scheduleFlags(n, now)
	}
	return n
}

// updateFlags compares a node's Lease with the clocks. Its own silence must have lasted while this process ran. That others are
// heard must be news by both clocks.
func (f *Fleet) updateFlags(name string, n *node, now providers.Instant) {
	stale, missed := now.Sub(n.at) > shareOf(n.duration, staleAfter), n.at.Age(now) > shareOf(n.duration, missedAfter)
	broken := !n.mute.IsZero() && now.Sub(n.mute) > muteTTL
	if stale == n.stale && missed == n.missed && !broken {
		f.scheduleFlags(n, now)
		return
	}
	if stale && !n.stale {
		n.noteSuspicion(Lease, now)
	}
	f.countNode(n, -1)
	before := n.stale
	if n.stale, n.missed = stale, missed; broken {
		n.spoke, n.mute = false, providers.Instant{}
	}
	f.countNode(n, 1)
	f.scheduleFlags(n, now)
	if n.stale != before && n.exists {
		f.changed = append(f.changed, name)
	}
}

// scheduleFlags notes when the clock alone changes a node's flags next.
func (f *Fleet) scheduleFlags(n *node, now providers.Instant) {
	if !n.missed {
		f.scheduleScan(now.Add(shareOf(n.duration, missedAfter) - n.at.Age(now)))
	}
	if !n.stale {
		f.scheduleScan(n.at.Add(shareOf(n.duration, staleAfter)))
	}
	if !n.mute.IsZero() {
		f.scheduleScan(n.mute.Add(muteTTL))
	}
}

func (f *Fleet) scheduleScan(at providers.Instant) {
	if f.due.IsZero() || at.Before(f.due) {
		f.due = at
	}
}

// countNode takes a node out of the counts, or into them.
func (f *Fleet) countNode(n *node, by int) {
	if !n.exists {
		return
	}
	f.known += by
	if !n.stale {
		f.fresh += by
	}
	if !n.missed {
		f.beating += by
	}
	f.all.countNode(n, by)
	for _, s := range n.scopes {
		if s != nil {
			s.countNode(n, by)
		}
	}
}

// updateHeard notes whether most nodes are heard: at least half of all, which for a silent node is most of the others. A node that missed one
// renewal is not: an outage that is too short to make anybody stale would otherwise count against the one whose turn it was. One node
// alone has nobody to compare with.
func (f *Fleet) updateHeard(now providers.Instant) {
	switch heard := f.known > 1 && 2*f.beating >= f.known; {
	case !heard:
		f.heardSince = providers.Instant{}
	case f.heardSince.IsZero():
		f.heardSince = now
	}
}

// scanIfDue scans where a flag may have changed: where the process was stopped, the first heartbeat that it hears must not pass for one among
// many. A clock that was set back is compared with anew.
func (f *Fleet) scanIfDue(now providers.Instant) {
	if f.scanned.IsZero() || now.Before(f.scanned) || f.scanned.Age(now) > f.due.Sub(f.scanned) {
		f.scanNodes(now)
	}
}

func (f *Fleet) scanNodes(now providers.Instant) {
	f.longest = 0
	f.scanned, f.due = now, now.Add(muteTTL/2) // a device falls silent between scans: one of them sees it before its time is over
	for name, n := range f.nodes {
		f.updateFlags(name, n, now)
		f.longest = max(f.longest, n.duration)
	}
	f.updateHeard(now)
}

func (f *Fleet) setTurn(name string, ends providers.Instant) {
	if f.turns == nil {
		f.turns = map[string]providers.Instant{}
	}
	f.turns[name] = ends
}

// busyNodes counts the other nodes that have a turn, and names them if those are all there are.
func (f *Fleet) busyNodes(name string, now providers.Instant) (n int, names string) {
	var few []string // the first of them, by name
	for other := range f.turns {
		if other == name || !f.hasTurn(other, now) {
			continue
		}
		n++
		if i, _ := slices.BinarySearch(few, other); i < turnsNamed {
			few = slices.Insert(few, i, other)[:min(len(few)+1, turnsNamed)]
		}
	}
	if n < f.maxTurns() {
		return n, ""
	}
	names = strings.Join(few, ", ")
	if more := n - len(few); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return n, names
}

// turnsNamed is how many of those that have a turn are named.
const turnsNamed = 3

// maxTurns is how many may have a turn.
func (f *Fleet) maxTurns() int { return max(f.limits().MaxPowerOffs.atMost(f.known), 1) }

func shareOf(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }
