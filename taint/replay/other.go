package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/recording"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/view/explain"
)

// OtherConfig is another configuration than the recording's. The devices stay those that answered then, and the counted
// failure domains stay the same.
type OtherConfig struct {
	// Facts returns the node's configuration without devices, and without what comes from elsewhere than the Node.
	Facts      func(node *corev1.Node, l taint.Look, now time.Time) decide.Facts
	Policies   []policy.Policy
	Limits     *fleet.Limits   // nil: the defaults
	EvictFirst labels.Selector // the configuration's evictFirst
}

// otherRun is a course under another configuration. It follows the recording while both configurations change the same
// in the world: then it would have got the same looks and answers. From there on explain's model takes over.
type otherRun struct {
	rerun  decide.Node
	over   bool                     // the two courses differ in their effects
	events []event                  // the pass: the lines from one look to the next
	fleets []replayFleet            // the fleet at each of these lines
	values int                      // how many values these lines have, plus one for each line
	known  map[recording.Kind]event // the last line of each kind
	on     *bool                    // the condition PoweredOnNotReady that this course wrote; nil: none
	vols   map[string][]action.Volume
	owned  map[string]action.Owner
}

// collectPass adds a line to the pass. If the line begins the next pass it plays the one before.
func (p *player) collectPass(t *track, e event, f replayFleet) error {
	if t.over {
		if e.Kind == recording.Rests {
			delete(p.tracks, t.node)
		}
		return nil
	}
	if e.Kind == recording.NodeRead || e.Kind == recording.Storage || e.Kind == recording.Rests {
		if err := p.playPass(t); err != nil {
			return err
		}
	}
	switch o := e.seen.(type) {
	case decide.NodeIdle:
		delete(p.tracks, t.node)
		return nil
	case decide.StorageReported:
		o.Policies = p.other.Policies
		t.rerun.Apply(e.At, f, o)
		return nil
	}
	if t.values += 1 + recording.CountValues(e.Body); t.values > 4*recording.MaxValues {
		return errors.New("too many values follow the last look at the node")
	}
	t.events, t.fleets = append(t.events, e), append(t.fleets, f)
	return nil
}

// maxSteps is how many steps one pass may take.
const maxSteps = 200

// playPass plays the lines that followed one look.
func (p *player) playPass(t *track) error {
	events, fleets := t.events, t.fleets
	t.events, t.fleets, t.values = nil, nil, 0
	if p.other == nil || t.over || len(events) == 0 || events[0].Kind != recording.NodeRead {
		return nil
	}
	if t.known == nil {
		t.known, t.vols, t.owned = map[recording.Kind]event{}, map[string][]action.Volume{}, map[string]action.Owner{}
	}
	look := t.withCondition(events[0])
	look.seen = p.withOtherConfig(look)
	t.known[recording.NodeRead] = look
	t.rerun.Apply(look.At, replayFleet{}, look.seen)
	var steps []int // where the decisions are
	for i, e := range events {
		if e.Kind == recording.Next {
			steps = append(steps, i)
		}
	}
	if len(steps) == 0 { // the process died before it decided
		return nil
	}
	then := events[steps[len(steps)-1]] // what was done in this pass, or decided last
	for _, i := range steps {
		if e := events[i]; e.step.HasEffect() {
			then = e
			break
		}
		if e := events[i]; e.step.IsDecision() {
			then = e
		}
	}
	used := map[int]bool{0: true}
	for k := range maxSteps {
		at := steps[min(k, len(steps)-1)]
		f, now := fleets[at], events[at].At
		f.view = f.view.WithLimits(p.other.Limits)
		f.Reserved = f.view.Busy == ""
		s := t.rerun.Next(now, f)
		step := recording.StepOf(s, t.rerun.Devices())
		d := Decision{At: now.Wall, Node: t.node, Line: then.n, Then: then.step, Now: step}
		switch {
		case action.Is[action.ReadNode](s):
			return nil
		case action.IsRead(s.Action) || action.Is[action.AskDevices](s):
			if !t.answerRead(s.Action, events, used, now, f, p.other) {
				d.Unknown = fmt.Sprintf("%s was not recorded", step)
				d.Differs, t.over = true, true
				p.addDecision(t, d)
				return nil
			}
			continue
		case action.Is[action.SetPoweredOnCondition](s):
			on := s.Action.(action.SetPoweredOnCondition).On
			t.on = &on
			t.rerun.Apply(now, f, decide.ActionDone{})
			look = t.withCondition(look)
			t.rerun.Apply(look.At, replayFleet{}, look.seen)
			continue
		}
		p.out.Compared++
		if !then.step.HasEffect() && !step.HasEffect() { // both only wait
			d.Differs = then.step.Why != step.Why || then.step.Would != step.Would
			if then.step.IsDecision() && then.step.Do != "SetPoweredOnCondition" {
				p.addDecision(t, d)
			}
			return nil
		}
		if then.step.SameAs(step) {
			p.addDecision(t, d)
			for i, e := range events {
				if e.Kind == recording.ActionDone && !used[i] {
					t.rerun.Apply(e.At, f, e.seen)
				}
			}
			return nil
		}
		d.Differs, t.over = true, true
		d.Estimate = t.estimateRest(now, f)
		p.addDecision(t, d)
		return nil
	}
	return nil
}

