package hypervisor_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

func expect(t *testing.T, d *hypervisor.Domain, state string, running bool) {
	t.Helper()
	kit.Must(t, d.Await(t.Context(), state))
	if d.Running() != running {
		t.Errorf("%s (%s): got QEMU %d, want running %t", d.Name(), state, d.PID(), running)
	}
}

// TestGuests: what each method does to the world, which is also what libvirt says of it.
func TestGuests(t *testing.T) {
	h := hypervisor.New(t, hypervisor.Options{TCP: true, TLS: true})
	ctx := t.Context()
	must := func(err error) { t.Helper(); kit.Must(t, err) }

	d := h.Guest(t, "n1", hypervisor.Guest{})
	expect(t, d, "running (booted)", true)
	must(d.Pause(ctx))
	expect(t, d, "paused (user)", true)
	must(d.Resume(ctx))
	must(d.Kill())
	expect(t, d, "shut off (crashed)", false)
	must(d.Start(ctx))
	must(d.Save(ctx))
	expect(t, d, "shut off (saved)", false)
	must(d.Start(ctx))
	expect(t, d, "running (restored)", true)
	must(d.Destroy(ctx))
	expect(t, d, "shut off (destroyed)", false)
	must(d.Rename(ctx, "n1-new"))
	must(d.Start(ctx))
	pid := d.PID()

	h.KillDaemon()
	must(h.StartDaemon(ctx))
	expect(t, d, "running (booted)", true)
	if d.PID() != pid {
		t.Errorf("got QEMU %d after the daemon's restart, want %d", d.PID(), pid)
	}
	must(d.Destroy(ctx))
	h.StopDaemon()
	must(h.StartDaemon(ctx))
	expect(t, d, "shut off (unknown)", false)

	expect(t, h.Guest(t, "n2", hypervisor.Guest{Panics: true}), "crashed (panicked)", true)
	n3 := h.Guest(t, "n3", hypervisor.Guest{Transient: true})
	must(n3.Destroy(ctx))
	if n3.Running() {
		t.Error("a transient guest runs after Destroy")
	}
}

// TestNothingIsLeft: the guests and the files go when a process that started a hypervisor is killed.
func TestNothingIsLeft(t *testing.T) {
	const role = "HYPERVISOR_TEST_CHILD"
	if os.Getenv(role) != "" {
		h := hypervisor.New(t, hypervisor.Options{})
		d := h.Guest(t, "n1", hypervisor.Guest{})
		_, _ = os.Stdout.WriteString("ready " + h.URI() + " " + d.UUID() + "\n")
		select {} // until killed
	}
	hypervisor.Need(t)
	child := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeft$", "-test.v")
	child.Env = append(os.Environ(), role+"=1")
	out, err := child.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, child.Start())
	var words []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if words = strings.Fields(lines.Text()); len(words) == 3 && words[0] == "ready" {
			break
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if len(words) != 3 {
		t.Fatal("the child did not start a hypervisor")
	}
	_, socket, _ := strings.Cut(words[1], "socket=")
	dir := strings.TrimSuffix(socket, "/run/libvirt/libvirt-sock")
	left := func() string {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		files, _ := os.ReadDir("/proc")
		for _, f := range files {
			if b, err := os.ReadFile("/proc/" + f.Name() + "/cmdline"); err == nil &&
				strings.Contains(string(b), words[2]) {
				return strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
		return ""
	}
	for deadline := time.Now().Add(20 * time.Second); left() != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %s", left())
		}
	}
}
