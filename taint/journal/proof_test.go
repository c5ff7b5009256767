package journal

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/features/signing"
)

// TestProof: an object keeps the proof that goes furthest, no matter which update comes last or which process wrote it.
func TestProof(t *testing.T) {
	s := signing.Signer{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)), By: "pod-1"}
	armed := record()
	armed.Proof = s.Sign(taint.Look{Name: "n1"}, armed, true)
	evicting := armed.EnterPhase(taint.PhaseEvicting, "", after(second)).
		WithEvidence(taint.Evidence{At: after(second), From: "racks/7", State: "Off"})
	evicting.Proof = s.Sign(taint.Look{Name: "n1", Record: &armed}, evicting, true)
	unsigned := evicting.EnterPhase(taint.PhaseDone, taint.ResultEvicted, after(2*second))
	unsigned.Proof = "{}"

	if len(evicting.Proof) <= len(armed.Proof) {
		t.Fatal("no second link")
	}
	e := tell(Entry{}, told(evicting, after(second)), told(armed, after(time.Minute)), told(unsigned, after(time.Hour)))
	if got := e.Object.Status.Proof; got != evicting.Proof {
		t.Errorf("got %q, want the one of phase Evicting", got)
	}
	first := tell(Entry{}, told(armed, start))
	for name, got := range map[string]Entry{
		"found earlier": e.MergeObject(first.BoundedObject(&api.Fencing{})),
		"found later":   first.MergeObject(e.BoundedObject(&api.Fencing{})),
	} {
		if got.Object.Status.Proof != evicting.Proof {
			t.Errorf("%s: got %q, want the one of phase Evicting", name, got.Object.Status.Proof)
		}
	}
}
