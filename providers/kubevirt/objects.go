package kubevirt

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// The parts of the host cluster's objects that matter. A field that is missing has its zero value, which never proves
// anything.
type (
	objectMeta struct {
		Name, Namespace, UID string
		DeletionTimestamp    *time.Time
	}

	// instance is a VirtualMachineInstance: one run of a virtual machine.
	instance struct {
		kubeapi.TypeMeta
		Metadata objectMeta
		Spec     domainSpec
		Status   struct {
			Phase, NodeName string
			ActivePods      map[string]string // the launcher pods' UIDs, and their hosts
			MigrationState  *struct {
				SourcePod, TargetPod     string
				SourceState, TargetState *struct{ Pod string }
			}
		}
	}

	// virtualMachine is a VirtualMachine, which may have no instance.
	virtualMachine struct {
		kubeapi.TypeMeta
		Metadata objectMeta
		Spec     struct {
			RunStrategy string
			Running     *bool // how older versions write it
			Template    struct{ Spec domainSpec }
		}
		Status struct{ PrintableStatus string }
	}

	domainSpec struct {
		Domain struct{ Firmware struct{ UUID string } }
	}

	podList struct {
		kubeapi.TypeMeta
		Metadata struct{ ResourceVersion, Continue string }
		Items    []pod
	}

	pod struct {
		Metadata objectMeta
		Spec     struct {
			NodeName, RestartPolicy                         string
			InitContainers, Containers, EphemeralContainers []struct{ Name string }
		}
		Status struct {
			Phase                                                                string
			InitContainerStatuses, ContainerStatuses, EphemeralContainerStatuses []containerStatus
		}
	}

	containerStatus struct {
		Name  string
		State struct {
			Running    *struct{}
			Terminated *struct {
				ExitCode            *int
				Reason, ContainerID string
			}
		}
	}

	// hostNode is a Node of the host cluster.
	hostNode struct {
		kubeapi.TypeMeta
		Metadata objectMeta
		Status   struct {
			Conditions []struct{ Type, Status string }
			NodeInfo   struct{ BootID string }
		}
	}

	// lease is a kubelet's heartbeat.
	lease struct {
		kubeapi.TypeMeta
		Metadata objectMeta
		Spec     struct {
			HolderIdentity string
			RenewTime      *time.Time
		}
	}
)

// host is a host's kubelet, as one look found it.
type host struct {
	uid, bootID, ready string
	renewed            time.Time // by the kubelet's own clock; zero if it has no Lease
}

// look is what one reading of a machine found.
type look struct {
	vmi   *instance       // nil: it is gone
	vm    *virtualMachine // read if the instance is gone
	pods  []pod           // the instance's launcher pods
	hosts map[string]host // by name: the instance's current one, and those of pods that have not ended
}

// systemUUID returns the machine's system UUID, "" if KubeVirt does not write it down.
func (l look) systemUUID() string {
	switch {
	case l.vmi != nil:
		return l.vmi.Spec.Domain.Firmware.UUID
	case l.vm != nil:
		return l.vm.Spec.Template.Spec.Domain.Firmware.UUID
	}
	return ""
}

// machine is one VirtualMachine of the host cluster.
type machine struct {
	api             *kubeapi.Client
	namespace, name string
}

const kubevirtAPI = "/apis/kubevirt.io/v1/namespaces"

// look reads the machine. After an error the result may still have its UUID.
func (m machine) look(ctx context.Context) (l look, err error) {
	if l, err = m.readInstance(ctx); err != nil || l.vmi == nil {
		return l, err
	}
	var list podList
	if err := m.api.Get(ctx, &list, "PodList", "kubevirt.io/created-by="+l.vmi.Metadata.UID,
		"/api/v1/namespaces", m.namespace, "pods"); err != nil {
		return l, err
	}
	if list.Metadata.ResourceVersion == "" || list.Metadata.Continue != "" {
		return l, providers.Errorf(providers.ErrPermanent, "the API server's list of pods is not whole")
	}
	l.pods, l.hosts = list.Items, map[string]host{}
	for _, p := range l.pods {
		name := p.Spec.NodeName
		_, read := l.hosts[name]
		switch {
		case name == "", read, p.whyNotEnded() == "" && !l.isCurrent(p):
			continue
		case !isName(name):
			return l, providers.Errorf(providers.ErrPermanent, "a launcher pod is on a host that can have no such name")
		case len(l.hosts) == maxHosts:
			return l, providers.Errorf(providers.ErrPermanent, "launcher pods on more than %d hosts have not ended",
				maxHosts)
		}
		if l.hosts[name], err = m.readHost(ctx, name); err != nil {
			return l, err
		}
	}
	return l, nil
}

// maxHosts bounds how many hosts one look reads. A machine that migrates has two.
const maxHosts = 4

