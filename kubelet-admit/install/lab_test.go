package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// lab is a host in a folder: its runtime, procfs and API server are simulated, its files are real.
type lab struct {
	t       *testing.T
	dir     string
	opts    Options
	version string
	boot    string
	kubelet []string          // the kubelet's command line
	daemon  []string          // the runtime's command line
	beside  [][]string        // those of other processes
	own     map[string]string // the distribution's own files
	boots   int
	runs    func(program string) error // why a program does not run; nil: it does
	pods    []corev1.Pod
	broken  error    // how the plugin's program ends
	dump    error    // how the runtime's dump of its own files ends; nil: with its configuration
	calls   []string // host programs, without the runtime's questions
}

func newLab(t *testing.T) *lab { return newLabIn(t, kit.SocketDir(t)) } // patterns for files contain its path

func newLabIn(t *testing.T, dir string) *lab {
	l := &lab{t: t, dir: dir, version: "v2.4.2", boot: "boot-1"}
	l.kubelet = []string{"/usr/bin/kubelet", "--kubeconfig=" + l.path("kubelet.conf")}
	l.daemon = []string{"/usr/bin/containerd", "--config", l.path("etc/containerd/config.toml")}
	l.opts = Options{
		host: Host{Proc: l.path("proc"), Exec: l.exec},
		Config: nri.Config{NodeName: "n1", TaintKey: taint.DefaultKey,
			StateDir: l.path("run/forcefence"),
			DataDir:  l.path("lib/forcefence-node"), LogFile: l.path("log/forcefence-node.log"), Path: nri.DefaultPath},
		Binary: strings.NewReader("version 1"),
		connect: func(context.Context, nri.Config, string) (rest.Interface, *corev1.Node, error) {
			return nil, l.nodeOf(l.boot), nil
		},
		node: func(context.Context, rest.Interface, string) (*corev1.Node, error) { return l.nodeOf(l.boot), nil },
		pods: func(context.Context, rest.Interface, string) ([]corev1.Pod, error) { return l.pods, nil },
	}
	l.write("etc/containerd/config.toml", fmt.Sprintf(`version = 3
imports = ["conf.d/*.toml"]
[plugins.'io.containerd.nri.v1.nri']
plugin_path = '%s'
plugin_config_path = '%s'
`, l.path("opt/nri/plugins"), l.path("etc/nri/conf.d")))
	l.write("kubelet.conf", "")
	l.write("proc/stat", "cpu 1\nbtime 1000000000\n")
	l.write("proc/sys/kernel/random/boot_id", "boot-1\n")
	l.start(100)
	return l
}

// nodeOf returns the host's Node.
func (l *lab) nodeOf(boot string) *corev1.Node {
	runtime := string(kindOf(hostProcess{argv: l.daemon}))
	return &corev1.Node{
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{ContainerRuntimeVersion: runtime + "://2.4.2", BootID: boot}}}
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, content string) {
	l.t.Helper()
	kit.Must(l.t, os.MkdirAll(filepath.Dir(l.path(name)), 0o755))
	kit.Must(l.t, os.WriteFile(l.path(name), []byte(content), 0o644))
}

func (l *lab) read(name string) string {
	l.t.Helper()
	text, err := os.ReadFile(l.path(name))
	kit.Must(l.t, err)
	return string(text)
}

// start starts the runtime as this pid, in place of the one that ran; its start is far in the future of every file.
func (l *lab) start(pid int) {
	l.t.Helper()
	old, _ := filepath.Glob(l.path("proc/[0-9]*"))
	for _, dir := range old {
		kit.Must(l.t, os.RemoveAll(dir))
	}
	const decades = 100 * 365 * 24 * 3600 * ticks
	l.writeProcess(1, 0, "/sbin/init")
	l.writeProcess(7, 1, l.kubelet...)
	for i, command := range l.beside {
		l.writeProcess(8+i, 1, command...)
	}
	l.writeProcess(pid, decades+pid, l.daemon...)
	if _, err := os.Stat(l.path("opt/nri/plugins/" + PluginFile)); err == nil {
		l.writeConnected(pid + 1)
	}
}

// writeProcess writes a process of the host with its start, in ticks since the boot.
func (l *lab) writeProcess(pid, start int, argv ...string) {
	l.t.Helper()
	dir := fmt.Sprintf("proc/%d/", pid)
	name, parent := filepath.Base(argv[0]), 1
	if name == "containerd" && argv[0] == name { // where the kubelet's program starts it
		parent = 7
	}
	l.write(dir+"stat", fmt.Sprintf("%d (%s) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, name, parent,
		start))
	l.write(dir+"cmdline", strings.Join(argv, "\x00")+"\x00")
	l.write(dir+"status", fmt.Sprintf("Name:\t%s\nUid:\t0\t0\t0\t0\nNSpid:\t%d\n", name, pid))
	l.write(dir+"cgroup", "0::/system.slice/"+name+".service\n")
}

// writeConnected writes the status of a plugin that the runtime has started, with its process.
func (l *lab) writeConnected(pid int) {
	l.t.Helper()
	l.write(fmt.Sprintf("proc/%d/cmdline", pid), l.path("opt/nri/plugins/"+PluginFile)+"\x00")
	l.writeStatus(nri.Status{Plugin: PluginFile, PID: pid, BootID: l.boot, Registered: time.Unix(1, 0),
		Node: nri.NodeView{Name: "n1"}})
}

func (l *lab) writeStatus(s nri.Status) {
	l.t.Helper()
	text, err := json.Marshal(s)
	kit.Must(l.t, err)
	const file = "run/forcefence/10.json"
	l.write(file+".new", string(text)) // and a rename, as the plugin writes it
	kit.Must(l.t, os.Rename(l.path(file+".new"), l.path(file)))
}

