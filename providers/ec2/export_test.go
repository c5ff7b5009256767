package ec2

import "time"

// In tests the SDK waits less before it tries a call again.
func init() { maxBackoff = 20 * time.Millisecond }

// MostRan is how many instances are remembered.
const MostRan = maxLaunches

// Ran returns how many instances are.
func (p *Provider) Ran() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.lastLaunches) }

// Saw is saw.
func (p *Provider) Saw(id string, launch time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rememberLaunch(id, launch)
}

// BriefAnswers makes a request end much earlier.
func BriefAnswers(t interface{ Cleanup(func()) }) {
	before := answerTime
	answerTime = 300 * time.Millisecond
	t.Cleanup(func() { answerTime = before })
}

// SlowRetries makes the SDK wait as it does in a cluster.
func SlowRetries(t interface{ Cleanup(func()) }) {
	before := maxBackoff
	maxBackoff = 20 * time.Second
	t.Cleanup(func() { maxBackoff = before })
}

// At gives the provider another clock.
func At(p *Provider, now func() time.Time) *Provider {
	p.opts.Now = now
	return p
}
