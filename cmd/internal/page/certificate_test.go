package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// TestRenewed: a certificate that is renewed in its files is served without a restart, and one that cannot be read
// takes nothing away.
func TestRenewed(t *testing.T) {
	dir, authority := t.TempDir(), kit.NewAuthority("page")
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first, second := authority.Server("127.0.0.1"), authority.Server("127.0.0.1")
	kit.Must(t, first.Write(certFile, keyFile))

	var log kit.Log
	var later atomic.Int64
	address := kit.FreeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx,
			Options{Address: address, CertFile: certFile, KeyFile: keyFile, Review: (&people{}).review,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
				Now: func() time.Time { return now.Add(time.Duration(later.Load())) }})
	}()
	defer func() {
		stop()
		kit.Must(t, <-done)
	}()
	served := func() *x509.Certificate {
		c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: authority.Pool()})
		if err != nil {
			return nil
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0]
	}
	shows := func(what string, want kit.Credentials) {
		t.Helper()
		block, _ := pem.Decode(want.Cert)
		leaf, err := x509.ParseCertificate(block.Bytes)
		kit.Must(t, err)
		if got := served(); got == nil || !got.Equal(leaf) {
			t.Errorf("%s: got %v, want the certificate of serial number %v", what, got, leaf.SerialNumber)
		}
	}
	kit.Until(t, "the page is served", func() bool { return served() != nil })
	shows("at first", first)

	kit.Must(t, os.WriteFile(certFile, second.Cert, 0o600)) // and the key is still the first one's
	later.Add(int64(10 * time.Second))
	shows("in the middle of a renewal", first)
	later.Add(int64(10 * time.Second))
	shows("ten seconds later", first)
	if n := strings.Count(log.String(), "keeps its certificate"); n != 1 {
		t.Errorf("the log tells %d times that the files do not fit, want once:\n%s", n, log.String())
	}

	kit.Must(t, second.Write(certFile, keyFile))
	shows("a moment after the renewal", first)
	later.Add(int64(10 * time.Second))
	shows("after the renewal", second)
}
