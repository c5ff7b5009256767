package hypervisor

import (
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// Require is set to 1 where a missing program must fail the tests instead of skipping them.
const Require = "FORCEFENCE_REQUIRE_LIBVIRT"

// Need skips a test where libvirt is not installed, loudly.
func Need(t testing.TB) {
	t.Helper()
	kit.Need(t, Missing(), Require)
}

// New starts a hypervisor for a test, which is skipped where libvirt is not installed, and ends it with the test.
func New(t testing.TB, o Options) *Hypervisor {
	t.Helper()
	Need(t)
	h, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// Guest is AddGuest for tests.
func (h *Hypervisor) Guest(t testing.TB, name string, g Guest) *Domain {
	t.Helper()
	d, err := h.AddGuest(t.Context(), name, g)
	kit.Must(t, err)
	return d
}
