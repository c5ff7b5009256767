package redfish

import "time"

// SetIdle changes after how long a BMC that is not asked is forgotten.
func SetIdle(p *Provider, d time.Duration) { p.idle = d }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bmcs)
}
