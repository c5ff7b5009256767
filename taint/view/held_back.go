package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	// maxHeldNames is how many nodes a HeldBack names.
	maxHeldNames = 50
	// maxHeldDetail bounds the numbers of the rule, in bytes.
	maxHeldDetail = 500
	// maxHeldBack bounds the annotation, in bytes.
	maxHeldBack = 16 << 10
)

// HeldBack is what the storm guard of the leader holds back now. It is only shown: no decision reads it. An Event is
// sent once, for the first of the nodes, and ends after an hour. This holds for as long as the guard does.
type HeldBack struct {
	Rule   reason.Reason `json:"rule"`             // the rule that refuses
	Detail string        `json:"detail,omitempty"` // the rule's numbers
	Held   int           `json:"held"`             // how many nodes are held back, by any rule
	Nodes  []string      `json:"nodes,omitempty"`  // the first of them, by name
	Silent int           `json:"silent"`           // how many nodes renew no Lease
	Of     int           `json:"of"`               // how many nodes there are
	Since  time.Time     `json:"since"`            // when the leader began to hold back any node without a break
	// By is the leader that wrote it. The words of another one do not count: its view of the nodes ended with its lead.
	By string `json:"by"`
}

// Encode returns it as an annotation, with as many names as fit; "" for nil.
func (h *HeldBack) Encode() string {
	if h == nil {
		return ""
	}
	out := *h
	out.Detail = OneLine(h.Detail, maxHeldDetail)
	out.Nodes = h.Nodes[:min(len(h.Nodes), maxHeldNames)]
	raw, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(raw)
}

// ParseHeldBack reads an annotation of the Lease that the holder has. It returns nil if there is none that can be read,
// or if another holder wrote it.
func ParseHeldBack(text, holder string) *HeldBack {
	var h HeldBack
	if text == "" || len(text) > maxHeldBack || json.Unmarshal([]byte(text), &h) != nil ||
		holder == "" || h.By != holder || h.Held < 1 || h.Since.IsZero() {
		return nil
	}
	h.Rule = reason.Reason(OneLine(string(h.Rule), 100))
	h.Detail = OneLine(h.Detail, maxHeldDetail)
	h.Nodes = h.Nodes[:min(len(h.Nodes), maxHeldNames)]
	for i, name := range h.Nodes {
		h.Nodes[i] = OneLine(name, 253)
	}
	return &h
}

// holds reports whether the node is among the named ones.
func (h *HeldBack) holds(node string) bool { return h != nil && slices.Contains(h.Nodes, node) }

// describeRule says which rule holds nodes back.
func (h *HeldBack) describeRule() string {
	switch h.Rule {
	case reason.AllStale:
		return "All nodes look dead at once, so no node is fenced."
	case reason.MostStale:
		return "Fewer than half of the nodes renew their Leases."
	case reason.CutOff:
		return "forcefence itself may be cut off: " + h.Detail + "."
	case reason.DomainLost:
		return "A failure domain is lost: " + h.Detail + "."
	case reason.DevicesCut:
		return "The network to a failure domain's devices may be broken: " + h.Detail + "."
	case reason.TooFewHealthy:
		return "Too few nodes are healthy: " + h.Detail + "."
	case reason.Quorum:
		return "etcd would lose its quorum: " + h.Detail + "."
	default: // of a newer leader
		return "The rule is " + string(h.Rule) + ": " + h.Detail + "."
	}
}

// describeNode says why one of the nodes is held back.
func (h *HeldBack) describeNode() string {
	return "The storm guard holds it back, so its machine is not powered off. " + h.describeRule()
}

// describe returns the banner: which rule, how many nodes, and since when.
func (h *HeldBack) describe(now time.Time) []Banner {
	names := FormatNames(h.Nodes[:min(len(h.Nodes), maxNames)])
	if more := h.Held - min(len(h.Nodes), maxNames); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return describeStorm("Power-offs are held back", fmt.Sprintf("%s: %s. %s %d of %s are silent. It began %s.",
		decide.FormatCount(h.Held, "node"), names, h.describeRule(), h.Silent, decide.FormatCount(h.Of, "node"),
		FormatAge(h.Since, now)), h.Rule)
}

// describeMostSilent returns a banner if more than half of the nodes are silent, by the Nodes alone. It is of use where
// no leader reports what it holds back.
func describeMostSilent(nodes []Node) []Banner {
	var silent []string
	for _, n := range nodes {
		if n.Ready == string(corev1.ConditionUnknown) { // a kubelet that says False is heard
			silent = append(silent, n.Node)
		}
	}
	if len(silent) < 2 || 2*len(silent) <= len(nodes) {
		return nil
	}
	return describeStorm("Most nodes are silent",
		fmt.Sprintf("%d of %s are not Ready and not heard: %s. While fewer than half of the nodes renew their "+
			"Leases, no machine is powered off.", len(silent),
			decide.FormatCount(len(nodes), "node"), FormatNames(silent)), reason.MostStale)
}
