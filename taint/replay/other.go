package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/explain"
)

// Other is another configuration than the recording's. The devices stay those that answered then, and so do the failure domains that were counted.
type Other struct {
	Facts    func(node *corev1.Node, l taint.Look, now time.Time) decide.Facts // devices and what is said elsewhere left out
	Policies []policy.Policy
	Limits   *fleet.Limits   // nil: the defaults
	First    labels.Selector // evictFirst
}

// another is a course under another configuration. It goes by the recording for as long as neither of the two configurations changes
// anything in the world that the other does not: the looks and answers are then those that it would have got. From there on it is taint/explain's.
type another struct {
	again  decide.Node
	over   bool           // the worlds have parted
	events []event        // of the pass: from one look to the next
	fleets []echo         // of each of them
	weight int            // of these
	known  map[kind]event // the last of each kind
	on     *bool          // the condition PoweredOnNotReady that this course wrote; nil: none
	vols   map[string][]action.Volume
	owned  map[string]action.Owner
}

// gather collects a pass, and plays the one before.
func (p *player) gather(t *track, e event, f echo) error {
	if t.over {
		if e.Kind == rest {
			delete(p.tracks, t.node)
		}
		return nil
	}
	if e.Kind == life || e.Kind == storageKind || e.Kind == rest {
		if err := p.pass(t); err != nil {
			return err
		}
	}
	switch e.Kind {
	case rest:
		delete(p.tracks, t.node)
		return nil
	case storageKind:
		t.again.SawStorage(p.other.Policies, e.storage.Says, e.At)
		return nil
	}
	if t.weight += 1 + weight(e.Body); t.weight > 4*dense {
		return errors.New("too much follows the last look at the node")
	}
	t.events, t.fleets = append(t.events, e), append(t.fleets, f)
	return nil
}

// most is how many steps one pass may take.
const most = 200

// pass plays what followed one look.
func (p *player) pass(t *track) error {
	events, fleets := t.events, t.fleets
	t.events, t.fleets, t.weight = nil, nil, 0
	if p.other == nil || t.over || len(events) == 0 || events[0].Kind != life {
		return nil
	}
	if t.known == nil {
		t.known, t.vols, t.owned = map[kind]event{}, map[string][]action.Volume{}, map[string]action.Owner{}
	}
	look := t.conditioned(events[0])
	look.facts = p.under(look)
	t.known[life] = look
	look.into(&t.again, echo{})
	var steps []int // where the decisions are
	for i, e := range events {
		if e.Kind == next {
			steps = append(steps, i)
		}
	}
	if len(steps) == 0 { // the process died
		return nil
	}
	then := events[steps[len(steps)-1]] // what was done in this pass, or decided last
	for _, i := range steps {
		if e := events[i]; e.step.acts() {
			then = e
			break
		}
		if e := events[i]; e.step.decides() {
			then = e
		}
	}
	used := map[int]bool{0: true}
	for k := range most {
		at := steps[min(k, len(steps)-1)]
		f, now := fleets[at], events[at].At
		f.view = f.view.Under(p.other.Limits)
		f.Reserved = f.view.Busy == ""
		s := t.again.Next(now, f)
		step := stepOf(s, func(i int) string { return nameOf(t.again.Devices(), i) })
		d := Decision{At: now.Wall, Node: t.node, Line: then.n, Then: then.step, Now: step}
		switch {
		case action.Is[action.ReadNode](s):
			return nil
		case action.Reads(s.Action) || action.Is[action.Ask](s):
			if !t.feed(s.Action, events, used, now, f, p.other) {
				d.Unknown = fmt.Sprintf("%s was not recorded", step)
				d.Differs, t.over = true, true
				p.show(t, d)
				return nil
			}
			continue
		case action.Is[action.Condition](s):
			on := s.Action.(action.Condition).On
			t.on = &on
			t.again.Apply(now, f, decide.ActionDone{})
			look = t.conditioned(look)
			look.into(&t.again, echo{})
			continue
		}
		p.out.Compared++
		if !then.step.acts() && !step.acts() { // both only wait
			d.Differs = then.step.Why != step.Why || then.step.Would != step.Would
			if then.step.decides() && then.step.Do != "Condition" {
				p.show(t, d)
			}
			return nil
		}
		if then.step.same(step) {
			p.show(t, d)
			for i, e := range events {
				if e.Kind == did && !used[i] {
					e.into(&t.again, f)
				}
			}
			return nil
		}
		d.Differs, t.over = true, true
		d.Estimate = t.estimate(now, f)
		p.show(t, d)
		return nil
	}
	return nil
}