// isCurrent reports whether a pod is on the instance's current host. Pods on others are left from earlier migrations.
func (l look) isCurrent(p pod) bool {
	return l.vmi.Status.NodeName == "" || l.vmi.Status.NodeName == p.Spec.NodeName
}

// readInstance reads the instance, and the VirtualMachine if that has none. ErrNotFound: there is neither.
func (m machine) readInstance(ctx context.Context) (l look, _ error) {
	var vmi instance
	err := m.api.Get(ctx, &vmi, "VirtualMachineInstance", "",
		kubevirtAPI, m.namespace, "virtualmachineinstances", m.name)
	if errors.Is(err, providers.ErrNotFound) {
		l.vm, err = m.readVM(ctx)
		return l, err
	}
	if err == nil {
		err = m.checkObject(vmi.Metadata)
	}
	if err == nil {
		l.vmi = &vmi
	}
	return l, err
}

func (m machine) readVM(ctx context.Context) (*virtualMachine, error) {
	var vm virtualMachine
	err := m.api.Get(ctx, &vm, "VirtualMachine", "", kubevirtAPI, m.namespace, "virtualmachines", m.name)
	if err != nil {
		return nil, err
	}
	return &vm, m.checkObject(vm.Metadata)
}

// checkObject returns an error if an object is not the machine's.
func (m machine) checkObject(o objectMeta) error {
	if o.Name != m.name || o.Namespace != m.namespace || o.UID == "" {
		return providers.Errorf(providers.ErrPermanent, "the API server answered with another object")
	}
	return nil
}

// readHost reads a host's Node and its kubelet's Lease. A host without one of them is the zero host.
func (m machine) readHost(ctx context.Context, name string) (h host, _ error) {
	var node hostNode
	var beat lease
	err := m.api.Get(ctx, &node, "Node", "", "/api/v1/nodes", name)
	if err == nil {
		err = m.api.Get(ctx, &beat, "Lease", "", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", name)
	}
	switch {
	case errors.Is(err, providers.ErrNotFound):
		return host{}, nil
	case err != nil:
		return host{}, err
	case node.Metadata.Name != name || beat.Metadata.Name != name:
		return host{}, providers.Errorf(providers.ErrPermanent, "the API server answered for another host")
	}
	h = host{uid: node.Metadata.UID, bootID: node.Status.NodeInfo.BootID}
	if i := slices.IndexFunc(node.Status.Conditions, func(c struct{ Type, Status string }) bool {
		return c.Type == "Ready"
	}); i >= 0 {
		h.ready = node.Status.Conditions[i].Status
	}
	if beat.Spec.HolderIdentity == name && beat.Spec.RenewTime != nil {
		h.renewed = *beat.Spec.RenewTime
	}
	return h, nil
}

// power is what decides whether a refused power action is done already.
type power struct {
	vmi *instance
	vm  *virtualMachine
}

// isStopping reports whether the machine does not run, or is being stopped by KubeVirt.
func (p power) isStopping() bool {
	return p.vmi == nil || p.vmi.isFinal() || p.vmi.Metadata.DeletionTimestamp != nil || p.vm.strategy() == "Halted"
}

// isStarting reports whether the machine runs, or is about to be started by KubeVirt.
func (p power) isStarting() bool {
	return p.vmi != nil && !p.vmi.isFinal() && p.vmi.Metadata.DeletionTimestamp == nil || p.vm.strategy() == "Always"
}

// isFinal reports whether an instance has ended, by KubeVirt's word.
func (i *instance) isFinal() bool { return i.Status.Phase == "Succeeded" || i.Status.Phase == "Failed" }

// strategy returns the run strategy.
func (v *virtualMachine) strategy() string {
	if v.Spec.Running == nil {
		return v.Spec.RunStrategy
	}
	return cmp.Or(v.Spec.RunStrategy, map[bool]string{true: "Always", false: "Halted"}[*v.Spec.Running])
}

// changePower identifies the machine and sends one request for its power. KubeVirt refuses with 409 if the machine is
// on its way already, and if another client changed it meanwhile: done decides.
func (m machine) changePower(
	ctx context.Context, t providers.Target, verb, body string, done func(power) bool,
) error {
	l, err := m.readInstance(ctx)
	if err == nil {
		err = t.VerifyIdentity(providers.Observation{SystemUUID: l.systemUUID()})
	}
	if err != nil {
		return err
	}
	err = m.api.Put(ctx, body, "/apis/subresources.kubevirt.io/v1/namespaces", m.namespace, "virtualmachines", m.name,
		verb)
	if !kubeapi.IsStatus(err, http.StatusConflict) {
		return err
	}
	again, lost := m.readInstance(ctx)
	now := power{again.vmi, again.vm}
	if lost == nil && now.vm == nil {
		now.vm, lost = m.readVM(ctx)
	}
	if lost == nil && done(now) {
		return nil
	}
	return err
}
