// Package api has the custom resource Fencing: a record of one fence of one node, or of what mode shadow would have
// done. It is for people, and for programs that only read: no decision of forcefence reads a Fencing. The truth is the
// record on the Node (taint.Record). It imports Kubernetes' API machinery and nothing else.
//
// The definition in the chart is generated from these types, as are their DeepCopy methods.
//
// +groupName=forcefence.io
// +versionName=v1alpha1
// +kubebuilder:object:generate=true
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

//go:generate -command controller-gen go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1
//go:generate controller-gen object crd paths=. output:crd:dir=../../deploy/helm/forcefence/files

// The resource's names.
var (
	GroupVersion = schema.GroupVersion{Group: "forcefence.io", Version: "v1alpha1"}
	Resource     = GroupVersion.WithResource("fencings")
)

// Kind is the kind of a Fencing.
const Kind = "Fencing"

// Labels of a Fencing, for selectors. A value that no label can have is left out.
const (
	NodeLabel  = "forcefence.io/node"
	FenceLabel = "forcefence.io/fence-id"
)

// The conditions of a Fencing.
const (
	// Proven is True once a device said Off, False if the fence continued without that.
	Proven = "Proven"
	// Finished is True once the fence has ended; its reason is the result.
	Finished = "Finished"
	// NeedsPerson is True while a person should look; its message says why.
	NeedsPerson = "NeedsPerson"
)

// The steps of a fence.
const (
	StepAskDevices        = "AskDevices"
	StepSetMark           = "SetMark"
	StepPowerOff          = "PowerOff"
	StepPowerOn           = "PowerOn"
	StepEndPods           = "EndPods"
	StepClearVolumes      = "ClearVolumes"
	StepDeletePods        = "DeletePods"
	StepSparePods         = "SparePods"
	StepSetPodsNotReady   = "SetPodsNotReady"
	StepDeleteAttachments = "DeleteAttachments"
	StepRemoveMark        = "RemoveMark"
)

// Bounds of a Fencing. Counts are exact where lists are cut.
const (
	MaxNames    = 256 // of pods, of volumes
	MaxTimeline = 32
	MaxEvidence = 32
	MaxDevices  = 12 // in PowerOffTo
	MaxWaiting  = 8  // in Volumes.Waiting
	MaxSteps    = 16
	MaxError    = 256 // bytes of Step.Error
)

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Fencing{}, &FencingList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Fencing records one fence of one node, or what mode shadow would have done about it. No decision reads it: editing or
// deleting it changes nothing else.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fcg,path=fencings,singular=fencing
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.result`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods.ended`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes.detached`
// +kubebuilder:printcolumn:name="Took",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Shadow",type=boolean,JSONPath=`.spec.shadow`,priority=1
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`,priority=1
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.spec.device`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.spec.startedAt`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.spec.why`
type Fencing struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// which node was fenced, and why
	// +required
	Spec FencingSpec `json:"spec"`
	// how far the fence has come, and what it did
	// +optional
	Status FencingStatus `json:"status,omitempty"`
}

// FencingList is a list of them.
//
// +kubebuilder:object:root=true
type FencingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fencing `json:"items"`
}

// FencingSpec names the node that was fenced, and why. It is written once.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="who was fenced, and why, does not change"
type FencingSpec struct {
	// the Node's name
	Node string `json:"node"`
	// the Node object's UID: a Node of the same name may be another one by now
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`
	// nodeInfo.bootID of the boot that was fenced
	// +optional
	BootID string `json:"bootID,omitempty"`
	// the fence's id, which is the mark's value; if a person set the mark, the value that the person chose
	// +optional
	ID string `json:"id,omitempty"`
	// the controller's identity; "person" or "external/NAME" if another client set the mark
	By string `json:"by"`
	// what made the node suspect, or that it was marked by hand
	// +optional
	Why string `json:"why,omitempty"`
	// the device that is asked first, as provider/device
	// +optional
	Device string `json:"device,omitempty"`
	// when the fence began, or would have
	StartedAt metav1.MicroTime `json:"startedAt"`
	// the fence began with a power-off that forcefence sent
	// +optional
	PowerOff bool `json:"powerOff,omitempty"`
	// only what would have been done: nothing was touched
	// +optional
	Shadow bool `json:"shadow,omitempty"`
}

