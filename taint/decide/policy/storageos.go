package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// StorageUnhealthy is the trigger of StorageOS' fencing controller: the policy's storage system reports that its part
// on the node is not healthy. Such a node gets one spell. Its pods are looked at once, and refused writes are retried
// until Timeout has passed. Then the node is done until its storage was healthy again, or until Expiry has passed since
// the look. Ready does not matter. An unknown health begins no spell and ends none.
//
// A process that becomes leader has seen nothing, so a node with unhealthy storage gets its spell at once. The trigger
// is a state, and not a change that another process may have handled; the pods of a spell that ended are gone.
//
// As in StorageOS' document, the label must be exactly storageos.com/fenced=true, and skipped pods are not retried.
// StorageOS' code takes 1 and True, too, retries skipped pods every five seconds, and then reports a timeout.
const StorageUnhealthy Trigger = "StorageUnhealthy"

// Intervals are those of a policy whose trigger is StorageUnhealthy.
type Intervals struct {
	Poll    time.Duration // how often a node is looked at, in addition to events
	Expiry  time.Duration // how long the known health of a node counts
	Timeout time.Duration // maximum age of a spell in which refused writes are retried
	Retry   time.Duration // between two tries
}

// StorageOSIntervals are the intervals of StorageOS' fencing controller.
var StorageOSIntervals = Intervals{
	Poll:    5 * time.Second,
	Expiry:  time.Hour,
	Timeout: 25 * time.Second,
	Retry:   5 * time.Second,
}

// spell is what one policy remembers of a node's storage.
type spell struct {
	healthy bool              // the last known health
	since   providers.Instant // since when, or since the last look after Expiry
	open    bool              // not done yet
	begun   providers.Instant // when its pods were first looked at; zero: something else went first
}

// freedVolume is a volume of a pod that such a policy ended. detachVolumes handles its attachment; this is for the
// kubelet's list.
type freedVolume struct {
	policy  string
	volume  action.Volume
	boot    string // the node's boot id when the pod was ended
	cleared bool   // it was removed from the list once
}

// ApplyStorage folds in what storage systems report about the node at now, by their adapters' names. It returns whether
// a policy has its turn because of that.
func (m *Memory) ApplyStorage(ps []Policy, says map[string]action.Health, now providers.Instant) (turn bool) {
	spells := map[string]spell{}
	for _, p := range ps {
		if p.When != StorageUnhealthy {
			continue
		}
		s, seen := m.spells[p.Name] // the zero spell expired long ago
		if h := says[p.Storage]; h.Known {
			if s.healthy != h.Healthy || now.Sub(s.since) >= p.Intervals.Expiry {
				s, seen = spell{healthy: h.Healthy, since: now, open: !h.Healthy}, true
			}
			turn = turn || s.open
		}
		if seen {
			spells[p.Name] = s
		}
	}
	m.spells = spells // a View holds the previous map
	m.freedVolumes = slices.DeleteFunc(slices.Clone(m.freedVolumes), func(f freedVolume) bool {
		s, ok := spells[f.policy]
		return !ok || s.healthy
	})
	return turn
}

// mergeBegun returns the spells that begin with these effects, or with those before them.
func (e Effects) mergeBegun(before map[string]providers.Instant) map[string]providers.Instant {
	if before == nil {
		return e.Begun
	}
	maps.Copy(before, e.Begun)
	return before
}

// applySpells folds in which spells a decision begins, and which are done.
func (m *Memory) applySpells(e Effects) {
	for name, at := range e.Begun {
		s := m.spells[name]
		s.begun = at
		m.spells[name] = s
		m.failed = nil
	}
	for _, name := range e.Done {
		if s, ok := m.spells[name]; ok {
			s.open = false
			m.spells[name] = s
		}
	}
}

