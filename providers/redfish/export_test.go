package redfish

import (
	"net/http"
	"time"
)

// SetIdle changes after how long a BMC that is not asked has its session back.
func SetIdle(p *Provider, idle time.Duration) { p.idle = idle }

// SetTransport takes the place of the network.
func SetTransport(p *Provider, t http.RoundTripper) { p.through(t) }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bmcs)
}

// Asleep is what a resource says of memory that is kept.
var Asleep = asleep
