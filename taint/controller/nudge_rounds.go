package controller

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// A kubelet retries a pod that the node's hook holds after 10 to 15 s. When the reason for holding it is gone, a
// changed annotation makes the kubelet try at once (kubernetes 1.36: pkg/kubelet/config treats changed annotations as
// an update of the pod, and an update wakes the pod's worker out of its back-off). Nudging helps and proves nothing: a
// pod that it misses starts by itself a little later, and nothing waits for it. So a process that becomes leader in the
// middle does not continue the rounds of the one before.

// nudgeAfter are the rounds, from the moment a node opened. The hook's own watch may report the opening only after the
// first.
var nudgeAfter = [...]time.Duration{0, time.Second, 3 * time.Second}

// nudgeState is what is remembered of a node for its held pods. It is pure: looks go in, due rounds come out.
type nudgeState struct {
	known  bool   // a look was applied; without one it is unknown what changed
	rv     string // of the last look
	boot   string
	ready  bool
	marked bool   // and the mark holds all
	waits  string // the claims whose pods alone it holds

	opened  time.Time // when the node last opened
	round   int       // the next of nudgeAfter
	pending bool      // that round is to come
	fresh   bool      // it opened because its kubelet came: pods' statuses may be those of before
}

// observeLook applies a look. A node is open when the hook lets ordinary pods start: it is Ready, and not marked, or
// its mark waits for volumes alone. Held pods are nudged when it opens, and when it is open and on another boot, or
// waits for other volumes. A node without a hook holds nothing.
func (n *nudgeState) observeLook(l taint.Look, status corev1.ConditionStatus, now time.Time) {
	if n.known && taint.IsOlder(l.ResourceVersion, n.rv) {
		return // the cache is older than a live look
	}
	was := *n
	n.known, n.rv, n.boot, n.ready, n.waits = true, l.ResourceVersion, l.BootID, l.IsReady(),
		strings.Join(l.DetachingClaims(), " ")
	n.marked = l.Mark != nil && n.waits == ""
	switch {
	case n.marked || !n.ready || status != corev1.ConditionTrue:
		n.pending = false
	case !was.known:
	case was.marked || !was.ready || was.boot != n.boot || was.waits != n.waits:
		n.opened, n.round, n.pending, n.fresh = now, 0, true, !was.ready || was.boot != n.boot
	}
}

// nextRound returns how long until the next round, and whether there is one.
func (n *nudgeState) nextRound(now time.Time) (time.Duration, bool) {
	if !n.pending {
		return 0, false
	}
	return max(0, n.opened.Add(nudgeAfter[n.round]).Sub(now)), true
}

// endRound ends a round that found that many held pods. There is a next one until none is held. After a boot an empty
// first round proves nothing, since a kubelet may be Ready before it has written the statuses of all its pods.
func (n *nudgeState) endRound(held int) {
	n.pending = n.round+1 < len(nudgeAfter) && (held > 0 || n.fresh && n.round == 0)
	n.round++
}
