// Package fleet holds what one process remembers across nodes: when each Lease was renewed, which source hinted that a
// machine went off, and which machines are being powered off. From that it answers for one node how silent it is, and
// whether its silence means anything. The cost of an answer does not grow with the number of nodes.
//
// It is pure: it names no client, no clock and no logger; callers pass the time in. It imports the codec and the
// contract. Its methods must not be called concurrently.
//
// It promises: a node's silence counts toward a power-off only while at least half of all nodes are heard. After an
// outage it starts again (invariant 15). No more machines are powered off at the same time than the limits allow, until
// the earlier fences are done. A Lease means nothing without its Node, and its duration is accepted within bounds only.
// The input of the storm guard is in power_off_limits.go: how many nodes are healthy, of all and of each failure domain
// (invariants 6 and 7).
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

// hintTTL is how long a hint keeps the node suspect. By then its Lease is stale, or the hint was wrong.
const hintTTL = 30 * time.Second

// catchUp is how long an informer may deliver versions older than a live read. An older resourceVersion after that
// means that the cluster was restored from a backup.
const catchUp = time.Minute

// turnTTL is how long a fence with a power-off of ours keeps its turn after its machine is off. Then another machine
// may be powered off: a volume that does not detach must not keep other nodes down (invariant 16).
const turnTTL = 5 * time.Minute

// Fleet is what one process knows across nodes. The zero value knows no node.
type Fleet struct {
	nodes      map[string]*node
	known      int               // nodes that exist
	fresh      int               // of these, those whose flags are not stale
	beating    int               // of these, those that missed no renewal
	heardSince providers.Instant // since when at least half of all nodes beat; zero: they do not
	scanned    providers.Instant // when the flags were last compared with the clock
	due        providers.Instant // before this the clock alone changes no flag
	usual      time.Duration     // the longest of the usual Lease durations; zero: to be found out (usualDuration)
	// changed are the nodes whose flag changed since the last Tick, or whose Lease duration left its bounds or returned
	// to them.
	changed []string
	turns   map[string]providers.Instant // nodes with a power-off of ours -> when its turn ends; zero: with its fence
	shutOut map[string]providers.Instant // nodes that storage shuts out -> when their turn ends
	// distrustRecords are keyed by the node whose record says that a device answered Off for a machine that was on.
	distrustRecords map[string]*taint.Record

	byUUID map[string]map[*node]bool // nodes by the system UUID that they report
	limit  *Limits                   // nil: defaults
	all    scope
	scopes map[string]*scope // by name
	plane  map[string]*node  // control-plane nodes
	failed int               // reads of this process that failed in a row
	cut    int               // how many failed in a row when this process was last cut off; 0: it never was
	back   providers.Instant // when that ended
}

type node struct {
	exists  bool
	stale   bool // its flags
	missed  bool
	rv      string
	leaseAt providers.Instant // when this process saw the Lease change: never the node's own clock
	at      providers.Instant // the same of the Lease or the kubelet's status, whichever came last
	since   providers.Instant // no later than when the node sent that heartbeat, which may have been delayed for long
	beat    providers.Instant // as at, but zero after the first sight of a Lease or a status, which is no heartbeat
	status  time.Time         // taint.Look.Heartbeat of the last look; zero: its kubelet wrote none
	added   providers.Instant // when this process first saw the Node
	// empty reports that the Node shows no trace of a kubelet, and that its first minutes are over. Then it counts
	// nowhere: a bootstrap token may register any number of such Nodes.
	empty    bool
	alive    providers.Instant // when it last became Ready, or changed its boot id or UID; zero: never
	duration time.Duration
	odd      bool // its Lease has a duration out of bounds
	hint     providers.Instant
	hintBy   Source
	on       providers.Instant // when a device last answered On; zero: never
	first    Source            // what first made it suspect since it was last well
	counted  bool              // FirstSuspicion reported it

	recordVersion string            // the Node's resourceVersion when its record was last applied
	recordAt      providers.Instant // when that was
	sights        taint.Sightings   // of the record
	reserved      bool              // its power-off is about to be announced on that resourceVersion

	uid          string
	boot         string
	systemUUID   string              // as it reports it, in its canonical form; "": it identifies no machine
	machineUUID  string              // taint.Look.MachineUUID, likewise
	reported     []providers.Instant // when it reported another system UUID, the last maxUUIDs+1 times
	sharers      []string            // other nodes that the configuration leads to this node's machine
	seenVersion  string              // the Node's resourceVersion when it was last applied
	seenAt       providers.Instant
	name         string
	unready      bool     // not Ready
	fenced       bool     // marked, or with an open fence
	etcd         bool     // a control-plane node with the label of an etcd member
	domainValues []string // the values of its domain labels that count
	scopes       []*scope // its domains; nil where it has no such label
	spoke        bool     // its devices answered at least once
	// mute is since when its devices do not answer; zero: they answer, never did, or have been silent for long.
	mute providers.Instant
}

