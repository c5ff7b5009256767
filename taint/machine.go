package taint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// PinLabel is the Node label that pins which machine a node is, written while the node is healthy. The API server's
// NodeRestriction admission forbids kubelets to write labels with this suffix.
const PinLabel = "forcefence.node-restriction.kubernetes.io/machine"

// MachineRef names the machine behind a node. The zero value names none. Every field has its canonical form: fields are
// compared byte by byte.
type MachineRef struct {
	Provider   string `json:"provider"`
	ID         string `json:"id,omitempty"`         // the provider's own name of it; "": the system UUID finds it
	SystemUUID string `json:"systemUUID,omitempty"` // as the node reports it; "" if that identifies no machine
}

// Pin returns the label's value: a hash of provider and ID, and one of the system UUID, 120 bits each.
func (m MachineRef) Pin() string { return m.idPin() + "." + m.uuidPin() }

func (m MachineRef) idPin() string {
	if m.ID == "" {
		return hashWords("uuid", m.Provider, m.SystemUUID)
	}
	return hashWords("id", m.Provider, m.ID)
}

func (m MachineRef) uuidPin() string {
	if m.SystemUUID == "" {
		return noUUID
	}
	return hashWords("system", m.SystemUUID)
}

// noUUID is the part of a pin for a system UUID that identifies no machine.
const noUUID = "none"

func hashWords(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:15])
}

// isSame reports whether both name the same machine to the provider.
func (m MachineRef) isSame(o MachineRef) bool {
	return m.Provider == o.Provider && m.idPin() == o.idPin()
}

// NamedLabel is the Node label that holds which devices have named the node's machine, each by a short hash. Kubelets
// cannot write it, nor PinLabel. An answer of such a device that does not name the machine is Unknown
// (providers.Target.Identified). Only a person removes the label.
const NamedLabel = providers.NamedLabel

const (
	namedSize = 8              // of a device's part of NamedLabel, in bytes
	maxNamed  = MaxDevices + 1 // devices that NamedLabel holds; a label's value has at most 63 bytes
)

// namedHash is the machine's part of NamedLabel. If two of a node's machines have one hash, both count as named, which
// only forbids.
func (m MachineRef) namedHash() string { return m.idPin()[:namedSize] }

// IsNamed reports whether the value of NamedLabel says that the machine's device has named it.
func (m MachineRef) IsNamed(label string) bool {
	return slices.Contains(strings.Split(label, "."), m.namedHash())
}

// AddNamed returns the value of NamedLabel with those of the node's machines that their devices named just now. Other
// machines remain while there is room: the node may be led to them again.
func AddNamed(label string, machines, named []MachineRef) string {
	missing := func(m MachineRef) bool { return !m.IsNamed(label) }
	if !slices.ContainsFunc(named, missing) {
		return label
	}
	var parts []string
	add := func(part string) {
		if !slices.Contains(parts, part) && len(parts) < maxNamed {
			parts = append(parts, part)
		}
	}
	for _, m := range machines {
		if m.IsNamed(label) || slices.Contains(named, m) {
			add(m.namedHash())
		}
	}
	for _, part := range strings.Split(label, ".") {
		if len(part) == namedSize && strings.Trim(part, "0123456789abcdef") == "" {
			add(part)
		}
	}
	return strings.Join(parts, ".")
}

// OrNil returns the machine for a Record: nil for none.
func (m MachineRef) OrNil() *MachineRef {
	if m == (MachineRef{}) {
		return nil
	}
	return &m
}

// String returns the machine's name for a person.
func (m MachineRef) String() string {
	if m.ID == "" {
		return fmt.Sprintf("with system UUID %q of provider %s", m.SystemUUID, m.Provider)
	}
	return fmt.Sprintf("%s of provider %s", m.ID, m.Provider)
}
