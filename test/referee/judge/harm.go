package judge

import (
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Verdict is what a run did to its users, of any system.
type Verdict string

// The verdicts, the worst first.
const (
	Harmed Verdict = "harmed" // Harm found something
	Stuck  Verdict = "stuck"  // it did not end within the limit, and harmed none
	Good   Verdict = "good"
)

// Verdicts are all of them, the worst first.
var Verdicts = []Verdict{Harmed, Stuck, Good}

// VerdictOf judges a run by what Harm found, and by what was not as it should be at its end.
func VerdictOf(harm []Finding, ends []string) Verdict {
	switch {
	case len(harm) > 0:
		return Harmed
	case len(ends) > 0:
		return Stuck
	}
	return Good
}

// Harm returns what a run took from its users, in a stable order and each thing once. It holds for every system: it
// counts what happened, from the accounts of machines, storage and kubelets, and asks for no promise of forcefence.
// So it wants no proof, no mark and no leader, and it does not matter who wrote.
//
//   - twice: a pod's identity ran on two nodes, or two nodes used a volume.
//   - taken: the API server had a pod as deleted or ended while its containers ran, or a volume was detached from a
//     node where it was in use. A pod that its kubelet ended first, as in every deletion with a grace period, is none.
//   - power: a machine that ran was powered off though its kubelet had renewed its Lease within the last 10 s, or
//     though it was never to be fenced.
//   - foreign: another's label, annotation or taint changed, or the judged tainted or cordoned a node that was well.
func Harm(a Account) []Finding {
	c := newCourt(a)
	c.twice()
	c.taken()
	c.healthy()
	c.foreign()
	return c.sorted()
}

// during reports whether a span held from one moment to another.
func (s Span) during(from, to time.Time) bool {
	return s.From.Before(from) && (s.To.IsZero() || s.To.After(to))
}

func (c *court) taken() {
	deletes := map[string]Write{}
	for _, w := range c.Writes {
		if w.Verb == "delete" && w.Resource == "pods" { // the last one deleted it
			deletes[w.UID] = w
		}
	}
	for i, v := range c.Versions {
		if v.Pod == nil || c.before[i] < 0 || over(c.Versions[c.before[i]].Pod) || !v.Gone && !over(v.Pod) {
			continue
		}
		// A deletion of a whole collection names no pod in the audit log.
		from, to := v.Seen, v.Seen
		w, known := c.creator[versionKey{v.Resource, v.Key, v.RV}]
		if v.Gone {
			w, known = deletes[v.UID]
		}
		if known {
			from, to = w.Received, w.Done
		}
		for _, r := range c.Runs {
			if r.UID == v.UID && r.during(from, to) {
				c.found(CheckTaken, "%s (%s) is deleted or ended while it runs on %s", v.Key, v.UID, r.Node)
			}
		}
	}
	for _, s := range c.Attached {
		for _, m := range c.Mounts {
			if !s.To.IsZero() && m.Node == s.Node && m.What == s.What && m.during(s.To, s.To) {
				c.found(CheckTaken, "%s is detached from %s, where it is in use", s.What, s.Node)
			}
		}
	}
}

func (c *court) healthy() {
	for _, q := range c.Log {
		if q.Method != http.MethodPost || slices.Contains([]string{"", "On", "ForceOn"}, q.Word) {
			continue
		}
		for _, s := range c.Alive {
			if s.Node != q.System || !s.during(q.At, q.At) {
				continue
			}
			if q.System != c.Victim {
				c.found(CheckPower, "%s is powered off, which was well", q.System)
			}
			var last time.Time // heartbeat of this boot
			for _, b := range c.Beats {
				if b.Node == q.System && b.From.After(last) && b.From.After(s.From) && b.From.Before(q.At) {
					last = b.From
				}
			}
			if age := q.At.Sub(last); age < Heard {
				c.found(CheckPower, "%s is powered off while it runs, %s after a heartbeat", q.System,
					age.Round(time.Millisecond))
			}
		}
	}
}

func (c *court) foreign() {
	for i, v := range c.Versions {
		if v.Node == nil || v.Gone || c.before[i] < 0 {
			continue
		}
		if was, is := foreignOf(c.Versions[c.before[i]].Node), foreignOf(v.Node); !maps.Equal(was, is) {
			c.found(CheckForeign, "%s had %v of another, and has %v", v.Key, was, is)
		}
	}
	for _, w := range c.Writes {
		if w.Life == "" || w.Resource != "nodes" || w.Key == c.Victim {
			continue
		}
		e, ok := c.effect(w)
		if !ok || e.before.Node == nil {
			continue
		}
		same := func(a, b corev1.Taint) bool { return a.MatchTaint(&b) }
		if was, is := e.before.Node.Spec, e.after.Node.Spec; !slices.EqualFunc(was.Taints, is.Taints, same) ||
			was.Unschedulable != is.Unschedulable {
			c.found(CheckForeign, "%s changes taints of %s, which was well, to %v", w.Life, w.Key, is.Taints)
		}
	}
}

// foreignOf returns what a Node has under ForeignKey.
func foreignOf(n *corev1.Node) map[string]string {
	all := map[string]string{}
	for what, of := range map[string]map[string]string{"label": n.Labels, "annotation": n.Annotations} {
		if value, ok := of[ForeignKey]; ok {
			all[what] = value
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Key == ForeignKey {
			all["taint"] = t.Value + ":" + string(t.Effect)
		}
	}
	return all
}