// View is what the fleet knows of one node. The zero value is a silent fleet, in which no node is fenced.
type View struct {
	Stale  bool // the Lease missed two renewals
	Missed bool // the Lease missed one renewal
	// LeaseMissing reports that the Lease alone missed two renewals: the kubelet has written its Node's status since.
	LeaseMissing bool
	// Hint is the source of a hint that the machine went off. It is "" once the hint expired or a device answered On
	// since.
	Hint   Source
	HintAt providers.Instant // when that was; zero without one
	OnAt   providers.Instant // when this process last received an On answer of a device; zero: never
	Others int               // other nodes that exist
	Fresh  int               // of these, how many have a Lease that is not stale
	// Heard reports that at least half of the nodes missed no renewal: a node's silence is its own.
	Heard bool
	// HeardSince is since when Heard has been true without a break, as far as this process knows; zero: it is false.
	HeardSince providers.Instant
	Longest    time.Duration // the longest of the usual Lease durations (usualDuration)
	// SilentSince is when this node's silence began to count: it had lasted until a Lease is stale, while most nodes
	// were heard throughout, and no twin was. It may lie in the future. Zero: it does not count.
	SilentSince providers.Instant
	// Beat is when this process last saw the Lease change; zero: never. The first sight of a Lease is no change.
	Beat providers.Instant
	// Alive is when this process last saw a sign of life: a heartbeat, or a Node that became Ready or changed its boot
	// id or UID. A twin's counts as well. Zero: never. What it sees first is no sign.
	Alive providers.Instant
	// Busy names the other nodes whose machines are being powered off, or whose fences are not done since. It is ""
	// unless they are as many as the limit.
	Busy  string
	Storm Storm
	// Twin is another node that is not silent, and that reports the same system UUID or leads to the same machine; "":
	// none. No device tells then which of the two its answer is about.
	Twin     string
	OddLease bool // the Lease's duration is out of bounds: DefaultDuration applies
	// LongLease is the Lease's duration if it is longer than usual, so that silence is noticed late; zero: it is not.
	LongLease time.Duration
}

// Source is what makes a node suspect, from a closed set: its own Ready, its Lease, or a hint. It is a metric label.
type Source string

// The sources. The fleet observes the first two itself; the others are hints.
const (
	Ready         Source = "ready"        // the Node is not Ready
	Lease         Source = "lease"        // its Lease missed two renewals
	Push          Source = "push"         // a device reported it without being asked
	Line          Source = "line"         // the connection to the node broke, and cannot be made again
	Poll          Source = "poll"         // a device answered Off in a routine poll
	ShutdownTaint Source = "taint"        // a cloud controller manager reports it on the Node
	Confirmation  Source = "confirmation" // a person reports it on the Node
)

// suspicions are the names of hints. Only a device's report may say so.
var suspicions = map[Source]string{
	Push: "MachineWentOff", Poll: "MachineFoundOff", Line: "LineBroke",
	ShutdownTaint: "ShutdownTaint", Confirmation: "ConfirmedOff",
}

// IsSettled reports whether most nodes have been heard long enough for every silent one to be known. A process that
// just started counts all nodes as heard.
func (v View) IsSettled(now providers.Instant) bool {
	return v.Heard && now.Sub(v.HeardSince) > shareOf(v.Longest, staleAfter)
}

// Suspicion returns why the node looks dead: its own condition, its silence, or a hint; "" if it does not. It only
// leads to a question. A stale Lease counts only while most nodes are heard: otherwise the API server, or our own
// watch, is silent.
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

// HasOutsideHint reports whether a source other than a poll hints that the machine went off. A wrong device repeats its
// answer as often as it is asked, and a poll is a question.
func (v View) HasOutsideHint() bool { return v.Hint != "" && v.Hint != Poll }

// AllSilent reports whether no other node is alive: then no node is fenced (invariant 7).
func (v View) AllSilent() bool { return v.Fresh == 0 }

// AddNode notes that a Node exists. It may have no Lease at all: its silence counts from this call.
func (f *Fleet) AddNode(name string, now providers.Instant) {
	f.scanIfDue(now)
	if n := f.ensureNode(name, now); !n.exists {
		f.countNode(n, -1)
		n.exists, f.usual = true, 0
		f.countNode(n, 1)
		f.updateHeard(now)
	}
}

