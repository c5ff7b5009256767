package ipmi

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// SetIdle changes after how long a BMC that is not asked has its session back.
func SetIdle(p *Provider, idle time.Duration) { p.pool.Idle = idle }

// SetDial changes how BMCs are reached.
func SetDial(p *Provider, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	p.dial = dial
}

// SetName gives a name to an address. This machine's resolver is not asked.
func SetName(p *Provider, name string, ip netip.Addr) {
	p.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host != name {
			return nil, &net.DNSError{Name: host, IsNotFound: true}
		}
		return []netip.Addr{ip}, nil
	}
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && host == name {
			address = net.JoinHostPort(ip.String(), port)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// SetUnhurried has nothing sent again and no session given up, however slow this machine.
func SetUnhurried(p *Provider) {
	const long = time.Minute
	p.warm, p.timing = long, sendTiming{long, long, long, long}
}

// SetForget changes how long it is remembered of an idle BMC which suite it has.
func SetForget(p *Provider, forget time.Duration) { p.forget = forget }

// SetWarm changes how long an old session may be silent.
func SetWarm(p *Provider, warm time.Duration) { p.warm = warm }

// Watched is the provider that a Watcher of this package watches with.
func Watched(w providers.Watcher) *Provider { return w.(trapProvider).Provider }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	return p.pool.Len()
}

// ParseTrap is parseTrap.
func ParseTrap(b []byte) (isPET bool, specific uint32, ok bool) {
	t, ok := parseTrap(b)
	return t.pet, t.specific, ok
}

// Packets returns a function that takes a packet from an address, for a BMC with that address or another. Nothing else
// asks this BMC.
func Packets(bmc, from netip.Addr, b []byte) func() {
	ctx, cancel := context.WithCancel(context.Background())
	w := &trapWatch{sources: map[netip.Addr][]int{bmc: {0}}, lastTraps: make([]trapped, 1)}
	w.questions = remote.NewThrottle(ctx, 1, 1, askEvery, func(context.Context, int) {})
	cancel()
	return func() { w.handlePacket(from, b) }
}
