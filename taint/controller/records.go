package controller

import (
	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
)

// chronicle tells Options.Told of the fence, or the shadow decision, that the record is of. It does not block.
func (r *Reconciler) chronicle(node string, st *nodeState, t journal.Told) {
	if r.Told == nil || t.Record.NodeUID == "" {
		return
	}
	t.Node, t.At, t.Why = node, r.Now(), st.suspect
	r.Told(t)
}

// chronicleLook tells what a look shows, and what it is that a person should look at.
func (r *Reconciler) chronicleLook(st *nodeState) {
	if rec := st.course.Look().Record; rec != nil {
		r.chronicle(st.course.Look().Name, st, journal.Told{Record: *rec, Alert: &st.told.alerted, Seen: true})
	}
}

// chronicleWrite tells of a record that was written on the Node.
func (r *Reconciler) chronicleWrite(st *nodeState, d action.Decision) {
	if action.Is[action.Announce](d) {
		return
	}
	t := journal.Told{Record: action.RecordOf(d.Action)}
	if a, ends := d.Action.(action.Unmark); ends {
		for _, p := range a.Kept {
			t.Left = append(t.Left, named(p))
		}
		for _, p := range d.Stuck {
			t.Left = append(t.Left, named(p.Pod))
		}
	}
	r.chronicle(st.course.Look().Name, st, t)
}

// chroniclePods tells of pods that were written.
func (r *Reconciler) chroniclePods(st *nodeState, do action.Action, written []action.Pod) {
	l := st.course.Look()
	if !l.Record.Open() {
		return
	}
	t := journal.Told{Record: *l.Record}
	for _, p := range written {
		switch do.(type) {
		case action.Tombstone:
			t.Ended = append(t.Ended, named(p))
		case action.Spare:
			t.Spared = append(t.Spared, named(p))
		default:
			return
		}
	}
	r.chronicle(st.course.Look().Name, st, t)
}

// chronicleList tells of the pods that an earlier process ended.
func (r *Reconciler) chronicleList(st *nodeState) {
	l := st.course.Look()
	if l.Mark == nil || !l.Record.Open() || l.Record.Phase != taint.PhaseEvicting {
		return
	}
	t := journal.Told{Record: *l.Record}
	for i := range st.objects {
		if p := &st.objects[i]; taint.IsTombstone(p) && p.Status.Message == taint.FenceMessage(l.Record.ID) {
			t.Ended = append(t.Ended, api.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)})
		}
	}
	if len(t.Ended) > 0 {
		r.chronicle(st.course.Look().Name, st, t)
	}
}

// chronicleAttached tells of the volumes that are attached to a marked node.
func (r *Reconciler) chronicleAttached(st *nodeState, atts []action.Attachment) {
	l := st.course.Look()
	if l.Mark == nil || !l.Record.Open() {
		return
	}
	list := []string{}
	for _, a := range atts {
		if a.PV != "" {
			list = append(list, a.PV)
		} else {
			list = append(list, a.Name)
		}
	}
	r.chronicle(st.course.Look().Name, st, journal.Told{Record: *l.Record, Attached: &list})
}

func named(p action.Pod) api.Pod { return api.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID} }
