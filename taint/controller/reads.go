package controller

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// reads implements the World's actions that change nothing.
type reads struct{ *work }

// finishRead returns the observation o of a read; if the read failed, why. Either shows whether the API server answers.
func (w reads) finishRead(o decide.Observation, err error) decide.Observation {
	if w.noteReadResult(err); err != nil {
		return decide.ReadFailed{Err: err}
	}
	return o
}

// ReadNode looks live at the Node and its Lease, and finds its machine.
func (w reads) ReadNode(ctx context.Context) decide.Observation {
	st := w.st
	node, l, err := kube.ReadNode(ctx, w.Live, w.name, w.Key, w.Now)
	if err != nil {
		return w.finishRead(nil, err)
	}
	var facts decide.Facts
	st.node, st.objects, st.machine = node, nil, machine.Machine{}
	if l.Exists {
		config := w.Config()
		facts, st.machine = config.FactsOf(node, l, w.Now())
		facts.By, facts.NewID = w.By, cmp.Or(facts.NewID, NewFenceID())
		facts.NoDeviceErr = st.withSince(facts.NoDeviceErr, w.Now())
		if facts.Excluded == "" && l.Mark == nil {
			exclusions, err := w.readExclusions(ctx, config.Exclusions, node)
			if err != nil {
				return w.finishRead(nil, err)
			}
			facts.Excluded, facts.KeptOn = exclusions.Excluded, cmp.Or(facts.KeptOn, exclusions.KeptOn)
			// This is part of the look: if it alone lasted longer than a look holds, no power-off could ever be sent.
			l.Got = w.Now.Instant()
		}
		if w.Requests != nil && facts.Mode == fence.OnRequest && l.Mark == nil {
			facts.RequestedBy = w.Requests.ReadRequest(ctx, node)
			l.Got = w.Now.Instant()
		}
		if w.StorageFences != nil && l.Mark == nil && !l.IsReady() && facts.Mode.MayAct() {
			facts.StorageFences = w.StorageFences.ReadFences(ctx, l, facts.Policies)
			l.Got = w.Now.Instant()
		}
		w.WithFleet(func(f *fleet.Fleet) { f.ApplySharers(w.name, st.machine.Sharers(), w.Now.Instant()) })
		st.beginsNothing = !facts.Mode.MayAct()
		status, _ := taint.ProtectionOf(node)
		st.nudging.observeLook(l, status, w.Now())
	}
	return w.finishRead(decide.NodeRead{Look: l, Facts: facts, Node: node}, nil)
}

// ListPods lists the pods bound to the node.
func (w reads) ListPods(ctx context.Context) decide.Observation {
	objects, pods, first := []corev1.Pod{}, []action.Pod{}, w.Config().EvictFirst
	err := kube.EachPods(ctx, w.Live, w.name, func(page []corev1.Pod) {
		objects, pods = append(objects, slimPods(page)...), append(pods, kube.SeePods(page, w.Key, first)...)
	})
	if err == nil {
		w.st.objects = objects
	}
	return w.finishRead(decide.PodsListed{Pods: pods}, err)
}

// ReadVolumes reads the volumes of pods.
func (w reads) ReadVolumes(ctx context.Context, a action.ReadVolumes) decide.Observation {
	of, unread, err := kube.ReadVolumes(ctx, w.Live, w.st.objectsOf(a.Pods))
	w.Config().fillVolumeHealth(w.st.objectsOf(a.Pods), of)
	return w.finishRead(decide.VolumesRead{ByPod: of, Err: unread}, err)
}

// ListAttachments lists the attachments that name the node.
func (w reads) ListAttachments(ctx context.Context, a action.ListAttachments) decide.Observation {
	if a.Live {
		list, err := w.attachedTo(ctx, w.name)
		return w.finishRead(decide.AttachmentsListed{Attachments: list, Live: true}, err)
	}
	cached, err := kube.ListAttachments(ctx, w.Cache, client.MatchingFields{nodeNameIndex: w.name})
	return w.finishRead(decide.AttachmentsListed{Attachments: cached[w.name]}, err)
}

// ReadOwners reads what controls the owners of pods.
func (w reads) ReadOwners(ctx context.Context, a action.ReadOwners) decide.Observation {
	of, err := kube.ReadOwners(ctx, w.Live, a.Pods)
	return w.finishRead(decide.OwnersRead{ByPod: of}, err)
}

// ReadStorageSetting reads what Longhorn's own setting makes it do.
func (w reads) ReadStorageSetting(ctx context.Context) decide.Observation {
	return w.finishRead(decide.StorageSettingRead{Why: kube.LonghornDeletes(ctx, w.Live, w.Client.RESTMapper())}, nil)
}

// ReadAwaitedClaims reads the claims that Pending pods of the pods' namespaces wait for.
func (w reads) ReadAwaitedClaims(ctx context.Context, a action.ReadAwaitedClaims) decide.Observation {
	var namespaces []string
	for _, p := range a.Pods {
		if !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	claims, err := kube.ListAwaitedClaims(ctx, w.Live, w.name, namespaces)
	return w.finishRead(decide.AwaitedClaimsRead{Claims: claims}, err)
}

// ListEtcdPods lists etcd's pods.
func (w reads) ListEtcdPods(ctx context.Context) decide.Observation {
	members, err := kube.ListEtcdMembers(ctx, w.Live)
	return w.finishRead(decide.EtcdPodsListed{Ready: members}, err)
}

// ReadClaims reads the claims of PersistentVolumes.
func (w reads) ReadClaims(ctx context.Context, a action.ReadClaims) decide.Observation {
	claims, err := kube.ReadClaims(ctx, w.Live, a.PVs)
	return w.finishRead(decide.ClaimsRead{ByVolume: claims}, err)
}

// AskDevices asks the machine's devices, live.
func (w reads) AskDevices(ctx context.Context) decide.Observation {
	return decide.DevicesAnswered{Answers: w.askDevices(ctx)}
}

// askDevices asks the machine's devices, live. It returns one answer of each.
func (w *work) askDevices(ctx context.Context) []providers.Answer {
	return w.st.machine.WithHeardAt(w.fleetView(w.st.course.Look().Name).Alive.Wall).
		AskDevices(ctx, machine.DistrustedBy(w.WithFleet), w.Now.Instant)
}

// nodeNameIndex is the cache's index of VolumeAttachments by the node they name.
const nodeNameIndex = "spec.nodeName"

// indexNodeName is the function of that index.
func indexNodeName(o client.Object) []string {
	va, ok := o.(*storagev1.VolumeAttachment)
	if !ok {
		return nil
	}
	return []string{va.Spec.NodeName}
}
