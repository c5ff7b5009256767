package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// Kubernetes has two heartbeats. A node whose Lease alone is not renewed any more is left on: its kubelet writes the
// Node's status whenever the node lifecycle controller has declared it NotReady. An Event says what is missing. Once
// the status stops, too, the node is fenced.
func TestOnlyTheLeaseIsMissing(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 1), w.plain("web", 1))
	before := w.podsOn(h)
	w.start(settings{Mode: "fence"})
	w.untilPinned(w.hosts...)
	w.refuses("leases", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-node-lease}}",
		fmt.Sprintf("object.metadata.name != %q", h.Name()), "renewals are refused")
	w.untilEvent("Node", h.Name(), "OnlyLeaseMissing")
	w.during(45*time.Second, "a kubelet that writes Ready is alive", func() error {
		if h.resets() > 0 {
			kit.Harm(t, "the machine was powered off, and its kubelet wrote Ready")
		}
		return untouched(before, w.pods())
	})
	h.partition()
	w.untilReplaced(h, before)
	if h.resets() == 0 {
		t.Error("the silent node's machine was not powered off")
	}
}
