// Package claim decides what Karpenter's NodeClaim of a node means. Must the power of the node's machine be left alone?
// May forcefence delete the NodeClaim, so that Karpenter replaces the machine?
//
// It is pure: a function of the Node, of the NodeClaim, and of what was read about them.
//
// It promises: a NodeClaim counts as a node's only if both name each other. A node's own kubelet, which may write parts
// of its Node, cannot make the NodeClaim of another node count. No NodeClaim is deleted whose node has shown life since
// its fence.
package claim

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// Names of Karpenter's API (karpenter v1.14.1, pkg/apis/v1).
const (
	Group    = "karpenter.sh"
	Version  = "v1"
	Kind     = "NodeClaim"
	Resource = "nodeclaims"
	// TerminationAnnotation on a NodeClaim is when Karpenter stops to wait for pods and volumes.
	TerminationAnnotation = "karpenter.sh/nodeclaim-termination-timestamp"
	// poolLabel on a Node names its NodePool. A Node has wholeLabel once it was Ready with all its resources.
	poolLabel  = "karpenter.sh/nodepool"
	wholeLabel = "karpenter.sh/initialized"
)

// Claim is what a NodeClaim states. The zero value is one that does not exist.
type Claim struct {
	Name, UID, ResourceVersion string
	NodeName, ProviderID       string // of its status
	Deleted                    bool   // it has a deletionTimestamp
}

// OwnerOf returns the name and UID of the NodeClaim that owns the Node; empty if none does.
func OwnerOf(node *corev1.Node) (name, uid string) {
	for _, o := range node.OwnerReferences {
		if group, _, _ := strings.Cut(o.APIVersion, "/"); group == Group && o.Kind == Kind {
			return o.Name, string(o.UID)
		}
	}
	return "", ""
}

// mismatch returns why the claim is not the node's; "" if it is.
func mismatch(node *corev1.Node, c Claim) string {
	name, uid := OwnerOf(node)
	switch {
	case name == "":
		return "no NodeClaim owns the node"
	case c.Name != name || c.UID != uid:
		return fmt.Sprintf("NodeClaim %s does not exist, or is another one of that name", name)
	case c.NodeName != node.Name:
		return fmt.Sprintf("NodeClaim %s is of another node, by its status.nodeName", name)
	case c.ProviderID == "" || c.ProviderID != node.Spec.ProviderID:
		return fmt.Sprintf("NodeClaim %s has another providerID than the node", name)
	}
	return ""
}

// KeptOn returns why the power of the node's machine must be left alone; "" if the claim says nothing.
func KeptOn(node *corev1.Node, c Claim) string {
	if !c.Deleted || mismatch(node, c) != "" {
		return ""
	}
	return fmt.Sprintf("Karpenter is deleting its machine (NodeClaim %s)", c.Name)
}

// IsEnded reports whether the node's fence has ended in a way after which its claim may be handed over, as the Node
// alone shows it: its pods were moved, or a power-off of ours failed. The caller reads everything else later.
func IsEnded(node *corev1.Node, key string) bool {
	rec, err := taint.RecordOf(node)
	if name, _ := OwnerOf(node); err != nil || rec == nil || name == "" {
		return false
	}
	_, marked := taint.FindMark(node, key, "")
	return !marked && rec.NodeUID == string(node.UID) &&
		(rec.Result == taint.ResultEvicted || rec.Result == taint.ResultPowerOffFailed) &&
		taint.Condition(node, corev1.NodeReady).Status != corev1.ConditionTrue && node.DeletionTimestamp == nil
}

// Facts is what a hand-over is decided from. All of it was read live.
type Facts struct {
	Node      *corev1.Node
	Look      taint.Look // at the Node and its Lease
	Claim     Claim
	Key       string           // the mark's key
	MayAct    bool             // the node's mode lets forcefence act
	LeftAlone string           // "" or why nothing may be begun on the node
	NoPower   string           // "" or why the machine must not be powered off now; after PowerOffFailed
	Power     providers.Answer // of the node's devices together, asked before Node and Claim were read
	Pool      []*corev1.Node   // the nodes of the node's NodePool, itself included
}

// Refusal returns why the claim must not be deleted now; "" if it may.
func Refusal(f Facts) string {
	if why := mismatch(f.Node, f.Claim); why != "" {
		return why
	}
	rec, err := taint.RecordOf(f.Node)
	switch {
	case f.Claim.Deleted:
		return "it is being deleted already"
	case err != nil || !IsEnded(f.Node, f.Key):
		return "the node shows no fence that has ended, or is Ready"
	case !rec.Life().StillHolds(f.Look):
		return "the node has shown life since its fence"
	case !f.MayAct:
		return "the node's mode forbids it"
	case f.LeftAlone != "":
		return "the node is left alone: " + f.LeftAlone
	}
	off := f.Power.Err == nil && f.Power.State == providers.PowerOff
	switch {
	case rec.Result == taint.ResultEvicted && !off:
		return "no device says that the machine is still off"
	case rec.Result == taint.ResultPowerOffFailed && off:
		return "the machine went off, so its pods are moved first"
	case rec.Result == taint.ResultPowerOffFailed && f.NoPower != "":
		return "the machine must not be powered off: " + f.NoPower
	}
	return tooManyUnhealthy(f.Pool)
}

// maxUnhealthy is the share of a NodePool, in percent, beyond which Karpenter's own repair stops, rounded up
// (node/health, karpenter v1.14.1). Ours stops there, too: machines that fail together may come back together.
const maxUnhealthy = 20

func tooManyUnhealthy(pool []*corev1.Node) string {
	unhealthy := 0
	for _, n := range pool {
		if taint.Condition(n, corev1.NodeReady).Status != corev1.ConditionTrue {
			unhealthy++
		}
	}
	if limit := (len(pool)*maxUnhealthy + 99) / 100; len(pool) == 0 || unhealthy > limit {
		return fmt.Sprintf("%d of %d nodes of its NodePool are not Ready, more than %d", unhealthy, len(pool), limit)
	}
	return ""
}

// IsOfPool reports whether a node counts in the NodePool of another. A node that is still starting does not.
func IsOfPool(n, of *corev1.Node) bool {
	return n.Name == of.Name || n.Labels[poolLabel] == of.Labels[poolLabel] && n.Labels[wholeLabel] != ""
}
