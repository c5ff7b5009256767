package providers

import (
	"net/netip"
	"slices"
	"strings"
)

// Addresses are the IP addresses of one machine: each in its shortest form, sorted, separated by one blank. It is a
// string, so that structs that hold it are comparable.
type Addresses string

// NewAddresses returns the IP addresses among the texts, without zones and duplicates. It drops addresses that every
// machine has, such as loopback and link-local ones.
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
