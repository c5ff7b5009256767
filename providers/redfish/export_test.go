package redfish

import (
	"net/http"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// SetIdle changes after how long a BMC that is not asked has its session back.
func SetIdle(p *Provider, idle time.Duration) { p.pool.Idle = idle }

// SetTransport takes the place of the network.
func SetTransport(p *Provider, t http.RoundTripper) { p.setTransport(t) }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	return p.pool.Len()
}

// Asleep returns a resource's property that shows that memory is kept.
func Asleep(resource []byte, ignore ...string) string { return findSleepState(resource, ignore) }

// Watcher is the provider as Config.New gives it to others where it has events.
func Watcher(p *Provider) providers.Watcher { return eventProvider{p} }

// SetRhythm changes how a Watch keeps its streams and subscriptions.
func SetRhythm(p *Provider, first, last, none, quiet time.Duration) {
	p.timing = watchTiming{first, last, none, quiet}
}

// PushTo is where BMCs send their events to.
func PushTo(p *Provider) string { return p.eventServer.origin }

// NewPace limits how many events are read.
func NewPace() func(time.Time) time.Duration { return new(eventLimiter).takeOne }

// Kept returns how many bytes of a BMC's systems are kept after a scan of all of them, and whether any
// of it is more than who they are.
func Kept(p *Provider, origin string) (n int, more bool) {
	b, release, err := p.pool.Acquire(remote.Account{Device: origin})
	if err != nil {
		return 0, true
	}
	defer release()
	p.pool.Lock()
	defer p.pool.Unlock()
	if b.scanned == nil || b.pendingScan != nil {
		return 0, true
	}
	for _, s := range b.scanned.systems {
		n += len(s.path) + len(s.ID) + len(s.UUID) + len(s.SerialNumber)
		more = more || s.PowerState != "" || len(s.Links.Chassis) > 0
	}
	return n, more
}

// Events returns how many events of a report are looked at.
func Events(report []byte) int {
	r, _ := parseEvent(report)
	return len(r.Events)
}
