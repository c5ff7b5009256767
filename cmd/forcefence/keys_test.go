package main

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestKeys makes, replaces and revokes keys as an administrator does. What the first key signed verifies until it is
// revoked.
func TestKeys(t *testing.T) {
	admin := cluster.Admin(t, shared)
	ctx, now := t.Context(), time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "keys"}}
	if err := admin.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	defer admin.Delete(ctx, ns)
	k := signingKeys{admin, "keys", strings.NewReader(strings.Repeat("0123456789abcdef", 100)),
		func() time.Time { return now }}
	signer := func() signing.Signer {
		t.Helper()
		var secret corev1.Secret
		if err := admin.Get(ctx, client.ObjectKey{Namespace: "keys", Name: config.SigningSecret}, &secret); err != nil {
			t.Fatal(err)
		}
		s, err := signing.ParseSigner(secret.Data[config.KeysEntry])
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rec := taint.Record{ID: "f-1", NodeUID: "u", Since: now}.EnterPhase(taint.PhaseArmed, "", now)
	f := &api.Fencing{
		TypeMeta: metav1.TypeMeta{Kind: api.Kind},
		Spec:     api.FencingSpec{Node: "n1", NodeUID: "u", ID: "f-1", StartedAt: metav1.NewMicroTime(now)},
		Status:   api.FencingStatus{Phase: "Armed"},
	}
	if said, err := k.add(ctx); err != nil || strings.Contains(said, "--revoke") {
		t.Fatalf("the first key: got %q, %v, want no word of other keys", said, err)
	}
	first := signer()
	f.Status.Proof = first.Sign(taint.Look{Name: "n1"}, rec, true)
	verify := func() (string, error) {
		var out bytes.Buffer
		err := verifyFencing(&out, f, func() ([]byte, error) { return readPublicKeys(ctx, admin, "keys") })
		return out.String(), err
	}
	if out, err := verify(); err != nil || !strings.Contains(out, "Valid: fence f-1 of node n1") {
		t.Errorf("by its own key: %v\n%s", err, out)
	}
	p, _ := signing.Parse(f.Status.Proof)
	if _, err := k.revoke(ctx, p.Key); err == nil || !strings.Contains(err.Error(), "--new") {
		t.Errorf("revoking the key that signs: got %v, want what to do first", err)
	}
	k.random = strings.NewReader(strings.Repeat("fedcba9876543210", 100))
	said, err := k.add(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := p.Key + " (in the ConfigMap since 2026-12-01T14:00:00Z, signed until now)"
	if !strings.Contains(said, want) {
		t.Errorf("beside a key that stays valid: got %q, want %q", said, want)
	}
	if signer().Key.Equal(first.Key) {
		t.Error("the first key signs still")
	}
	if _, err := verify(); err != nil {
		t.Errorf("after a new key: %v", err)
	}
	if _, err := k.revoke(ctx, "0000"); err == nil || !strings.Contains(err.Error(), "not among the 2") {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := k.revoke(ctx, p.Key); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); err == nil || !strings.Contains(err.Error(), "not among the 1 public keys") {
		t.Errorf("after it was revoked: %v\n%s", err, out)
	}
}

// TestPlantedKey: those who may write the ConfigMap can plant a public key. keys --new names it before anything is
// signed beside it, and what is no key is refused.
func TestPlantedKey(t *testing.T) {
	public, _, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("planted!", 100)))
	kit.Must(t, err)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "keys", Name: config.KeysConfigMap},
		Data: map[string]string{config.KeysEntry: string(signing.EncodeKey(public, time.Unix(0, 0)))}}
	add := func() (string, error) {
		return signingKeys{fake.NewClientBuilder().WithObjects(cm.DeepCopy()).Build(), "keys",
			strings.NewReader(strings.Repeat("0123456789abcdef", 100)), time.Now}.add(t.Context())
	}
	want := "These keys stay valid: " + signing.KeyID(public) + " (in the ConfigMap since 1970-01-01T00:00:00Z)."
	if said, err := add(); err != nil || !strings.Contains(said, want) || !strings.Contains(said, "--revoke ID") {
		t.Errorf("got %q, %v, want %q and how to revoke it", said, err, want)
	}
	cm.Data[config.KeysEntry] = "no key"
	if said, err := add(); err == nil {
		t.Errorf("beside what is no key: got %q, want an error", said)
	}
}

// Without public keys signing is off, and the error says how to switch it on.
func TestNoPublicKeys(t *testing.T) {
	_, err := readPublicKeys(t.Context(), fake.NewClientBuilder().Build(), "keys")
	if err == nil || !strings.Contains(err.Error(), "signing is off") ||
		!strings.Contains(err.Error(), "`forcefence proof keys --new`") {
		t.Errorf("got %v, want that signing is off, and how to switch it on", err)
	}
}

// TestVerifyFiles checks a Fencing from files, without a cluster.
func TestVerifyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	f := &api.Fencing{TypeMeta: metav1.TypeMeta{Kind: api.Kind}, Spec: api.FencingSpec{Node: "n1", ID: "f-1"}}
	text, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fence, keys := file("fence.yaml", text), file("keys.pem", nil)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"proof", "verify", "-f", fence, "--keys", keys}, 1, "the controller had no key"},
		{[]string{"proof", "verify", "-f", keys, "--keys", keys}, 1, `its kind is ""`},
		{[]string{"proof", "verify", "-f", fence, "--keys", fence}, 1, "no PEM block"},
		{[]string{"proof", "verify", "-f", fence}, 2, "needs --keys"},
		{[]string{"proof", "verify", "n1", "-f", fence, "--keys", keys}, 2, "name a NODE or ID"},
		{[]string{"proof", "verify"}, 2, "name a NODE or ID"},
	} {
		code, _, stderr := exec(tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: status %d, %s, want %d and %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}
