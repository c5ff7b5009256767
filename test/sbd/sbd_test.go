//go:build linux

package sbd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/watchdog"
	"github.com/forcefence/forcefence/test/kit"
)

// The disk's header, and the margin of the provider. A lost disk takes sbd's timeout of 3 s for a read and the
// watchdog's own; msgwait leaves room for a slow machine.
const (
	watchdogTimeout = 5 * time.Second
	msgwait         = 15 * time.Second
	margin          = time.Second
)

const (
	sbd     = "/usr/sbin/sbd"
	install = "(apt-get install sbd qemu-system-x86)"
)

// guestRoot is the folder with the guest's kernel and modules. There is no default: on a machine with other work a
// guest is too slow.
func guestRoot() string { return os.Getenv("FORCEFENCE_GUEST_ROOT") }

// modules are what the guest loads, in this order, as far as they are no part of its kernel.
var modules = []string{
	"virtio/virtio_ring", "virtio/virtio", "virtio/virtio_pci_legacy_dev", "virtio/virtio_pci_modern_dev",
	"virtio/virtio_pci", "block/virtio_blk", "watchdog/watchdog", "watchdog/i6300esb",
}

// findKernel returns a kernel, and the folder of its drivers; "" if there is none with the watchdog's driver.
func findKernel() (kernel, drivers string) {
	all, _ := filepath.Glob(filepath.Join(guestRoot(), "boot/vmlinuz-*"))
	slices.Sort(all)
	for _, kernel := range slices.Backward(all) {
		version := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")
		drivers := filepath.Join(guestRoot(), "lib/modules", version, "kernel/drivers")
		if _, err := os.Stat(filepath.Join(drivers, "watchdog/i6300esb.ko")); err == nil {
			return kernel, drivers
		}
	}
	return "", ""
}

// missing says what is not there, "" if nothing is missing.
func missing() string {
	kernel, _ := findKernel()
	switch {
	case os.Geteuid() != 0:
		return "loop devices need root"
	case guestRoot() == "":
		return "FORCEFENCE_GUEST_ROOT names no folder with a guest's kernel (make sbd)"
	case kernel == "":
		return "no kernel has the driver i6300esb (apt-get download linux-image-amd64's kernel, unpack it " +
			"with dpkg -x, and name the folder in FORCEFENCE_GUEST_ROOT)"
	}
	for _, program := range []string{sbd, "qemu-system-x86_64", "losetup", "ldd"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed " + install
		}
	}
	return ""
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archive is an initramfs: cpio in the format newc.
type archive struct {
	bytes.Buffer
	seen map[string]bool
}

func (a *archive) add(name string, mode int, content []byte) {
	if parent := filepath.Dir(name); parent != "." && !a.seen[parent] {
		a.add(parent, 0o40755, nil)
	}
	if a.seen[name] {
		return
	}
	a.seen[name] = true
	pad := func() { a.Write(make([]byte, -a.Len()&3)) }
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", len(a.seen), mode, 0, 0, 1, 0,
		len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	pad()
	a.Write(content)
	pad()
}

func (a *archive) addFile(t *testing.T, name, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	a.add(strings.TrimPrefix(name, "/"), 0o100755, content)
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// buildInitramfs returns the file of an initramfs with sbd, its libraries, the modules and the guest's first process.
func buildInitramfs(t *testing.T, drivers string) string {
	t.Helper()
	dir := t.TempDir()
	init := filepath.Join(dir, "init")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", init, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the guest's first process: %v\n%s", err, out)
	}
	a := &archive{seen: map[string]bool{}}
	for _, d := range []string{"dev", "proc", "sys", "run", "etc"} {
		a.add(d, 0o40755, nil)
	}
	a.addFile(t, "init", init)
	a.addFile(t, sbd, sbd)
	for _, lib := range library.FindAllStringSubmatch(run(t, "ldd", sbd), -1) {
		a.addFile(t, lib[1], lib[1])
	}
	var list []string
	for _, m := range modules {
		file := filepath.Join(drivers, m+".ko")
		if _, err := os.Stat(file); err == nil {
			list = append(list, filepath.Base(file))
			a.addFile(t, "lib/modules/"+filepath.Base(file), file)
		}
	}
	a.add("modules", 0o100644, []byte(strings.Join(list, "\n")))
	a.add("TRAILER!!!", 0, nil)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(a.Bytes())
	must(t, errors.Join(err, z.Close()))
	file := filepath.Join(dir, "initramfs.gz")
	must(t, os.WriteFile(file, packed.Bytes(), 0o600))
	return file
}

