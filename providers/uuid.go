package providers

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// SameMachine compares a node's system UUID with the one a device gave, in both SMBIOS byte orders: firmware before SMBIOS 2.6
// and some BMCs write the first three fields big-endian where others write them little-endian. Where either is empty or a
// placeholder nothing can be compared and nil is returned; a mismatch is an ErrIdentity.
func SameMachine(node, device string) error {
	n, okN := ParseUUID(node)
	d, okD := ParseUUID(device)
	if !okN || !okD || n == d || n == SwapUUID(d) {
		return nil
	}
	return fmt.Errorf("%w: the node's system UUID is %s, the device spoke of %s", ErrIdentity, node, device)
}

// checkMachine says what the device told of another machine than t: an ErrIdentity, or nil. Addresses that a device tells must meet the
// node's, whether that tells any or not. So must a system UUID, where the node's name led to the machine and no address tells whose it is.
func (t Target) checkMachine(obs Observation) error {
	if err := SameMachine(t.SystemUUID, obs.SystemUUID); err != nil {
		return err
	}
	if obs.Addresses != "" && !t.Addresses.HasAnyOf(obs.Addresses) {
		return fmt.Errorf("%w: the node's addresses are %q, the device spoke of a machine with %q", ErrIdentity, t.Addresses, obs.Addresses)
	}
	_, has := ParseUUID(t.SystemUUID)
	if _, tells := ParseUUID(obs.SystemUUID); tells && !has && obs.Addresses == "" && t.Named {
		return fmt.Errorf("%w: the device spoke of %s, and only a name led to it: the node's system UUID %q identifies no machine",
			ErrIdentity, obs.SystemUUID, t.SystemUUID)
	}
	return nil
}

// VerifyIdentity compares the target with the machine that a device told of, before a power action. A mismatch is an ErrIdentity. Where the
// machine was found by what the node's own kubelet can write (Claimed), so is a node or device that tells neither a usable UUID nor an
// address: otherwise a kubelet's credential could switch off another machine. A kubelet writes its Node's addresses, too, so for a type
// that tells nothing else the pin of the ID decides, which lasts as long as the Node (ProviderIDs).
func (t Target) VerifyIdentity(o Observation) error {
	if err := t.checkMachine(o); err != nil || !t.Claimed || o.Addresses != "" {
		return err
	}
	deviceUUID := o.SystemUUID
	if _, ok := ParseUUID(t.SystemUUID); !ok {
		return fmt.Errorf("%w: the node's system UUID %q identifies no machine, and what leads to its machine can be written by its kubelet", ErrIdentity, t.SystemUUID)
	}
	if _, ok := ParseUUID(deviceUUID); !ok {
		return fmt.Errorf("%w: the device tells no usable system UUID (%q), and what leads to it can be written by the node's kubelet", ErrIdentity, deviceUUID)
	}
	return nil
}

// ParseUUID reads a UUID with or without dashes and braces, in either case. It reports false for what identifies no machine:
// text that is no UUID, and the placeholders that firmware ships with.
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

// CanonicalUUID returns the one way to write a machine's UUID: in lower case with dashes, in the lesser of both byte orders; "" for what
// identifies no machine.
func CanonicalUUID(s string) string {
	u, ok := ParseUUID(s)
	if !ok {
		return ""
	}
	if other := SwapUUID(u); bytes.Compare(other[:], u[:]) < 0 {
		u = other
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

var separators = strings.NewReplacer("-", "", "{", "", "}", "")

// SwapUUID returns u in the other SMBIOS byte order: the first three fields reversed.
func SwapUUID(u [16]byte) [16]byte {
	slices.Reverse(u[0:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

// placeholderUUIDs are UUIDs that many machines share because nobody set one.
var placeholderUUIDs = func() [][16]byte {
	var zeros, ones, ami [16]byte
	for i := range ones {
		ones[i] = 0xff
	}
	// 03000200-0400-0500-0006-000700080009, the value boards ship with when the maker wrote none.
	copy(ami[:], []byte{0x03, 0x00, 0x02, 0x00, 0x04, 0x00, 0x05, 0x00, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09})
	return [][16]byte{zeros, ones, ami}
}()
