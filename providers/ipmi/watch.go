package ipmi

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// askEvery is the minimum time between two questions to one BMC; asksAtOnce is the
	// maximum number of questions in flight.
	askEvery   = time.Second
	asksAtOnce = 16
	askTime    = 5 * time.Second
	// askFor is how long a BMC that sent a trap is asked again while its machine is on: a trap may precede the change.
	askFor = 4 * time.Second
	// resolveEvery is the time between two look-ups of the BMCs' names.
	resolveEvery = time.Minute
)

// trapProvider is a Provider that listens for traps. A Provider that does not is no Watcher.
type trapProvider struct{ *Provider }

var _ providers.Watcher = trapProvider{}

// Watch listens for traps. After a trap in a BMC's name it asks that BMC, at most once a second, and reports a machine
// that does not run by the BMC's answer. At the beginning it asks all BMCs. It returns ErrPermanent if it cannot
// listen.
func (p trapProvider) Watch(ctx context.Context, targets []providers.Target, f providers.ReportFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &trapWatch{p: p.Provider, targets: targets, f: f, addresses: make([][]netip.Addr, len(targets)),
		lastTraps: make([]trapped, len(targets))}
	w.questions = remote.NewThrottle(ctx, len(targets), asksAtOnce, askEvery, w.askBMC)
	defer w.questions.Wait()
	defer cancel()
	w.resolveHosts(ctx, false)
	leave, err := listenForTraps(p.cfg.Traps, w)
	if err != nil {
		return fmt.Errorf("watch (ipmi %s): %w", p.opts.Name,
			providers.WithClass(providers.ErrPermanent,
				fmt.Errorf("listening for traps at %s (traps): %w", p.cfg.Traps, err)))
	}
	defer leave()
	for i := range targets {
		w.questions.RunSoon(i)
	}
	for w.resolveHosts(ctx, true); remote.SleepContext(ctx, resolveEvery); w.resolveHosts(ctx, true) {
	}
	return ctx.Err()
}

type trapWatch struct {
	p         *Provider
	targets   []providers.Target
	f         providers.ReportFunc
	questions *remote.Throttle
	addresses [][]netip.Addr // of each target's BMC; of Watch's own goroutine

	mu        sync.Mutex // guards what follows
	sources   map[netip.Addr][]int
	lastTraps []trapped // by target
}

// trapped is the last trap from a BMC; a zero time means none.
type trapped struct {
	trap
	at time.Time
}

// handlePacket handles a packet from an address. It neither blocks nor allocates.
func (w *trapWatch) handlePacket(from netip.Addr, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.sources[from]
	if len(of) == 0 {
		return // no BMC of this watch
	}
	t, ok := parseTrap(b)
	if !ok {
		return
	}
	now := time.Now()
	for _, i := range of {
		w.lastTraps[i] = trapped{t, now}
		w.questions.RunSoon(i)
	}
}

// askBMC asks one BMC, and again soon after a trap.
func (w *trapWatch) askBMC(ctx context.Context, i int) {
	w.mu.Lock()
	trap := w.lastTraps[i]
	w.mu.Unlock()
	asking, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %s", askTime))
	defer cancel()
	o, err := w.p.State(asking, w.targets[i])
	switch {
	case ctx.Err() != nil:
	case err == nil && o.State != providers.PowerOn:
		if !trap.at.IsZero() {
			o.Raw = "after a " + trap.String() + ": " + o.Raw
		}
		w.f(w.targets[i], o)
	case !trap.at.IsZero() && time.Since(trap.at) < askFor:
		w.questions.RunSoon(i)
	}
}

// resolveHosts sets the addresses of the BMCs whose IDs contain an IP address, and with names also looks up the others.
// A name that cannot be looked up keeps its earlier addresses.
func (w *trapWatch) resolveHosts(ctx context.Context, names bool) {
	for i, t := range w.targets {
		u, err := parseID(t.ID)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
			w.addresses[i] = []netip.Addr{ip}
		} else if names {
			asking, cancel := context.WithTimeout(ctx, askTime)
			if found, err := w.p.lookup(asking, "ip", u.Hostname()); err == nil {
				w.addresses[i] = found
			}
			cancel()
		}
	}
	sources := map[netip.Addr][]int{}
	for i, addresses := range w.addresses {
		for _, ip := range addresses {
			sources[ip.Unmap()] = append(sources[ip.Unmap()], i)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources = sources
}

// checkTraps returns what is wrong with Config.Traps.
func checkTraps(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return "is no address to listen at: write IP:port, or :162 for all of this machine's"
	}
	return ""
}
