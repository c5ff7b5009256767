package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// reads are the World's actions that change nothing.
type reads struct{ *work }

// read is what a read brought, or why it failed. Either tells whether the API server answers.
func (w reads) read(o decide.Observation, err error) decide.Observation {
	if w.called(err); err != nil {
		return decide.ReadFailed{Err: err}
	}
	return o
}

// ReadNode looks live at the Node and its Lease, and finds its machine.
func (w reads) ReadNode(ctx context.Context) decide.Observation {
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
func (w reads) ListPods(ctx context.Context) decide.Observation {
	objects, err := kube.Pods(ctx, w.Live, w.name)
	if err != nil {
		return w.read(nil, err)
	}
	seen := kube.SeePods(objects, w.Key, w.Config().EvictFirst)
	w.st.objects = slimPods(objects)
	return w.read(decide.PodsListed{Pods: seen}, nil)
}

// ReadVolumes reads the volumes of pods.
func (w reads) ReadVolumes(ctx context.Context, a action.ReadVolumes) decide.Observation {
	of, unread, err := kube.Volumes(ctx, w.Live, w.st.only(a.Pods))
	if err != nil {
		return w.read(nil, err)
	}
	w.Config().judge(w.st.only(a.Pods), of)
	return w.read(decide.VolumesRead{Of: of, Unread: unread}, nil)
}

// ListAttachments lists the attachments that name the node.
func (w reads) ListAttachments(ctx context.Context, a action.ListAttachments) decide.Observation {
	var list []action.Attachment
	if a.Live {
		live, err := w.attachedTo(ctx, w.name)
		if err != nil {
			return w.read(nil, err)
		}
		list = live
	} else {
		cached, err := kube.Attachments(ctx, w.Cache, client.MatchingFields{nodeNameIndex: w.name})
		if err != nil {
			return w.read(nil, err)
		}
		list = cached[w.name]
	}
	return w.read(decide.AttachmentsListed{Attachments: list, Live: a.Live}, nil)
}

// ReadOwners reads what controls the owners of pods.
func (w reads) ReadOwners(ctx context.Context, a action.ReadOwners) decide.Observation {
	of, err := kube.Owners(ctx, w.Live, a.Pods)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.OwnersRead{Of: of}, nil)
}

// ReadRival reads what Longhorn does by itself.
func (w reads) ReadRival(ctx context.Context) decide.Observation {
	return w.read(decide.RivalRead{Why: kube.LonghornDeletes(ctx, w.Live, w.Client.RESTMapper())}, nil)
}

// ReadWaiting reads what Pending pods of the pods' namespaces wait for.
func (w reads) ReadWaiting(ctx context.Context, a action.ReadWaiting) decide.Observation {
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
func (w reads) ReadMembers(ctx context.Context) decide.Observation {
	members, err := kube.Members(ctx, w.Live)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.MembersRead{Ready: members}, nil)
}

// ReadClaims reads the claims of PersistentVolumes.
func (w reads) ReadClaims(ctx context.Context, a action.ReadClaims) decide.Observation {
	claims, err := kube.Claims(ctx, w.Live, a.PVs)
	if err != nil {
		return w.read(nil, err)
	}
	return w.read(decide.ClaimsRead{Of: claims}, nil)
}

// Ask puts the question to the machine's devices, live.
func (w reads) Ask(ctx context.Context) decide.Observation {
	return decide.DevicesAnswered{Answers: w.ask(ctx)}
}

// newID returns the id of a fence: a label value, unique for all practical purposes.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return "f-" + hex.EncodeToString(b[:])
}

// nodeNameIndex is the cache's index of VolumeAttachments by the node they name.
const nodeNameIndex = "spec.nodeName"

// indexNodeName is its function.
func indexNodeName(o client.Object) []string {
	va, ok := o.(*storagev1.VolumeAttachment)
	if !ok {
		return nil
	}
	return []string{va.Spec.NodeName}
}
