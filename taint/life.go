package taint

import (
	"encoding/json"
	"time"
)

// Life is one life of a node: a Node object, a boot of its machine, and the last sign of life of each kind. What was
// permitted, proven or ordered in one life says nothing about the next. So all that outlives one look names the life
// that it is about, and counts only while that life still holds.
type Life struct {
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID"`
	// LeaseRV is the resourceVersion of the node's Lease, which each heartbeat changes; "": it had none.
	LeaseRV string `json:"leaseRV,omitempty"`
	// Heartbeat is the last status that the kubelet wrote (Look.Heartbeat); zero: it wrote none, or it is not known.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// maxLife bounds the text of a Life, in bytes. A kubelet chooses its boot id.
const maxLife = 1024

// Life returns the life that a look saw. It needs a look that read the Lease.
func (l Look) Life() Life {
	return Life{NodeUID: l.UID, BootID: l.BootID, LeaseRV: l.LeaseRV, Heartbeat: l.Heartbeat}
}

// Life returns the life that a fence is about.
func (r *Record) Life() Life {
	return Life{NodeUID: r.NodeUID, BootID: r.BootID, LeaseRV: r.LeaseRV, Heartbeat: r.Heartbeat}
}

// StillHolds reports whether a look shows that life: the same Node, on the same boot, without a heartbeat of either
// kind since. The zero value is no life, so it never holds. A status that one of the two does not know counts as the
// same.
func (f Life) StillHolds(l Look) bool {
	return l.Exists && f.NodeUID != "" && l.UID == f.NodeUID && l.BootID == f.BootID && l.LeaseRV == f.LeaseRV &&
		!isOtherHeartbeat(l.Heartbeat, f.Heartbeat)
}

// isOtherHeartbeat reports whether two statuses are known, and differ.
func isOtherHeartbeat(a, b time.Time) bool { return !a.IsZero() && !b.IsZero() && !a.Equal(b) }

// Encode returns the life as one line of JSON; "" if it is too long to be stored.
func (f Life) Encode() string {
	text, err := json.Marshal(f)
	if err != nil || len(text) > maxLife { // an error: a time outside years 0..9999
		return ""
	}
	return string(text)
}

// ParseLife reads what Encode returned. Another text is the zero value, which never holds.
func ParseLife(text string) (f Life) {
	if len(text) > maxLife || json.Unmarshal([]byte(text), &f) != nil {
		return Life{}
	}
	return f
}
