package metal3

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// host is the part of a BareMetalHost (metal3.io/v1alpha1) that matters. A field that is missing has its zero value,
// which permits nothing. Status.PoweredOn is left out on purpose: it is a cache, and repeats spec.online.
type host struct {
	kubeapi.TypeMeta
	Metadata struct {
		Name, Namespace, UID, ResourceVersion string
		DeletionTimestamp                     *time.Time
		Annotations                           map[string]string
	}
	Spec struct {
		Online, DisablePowerOff bool
		ConsumerRef             *struct{ Kind, Name, Namespace string }
		BMC                     struct {
			Address, CredentialsName       string
			DisableCertificateVerification bool
		}
	}
	Status struct {
		OperationalStatus string
		Provisioning      struct{ State string }
	}
}

// The annotations of the baremetal-operator, and the values that are ours.
const (
	pausedAnnotation   = "baremetalhost.metal3.io/paused"
	detachedAnnotation = "baremetalhost.metal3.io/detached"
	rebootAnnotation   = "reboot.metal3.io"

	// offAnnotation keeps the host off while it exists. Without mode hard the host is asked to shut down. offLife is
	// beside it, with the life that it is about.
	offAnnotation, offValue = rebootAnnotation + "/forcefence", `{"mode":"hard"}`
	offLife                 = "forcefence.io/power-off"
	// detachedLife is beside the detached annotation where that is ours, with the life that it is about: the key of the
	// detached annotation is the same for all clients. With delay a host that is deleted meanwhile is not forgotten
	// before it is attached again.
	detachedLife, detachedValue = "forcefence.io/detached", `{"deleteAction":"delay"}`
)

// String returns the host's name in messages.
func (h *host) String() string {
	return "BareMetalHost " + h.Metadata.Namespace + "/" + h.Metadata.Name
}

// checkConsumer returns an error if the host serves another Metal3Machine than the providerID names: the node is older
// than the host's present machine, which may be in another cluster.
func (h *host) checkConsumer(machine string) error {
	switch ref := h.Spec.ConsumerRef; {
	case machine == "":
		return nil
	case ref == nil:
		return providers.Errorf(providers.ErrIdentity, "%s serves no Metal3Machine, the node's providerID names %s", h,
			machine)
	case ref.Kind != "Metal3Machine" || ref.Name != machine ||
		ref.Namespace != "" && ref.Namespace != h.Metadata.Namespace:
		return providers.Errorf(providers.ErrIdentity, "%s serves %.40s %.100s, the node's providerID names %s", h,
			ref.Kind, ref.Name, machine)
	}
	return nil
}

// whyBusy returns why the host may boot, or lose its power, by Metal3's own work; "" if Metal3 does not work on it. An
// unknown state counts as work.
func (h *host) whyBusy() string {
	switch {
	case h.Metadata.DeletionTimestamp != nil:
		return h.String() + " is being deleted"
	case slices.Contains([]string{"servicing", "delayed"}, h.Status.OperationalStatus):
		return h.String() + " is " + h.Status.OperationalStatus
	case !slices.Contains([]string{"provisioned", "externally provisioned"}, h.Status.Provisioning.State):
		return fmt.Sprintf("%s is in provisioning state %.40q", h, h.Status.Provisioning.State)
	}
	return ""
}

// whyKeptOn returns why the host must not be powered off in that way; "" if it may be.
func (h *host) whyKeptOn(by PowerOff) string {
	_, paused := h.Metadata.Annotations[pausedAnnotation]
	switch busy := h.whyBusy(); {
	case busy != "":
		return busy
	case h.Spec.DisablePowerOff:
		return h.String() + " has disablePowerOff"
	case paused: // Ironic goes on enforcing its power
		return h.String() + " is paused (" + pausedAnnotation + ")"
	case by == PowerOffRequest && h.isAskedToDetach():
		return h.String() + " is detached, so the baremetal-operator powers nothing off: set powerOff: detach"
	}
	return ""
}

// whyKeptOff returns why removing our annotations would not power the host on; "" if it would.
func (h *host) whyKeptOff() string {
	other := h.otherReboot()
	switch {
	case !h.Spec.Online:
		return h.String() + " has online: false"
	case other != "" && h.Metadata.Annotations[offAnnotation] == "":
		return h.String() + " is kept off by the annotation " + other
	}
	return ""
}

