package judge

import (
	"net/http"
	"slices"
	"time"
)

// The neighbours' resources. An order is a NetworkFence, by which CSI-Addons has storage shut a node out. A claim is a
// NodeClaim, whose deletion has Karpenter end the machine.
const (
	networkFences = "networkfences"
	nodeClaims    = "nodeclaims"

	nodeKey = "forcefence.io/node" // an annotation of a NetworkFence, from the public documents

	fenced, unfenced = "Fenced", "Unfenced"
)

// shutsOut reports that the storage says that it has shut the node out.
func (o Order) shutsOut() bool {
	return o.State == fenced && o.Result == "Succeeded" && o.Message == "fencing operation successful"
}

// letIn reports that the storage says that it has let the node in.
func (o Order) letIn() bool {
	return o.State == unfenced && o.Result == "Succeeded" && o.Message == "unfencing operation successful"
}

// lastLife is the last sign of life of a node, a heartbeat or a boot, that the writer must have known of: its look at
// the node may be as old as a proof.
func (c *court) lastLife(w Write, node string) (last time.Time) {
	for _, s := range slices.Concat(c.Beats, c.Alive) {
		if age := w.Sent.Sub(s.From); s.Node == node && s.From.After(last) &&
			age > proofAge+slackFor(s.From, w.Sent, c.Stalls) {
			last = s.From
		}
	}
	return last
}

// permit holds a write about a volume's pod against what permits it: a proof, or the storage's own word where no mark
// is on the node and the storage was asked.
func (c *court) permit(w Write, node, what string) {
	_, marked := c.mark(w, node)
	if !marked && slices.ContainsFunc(c.Writes, func(x Write) bool {
		return x.Resource == networkFences && x.Node == node && x.Life != ""
	}) {
		c.storage(w, node, what)
		return
	}
	c.proof(w, node, what)
}

// storage holds a write against the storage's word: it must be about an order that was made after the node's last sign
// of life, and holds still.
func (c *court) storage(w Write, node, what string) {
	last := c.lastLife(w, node)
	orders := map[string]Order{} // that were made in this outage, by name
	for _, x := range c.Writes {
		if x.Resource != networkFences || !x.Received.Before(w.Received) {
			continue
		}
		isNew := x.Verb == "create" && x.Life != "" && x.Node == node && x.Received.After(last)
		if _, made := orders[x.Key]; made || isNew {
			orders[x.Key] = x.Order
		}
	}
	for _, o := range orders {
		if o.shutsOut() {
			return
		}
	}
	c.found(CheckStorage, "%s %s, and no storage has shut %s out since its last sign of life", w.Life, what, node)
}

// order holds a change of an order that takes it back: the node must have shown life since the order was made, and its
// machine have booted if a pod was taken from it. The order may only go once the storage has let the node in.
func (c *court) order(w Write) {
	var made, was Write
	for _, x := range c.Writes {
		if x.Resource != networkFences || x.Key != w.Key || !x.Done.Before(w.Done) {
			continue
		}
		if was = x; x.Verb == "create" {
			made = x
		}
	}
	since := func(spans []Span) bool {
		return slices.ContainsFunc(spans, func(s Span) bool {
			return s.Node == made.Node && s.From.After(made.Received) && s.From.Before(w.Received)
		})
	}
	took := slices.ContainsFunc(c.Writes, func(x Write) bool {
		return x.Life != "" && x.Resource == "pods" && (x.Sub == "status" || x.Verb == "delete") &&
			x.Node == made.Node && x.Received.After(made.Received) && x.Received.Before(w.Received)
	})
	switch {
	case w.Verb == "delete" && !was.Order.letIn():
		c.found(CheckStorage, "%s deletes NetworkFence %s, and the storage has not let %s in", w.Life, w.Key, made.Node)
	case w.Verb == "delete" || w.Order.State != unfenced:
	case !since(c.Beats):
		c.found(CheckStorage, "%s lets %s in by NetworkFence %s, and the node showed no life", w.Life, made.Node, w.Key)
	case took && !since(c.Alive):
		c.found(CheckStorage, "%s lets %s in by NetworkFence %s, on the boot on which it lost pods", w.Life, made.Node,
			w.Key)
	}
}

// handOver holds the deletion of a NodeClaim against what its node and machine showed since the node's last sign of
// life. Either it was marked, the mark is gone, and its device says Off still; or a power-off was tried.
func (c *court) handOver(w Write) {
	if w.Verb != "delete" {
		return
	}
	last := c.lastLife(w, w.Node)
	since, marked := c.mark(w, w.Node)
	off := c.newestOff(w, w.Node, since)
	on := slices.ContainsFunc(c.Log, func(q Question) bool {
		return q.System == w.Node && q.Word == "On" && q.At.After(off.At) && !q.Delivered.IsZero() &&
			q.Delivered.Before(w.Sent)
	})
	tried := func(q Question) bool {
		return q.System == w.Node && q.Method == http.MethodPost && q.Word != "On" && q.Word != "" &&
			q.At.After(last) && q.At.Before(w.Received)
	}
	switch age := w.Sent.Sub(off.At); {
	case marked:
		c.found(CheckClaim, "%s deletes NodeClaim %s of %s, which has a mark", w.Life, w.Key, w.Node)
	case since.After(last) && (on || age > proofAge+slackFor(off.At, w.Sent, c.Stalls)):
		c.found(CheckClaim, "%s deletes NodeClaim %s of %s, whose device does not say Off now", w.Life, w.Key, w.Node)
	case since.After(last) || slices.ContainsFunc(c.Log, tried):
	default:
		c.found(CheckClaim, "%s deletes NodeClaim %s of %s, and no fence ended since the node's last sign of life",
			w.Life, w.Key, w.Node)
	}
}
