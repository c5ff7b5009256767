package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/taint/view"
)

// BMC is what answered at one address.
type BMC struct {
	ID          string   // of a machine behind it: https://10.0.0.7, ipmi://10.0.0.7
	Protocol    Protocol // "": no BMC, and Trouble says what
	Product     string   // as it calls itself, on one line; "" if it does not
	Systems     []redfish.SystemIdentity
	Fingerprint string // SHA-256 of its certificate, if the user named it and no authority signed it
	Trouble     string // why its systems are not known; "": they are
}

// idOf returns the ID of one of the BMC's systems. An error says that the system has no path that could be one.
func (b BMC) idOf(s redfish.SystemIdentity) (string, error) {
	if len(b.Systems) == 1 {
		return b.ID, nil
	}
	return canonicalID(b.Protocol, b.ID+s.Path)
}

// MaxAddresses is how many addresses a scan may have.
const MaxAddresses = 1024

// ParseRanges returns the addresses of the ranges: 10.0.0.0/28, or single addresses. It leaves out the network's and
// the broadcast address of IPv4. More than MaxAddresses are an error.
func ParseRanges(ranges []string) (out []netip.Addr, _ error) {
	for _, text := range ranges {
		if ip, err := netip.ParseAddr(text); err == nil {
			text = netip.PrefixFrom(ip, ip.BitLen()).String()
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is neither an address nor a range such as 10.0.0.0/28", text)
		}
		host := p.Addr().BitLen() - p.Bits()
		if p.Addr().IsMulticast() || p.Addr().IsUnspecified() {
			return nil, fmt.Errorf("%s is no range of BMCs", text)
		}
		if host > 10 || len(out)+1<<host > MaxAddresses+2 {
			return nil, fmt.Errorf("%s: at most %d addresses are asked", text, MaxAddresses)
		}
		first := p.Masked().Addr()
		last := 1<<host - 1
		for i, ip := 0, first; i <= last; i, ip = i+1, ip.Next() {
			if ip.Is4() && host > 1 && (i == 0 || i == last) || slices.Contains(out, ip) {
				continue
			}
			out = append(out, ip)
		}
	}
	return out, nil
}

// Scanner asks addresses for BMCs.
type Scanner struct {
	RedfishPort, IPMIPort int // 0: 443 and 623
	// Credentials for the systems of Redfish BMCs; without a Username none are asked for.
	Credentials remote.Credentials
	// CAFile is the authority of the BMCs whose certificate is trusted; "": none is, but of the named ones.
	CAFile string
	// Named are addresses that the user named: they get the credentials with any certificate.
	Named []netip.Addr
	Agent string // the HTTP header User-Agent
}

const (
	scanAtOnce = 64              // addresses at a time
	firstWord  = 4 * time.Second // for a first answer
	listWithin = 30 * time.Second
)

// Scan asks each address once, many at a time, and returns those that answered, in the order of the addresses. It
// blocks until ctx ends at most; what had not answered by then is left out, and the error says so.
func (s Scanner) Scan(ctx context.Context, addresses []netip.Addr) ([]BMC, error) {
	found := make([]*BMC, len(addresses))
	turns := make(chan struct{}, scanAtOnce)
	var wait sync.WaitGroup
	for i, ip := range addresses {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			if ctx.Err() == nil {
				found[i] = s.askAddress(ctx, ip)
			}
		})
	}
	wait.Wait()
	var out []BMC
	for _, b := range found {
		if b != nil {
			out = append(out, *b)
		}
	}
	if ctx.Err() != nil {
		return out, fmt.Errorf("not all addresses were asked: %w", context.Cause(ctx))
	}
	return out, nil
}

// askAddress asks one address; nil: nothing answered.
func (s Scanner) askAddress(ctx context.Context, ip netip.Addr) *BMC {
	first, cancel := context.WithTimeout(ctx, firstWord)
	defer cancel()
	b := &BMC{ID: "https://" + hostPort(ip, s.RedfishPort, 443)}
	service, err := redfish.ReadService(first, b.ID)
	if err == nil {
		b.Protocol = Redfish
		b.Product = strings.TrimSpace(view.OneLine(service.Vendor+" "+service.Product, 80))
		s.listSystems(ctx, b, ip, fmt.Sprintf("%x", service.Certificate))
		return b
	}
	again, cancelAgain := context.WithTimeout(ctx, firstWord)
	defer cancelAgain()
	id := "ipmi://" + hostPort(ip, s.IPMIPort, 623)
	if ipmi.Ping(again, id) == nil {
		return &BMC{ID: id, Protocol: IPMI, Trouble: "it speaks IPMI, which shows its machine only after a log-in: " +
			"if it is a node's, add it to a list of the configuration"}
	}
	if errors.Is(err, providers.ErrUntrusted) || errors.Is(err, providers.ErrNotFound) {
		b.Trouble = "it is no Redfish service that forcefence can ask: " + view.OneLine(providers.ErrorText(err), 200)
		return b
	}
	return nil
}

// hostPort writes an address for a URL, without the default port.
func hostPort(ip netip.Addr, port, normal int) string {
	host := ip.String()
	if port != 0 && port != normal {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if ip.Is6() {
		return "[" + host + "]"
	}
	return host
}

// listSystems lists the systems of a Redfish BMC. It sends the credentials if the authority signed the certificate, or
// if the user named the address: then the certificate has to be the one that the BMC showed first.
func (s Scanner) listSystems(ctx context.Context, b *BMC, ip netip.Addr, fingerprint string) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	if s.Credentials.Username == "" {
		b.Trouble = "its systems were not asked for: --username and --password-file are missing"
		return
	}
	err := providers.ErrUntrusted // the system's authorities are not asked: anyone can have a certificate of theirs
	if s.CAFile != "" {
		b.Systems, err = s.logInAndList(ctx, b.ID, remote.Trust{CAFile: s.CAFile})
	}
	if errors.Is(err, providers.ErrUntrusted) && slices.Contains(s.Named, ip) {
		own := remote.Fingerprint{Host: strings.TrimPrefix(b.ID, "https://")}
		if err = own.SHA256.UnmarshalText([]byte(fingerprint)); err == nil {
			b.Systems, err = s.logInAndList(ctx, b.ID, remote.Trust{Fingerprints: []remote.Fingerprint{own}})
			b.Fingerprint = fingerprint
		}
	}
	switch {
	case errors.Is(err, providers.ErrUntrusted):
		b.Trouble = fmt.Sprintf("its certificate is not trusted, so it got no password: --ca-file names the "+
			"authority, or --trust-host %s trusts this certificate (SHA-256 %s)", ip, fingerprint)
	case err != nil:
		b.Trouble = "its systems could not be listed: " + view.OneLine(providers.ErrorCause(err), 200)
	}
}

// logInAndList lists the systems of one BMC, and ends its session.
func (s Scanner) logInAndList(ctx context.Context, address string, trust remote.Trust) (
	[]redfish.SystemIdentity, error,
) {
	c := redfish.NewConfig()
	c.Credentials, c.Trust = s.Credentials, trust
	p, err := redfish.New(*c, providers.Options{
		Name: "discover", Agent: s.Agent, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstWord)
		defer cancel()
		_ = p.Close(ending) // a BMC ends the session by itself some time
	}()
	return p.ListSystems(ctx, address)
}
