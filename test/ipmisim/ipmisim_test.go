package ipmisim_test

import (
	"net"
	"testing"

	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

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
