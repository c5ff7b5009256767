package judge

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const (
	proofAge = 5 * time.Second
	// slack is forgiven beside the age of a proof: the two clocks of it stand in the device and in the proxy, and the
	// request takes its way through a process's queues to either. What the machine stood still is forgiven as well.
	slack = time.Second
	// Heard is how long ago a heartbeat may be that forbids a power-off: a Lease.
	Heard = 10 * time.Second
)

type versionKey struct{ resource, key, rv string }

// effect is what a write did: the object before and after it.
type effect struct {
	Write
	before, after Version
}

// court holds an account while it is judged.
type court struct {
	Account
	byRV     map[versionKey]int
	before   map[int]int // of a version's index the one of before it; -1: none
	creator  map[versionKey]Write
	last     map[string]int // of a UID
	findings []Finding
}

// Findings returns the promises of forcefence that were not kept, in a stable order and each thing once.
func Findings(a Account) []Finding {
	c := newCourt(a)
	c.twice()
	for _, w := range c.Writes {
		if w.Life == "" {
			continue
		}
		switch w.Resource {
		case networkFences:
			c.deposed(effect{Write: w})
			c.order(w)
			continue
		case nodeClaims:
			c.deposed(effect{Write: w})
			c.handOver(w)
			continue
		}
		if e, ok := c.effect(w); ok {
			c.deposed(e)
			switch w.Resource {
			case "pods":
				c.pod(e)
			case "nodes":
				c.node(e)
			case "volumeattachments":
				c.permit(e.Write, e.Node, "deletes attachment "+e.Key)
			}
		}
	}
	c.power()
	for _, e := range a.Ends {
		c.found(CheckEnd, "%s", e)
	}
	return c.sorted()
}

// newCourt orders an account.
func newCourt(a Account) *court {
	c := &court{Account: a, byRV: map[versionKey]int{}, before: map[int]int{}, creator: map[versionKey]Write{},
		last: map[string]int{}}
	for i, v := range a.Versions {
		c.byRV[versionKey{v.Resource, v.Key, v.RV}] = i
		c.before[i] = -1
		if j, ok := c.last[v.UID]; ok {
			c.before[i] = j
		}
		c.last[v.UID] = i
	}
	slices.SortStableFunc(c.Writes, func(a, b Write) int { return a.Done.Compare(b.Done) })
	for _, w := range c.Writes {
		k := versionKey{w.Resource, w.Key, w.RV}
		if _, ok := c.creator[k]; !ok && w.Verb != "delete" {
			c.creator[k] = w
		}
	}
	return c
}

// sorted returns the findings in a stable order and each once.
func (c *court) sorted() []Finding {
	slices.SortFunc(c.findings,
		func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Text, b.Text)) })
	return slices.Compact(c.findings)
}

func (c *court) found(check, format string, args ...any) {
	c.findings = append(c.findings, Finding{check, fmt.Sprintf(format, args...)})
}

