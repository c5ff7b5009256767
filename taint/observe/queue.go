package observe

import (
	"sync"
	"time"
)

// queueFor is how long Events may wait for the pod writes that are under way, on any node (F37). Those of ended pods wait
// for the fence's end, too. A hundred of them would otherwise compete at the API server with what they tell of: the
// deletions, the detaching and the replacements' start. A process that ends before that has reported the fence on the Node,
// and sends no Events about its pods.
const queueFor = 10 * time.Second

// queueEvery is how often the queue looks for what may be sent.
const queueEvery = 250 * time.Millisecond

// queue keeps Events until the pod writes that they tell of are done. It sends them in their order.
type queue struct {
	now     func() time.Time
	writing func() bool

	mu      sync.Mutex // guards what follows; held while sending, which keeps the order
	waiting []queued
}

// queued is an Event, or several of pods, that wait.
type queued struct {
	node  string
	pods  bool // they are about pods, and wait for the fence's end
	since time.Time
	ready bool // what it waited for is over on its node
	send  func()
}

// add takes an Event of a node in.
func (q *queue) add(node string, pods bool, send func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, queued{node: node, pods: pods, since: q.now(), send: send})
}

// release lets the Events of a node go once no pods are written anywhere: those about the Node, or all of them.
func (q *queue) release(node string, all bool) {
	q.mu.Lock()
	for i := range q.waiting {
		if e := &q.waiting[i]; e.node == node && (all || !e.pods) {
			e.ready = true
		}
	}
	q.mu.Unlock()
	q.send()
}

// drop sends all Events of a node that is gone.
func (q *queue) drop(node string) {
	q.sendIf(func(e queued) bool { return e.node == node })
}

// send sends what may be sent: what is ready while no pods are written, and what is old.
func (q *queue) send() {
	now, writing := q.now(), q.writing()
	q.sendIf(func(e queued) bool { return e.ready && !writing || now.Sub(e.since) >= queueFor })
}

func (q *queue) sendIf(may func(queued) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var wait []queued
	for _, e := range q.waiting {
		if may(e) {
			e.send()
		} else {
			wait = append(wait, e)
		}
	}
	q.waiting = wait
}
