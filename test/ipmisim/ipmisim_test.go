package ipmisim_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

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
	const role = "IPMISIM_TEST_CHILD"
	if os.Getenv(role) != "" {
		b := ipmisim.New(t, ipmisim.Options{})
		kit.Must(t, b.SetPower(t.Context(), true))
		_, _ = os.Stdout.WriteString("ready " + b.Address() + " " + b.UUID() + " " + b.PasswordFile() + "\n")
		select {} // until killed
	}
	ipmisim.New(t, ipmisim.Options{}) // skips where it cannot be
	child := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeft$", "-test.v")
	child.Env = append(os.Environ(), role+"=1")
	out, err := child.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, child.Start())
	var words []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if words = strings.Fields(lines.Text()); len(words) == 4 && words[0] == "ready" {
			break
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if len(words) != 4 {
		t.Fatal("the child did not start a BMC")
	}
	address, uuid, file := words[1], words[2], words[3]
	left := func() string {
		if _, err := os.Stat(file); err == nil {
			return file
		}
		files, _ := os.ReadDir("/proc")
		for _, f := range files {
			if b, err := os.ReadFile("/proc/" + f.Name() + "/cmdline"); err == nil &&
				strings.Contains(string(b), uuid) {
				return strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
		l, err := net.ListenPacket("udp", address)
		if err != nil {
			return err.Error()
		}
		_ = l.Close()
		return ""
	}
	for deadline := time.Now().Add(time.Minute); left() != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %s", left())
		}
	}
}
