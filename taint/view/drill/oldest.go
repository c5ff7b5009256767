package drill

import "time"

// Oldest returns when the drill of the node ended that was asked the longest ago. It returns zero if a node was not
// asked yet, and if there is no node.
func (p *Plan) Oldest() (oldest time.Time) {
	for _, t := range p.nodes {
		if t.ended.IsZero() {
			return time.Time{}
		}
		if oldest.IsZero() || t.ended.Before(oldest) {
			oldest = t.ended
		}
	}
	return oldest
}