// otherReboot returns a reboot annotation of another client, "" if there is none.
func (h *host) otherReboot() string {
	for key := range h.Metadata.Annotations {
		if key != offAnnotation && (key == rebootAnnotation || strings.HasPrefix(key, rebootAnnotation+"/")) {
			return key
		}
	}
	return ""
}

// isDetached reports whether the baremetal-operator has let go of the host.
func (h *host) isDetached() bool {
	return h.isAskedToDetach() && h.Status.OperationalStatus == "detached"
}

// isAskedToDetach reports whether a client asked the baremetal-operator to let go of the host.
func (h *host) isAskedToDetach() bool {
	_, asked := h.Metadata.Annotations[detachedAnnotation]
	return asked
}

// whoRestores returns who may have powered the host on after our power-off, for the evidence; "" if nothing shows it.
func (h *host) whoRestores() string {
	_, paused := h.Metadata.Annotations[pausedAnnotation]
	_, held := h.Metadata.Annotations[offAnnotation]
	switch {
	case !h.Spec.Online:
		return ""
	case paused:
		return fmt.Sprintf(", and %s is online and paused: Ironic may have powered it on", h)
	case !held && !h.isDetached():
		return fmt.Sprintf(", and %s is online without %s: the baremetal-operator may have powered it on", h,
			offAnnotation)
	}
	return ""
}

// annotations are a change of a host's annotations: nil removes one. Empty: nothing is to be changed.
type annotations map[string]*string

// requestOff returns the change by which the baremetal-operator powers the host off, and keeps it off.
func (h *host) requestOff(of providers.Life) annotations {
	value, life := offValue, encodeLife(of)
	if h.Metadata.Annotations[offAnnotation] == value && h.Metadata.Annotations[offLife] == life {
		return nil
	}
	return annotations{offAnnotation: &value, offLife: &life}
}

// detach returns the change by which the baremetal-operator lets go of the host. A host that another client detached
// stays that client's.
func (h *host) detach(of providers.Life) annotations {
	value, life := detachedValue, encodeLife(of)
	before, ours := h.Metadata.Annotations[detachedLife]
	switch {
	case !h.isAskedToDetach():
		return annotations{detachedAnnotation: &value, detachedLife: &life}
	case ours && before != life:
		return annotations{detachedLife: &life}
	}
	return nil
}

// release returns the change that takes back what requestOff and detach wrote, and nothing of other clients.
func (h *host) release() annotations {
	return h.releaseIf(func(providers.Life) bool { return true })
}

// releaseIf is release for the orders whose life is void. An order that names no life has the zero value.
func (h *host) releaseIf(void func(providers.Life) bool) annotations {
	out := annotations{}
	if _, ours := h.Metadata.Annotations[offAnnotation]; ours && void(h.lifeOf(offLife)) {
		out[offAnnotation] = nil
		if _, has := h.Metadata.Annotations[offLife]; has {
			out[offLife] = nil
		}
	}
	if _, ours := h.Metadata.Annotations[detachedLife]; ours && void(h.lifeOf(detachedLife)) {
		out[detachedLife] = nil
		if h.Metadata.Annotations[detachedAnnotation] == detachedValue {
			out[detachedAnnotation] = nil
		}
	}
	return out
}

// StoredOrders returns what the power-offs that this type stored on a BareMetalHost are about, by the host's
// annotations. One that names no life is the zero value.
func StoredOrders(annotations map[string]string) (lives []providers.Life) {
	h := host{}
	h.Metadata.Annotations = annotations
	h.releaseIf(func(life providers.Life) bool {
		lives = append(lives, life)
		return false
	})
	return lives
}

// lifeOf returns the life that an order of ours is about, by the annotation beside it.
func (h *host) lifeOf(key string) (life providers.Life) {
	if json.Unmarshal([]byte(h.Metadata.Annotations[key]), &life) != nil {
		return providers.Life{}
	}
	return life
}

// maxBootID bounds what is stored of a boot id, in bytes: a kubelet chooses it.
const maxBootID = 128

func clipBootID(id string) string { return strings.ToValidUTF8(id[:min(len(id), maxBootID)], "") }

// encodeLife returns the value of offLife and detachedLife.
func encodeLife(of providers.Life) string {
	of.BootID = clipBootID(of.BootID)
	text, _ := json.Marshal(of) // strings alone
	return string(text)
}
