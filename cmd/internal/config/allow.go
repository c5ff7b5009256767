package config

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// allowList is the hosts that a machine's ID may name. The zero value allows none.
type allowList struct {
	hosts    []string // in lower case, without a dot at the end
	domains  []string // ".bmc.example.net", "-bmc.example.net": any host that ends so, not the ending itself
	prefixes []netip.Prefix
}

// add adds an entry of allow: a host, *.domain, an IP or a CIDR. It returns what is wrong with the entry, or "".
func (a *allowList) add(entry string) (problem string) {
	const want = "must be a host, a domain such as *.bmc.example.net, an IP or a CIDR"
	if p, err := netip.ParsePrefix(entry); err == nil {
		if p != p.Masked() {
			return "has bits behind its mask: write " + p.Masked().String()
		}
		a.prefixes = append(a.prefixes, p)
		return ""
	}
	if ip, err := netip.ParseAddr(entry); err == nil {
		if ip.Zone() != "" {
			return want
		}
		a.addHost(entry)
		return ""
	}
	name := strings.TrimSuffix(strings.ToLower(entry), ".")
	domain, below := strings.CutPrefix(name, "*.")
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || strings.Trim(domain, "0123456789.") == "" {
		return want
	}
	if below {
		a.domains = append(a.domains, "."+domain)
	} else {
		a.addHost(name)
	}
	return ""
}

// addHost allows one host: an IP, or a name in its canonical form.
func (a *allowList) addHost(host string) {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		a.prefixes = append(a.prefixes, netip.PrefixFrom(ip, ip.BitLen()))
		return
	}
	a.hosts = append(a.hosts, host)
}

// hasAll reports whether an ID may lead to these hosts: each of them is allowed, and there is one.
func (a *allowList) hasAll(hosts []string) bool {
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !a.has(h) })
}

// has reports whether a host is allowed. It does not resolve names, because then a DNS server would decide.
func (a *allowList) has(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return slices.ContainsFunc(a.prefixes, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
	}
	return slices.Contains(a.hosts, host) || slices.ContainsFunc(a.domains, func(d string) bool {
		return strings.HasSuffix(host, d) && len(host) > len(d)
	})
}

// meets reports whether a host may be in both lists.
func (a *allowList) meets(b allowList) bool {
	return a.hasPartOf(b) || b.hasPartOf(*a)
}

// hasPartOf reports whether a host may be in b, and in the list by a name, a wider domain or an overlapping network.
func (a *allowList) hasPartOf(b allowList) bool {
	return slices.ContainsFunc(b.hosts, a.has) ||
		slices.ContainsFunc(b.domains, func(d string) bool { return a.has("x" + d) }) ||
		slices.ContainsFunc(b.prefixes, func(p netip.Prefix) bool {
			return slices.ContainsFunc(a.prefixes, p.Overlaps)
		})
}
