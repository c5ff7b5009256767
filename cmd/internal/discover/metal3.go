package discover

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/decide/fence"
)

// HostKind is Metal3's description of a server.
var HostKind = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}

// Host is what is read of a BareMetalHost. Its texts are those of its author.
type Host struct {
	Namespace, Name, UID string
	Address              string // spec.bmc.address
	Credentials          string // spec.bmc.credentialsName: a Secret in its namespace
	ConsumerNamespace    string // of spec.consumerRef, a Machine
	Consumer             string
	Hostname             string // as the inspection found it
	Addresses            []string
}

// HostOf reads a BareMetalHost. Fields of another shape are empty.
func HostOf(u *unstructured.Unstructured) Host {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, fields...)
		return s
	}
	h := Host{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()),
		Address:           text("spec", "bmc", "address"),
		Credentials:       text("spec", "bmc", "credentialsName"),
		Consumer:          text("spec", "consumerRef", "name"),
		ConsumerNamespace: text("spec", "consumerRef", "namespace"),
		Hostname:          text("status", "hardware", "hostname"),
	}
	nics, _, _ := unstructured.NestedSlice(u.Object, "status", "hardware", "nics")
	for _, nic := range nics {
		if fields, ok := nic.(map[string]any); ok {
			if ip, ok := fields["ip"].(string); ok && ip != "" {
				h.Addresses = append(h.Addresses, ip)
			}
		}
	}
	return h
}

func (h Host) name() string { return h.Namespace + "/" + h.Name }

// secret returns the Secret with the host's credentials; "" if the host names none that can exist.
func (h Host) secret() string {
	if len(validation.IsDNS1123Subdomain(h.Credentials)) > 0 {
		return ""
	}
	return h.Namespace + "/" + h.Credentials
}

// matchedBy returns by what a Node is this host's; "" if it is not. The order is that of Metal3: the providerID that
// its machine controller wrote, its label, the Machine that consumes the host, then what the inspection found.
func (h Host) matchedBy(n *corev1.Node) string {
	scheme, id, _ := strings.Cut(n.Spec.ProviderID, "://")
	parts := strings.Split(strings.TrimPrefix(id, "/"), "/")
	if scheme == "metal3" || scheme == "baremetalhost" {
		if parts[0] == h.UID && h.UID != "" || len(parts) == 3 && parts[0] == h.Namespace && parts[1] == h.Name {
			return "providerID"
		}
		return "" // it is another host's
	}
	if uid, ok := n.Labels["metal3.io/uuid"]; ok {
		if uid == h.UID && uid != "" {
			return "label metal3.io/uuid"
		}
		return ""
	}
	namespace, machine, _ := fence.MachineOf(n)
	if machine == "" {
		namespace, machine, _ = strings.Cut(n.Annotations["machine.openshift.io/machine"], "/")
	}
	if machine != "" && h.Consumer != "" {
		if machine == h.Consumer && namespace == h.ConsumerNamespace {
			return "consumerRef"
		}
		return ""
	}
	switch {
	case h.Hostname != "" && (h.Hostname == n.Name || h.Hostname == n.Labels[corev1.LabelHostname]):
		return "hostname"
	case slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP && slices.ContainsFunc(h.Addresses, func(ip string) bool {
			one, err := netip.ParseAddr(ip)
			other, err2 := netip.ParseAddr(a.Address)
			return err == nil && err2 == nil && one.Unmap() == other.Unmap()
		})
	}):
		return "IP address"
	case h.Name == n.Name:
		return "name"
	}
	return ""
}

// device returns how the host's BMC is asked. Metal3's addresses have schemes such as idrac-virtualmedia+https; one
// without a scheme is IPMI. An error says why no provider of forcefence can ask it.
func (h Host) device() (_ Protocol, id string, _ error) {
	scheme, rest, ok := strings.Cut(h.Address, "://")
	switch {
	case h.Address == "":
		return "", "", errors.New("it names no BMC")
	case !ok:
		scheme, rest = "ipmi", h.Address
	}
	kind, transport, _ := strings.Cut(scheme, "+")
	protocol := Redfish
	switch {
	case transport == "http":
		return "", "", errors.New("its BMC is asked over plain HTTP, which would show the password to the network")
	case strings.HasSuffix(kind, "redfish"), strings.HasSuffix(kind, "virtualmedia"),
		strings.HasSuffix(kind, "-uefihttp"):
		id = "https://" + rest
	case kind == "ipmi", kind == "libvirt":
		protocol, id = IPMI, "ipmi://"+rest
	default:
		return "", "", fmt.Errorf("its BMC's address is of type %q: forcefence asks Redfish and IPMI", kind)
	}
	id, err := canonicalID(protocol, id)
	if err != nil {
		return "", "", fmt.Errorf("its BMC's address %w", err)
	}
	return protocol, id, nil
}
