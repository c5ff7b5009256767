//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideArg makes this program the first process of a room's namespaces.
const insideArg = "inside"

// outlive is how long a process may outlive the command that started it. The go command leaves one that counts its own
// use, for a moment.
const outlive = 30 * time.Second

// runInside reads a room from standard input, builds it, and runs its commands. It writes each command's time to file
// descriptor 3.
func runInside() int {
	var r room
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		fmt.Fprintln(os.Stderr, "reading the room:", err)
		return 1
	}
	results := json.NewEncoder(os.NewFile(3, "results"))
	unix.CloseOnExec(3)
	if err := r.enter(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: entering the bare root:", err)
		return 1
	}
	for _, command := range r.Commands {
		took, err := r.runCommand(command)
		if err != nil {
			fmt.Fprintf(os.Stderr, "FAIL: %s: %v\n", command, err)
			return 1
		}
		if err := results.Encode(took); err != nil {
			fmt.Fprintln(os.Stderr, "writing the result:", err)
			return 1
		}
	}
	return 0
}

// enter mounts the room and makes it this process's root.
func (r *room) enter() error {
	root := filepath.Join(r.Work, "merged")
	inRoot := func(path string) string { return filepath.Join(root, path) }
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := r.overlay("root", r.Bare, root); err != nil {
		return err
	}
	if err := r.mountDevices(root); err != nil {
		return err
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"proc", "/proc", "proc", 0},
		{"sysfs", "/sys", "sysfs", unix.MS_RDONLY},
		{r.GoRoot, "/usr/local/go", "", unix.MS_BIND},
		{filepath.Join(r.Work, "clone"), r.Clone, "", unix.MS_BIND},
	} {
		if err := os.MkdirAll(inRoot(m.target), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, inRoot(m.target), m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := unix.Mount("", inRoot("/usr/local/go"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("making Go's folder read-only: %w", err)
	}
	if err := r.overlay("modules", r.ModCache, inRoot(r.Home+"/go/pkg/mod")); err != nil {
		return err
	}
	if err := r.overlay("cache", r.Cache, inRoot(r.Home+"/.cache/go-build")); err != nil {
		return err
	}
	if err := r.own(inRoot(r.Home)); err != nil {
		return fmt.Errorf("giving the home to its account: %w", err)
	}
	if err := unix.Sethostname([]byte("fresh")); err != nil {
		return fmt.Errorf("naming the machine: %w", err)
	}
	if !r.IPv6 {
		const file = "/proc/sys/net/ipv6/conf/all/disable_ipv6" // of the namespace
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("turning IPv6 off: %w", err)
		}
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("raising the loopback interface: %w", err)
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := os.MkdirAll(longTmp, 0o777); err != nil {
		return err
	}
	for dir := longTmp; dir != "/tmp"; dir = filepath.Dir(dir) {
		if err := os.Lchown(dir, r.UID, r.UID); err != nil {
			return err
		}
	}
	unix.Umask(r.Umask)
	return os.Chdir("/")
}

// overlay mounts the host's folder lower at target; what is written goes to the layer. An empty lower is empty. A
// change of owner copies no data.
func (r *room) overlay(layer, lower, target string) error {
	dir := filepath.Join(r.Work, layer)
	if lower == "" {
		lower = filepath.Join(dir, "lower")
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,metacopy=on", lower, dir, dir)
	if err := unix.Mount("overlay", target, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting %s: %w", layer, err)
	}
	return nil
}

func (r *room) mountDevices(root string) error {
	dev := filepath.Join(root, "dev")
	if err := unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		file := filepath.Join(dev, name)
		if err := unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
		if err := os.Chmod(file, 0o666); err != nil { // Mknod heeds the umask
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for name, kind := range map[string]string{"pts": "devpts", "shm": "tmpfs"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
		options := map[string]string{"pts": "newinstance,ptmxmode=0666,mode=620", "shm": "mode=1777"}[name]
		if err := unix.Mount(kind, filepath.Join(dev, name), kind, 0, options); err != nil {
			return fmt.Errorf("mounting /dev/%s: %w", name, err)
		}
	}
	return nil
}

// own gives all of the home to the account; the host's files in the caches look as if the account had made them.
func (r *room) own(home string) error {
	if r.UID == 0 {
		return nil
	}
	return filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, r.UID, r.UID)
	})
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// runCommand runs one command in the clone, as the account, by its shell.
func (r *room) runCommand(command string) (commandTime, error) {
	fmt.Printf("\n$ %s\n", command)
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir = r.Clone
	cmd.Env = append(slices.Clone(r.Env), "HOME="+r.Home, "USER="+r.User, "LOGNAME="+r.User, "SHELL=/bin/sh",
		"PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.UID)}, Setsid: true}
	begin := time.Now()
	err := cmd.Run()
	took := commandTime{Command: command, Minutes: time.Since(begin).Minutes()}
	if state := cmd.ProcessState; state != nil {
		took.CPUSeconds = (state.UserTime() + state.SystemTime()).Seconds()
	}
	if err != nil {
		return took, err
	}
	if err := waitForAll(); err != nil {
		return took, err
	}
	return took, r.checkClone()
}

// waitForAll waits until this process is alone in its namespace, for as long as a process may outlive its command.
func waitForAll() error {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		left, err := others()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Since(begin) > outlive {
			return fmt.Errorf("left running: %s", strings.Join(left, "; "))
		}
	}
}

// others are the command lines of all processes of this namespace but this one.
func others() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		} else if err != nil {
			return nil, err
		}
		lines = append(lines, strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " "))
	}
	slices.Sort(lines)
	return lines, nil
}

// checkClone returns an error if a file that git tracks has changed, or one is new that git does not ignore.
func (r *room) checkClone() error {
	cmd := exec.Command("git", "status", "--porcelain")
	cmd.Dir = r.Clone
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.UID)}}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("asking git for changes: %w", err)
	}
	if len(out) > 0 {
		return fmt.Errorf("changed files of the clone:\n%s", out)
	}
	return nil
}
