//go:build linux

package nodes

import (
	"os"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
)

// Require is set to 1 where a missing condition must fail the tests instead of skipping them.
const Require = cluster.RequireNodes

// Need skips a test where real nodes cannot run, loudly, and under -short. Else it sees to it that what they run is
// built.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real nodes")
	}
	missing := Missing()
	switch {
	case missing == "":
		if _, err := Build(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	case os.Getenv(Require) == "1":
		t.Fatal(missing)
	default:
		t.Skip("SKIPPED: " + missing)
	}
}

// ForTest starts a lab that ends with the test, and fails it if anything is left of the lab. The test is skipped where
// real nodes cannot run: ask Need before starting a control plane for it.
func ForTest(t testing.TB, opts Options) *Lab {
	t.Helper()
	Need(t)
	l, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}
