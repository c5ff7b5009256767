package controller

import (
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
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
