package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

// runtimeLab is a host's folder with a real runtime.
type runtimeLab struct {
	t       *testing.T
	rt      realRuntime
	program string
	dir     string
	boots   int
	image   string
	cgroup  string // of all pods

	attempts int // to start pods

	runtime *exec.Cmd // nil: it does not run
	ended   chan error
}

func newRuntimeLab(t *testing.T, rt realRuntime, daemon, shim, registry string) *runtimeLab {
	t.Helper()
	r := &runtimeLab{t: t, rt: rt, dir: kit.SocketDir(t), image: registry + "/pause:1"}
	r.cgroup = "/" + filepath.Base(r.dir)
	t.Cleanup(r.removeCgroups)
	for _, dir := range []string{
		"opt/nri/plugins", "etc/nri/conf.d", "etc/conf.d", "run", "bin", "proc/sys/kernel/random",
	} {
		kit.Must(t, os.MkdirAll(r.inDir(dir), 0o755))
	}
	r.program = r.inDir("bin/" + kinds[rt.name].process) // by this name its process is found
	kit.Must(t, os.Symlink(daemon, r.program))
	config := strings.ReplaceAll(rt.config, "IMAGE", r.image) + fmt.Sprintf(`imports = ["conf.d/*.toml"]
disabled_plugins = []
root = %[1]q
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
  plugin_request_timeout = "30s" # a busy machine
`, r.inDir("root"), r.inDir("run/state"), r.inDir("g.sock"), r.inDir("t.sock"), r.pluginDir(), r.configDir(),
		r.inDir("nri.sock"))
	if rt.name == crio {
		config = r.crioConfig(registry)
	} else {
		kit.Must(t, os.Symlink(shim, r.inDir("bin/"+binaries.Shim)))
	}
	kit.Must(t, os.WriteFile(r.inDir("etc/config.toml"), []byte(config), 0o600))
	r.bootHost()
	t.Cleanup(r.stopRuntime)
	return r
}