// conditioned is a look at the node with the condition that this course wrote.
func (t *track) conditioned(e event) event {
	if t.on == nil || e.lived.Node == nil {
		return e
	}
	status := corev1.ConditionFalse
	if *t.on {
		status = corev1.ConditionTrue
	}
	node := *e.lived.Node
	node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Type == taint.PoweredOnCondition })
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: status})
	e.lived.Node = &node
	return e
}

// under are the facts of a look under the other configuration.
func (p *player) under(e event) decide.Facts {
	was, elsewhere := e.facts, e.lived.Facts.Elsewhere
	if e.lived.Node == nil {
		return was
	}
	out := p.other.Facts(e.lived.Node, e.lived.look(e.key, e.Sent, e.At), e.At.Wall)
	out.Devices, out.Nobody, out.By, out.NewID, out.Storage = was.Devices, was.Nobody, was.By, was.NewID, was.Storage
	out.Excluded, out.KeptOn = cmp.Or(out.Excluded, elsewhere.Excluded), cmp.Or(out.KeptOn, elsewhere.KeptOn)
	return out
}

// kinds are what tells of what an action reads, or asks for: those that do best first.
func kinds(a action.Action) []kind {
	if list, is := a.(action.ListAttachments); is && list.Live {
		return []kind{listed, cached}
	}
	return map[string][]kind{
		"ListPods": {pods}, "ReadVolumes": {volumes}, "ReadOwners": {owners}, "ReadRival": {rival}, "ReadMembers": {members},
		"ReadWaiting": {waiting}, "ReadClaims": {claims}, "ListAttachments": {cached, listed}, "Ask": {answered},
	}[action.Name(a)]
}

// feed answers a read, or a question, by what was recorded after this look, else by what was last. Nobody has changed anything since.
func (t *track) feed(a action.Action, events []event, used map[int]bool, now providers.Instant, f echo, o *Other) bool {
	all := kinds(a)
	for _, is := range all {
		i := slices.IndexFunc(events, func(e event) bool { return e.Kind == is })
		for i >= 0 && used[i] {
			j := slices.IndexFunc(events[i+1:], func(e event) bool { return e.Kind == is })
			if j < 0 {
				i = -1
				break
			}
			i += 1 + j
		}
		e, was := t.known[is]
		if i >= 0 {
			e, used[i], was = events[i], true, true
		} else {
			e.At, e.answers = now, later(e.answers, now)
		}
		if !was {
			continue
		}
		switch e.Kind {
		case pods:
			e.pods = slices.Clone(e.pods)
			for j := range e.pods {
				e.pods[j].First = o.First != nil && o.First.Matches(labels.Set(e.pods[j].Labels))
			}
		case volumes:
			for uid, v := range e.volumes {
				t.vols[uid] = v
			}
			e.volumes = t.vols
		case owners:
			for uid, v := range e.owners {
				t.owned[uid] = v
			}
			e.owners = t.owned
		case cached, listed:
			e.Kind = all[0]
		}
		t.known[is] = e
		e.into(&t.again, f)
		return true
	}
	return false
}

// later are answers as they would be given now.
func later(all []providers.Answer, now providers.Instant) []providers.Answer {
	all = slices.Clone(all)
	for i := range all {
		all[i].At, all[i].Got = now, now
	}
	return all
}

// estimate is what would become of the node from now on.
func (t *track) estimate(now providers.Instant, f echo) *explain.Course {
	e := t.known[life]
	if e.lived.Node == nil {
		return nil
	}
	s := explain.Snapshot{
		Now: now, Key: e.key, Node: e.lived.Node, Facts: e.facts, Fleet: &f.view, Distrusted: f.Liars, LeaseRV: e.lived.Lease,
		Attachments: t.known[listed].atts, Members: t.known[members].flags, Owners: t.owned, Rival: t.known[rival].rival,
		Silent: map[string]time.Duration{}, Pods: slices.Clone(t.known[pods].pods),
	}
	if s.Attachments == nil {
		s.Attachments = t.known[cached].atts
	}
	if !f.view.Beat.IsZero() {
		s.Silent[t.node] = now.Sub(f.view.Beat)
	}
	for i := range s.Pods {
		s.Pods[i].Volumes, s.Pods[i].Claims = t.vols[s.Pods[i].UID], false
	}
	for _, a := range t.known[answered].answers {
		s.Quiet = append(s.Quiet, a.State == providers.PowerUnknown && a.Err == nil)
	}
	c := explain.Play(s, t.again.Answer().State)
	return &c
}
