package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// moment names something that happens once in an outage. The names are keys of the raw data.
type moment string

// Moments of an outage.
const (
	noticed      moment = "noticed" // the device reported an event, or forcefence asked it, the earlier
	off          moment = "off"     // the device answered Off
	marked       moment = "marked"
	firstEnded   moment = "firstEnded" // of the victim's pods
	lastEnded    moment = "lastEnded"
	cleared      moment = "cleared" // the Node's volume lists are empty
	lastGone     moment = "lastGone"
	lastDetached moment = "lastDetached"
	firstRunning moment = "firstRunning" // of the replacements, by Ready
	lastRunning  moment = "lastRunning"
	unmarked     moment = "unmarked"
)

// Moments of one pod and of its replacement.
const (
	ended    moment = "ended"
	gone     moment = "gone"
	created  moment = "created"
	bound    moment = "bound"
	attached moment = "attached" // the last of its volumes, to the replacement's node
	running  moment = "running"
)

// times are when moments were first seen.
type times map[moment]time.Time

// first reports whether the moment was not seen before.
func (t times) first(m moment, now time.Time) bool {
	if _, seen := t[m]; seen {
		return false
	}
	t[m] = now
	return true
}

// phases are the moments of one outage. They belong to a turn, which calls their methods one at a time.
type phases struct {
	victim   string
	node     times
	before   map[types.UID]bool   // the pods of before the outage -> was on the victim
	lost     int                  // of them, those that were
	pods     map[string]times     // by name: the victim's pods and the replacements
	ready    map[types.UID]bool   // the replacements that run
	last     *corev1.Pod          // the last replacement to run
	attached map[string]time.Time // by PersistentVolume: when it was first attached to another node
	reasons  []line               // why forcefence acted or waited
}

func newPhases(victim string, pods []corev1.Pod) *phases {
	s := &phases{victim: victim, node: times{}, before: map[types.UID]bool{}, pods: map[string]times{},
		ready: map[types.UID]bool{}, attached: map[string]time.Time{}}
	for i := range pods {
		p := &pods[i]
		s.before[p.UID] = p.Spec.NodeName == victim && !world.IsControlledBy(p, "DaemonSet")
		if s.before[p.UID] {
			s.lost++
		}
	}
	return s
}

func (s *phases) pod(now time.Time, p *corev1.Pod, deleted bool) {
	wasOnVictim, old := s.before[p.UID]
	if old && !wasOnVictim || world.IsControlledBy(p, "DaemonSet") {
		return
	}
	t := s.pods[p.Name]
	if t == nil {
		t = times{}
		s.pods[p.Name] = t
	}
	ends := deleted || p.DeletionTimestamp != nil || taint.IsTerminal(p)
	if old {
		if ends && t.first(ended, now) {
			s.node.first(firstEnded, now)
			s.node[lastEnded] = now
		}
		if deleted && t.first(gone, now) {
			s.node[lastGone] = now
		}
		return
	}
	t.first(created, now)
	if p.Spec.NodeName != "" {
		t.first(bound, now)
	}
	if ends || !cluster.IsPodReady(p) {
		delete(s.ready, p.UID)
		return
	}
	t.first(running, now)
	s.node.first(firstRunning, now)
	if s.ready[p.UID] = true; len(s.ready) == s.lost && s.node.first(lastRunning, now) {
		s.last = p
	}
}

func (s *phases) attachment(now time.Time, va *storagev1.VolumeAttachment, deleted bool) {
	pv := va.Spec.Source.PersistentVolumeName
	switch {
	case va.Spec.NodeName == s.victim && deleted:
		s.node[lastDetached] = now
	case va.Spec.NodeName != s.victim && va.Status.Attached && pv != nil && s.attached[*pv].IsZero():
		s.attached[*pv] = now
	}
}

func (s *phases) seeNode(now time.Time, n *corev1.Node) {
	_, isMarked := taint.FindMark(n, taint.DefaultKey, "")
	if isMarked {
		s.node.first(marked, now)
	}
	if s.node[marked].IsZero() {
		return
	}
	if !isMarked {
		s.node.first(unmarked, now)
	}
	if len(n.Status.VolumesInUse) == 0 && len(n.Status.VolumesAttached) == 0 {
		s.node.first(cleared, now)
	}
}

func (s *phases) log(l line) {
	switch l.Msg {
	case "Device reports that the machine does not run":
		s.node.first(noticed, l.Time)
	case "Noticed that a machine is off":
		s.node.first(off, l.Time)
	case "Decided":
		s.reasons = append(s.reasons, l)
	case "Recovery waits: the API server answers slowly":
		l.Why = "SlowAPIServer"
		s.reasons = append(s.reasons, l)
	}
}