// exec answers as containerd 2.4.2 does: sections of plugins are merged key by key, a list replaces, imports are read
// after the file that names them. It records calls of other programs.
func (l *lab) exec(_ context.Context, name string, args ...string) ([]byte, error) {
	switch {
	case filepath.Base(name) == "containerd" && slices.Equal(args, []string{"--version"}):
		return []byte("containerd github.com/containerd/containerd/v2 " + l.version + " 0123abc\n"), nil
	case filepath.Base(name) == "containerd" && len(args) == 4 && args[2] == "config" && args[3] == "dump":
		if l.dump != nil && args[1] == l.path("etc/containerd/config.toml") {
			return nil, l.dump
		}
		all := map[string]any{
			"plugins": map[string]any{
				nriPlugin: map[string]any{"disable": false, "plugin_path": l.path("opt/nri/plugins"),
					"plugin_config_path": l.path("etc/nri/conf.d"), "default_validator": map[string]any{}}}}
		if err := l.merge(all, args[1]); err != nil {
			return nil, err
		}
		return toml.Marshal(all)
	case filepath.Base(name) == "crio" && slices.Equal(args, []string{"--version"}):
		return []byte("crio version " + l.version + "\nVersion:        1.34.2\nGoVersion:      go1.24.6\n"), nil
	case filepath.Base(name) == "crio" && len(args) == 5 && args[4] == "config":
		return l.crioConfig(args[1], args[3])
	case filepath.Base(name) == PluginFile && slices.Equal(args, []string{"version"}):
		if l.broken == nil && l.runs != nil {
			return nil, l.runs(name)
		}
		return nil, l.broken
	case name == "systemctl":
		l.calls = append(l.calls, name+" "+strings.Join(args, " "))
		l.start(1000 + len(l.calls))
		return nil, nil
	default:
		return nil, fmt.Errorf("%s %v: not here", name, args)
	}
}

func (l *lab) merge(all map[string]any, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c map[string]any
	if err := toml.Unmarshal(text, &c); err != nil {
		return err
	}
	imports, _ := c["imports"].([]any)
	deep(all, c)
	for _, p := range imports {
		pattern := p.(string)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(file), pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := l.merge(all, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func deep(to, from map[string]any) {
	for key, value := range from {
		a, isMap := value.(map[string]any)
		b, wasMap := to[key].(map[string]any)
		if isMap && wasMap {
			deep(b, a)
			continue
		}
		to[key] = value
	}
}

// useReal replaces the simulated containerd with a real one.
func (l *lab) useReal() {
	l.t.Helper()
	l.opts.host.Exec = nil
	l.opts.Binary = strings.NewReader("#!/bin/sh\n") // install tries it
	l.daemon[0] = cluster.Containerd(l.t)
	l.start(100)
}

func (l *lab) install() (Result, error) { return Install(l.t.Context(), l.opts) }

func (l *lab) mustInstall() Result {
	l.t.Helper()
	r, err := l.install()
	if err != nil {
		l.t.Fatalf("install: %v\n%q", err, r)
	}
	return r
}

func (l *lab) facts() facts {
	l.t.Helper()
	s := l.opts.Site
	s.StateDir = l.opts.Config.StateDir
	f, err := readHostFacts(l.t.Context(), l.opts.host, s)
	kit.Must(l.t, err)
	return f
}

// tree returns every file of the host except procfs: its name, mode, content and, with times, its time.
func (l *lab) tree(times bool) map[string]string {
	l.t.Helper()
	all := map[string]string{}
	kit.Must(l.t, filepath.WalkDir(l.dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(l.dir, file)
		if name == "proc" {
			return filepath.SkipDir
		}
		info, err := e.Info()
		if err != nil || e.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		text, err := os.ReadFile(file)
		all[name] = fmt.Sprintf("%s %s", info.Mode(), text)
		if times {
			all[name] += info.ModTime().String()
		}
		return err
	}))
	return all
}

// pluginFolder fails the test if NRI's folder contains anything but complete plugins.
func (l *lab) pluginFolder(complete ...string) {
	l.t.Helper()
	entries, err := os.ReadDir(l.path("opt/nri/plugins"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	kit.Must(l.t, err)
	for _, e := range entries {
		info, err := e.Info()
		kit.Must(l.t, err)
		content := l.read("opt/nri/plugins/" + e.Name())
		if e.Name() == ConfigFile {
			continue
		}
		if e.Name() != PluginFile || info.Mode() != 0o755 || !slices.Contains(complete, content) {
			l.t.Errorf("the plugin folder holds %s, %s, %q", e.Name(), info.Mode(), content)
		}
		if _, err := os.Stat(l.path("opt/nri/plugins/forcefence.conf")); err != nil {
			l.t.Errorf("a plugin is there without its configuration: %v", err)
		}
	}
}

var errFault = errors.New("fault")

// failAt lets the nth change of a file fail, and with crash every later one, so that nothing is cleaned up.
func (l *lab) failAt(n int, crash bool) (reached *bool) {
	reached = new(bool)
	count := 0
	l.opts.host.before = func(string, string) error {
		count++
		if count == n || crash && count > n {
			*reached = true
			return errFault
		}
		return nil
	}
	return reached
}

func pod(name string, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{}}}
	change(&p)
	return p
}

func daemonPod(name, owner string, tolerate string) corev1.Pod {
	return pod(name, func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, Controller: &yes}}
		if tolerate != "" {
			p.Annotations[TolerateAnnotation] = tolerate
		}
	})
}

func keys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
