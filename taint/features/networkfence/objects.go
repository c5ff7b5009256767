package networkfence

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
)

var (
	groupVersion = schema.GroupVersion{Group: "csiaddons.openshift.io", Version: "v1alpha1"}
	kind         = groupVersion.WithKind("NetworkFence")
	resource     = groupVersion.WithResource("networkfences")
)

// What forcefence writes on a NetworkFence. The label is the Node's UID.
const (
	nodeUIDLabel = "forcefence.io/node-uid"
	nodeName     = "forcefence.io/node"
	nodeLife     = "forcefence.io/life" // the taint.Life in which it was made
	policyName   = "forcefence.io/policy"
	fenceID      = "forcefence.io/fence"
	madeWith     = "forcefence.io/cidrs"     // the CIDRs, with commas between them
	confirmedAt  = "forcefence.io/confirmed" // when forcefence saw the storage's success
)

// networkFence has the fields of a NetworkFence that count.
type networkFence struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NetworkFenceClassName string   `json:"networkFenceClassName"`
		FenceState            string   `json:"fenceState"`
		CIDRs                 []string `json:"cidrs"`
	} `json:"spec"`
	Status struct {
		Result  string `json:"result"`
		Message string `json:"message"`
	} `json:"status"`
}

func (n *networkFence) fence() storagefence.Fence {
	return storagefence.Fence{
		Name: n.Name, Generation: n.Generation, Class: n.Spec.NetworkFenceClassName, CIDRs: n.Spec.CIDRs,
		State: n.Spec.FenceState, Result: n.Status.Result, Message: n.Status.Message,
		Deleting: n.DeletionTimestamp != nil, CreatedAt: n.CreationTimestamp.Time,
		Owned: n.Labels[nodeUIDLabel] != "" && n.Annotations[nodeName] != "",
		Node:  n.Annotations[nodeName], Life: taint.ParseLife(n.Annotations[nodeLife]),
		Made:      strings.Split(n.Annotations[madeWith], ","),
		Confirmed: n.Annotations[confirmedAt] != "",
	}
}

// csiAddonsNode has the fields of a CSIAddonsNode that count. The key ClientDetails has a capital letter.
type csiAddonsNode struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Driver struct {
			Name   string `json:"name"`
			NodeID string `json:"nodeID"`
		} `json:"driver"`
	} `json:"spec"`
	Status struct {
		NetworkFenceClientStatus []struct {
			NetworkFenceClassName string `json:"networkFenceClassName"`
			ClientDetails         []struct {
				CIDRs []string `json:"cidrs"`
			} `json:"ClientDetails"`
		} `json:"networkFenceClientStatus"`
	} `json:"status"`
}

func (n *csiAddonsNode) clients() storagefence.Clients {
	out := storagefence.Clients{
		Name: n.Namespace + "/" + n.Name, Driver: n.Spec.Driver.Name, NodeID: n.Spec.Driver.NodeID,
		ByClass: map[string][]string{},
	}
	for _, s := range n.Status.NetworkFenceClientStatus {
		for _, d := range s.ClientDetails {
			out.ByClass[s.NetworkFenceClassName] = append(out.ByClass[s.NetworkFenceClassName], d.CIDRs...)
		}
	}
	return out
}

func decode(o *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("decoding %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// listInto calls add with each object of a kind.
func listInto(ctx context.Context, from client.Reader, kind string, add func(*unstructured.Unstructured) error) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(groupVersion.WithKind(kind + "List"))
	if err := from.List(ctx, list); err != nil {
		return fmt.Errorf("listing %ss: %w", kind, err)
	}
	for i := range list.Items {
		if err := add(&list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// readCluster reads from objects what decides about the fences of a node, and the Nodes from nodes.
func readCluster(
	ctx context.Context, objects, nodes client.Reader, look taint.Look, policies []policy.Policy,
) (c storagefence.Cluster, err error) {
	c.Look = look
	for _, p := range policies {
		for _, name := range p.FenceClasses {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(groupVersion.WithKind("NetworkFenceClass"))
			err := objects.Get(ctx, client.ObjectKey{Name: name}, o)
			if apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) {
				continue
			} else if err != nil {
				return c, fmt.Errorf("reading NetworkFenceClass %s: %w", name, err)
			}
			driver, _, _ := unstructured.NestedString(o.Object, "spec", "provisioner")
			c.Classes = append(c.Classes, storagefence.Class{Name: name, Driver: driver})
		}
	}
	if err := listInto(ctx, objects, "CSIAddonsNode", func(o *unstructured.Unstructured) error {
		var n csiAddonsNode
		err := decode(o, &n)
		c.Clients = append(c.Clients, n.clients())
		return err
	}); err != nil {
		return c, err
	}
	if c.Fences, err = ListFences(ctx, objects); err != nil {
		return c, err
	}
	var list corev1.NodeList
	if err := nodes.List(ctx, &list); err != nil {
		return c, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range list.Items {
		c.Others = append(c.Others, nodeOf(&list.Items[i]))
	}
	return c, nil
}

// ListFences returns all NetworkFences, others' too. It blocks for the API server.
func ListFences(ctx context.Context, from client.Reader) (all []storagefence.Fence, err error) {
	err = listInto(ctx, from, "NetworkFence", func(o *unstructured.Unstructured) error {
		var n networkFence
		err := decode(o, &n)
		all = append(all, n.fence())
		return err
	})
	return all, err
}

// DeleteEnded deletes a NetworkFence that lets its addresses in, by the storage's own word. One that shuts out is left,
// with an error: without it nothing would name the addresses. It blocks for the API server.
func DeleteEnded(ctx context.Context, c client.Client, name string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return client.IgnoreNotFound(err)
	}
	var n networkFence
	if err := decode(o, &n); err != nil {
		return err
	}
	if !n.fence().IsEnded() {
		return fmt.Errorf("NetworkFence %s: it may shut out its addresses still", name)
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NetworkFence %s: %w", name, err)
	}
	return nil
}

func nodeOf(n *corev1.Node) storagefence.Node {
	out := storagefence.Node{Name: n.Name, PodCIDRs: n.Spec.PodCIDRs}
	for _, a := range n.Status.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
	}
	return out
}

// FindFences reads how far the storage of each policy that needs it has cut a node off, by the policies' names. What
// cannot be read is refused. It blocks for the API server.
func FindFences(
	ctx context.Context, objects, nodes client.Reader, look taint.Look, policies []policy.Policy,
) (map[string]policy.StorageFence, error) {
	needed := neededBy(policies)
	if len(needed) == 0 {
		return nil, nil
	}
	out := map[string]policy.StorageFence{}
	c, err := readCluster(ctx, objects, nodes, look, needed)
	for _, p := range needed {
		if err != nil {
			out[p.Name] = policy.StorageFence{State: policy.FenceRefused, Detail: err.Error()}
			continue
		}
		out[p.Name], _ = c.Decide(p)
	}
	return out, err
}

func neededBy(policies []policy.Policy) (out []policy.Policy) {
	for _, p := range policies {
		if p.NeedsFence() {
			out = append(out, p)
		}
	}
	return out
}
