package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// Kind is what happened, from the closed set that timeline.json may hold.
type Kind string

// The events of a round, in the order of a round in which nothing comes in between.
const (
	PowerLost           Kind = "power_lost"
	OffSeen             Kind = "off_seen"
	Marked              Kind = "marked"
	Confirmed           Kind = "confirmed"
	Evicting            Kind = "evicting"
	Tombstoned          Kind = "tombstoned"
	VolumesCleared      Kind = "volumes_cleared"
	PodsDeleted         Kind = "pods_deleted"
	Detached            Kind = "detached"
	MarkRemoved         Kind = "mark_removed"
	ReplacementsRunning Kind = "replacements_running"
)

// Event is one line of timeline.json.
type Event struct {
	Millis int64  `json:"t_ms"` // since the round's beginning: its power cut, or in round 2 the last heartbeat
	Round  int    `json:"round"`
	Kind   Kind   `json:"event"`
	Node   string `json:"node"`
	Detail string `json:"detail"`
}

func (e Event) at() time.Duration { return time.Duration(e.Millis) * time.Millisecond }

// Log is what the timeline reads of a line of forcefence's JSON log.
type Log struct {
	Time  time.Time `json:"time"`
	Msg   string    `json:"msg"`
	Node  string    `json:"node"`
	Why   string    `json:"why"`
	State string    `json:"state"`
	Raw   string    `json:"raw"`
	Pods  int       `json:"pods"`
}

// Victim is a pod that the round's node has at the beginning and that is to be moved, with the VolumeAttachments that
// it uses.
type Victim struct {
	Name        string
	UID         types.UID
	Attachments []types.UID
}

// Round turns what is seen of one node into the round's events. What is seen arrives from several watches, each with
// the time it was seen, and in any order between the watches; nothing is made up, and nothing from before Begin counts.
// It is safe for concurrent use; tell and note are called with its lock held.
type Round struct {
	number int
	node   string
	key    string                              // the mark's
	device string                              // the word for what answers: "BMC"
	tell   func(Event)                         // each event, once it is known
	note   func(at time.Duration, text string) // what is worth a line and no event

	mu      sync.Mutex // guards the rest
	zero    time.Time  // zero: not begun
	events  []Event
	has     map[Kind]bool
	changed chan struct{} // closed and replaced with every event

	victims  map[types.UID]*victim
	volumes  map[types.UID]types.UID // VolumeAttachment, while it is there -> victim
	lastPod  time.Time               // when the last tombstoned pod was seen to go
	lastVol  time.Time               // the same for attachments of tombstoned pods
	detached int                     // how many of those are gone
	tombs    int
	lastTomb time.Time
	first    chan struct{} // closed with the first tombstone
	ended    int           // what forcefence says of them
	over     bool          // no more tombstones come

	bootID  string
	booted  bool // again since the beginning
	inUse   int  // entries of volumesInUse at the beginning
	phase   taint.Phase
	notSeen bool // NotReady was noted
	ready   bool
	held    map[types.UID]bool
}

type victim struct {
	name             string
	tombstoned, gone bool
}

// NewRound describes a round before it begins. node is the Node as it is then.
func NewRound(number int, node *corev1.Node, key, device string, victims []Victim, tell func(Event),
	note func(time.Duration, string)) *Round {
	r := &Round{
		number: number, node: node.Name, key: key, device: device, tell: tell, note: note, has: map[Kind]bool{},
		changed: make(chan struct{}),
		victims: map[types.UID]*victim{}, volumes: map[types.UID]types.UID{}, first: make(chan struct{}),
		held:   map[types.UID]bool{},
		bootID: node.Status.NodeInfo.BootID, inUse: len(node.Status.VolumesInUse), ready: true,
	}
	for _, v := range victims {
		r.victims[v.UID] = &victim{name: v.Name}
		for _, a := range v.Attachments {
			r.volumes[a] = v.UID
		}
	}
	return r
}

// Begin sets the time from which everything counts.
func (r *Round) Begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.zero.IsZero() {
		r.zero = at
	}
}

// Power reports that the machine lost or got its power.
func (r *Round) Power(at time.Time, on bool, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.early(at):
	case on:
		r.note(at.Sub(r.zero), detail)
	default:
		r.add(PowerLost, at, detail)
	}
}

