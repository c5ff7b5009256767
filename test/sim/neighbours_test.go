package sim

import "testing"

// TestNeighbours plays histories beside other projects' controllers, and holds that they reach what they are there to
// judge.
func TestNeighbours(t *testing.T) {
	n := uint64(400)
	short := fewHistories()
	if short {
		n = 60
	}
	tally := playSeeds(0, n, func(uint64) Scenario { return Neighbours })
	if tally.report(t); t.Failed() || short {
		return
	}
	tally.wantPaths(t, []string{
		"NetworkFence made", "NetworkFence failed", "NetworkFence of others", "NetworkFence deleted by a person",
		"NetworkFence edited by a person", "NetworkFence: confirm", "NetworkFence: unfence", "NetworkFence: delete",
		"a success of an earlier state", "let in by hand", "ended by a policy", "double of a node that is shut out",
		"kept from writing",
		"handed over Evicted", "handed over PowerOffFailed", "NodeClaim deleted by others",
		"mode lowered after a power-off that failed",
		"request FenceDone", "request NodeRecovered", "request RequestRefused", "node deleted beside a request",
		"no process runs",
		"an order of Metal3's is carried out late", "an order of Metal3's is carried out on a living node",
		"an order of Metal3's is a person's", "an order of Metal3's is taken back by a person",
	})
}
