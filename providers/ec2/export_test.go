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

// Hasten makes a watch try again sooner.
func Hasten(p any) {
	p.(queueProvider).
		timing = watchTiming{time.Second, 20 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond,
		50 * time.Millisecond}
}

// LongestEvent is a message's.
const LongestEvent = longestEvent

// ParseEvent reads a message.
func ParseEvent(body string) (id, state string, err error) {
	e, err := parseEvent(body)
	return e.Detail.ID, string(e.Detail.State), err
}

// ShortAnswers makes a queue's answer end much earlier.
func ShortAnswers(t interface{ Cleanup(func()) }) {
	before := longestAnswer
	longestAnswer = 200 << 10
	t.Cleanup(func() { longestAnswer = before })
}

// At gives the provider another clock.
func At(p *Provider, now func() time.Time) *Provider {
	p.opts.Now = now
	return p
}
