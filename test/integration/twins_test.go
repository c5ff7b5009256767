package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view/check"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
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

// Two guests were cloned with their system UUID, and so each device tells the UUID of both. Then the UUID would not
// show a wrong cable: the drill of each node names the other, and `forcefence check` both.
func TestClonedUUIDsAreNamed(t *testing.T) {
	const cloned = "6f0c8f4e-3c34-4f0b-9a0e-1f7cf1b0a6d5"
	w := newWorld(t, plan{nodes: 3, node: func(i int, o *cluster.NodeOptions) {
		if i < 2 {
			o.SystemUUID = cloned
		}
	}})
	twins := w.hosts[:2]
	for _, h := range twins {
		h.bmc.SetFault(datacenter.Fault{SystemUUID: cloned})
	}
	w.start(settings{Machine: fmt.Sprintf("{from: list, list: [{node: %s, id: %q}, {node: %s, id: %q}]}",
		twins[0].Name(), twins[0].bmc.URL(), twins[1].Name(), twins[1].bmc.URL())})
	for i, h := range twins {
		w.until("the drill of "+h.Name()+" to name its twin", func() bool {
			return slices.ContainsFunc(w.node(h).Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == "forcefence.io/Fenceable" &&
					strings.Contains(c.Message, "same system UUID as node "+twins[1-i].Name())
			})
		})
	}
	out, _ := w.forcefence("check", "--output=json")
	var got check.Report // what follows it says how many problems there are
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	both := twins[0].Name() + ", " + twins[1].Name()
	if !slices.ContainsFunc(got.Findings, func(f check.Finding) bool {
		return f.Level == check.Problem && f.About == both && strings.Contains(f.Text, cloned)
	}) {
		t.Errorf("check does not name %s: %s", both, out)
	}
}
