package taint

import (
	"strings"
	"testing"
	"time"
)

// What was stored in one life is read back as that life. What cannot be read never holds.
func TestLifeIsStored(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	l := Look{Exists: true, UID: "u1", BootID: "b1", LeaseRV: "7", Heartbeat: at}
	if f := ParseLife(l.Life().Encode()); !f.StillHolds(l) {
		t.Errorf("got %+v, want the life of the look", f)
	}
	for name, text := range map[string]string{
		"no text":      "",
		"no JSON":      "u1 b1 7",
		"no Node":      `{"bootID":"b1","leaseRV":"7"}`,
		"another type": `["u1"]`,
		"too long":     l.Life().Encode() + strings.Repeat(" ", maxLife),
	} {
		if ParseLife(text).StillHolds(Look{Exists: true, BootID: "b1", LeaseRV: "7"}) || ParseLife(text).StillHolds(l) {
			t.Errorf("%s: it holds", name)
		}
	}
	l.BootID = strings.Repeat("b", maxLife)
	if got := l.Life().Encode(); got != "" {
		t.Errorf("a kubelet's boot id makes a text of %d bytes", len(got))
	}
}
