package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// report tells of a step, once it is over.
func (r *Reconciler) report(ctx context.Context, st *nodeState, s decide.StepDone) {
	d, l, took := s.Decision, s.Look, s.Ended.Sub(s.Began)
	switch o := s.Outcome.(type) {
	case decide.ReadFailed:
		r.stepFailed(ctx, st, d, o.Err)
		return
	case decide.NodeRead:
		st.suspect = r.fleetView(st.course.Name).Suspicion(o.Look)
		if o.Look.Exists {
			r.inMode(st, o.Facts.Mode)
		}
		return
	case decide.PodsListed:
		r.chronicleList(st)
		return
	case decide.VolumesRead:
		r.tellUnread(st, o.Unread)
		return
	case decide.AttachmentsListed:
		r.chronicleAttached(st, o.Attachments)
		return
	}
	if action.Reads(d.Action) || !l.Exists {
		return
	}
	r.reads(st)
	r.flush(&st.told.later, false)
	r.alert(st, d)
	r.chronicleLook(st)
	r.reportPowerOffs(st.node, st, l.Record)
	r.tellNotes(st, d)
	if err := s.Err(); err == nil || !writes(d.Action) { // a conflict leaves a fence that never was one
		r.tell(st, d)
	}
	switch o := s.Outcome.(type) {
	case nil:
		r.stepSucceeded(st)
		if action.Is[action.Wait](d) {
			r.tellAside(st, d)
			r.flush(&st.told.pods, false)
		}
	case decide.DevicesAnswered:
		r.reportAnswers(st, o.Answers)
		if l.Mark != nil {
			r.Metrics.phase("confirm", took)
		}
	case decide.ActionDone:
		r.tellDone(st, s, o)
		r.took(s, o.Err)
		switch {
		case action.Is[action.PowerOff](d) || action.Is[action.PowerOn](d):
		case o.Err != nil:
			r.stepFailed(ctx, st, d, o.Err)
		default:
			if writes(d.Action) {
				r.chronicleWrite(st, d)
			}
			r.stepSucceeded(st)
			if phase := phases[action.Name(d.Action)]; phase != "" {
				r.Metrics.phase(phase, took)
			}
		}
	}
}

// tellDone tells of what an action did.
func (r *Reconciler) tellDone(st *nodeState, s decide.StepDone, o decide.ActionDone) {
	l, fence := s.Look, s.Look.Record.IDOr("")
	for _, all := range o.Writes.Asked {
		r.reportAnswers(st, all)
	}
	switch a := s.Decision.Action.(type) {
	case action.ClearVolumes:
		if o.Err == nil {
			r.Log.Info("Cleared volume lists", "node", l.Name, "fence", fence, "policy", a.Policy,
				"inUse", len(l.InUse)-len(a.InUse), "attached", len(l.Attached)-len(a.Attached))
		}
	case action.PowerOff:
		r.tellPowerOff(l, o.Power)
	case action.PowerOn:
		r.tellPowerOn(l, o.Power)
	case action.DeleteAttachments:
		r.tellWrites(s, o.Writes)
		for _, one := range a.Attachments {
			if o.Writes.Made[one.UID] {
				r.Log.Warn("Deleted volume attachment", "node", l.Name, "fence", fence, "attachment", one.Name, "volume", one.PV, "policy", a.Policy)
			}
		}
	case action.Tombstone, action.Delete, action.Spare, action.SetNotReady:
		r.tellWrites(s, o.Writes)
		r.tellWritten(st, a, slices.DeleteFunc(slices.Clone(action.PodsOf(a)), func(p action.Pod) bool { return !o.Writes.Made[p.UID] }))
	}
}

// tellPowerOff tells how each device took a power-off.
func (r *Reconciler) tellPowerOff(l taint.Look, by []decide.PowerSent) {
	for _, d := range by {
		log := r.Log.With("node", l.Name, "fence", l.Record.ID, "device", d.Device)
		switch {
		case d.Late:
			log.Warn("Power-off was not sent", "error", d.Err)
		case d.Err != nil:
			log.Error("Power-off was not accepted", "error", d.Err)
		default:
			log.Info("Sent power-off")
		}
	}
}