// Log folds in a line of forcefence's log.
func (r *Round) Log(l Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Node != r.node || r.early(l.Time) {
		return
	}
	switch l.Msg {
	case "Machine answered":
		if l.State == "Off" {
			r.add(OffSeen, l.Time, fmt.Sprintf("the %s answers %q", r.device, l.Raw))
		}
	case "Device reports that the machine does not run":
		r.note(l.Time.Sub(r.zero), fmt.Sprintf("an event of the %s: %q; forcefence asks at once", r.device, l.Raw))
	case "Ended pods":
		r.ended += l.Pods
		r.settle(false)
	case "Deleted pods":
		r.settle(true)
	case "Spared pods":
		r.note(l.Time.Sub(r.zero), fmt.Sprintf("forcefence spares the %d pods that it has not ended", l.Pods))
	case "Decided":
		switch l.Why {
		case string(reason.ProvenOff):
			r.add(OffSeen, l.Time, fmt.Sprintf("the %s answers Off", r.device))
		case string(reason.Confirmed):
			r.add(Confirmed, l.Time, "asked again after the mark: still Off")
		case string(reason.Returned):
			r.settle(true)
		case string(reason.Sparing):
			r.note(l.Time.Sub(r.zero), "forcefence sees that the node is back: no more pods are ended")
			r.settle(true)
		case string(reason.WaitingDetach):
			r.settle(true)
		}
	}
}

// Node folds in the Node as it is now.
func (r *Round) Node(at time.Time, n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.Name != r.node || r.early(at) {
		return
	}
	ready := isTrue(n, corev1.NodeReady)
	r.booted = r.booted || n.Status.NodeInfo.BootID != r.bootID
	switch {
	case !ready && !r.notSeen:
		r.notSeen = true
		if c := condition(n, corev1.NodeReady); c != nil && c.Reason == "MachinePoweredOff" {
			r.note(at.Sub(r.zero), "nobody else has noticed yet: forcefence sets the node's Ready to Unknown")
		} else {
			r.note(at.Sub(r.zero), "Kubernetes notices: the node is NotReady")
		}
	case ready && !r.ready && r.booted:
		r.note(at.Sub(r.zero), "the node is back and Ready, with a new boot id")
	}
	r.ready = ready

	if _, marked := taint.FindMark(n, r.key, ""); marked && !r.has[Marked] {
		r.add(Marked, at, "taint "+r.key)
	} else if !marked && r.has[Marked] && !r.has[MarkRemoved] {
		r.unmarked(at, n)
	}
	rec, err := taint.RecordOf(n)
	if err != nil || rec == nil {
		return
	}
	if rec.Phase != r.phase {
		r.phase = rec.Phase
		switch rec.Phase {
		case taint.PhasePoweringOff:
			r.note(at.Sub(r.zero), fmt.Sprintf("forcefence writes down that it will power the machine off, then asks "+
				"the %s to", r.device))
		case taint.PhaseEvicting:
			r.add(Evicting, at, fmt.Sprintf("%d pods to move", len(r.victims)))
		}
	}
	if r.has[Evicting] && !r.booted && r.inUse > 0 && len(n.Status.VolumesInUse) == 0 {
		r.add(VolumesCleared, at, fmt.Sprintf("%d volumes no longer count as in use", r.inUse))
	}
}

// unmarked notes the mark's end. A fence that ended before it touched a pod may be followed by another.
func (r *Round) unmarked(at time.Time, n *corev1.Node) {
	result := taint.Result("?")
	if rec, err := taint.RecordOf(n); err == nil && rec != nil {
		result = rec.Result
	}
	r.settle(true)
	r.add(MarkRemoved, at, "result "+string(result))
	if result == taint.ResultLifted {
		for _, k := range []Kind{OffSeen, Marked, Confirmed, MarkRemoved} {
			delete(r.has, k)
		}
	}
}

// Pod folds in a pod as it is now, or as it last was.
func (r *Round) Pod(at time.Time, p *corev1.Pod, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.victims[p.UID]
	if v == nil || r.early(at) {
		return
	}
	if taint.IsTombstone(p) && !v.tombstoned {
		v.tombstoned, r.lastTomb = true, at
		if r.tombs++; r.tombs == 1 {
			close(r.first)
		}
	}
	if deleted && !v.gone {
		v.gone = true
		if v.tombstoned {
			r.lastPod = at
		}
	}
	r.settle(false)
}

