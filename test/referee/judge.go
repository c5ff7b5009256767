package main

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

// Roles of a run's pods. The first two are to move.
const (
	rolePlain      = "plain"
	roleVolume     = "volume"
	roleTolerating = "tolerating"
	roleDaemon     = "daemon"
	roleStatic     = "static"
	roleFinished   = "finished"
	roleOther      = "other" // on another node
)

// Checks, by the names that findings and tables have.
const (
	checkTwice   = "twice"
	checkProof   = "proof"
	checkDeposed = "deposed"
	checkExempt  = "exempt"
	checkPower   = "power"
	checkEnd     = "end"
	checkAccount = "account" // the accounts do not fit each other: nothing that follows from them is worth much
)

const (
	proofAge = 5 * time.Second
	// slack is forgiven beside the age of a proof: the two clocks of it stand in the device and in the proxy, and the
	// request takes its way through a process's queues to either. What the machine stood still is forgiven as well.
	slack = time.Second
	// heard is how long ago a heartbeat may be that forbids a power-off: a Lease.
	heard = 10 * time.Second
)

// finding is a promise that was not kept.
type finding struct {
	Check string
	Text  string
}

// account is all that is known of one run.
type account struct {
	Victim                               string // the node that lost its power
	Writes                               []write
	Versions                             []version // in their order; of each object the state of before, first
	Leads                                []lead    // in their order
	Log                                  []question
	Runs, Mounts, Attached, Alive, Beats []span
	Stalls                               []span
	Kept                                 []string // volumes that are to stay in the lists
	Ends                                 []string // what was not as it should be at the end
}

// write is one accepted write, from any client.
type write struct {
	Life                          string // of a judged process; "": of another client
	Verb, Resource, Sub, Key, UID string
	RV                            string    // of the object after it; of a deletion as the answer had it
	Node                          string    // of a deleted pod or attachment
	Sent                          time.Time // when a judged process's came to its proxy
	Received, Done                time.Time // by the API server
}

// lead is a write of the leader's Lease that names its writer: a taking or a renewal.
type lead struct {
	Life string
	Done time.Time
}

type versionKey struct{ resource, key, rv string }

// effect is what a write did: the object before and after it.
type effect struct {
	write
	before, after version
}

// court holds an account while it is judged.
type court struct {
	account
	byRV     map[versionKey]int
	before   map[int]int // of a version's index the one of before it; -1: none
	creator  map[versionKey]write
	last     map[string]int // of a UID
	findings []finding
}

// judge returns what was found, in a stable order and each thing once.
func judge(a account) []finding {
	c := &court{account: a, byRV: map[versionKey]int{}, before: map[int]int{}, creator: map[versionKey]write{},
		last: map[string]int{}}
	for i, v := range a.Versions {
		c.byRV[versionKey{v.Resource, v.Key, v.RV}] = i
		c.before[i] = -1
		if j, ok := c.last[v.UID]; ok {
			c.before[i] = j
		}
		c.last[v.UID] = i
	}
	slices.SortStableFunc(c.Writes, func(a, b write) int { return a.Done.Compare(b.Done) })
	for _, w := range c.Writes {
		k := versionKey{w.Resource, w.Key, w.RV}
		if _, ok := c.creator[k]; !ok && w.Verb != "delete" {
			c.creator[k] = w
		}
	}
	c.twice()
	for _, w := range c.Writes {
		if w.Life == "" {
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
				c.proof(e.write, e.Node, "deletes attachment "+e.Key)
			}
		}
	}
	c.power()
	for _, e := range a.Ends {
		c.found(checkEnd, "%s", e)
	}
	slices.SortFunc(c.findings,
		func(a, b finding) int { return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Text, b.Text)) })
	return slices.Compact(c.findings)
}

func (c *court) found(check, format string, args ...any) {
	c.findings = append(c.findings, finding{check, fmt.Sprintf(format, args...)})
}

