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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/attest"
)

// TestSigningFollowsTheFile: a key that comes, is replaced and goes while the process runs. Without one the record
// keeps its proof, and the log and the metric say so.
func TestSigningFollowsTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	var log strings.Builder
	s := newRecordSigner(func() string { return file }, "pod-1", slog.New(slog.NewTextHandler(&log, nil)),
		prometheus.NewRegistry())
	write := func(b byte) string {
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
		if err := os.WriteFile(file, attest.EncodeSigner(key, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return attest.KeyID(key.Public().(ed25519.PublicKey))
	}
	look := taint.Look{Name: "n1"}
	rec := taint.Record{ID: "f-1", NodeUID: "u", By: "pod-1"}.EnterPhase(taint.PhaseArmed, "", time.Now())
	rec.Proof = "kept"
	if got := s.sign(look, rec, true); got != "kept" || testutil.ToFloat64(s.failed) != 1 ||
		!strings.Contains(log.String(), "key.pem") {
		t.Errorf("without a key: got %q, counted %v, logged %q", got, testutil.ToFloat64(s.failed), log.String())
	}
	for _, b := range []byte{1, 2} {
		id := write(b)
		p, err := attest.Parse(s.sign(look, rec, true))
		if err != nil || p.Key != id || p.Links[0].By != "pod-1" {
			t.Errorf("key %d: got %+v, %v, want key %s", b, p, err, id)
		}
	}
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.sign(look, rec, true); got != "kept" || testutil.ToFloat64(s.failed) != 2 {
		t.Errorf("with a broken key: got %q, counted %v", got, testutil.ToFloat64(s.failed))
	}
	s.keyFile = func() string { return "" }
	if got := s.sign(look, rec, true); got != "kept" || testutil.ToFloat64(s.failed) != 2 {
		t.Errorf("switched off: got %q, counted %v", got, testutil.ToFloat64(s.failed))
	}
}
