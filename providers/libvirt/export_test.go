package libvirt

import "time"

// SetRhythm makes a provider's watches faster.
func SetRhythm(p *Provider, beat, first, last time.Duration) {
	p.timing = watchTiming{beat: beat, first: first, last: last}
}
