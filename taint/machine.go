package taint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
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
