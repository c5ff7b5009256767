package pdu

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/forcefence/forcefence/providers/remote"
)

// outlet is one outlet of one strip.
type outlet struct {
	address string // host, or host:port where that is not 161, in the one way to write it
	number  string // as it follows a column
	owner   string // whose credentials the strip is sent, a node's name; "" where all machines share them
}

// String returns the outlet's canonical form.
func (o outlet) String() string { return o.address + "/" + o.number }

// accountName returns the name of the strip and of the owner of its credentials.
func (o outlet) accountName() string { return strings.TrimSpace(o.address + " " + o.owner) }

// hostName returns the host alone.
func (o outlet) hostName() string {
	host, _ := splitAddress(o.address)
	return host
}

// maxOutlets is the maximum number of outlets in an ID. One question holds them all.
const maxOutlets = 16

var errAddress = errors.New("is no host[:port]")

// idError says how an ID is written.
func (m mib) idError() error {
	return fmt.Errorf("is no list of outlets: write host[:port]/%s, with commas between several",
		cmp.Or(m.index, "outlet"))
}

// parseID returns the outlets of an ID, in order. The errors do not repeat it.
func parseID(id string, m mib) ([]outlet, error) {
	var all []outlet
	for part := range strings.SplitSeq(id, ",") {
		address, number, _ := strings.Cut(strings.TrimSpace(part), "/")
		address, err := parseAddress(address)
		if err != nil {
			return nil, m.idError()
		}
		if number, err = m.parseNumber(number); err != nil {
			return nil, err
		}
		all = append(all, outlet{address: address, number: number})
	}
	slices.SortFunc(all, func(a, b outlet) int { // a strip's outlets stand together, 9 before 10
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(len(a.number), len(b.number)),
			cmp.Compare(a.number, b.number))
	})
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		return nil, errors.New("names an outlet twice")
	}
	if len(all) > maxOutlets {
		return nil, errors.New("names too many outlets")
	}
	return all, nil
}

// parseAddress reads host[:port].
func parseAddress(s string) (string, error) {
	u, err := url.Parse("snmp://" + s)
	if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return "", errAddress
	}
	host, err := remote.CanonicalHost(u)
	if err != nil {
		return "", errAddress
	}
	address := strings.TrimSuffix(host, ":161")
	if name, _ := splitAddress(address); strings.Contains(name, ":") && net.ParseIP(name) == nil {
		return "", errAddress
	}
	return address, nil
}

// splitAddress splits an address for a connection.
func splitAddress(address string) (host string, port uint16) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return strings.Trim(address, "[]"), 161
	}
	n, _ := strconv.ParseUint(text, 10, 16)
	return host, uint16(n)
}

// parseNumber reads the numbers of an outlet. Only the unit may be 0, in MIBs that count units from there.
func (m mib) parseNumber(s string) (string, error) {
	parts := strings.Split(s, ".")
	if m.unit != "" && len(parts) == 1 {
		parts = []string{m.unit, parts[0]}
	}
	if len(parts) != strings.Count(m.index, ".")+1 {
		return "", m.idError()
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n == 0 && (i > 0 || m.unit != "0") {
			return "", m.idError()
		}
		parts[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(parts, "."), nil
}
