package drills

import "time"

// Oldest returns when the devices were asked of the node that was asked the longest ago. It returns zero until this
// process has asked those of every node.
func (d *Drills) Oldest() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.Oldest()
}
