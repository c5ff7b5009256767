package fenceagent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// What an agent may read and run, if it exists, beside its folder, those of PATH, and the files that its options name.
// It may read nothing else: not the service account's token, the configuration, other providers' secrets, or what /proc
// shows of other processes, such as the password that another agent gave to ipmitool. Parts of /etc are left out
// because they hold forcefence's own files in a pod, and much else on a host.
var (
	programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"}
	settings = []string{
		"/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/cluster",
		"/etc/crypto-policies", "/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/krb5.conf",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf",
		"/etc/openstack", "/etc/passwd", "/etc/pki", "/etc/protocols", "/etc/resolv.conf", "/etc/services",
		"/etc/snmp", "/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d", "/etc/ssh/ssh_known_hosts",
		"/etc/ssh/ssh_known_hosts2", "/etc/ssl", "/etc/terminfo", "/var/lib/snmp",
	}
	devices = []string{"/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/random", "/dev/tty", "/dev/urandom",
		"/dev/zero"}
)

// checkSandbox returns why agents run without a sandbox, or nil.
func checkSandbox() error {
	if abi, err := landlocksys.LandlockGetABIVersion(); err != nil || abi < 1 {
		return fmt.Errorf("the kernel has no Landlock, or it is disabled: %w", cmp.Or(err, error(unix.ENOSYS)))
	}
	return nil
}

// startSandboxed starts the agent in a sandbox. Only the thread that forks is confined, and ends: the keeper must find
// and kill what the agent leaves, which a confined one could not. A kernel that knows less of Landlock confines less;
// the network remains allowed.
func startSandboxed(agent string, files []string) (pid int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocks, so that the thread ends with this goroutine
		if err = confineThread(agent, files); err != nil {
			err = fmt.Errorf("making its sandbox: %w", err)
			return
		}
		pid, err = syscall.ForkExec(agent, []string{agent}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}()
	<-done
	return pid, err
}

// confineThread removes from this thread, and from what it starts, all rights that an agent does not need, such as
// signals to other processes.
func confineThread(agent string, files []string) error {
	c := landlock.Config{HandledAccessFS: landlock.V5.HandledAccessFS, Scoped: landlock.V6.Scoped}.BestEffort()
	reads := slices.Concat(programs, settings, filepath.SplitList(os.Getenv("PATH")), []string{filepath.Dir(agent)},
		files)
	if home := os.Getenv("HOME"); home != "" {
		reads = append(reads, filepath.Join(home, ".ssh"), filepath.Join(home, ".aws"),
			filepath.Join(home, ".config/openstack"))
	}
	writes := []string{cmp.Or(os.Getenv("TMPDIR"), "/tmp")}
	fd, flags, err := c.NewRulesetFD(slices.Concat(
		pathRules(reads, landlock.RODirs, landlock.ROFiles), pathRules(writes, landlock.RWDirs, landlock.RWFiles),
		pathRules(devices, func(p ...string) landlock.FSRule { return landlock.RWDirs(p...).WithIoctlDev() },
			func(p ...string) landlock.FSRule { return landlock.RWFiles(p...).WithIoctlDev() }),
	)...)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return landlocksys.LandlockRestrictSelf(fd, flags)
}

// pathRules returns one rule for each path that exists.
func pathRules(paths []string, dirs, files func(...string) landlock.FSRule) (out []landlock.Rule) {
	for _, path := range paths {
		switch info, err := os.Stat(path); {
		case err != nil || !filepath.IsAbs(path) || filepath.Clean(path) == "/":
		case info.IsDir():
			out = append(out, dirs(path).IgnoreIfMissing())
		default:
			out = append(out, files(path).IgnoreIfMissing())
		}
	}
	return out
}
