package controller

import (
	"cmp"
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// executor carries out decisions on one node: it is the node's decide.World, over the API server and the providers.
type executor struct {
	*Reconciler

	name string
	st   *nodeState
}

// read is what a read brought, or why it failed. Either tells whether the API server answers.
func (w *executor) read(o decide.Observation, err error) decide.Observation {
	if w.called(err); err != nil {
		return decide.ReadFailed{Err: err}
	}
	return o
}

// ReadNode looks live at the Node and its Lease, and finds its machine.
func (w *executor) ReadNode(ctx context.Context) decide.Observation {
	st := w.st
	node, l, err := kube.Look(ctx, w.Live, w.name, w.Key, w.Now)
	if err != nil {
		return w.read(nil, err)
	}
	var facts decide.Facts
	var elsewhere decide.Elsewhere
	st.node, st.objects, st.machine = node, nil, machine.Machine{}
	if l.Exists {
		config := w.Config()
		facts, st.machine = config.Facts(node, l, w.Now())
		facts.By, facts.NewID = w.By, cmp.Or(facts.NewID, newID())
		facts.Nobody = st.since(facts.Nobody, w.Now())
		if facts.Excluded == "" && l.Mark == nil {
			said, err := w.saidElsewhere(ctx, config.Elsewhere, node)
			if err != nil {
				return w.read(nil, err)
			}
			facts.Excluded, facts.KeptOn = said.Excluded, cmp.Or(facts.KeptOn, said.KeptOn)
			l.Got = w.now() // this is part of the look: where it alone took longer than a look holds, no power-off could ever be sent
			elsewhere = decide.Elsewhere{Excluded: said.Excluded, KeptOn: said.KeptOn}
		}
		st.still = !facts.Mode.Begins()
		status, _ := taint.ProtectionOf(node)
		st.nudging.saw(l, status, w.Now())
	}
	return w.read(decide.NodeRead{Look: l, Facts: facts, Node: node, Elsewhere: elsewhere}, nil)
}

// ListPods lists the pods bound to the node.
func (w *executor) ListPods(ctx context.Context) decide.Observation {
	objects, err := kube.Pods(ctx, w.Live, w.name)
	if err != nil {
		return w.read(nil, err)
	}
	seen := kube.SeePods(objects, w.Key, w.Config().EvictFirst)
	w.st.objects = slimPods(objects)
	return w.read(decide.PodsListed{Pods: seen}, nil)
}

// ReadVolumes reads the volumes of pods.
func (w *executor) ReadVolumes(ctx context.Context, a action.ReadVolumes) decide.Observation {
	of, unread, err := kube.Volumes(ctx, w.Live, w.st.only(a.Pods))
	if err != nil {
		return w.read(nil, err)
	}
	w.Config().judge(w.st.only(a.Pods), of)
	return w.read(decide.VolumesRead{Of: of, Unread: unread}, nil)
}

// ListAttachments lists the attachments that name the node.
func (w *executor) ListAttachments(ctx context.Context, a action.ListAttachments) decide.Observation {
	var list []action.Attachment
	if a.Live {
		live, err := w.attachedTo(ctx, w.name)
		if err != nil {
			return w.read(nil, err)
		}
		list = live
	} else {
		cached, err := kube.Attachments(ctx, w.Cache, client.MatchingFields{NodeNameIndex: w.name})
		if err != nil {
			return w.read(nil, err)
		}
		list = cached[w.name]
	}
	return w.read(decide.AttachmentsListed{Attachments: list, Live: a.Live}, nil)
}

// ReadOwners reads what controls the owners of pods.
func (w *executor) ReadOwners(ctx context.Context, a action.ReadOwners) decide.Observation {
	of, err := kube.Owners(ctx, w.Live, a.Pods)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.OwnersRead{Of: of}, nil)
}

// ReadRival reads what Longhorn does by itself.
func (w *executor) ReadRival(ctx context.Context) decide.Observation {
	return w.read(decide.RivalRead{Why: kube.LonghornDeletes(ctx, w.Live, w.Client.RESTMapper())}, nil)
}

// ReadWaiting reads what Pending pods of the pods' namespaces wait for.
func (w *executor) ReadWaiting(ctx context.Context, a action.ReadWaiting) decide.Observation {
	var namespaces []string
	for _, p := range a.Pods {
		if !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	claims, err := kube.Waiting(ctx, w.Live, w.name, namespaces)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.WaitingRead{Claims: claims}, nil)
}

// ReadMembers lists etcd's pods.
func (w *executor) ReadMembers(ctx context.Context) decide.Observation {
	members, err := kube.Members(ctx, w.Live)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.MembersRead{Ready: members}, nil)
}

// ReadClaims reads the claims of PersistentVolumes.
func (w *executor) ReadClaims(ctx context.Context, a action.ReadClaims) decide.Observation {
	claims, err := kube.Claims(ctx, w.Live, a.PVs)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.ClaimsRead{Of: claims}, nil)
}

// Ask puts the question to the machine's devices, live.
func (w *executor) Ask(ctx context.Context) decide.Observation {
	return decide.DevicesAnswered{Answers: w.ask(ctx, w.st)}
}

