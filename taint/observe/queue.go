package observe

import (
	"slices"
	"sync"
	"time"
)

// queueFor is how long Events may wait for the pod writes that are under way, on any node (F37). Events of ended pods
// wait for the fence's end, too. Otherwise a hundred of them would compete at the API server with what they report: the
// deletions, the detaching and the replacements' start. A process that ends before that has reported the fence on the
// Node, and sends no Events about its pods.
const queueFor = 10 * time.Second

// queueEvery is how often the queue checks what may be sent.
const queueEvery = 250 * time.Millisecond

// eventQueue keeps Events until the pod writes that they report are done. It sends those of one node in their order.
type eventQueue struct {
	now     func() time.Time
	writing func() bool

	mu      sync.Mutex // guards what follows; held while sending, which keeps the order
	waiting map[string][]queuedEvent
}

// queuedEvent is a waiting Event, or several about pods.
type queuedEvent struct {
	pods  bool // they are about pods, and wait for the fence's end
	since time.Time
	ready bool // what it waited for is over on its node
	send  func()
}

// addEvent queues an Event of a node.
func (q *eventQueue) addEvent(node string, pods bool, send func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[node] = append(q.waiting[node], queuedEvent{pods: pods, since: q.now(), send: send})
}

// releaseEvents allows the Events of a node to be sent once no pods are written on any node: those about the Node, or
// all of them.
func (q *eventQueue) releaseEvents(node string, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.waiting[node]
	for i := range list {
		list[i].ready = list[i].ready || all || !list[i].pods
	}
	if len(list) > 0 {
		q.sendIf(node, q.dueFilter())
	}
}

// flushNode sends all Events of a node that is gone.
func (q *eventQueue) flushNode(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sendIf(node, func(queuedEvent) bool { return true })
}

// sendDue sends what is due of all nodes.
func (q *eventQueue) sendDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.dueFilter()
	for node := range q.waiting {
		q.sendIf(node, due)
	}
}

// dueFilter returns a filter of the Events that may be sent now: ready ones while no pods are written, and old ones.
func (q *eventQueue) dueFilter() func(queuedEvent) bool {
	now, writing := q.now(), q.writing()
	return func(e queuedEvent) bool { return e.ready && !writing || now.Sub(e.since) >= queueFor }
}

// sendIf sends what may be sent of a node. The caller holds mu.
func (q *eventQueue) sendIf(node string, may func(queuedEvent) bool) {
	q.waiting[node] = slices.DeleteFunc(q.waiting[node], func(e queuedEvent) bool {
		if !may(e) {
			return false
		}
		e.send()
		return true
	})
	if len(q.waiting[node]) == 0 {
		delete(q.waiting, node)
	}
}
