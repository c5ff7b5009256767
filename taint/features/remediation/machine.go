package remediation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
)

// machineVersion is the version of Cluster API in which Machines are read. An API server converts older ones.
var machineVersion = schema.GroupVersion{Group: fence.ClusterAPI, Version: "v1beta2"}

// Conditions of a Machine, as Cluster API v1.14.2 names them (api/core/v1beta2/machine_types.go).
const (
	externallyRemediated = "ExternallyRemediated"
	ownerRemediated      = "OwnerRemediated"
	waitingForOwner      = "WaitingForRemediation"
)

// machine is a Machine of Cluster API, as it was read.
type machine struct {
	request.Machine
	object *unstructured.Unstructured // nil: the request has no Machine
}

// readMachine reads live the Machine that owns the request. It returns the zero machine if none does, if it does not
// exist in this version, or if we may not read it. A request whose owner is unknown permits nothing.
func readMachine(ctx context.Context, from client.Reader, r *api.ForcefenceRemediation) (machine, error) {
	name, _ := request.OwnerOf(r)
	if name == "" {
		return machine{}, nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(machineVersion.WithKind("Machine"))
	switch err := from.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, o); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return machine{}, nil
	case err != nil:
		return machine{}, fmt.Errorf("reading Machine %s/%s live: %w", r.Namespace, name, err)
	}
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, path...)
		return s
	}
	return machine{request.Machine{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
		NodeName: text("status", "nodeRef", "name"), ProviderID: text("spec", "providerID"),
		Excluded: fence.ClusterAPIExclusion(o.GetAnnotations(), false),
	}, o}, nil
}

// writeMachine reports to Cluster API what became of the request: ExternallyRemediated once the node's pods were moved,
// or the node is Ready again. If the configuration lets it replace a Machine, OwnerRemediated says so once no power-off
// helped.
func (c *Controller) writeMachine(ctx context.Context, m machine, out request.Outcome) error {
	switch {
	case m.object == nil:
		return nil
	case out.Done():
		return c.setMachineCondition(ctx, m, externallyRemediated, metav1.ConditionTrue, out.Succeeded.Reason,
			out.Succeeded.Message, false)
	case out.MayReplace() && c.ReplaceMachine:
		return c.setMachineCondition(ctx, m, ownerRemediated, metav1.ConditionFalse, waitingForOwner,
			out.Succeeded.Message, true)
	}
	return nil
}

// setMachineCondition sets a condition of a Machine in status.conditions. If older is set, it sets it in the conditions
// of v1beta1 as well, which owners of Machines still read.
func (c *Controller) setMachineCondition(
	ctx context.Context, m machine, of string, status metav1.ConditionStatus, why, message string, older bool,
) error {
	now := c.Now().UTC().Format(time.RFC3339)
	patched := map[string]any{}
	changed := false
	place := func(condition map[string]any, path ...string) error {
		list, _, err := unstructured.NestedSlice(m.object.Object, path...)
		if err != nil {
			return fmt.Errorf("machine %s/%s: %w", m.Namespace, m.Name, err)
		}
		next, different := withCondition(list, condition)
		changed = changed || different
		return unstructured.SetNestedSlice(patched, next, path...)
	}
	if err := place(map[string]any{"type": of, "status": string(status), "reason": why, "message": message,
		"lastTransitionTime": now}, "status", "conditions"); err != nil {
		return err
	}
	if older {
		if err := place(map[string]any{"type": of, "status": string(status), "reason": why, "message": message,
			"severity": "Warning", "lastTransitionTime": now},
			"status", "deprecated", "v1beta1", "conditions"); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	patched["metadata"] = map[string]any{"resourceVersion": m.object.GetResourceVersion()}
	text, err := json.Marshal(patched)
	if err != nil {
		return fmt.Errorf("writing Machine: %w", err)
	}
	into := m.object.DeepCopy()
	err = c.live.Status().Patch(ctx, into, client.RawPatch(types.MergePatchType, text))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing condition %s of Machine %s/%s: %w", of, m.Namespace, m.Name, err)
	}
	return nil
}

// withCondition returns conditions with that one in the place of its type, and whether that is a change.
func withCondition(list []any, condition map[string]any) (next []any, changed bool) {
	for i, o := range list {
		was, _ := o.(map[string]any)
		if was["type"] != condition["type"] {
			continue
		}
		if was["status"] == condition["status"] && was["reason"] == condition["reason"] {
			return list, false
		}
		list[i] = condition
		return list, true
	}
	return append(list, condition), true
}
