package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

// TestRealRuntimes starts the oldest and the newest runtime beside what may be in NRI's folder. The hook's own program
// never keeps one from starting, also where its configuration is gone or broken. Others' programs show what F26 says:
// why nothing is installed for an old runtime.
func TestRealRuntimes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a runtime needs root")
	}
	hook := ""
	for _, rt := range []struct {
		name    string
		program func(testing.TB) string
		config  string
		skips   bool // starts beside a plugin that fails
	}{
		{"containerd 1.7.24", func(t testing.TB) string {
			return cluster.ContainerdOf(t, binaries.Containerd1724)
		}, "version = 2\ndisabled_plugins = []\n", false},
		{"the newest containerd", cluster.Containerd, "version = 3\n", true},
	} {
		program := rt.program(t)
		if hook == "" {
			hook = kit.BuildProgram(t, "cmd/forcefence-node")
		}
		script := func(r *runtimeLab, text string) {
			kit.Must(t, os.WriteFile(filepath.Join(r.pluginDir(), PluginFile), []byte(text), 0o755))
		}
		for _, tc := range []struct {
			name   string
			put    func(*runtimeLab)
			starts bool
			node   string // of the hook's configuration
			runs   bool   // the hook does
		}{
			{"no plugin", func(*runtimeLab) {}, true, "", false},
			{"the hook", func(r *runtimeLab) { r.putHook(hook, r.configDir()) }, true, "n1", true},
			{"the hook with the copy beside it", func(r *runtimeLab) { r.putHook(hook, r.pluginDir()) }, true, "n1",
				true},
			{"the hook without a configuration", func(r *runtimeLab) { r.putHook(hook, "") }, true, "", true},
			{"the hook with half a configuration", func(r *runtimeLab) {
				r.putHook(hook, "")
				kit.Must(t, os.WriteFile(filepath.Join(r.configDir(), ConfigFile), []byte("nodeName: n1\n"), 0o600))
			}, true, "", true},
			{"what cannot be executed", func(r *runtimeLab) { script(r, "\x7fELF") }, rt.skips, "", false},
			{"what ends at once", func(r *runtimeLab) { script(r, "#!/bin/sh\nexit 1\n") }, rt.skips, "", false},
			{"what does not register", func(r *runtimeLab) { script(r, "#!/bin/sh\nexec sleep 20\n") }, rt.skips, "",
				false},
		} {
			t.Run(rt.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				r := newRuntimeLab(t, rt.config)
				tc.put(r)
				got := r.startRuntime(program, tc.runs && rt.skips)
				if got.starts != tc.starts || got.runs != tc.runs || got.node != tc.node {
					t.Errorf("started: %v, with the hook: %v, of node %q; want %v, %v, %q\n%s", got.starts, got.runs,
						got.node, tc.starts, tc.runs, tc.node, got.log)
				}
			})
		}
	}
}

// runtimeLab is a host's folder with a real runtime.
type runtimeLab struct {
	t   *testing.T
	dir string
}

func newRuntimeLab(t *testing.T, config string) *runtimeLab {
	t.Helper()
	r := &runtimeLab{t, kit.SocketDir(t)}
	for _, dir := range []string{r.pluginDir(), r.configDir(), r.path("state")} {
		kit.Must(t, os.MkdirAll(dir, 0o755))
	}
	config += fmt.Sprintf(`root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[ttrpc]
  address = %[4]q
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  disable_connections = false
  plugin_path = %[5]q
  plugin_config_path = %[6]q
  socket_path = %[7]q
`, r.path("root"), r.path("state"), r.path("g.sock"), r.path("t.sock"), r.pluginDir(), r.configDir(),
		r.path("nri.sock"))
	kit.Must(t, os.WriteFile(r.path("config.toml"), []byte(config), 0o600))
	return r
}

func (r *runtimeLab) path(name string) string { return filepath.Join(r.dir, name) }
func (r *runtimeLab) pluginDir() string       { return r.path("plugins") }
func (r *runtimeLab) configDir() string       { return r.path("conf") }

// putHook puts the program into NRI's folder, and a configuration into a folder, if it names one.
func (r *runtimeLab) putHook(program, folder string) {
	r.t.Helper()
	text, err := os.ReadFile(program)
	kit.Must(r.t, err)
	kit.Must(r.t, os.WriteFile(filepath.Join(r.pluginDir(), PluginFile), text, 0o755))
	if folder == "" {
		return
	}
	text, err = nri.Config{NodeName: "n1", Kubeconfig: r.path("none"), LogFile: "none"}.Marshal()
	kit.Must(r.t, err)
	kit.Must(r.t, os.WriteFile(filepath.Join(folder, ConfigFile), text, 0o600))
}

// started is how a runtime's start went.
type started struct {
	starts bool
	runs   bool   // the hook does, and the runtime is connected to it
	node   string // of the hook's configuration
	log    string
}

// startRuntime runs the runtime in a mount namespace of its own, where the host's state folders are empty. It waits
// until the hook is registered, if that is awaited, or the runtime has ended, and ends the runtime. A runtime that ends
// does so in 7 s (F26), and a hook that gives up in 10 s.
func (r *runtimeLab) startRuntime(program string, awaited bool) (out started) {
	r.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `for d in /run /var/log /var/lib; do mount -t tmpfs tmpfs $d || exit 9; done
exec "$0" --config "$1"`, program, r.path("config.toml"))
	file, err := os.Create(r.path("log"))
	kit.Must(r.t, err)
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	readLog := func() string {
		text, err := os.ReadFile(r.path("log"))
		kit.Must(r.t, err)
		return string(text)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	kit.Must(r.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(2 * time.Minute)
	booted := time.Time{}
	for end := false; !end; {
		select {
		case <-ended:
			out.log = readLog()
			if strings.Contains(out.log, "mount:") {
				r.t.Skip("SKIPPED: no right to mount: " + out.log)
			}
			return out
		case <-deadline:
			end = true
		case <-time.After(200 * time.Millisecond):
			all, _ := nri.ReadStatuses(fmt.Sprintf("/proc/%d/root/run/forcefence", cmd.Process.Pid))
			for _, s := range all {
				out.runs, out.node = !awaited || !s.Registered.IsZero(), s.Node.Name
			}
			if booted.IsZero() && strings.Contains(readLog(), "successfully booted") {
				booted = time.Now()
			}
			wait := time.Second
			if out.runs { // it would give up after ten
				wait = 12 * time.Second
			}
			end = out.runs && awaited || !awaited && !booted.IsZero() && time.Since(booted) > wait
		}
	}
	out.starts, out.log = true, readLog()
	out.runs = out.runs && !strings.Contains(out.log, "closed")
	kit.Must(r.t, syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM))
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		kit.Must(r.t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		<-ended
	}
	return out
}