// applyRefusals folds in what was refused, and which volumes ended pods freed.
func (m *Memory) applyRefusals(a action.Action, e Effects, how map[string]action.WriteResult) {
	tombstone, ending := a.(action.EndPods)
	for uid, why := range how {
		if why != action.Accepted && why != action.Changed {
			if m.failed == nil {
				m.failed = map[string]bool{}
			}
			m.failed[uid] = true
		}
		if ending && why == action.Failed && !e.Policy.Keep { // the answer may have been lost; ApplyPods shows it
			if m.owedDeletes == nil {
				m.owedDeletes = map[string]bool{}
			}
			m.owedDeletes[uid] = true
		}
	}
	if e.Policy.When != StorageUnhealthy {
		return
	}
	for _, pod := range tombstone.Pods {
		if why, tried := how[pod.UID]; !tried || why != action.Accepted {
			continue
		}
		for _, vol := range e.Policy.driverVolumes(pod) {
			known := func(f freedVolume) bool { return f.policy == e.Policy.Name && f.volume.PV == vol.PV }
			if !slices.ContainsFunc(m.freedVolumes, known) {
				m.freedVolumes = append(m.freedVolumes, freedVolume{policy: e.Policy.Name, volume: vol, boot: m.boot})
			}
		}
	}
}

// forgetVolumes forgets freed volumes without further work: the machine was started again, or a spell is over and the
// kubelet's list does not name them.
func (m *Memory) forgetVolumes(l taint.Look) {
	m.boot = l.BootID
	m.freedVolumes = slices.DeleteFunc(m.freedVolumes, func(f freedVolume) bool {
		return f.boot != l.BootID ||
			!m.spells[f.policy].open && (f.cleared || !slices.Contains(l.InUse, f.volume.Unique))
	})
}

// ApplyCleared folds in what was left of the kubelet's list of volumes. An entry that is written back comes from a live
// kubelet.
func (m *Memory) ApplyCleared(left []corev1.UniqueVolumeName) {
	m.freedVolumes = slices.Clone(m.freedVolumes)
	for i, f := range m.freedVolumes {
		m.freedVolumes[i].cleared = f.cleared || !slices.Contains(left, f.volume.Unique)
	}
}

// retryDelay returns how long to wait after a refusal.
func (p Policy) retryDelay() time.Duration {
	if p.When == StorageUnhealthy {
		return p.Intervals.Retry
	}
	return retry
}

// hasStorageTurn reports whether the policy has its turn. Its storage system must report it unhealthy now, in a spell
// that is not done, or entries of its pods must still be cleared.
func (v View) hasStorageTurn(p Policy) bool {
	h := v.Storage[p.Storage]
	return h.Known && !h.Healthy && (v.Memory.spells[p.Name].open || len(v.volumesInUse(p)) > 0)
}

// isSpellOver reports whether refused writes are no longer retried in this spell.
func (v View) isSpellOver(p Policy) bool {
	s := v.Memory.spells[p.Name]
	return !s.begun.IsZero() && v.Now.Sub(s.begun) >= p.Intervals.Timeout
}

// decideSpell returns the next decision of a policy whose trigger is StorageUnhealthy. NoAction: none of its pods is
// left that it may end.
func (v View) decideSpell(p Policy) (action.Decision, Effects) {
	if !v.Memory.spells[p.Name].open {
		return action.Decision{Action: action.NoAction{}}, Effects{}
	}
	mine, read := p.resolvePods(v.filterPods(func(pod action.Pod) bool {
		return !pod.Terminal || needsDelete(pod) && v.Memory.owedDeletes[pod.UID]
	}))
	if read != nil {
		return action.Decision{Action: read}, Effects{}
	}
	var begun map[string]providers.Instant
	if v.Memory.spells[p.Name].begun.IsZero() {
		begun = map[string]providers.Instant{p.Name: v.Now}
	}
	skipped, read := v.toleratingPods(p)
	if read != nil {
		return action.Decision{Action: read}, Effects{}
	}
	var failed []string
	var well []action.Pod
	resting := false
	for _, pod := range mine {
		sick := p.describeSickVolumes(pod)
		switch {
		case v.isSpellOver(p) && v.Memory.failed[pod.UID]: // a pod that was never tried is tried, however late
			failed = append(failed, fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name))
		case pod.Terminal: // ended, and still to be deleted: decideNext does that
			resting = true
		case sick != "":
			skipped = append(skipped, fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, sick))
		default:
			well = append(well, pod)
		}
	}
	d, e := action.Decision{Action: action.NoAction{}}, Effects{}
	switch {
	case len(well) > 0:
		d, e = v.endPods(p, well)
	case resting:
		d = action.Decision{Action: action.Wait{}, RequeueAfter: p.Intervals.Retry}
	default:
		d.Notes = append(notesOf(reason.PolicySkipped, p, skipped), notesOf(reason.PolicyTimedOut, p, failed)...)
	}
	e.Begun = begun
	return d, e
}

