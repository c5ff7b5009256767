package sim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
)

// receive adds one request of a controller to the history's hash: when it arrived, its verb, its object and its body
// without texts for people. Two versions of forcefence that send the same have the same hash, so it proves that a
// change of form changed nothing else.
func (w *World) receive(by, verb, object string, body any) {
	if w.received == nil {
		w.received = fnv.New64a()
	}
	w.steps++
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // all bodies are ours
	}
	fmt.Fprintf(w.received, "%d %s %s %s %s\n", w.now.Sub(epoch), by, verb, object, text)
}

// receiveNode is receive for what a write makes of a Node; nil: it was refused.
func (w *World) receiveNode(by, name, rv string, n *corev1.Node, err error) {
	if !ours(by) {
		return
	}
	body := map[string]any{"rv": rv, "err": fmt.Sprint(err)}
	if n != nil {
		body["annotations"], body["labels"], body["taints"] = n.Annotations, n.Labels, n.Spec.Taints
		body["inUse"], body["attached"] = n.Status.VolumesInUse, n.Status.VolumesAttached
		conditions := slices.Clone(n.Status.Conditions)
		for i := range conditions {
			conditions[i].Message = ""
		}
		body["conditions"] = conditions
	}
	w.receive(by, "patch", "nodes/"+name, body)
}

// receivePod is receive for what a write makes of a pod; nil: it was refused, or the pod is deleted.
func (w *World) receivePod(by, verb, name, uid, rv string, p *corev1.Pod, err error) {
	if !ours(by) {
		return
	}
	body := map[string]any{"uid": uid, "rv": rv, "err": fmt.Sprint(err)}
	if p != nil {
		status := p.Status.DeepCopy()
		status.Message = ""
		for i := range status.Conditions {
			status.Conditions[i].Message = ""
		}
		body["annotations"], body["status"] = p.Annotations, status
	}
	w.receive(by, verb, "pods/"+name, body)
}

// receiveOrder is receive for a device.
func (w *World) receiveOrder(verb string, m *machine, which int, t providers.Target) {
	w.receive("", verb, fmt.Sprintf("%s/%d", m.name, which), t)
}
