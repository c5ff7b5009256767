package app

import (
	"bytes"
	"crypto/ed25519"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/signing"
)

// TestSigningFollowsTheFile: a key that comes, is replaced and goes while the process runs. Without one the record
// keeps its proof, and the log and the metric say so.
func TestSigningFollowsTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	var log strings.Builder
	configured, reg := file, prometheus.NewRegistry()
	s := newRecordSigner(func() string { return configured }, "pod-1", slog.New(slog.NewTextHandler(&log, nil)), reg)
	usable := func() float64 { // as a scrape sees it
		t.Helper()
		all, err := reg.Gather()
		if err != nil || len(all) != 1 {
			t.Fatalf("got %v, %v", all, err)
		}
		return all[0].Metric[0].GetGauge().GetValue()
	}
	write := func(b byte) string {
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
		if err := os.WriteFile(file, signing.EncodeSigner(key), 0o600); err != nil {
			t.Fatal(err)
		}
		return signing.KeyID(key.Public().(ed25519.PublicKey))
	}
	look := taint.Look{Name: "n1"}
	rec := taint.Record{ID: "f-1", NodeUID: "u", By: "pod-1"}.EnterPhase(taint.PhaseArmed, "", time.Now())
	rec.Proof = "kept"
	if got := s.sign(look, rec, true); got != "kept" || usable() != 0 || !strings.Contains(log.String(), "key.pem") {
		t.Errorf("without a key: got %q, metric %v, logged %q", got, usable(), log.String())
	}
	for _, b := range []byte{1, 2} {
		id := write(b)
		p, err := signing.Parse(s.sign(look, rec, true))
		if err != nil || p.Key != id || p.Links[0].By != "pod-1" || usable() != 1 {
			t.Errorf("key %d: got %+v, %v, metric %v, want key %s", b, p, err, usable(), id)
		}
	}
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.sign(look, rec, true); got != "kept" || usable() != 0 {
		t.Errorf("with a broken key: got %q, metric %v", got, usable())
	}
	configured = ""
	if got := s.sign(look, rec, true); got != "kept" || usable() != 1 {
		t.Errorf("switched off: got %q, metric %v", got, usable())
	}
}