// effect reports what a write did; false where it changed nothing.
func (c *court) effect(w write) (effect, bool) {
	if w.Verb == "delete" {
		if w.Resource == "volumeattachments" {
			return effect{write: w}, true
		}
		i, ok := c.last[w.UID]
		if !ok {
			c.found(checkAccount, "%s deletes %s %s (%s), which was never seen", w.Life, w.Resource, w.Key, w.UID)
			return effect{}, false
		}
		e := effect{write: w, before: c.Versions[i], after: c.Versions[i]}
		e.after.Gone = true
		return e, true
	}
	if w.Resource == "volumeattachments" {
		return effect{}, false
	}
	k := versionKey{w.Resource, w.Key, w.RV}
	i, ok := c.byRV[k]
	if !ok {
		c.found(checkAccount, "%s writes %s %s at %s, which was never seen", w.Life, w.Resource, w.Key, w.RV)
		return effect{}, false
	}
	if c.creator[k] != w || c.before[i] < 0 {
		return effect{}, false // nothing changed
	}
	return effect{write: w, before: c.Versions[c.before[i]], after: c.Versions[i]}, true
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func (c *court) pod(e effect) {
	p := e.before.Pod
	role := p.Labels[roleLabel]
	if p.Spec.NodeName == c.Victim && role != rolePlain && role != roleVolume && onlyNotReady(e) {
		c.proof(e.write, c.Victim, "sets "+e.Key+" not ready")
		return
	}
	if p.Spec.NodeName != c.Victim || role != rolePlain && role != roleVolume {
		c.found(checkExempt, "%s %s (%s) of %s, a pod of role %q on %s", e.Life, e.Verb, e.Sub, e.Key, role,
			p.Spec.NodeName)
		return
	}
	switch {
	case e.Verb == "delete" && over(p):
		if !c.life(e.write) {
			c.proof(e.write, c.Victim, "deletes "+e.Key)
		}
	case e.Verb == "delete":
		c.proof(e.write, c.Victim, "deletes "+e.Key+", which had not ended")
	case !over(p) && over(e.after.Pod):
		c.proof(e.write, c.Victim, "ends "+e.Key)
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
func (c *court) life(w write) bool {
	mark, ok := c.mark(w, c.Victim)
	if !ok {
		return true // the mark went before its pods: the return path, whose own order is not judged here
	}
	in := func(t time.Time) bool { return t.After(mark) && t.Before(w.Received) }
	return slices.ContainsFunc(c.Log,
		func(q question) bool { return q.System == c.Victim && q.Word == "On" && in(q.At) }) ||
		slices.ContainsFunc(c.Alive, func(s span) bool { return s.Node == c.Victim && in(s.From) }) ||
		slices.ContainsFunc(c.Beats, func(s span) bool { return s.Node == c.Victim && in(s.From) })
}

func isMarked(n *corev1.Node) bool { return n != nil && marked(n) }

// mark tells when, at the earliest, the mark was committed under which a write came to its node; false where there was
// none.
func (c *court) mark(w write, node string) (since time.Time, ok bool) {
	for i, v := range c.Versions {
		if v.Resource != "nodes" || v.Key != node || c.before[i] < 0 {
			continue
		}
		by, known := c.creator[versionKey{v.Resource, v.Key, v.RV}]
		if !known {
			continue
		}
		switch was, is := isMarked(c.Versions[c.before[i]].Node), isMarked(v.Node) && !v.Gone; {
		case !was && is && !by.Received.After(w.Done):
			since, ok = by.Received, true
		case was && !is && by.Done.Before(w.Received):
			ok = false
		}
	}
	return since, ok
}

// proof holds a write against the device's own log.
func (c *court) proof(w write, node, what string) {
	mark, ok := c.mark(w, node)
	if !ok {
		c.found(checkProof, "%s %s of %s, which has no mark", w.Life, what, node)
		return
	}
	var newest question
	for _, q := range c.Log {
		if q.System != node || q.Method != http.MethodGet || q.Word != "Off" || q.Delivered.IsZero() ||
			q.Delivered.After(w.Received) || q.At.Before(mark) {
			continue
		}
		if q.At.After(newest.At) {
			newest = q
		}
	}
	switch age := w.Sent.Sub(newest.At); {
	case newest.At.IsZero():
		c.found(checkProof, "%s %s, %s after %s was marked, and its device was not heard to say Off since", w.Life,
			what, w.Received.Sub(mark).Round(time.Millisecond), node)
	case age > proofAge+slackFor(newest.At, w.Sent, c.Stalls):
		c.found(checkProof, "%s %s by an Off of %s ago", w.Life, what, age.Round(time.Millisecond))
	}
}

// slackFor is what is forgiven of an age.
func slackFor(from, to time.Time, stalls []span) time.Duration {
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
	if was.Name != c.Victim && !marked(was) && marked(is) {
		c.found(checkExempt, "%s marks %s, which lost no power", e.Life, was.Name)
	}
	others := func(n *corev1.Node) (out []corev1.Taint) {
		for _, t := range n.Spec.Taints {
			if t.Key != markKey {
				t.TimeAdded = nil
				out = append(out, t)
			}
		}
		return out
	}
	if !slices.Equal(others(was), others(is)) || was.Spec.Unschedulable != is.Spec.Unschedulable {
		c.found(checkExempt, "%s changes taints of %s from %v to %v", e.Life, was.Name, others(was), others(is))
	}
	ours := func(k, _ string) bool { return strings.Contains(k, "forcefence") }
	for what, maps2 := range map[string][2]map[string]string{
		"labels": {was.Labels, is.Labels}, "annotations": {was.Annotations, is.Annotations}} {
		a, b := maps.Clone(maps2[0]), maps.Clone(maps2[1])
		maps.DeleteFunc(a, ours)
		maps.DeleteFunc(b, ours)
		if !maps.Equal(a, b) {
			c.found(checkExempt, "%s changes %s of %s from %v to %v", e.Life, what, was.Name, a, b)
		}
	}
	if r, s := readyOf(was), readyOf(is); r != s && was.Name != c.Victim {
		c.found(checkExempt, "%s sets Ready of %s to %s", e.Life, was.Name, s)
	}
	var cut []string
	for _, v := range volumesOf(was) {
		if !slices.Contains(volumesOf(is), v) {
			cut = append(cut, v)
		}
		if _, name, _ := strings.Cut(v, " "); slices.Contains(c.Kept, name) && slices.Contains(cut, v) {
			c.found(checkExempt, "%s takes %s off the lists of %s, where its pod stays", e.Life, v, was.Name)
		}
	}
	if len(cut) > 0 {
		c.proof(e.write, was.Name, "cuts volume lists")
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
		c.found(checkDeposed, "%s %s %s/%s %s, when %s led", e.Life, e.Verb, e.Resource, e.Sub, e.Key,
			cmp.Or(leader, "none"))
	}
}

// twice looks for what was in two places at one moment.
func (c *court) twice() {
	overlap := func(a, b span) bool {
		return (a.To.IsZero() || b.From.Before(a.To)) && (b.To.IsZero() || a.From.Before(b.To))
	}
	for i, a := range c.Runs {
		for _, b := range c.Runs[i+1:] {
			if (a.What == b.What || a.UID == b.UID) && overlap(a, b) {
				c.found(checkTwice, "%s runs on %s (%s) and on %s (%s)", a.What, a.Node, a.UID, b.Node, b.UID)
			}
		}
	}
	for i, a := range c.Mounts {
		for _, b := range c.Mounts[i+1:] {
			if a.What == b.What && a.Node != b.Node && overlap(a, b) {
				c.found(checkTwice, "%s is in use on %s and on %s", a.What, a.Node, b.Node)
			}
		}
		for _, b := range c.Attached {
			if a.What == b.What && a.Node != b.Node && b.From.After(a.From) && (a.To.IsZero() || b.From.Before(a.To)) {
				c.found(checkTwice, "%s is attached to %s while it is in use on %s", a.What, b.Node, a.Node)
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
			c.found(checkPower, "%s is powered off, which lost no power", q.System)
		}
		for _, b := range c.Beats {
			if b.Node == q.System && b.From.Before(q.At) && q.At.Sub(b.From) < heard {
				c.found(checkPower, "%s is powered off %s after a heartbeat", q.System,
					q.At.Sub(b.From).Round(time.Millisecond))
			}
		}
	}
}
