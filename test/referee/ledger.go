package main

import (
	"sync"
	"time"
)

// span is what held on a node from one moment to another; a zero To: it still does.
type span struct {
	Node, What string // a StatefulSet's pod (namespace/name), a pod's UID, or a volume
	UID        string
	From, To   time.Time
}

// ledger is the machines' own account. Safe for concurrent use.
type ledger struct {
	mu       sync.Mutex // guards all
	runs     []span     // containers of pods
	mounts   []span     // volumes in use
	attached []span     // volumes attached, by the storage's own account
	alive    []span     // machines with power
	beats    []span     // of no length: renewals of Leases
}

func (l *ledger) begin(list *[]span, s span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.From = time.Now()
	*list = append(*list, s)
}

// end ends what is open of a node, and of what if it is not empty.
func (l *ledger) end(list *[]span, node, what, uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(list, node, what, uid)
}

func (l *ledger) endLocked(list *[]span, node, what, uid string) {
	now := time.Now()
	for i := range *list {
		s := &(*list)[i]
		if s.Node == node && s.To.IsZero() && (what == "" || s.What == what) && (uid == "" || s.UID == uid) {
			s.To = now
		}
	}
}

// powerOff ends all that runs on a machine, at one moment.
func (l *ledger) powerOff(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range []*[]span{&l.runs, &l.mounts, &l.alive} {
		l.endLocked(list, node, "", "")
	}
}

// running is how many runs of a pod's name are open.
func (l *ledger) running(what string) (n int, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.runs {
		if s.What == what && s.To.IsZero() {
			n, node = n+1, s.Node
		}
	}
	return n, node
}

// cut hands over the account and begins a new one with what is still open.
func (l *ledger) cut() (runs, mounts, attached, alive, beats []span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs, mounts, attached, alive, beats = l.runs, l.mounts, l.attached, l.alive, l.beats
	l.runs, l.mounts, l.attached, l.alive, l.beats = open(runs), open(mounts), open(attached), open(alive), nil
	return
}

func open(list []span) (still []span) {
	for _, s := range list {
		if s.To.IsZero() {
			still = append(still, s)
		}
	}
	return still
}
