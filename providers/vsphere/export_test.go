package vsphere

import "time"

// SetRhythm makes a provider's watches faster. wait is at least a second.
func SetRhythm(p *Provider, wait, first, last time.Duration) {
	p.timing = watchTiming{wait: wait, first: first, last: last}
}

// SetPage makes answers hold fewer VMs.
func SetPage(p *Provider, n int32) { p.page = n }
