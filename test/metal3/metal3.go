// Package metal3 plays Metal3's baremetal-operator for machines of a test's data centre: it obeys the annotations of
// BareMetalHosts, and reports spec.online as status.poweredOn, as the real one does. It was written after the
// operator's controllers/metal3.io/baremetalhost_controller.go (v0.14.0-rc.0), whose program no Go module has.
package metal3

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// CRD is a definition with the names of the operator's, without its schema.
const CRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"baremetalhosts.metal3.io"},"spec":{"group":"metal3.io","scope":"Namespaced",
"names":{"plural":"baremetalhosts","singular":"baremetalhost","kind":"BareMetalHost","shortNames":["bmh"]},
"versions":[{"name":"v1alpha1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// Hosts is the resource of BareMetalHosts.
var Hosts = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}

// Machine is a machine of the data centre.
type Machine interface {
	PowerOn()
	CutPower()
	Running() bool
}

// Reconcile does to the machine what the operator and Ironic do for a host, and sets the host's status. It reports
// whether the status changed.
func Reconcile(host map[string]any, m Machine) (changed bool) {
	annotations, _, _ := unstructured.NestedStringMap(host, "metadata", "annotations")
	online, _, _ := unstructured.NestedBool(host, "spec", "online")
	kept, _, _ := unstructured.NestedBool(host, "spec", "disablePowerOff")
	status := func(value any, fields ...string) {
		path := append([]string{"status"}, fields...)
		before, _, _ := unstructured.NestedFieldNoCopy(host, path...)
		if before != value {
			_ = unstructured.SetNestedField(host, value, path...)
			changed = true
		}
	}
	operational, _, _ := unstructured.NestedString(host, "status", "operationalStatus")
	if operational == "servicing" || operational == "delayed" {
		return false
	}
	if _, paused := annotations["baremetalhost.metal3.io/paused"]; paused {
		if online { // Ironic knows nothing of the pause (baremetal-operator#2923)
			m.PowerOn()
		}
		return false
	}
	if _, detached := annotations["baremetalhost.metal3.io/detached"]; detached {
		status("detached", "operationalStatus")
		return changed
	}
	status("OK", "operationalStatus")
	off := !online
	for key := range annotations {
		off = off || key == "reboot.metal3.io" || strings.HasPrefix(key, "reboot.metal3.io/")
	}
	switch {
	case off && m.Running():
		if m.CutPower(); kept { // a power-off is a reboot
			m.PowerOn()
		}
	case !off && !m.Running():
		m.PowerOn()
	}
	status(online, "poweredOn")
	return changed
}

// Run reconciles the hosts of a namespace until ctx ends. machines are by the host's name; others are left alone.
func Run(ctx context.Context, api dynamic.Interface, namespace string, machines map[string]Machine) error {
	hosts := api.Resource(Hosts).Namespace(namespace)
	for {
		all, err := hosts.List(ctx, metav1.ListOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, h := range all.Items {
			m := machines[h.GetName()]
			if m == nil || !Reconcile(h.Object, m) {
				continue
			}
			_, err := hosts.UpdateStatus(ctx, &h, metav1.UpdateOptions{})
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