// crioConfig is a CRI-O's configuration that pulls its images from the registry.
func (r *runtimeLab) crioConfig(registry string) string {
	programs := map[string]string{}
	for _, name := range []string{"conmon", "runc"} {
		file, err := exec.LookPath(name)
		if err != nil {
			r.t.Fatalf("CRI-O needs Debian's package %s: %v", name, err)
		}
		programs[name] = file
	}
	kit.Must(r.t, os.WriteFile(r.inDir("policy.json"), []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`),
		0o600))
	kit.Must(r.t, os.MkdirAll(r.inDir(".config/containers"), 0o755))
	kit.Must(r.t, os.WriteFile(r.inDir(".config/containers/registries.conf"),
		fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", registry), 0o600))
	kit.Must(r.t, os.WriteFile(r.inDir("bin/pinns"), []byte(pinns), 0o755))
	type table map[string]any
	text, err := toml.Marshal(table{"crio": table{
		"root": r.inDir("root"), "runroot": r.inDir("run/storage"), "storage_driver": "vfs", "log_dir": r.inDir("pods"),
		"version_file": r.inDir("run/version"), "version_file_persist": r.inDir("version"),
		"clean_shutdown_file": r.inDir("clean"),
		"api":                 table{"listen": r.inDir("g.sock"), "stream_port": "0"},
		"runtime": table{
			"pinns_path": r.inDir("bin/pinns"), "namespaces_dir": r.inDir("run/ns"),
			"container_exits_dir":         r.inDir("run/exits"),
			"container_attach_socket_dir": r.inDir("run/attach"), "hooks_dir": []string{},
			"cgroup_manager": "cgroupfs", "conmon_cgroup": "pod", "irqbalance_config_restore_file": "disable",
			"default_runtime": "runc",
			"runtimes": table{"runc": table{"runtime_path": programs["runc"], "runtime_root": r.inDir("run/runc"),
				"monitor_path": programs["conmon"], "monitor_cgroup": "pod"}},
		},
		"image":   table{"pause_image": r.image, "signature_policy": r.inDir("policy.json")},
		"network": table{"network_dir": r.inDir("net"), "plugin_dirs": []string{r.inDir("cni")}},
		"nri": table{"enable_nri": true, "nri_listen": r.inDir("nri.sock"), "nri_plugin_dir": r.pluginDir(),
			"nri_plugin_config_dir": r.configDir(), "nri_plugin_request_timeout": "30s"},
	}})
	kit.Must(r.t, err)
	return string(text)
}

// pinns does what CRI-O's program in C of that name does, for pods in the host's namespaces: it keeps each in a file.
const pinns = `#!/bin/sh -e
# pinns -d DIR -f NAME ...
touch "$2/ipcns/$4" "$2/netns/$4" "$2/utsns/$4"
mount --bind /proc/self/ns/ipc "$2/ipcns/$4"
mount --bind /proc/self/ns/net "$2/netns/$4"
unshare --uts="$2/utsns/$4" true
`

func (r *runtimeLab) inDir(name string) string { return filepath.Join(r.dir, name) }
func (r *runtimeLab) pluginDir() string        { return r.inDir("opt/nri/plugins") }
func (r *runtimeLab) configDir() string        { return r.inDir("etc/nri/conf.d") }

// emptyFolders removes all that is in the folders.
func (r *runtimeLab) emptyFolders(folders ...string) {
	r.t.Helper()
	for _, dir := range folders {
		kit.Must(r.t, os.RemoveAll(dir))
		kit.Must(r.t, os.Mkdir(dir, 0o755))
	}
}

// bootHost is the host's: the runtime has ended, /run is empty, and the boot has a new id.
func (r *runtimeLab) bootHost() {
	r.t.Helper()
	r.stopRuntime()
	r.emptyFolders(r.inDir("run"))
	r.boots++
	kit.Must(r.t, os.WriteFile(r.bootFile(), []byte(r.bootID()+"\n"), 0o644))
}

func (r *runtimeLab) bootFile() string { return r.inDir("proc/sys/kernel/random/boot_id") }
func (r *runtimeLab) bootID() string   { return fmt.Sprintf("boot-%d", r.boots) }

// runtimeArgs are those of the runtime.
func (r *runtimeLab) runtimeArgs() []string {
	args := []string{"--config", r.inDir("etc/config.toml")}
	if r.rt.name == crio {
		args = append(args, "--config-dir", r.confDir())
	}
	return args
}

func (r *runtimeLab) confDir() string  { return r.inDir("etc/conf.d") }
func (r *runtimeLab) stateDir() string { return r.inDir("run/forcefence") }

// labSite is what the flags of install name: no kubelet runs.
func (r *runtimeLab) labSite() Site {
	return Site{Command: strings.Join(append([]string{r.program}, r.runtimeArgs()...), " "), StateDir: r.stateDir()}
}

// labNode is the host's own.
func (r *runtimeLab) labNode() *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
		ContainerRuntimeVersion: string(r.rt.name) + "://" + r.rt.version, BootID: r.bootID()}}}
}

// labHost has the processes of the runtime's namespace.
func (r *runtimeLab) labHost() Host {
	if r.runtime == nil {
		return Host{Proc: r.inDir("proc")}
	}
	return Host{Proc: fmt.Sprintf("/proc/%d/root/proc", r.runtime.Process.Pid)}
}

func (r *runtimeLab) hookConfig() nri.Config {
	return nri.Config{NodeName: "n1", Kubeconfig: r.inDir("none"), TaintKey: taint.DefaultKey,
		StateDir: r.stateDir(), DataDir: r.inDir("data"), LogFile: "none", Path: nri.DefaultPath}
}

// installHook installs the hook as its init container does; the Node is the host's.
func (r *runtimeLab) installHook(hook string, require bool) Result {
	r.t.Helper()
	binary, err := os.Open(hook)
	kit.Must(r.t, err)
	defer binary.Close()
	node := r.labNode()
	res, err := Install(r.t.Context(), Options{
		host: r.labHost(), Site: r.labSite(), Config: r.hookConfig(), Binary: binary, RequiredPlugins: require,
		connect: func(context.Context, nri.Config, string) (rest.Interface, *corev1.Node, error) {
			return nil, node, nil
		},
		node: func(context.Context, rest.Interface, string) (*corev1.Node, error) { return node, nil },
		pods: func(context.Context, rest.Interface, string) ([]corev1.Pod, error) { return nil, nil },
	})
	kit.Must(r.t, err)
	return res
}

// putHook puts the program into NRI's folder, and a configuration into a folder, if it names one.
func (r *runtimeLab) putHook(program, folder string) {
	r.t.Helper()
	text, err := os.ReadFile(program)
	kit.Must(r.t, err)
	kit.Must(r.t, os.WriteFile(filepath.Join(r.pluginDir(), PluginFile), text, 0o755))
	if folder == "" {
		return
	}
	text, err = r.hookConfig().Marshal()
	kit.Must(r.t, err)
	kit.Must(r.t, os.WriteFile(filepath.Join(folder, ConfigFile), text, 0o600))
}

// started is how a runtime's start went.
type started struct {
	starts bool
	runs   bool   // the hook does, and the runtime is connected to it
	node   string // of the hook's configuration
	log    string

	requests []string // which the hook answers
}

// lostPlugin is what a runtime logs when the hook's connection has ended.
var lostPlugin = regexp.MustCompile(`plugin \\*"` + PluginFile + `\\*" closed`)

// startRuntime starts the runtime in namespaces of its own, where it sees no other processes, the lab's boot, and only
// the lab's state. It waits until the hook is registered, if that is awaited, or the runtime has ended. A runtime that
// ends does so in 7 s (F26), and a hook that gives up in 10 s.
func (r *runtimeLab) startRuntime(awaited bool) (out started) {
	r.t.Helper()
	booted := "successfully booted"
	if r.rt.name == crio {
		booted = "No systemd watchdog enabled" // the last line before it serves requests
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", `mount -t proc proc /proc &&
mount --bind "$1" /proc/sys/kernel/random/boot_id && mount --bind "$2" /run || exit 9
for d in /var/log /var/lib; do mount -t tmpfs tmpfs $d || exit 9; done
shift 2
exec "$0" "$@"`, r.program, r.bootFile(), r.inDir("run")}, r.runtimeArgs()...)...)
	file, err := os.Create(r.inDir("log"))
	kit.Must(r.t, err)
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "PATH="+r.inDir("bin")+":"+os.Getenv("PATH"))
	readLog := func() string {
		text, err := os.ReadFile(r.inDir("log"))
		kit.Must(r.t, err)
		return string(text)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	kit.Must(r.t, cmd.Start())
	r.runtime, r.ended = cmd, make(chan error, 1)
	go func() { r.ended <- cmd.Wait() }()
	deadline := time.After(2 * time.Minute)
	since := time.Time{}
	for end := false; !end; {
		select {
		case <-r.ended:
			r.runtime = nil
			out.log = readLog()
			if strings.Contains(out.log, "mount:") {
				r.t.Skip("SKIPPED: no right to mount: " + out.log)
			}
			return out
		case <-deadline:
			end = true
		case <-time.After(200 * time.Millisecond):
			all, _ := nri.ReadStatuses(r.stateDir())
			for _, s := range all {
				if s.BootID == r.bootID() && s.Started.After(began) {
					out.runs, out.node, out.requests = !awaited || !s.Registered.IsZero(), s.Node.Name, s.Requests
				}
			}
			if since.IsZero() && strings.Contains(readLog(), booted) {
				since = time.Now()
			}
			wait := time.Second
			if out.runs { // it would give up after ten
				wait = 12 * time.Second
			}
			end = !since.IsZero() && (out.runs && awaited || !awaited && time.Since(since) > wait)
		}
	}
	out.starts, out.log = !since.IsZero(), readLog()
	out.runs = out.runs && !lostPlugin.MatchString(out.log)
	return out
}

// stopRuntime ends the runtime, if it runs, as systemd does.
func (r *runtimeLab) stopRuntime() {
	if r.runtime == nil {
		return
	}
	_ = r.runtime.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		_ = r.runtime.Process.Kill()
		<-r.ended
	}
	r.runtime = nil
}
