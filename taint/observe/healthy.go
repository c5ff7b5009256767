package observe

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/reason"
)

// NudgeDone is one round in which a node's kubelet was asked to try its held pods again.
type NudgeDone struct {
	Round   int
	Err     error            // why held pods could not be listed
	Pods    int              // that were held
	Results map[string]int   // how many writes had which result
	Failed  map[string]error // by the pod's namespace/name
}

// ReportNudges reports a round of nudges.
func (n *NodeReporter) ReportNudges(d NudgeDone) {
	if d.Err != nil {
		n.Metrics.nudges.WithLabelValues(NudgeFailed).Inc()
		n.Log.Warn("Cannot list held pods", "node", n.name, "round", d.Round, "error", d.Err)
		return
	}
	for result, count := range d.Results {
		n.Metrics.nudges.WithLabelValues(result).Add(float64(count))
	}
	for pod, err := range d.Failed {
		n.Log.Warn("Cannot nudge held pod", "node", n.name, "pod", pod, "round", d.Round, "error", err)
	}
	if d.Pods > 0 {
		n.Log.Info("Nudged held pods", "node", n.name, "round", d.Round, "pods", d.Pods)
	}
}

// PinDone is the result of pinning a healthy node to its machine. The zero value: there was nothing to do.
type PinDone struct {
	Refused     string // why its machine is not believed; "": it is
	NotBelieved error  // the same as a whole error
	Err         error  // why the pin could not be written
	Machine     string // that it was pinned to; "": no pin was written
	Repinned    bool   // it was pinned to another machine before
}

// ReportPin reports how the cached Node was pinned.
func (n *NodeReporter) ReportPin(node *corev1.Node, d PinDone) {
	before := n.refused
	n.refused = d.Refused
	n.at = n.Now()
	switch {
	case d.NotBelieved != nil && before != d.Refused:
		n.Log.Warn("The node's machine is not believed", "node", n.name, "why", d.NotBelieved)
		n.sendEvent(n.at, node, nil, reason.NotBelieved, "Pin", "{detail}", d.NotBelieved.Error())
	case d.Err != nil:
		n.Log.Warn("Cannot pin the node's machine", "node", n.name, "error", d.Err)
	case d.Machine != "":
		n.Log.Debug("Pinned the node's machine", "node", n.name, "machine", d.Machine)
	}
	if d.Repinned {
		n.Log.Info("Pinned the node to another machine", "node", n.name, "machine", d.Machine)
		n.sendEvent(n.at, node, nil, reason.Repinned, "Pin", "{detail}", d.Machine)
	}
}