// effect reports what a write did; false where it changed nothing.
func (c *court) effect(w Write) (effect, bool) {
	if w.Verb == "delete" {
		if w.Resource == "volumeattachments" {
			return effect{Write: w}, true
		}
		i, ok := c.last[w.UID]
		if !ok {
			c.found(CheckAccount, "%s deletes %s %s (%s), which was never seen", w.Life, w.Resource, w.Key, w.UID)
			return effect{}, false
		}
		e := effect{Write: w, before: c.Versions[i], after: c.Versions[i]}
		e.after.Gone = true
		return e, true
	}
	if w.Resource == "volumeattachments" {
		return effect{}, false
	}
	k := versionKey{w.Resource, w.Key, w.RV}
	i, ok := c.byRV[k]
	if !ok {
		c.found(CheckAccount, "%s writes %s %s at %s, which was never seen", w.Life, w.Resource, w.Key, w.RV)
		return effect{}, false
	}
	if c.creator[k] != w || c.before[i] < 0 {
		return effect{}, false // nothing changed
	}
	return effect{Write: w, before: c.Versions[c.before[i]], after: c.Versions[i]}, true
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func (c *court) pod(e effect) {
	p := e.before.Pod
	role := p.Labels[RoleLabel]
	if p.Spec.NodeName == c.Victim && role != RolePlain && role != RoleVolume && onlyNotReady(e) {
		c.proof(e.Write, c.Victim, "sets "+e.Key+" not ready")
		return
	}
	if p.Spec.NodeName != c.Victim || role != RolePlain && role != RoleVolume {
		c.found(CheckExempt, "%s %s (%s) of %s, a pod of role %q on %s", e.Life, e.Verb, e.Sub, e.Key, role,
			p.Spec.NodeName)
		return
	}
	permit := c.proof
	if role == RoleVolume {
		permit = c.permit
	}
	switch {
	case e.Verb == "delete" && over(p):
		if !c.life(e.Write) {
			permit(e.Write, c.Victim, "deletes "+e.Key)
		}
	case e.Verb == "delete":
		permit(e.Write, c.Victim, "deletes "+e.Key+", which had not ended")
	case !over(p) && over(e.after.Pod):
		permit(e.Write, c.Victim, "ends "+e.Key)
	}
}

// onlyNotReady reports whether a write of a pod that has not finished changed Ready from True to False, and nothing
// else.
func onlyNotReady(e effect) bool {
	was, is := e.before.Pod.DeepCopy(), e.after.Pod.DeepCopy()
	if e.Verb == "delete" || over(was) || statusOfReady(was) != corev1.ConditionTrue ||
		statusOfReady(is) != corev1.ConditionFalse {
		return false
	}
	for _, p := range []*corev1.Pod{was, is} {
		p.ResourceVersion, p.ManagedFields = "", nil
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	}
	return equality.Semantic.DeepEqual(was, is)
}

// statusOfReady is the status of a pod's condition Ready; "" if it has none.
func statusOfReady(p *corev1.Pod) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// life reports whether the machine or its device had shown life after the mark, so that what was ended may go without a
// proof.
func (c *court) life(w Write) bool {
	mark, ok := c.mark(w, c.Victim)
	if !ok {
		return true // the mark went before its pods: the return path, whose own order is not judged here
	}
	in := func(t time.Time) bool { return t.After(mark) && t.Before(w.Received) }
	return slices.ContainsFunc(c.Log,
		func(q Question) bool { return q.System == c.Victim && q.Word == "On" && in(q.At) }) ||
		slices.ContainsFunc(c.Alive, func(s Span) bool { return s.Node == c.Victim && in(s.From) }) ||
		slices.ContainsFunc(c.Beats, func(s Span) bool { return s.Node == c.Victim && in(s.From) })
}

// IsMarked reports whether a Node has the mark; nil has none.
func IsMarked(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == MarkKey })
}

// mark tells when, at the earliest, the mark was committed under which a write came to its node; false where there was
// none.
func (c *court) mark(w Write, node string) (since time.Time, ok bool) {
	for i, v := range c.Versions {
		if v.Resource != "nodes" || v.Key != node || c.before[i] < 0 {
			continue
		}
		by, known := c.creator[versionKey{v.Resource, v.Key, v.RV}]
		if !known {
			continue
		}
		switch was, is := IsMarked(c.Versions[c.before[i]].Node), IsMarked(v.Node) && !v.Gone; {
		case !was && is && !by.Received.After(w.Done):
			since, ok = by.Received, true
		case was && !is && by.Done.Before(w.Received):
			ok = false
		}
	}
	return since, ok
}

// proof holds a write against the device's own log.
func (c *court) proof(w Write, node, what string) {
	mark, ok := c.mark(w, node)
	if !ok {
		c.found(CheckProof, "%s %s of %s, which has no mark", w.Life, what, node)
		return
	}
	newest := c.newestOff(w, node, mark)
	switch age := w.Sent.Sub(newest.At); {
	case newest.At.IsZero():
		c.found(CheckProof, "%s %s, %s after %s was marked, and its device was not heard to say Off since", w.Life,
			what, w.Received.Sub(mark).Round(time.Millisecond), node)
	case age > proofAge+slackFor(newest.At, w.Sent, c.Stalls):
		c.found(CheckProof, "%s %s by an Off of %s ago", w.Life, what, age.Round(time.Millisecond))
	}
}

// newestOff is the last question about a machine that was asked after the mark, and whose answer Off came before the
// write; the zero value: there is none.
func (c *court) newestOff(w Write, node string, mark time.Time) (newest Question) {
	for _, q := range c.Log {
		if q.System != node || q.Method != http.MethodGet || q.Word != "Off" || q.Delivered.IsZero() ||
			q.Delivered.After(w.Received) || q.At.Before(mark) {
			continue
		}
		if q.At.After(newest.At) {
			newest = q
		}
	}
	return newest
}

// slackFor is what is forgiven of an age.
func slackFor(from, to time.Time, stalls []Span) time.Duration {
	d := slack
	for _, s := range stalls {
		begin, end := s.From, s.To
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			d += end.Sub(begin)
		}
	}
	return d
}

