// Package hypervisor starts a real libvirtd with QEMU guests that need nothing: 16 MiB, no disk, no KVM. It is the
// counterpart of providers/libvirt in tests, in the demonstration and in benchmarks. It imports the standard library,
// and runs libvirtd, virsh and qemu-system-x86_64, which must be installed (Missing).
//
// The daemon runs in session mode, with all its files in a directory of its own; as root it runs as user 65534, since
// root's would be the machine's own. Several run side by side. Everything ends with Stop and with the process that
// started it, however that ends: the daemon by its parent's death signal, the guests, which QEMU puts into the
// background, by a shell that waits for the process's end.
package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// Options are a hypervisor's settings.
type Options struct {
	TCP bool // also listens on a port of 127.0.0.1 without encryption
	TLS bool // also listens on one with TLS; clients need a certificate (Credentials)
}

// Hypervisor is a libvirtd and its guests. It is safe for concurrent use.
type Hypervisor struct {
	dir  string
	uid  int // the daemon's user, 0: ours
	opts Options
	ca   *kit.Authority
	tcp  int
	tls  int

	buried chan struct{} // closed by Stop: no more guests are buried
	burial sync.WaitGroup

	sweep func() // ends what is left

	daemon *kit.Part
}

// overflowUser is the number that Linux gives to users without one. A machine may have no name for it.
const overflowUser = 65534

// programs are what must be installed.
var programs = []string{"libvirtd", "virsh", "qemu-system-x86_64"}

// Missing says what is not installed, "" if nothing is missing.
func Missing() string {
	for _, name := range programs {
		if _, err := find(name); err != nil {
			return name + " is not installed (apt-get install libvirt-daemon-system qemu-system-x86 libvirt-clients)"
		}
	}
	return ""
}

// find looks in the directories of the system's administrator, too, which a user's PATH may lack.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

const (
	waitTimeout = 30 * time.Second
	poll        = 10 * time.Millisecond
)

// Start starts a daemon and returns once it answers.
func Start(ctx context.Context, o Options) (*Hypervisor, error) {
	if missing := Missing(); missing != "" {
		return nil, errors.New(missing)
	}
	dir, err := kit.MakeSocketDir()
	if err != nil {
		return nil, fmt.Errorf("start hypervisor: %w", err)
	}
	h := &Hypervisor{dir: dir, opts: o, buried: make(chan struct{})}
	adopt()
	h.burial.Go(h.buryGuests)
	if err := h.setUp(ctx); err != nil {
		_ = h.Stop()
		return nil, fmt.Errorf("start hypervisor: %w", err)
	}
	return h, nil
}

func (h *Hypervisor) setUp(ctx context.Context) (err error) {
	if os.Getuid() == 0 {
		h.uid = overflowUser
	}
	h.ca = kit.NewAuthority("hypervisors' CA")
	for _, d := range []string{"run", "home", "config/libvirt", "cache", "data", "pki"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := h.configure(); err != nil {
		return err
	}
	if err := h.own(); err != nil {
		return err
	}
	if h.sweep, err = kit.Sweep(h.dir); err != nil {
		return err
	}
	if err := h.newDaemon(); err != nil {
		return err
	}
	if err := h.StartDaemon(ctx); err != nil {
		log, _ := os.ReadFile(h.LogFile())
		return fmt.Errorf("%w: %s", err, log)
	}
	return nil
}

// configure writes the daemon's files. With TCP or TLS, Start fails if another process takes a port meanwhile.
func (h *Hypervisor) configure() error {
	flag := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	if err := kit.FreePorts(&h.tcp, &h.tls); err != nil {
		return err
	}
	pki := filepath.Join(h.dir, "pki")
	if err := h.ca.WriteCA(filepath.Join(pki, "ca.pem")); err != nil {
		return err
	}
	if err := h.ca.Server("127.0.0.1", "localhost").
		Write(filepath.Join(pki, "cert.pem"), filepath.Join(pki, "key.pem")); err != nil {
		return err
	}
	daemon := strings.Join([]string{
		`auth_unix_ro = "none"`, `auth_unix_rw = "none"`, `auth_tcp = "none"`, `auth_tls = "none"`,
		`listen_addr = "127.0.0.1"`,
		`listen_tcp = ` + flag(h.opts.TCP), fmt.Sprintf(`tcp_port = "%d"`, h.tcp),
		`listen_tls = ` + flag(h.opts.TLS), fmt.Sprintf(`tls_port = "%d"`, h.tls),
		`ca_file = "` + pki + `/ca.pem"`, `cert_file = "` + pki + `/cert.pem"`, `key_file = "` + pki + `/key.pem"`,
		`tls_no_sanity_certificate = 1`,
		`keepalive_interval = 1`, `keepalive_count = 2`,
		`log_outputs = "3:file:` + h.LogFile() + `"`,
	}, "\n") + "\n"
	// no virtlogd to be started, no AppArmor to be asked
	qemu := "stdio_handler = \"file\"\nsecurity_driver = \"none\"\n"
	return errors.Join(
		os.WriteFile(filepath.Join(h.dir, "libvirtd.conf"), []byte(daemon), 0o644),
		os.WriteFile(filepath.Join(h.dir, "config/libvirt/qemu.conf"), []byte(qemu), 0o644),
	)
}

// writeFile writes a file that is the daemon's user's: a umask may hide a file of root's from that user.
func (h *Hypervisor) writeFile(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o644); err != nil || h.uid == 0 {
		return err
	}
	return os.Lchown(path, h.uid, h.uid)
}