// Attachment folds in that a VolumeAttachment is gone.
func (r *Round) Attachment(at time.Time, va *storagev1.VolumeAttachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, ours := r.volumes[va.UID]
	if !ours || r.early(at) {
		return
	}
	delete(r.volumes, va.UID)
	if r.victims[pod].tombstoned {
		r.lastVol = at
		r.detached++
	}
	r.settle(false)
}

// Held folds in that a pod on the node was not let start.
func (r *Round) Held(at time.Time, pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early(at) || r.victims[pod] == nil {
		return
	}
	r.held[pod] = true
}

// HeldPods is the number of pods that were held so far and not ended.
func (r *Round) HeldPods() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for uid := range r.held {
		if !r.victims[uid].tombstoned {
			n++
		}
	}
	return n
}

// Replaced reports that all that was on the node runs again, each exactly once.
func (r *Round) Replaced(at time.Time, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(ReplacementsRunning, at, detail)
}

// Note puts a line into the story.
func (r *Round) Note(at time.Time, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.early(at) {
		r.note(at.Sub(r.zero), text)
	}
}

// FirstTombstone is closed once a pod was ended.
func (r *Round) FirstTombstone() <-chan struct{} { return r.first }

// Tombstones is the number of pods that were ended so far.
func (r *Round) Tombstones() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tombs
}

// settle reports what is complete by now: all pods ended, all ended pods gone, all their volumes detached. While more
// pods may be ended nothing of it is known.
func (r *Round) settle(over bool) { // with mu held
	r.over = r.over || over || r.tombs == len(r.victims) ||
		r.booted && r.ended > 0 && r.tombs >= r.ended // the node is back: what was under way has landed
	if !r.over || r.tombs == 0 {
		return
	}
	r.add(Tombstoned, r.lastTomb,
		fmt.Sprintf("%d of %d pods are ended in the API: no kubelet starts them again", r.tombs, len(r.victims)))
	for _, v := range r.victims {
		if v.tombstoned && !v.gone {
			return
		}
	}
	r.add(PodsDeleted, r.lastPod, fmt.Sprintf("%d pods are gone from the API", r.tombs))
	for _, pod := range r.volumes {
		if r.victims[pod].tombstoned {
			return
		}
	}
	if r.detached > 0 {
		r.add(Detached, r.lastVol, fmt.Sprintf("their %d volumes are detached from %s", r.detached, r.node))
	}
}

func (r *Round) early(at time.Time) bool { return r.zero.IsZero() || at.Before(r.zero) } // with mu held

func (r *Round) add(k Kind, at time.Time, detail string) { // with mu held
	if r.has[k] {
		return
	}
	r.has[k] = true
	e := Event{Millis: at.Sub(r.zero).Milliseconds(), Round: r.number, Kind: k, Node: r.node, Detail: detail}
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
	r.tell(e)
}

// Events so far, in the order they happened.
func (r *Round) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.events)
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Compare(a.Millis, b.Millis) })
	return out
}

// When returns the last time an event happened, and whether it did.
func (r *Round) When(k Kind) (time.Duration, bool) {
	events := r.Events()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == k {
			return events[i].at(), true
		}
	}
	return 0, false
}

// wait returns a channel that is closed when something changed, and whether the event happened already.
func (r *Round) wait(k Kind) (changed <-chan struct{}, happened bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed, r.has[k]
}

// writeTimeline writes the events of all rounds so far.
func writeTimeline(file string, events []Event) error {
	if events == nil {
		events = []Event{} // a list in any case
	}
	b, err := json.MarshalIndent(events, "", "  ")
	if err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// condition returns the Node's condition of that type, nil if there is none.
func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

func isTrue(n *corev1.Node, t corev1.NodeConditionType) bool {
	c := condition(n, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// poweredOnNotReady reports forcefence's condition: the node does not answer, and its machine is on.
func poweredOnNotReady(n *corev1.Node) bool { return isTrue(n, taint.PoweredOnCondition) }