// newDisk returns a disk that sbd has initialized.
func newDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, make([]byte, 4<<20), 0o600))
	device := run(t, "losetup", "--find", "--show", "--direct-io=on", file)
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	run(t, sbd, "-d", device, "-1", fmt.Sprint(watchdogTimeout.Seconds()), "-4", fmt.Sprint(msgwait.Seconds()),
		"create")
	return device
}

// guest is a machine that runs sbd on the disk. Its process ends when it is reset.
type guest struct {
	t       *testing.T
	console net.Conn
	monitor net.Conn
	log     kit.Log
	reset   chan time.Time // when the machine was reset
	fired   chan time.Time // when the watchdog did that
}

func startGuest(t *testing.T, kernel, initramfs, device string) *guest {
	t.Helper()
	dir := kit.SocketDir(t)
	g := &guest{t: t, reset: make(chan time.Time, 1), fired: make(chan time.Time, 1)}
	socket := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-nodefaults",
		"-display", "none", "-no-reboot", "-kernel", kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet loglevel=3 panic=0",
		"-device", "i6300esb", "-action", "watchdog=reset",
		"-drive", "file="+device+",format=raw,cache=none,if=none,id=disk,file.locking=off",
		"-device", "virtio-blk-pci,drive=disk,share-rw=on",
		"-serial", "unix:"+socket("console")+",server=on,wait=off",
		"-qmp", "unix:"+socket("monitor")+",server=on,wait=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { // ends with the guest, which the test ends
		_ = cmd.Wait()
		g.reset <- time.Now()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("QEMU: %s\nconsole: %s", out.String(), g.log.String())
		}
	})
	dial := func(name string) (c net.Conn) {
		kit.Until(t, "QEMU listens at its "+name, func() (ok bool) {
			var err error
			c, err = net.Dial("unix", socket(name))
			return err == nil
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	g.console = dial("console")
	go func() { _, _ = io.Copy(&g.log, g.console) }() // ends with the guest
	g.monitor = dial("monitor")
	g.command("qmp_capabilities")
	go func() { // ends with the guest
		for events := json.NewDecoder(g.monitor); ; {
			var e struct{ Event string }
			if events.Decode(&e) != nil {
				return
			}
			if e.Event == "WATCHDOG" {
				g.fired <- time.Now()
			}
		}
	}()
	return g
}

func (g *guest) command(name string) {
	g.t.Helper()
	_, err := fmt.Fprintf(g.monitor, "{\"execute\": %q}\n", name)
	must(g.t, err)
}

// tell writes a line to the guest's first process and waits until it was done.
func (g *guest) tell(what string) {
	g.t.Helper()
	_, err := fmt.Fprintln(g.console, what)
	must(g.t, err)
	kit.Until(g.t, "the guest does "+what, func() bool {
		return strings.Contains(g.log.String(), "guest: "+what+": <nil>")
	})
}

// isReset waits for the reset for so long.
func (g *guest) isReset(within time.Duration) (at time.Time, ok bool) {
	select {
	case at := <-g.reset:
		return at, true
	case <-time.After(within):
		return time.Time{}, false
	}
}

// node is the guest as a fence sees it.
type node struct {
	t *testing.T
	p providers.Provider
}

func (n node) ask() providers.Answer {
	return providers.Ask(n.t.Context(), n.p, "disks", target, providers.Now)
}

var target = providers.Target{Node: "n1", ID: "n1"}

func (n node) powerOff() (sent time.Time) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
	defer cancel()
	must(n.t, n.p.PowerOff(ctx, target, func() error { sent = time.Now(); return nil }))
	return sent
}

// untilByTime asks until the answer is ByTime, and returns when it was.
func (n node) untilByTime() time.Time {
	n.t.Helper()
	kit.Until(n.t, "the time is over", func() bool {
		switch a := n.ask(); a.State {
		case providers.PowerByTime:
			return true
		case providers.PowerOff:
			kit.Harm(n.t, "the answer is Off (%q), which nothing proves", a.Raw)
		case providers.PowerOn:
			n.t.Errorf("got On (%q) after the message", a.Raw)
		}
		return false
	})
	return time.Now()
}

// A message resets the machine, and so does everything that keeps sbd from reading it, before msgwait is over. Only
// then the answer is ByTime.
func TestReset(t *testing.T) {
	kit.Need(t, missing(), "FORCEFENCE_REQUIRE_SBD")
	kernel, drivers := findKernel()
	initramfs := buildInitramfs(t, drivers)
	for _, tt := range []struct {
		name  string
		fault string // of the guest, right before the message
		fires bool   // the hardware watchdog resets the machine, and not sbd
	}{
		{name: "message"},
		{name: "sbd is stopped", fault: "stop", fires: true},
		{name: "sbd is killed", fault: "kill", fires: true},
		{name: "its disk is gone", fault: "unplug"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, n := startNode(t, kernel, initramfs)
			if tt.fault == "" { // the watchdog is armed, and nothing resets the machine
				if _, reset := g.isReset(watchdogTimeout + time.Second); reset {
					t.Fatal("the machine was reset without a reason")
				}
			} else {
				g.tell(tt.fault)
			}
			sent := n.powerOff()
			at, reset := g.isReset(msgwait + margin)
			if !reset {
				kit.Harm(t, "the machine runs %s after the message", msgwait+margin)
				return
			}
			took := at.Sub(sent)
			if took >= msgwait {
				kit.Harm(t, "the machine was reset only %s after the message, later than msgwait", took)
			}
			fired := len(g.fired) > 0
			if tt.fires && !fired {
				t.Error("got a reset by sbd, want one by the watchdog")
			}
			if tt.fault == "" {
				if over := n.untilByTime().Sub(sent); over <= msgwait+margin {
					kit.Harm(t, "got ByTime after %s, want it later than msgwait and margin", over)
				}
			}
			t.Logf("reset %s after the message, by the watchdog: %t", took.Round(time.Millisecond), fired)
		})
	}
	t.Run("a paused guest", func(t *testing.T) { testPausedGuest(t, kernel, initramfs) })
}

