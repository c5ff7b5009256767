package providers

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// SameMachine compares a node's system UUID with the one a device reported, in both SMBIOS byte orders, because
// firmware before SMBIOS 2.6 and some BMCs write the first three fields big-endian. A mismatch is an ErrIdentity. It
// returns nil if either identifies no machine, because then nothing can be compared.
func SameMachine(node, device string) error {
	n, okN := ParseUUID(node)
	d, okD := ParseUUID(device)
	if !okN || !okD || n == d || n == SwapUUID(d) {
		return nil
	}
	return fmt.Errorf("%w: the node's system UUID is %s, the device reported %s", ErrIdentity, node, device)
}

// NamedLabel is the Node label that names the devices that have named the node's machine (Identified).
const NamedLabel = "forcefence.node-restriction.kubernetes.io/named"

// IsNamedBy reports whether the device named the machine: node and device report the same usable system UUID.
func (t Target) IsNamedBy(o Observation) bool {
	_, has := ParseUUID(t.SystemUUID)
	_, tells := ParseUUID(o.SystemUUID)
	return has && tells && SameMachine(t.SystemUUID, o.SystemUUID) == nil
}

// ErrUnnamed is the ErrIdentity of a device that named the machine before, and does not in this answer.
var ErrUnnamed = fmt.Errorf("%w: the device named this machine's system UUID before", ErrIdentity)

// checkMachine returns an ErrIdentity if the device reported another machine than t. Addresses that a device reports
// must include one of the node's. A device that has named the machine must name it again (ErrUnnamed). A system UUID
// must match as well if the node's name led to the machine and the device reports no address.
func (t Target) checkMachine(obs Observation) error {
	if err := SameMachine(t.SystemUUID, obs.SystemUUID); err != nil {
		return err
	}
	if obs.Addresses != "" && !t.Addresses.HasAnyOf(obs.Addresses) {
		return fmt.Errorf("%w: the node's addresses are %q, the device reported a machine with %q", ErrIdentity,
			t.Addresses, obs.Addresses)
	}
	_, has := ParseUUID(t.SystemUUID)
	_, tells := ParseUUID(obs.SystemUUID)
	switch {
	case t.Identified && !tells:
		return fmt.Errorf("%w, and now names none; if that is right, remove the Node's label %s", ErrUnnamed,
			NamedLabel)
	case t.Identified && !has:
		return fmt.Errorf("%w, and the node's is now %q, which identifies no machine", ErrUnnamed, t.SystemUUID)
	case tells && !has && obs.Addresses == "" && t.Named:
		return fmt.Errorf("%w: the device reported %s, but only the node's name leads to it, "+
			"and the node's system UUID %q identifies no machine",
			ErrIdentity, obs.SystemUUID, t.SystemUUID)
	}
	return nil
}

// VerifyIdentity compares the target with the machine that a device reported, before a power action. A mismatch is an
// ErrIdentity. The rule is stricter if the node's own kubelet can write what leads to the machine (Claimed). Then it is
// also an ErrIdentity if node or device reports neither a usable UUID nor an address. Otherwise a kubelet's credential
// could power off another machine. A kubelet writes its Node's addresses, too. So for a type that reports nothing else
// the pin of the ID decides, which lasts as long as the Node (ProviderIDs).
func (t Target) VerifyIdentity(o Observation) error {
	if err := t.checkMachine(o); err != nil || !t.Claimed || o.Addresses != "" {
		return err
	}
	if _, ok := ParseUUID(t.SystemUUID); !ok {
		return fmt.Errorf("%w: the node's system UUID %q identifies no machine, "+
			"and what leads to its machine can be written by its kubelet", ErrIdentity, t.SystemUUID)
	}
	if _, ok := ParseUUID(o.SystemUUID); !ok {
		return fmt.Errorf("%w: the device reports no usable system UUID (%q), "+
			"and what leads to it can be written by the node's kubelet", ErrIdentity, o.SystemUUID)
	}
	return nil
}

// ParseUUID parses a UUID with or without dashes and braces, in either case. It returns false for text that identifies
// no machine: text that is no UUID, and the placeholders that firmware ships with.
func ParseUUID(s string) (u [16]byte, ok bool) {
	s = separators.Replace(strings.TrimSpace(s))
	if len(s) != 32 {
		return u, false
	}
	if _, err := hex.Decode(u[:], []byte(s)); err != nil {
		return [16]byte{}, false
	}
	if slices.Contains(placeholderUUIDs, u) || slices.Contains(placeholderUUIDs, SwapUUID(u)) {
		return [16]byte{}, false
	}
	return u, true
}

// CanonicalUUID returns a UUID in lower case with dashes, in the lesser of both byte orders; "" if it identifies no
// machine.
func CanonicalUUID(s string) string {
	u, ok := ParseUUID(s)
	if !ok {
		return ""
	}
	if other := SwapUUID(u); bytes.Compare(other[:], u[:]) < 0 {
		u = other
	}
	return FormatUUID(u)
}

// FormatUUID returns a UUID as text: lower case with dashes.
func FormatUUID(u [16]byte) string {
	text := make([]byte, 0, 36)
	for i, field := range [][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, field)
	}
	return string(text)
}

var separators = strings.NewReplacer("-", "", "{", "", "}", "")

// SwapUUID returns u in the other SMBIOS byte order: the first three fields reversed.
func SwapUUID(u [16]byte) [16]byte {
	slices.Reverse(u[0:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

// placeholderUUIDs are UUIDs that many machines share because their maker set none.
var placeholderUUIDs = [][16]byte{
	{},
	[16]byte(bytes.Repeat([]byte{0xff}, 16)),
	{0x03, 0x00, 0x02, 0x00, 0x04, 0x00, 0x05, 0x00, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09},
}