// withCondition returns a look at the node with the condition that this course wrote.
func (t *track) withCondition(e event) event {
	read := e.seen.(decide.NodeRead)
	if t.on == nil || read.Node == nil {
		return e
	}
	status := corev1.ConditionFalse
	if *t.on {
		status = corev1.ConditionTrue
	}
	node := *read.Node
	node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool {
		return c.Type == taint.PoweredOnCondition
	})
	node.Status.Conditions = append(node.Status.Conditions,
		corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: status})
	read.Node, read.Look = &node, recording.LookAt(&node, read.Look, e.key)
	e.seen = read
	return e
}

// withOtherConfig returns a look under the other configuration.
func (p *player) withOtherConfig(e event) decide.NodeRead {
	read := e.seen.(decide.NodeRead)
	if read.Node == nil {
		return read
	}
	was, out := read.Facts, p.other.Facts(read.Node, read.Look, e.At.Wall)
	out.Devices, out.NoDeviceErr, out.By, out.NewID, out.Storage =
		was.Devices, was.NoDeviceErr, was.By, was.NewID, was.Storage
	out.Excluded, out.KeptOn = cmp.Or(out.Excluded, read.External.Excluded), cmp.Or(out.KeptOn, read.External.KeptOn)
	out.RequestedBy, out.StorageFences = read.External.RequestedBy, read.External.StorageFences
	read.Facts = out
	return read
}

// kindsFor returns the kinds of lines that answer what an action reads or asks for, the best first.
func kindsFor(a action.Action) []recording.Kind {
	if list, is := a.(action.ListAttachments); is && list.Live {
		return []recording.Kind{recording.Listed, recording.Cached}
	}
	return map[string][]recording.Kind{
		"ListPods": {recording.Pods}, "ReadVolumes": {recording.Volumes}, "ReadOwners": {recording.Owners},
		"ReadStorageSetting": {recording.StorageSetting}, "ListEtcdPods": {recording.EtcdPods},
		"ReadAwaitedClaims": {recording.AwaitedClaims}, "ReadClaims": {recording.Claims},
		"ListAttachments": {recording.Cached, recording.Listed}, "AskDevices": {recording.Answers},
	}[action.Name(a)]
}

