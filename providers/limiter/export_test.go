package limiter

import "github.com/forcefence/forcefence/providers"

// Devices returns how many devices the limiter remembers.
func Devices(g *Provider) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.units)
}

// Identities returns how many identities the limiter remembers.
func Identities(g *Provider) int {
	g.identities.mu.Lock()
	defer g.identities.mu.Unlock()
	return len(g.identities.known)
}

// ConfirmedAt reports whether an identity that was confirmed at sent counts at now.
func ConfirmedAt(sent, now providers.Instant) bool {
	var i identities
	n1 := providers.Target{Node: "n1"}
	i.learnIdentity(n1, sent, providers.Observation{At: sent}, nil)
	i.lastSweep = now // what is forgotten is another matter
	return i.useConfirmation(n1, now)
}