// FencingStatus is the progress of a fence, and what it did.
type FencingStatus struct {
	// PoweringOff, Armed, Evicting or Done
	// +optional
	Phase string `json:"phase,omitempty"`
	// how the fence ended; empty until phase Done. WouldPowerOff and WouldRecover: mode shadow, nothing was done
	// +optional
	Result string `json:"result,omitempty"`
	// what happened to a machine that forcefence had powered off, if afterFence is powerOn. PowerOn: a power-on was
	// sent; PoweredOn: the machine was on after that; CameOn: it was turned on by another client; FencedAgain: it stays
	// off, because the node needed another fence too soon
	// +optional
	AfterFence string `json:"afterFence,omitempty"`
	// when it ended
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// from its start to its end, such as 8.2s
	// +optional
	Duration string `json:"duration,omitempty"`
	// the phases in the order in which they were entered
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Timeline []PhaseEntered `json:"timeline,omitempty"`
	// what forcefence did and when, one entry for each kind of step, in the order in which they first began
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Steps []Step `json:"steps,omitempty"`
	// what the devices answered
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Evidence []Answer `json:"evidence,omitempty"`
	// the signed chain of the devices' answers, as JSON; `forcefence proof verify` checks and prints it. Empty: the
	// controller has no signing key
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Proof string `json:"proof,omitempty"`
	// the devices, as provider/device, that accepted a power-off of this fence, or may have, and those of earlier
	// fences since the node's last sign of life; until phase Done also those that a power-off is about to be sent
	// through. If one is still off, turn it on again, unless afterFence does
	// +optional
	// +kubebuilder:validation:MaxItems=12
	PowerOffTo []string `json:"powerOffTo,omitempty"`
	// what happened to the node's pods
	// +optional
	Pods Pods `json:"pods,omitempty"`
	// what happened to the volumes that were attached to the node
	// +optional
	Volumes Volumes `json:"volumes,omitempty"`
	// Proven, Finished, NeedsPerson
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PhaseEntered is one entry of the timeline.
type PhaseEntered struct {
	// the phase
	Phase string `json:"phase"`
	// of phase Done
	// +optional
	Result string `json:"result,omitempty"`
	// when it was entered
	At metav1.MicroTime `json:"at"`
}

// Step is one kind of step of a fence. Where it was done several times, its entry covers all of them.
type Step struct {
	// AskDevices, SetMark, PowerOff, PowerOn, EndPods, ClearVolumes, DeletePods, SparePods, SetPodsNotReady,
	// DeleteAttachments or RemoveMark
	Step string `json:"step"`
	// when it began, the first time
	Began metav1.MicroTime `json:"began"`
	// when it ended, the last time
	Ended metav1.MicroTime `json:"ended"`
	// how many objects it was about, in sum: pods, volumes or VolumeAttachments
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// how often it was done, where it was more than once
	// +optional
	Times int32 `json:"times,omitempty"`
	// how it failed last, if ever
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Error string `json:"error,omitempty"`
}

// Answer is one device's answer, or a reason to go on without one.
type Answer struct {
	// when the question was sent
	At metav1.MicroTime `json:"at"`
	// the provider, or provider/device where the node has several
	From string `json:"from"`
	// On, Off, Changing, Unknown, or None where no device can speak
	State string `json:"state"`
	// the device's own word, or the error's class
	// +optional
	Raw string `json:"raw,omitempty"`
}

// Pods counts pods of the node. It names the first 256 of those that were ended, or of those that would have been.
type Pods struct {
	// ended, to run elsewhere
	// +optional
	Ended int32 `json:"ended"`
	// spared, because the node came back
	// +optional
	Spared int32 `json:"spared"`
	// ended and left behind: finalizers of other clients, or the API server, kept them
	// +optional
	Left int32 `json:"left"`
	// those that would have been ended, of a shadow decision: none was
	// +optional
	Would int32 `json:"would,omitempty"`
	// the ended ones; of a shadow decision those that would have been
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Names []Pod `json:"names,omitempty"`
}

// Pod names a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Volumes counts the volumes that the fence had to detach. It names the first 256.
type Volumes struct {
	// those that had to be detached, and were attached at some time of the fence
	// +optional
	Attached int32 `json:"attached"`
	// those of them that are not any more
	// +optional
	Detached int32 `json:"detached"`
	// PersistentVolumes; of an inline volume the VolumeAttachment
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Names []string `json:"names,omitempty"`
	// those of the names that are still attached
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Left []string `json:"left,omitempty"`
	// those of pods that stay on the node: they stay attached, and no count has them
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Staying []string `json:"staying,omitempty"`
	// the VolumeAttachments that a person should look at, because they stay: the first 8 by name
	// +optional
	// +kubebuilder:validation:MaxItems=8
	Waiting []Attachment `json:"waiting,omitempty"`
}

// Attachment is a VolumeAttachment that a fence waits for.
type Attachment struct {
	// of the VolumeAttachment
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// its PersistentVolume; "" for an inline volume of a pod
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`
	// its CSI driver, whose controller has to detach it
	// +kubebuilder:validation:MaxLength=253
	Driver string `json:"driver"`
}

// LookCommand returns the command that shows why the attachment stays; "" for a name that no object can have, which
// another client wrote into a Fencing.
func (a Attachment) LookCommand() string {
	if len(validation.IsDNS1123Subdomain(a.Name)) > 0 {
		return ""
	}
	return "kubectl describe volumeattachment " + a.Name
}
