package ipmisim

import (
	"encoding/hex"
	"os"
	"os/exec"
	"strconv"
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

// RequireTrap is set to 1 where a missing snmptrap must fail the tests instead of skipping them.
const RequireTrap = "FORCEFENCE_REQUIRE_SNMPTRAP"

// A platform event trap (PET 1.0) that reports a machine's power as off.
const (
	PETEnterprise = "1.3.6.1.4.1.3183.1.1"
	PETPowerOff   = 0x096f00 // its specific number: power unit, sensor-specific, off, asserted

	// PETEvent is its variable, PETEnterprise.1.
	PETEvent = "\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff" + // the GUID
		"\x00\x07" + // sequence
		"\x20\x00\x00\x00\xff\xff" + // local time, offset
		"\x20\x20\x10" + // trap source BMC, event source BMC, severity
		"\x20\x01\x13\x01" + // sensor device, sensor, entity and its instance
		"\x00\x00\x00\x00\x00\x00\x00\x00\x19" + // event data, language
		"\x00\x00\x12\x91\x0f\x02\xc1"
)

// NeedTrap skips a test, loudly, where Net-SNMP's snmptrap is not installed.
func NeedTrap(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("snmptrap"); err != nil {
		kit.Need(t, "snmptrap is not installed (apt-get install snmp)", RequireTrap)
	}
}

// SendTrap has snmptrap send this trap from an address of this machine.
func SendTrap(t testing.TB, from, to string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "snmptrap", "--clientaddr="+from, "-v", "1", "-c", "public", to,
		PETEnterprise, from, "6",
		strconv.Itoa(PETPowerOff), "300", PETEnterprise+".1", "x", hex.EncodeToString([]byte(PETEvent)))
	cmd.Env = append(os.Environ(), "MIBS=", "SNMP_PERSISTENT_DIR="+t.TempDir())
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("snmptrap: %v: %s", err, said)
	}
}
