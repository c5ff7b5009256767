package vsphere

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
)

const (
	// fewTargets is up to how many targets are looked up one by one, in vCenter's index. For more, all VMs that the
	// account may see are read at once.
	fewTargets = 4
	// pageSize is the number of VMs and hosts in one answer.
	pageSize = 500
)

// The properties that are read.
const (
	propUUID       = "config.uuid" // the BIOS UUID; missing if vCenter cannot read the VM's configuration
	propPower      = "runtime.powerState"
	propConnection = "runtime.connectionState"
	propHost       = "runtime.host"
	propHA         = "runtime.dasVmProtection"
)

var vmProperties, hostProperties = []string{propUUID, propPower, propConnection, propHost, propHA},
	[]string{propPower, propConnection}

type ref = types.ManagedObjectReference

// object is vCenter's answer about one VM or host.
type object struct {
	ref        ref
	uuid       string // of a VM
	power      string
	connection string
	host       *ref             // of a VM
	protected  bool             // by vSphere HA
	missing    map[string]error // why a property is missing
}

// inventory is one answer of vCenter.
type inventory struct {
	vms   map[[16]byte][]object // by BIOS UUID, as either writes it
	hosts map[ref]object
}

// targetUUID returns the UUID by which a target's VM is found.
func targetUUID(t providers.Target) (u [16]byte, err error) {
	id := strings.TrimPrefix(t.ID, "vsphere://")
	if t.ID == "" {
		id = t.SystemUUID
	}
	u, ok := providers.ParseUUID(id)
	switch {
	case ok:
		return u, nil
	case t.ID != "":
		return u, notFound("the ID is not a BIOS UUID")
	}
	return u, notFound("the target has no ID, and the node's system UUID %q identifies no machine", t.SystemUUID)
}

func notFound(format string, a ...any) error {
	return providers.Errorf(providers.ErrNotFound, format, a...)
}

// canonicalOrder returns the same result for a UUID in both byte orders. VMware writes the first three fields in one,
// and guests with newer virtual hardware read them in the other.
func canonicalOrder(u [16]byte) [16]byte {
	if o := providers.SwapUUID(u); string(o[:]) < string(u[:]) {
		return o
	}
	return u
}

// findVM returns the one VM of the target, by the UUID in this answer.
func (inv inventory) findVM(t providers.Target) (object, error) {
	u, err := targetUUID(t)
	if err != nil {
		return object{}, err
	}
	match := inv.vms[canonicalOrder(u)]
	switch len(match) {
	case 0:
		return object{}, notFound("no VM that the account may see has the BIOS UUID %s in either byte order",
			providers.FormatUUID(u))
	case 1:
		return match[0], nil
	}
	return object{}, notFound("%d VMs have the BIOS UUID %s (%s, %s): give the copies UUIDs of their own",
		len(match), providers.FormatUUID(u), match[0].ref.Value, match[1].ref.Value)
}

// observeVM stores in obs what the answer reports about the target's VM.
func (inv inventory) observeVM(t providers.Target, obs *providers.Observation) error {
	v, err := inv.findVM(t)
	if err != nil {
		return err
	}
	obs.SystemUUID = v.uuid
	obs.State, obs.Raw, err = inv.vmState(v)
	return err
}

