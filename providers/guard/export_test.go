package guard

// Devices returns how many devices the guard remembers.
func Devices(g *Provider) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.devices)
}