// gaveUp reports whether the deletion of an attachment is not retried in the policy's spell.
func (v View) gaveUp(due []Policy, name, uid string) bool {
	return v.Memory.failed[uid] && slices.ContainsFunc(due, func(p Policy) bool {
		return p.Name == name && v.isSpellOver(p)
	})
}

// maxNoted is how many things a Note names.
const maxNoted = 3

// notesOf returns a Note about some things in the policy's name, if there are any.
func notesOf(why reason.Reason, p Policy, of []string) []action.Note {
	if len(of) == 0 {
		return nil
	}
	text := strings.Join(of[:min(len(of), maxNoted)], "; ")
	if more := len(of) - maxNoted; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return []action.Note{{Why: why, Detail: fmt.Sprintf("%s: %s", p, text)}}
}

// describeSickVolumes says which of the pod's volumes of the policy's drivers are not known to be healthy. "": all are.
func (p Policy) describeSickVolumes(pod action.Pod) string {
	var out []string
	for _, vol := range pod.Volumes {
		if slices.Contains(p.Drivers, vol.Driver) && !(vol.Health.Known && vol.Health.Healthy) {
			out = append(out, fmt.Sprintf("volume %s (%s)", vol.PV, vol.Health.Why))
		}
	}
	return strings.Join(out, ", ")
}

// volumesInUse returns the freed volumes that may be removed from the kubelet's list: only where the storage fences,
// and never on a Ready node. The kubelet of a Ready node unmounts them, and removes them itself.
func (v View) volumesInUse(p Policy) (out []freedVolume) {
	if p.WithoutProof != StorageFences || v.Look.IsReady() {
		return nil
	}
	for _, f := range v.Memory.freedVolumes {
		if f.policy == p.Name && !f.cleared && slices.Contains(v.Look.InUse, f.volume.Unique) {
			out = append(out, f)
		}
	}
	return out
}

// clearVolumes removes volumes of ended pods from the kubelet's list, unless an unfinished pod of the node uses them.
// NoAction: there are none. Without that, the attach/detach controller gives them to no other node for six minutes
// more, in which this one must not be Ready. Or it finds only after a while that their attachments are gone (F4).
func (v View) clearVolumes(due []Policy) (action.Decision, Effects) {
	for _, p := range due {
		if p.When != StorageUnhealthy {
			continue
		}
		listed := v.volumesInUse(p)
		if len(listed) == 0 {
			continue
		}
		users := v.filterPods(func(pod action.Pod) bool { return !pod.Terminal })
		if unknown := podsToResolve(users); len(unknown) > 0 {
			return action.Decision{Action: action.ReadVolumes{Pods: unknown}}, Effects{}
		}
		if slices.ContainsFunc(users, hasUnreadVolume) {
			return action.Decision{Action: action.Wait{}, RequeueAfter: resync}, Effects{}
		}
		off := map[corev1.UniqueVolumeName]bool{}
		for _, f := range listed {
			off[f.volume.Unique] = true
		}
		for _, u := range users {
			for _, vol := range u.Volumes {
				delete(off, vol.Unique)
			}
		}
		if len(off) > 0 {
			left := slices.DeleteFunc(slices.Clone(v.Look.InUse), func(n corev1.UniqueVolumeName) bool {
				return off[n]
			})
			a := action.ClearVolumes{InUse: left, Attached: v.Look.Attached, Policy: p.String()}
			return action.Decision{Action: a, Reason: reason.PolicyClearing, Detail: p.String()}, Effects{Policy: p}
		}
	}
	return action.Decision{Action: action.NoAction{}}, Effects{}
}
