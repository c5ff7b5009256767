package integration

import (
	"context"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// A host is renamed: its kubelet registers under another name, with the same system UUID, and the old Node stays with
// its pods. The machine is left on while the new node is heard, and an Event on each names the other. Once the new node
// is silent as well, what the machine's device says holds for the old one.
func TestRenamedHostIsLeftOn(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	old := w.hosts[0]
	w.fill(old, 2, w.volumes("db", 1), w.plain("web", 1))
	before := w.podsOn(old)
	w.start(settings{Mode: "fence"})
	w.untilPinned(w.hosts...)
	renamed, err := w.AddNode(w.ctx, cluster.NodeOptions{Name: old.Name() + "-renamed", SystemUUID: old.SystemUUID(),
		Labels: map[string]string{"renamed": w.ns}})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, renamed.Remove(context.Background())) })
	old.partition()
	w.untilEvent("Node", old.Name(), "MachineShared")
	if note := w.untilEvent("Node", renamed.Name(), "MachineSharedWithSilentNode"); note == "" {
		t.Error("the Event on the new Node says nothing")
	}
	w.during(45*time.Second, "the machine of a node that is heard is left on", func() error {
		if old.resets() > 0 {
			kit.Harm(t, "the machine was powered off, and its kubelet renews the Lease of the new Node")
		}
		return untouched(before, w.pods())
	})
	renamed.StopHeartbeats()
	w.untilDone(old, taint.ResultEvicted)
	w.untilReplaced(old, before)
}
