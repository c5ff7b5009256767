package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Run is a pod whose containers run on a node: what really happens there, even if the API server says otherwise.
type Run struct {
	Node, Namespace, Name string
	UID                   types.UID
	Identity              string   // namespace/name of a StatefulSet's pod, "" for others
	Volumes               []string // handles of the single-writer volumes it writes
	Since                 time.Time
}

// ViolationKind says what happened twice.
type ViolationKind string

// What a Ledger notes.
const (
	TwoPods     ViolationKind = "two pods of one StatefulSet identity" // invariant 10
	TwoWriters  ViolationKind = "two nodes write one volume"           // invariant 10
	TwoAttached ViolationKind = "volume attached to two nodes"         // harmless by itself: real storage may refuse it
)

// Violation is one moment at which something ran, or was attached, twice.
type Violation struct {
	At    time.Time
	Kind  ViolationKind
	What  string   // the identity or the volume's handle
	Nodes []string // the one that was first, the one that came on top
	UIDs  []types.UID
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s on %v %v", v.Kind, v.What, v.Nodes, v.UIDs)
}

// SpanKind says what held during a Span.
type SpanKind string

// What a Ledger keeps if Options.KeepSpans is set.
const (
	SpanRun      SpanKind = "run"      // of the pod that What names by namespace/name
	SpanUse      SpanKind = "use"      // of the single-writer volume with the handle What, by that pod
	SpanAttached SpanKind = "attached" // of such a volume, in the attacher's eyes
	SpanPower    SpanKind = "power"    // of the machine
	SpanRenewal  SpanKind = "renewal"  // of the node's Lease: a moment
)

// Span is what held on a node from one moment to another. A zero To: it still does.
type Span struct {
	Kind       SpanKind
	Node, What string
	UID        types.UID // of the pod
	From, To   time.Time
}

// Ledger notes at every start of a container and every attach whether the same runs, or is attached, elsewhere. It sees
// the simulated machines themselves, so nothing that the API server believes can hide a second copy. It is safe for
// concurrent use.
type Ledger struct {
	mu         sync.Mutex // guards the rest
	runs       map[runKey]Run
	byIdentity map[string]map[runKey]Run
	byVolume   map[string]map[runKey]Run
	attached   map[string]map[string]bool // handle -> nodes
	violations []Violation
	keepSpans  bool
	spans      []Span // since the last CutSpans, in order of From
}

// runKey has the node: a node that believes a stale list runs the very pod that runs elsewhere.
type runKey struct {
	node string
	uid  types.UID
}

func newLedger() *Ledger {
	return &Ledger{
		runs: map[runKey]Run{}, byIdentity: map[string]map[runKey]Run{}, byVolume: map[string]map[runKey]Run{},
		attached: map[string]map[string]bool{},
	}
}

// Violations of all kinds so far, or of the given ones.
func (l *Ledger) Violations(kinds ...ViolationKind) []Violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Violation
	for _, v := range l.violations {
		if len(kinds) == 0 || slices.Contains(kinds, v.Kind) {
			out = append(out, v)
		}
	}
	return out
}

// Running is what runs now on all nodes, sorted by namespace, name and node.
func (l *Ledger) Running() []Run { return l.running("") }

func (l *Ledger) running(node string) []Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Run
	for _, r := range l.runs {
		if node == "" || r.Node == node {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.UID, b.UID))
	})
	return out
}

// CutSpans returns the spans that have ended or begun since the last call. Those that are open come again with the
// next.
func (l *Ledger) CutSpans() []Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := l.spans
	l.spans = slices.DeleteFunc(slices.Clone(cut), func(s Span) bool { return !s.To.IsZero() })
	return cut
}

func (l *Ledger) beginSpan(s Span) { // with mu held
	if s.From = time.Now(); l.keepSpans {
		l.spans = append(l.spans, s)
	}
}

// endSpans ends the open ones that match.
func (l *Ledger) endSpans(match func(Span) bool) { // with mu held
	now := time.Now()
	for i := range l.spans {
		if s := &l.spans[i]; s.To.IsZero() && match(*s) {
			s.To = now
		}
	}
}

func (l *Ledger) powerOn(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginSpan(Span{Kind: SpanPower, Node: node})
}

func (l *Ledger) renew(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginSpan(Span{Kind: SpanRenewal, Node: node, To: time.Now()})
}

func (l *Ledger) start(r Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := runKey{r.Node, r.UID}
	if r.Identity != "" {
		for _, other := range l.byIdentity[r.Identity] {
			l.note(TwoPods, r.Identity, other, r)
		}
		put(l.byIdentity, r.Identity, k, r)
	}
	for _, v := range r.Volumes {
		for _, other := range l.byVolume[v] {
			if other.Node != r.Node { // ReadWriteOnce lets the pods of one node share
				l.note(TwoWriters, v, other, r)
			}
		}
		put(l.byVolume, v, k, r)
		l.beginSpan(Span{Kind: SpanUse, Node: r.Node, What: v, UID: r.UID})
	}
	l.runs[k] = r
	l.beginSpan(Span{Kind: SpanRun, Node: r.Node, What: r.Namespace + "/" + r.Name, UID: r.UID})
}

func (l *Ledger) stop(node string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(runKey{node, uid})
}

func (l *Ledger) powerOff(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.runs {
		if k.node == node {
			l.end(k)
		}
	}
	l.endSpans(func(s Span) bool { return s.Kind == SpanPower && s.Node == node })
}

func (l *Ledger) end(k runKey) { // with mu held
	r := l.runs[k]
	delete(l.runs, k)
	l.endSpans(func(s Span) bool { return s.UID == k.uid && s.Node == k.node })
	take(l.byIdentity, r.Identity, k)
	for _, v := range r.Volumes {
		take(l.byVolume, v, k)
	}
}

func (l *Ledger) attach(handle, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.attached[handle] {
		if other != node {
			l.note(TwoAttached, handle, Run{Node: other}, Run{Node: node})
		}
	}
	if !l.attached[handle][node] {
		l.beginSpan(Span{Kind: SpanAttached, Node: node, What: handle})
	}
	put(l.attached, handle, node, true)
}

func (l *Ledger) detach(handle, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	take(l.attached, handle, node)
	l.endSpans(func(s Span) bool { return s.Kind == SpanAttached && s.Node == node && s.What == handle })
}

func (l *Ledger) note(kind ViolationKind, what string, first, second Run) { // with mu held
	v := Violation{At: time.Now(), Kind: kind, What: what, Nodes: []string{first.Node, second.Node}}
	if first.UID != "" {
		v.UIDs = []types.UID{first.UID, second.UID}
	}
	l.violations = append(l.violations, v)
}

func put[K1, K2 comparable, V any](m map[K1]map[K2]V, k1 K1, k2 K2, v V) {
	if m[k1] == nil {
		m[k1] = map[K2]V{}
	}
	m[k1][k2] = v
}

func take[K1, K2 comparable, V any](m map[K1]map[K2]V, k1 K1, k2 K2) {
	delete(m[k1], k2)
	if len(m[k1]) == 0 {
		delete(m, k1)
	}
}
