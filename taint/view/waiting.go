package view

import (
	"fmt"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
)

// freedLately is how long after its end a fence may be why pods wait.
const freedLately = time.Hour

// ListWaiting lists the pods that wait for a node, with kubectl.
const ListWaiting = "kubectl get pods -A --field-selector status.phase=Pending,spec.nodeName="

// MaxWaiting is how many waiting pods are counted. If there are more, the count says so.
const MaxWaiting = 1000

// FreedLately returns the nodes whose fence freed their pods in the last hour.
func FreedLately(nodes []Node, now time.Time) (names []string) {
	for _, n := range nodes {
		if f := n.Fence; f != nil && f.Result == string(taint.ResultEvicted) && now.Sub(f.At) < freedLately {
			names = append(names, n.Node)
		}
	}
	return names
}

// DescribeWaiting returns a banner if fences of the last hour freed pods, and pods wait for a node. waiting is how many
// pods of the whole cluster are Pending without a node. Whether a fence freed these is not known.
func DescribeWaiting(nodes []Node, waiting int, now time.Time) []Banner {
	freed := FreedLately(nodes, now)
	if len(freed) == 0 || waiting <= 0 {
		return nil
	}
	count, verb := decide.FormatCount(waiting, "pod"), "wait"
	switch {
	case waiting >= MaxWaiting:
		count = fmt.Sprintf("%d or more pods", waiting)
	case waiting == 1:
		verb = "waits"
	}
	return []Banner{{
		About: PartPods, Title: fmt.Sprintf("%s %s for a node", count, verb),
		Text: fmt.Sprintf("All Pending pods of the cluster without a node are counted. Fences of the last hour freed "+
			"the pods of %s.", FormatNames(freed)),
		Remedy:  "They may find no room elsewhere, or their volumes fit no other node. To list them:",
		Command: ListWaiting,
	}}
}