// vmState returns a VM's power. It is off only if vCenter is connected to the VM and to its host: for any other it
// shows the last known state.
func (inv inventory) vmState(v object) (state providers.PowerState, raw string, _ error) {
	if err := v.missingError(propPower, propConnection, propHost, propHA); err != nil {
		return providers.PowerUnknown, v.power, err
	}
	if v.connection != string(types.VirtualMachineConnectionStateConnected) {
		return providers.PowerUnknown, fmt.Sprintf("%s (%s)", v.power, v.connection), nil
	}
	if v.host == nil {
		return providers.PowerUnknown, v.power + " (on no host)", nil
	}
	h, known := inv.hosts[*v.host]
	if !known {
		return providers.PowerUnknown, v.power, providers.Errorf(providers.ErrDenied, "its host %s is not in the "+
			"answer: the account needs System.Read on it", v.host.Value)
	}
	if err := h.missingError(propPower, propConnection); err != nil {
		return providers.PowerUnknown, v.power, fmt.Errorf("its host %s: %w", v.host.Value, err)
	}
	if h.connection != string(types.HostSystemConnectionStateConnected) {
		return providers.PowerUnknown, fmt.Sprintf("%s (host %s)", v.power, h.connection), nil
	}
	if h.power != string(types.HostSystemPowerStatePoweredOn) {
		return providers.PowerUnknown, fmt.Sprintf("%s (host %s)", v.power, h.power), nil
	}
	if state = powerState(v.power); state == providers.PowerOff && v.protected {
		// HA stops protecting a VM that was powered off. One that it still protects is about to be restarted, perhaps
		// while it still runs on a host that is cut off: HA registers it on another host, off, before it starts it
		// there.
		return providers.PowerChanging, v.power + " (protected by vSphere HA)", nil
	}
	return state, v.power, nil
}

// powerState maps vSphere's words. Off is returned nowhere else.
func powerState(word string) providers.PowerState {
	switch types.VirtualMachinePowerState(word) {
	case types.VirtualMachinePowerStatePoweredOff:
		return providers.PowerOff
	case types.VirtualMachinePowerStatePoweredOn, types.VirtualMachinePowerStateSuspended: // its memory may resume
		return providers.PowerOn
	default:
		return providers.PowerUnknown
	}
}

// missingError returns why one of these properties is unknown. Nil means that all are known, or that vCenter has no
// value for them and names no reason.
func (o object) missingError(properties ...string) error {
	for _, name := range properties {
		if err := o.missing[name]; err != nil {
			return fmt.Errorf("%s is missing: %w", name, err)
		}
	}
	return nil
}

// findOwnVM finds the target's VM for a power action. The identity was confirmed before. It is compared again here,
// because vCenter then acts on exactly the VM that is found here.
func (s *session) findOwnVM(ctx context.Context, t providers.Target) (v object, _ providers.PowerState, _ error) {
	inv, err := s.readInventory(ctx, t)
	if err == nil {
		v, err = inv.findVM(t)
	}
	if err != nil {
		return v, providers.PowerUnknown, err
	}
	if err := t.VerifyIdentity(providers.Observation{SystemUUID: v.uuid}); err != nil {
		return v, providers.PowerUnknown, err
	}
	state, _, _ := inv.vmState(v) // a VM whose power is unknown may still be powered off
	return v, state, nil
}

// readInventory reads the VMs that may be the targets', and their hosts, with one RetrievePropertiesEx.
func (s *session) readInventory(ctx context.Context, targets ...providers.Target) (inventory, error) {
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{
		{Type: "VirtualMachine", PathSet: vmProperties},
		{Type: "HostSystem", PathSet: hostProperties},
	}}
	if len(targets) > fewTargets {
		view, err := s.allVMs(ctx)
		if err != nil {
			return inventory{}, err
		}
		spec.ObjectSet = []types.ObjectSpec{throughView(view, toHost)}
		inv, err := s.retrievePages(ctx, spec)
		return inv, asSessionError(err)
	}
	refs, err := s.candidateRefs(ctx, targets)
	if err != nil || len(refs) == 0 {
		return inventory{}, err
	}
	for _, r := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: r, SelectSet: []types.BaseSelectionSpec{toHost}})
	}
	yes := true
	spec.ReportMissingObjectsInResults = &yes // one VM that is gone fails no other
	return s.retrievePages(ctx, spec)
}

// asSessionError treats an object of the session that is not found as the end of the session.
func asSessionError(err error) error {
	var gone *types.ManagedObjectNotFound
	if asFault(err, &gone) {
		return fmt.Errorf("%w (%w)", errSession, err)
	}
	return err
}

var toHost = &types.TraversalSpec{Type: "VirtualMachine", Path: propHost}