// RemoveNode forgets a Node that no longer exists.
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
	if n := f.nodes[name]; n != nil {
		f.setSystemUUID(n, "", now)
		f.usual = 0
	}
	delete(f.plane, name)
	delete(f.nodes, name)
	delete(f.turns, name)
	delete(f.shutOut, name)
	delete(f.distrustRecords, name)
	f.updateHeard(now)
}

// ApplyHint notes that the source by reports the node's machine as not running. A hint proves nothing; it leads to a
// question. A poll's hint does not replace another that has not expired.
func (f *Fleet) ApplyHint(name string, by Source, now providers.Instant) {
	n := f.ensureNode(name, now)
	n.noteSuspicion(by, now)
	if by != Poll || !n.hasHint(now) {
		n.hint, n.hintBy = now, by
	}
}

// hasHint reports whether a hint has not expired.
func (n *node) hasHint(now providers.Instant) bool {
	return !n.hint.IsZero() && n.hint.Age(now) <= hintTTL
}

// noteSuspicion notes what makes a node suspect, if it is the first cause since the node was well. It is called before
// that cause counts.
func (n *node) noteSuspicion(by Source, now providers.Instant) {
	if n.first == "" || !n.unready && !n.stale && !n.hasHint(now) {
		n.first, n.counted = by, false
	}
}

// FirstSuspicion returns what first made the node suspect, and how long ago this process saw its last heartbeat (0:
// never). It reports once since the node was last well; "" means nothing to report. It is to be called when the node's
// devices answer Off.
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

// ApplyOnAnswer notes when a device answered that the node's machine is on: in a fence, in a poll, or by itself.
func (f *Fleet) ApplyOnAnswer(name string, at providers.Instant) {
	if n := f.nodes[name]; n != nil && at.After(n.on) {
		n.on = at
	}
}

// ApplyAnswer folds an answer in. An On answer ends an older hint: the machine was started again, or the hint was
// wrong.
func (f *Fleet) ApplyAnswer(name string, a providers.Answer) {
	f.ApplyReachability(name, a)
	if n := f.nodes[name]; n != nil && a.State == providers.PowerOn && a.At.After(n.hint) {
		n.hint = providers.Instant{}
	}
}

// ApplyRecord folds in a Node's record at that resourceVersion, from a watch or a look, in any order; nil means none. A
// power-off of ours keeps its turn until its fence is done, or hangs. A device that lied is distrusted until the record
// changes.
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

// ReserveTurn reserves a turn for a node whose power-off is about to be announced, and reports whether one was free. So
// nodes that are decided on at the same moment cannot all announce. The node's next record confirms or releases the
// turn, or ReleaseTurn does.
func (f *Fleet) ReserveTurn(name string, now providers.Instant) bool {
	if _, others := f.busyNodes(name, now); others != "" {
		return false
	}
	f.ensureNode(name, now).reserved = true
	f.setTurn(name, providers.Instant{})
	return true
}

// ReleaseTurn releases a turn that ReserveTurn reserved and that was not used.
func (f *Fleet) ReleaseTurn(name string) {
	if n := f.nodes[name]; n != nil && n.reserved {
		n.reserved = false
		delete(f.turns, name)
	}
}

// ApplyStorageFences folds in whether storage shuts the node out in its present life, or was asked to. As one whose
// machine is powered off, such a node keeps a turn, for turnTTL from when this process first saw it.
func (f *Fleet) ApplyStorageFences(name string, shutOut bool, now providers.Instant) {
	_, known := f.shutOut[name]
	switch {
	case !shutOut:
		delete(f.shutOut, name)
	case !known:
		f.ReleaseTurn(name)
		if f.shutOut == nil {
			f.shutOut = map[string]providers.Instant{}
		}
		f.shutOut[name] = now.Add(turnTTL)
	}
}

// DistrustingNode returns the node whose record says that the machine's device answered Off while it was on; "" if
// there is none. of is the node that the machine is assigned to. A person ends the distrust with forcefence release.
func (f *Fleet) DistrustingNode(m taint.MachineRef, device, of string) string {
	for _, name := range slices.Sorted(maps.Keys(f.distrustRecords)) { // rarely more than one
		if f.distrustRecords[name].DistrustsDevice(m, device, name == of) {
			return name
		}
	}
	return ""
}

// Tick compares the Leases with the clock. It returns the nodes that became stale or fresh since the last call, or
// whose Lease's duration turned odd. It costs almost nothing before the first of them is due.
func (f *Fleet) Tick(now providers.Instant) []string {
	f.scanIfDue(now)
	t := f.changed
	f.changed = nil
	return t
}

