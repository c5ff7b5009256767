//go:build linux

// The program guest is the first process of a guest in the test of package sbd. It runs sbd as a node does, and
// breaks it in the way that a line on its console says.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("guest failed:", err)
	}
	for {
		time.Sleep(time.Hour) // the kernel panics once its first process ends
	}
}

func run() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}} {
		if err := syscall.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m[1], err)
		}
	}
	console, err := os.OpenFile("/dev/ttyS0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	modules, err := os.ReadFile("/modules")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(modules)) {
		if err := loadModule("/lib/modules/" + name); err != nil {
			return fmt.Errorf("loading %s: %w", name, err)
		}
	}
	for _, device := range []string{"/dev/vda", "/dev/watchdog"} {
		for _, err := os.Stat(device); err != nil; _, err = os.Stat(device) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	sbd := exec.Command("/usr/sbin/sbd", "-d", "/dev/vda", "-n", "n1", "-w", "/dev/watchdog", "watch")
	// As in /etc/default/sbd, for nodes without Pacemaker. The option -P knows less: corosync would be waited for.
	sbd.Env = []string{"SBD_PACEMAKER=no", "SBD_SYNC_RESOURCE_STARTUP=no"}
	sbd.Stdout, sbd.Stderr = console, console
	if err := sbd.Start(); err != nil {
		return err
	}
	go func() { // sbd becomes a daemon, or fails
		if err := sbd.Wait(); err != nil {
			fmt.Fprintln(console, "guest failed: sbd:", err)
		}
	}()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		what := strings.TrimSpace(lines.Text())
		do := breakSBD
		if what == "armed" {
			do = waitUntilArmed
		}
		fmt.Fprintf(console, "guest: %s: %v\n", what, do(what))
	}
	return nil
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

// waitUntilArmed returns once sbd has started the watchdog, which it does later than it clears its slot.
func waitUntilArmed(string) error {
	for {
		state, err := os.ReadFile("/sys/class/watchdog/watchdog0/state")
		if err != nil || strings.TrimSpace(string(state)) == "active" {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// breakSBD stops or kills every process of sbd, or takes its disk away.
func breakSBD(what string) error {
	sig := map[string]syscall.Signal{"stop": syscall.SIGSTOP, "kill": syscall.SIGKILL}[what]
	switch {
	case what == "unplug":
		devices, err := filepath.Glob("/sys/bus/virtio/drivers/virtio_blk/virtio*")
		if err != nil || len(devices) != 1 {
			return fmt.Errorf("%q: %w", devices, err)
		}
		return os.WriteFile("/sys/bus/virtio/drivers/virtio_blk/unbind", []byte(filepath.Base(devices[0])), 0)
	case sig == 0:
		return fmt.Errorf("unknown command %q", what)
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	found := 0
	for _, file := range names {
		name, err := os.ReadFile(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && strings.HasPrefix(string(name), "sbd") && pid > 1 {
			found++
			if err := syscall.Kill(pid, sig); err != nil {
				return err
			}
		}
	}
	if found == 0 {
		return fmt.Errorf("no process of sbd runs")
	}
	return nil
}