// throughView selects the VMs of a view, and what next refers to.
func throughView(view ref, next ...types.BaseSelectionSpec) types.ObjectSpec {
	yes := true
	return types.ObjectSpec{Obj: view, Skip: &yes, SelectSet: []types.BaseSelectionSpec{
		&types.TraversalSpec{Type: "ContainerView", Path: "view", SelectSet: next},
	}}
}

// candidateRefs returns all VMs that vCenter's index has under the targets' UUIDs, in both byte orders.
func (s *session) candidateRefs(ctx context.Context, targets []providers.Target) (out []ref, _ error) {
	for _, t := range targets {
		u, err := targetUUID(t)
		if err != nil {
			continue // findVM returns the error
		}
		orders := [][16]byte{u, providers.SwapUUID(u)}
		for _, u := range slices.Compact(orders) {
			res, err := callMethod(ctx, s, methods.FindAllByUuid,
				&types.FindAllByUuid{This: *s.content.SearchIndex, Uuid: providers.FormatUUID(u), VmSearch: true})
			if err != nil {
				return nil, err
			}
			for _, r := range res.Returnval {
				if r.Type == "VirtualMachine" && !slices.Contains(out, r) {
					out = append(out, r)
				}
			}
		}
	}
	return out, nil
}

// retrievePages reads properties, page by page.
func (s *session) retrievePages(ctx context.Context, spec types.PropertyFilterSpec) (inventory, error) {
	inv := inventory{vms: map[[16]byte][]object{}, hosts: map[ref]object{}}
	res, err := callMethod(ctx, s, methods.RetrievePropertiesEx, &types.RetrievePropertiesEx{
		This:    s.content.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{spec},
		Options: types.RetrieveOptions{MaxObjects: s.page},
	})
	if err != nil || res.Returnval == nil {
		return inv, err
	}
	for got := *res.Returnval; ; {
		for _, o := range got.Objects {
			if err := inv.addObject(o); err != nil {
				return inv, err
			}
		}
		if got.Token == "" {
			return inv, nil
		}
		more, err := callMethod(ctx, s, methods.ContinueRetrievePropertiesEx, &types.ContinueRetrievePropertiesEx{
			This: s.content.PropertyCollector, Token: got.Token,
		})
		if err != nil {
			return inv, err // half an answer may lack the second VM of a UUID
		}
		got = more.Returnval
	}
}

// addObject stores one object of an answer. A property that is missing because the session has ended is an error of the
// whole answer.
func (inv *inventory) addObject(c types.ObjectContent) error {
	o := object{ref: c.Obj, missing: map[string]error{}}
	for _, m := range c.MissingSet {
		err := explainFault(m.Fault.Fault, m.Fault.LocalizedMessage)
		if errors.Is(err, errSession) {
			return err
		}
		o.missing[m.Path] = err
	}
	for _, p := range c.PropSet {
		o.setProperty(p.Name, p.Val)
	}
	switch c.Obj.Type {
	case "VirtualMachine":
		if u, ok := providers.ParseUUID(o.uuid); ok {
			inv.vms[canonicalOrder(u)] = append(inv.vms[canonicalOrder(u)], o)
		}
	case "HostSystem":
		inv.hosts[c.Obj] = o
	}
	return nil
}

// setProperty stores one property. It ignores a value of another type than the API's.
func (o *object) setProperty(name string, val types.AnyType) {
	switch name {
	case propUUID:
		o.uuid = enumText(val)
	case propPower:
		o.power = enumText(val)
	case propConnection:
		o.connection = enumText(val)
	case propHost:
		if r, ok := val.(ref); ok {
			o.host = &r
		}
	case propHA:
		if das, ok := val.(types.VirtualMachineRuntimeInfoDasProtectionState); ok {
			o.protected = das.DasProtected
		}
	}
}

// enumText returns a string of any of the API's enumerations.
func enumText(val types.AnyType) string {
	if v := reflect.ValueOf(val); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}
