package providers

import (
	"net/netip"
	"slices"
	"strings"
)

// Addresses are the IP addresses of one machine: each in its shortest form, sorted, with one blank between two. The zero value is none.
// It is a text, so that what holds it can be compared.
type Addresses string

// NewAddresses keeps of the texts those that are IP addresses and may tell one machine from others: none that every machine has, such as
// those of the loopback and of one link alone. A zone is left out, and so is an address that was named before.
func NewAddresses(texts ...string) Addresses {
	var out []string
	for _, t := range texts {
		if ip, err := netip.ParseAddr(strings.TrimSpace(t)); err == nil {
			if ip = ip.Unmap().WithZone(""); ip.IsGlobalUnicast() {
				out = append(out, ip.String())
			}
		}
	}
	slices.Sort(out)
	return Addresses(strings.Join(slices.Compact(out), " "))
}

// HasAnyOf reports whether both have an address in common.
func (a Addresses) HasAnyOf(o Addresses) bool {
	others := strings.Fields(string(o))
	return slices.ContainsFunc(strings.Fields(string(a)), func(ip string) bool { return slices.Contains(others, ip) })
}