func (c *court) node(e effect) {
	was, is := e.before.Node, e.after.Node
	if was.Name != c.Victim && !IsMarked(was) && IsMarked(is) {
		c.found(CheckExempt, "%s marks %s, which lost no power", e.Life, was.Name)
	}
	others := func(n *corev1.Node) (out []corev1.Taint) {
		for _, t := range n.Spec.Taints {
			if t.Key != MarkKey {
				t.TimeAdded = nil
				out = append(out, t)
			}
		}
		return out
	}
	if !slices.Equal(others(was), others(is)) || was.Spec.Unschedulable != is.Spec.Unschedulable {
		c.found(CheckExempt, "%s changes taints of %s from %v to %v", e.Life, was.Name, others(was), others(is))
	}
	ours := func(k, _ string) bool { return strings.Contains(k, "forcefence") }
	for what, maps2 := range map[string][2]map[string]string{
		"labels": {was.Labels, is.Labels}, "annotations": {was.Annotations, is.Annotations}} {
		a, b := maps.Clone(maps2[0]), maps.Clone(maps2[1])
		maps.DeleteFunc(a, ours)
		maps.DeleteFunc(b, ours)
		if !maps.Equal(a, b) {
			c.found(CheckExempt, "%s changes %s of %s from %v to %v", e.Life, what, was.Name, a, b)
		}
	}
	if r, s := readyOf(was), readyOf(is); r != s && was.Name != c.Victim {
		c.found(CheckExempt, "%s sets Ready of %s to %s", e.Life, was.Name, s)
	}
	var cut []string
	for _, v := range volumesOf(was) {
		if !slices.Contains(volumesOf(is), v) {
			cut = append(cut, v)
		}
		if _, name, _ := strings.Cut(v, " "); slices.Contains(c.Kept, name) && slices.Contains(cut, v) {
			c.found(CheckExempt, "%s takes %s off the lists of %s, where its pod stays", e.Life, v, was.Name)
		}
	}
	if len(cut) > 0 {
		c.permit(e.Write, was.Name, "cuts volume lists")
	}
}

func readyOf(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func volumesOf(n *corev1.Node) (list []string) {
	for _, v := range n.Status.VolumesInUse {
		list = append(list, "inUse "+string(v))
	}
	for _, v := range n.Status.VolumesAttached {
		list = append(list, "attached "+string(v.Name))
	}
	return list
}

// deposed holds a write against who led when it came.
func (c *court) deposed(e effect) {
	var leader string
	for _, l := range c.Leads {
		if l.Done.Before(e.Received) {
			leader = l.Life
		}
	}
	if len(c.Leads) > 0 && leader != e.Life {
		c.found(CheckDeposed, "%s %s %s/%s %s, when %s led", e.Life, e.Verb, e.Resource, e.Sub, e.Key,
			cmp.Or(leader, "none"))
	}
}

// twice looks for what was in two places at one moment.
func (c *court) twice() {
	overlap := func(a, b Span) bool {
		return (a.To.IsZero() || b.From.Before(a.To)) && (b.To.IsZero() || a.From.Before(b.To))
	}
	for i, a := range c.Runs {
		for _, b := range c.Runs[i+1:] {
			if (a.What == b.What || a.UID == b.UID) && overlap(a, b) {
				c.found(CheckTwice, "%s runs on %s (%s) and on %s (%s)", a.What, a.Node, a.UID, b.Node, b.UID)
			}
		}
	}
	for i, a := range c.Mounts {
		for _, b := range c.Mounts[i+1:] {
			if a.What == b.What && a.Node != b.Node && overlap(a, b) {
				c.found(CheckTwice, "%s is in use on %s and on %s", a.What, a.Node, b.Node)
			}
		}
		for _, b := range c.Attached {
			if a.What == b.What && a.Node != b.Node && b.From.After(a.From) && (a.To.IsZero() || b.From.Before(a.To)) {
				c.found(CheckTwice, "%s is attached to %s while it is in use on %s", a.What, b.Node, a.Node)
			}
		}
	}
}

// power looks for power-offs of what is heard.
func (c *court) power() {
	for _, q := range c.Log {
		if q.Method != http.MethodPost || q.Word == "On" || q.Word == "" {
			continue
		}
		if q.System != c.Victim {
			c.found(CheckPower, "%s is powered off, which lost no power", q.System)
		}
		for _, b := range c.Beats {
			if b.Node == q.System && b.From.Before(q.At) && q.At.Sub(b.From) < Heard {
				c.found(CheckPower, "%s is powered off %s after a heartbeat", q.System,
					q.At.Sub(b.From).Round(time.Millisecond))
			}
		}
	}
}
