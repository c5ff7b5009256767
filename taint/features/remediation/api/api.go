// Package api has the custom resources ForcefenceRemediation and ForcefenceRemediationTemplate. A ForcefenceRemediation
// is a request: the machine of one node may be powered off now. NodeHealthCheck of medik8s and a MachineHealthCheck of
// Cluster API create it from a template, and delete it once the node is healthy. It imports Kubernetes' API machinery
// and nothing else.
//
// The version stays v1alpha1 for good: Cluster API takes a template's apiVersion as it is written in a
// MachineHealthCheck, and resolves no other version. The definitions in deploy are generated from these types, as are
// their DeepCopy methods.
//
// +groupName=remediation.forcefence.io
// +versionName=v1alpha1
// +kubebuilder:object:generate=true
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate -command controller-gen go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1
//go:generate controller-gen object crd paths=. output:crd:dir=../../../../deploy/helm/forcefence/files

// The resources' names.
var (
	GroupVersion = schema.GroupVersion{Group: "remediation.forcefence.io", Version: "v1alpha1"}
	Resource     = GroupVersion.WithResource("forcefenceremediations")
)

// Kind is the kind of a request. That of its template has the suffix Template, which both health checks demand.
const Kind = "ForcefenceRemediation"

// The conditions of a ForcefenceRemediation.
const (
	// Processing is True while forcefence works on the node, or waits; its reason and message say for what.
	Processing = "Processing"
	// Succeeded is True once the node's pods were moved. It is False if another remediator should try.
	Succeeded = "Succeeded"
)

// Finalizer keeps a request while the node has forcefence's mark: until then the node is not healthy.
const Finalizer = "remediation.forcefence.io/mark"

// AddToScheme makes the requests known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ForcefenceRemediation{}, &ForcefenceRemediationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ForcefenceRemediation permits forcefence to power off the machine of one node. It proves nothing: pods are moved only
// after a device said that the machine is off.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ffr,path=forcefenceremediations
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Processing",type=string,JSONPath=`.status.conditions[?(@.type=="Processing")].status`
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Processing")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ForcefenceRemediation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ForcefenceRemediationSpec `json:"spec,omitempty"`
	// what became of the request
	// +optional
	Status ForcefenceRemediationStatus `json:"status,omitempty"`
}

// ForcefenceRemediationList is a list of them.
//
// +kubebuilder:object:root=true
type ForcefenceRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ForcefenceRemediation `json:"items"`
}

// ForcefenceRemediationSpec has no fields: forcefence's own configuration says how a node is fenced.
type ForcefenceRemediationSpec struct{}

// ForcefenceRemediationStatus says what became of the request.
type ForcefenceRemediationStatus struct {
	// the node that the request is for; empty while that is unknown
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// the node's UID and boot id when forcefence saw the request first: it permits no power-off in another life
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NodeUID string `json:"nodeUID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	BootID string `json:"bootID,omitempty"`
	// since when the node's Ready has had its status, as forcefence saw it last: the request permits no power-off in an
	// outage that began while no controller watched
	// +optional
	ReadySince *metav1.Time `json:"readySince,omitempty"`
	// Processing, Succeeded
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ForcefenceRemediationTemplate is what the health checks copy into a request.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ffrt,path=forcefenceremediationtemplates
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
type ForcefenceRemediationTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ForcefenceRemediationTemplateSpec `json:"spec"`
}

// ForcefenceRemediationTemplateList is a list of them.
//
// +kubebuilder:object:root=true
type ForcefenceRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ForcefenceRemediationTemplate `json:"items"`
}

// ForcefenceRemediationTemplateSpec holds the template.
type ForcefenceRemediationTemplateSpec struct {
	// +required
	Template ForcefenceRemediationTemplateResource `json:"template"`
}

// ForcefenceRemediationTemplateResource is the part of a request that comes from the template.
type ForcefenceRemediationTemplateResource struct {
	// +optional
	Spec ForcefenceRemediationSpec `json:"spec,omitempty"`
}
