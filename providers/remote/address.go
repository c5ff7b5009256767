package remote

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// IsLoopback reports whether a host is this machine. Clear text to it crosses no network.
func IsLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// ParseHTTP parses the address of a device that speaks HTTP: https://host[:port][/path]. It accepts http:// to this
// machine, or to any host with allowHTTP. Scheme and Host of the result are in canonical form (CanonicalHost). Its
// errors follow the setting's name ("is not https://"), and never repeat the address, because it may hold a password.
func ParseHTTP(address string, allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("is no address: write https://host[:port]")
	case u.User != nil:
		return nil, errors.New("holds credentials: use username and passwordFile")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("is not https://: write https://host[:port]")
	case u.Scheme == "http" && !allowHTTP && !IsLoopback(u.Hostname()):
		return nil, errors.New("is not https://: the password would go over the network in the clear (see allowHTTP)")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("has a query or fragment: write https://host[:port]")
	}
	u.Host, err = CanonicalHost(u)
	return u, err
}

// dottedNumbers matches what can only be meant as an IPv4 address.
var dottedNumbers = regexp.MustCompile(`^[0-9]+(\.[0-9]+){3}$`)

// CanonicalHost returns the canonical form of an address's host and port: a name in lower case without the root's dot,
// an IP in its shortest form, no default port, no leading zeros in another port.
func CanonicalHost(u *url.URL) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if dottedNumbers.MatchString(host) && net.ParseIP(host) == nil {
		return "", errors.New("is no IP address: write four numbers from 0 to 255, without leading zeros")
	}
	// A zone names another host elsewhere. Without an empty label a name ends with one dot at most.
	if host == "" || strings.ContainsAny(host, " %/\\") || strings.Contains("."+host+".", "..") {
		return "", errors.New("is no address: write https://host[:port]")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if u.Port() == "" {
		return host, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return "", errors.New("has an invalid port: write https://host[:port]")
	}
	if port == map[string]uint64{"https": 443, "http": 80}[u.Scheme] {
		return host, nil
	}
	return host + ":" + strconv.FormatUint(port, 10), nil
}

// hostKey returns CanonicalHost for a host, or host:port, of TLS that is written without a scheme; "" stays "".
func hostKey(host string) string {
	host = strings.TrimSpace(host)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	if u, err := url.Parse("https://" + host); err == nil {
		if key, err := CanonicalHost(u); err == nil {
			return key
		}
	}
	return strings.ToLower(host)
}