// View returns what is known of a node now.
func (f *Fleet) View(name string, now providers.Instant) View {
	f.scanIfDue(now)
	v := View{Others: f.known, Fresh: f.fresh}
	n := f.nodes[name]
	if n != nil {
		f.updateFlags(name, n, now)
		f.updateHeard(now)
		v.Fresh = f.fresh
		if n.exists && !n.empty {
			v.Others--
			if !n.stale {
				v.Fresh--
			}
		}
		v.Stale, v.Missed = n.stale, now.Sub(n.at) > shareOf(n.duration, missedAfter)
		v.LeaseMissing = n.at.After(n.leaseAt) && now.Sub(n.leaseAt) > shareOf(n.duration, staleAfter)
		v.OddLease, v.Beat, v.Alive = n.odd, n.beat, n.beat
		if n.alive.After(n.beat) {
			v.Alive = n.alive
		}
		if v.OnAt = n.on; n.duration > f.usualDuration() {
			v.LongLease = n.duration
		}
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
		v = f.addTwins(v, n, now)
	}
	v.Heard, v.HeardSince, v.Longest = !f.heardSince.IsZero(), f.heardSince, f.usualDuration()
	v.Storm = f.stormOf(name, n, now)
	v.Storm.PowerOffs, v.Busy = f.busyNodes(name, now)
	return v
}

// CountSilent returns how many nodes renew no Lease, and how many nodes exist.
func (f *Fleet) CountSilent(now providers.Instant) (silent, of int) {
	f.scanIfDue(now)
	return f.known - f.fresh, f.known
}

// IsSilent reports whether there are nodes and none is fresh: the API server, or our watch, is silent.
func (f *Fleet) IsSilent() bool {
	return f.known > 0 && f.fresh == 0
}

// ensureNode returns the entry of a name, and creates it at its first mention.
func (f *Fleet) ensureNode(name string, now providers.Instant) *node {
	n := f.nodes[name]
	if n == nil {
		if f.nodes == nil {
			f.nodes = map[string]*node{}
		}
		n = &node{name: name, at: now, leaseAt: now, since: now, added: now, duration: DefaultDuration}
		f.nodes[name] = n
		f.scheduleFlags(n, now)
	}
	return n
}

func (f *Fleet) scheduleScan(at providers.Instant) {
	if f.due.IsZero() || at.Before(f.due) {
		f.due = at
	}
}

// countNode adds a node to the counts (by 1), or removes it (by -1).
func (f *Fleet) countNode(n *node, by int) {
	if !n.exists || n.empty {
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

// updateHeard notes whether most nodes are heard: at least half of all, which for a silent node is most of the others.
// A node that missed one renewal is not heard. Otherwise an outage too short to make any node stale would count against
// the node that was due. A single node has no other to compare with.
func (f *Fleet) updateHeard(now providers.Instant) {
	switch heard := f.known > 1 && 2*f.beating >= f.known; {
	case !heard:
		f.heardSince = providers.Instant{}
	case f.heardSince.IsZero():
		f.heardSince = now
	}
}

// scanIfDue scans if a flag may have changed. After the process was stopped, the first heartbeat must not count as one
// among many. A clock that was set back also causes a scan.
func (f *Fleet) scanIfDue(now providers.Instant) {
	if f.scanned.IsZero() || now.Before(f.scanned) || f.scanned.Age(now) > f.due.Sub(f.scanned) {
		f.scanNodes(now)
	}
}

func (f *Fleet) scanNodes(now providers.Instant) {
	// A device falls silent between scans: one of them sees it before its time is over.
	f.scanned, f.due = now, now.Add(muteTTL/2)
	for name, n := range f.nodes {
		f.updateFlags(name, n, now)
	}
	f.updateHeard(now)
}

func (f *Fleet) setTurn(name string, ends providers.Instant) {
	if f.turns == nil {
		f.turns = map[string]providers.Instant{}
	}
	f.turns[name] = ends
}

// busyNodes counts the other nodes that have a turn, and names them if they have all turns.
func (f *Fleet) busyNodes(name string, now providers.Instant) (n int, names string) {
	var few []string // the first of them, by name
	all := slices.Collect(maps.Keys(f.turns))
	for other := range f.shutOut {
		if _, too := f.turns[other]; !too {
			all = append(all, other)
		}
	}
	for _, other := range all {
		if other == name || !f.hasTurn(other, now) {
			continue
		}
		n++
		i, _ := slices.BinarySearch(few, other)
		few = slices.Insert(few, i, other)[:min(len(few)+1, turnsNamed)]
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

// turnsNamed is how many nodes with a turn are named.
const turnsNamed = 3

// maxTurns returns how many nodes may have a turn.
func (f *Fleet) maxTurns() int { return max(f.limits().MaxPowerOffs.atMost(f.known), 1) }
