package ipmisim_test

import (
	"net"
	"testing"

	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

// The machine goes on and off, is left alone by a BMC that restarts, and the BMC answers again after it was killed.
func TestBMC(t *testing.T) {
	b := ipmisim.New(t, ipmisim.Options{})
	expect := func(running bool) {
		t.Helper()
		if got := b.Running(); got != running {
			t.Errorf("got running %t, want %t", got, running)
		}
	}
	expect(false)
	for range 2 { // both may be repeated
		kit.Must(t, b.SetPower(t.Context(), true))
		expect(true)
	}
	kit.Must(t, b.Restart(t.Context()))
	expect(true)
	for range 2 {
		kit.Must(t, b.SetPower(t.Context(), false))
		expect(false)
	}
}

// The simulator, the machine and the files go when a process that started them is killed.
func TestNothingIsLeft(t *testing.T) {
	kit.Need(t, ipmisim.Missing(), ipmisim.Require)
	words := kit.KillTest(t, func() []string {
		b := ipmisim.New(t, ipmisim.Options{})
		kit.Must(t, b.SetPower(t.Context(), true))
		return []string{b.Address(), b.UUID(), b.PasswordFile()}
	}, func([]string) {})
	kit.WaitGone(t, words[1], words[2])
	kit.Until(t, "the port is free", func() bool {
		l, err := net.ListenPacket("udp", words[0])
		return err == nil && l.Close() == nil
	})
}