// testPausedGuest shows where the assumption is wrong: time stops for a paused machine. It runs on after ByTime, until
// its sbd reads the message.
func testPausedGuest(t *testing.T, kernel, initramfs string) {
	g, n := startNode(t, kernel, initramfs)
	g.command("stop")
	n.powerOff()
	n.untilByTime()
	if _, reset := g.isReset(0); reset {
		t.Fatal("the paused guest was reset: correct the README")
	}
	goes := time.Now()
	g.command("cont")
	at, reset := g.isReset(watchdogTimeout + time.Second)
	if !reset {
		t.Fatal("the guest went on and was not reset")
	}
	t.Logf("a paused guest ran for %s after it went on", at.Sub(goes).Round(time.Millisecond))
}

// startNode starts a guest, and returns when its sbd reads its slot.
func startNode(t *testing.T, kernel, initramfs string) (*guest, node) {
	t.Helper()
	device := newDisk(t)
	c := watchdog.Type().NewConfig().(*watchdog.Config)
	c.Command, c.Devices, c.Margin = sbd, []string{device}, margin
	if faults := c.Validate(); len(faults) > 0 {
		t.Fatal(faults)
	}
	p, err := c.New(providers.Options{Name: "disks"})
	must(t, err)
	n := node{t, p}
	if err := p.PowerOff(t.Context(), target, func() error { return nil }); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("before sbd runs: got %v, want ErrPermanent", err)
	}
	g := startGuest(t, kernel, initramfs, device)
	kit.Until(t, "sbd has its slot", func() bool {
		if strings.Contains(g.log.String(), "guest failed") {
			t.Fatal("the guest did not start sbd")
		}
		return n.ask().State == providers.PowerOn
	})
	g.tell("armed")
	return g, n
}
