package controller

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/reason"
)

// TestRecordsAreSigned: the record that begins an eviction is written with the proof that SignRecord returns, and the
// observation has the same. A person's word, without a device's Off, is passed on as no proof.
func TestRecordsAreSigned(t *testing.T) {
	for state, proven := range map[providers.PowerState]bool{providers.PowerOff: true, providers.PowerUnknown: false} {
		x := inMidst(t, &oneMachine{state: state}, taint.PhaseArmed)
		if !proven {
			rec, _ := taint.RecordOf(x.live.node)
			rec.By = taint.ByPerson
			x.live.node.Annotations[taint.RecordAnnotation] = rec.Encode()
		}
		var asked *bool
		x.SignRecord = func(_ taint.Look, rec taint.Record, proven bool) string {
			asked = &proven
			return "proof of " + string(rec.Phase)
		}
		done := x.act(t.Context(), x.upTo("WriteRecord"))
		switch {
		case asked == nil || *asked != proven:
			t.Errorf("%s: SignRecord was called with %v, want %t", state, asked, proven)
		case done.Proof != "proof of Evicting" || !strings.Contains(x.api.last, "proof of Evicting"):
			t.Errorf("%s: observed %q, wrote %s", state, done.Proof, x.api.last)
		}
	}
}

// A node comes back in the middle of its eviction, with its volumes in use, and fails again. With the proof guard they
// stay attached until a person comes: its proof names an earlier Lease, or its device has said On. One Event of the
// fence says that. There is none where the record has no proof, and where a person confirms that the machine is off.
func TestRefusedDetachIsAnEvent(t *testing.T) {
	for _, tc := range []struct {
		name                string
		signs, on, confirms bool
		want                string // why there is no valid proof
	}{
		{"signed", true, false, false, "the node has renewed its Lease since"},
		{"signed, and the machine is on", true, true, false, "one said On since"},
		{"not signed", false, false, false, ""},
		{"confirmed", true, false, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.signs {
				key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
				w.r.SignRecord = signing.Signer{Key: key, By: "test"}.Sign
			}
			w.run(15 * time.Second)
			w.fail = func(_ client.Object, patch string) error {
				if strings.Contains(patch, "volumesInUse") {
					return errors.New("busy")
				}
				return nil
			}
			w.cut("n1")
			w.until(time.Minute, func() bool { return w.record("n1").Phase == taint.PhaseEvicting })
			w.run(5 * time.Second)
			if w.machines["n1"].on = tc.on; !tc.on {
				w.beat("n1")
				w.silence("n1")
			}
			w.run(time.Minute)
			if tc.confirms {
				var lease coordinationv1.Lease
				w.get(&lease, corev1.NamespaceNodeLease, "n1")
				w.change("n1", func(n *corev1.Node) {
					rec := w.record("n1")
					n.Annotations[taint.ConfirmAnnotation] = taint.Confirmation{By: "ann", Reason: "no plug",
						NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Fence: rec.ID,
						LeaseRV: lease.ResourceVersion, At: w.Now().UTC().Truncate(time.Second)}.Encode()
				})
			}
			w.run(10 * time.Minute)
			var alerts []string
			for i, said := range w.told.said {
				if said == string(reason.NeedsPerson)+" n1" {
					alerts = append(alerts, w.told.texts[i])
				}
			}
			if !w.marked("n1") || len(alerts) != 1 || !strings.Contains(alerts[0], "are still attached") {
				t.Fatalf("marked %t, alerts %q; told %q, want the mark, and one alert", w.marked("n1"), alerts,
					slices.Compact(w.told.said))
			}
			const refusal = "where the proof guard runs, it refuses to detach those in use (no valid proof: "
			if strings.Contains(alerts[0], refusal) != (tc.want != "") || !strings.Contains(alerts[0], tc.want) {
				t.Errorf("got %q, want that the guard refuses because %q", alerts[0], tc.want)
			}
		})
	}
}
