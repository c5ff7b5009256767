package ipmisim

import (
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// Require is set to 1 where a missing program must fail the tests instead of skipping them.
const Require = "FORCEFENCE_REQUIRE_IPMI_SIM"

// New starts a BMC for a test, which is skipped where a program is not installed, loudly, and ends it with the test.
func New(t testing.TB, o Options) *BMC {
	t.Helper()
	kit.Need(t, Missing(), Require)
	b, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}