// tellPowerOn tells how each device took a power-on.
func (r *Reconciler) tellPowerOn(l taint.Look, by []decide.PowerSent) {
	for _, d := range by {
		log := r.Log.With("node", l.Name, "fence", l.Record.ID, "device", d.Device)
		switch {
		case d.Late:
			log.Warn("Power-on was not sent", "error", d.Err)
		case d.Err != nil:
			log.Error("Power-on was not accepted", "error", d.Err)
		default:
			log.Info("Sent power-on")
		}
	}
}

// tellWrites tells of writes of pods or attachments that were not made.
func (r *Reconciler) tellWrites(s decide.StepDone, w decide.Writes) {
	a := s.Decision.Action
	log := r.Log.With("node", s.Look.Name, "fence", s.Look.Record.IDOr(""))
	of := len(action.PodsOf(a)) + len(action.AttachmentsOf(a))
	if w.Failed > 0 {
		log.Warn("Could not write some pods or attachments", "policy", action.PolicyOf(a), "act", action.Name(a), "failed", w.Failed, "of", of, "first", w.First)
	}
	if w.Crowded > 0 {
		log.Warn("The API server has no room for some writes of pods or attachments", "act", action.Name(a), "refused", w.Crowded, "of", of)
	}
	if w.Stopped {
		log.Warn("Stopped: the node shows life, or its machine is no longer proven off")
	}
}

// reportAnswers tells of what devices answered.
func (r *Reconciler) reportAnswers(st *nodeState, all []providers.Answer) {
	r.logAnswers(st, all)
	r.noticed(st)
	r.tookAsked(st, all)
}

// writes reports an action that is one write of the Node, and news.
func writes(a action.Action) bool {
	switch a.(type) {
	case action.Write, action.Announce, action.Arm, action.Unmark:
		return true
	}
	return false
}

// phases are the names of actions in the metric of phases.
var phases = map[string]string{"Arm": "mark", "Tombstone": "tombstone", "ClearVolumes": "clear", "Delete": "delete"}

// parts are the names of the other actions that Options.Took is told of.
var parts = map[string]string{
	"PowerOff": "power_off", "PowerOn": "power_on", "Unmark": "unmark", "Spare": "spare", "DeleteAttachments": "delete_attachments",
	"SetNotReady": "set_not_ready",
}

// took tells of an action of a fence. One of a policy is none.
func (r *Reconciler) took(s decide.StepDone, err error) {
	d := s.Decision
	name := cmp.Or(phases[action.Name(d.Action)], parts[action.Name(d.Action)])
	if r.Took == nil || name == "" || action.OfPolicy(d.Action) {
		return
	}
	rec := s.Look.Record
	if a, arms := d.Action.(action.Arm); arms {
		rec = &a.Record
	}
	r.Took(Part{Node: s.Look.Name, Record: rec, Name: name, Begun: s.Began.Wall, Ended: s.Ended.Wall, Pods: len(action.PodsOf(d.Action)), Err: err})
}

// tookAsked tells of what devices were asked.
func (r *Reconciler) tookAsked(st *nodeState, all []providers.Answer) {
	if r.Took == nil {
		return
	}
	l := st.course.Look()
	for i, d := range st.machine.Devices() {
		a := all[i]
		r.Took(Part{Node: l.Name, Record: l.Record, Name: "ask", Begun: a.At.Wall, Ended: a.Got.Wall, Device: d.Device, State: a.State, Err: a.Err})
	}
}

// noticed tells who was the first to make a node suspect whose machine is off, once in a life of the node: not where a fence of that
// life says so already, which may be ours.
func (r *Reconciler) noticed(st *nodeState) {
	l := st.course.Look()
	if st.course.Answer().State != providers.PowerOff || l.Mark != nil || l.Record != nil && !l.Alive(l.Record) {
		return
	}
	var by fleet.Source
	var silent time.Duration
	r.across(func(f *fleet.Fleet) { by, silent = f.Noticed(l.Name, r.now()) })
	if by == "" {
		return
	}
	r.Metrics.noticed.WithLabelValues(string(by)).Inc()
	if silent > 0 {
		r.Metrics.noticedAfter.Observe(silent.Seconds())
	}
	r.Log.Info("Noticed that a machine is off", "node", l.Name, "by", string(by), "silent", silent.Round(time.Millisecond).String())
}