// answerRead answers a read, or a question, with a line recorded after this look, or else with the last one before.
// Nothing has changed since. It returns false if there is none.
func (t *track) answerRead(
	a action.Action,
	events []event,
	used map[int]bool,
	now providers.Instant,
	f replayFleet,
	o *OtherConfig,
) bool {
	for _, is := range kindsFor(a) {
		i := 0
		for i < len(events) && (used[i] || events[i].Kind != is) {
			i++
		}
		e, was := t.known[is]
		if i < len(events) {
			e, used[i], was = events[i], true, true
		} else if e.At = now; is == recording.Answers && was {
			e.seen = answersAt(e.seen.(decide.DevicesAnswered), now)
		}
		if !was {
			continue
		}
		e.seen = t.asOf(e.seen, a, o)
		t.known[is] = e
		t.rerun.Apply(e.At, f, e.seen)
		return true
	}
	return false
}

// asOf returns an observation as this course would make it: pods by its own configuration, and with everything that was
// read of them.
func (t *track) asOf(seen decide.Observation, a action.Action, o *OtherConfig) decide.Observation {
	switch seen := seen.(type) {
	case decide.PodsListed:
		seen.Pods = slices.Clone(seen.Pods)
		for j := range seen.Pods {
			seen.Pods[j].First = o.EvictFirst != nil && o.EvictFirst.Matches(labels.Set(seen.Pods[j].Labels))
		}
		return seen
	case decide.VolumesRead:
		maps.Copy(t.vols, seen.ByPod)
		return decide.VolumesRead{ByPod: t.vols}
	case decide.OwnersRead:
		maps.Copy(t.owned, seen.ByPod)
		return decide.OwnersRead{ByPod: t.owned}
	case decide.AttachmentsListed:
		list, _ := a.(action.ListAttachments)
		seen.Live = list.Live
		return seen
	}
	return seen
}

// answersAt returns the answers as devices would give them now.
func answersAt(seen decide.DevicesAnswered, now providers.Instant) decide.DevicesAnswered {
	all := slices.Clone(seen.Answers)
	for i := range all {
		all[i].At, all[i].Got = now, now
	}
	return decide.DevicesAnswered{Answers: all}
}

// estimateRest returns what would become of the node from now on. It returns nil if there is no look at the node.
func (t *track) estimateRest(now providers.Instant, f replayFleet) *explain.Scenario {
	read, _ := t.known[recording.NodeRead].seen.(decide.NodeRead)
	if read.Node == nil {
		return nil
	}
	live, _ := t.known[recording.Listed].seen.(decide.AttachmentsListed)
	cached, _ := t.known[recording.Cached].seen.(decide.AttachmentsListed)
	members, _ := t.known[recording.EtcdPods].seen.(decide.EtcdPodsListed)
	rival, _ := t.known[recording.StorageSetting].seen.(decide.StorageSettingRead)
	listed, _ := t.known[recording.Pods].seen.(decide.PodsListed)
	answered, _ := t.known[recording.Answers].seen.(decide.DevicesAnswered)
	s := explain.Snapshot{
		Now: now, Key: t.known[recording.NodeRead].key, Node: read.Node, Facts: read.Facts, Fleet: &f.view,
		Distrusted: f.DistrustedBy,
		LeaseRV:    read.Look.LeaseRV, Attachments: live.Attachments, Members: members.Ready, Owners: t.owned,
		Rival:    rival.Why,
		LeaseAge: map[string]time.Duration{}, Pods: slices.Clone(listed.Pods),
	}
	if s.Attachments == nil {
		s.Attachments = cached.Attachments
	}
	if !f.view.Beat.IsZero() {
		s.LeaseAge[t.node] = now.Sub(f.view.Beat)
	}
	for i := range s.Pods {
		s.Pods[i].Volumes, s.Pods[i].Claims = t.vols[s.Pods[i].UID], false
	}
	for _, a := range answered.Answers {
		s.Quiet = append(s.Quiet, a.State == providers.PowerUnknown && a.Err == nil)
	}
	c := explain.PlayScenario(s, t.rerun.Answer().State)
	return &c
}