// ask returns one answer of each device.
func (r *Reconciler) ask(ctx context.Context, st *nodeState) []providers.Answer {
	return st.machine.HeardAt(r.fleetView(st.course.Look().Name).Beat.Wall).Ask(ctx, r.liar, r.now)
}

// wrote is how one write of the Node ended.
func wrote(err error) decide.Observation { return decide.ActionDone{Err: err} }

// Write writes the record.
func (w *executor) Write(ctx context.Context, a action.Write) decide.Observation {
	return wrote(w.writer.Record(ctx, w.st.course.Look(), a.Record))
}

// Announce names policies on the Node.
func (w *executor) Announce(ctx context.Context, a action.Announce) decide.Observation {
	return wrote(w.writer.Announce(ctx, w.st.course.Look(), a.Note))
}

// Arm sets the mark.
func (w *executor) Arm(ctx context.Context, a action.Arm) decide.Observation {
	return wrote(w.writer.Arm(ctx, w.st.course.Look(), a.Record))
}

// Unmark takes the mark off.
func (w *executor) Unmark(ctx context.Context, a action.Unmark) decide.Observation {
	return wrote(w.writer.Unmark(ctx, w.st.course.Look(), a.Record))
}

// Condition says that the machine is on, or takes that back.
func (w *executor) Condition(ctx context.Context, a action.Condition) decide.Observation {
	return wrote(w.writer.PoweredOn(ctx, w.st.course.Look(), a.On))
}

// ExpireReady ends a stale Ready.
func (w *executor) ExpireReady(ctx context.Context) decide.Observation {
	return wrote(w.writer.ExpireReady(ctx, w.st.course.Look()))
}

// OutOfService adds Kubernetes' own taint.
func (w *executor) OutOfService(ctx context.Context) decide.Observation { return w.service(ctx, true) }

// InService takes it off.
func (w *executor) InService(ctx context.Context) decide.Observation { return w.service(ctx, false) }

func (w *executor) service(ctx context.Context, out bool) decide.Observation {
	by, hold := w.maySend(w.st, "")
	if hold != decide.Yes {
		return decide.ActionDone{Err: kube.ErrLate, Late: true}
	}
	return wrote(w.writer.OutOfService(kube.SendBy(ctx, by), w.st.course.Look(), out))
}

// ClearVolumes clears the volume lists.
func (w *executor) ClearVolumes(ctx context.Context, a action.ClearVolumes) decide.Observation {
	l := w.st.course.Look()
	by, hold := w.maySend(w.st, "")
	if hold != decide.Yes {
		return decide.ActionDone{Err: kube.ErrLate, Late: true}
	}
	return wrote(w.writer.Clear(kube.SendBy(ctx, by), l, a.InUse, a.Attached))
}

// Tombstone ends pods.
func (w *executor) Tombstone(ctx context.Context, a action.Tombstone) decide.Observation {
	message := taint.PolicyMessage(a.Policy)
	if a.Policy == "" {
		message = taint.FenceMessage(w.st.course.Look().Record.ID)
	}
	return w.forEach(ctx, w.st, a, func(ctx context.Context, p action.Pod) error { return w.writer.Tombstone(ctx, p, message) })
}

// Delete deletes ended pods.
func (w *executor) Delete(ctx context.Context, a action.Delete) decide.Observation {
	return w.forEach(ctx, w.st, a, w.writer.Delete)
}

// Spare spares pods.
func (w *executor) Spare(ctx context.Context, a action.Spare) decide.Observation {
	token := w.st.course.Look().Record.Token()
	return w.forEach(ctx, w.st, a, func(ctx context.Context, p action.Pod) error { return w.writer.Spare(ctx, p, token) })
}

// SetNotReady sets pods that stay not ready.
func (w *executor) SetNotReady(ctx context.Context, a action.SetNotReady) decide.Observation {
	return w.forEach(ctx, w.st, a, w.writer.SetNotReady)
}

// DeleteAttachments deletes attachments.
func (w *executor) DeleteAttachments(ctx context.Context, a action.DeleteAttachments) decide.Observation {
	return w.detach(ctx, w.st, a)
}

// PowerOff sends the power-off that the record announced.
func (w *executor) PowerOff(ctx context.Context, a action.PowerOff) decide.Observation {
	by := w.st.machine.Devices()[a.Move.Device]
	o := w.actOnPower(ctx, w.st, by, by.Provider.PowerOff)
	o.Power = []decide.PowerSent{{Device: by.Device, Err: o.Err, Late: o.Late}}
	return o
}

// PowerOn sends the power-on that the record announced, through one device after the other. What keeps one device from
// being sent to keeps the others as well.
func (w *executor) PowerOn(ctx context.Context, a action.PowerOn) decide.Observation {
	devices, all := w.st.machine.Devices(), decide.ActionDone{Late: true}
	for _, i := range a.Devices {
		by := devices[i]
		o := w.actOnPower(ctx, w.st, by, by.Provider.PowerOn)
		all.Sent, all.Err, all.Late = o.Sent, cmp.Or(o.Err, all.Err), all.Late && o.Late
		all.Power = append(all.Power, decide.PowerSent{Device: by.Device, Err: o.Err, Late: o.Late})
		if o.Late {
			break
		}
	}
	return all
}