// own gives everything to the daemon's user.
func (h *Hypervisor) own() error {
	if h.uid == 0 {
		return nil
	}
	return filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, h.uid, h.uid)
	})
}

// Stop ends the daemon and all guests and removes their files. It may be repeated.
func (h *Hypervisor) Stop() error {
	if h.daemon != nil {
		h.KillDaemon()
	}
	if h.sweep != nil {
		h.sweep()
	}
	select {
	case <-h.buried:
	default:
		close(h.buried)
	}
	h.burial.Wait()
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("stop hypervisor: %w", err)
	}
	return nil
}

// buryGuests waits for the guests' processes as the machine's first process does. libvirtd says that a guest is off
// when its process is no zombie any more, and the first process of a container may take seconds.
func (h *Hypervisor) buryGuests() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	known := map[int]bool{}
	for {
		guests, _ := filepath.Glob(filepath.Join(h.dir, "run/libvirt/qemu/run/*.pid"))
		// QEMU asked for its abilities
		probes, _ := filepath.Glob(filepath.Join(h.dir, "config/libvirt/qemu/lib/qmp-*/qmp.pid"))
		for _, f := range append(guests, probes...) {
			if b, err := os.ReadFile(f); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
					known[pid] = true
				}
			}
		}
		for pid := range known {
			bury(pid)
			if syscall.Kill(pid, 0) != nil {
				delete(known, pid)
			}
		}
		select {
		case <-h.buried:
			for pid := range known {
				bury(pid)
			}
			return
		case <-tick.C:
		}
	}
}

// StartDaemon starts the daemon again after StopDaemon or KillDaemon, and returns once it answers. Guests have lived on
// meanwhile.
func (h *Hypervisor) StartDaemon(ctx context.Context) error { return h.daemon.Start(ctx) }

// StopDaemon ends the daemon in order; its guests run on. It may be repeated.
func (h *Hypervisor) StopDaemon() { h.daemon.Stop() }

// KillDaemon ends the daemon as a crash would; its guests run on. It may be repeated.
func (h *Hypervisor) KillDaemon() { h.daemon.Kill() }

// FreezeDaemon stops the daemon: connections stay, nothing answers. ThawDaemon lets it go on.
func (h *Hypervisor) FreezeDaemon() { _ = h.daemon.Pause() } // one that has ended answers nothing either

// ThawDaemon ends FreezeDaemon.
func (h *Hypervisor) ThawDaemon() { _ = h.daemon.Resume() }

// attr has libvirt's programs run as the user that the hypervisor runs as.
func (h *Hypervisor) attr() *syscall.SysProcAttr {
	if h.uid == 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.uid)}}
}

// inside has a command run among the hypervisor's files, as its user.
func (h *Hypervisor) inside(cmd *exec.Cmd) {
	cmd.Env, cmd.Dir, cmd.SysProcAttr = h.env(), h.dir, h.attr()
}

func (h *Hypervisor) newDaemon() error {
	path, err := find("libvirtd")
	if err != nil {
		return err
	}
	args := []string{"-f", filepath.Join(h.dir, "libvirtd.conf"), "-p", filepath.Join(h.dir, "libvirtd.pid")}
	if h.opts.TCP || h.opts.TLS {
		args = append(args, "--listen")
	}
	answers := func(ctx context.Context) error {
		_, err := h.virsh(ctx, "list", "--all")
		return err
	}
	h.daemon = kit.NewPart("libvirtd", path, args, filepath.Join(h.dir, "libvirtd.out"), answers, nil)
	h.daemon.Change = h.inside
	return nil
}

func (h *Hypervisor) env() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
		"HOME=" + h.dir + "/home", "XDG_RUNTIME_DIR=" + h.dir + "/run", "XDG_CONFIG_HOME=" + h.dir + "/config",
		"XDG_CACHE_HOME=" + h.dir + "/cache", "XDG_DATA_HOME=" + h.dir + "/data",
	}
}

// Socket is the path of the daemon's socket.
func (h *Hypervisor) Socket() string { return filepath.Join(h.dir, "run/libvirt/libvirt-sock") }

// LogFile is what the daemon logs, warnings and errors.
func (h *Hypervisor) LogFile() string { return filepath.Join(h.dir, "libvirtd.log") }

// URI is the hypervisor's over its socket.
func (h *Hypervisor) URI() string { return "qemu+unix:///session?socket=" + h.Socket() }

// TCPAddress is where the daemon listens with Options.TCP; open qemu+tcp://.../session.
func (h *Hypervisor) TCPAddress() string { return "127.0.0.1:" + strconv.Itoa(h.tcp) }

// TLSAddress is where the daemon listens with Options.TLS; open qemu+tls://.../session.
func (h *Hypervisor) TLSAddress() string { return "127.0.0.1:" + strconv.Itoa(h.tls) }

// Authority is the one that signed the daemon's certificate, and whose clients it accepts.
func (h *Hypervisor) Authority() *kit.Authority { return h.ca }

// Version asks the daemon for its version and QEMU's.
func (h *Hypervisor) Version(ctx context.Context) (string, error) {
	return h.virsh(ctx, "version", "--daemon")
}

// virsh runs a command of virsh. It is libvirt's own client, so that tests do not see the world through what they test.
func (h *Hypervisor) virsh(ctx context.Context, args ...string) (string, error) {
	path, err := find("virsh")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"-q", "-c", h.URI()}, args...)...)
	h.inside(cmd)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err = kit.StartChild(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
