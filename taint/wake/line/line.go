// Package line keeps one idle TCP connection to each node, and reports when it breaks and cannot be made again. A
// machine that lost its power does not answer, seconds before its kubelet misses a heartbeat. That is a hint and no
// proof: a cut cable looks the same.
//
// It imports the standard library and golang.org/x/sys/unix. It sends no credential and no byte, and reads none: what a
// node sends fills a small buffer of the kernel, and stays there. The kernel probes each connection once a second and
// gives up after about three; then one attempt to connect decides. On Linux one goroutine holds all connections, and
// sleeps while nothing breaks; on other systems there are none.
//
// It guarantees that a node's line is reported as broken once, and not again before its address answered. A refusal is
// an answer, because a kernel sent it. A failure on our own side is not a broken line. A node that never accepted a
// line is not reported. A line goes only to an address that can be another machine's (IsUsable). When Run returns, no
// connection is left.
//
// The node's own kubelet writes the address. A hostile kubelet can make us open a connection to any other machine on
// that one port, and learns from it nothing that it could not try itself. Its only effect is a question about that very
// node.
package line

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Times. The kernel gives up at the third failed probe, three seconds after the last answer and two to three after the
// cut. It checks its time limit only when a probe is due. giveUp is well below three seconds, because by the kernel's
// clock the third may come a tick too early, and the fourth would be next.
const (
	probeEvery = 1 // seconds; the kernel's minimum
	giveUp     = 2500 * time.Millisecond

	connectTimeout      = 250 * time.Millisecond // of an attempt, for a line that was open
	firstConnectTimeout = 2 * time.Second        // of an attempt before that

	stable      = 10 * time.Second // a line that was open for this long is made again at once
	restLeast   = 500 * time.Millisecond
	restMost    = 15 * time.Second
	restOfNever = 5 * time.Minute
)

// maxAttempts is how many lines that were never open may be attempted at the same time.
const maxAttempts = 128

// spareFDs is how many file descriptors stay free for the rest of the process.
const spareFDs = 512

// Node is a node that is to have a line.
type Node struct {
	Name    string
	Address netip.Addr
}

// State is the state of a line, from a closed set.
type State string

// The states.
const (
	Open    State = "open"
	Broken  State = "broken"   // it was open, and is no longer
	Never   State = "never"    // the node has not accepted it so far
	LeftOut State = "left_out" // there are not enough file descriptors
)

// Options are the options of New.
type Options struct {
	Log *slog.Logger
	// OnBreak is called with a node whose line broke and cannot be made again. It must not block.
	OnBreak func(node string)
	// loopback allows addresses of this machine: for tests.
	loopback bool
}

// Lines are the connections to all nodes. Make them with New.
type Lines struct {
	Options

	mu     sync.Mutex // guards what follows
	wake   func()     // ends the sleep of Run; nil: it does not run
	port   uint16
	want   map[string]netip.Addr
	fresh  bool // port or want changed
	counts map[State]int
}

// New returns Lines to no node yet.
func New(o Options) *Lines { return &Lines{Options: o} }

// IsUsable reports whether an address can be another machine's: not this machine's, not link-local and not multicast.
func IsUsable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() &&
		!a.IsMulticast() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// SetNodes sets the nodes that have lines from now on; port 0 means none. Lines to the same address and port stay. It
// does not block.
func (l *Lines) SetNodes(port uint16, nodes []Node) {
	want := make(map[string]netip.Addr, len(nodes))
	for _, n := range nodes {
		if port != 0 && (IsUsable(n.Address) || l.loopback && n.Address.IsLoopback()) {
			want[n.Name] = n.Address.Unmap()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.port == port && maps.Equal(l.want, want) {
		return
	}
	l.port, l.want, l.fresh = port, want, true
	if l.wake != nil {
		l.wake()
	}
}

// Counts returns how many lines there are in each state. It does not block.
func (l *Lines) Counts() map[State]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// takeWanted returns what is wanted since the last call; ok is false if that did not change.
func (l *Lines) takeWanted() (port uint16, want map[string]netip.Addr, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, l.fresh = l.fresh, false
	return l.port, l.want, ok
}

// limitLines drops the nodes for whose lines there are not enough file descriptors, the last by name, and returns how
// many.
func (l *Lines) limitLines(room int, want map[string]netip.Addr) (kept map[string]netip.Addr, out int) {
	if len(want) <= room {
		return want, 0
	}
	kept = map[string]netip.Addr{}
	for _, name := range slices.Sorted(maps.Keys(want))[:max(room, 0)] {
		kept[name] = want[name]
	}
	out = len(want) - len(kept)
	l.Log.Warn("Not enough file descriptors for a line to each node",
		"nodes", len(want), "leftOut", out, "limit", room+spareFDs, "need", len(want)+spareFDs)
	return kept, out
}

// conn is one node's line.
type conn struct {
	node    string
	address netip.Addr
	state   phase
	fd      int       // -1: none
	due     time.Time // when an attempt is given up, or the next begins
	place   int       // in the queue by due; -1: not there

	wasOpen     bool      // the node accepted it once
	reported    bool      // its break was reported, and there was no answer since
	neverLogged bool      // the log has that the node does not accept it
	opened      time.Time // when it was last accepted
	tries       int       // attempts in a row whose line did not last
}

// phase is what is being done about a line.
type phase uint8

const (
	resting    phase = iota // until due
	attempting              // until due
	open
)

// stateOf returns the line's state in the metric.
func (c *conn) stateOf() State {
	switch {
	case c.state == open:
		return Open
	case c.wasOpen:
		return Broken
	default:
		return Never
	}
}

// outcome is the result of an attempt.
type outcome uint8

const (
	failedLocally outcome = iota // it failed on this side, before anything was sent
	accepted                     // the node accepted
	refused                      // a kernel answered that no process listens
	silent                       // there was no answer
)

// applyOutcome applies the outcome of an attempt and returns what to do: report that the line broke, and, unless it is
// open, how long to rest.
func (c *conn) applyOutcome(o outcome, now time.Time) (report bool, rest time.Duration) {
	switch o {
	case accepted:
		c.state, c.wasOpen, c.reported, c.neverLogged, c.opened = open, true, false, false, now
		return false, 0
	case refused:
		c.reported = false
	case silent:
		report = c.wasOpen && !c.reported
		c.reported = c.reported || report
	}
	return report, c.nextRest()
}

// nextRest returns how long to wait for the next attempt, longer each time.
func (c *conn) nextRest() time.Duration {
	most := restMost
	if !c.wasOpen {
		most = restOfNever
	}
	c.tries++
	return min(restLeast<<min(c.tries-1, 10), most)
}

// noteEnd records that an open line ended, and returns how long to wait before it is made again: zero, except for a
// line that often ends.
func (c *conn) noteEnd(now time.Time) time.Duration {
	if now.Sub(c.opened) >= stable {
		c.tries = 0
		return 0
	}
	if c.tries++; c.tries == 1 {
		return 0
	}
	return min(restLeast<<min(c.tries-2, 10), restMost)
}

// queue is a heap of lines by due.
type queue []*conn

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].place, q[j].place = i, j }
func (q *queue) Push(x any)        { c := x.(*conn); c.place = len(*q); *q = append(*q, c) }
func (q *queue) Pop() any {
	old := *q
	c := old[len(old)-1]
	*q, c.place = old[:len(old)-1], -1
	return c
}
