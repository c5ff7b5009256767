package ipmi

import "time"

// SetIdle changes after how long a BMC that is not asked has its session back.
func SetIdle(p *Provider, idle time.Duration) { p.idle = idle }

// SetWarm changes how long an old session may be silent.
func SetWarm(p *Provider, warm time.Duration) { p.warm = warm }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bmcs)
}
