package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

func TestInstall(t *testing.T) {
	l := newLab(t)
	r := l.mustInstall()
	l.pluginFolder("version 1")
	if got := l.read("opt/nri/plugins/10-forcefence"); got != "version 1" {
		t.Errorf("the plugin is %q", got)
	}
	for file, program := range map[string]string{"opt/nri/plugins/forcefence.conf": "",
		"run/forcefence/forcefence.conf": l.path("opt/nri/plugins/10-forcefence")} {
		want := l.opts.Config
		want.Kubeconfig, want.Program = l.path("kubelet.conf"), program // the kubelet's command line names the first
		c, err := nri.ParseConfig(l.read(file))
		if diff := cmp.Diff(want, c); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", file, err, diff)
		}
	}
	if r.Protection.Level != FailOpen || !l.facts().PluginPending {
		t.Errorf("got %+v, want fail-open until the runtime's next start", r.Protection)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "systemctl restart containerd") {
		t.Errorf("warnings %q, want that the runtime must be restarted", r.Warnings)
	}
	if len(l.calls) != 0 {
		t.Errorf("called %q without being asked to", l.calls)
	}

	l.start(200)
	if f := l.facts(); f.PluginPending {
		t.Error("a restarted runtime has read it all")
	}
	before := l.tree(true)
	r = l.mustInstall()
	if diff := cmp.Diff(before, l.tree(true)); diff != "" {
		t.Errorf("the second install changed something:\n%s", diff)
	}
	for _, line := range r.Done {
		if !strings.HasSuffix(line, ": unchanged") {
			t.Errorf("said %q", line)
		}
	}
	if len(r.Warnings) != 0 {
		t.Errorf("warned %q", r.Warnings)
	}
}

// TestUpgrade installs another version, which the running runtime uses from its next start on. A configuration that NRI
// would prefer to ours is removed.
func TestUpgrade(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	l.start(200)
	l.write("opt/nri/plugins/05-forcefence-other", "another's")
	l.write("etc/nri/conf.d/forcefence.conf", "nodeName: old\n")
	l.opts.Binary = strings.NewReader("version 2")
	r := l.mustInstall()
	if got := l.read("opt/nri/plugins/10-forcefence"); got != "version 2" {
		t.Errorf("the plugin is %q", got)
	}
	if fileExists(l.path("etc/nri/conf.d/forcefence.conf")) {
		t.Error("the other configuration is still there")
	}
	l.read("opt/nri/plugins/05-forcefence-other") // not ours
	if f := l.facts(); !f.UpgradePending || f.PluginPending {
		t.Errorf("got %+v, want an upgrade that is due", f)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "previous version") {
		t.Errorf("warned %q", r.Warnings)
	}
}

// TestRefused checks that a refused install changes nothing.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(*lab)
		want  string
	}{
		{"kubeconfig fails", func(l *lab) {
			l.opts.connect = func(context.Context, nri.Config, string) (rest.Interface, *corev1.Node, error) {
				return nil, nil, errors.New("testing the kubelet's kubeconfig: no")
			}
		}, "testing the kubelet's kubeconfig: no"},
		{"another runtime than the Node's", func(l *lab) {
			l.opts.connect = func(context.Context, nri.Config, string) (rest.Interface, *corev1.Node, error) {
				return nil,
					&corev1.Node{
						Status: corev1.NodeStatus{
							NodeInfo: corev1.NodeSystemInfo{ContainerRuntimeVersion: "docker://20.10.1"}}}, nil
			}
		}, `the Node reports the container runtime "docker", but the kubelet's seems to be containerd`},
		{"no kubelet", func(l *lab) { kit.Must(l.t, os.RemoveAll(l.path("proc/7"))) },
			"no process of this host is its kubelet"},
		{"no runtime", func(l *lab) { kit.Must(l.t, os.RemoveAll(l.path("proc/100"))) },
			"neither containerd nor CRI-O runs"},
		{"no node name", func(l *lab) { l.opts.Config.NodeName = "" }, "nodeName: missing"},
		{"runtime does not answer", func(l *lab) { l.write("etc/containerd/config.toml", "= broken") },
			"reading the runtime's configuration"},
		{"the plugin is a link", func(l *lab) {
			l.write("elsewhere", "x")
			kit.Must(l.t, os.MkdirAll(l.path("opt/nri/plugins"), 0o755))
			kit.Must(l.t, os.Symlink(l.path("elsewhere"), l.path("opt/nri/plugins/10-forcefence")))
		}, "10-forcefence is not a regular file"},
		{"the plugin is a folder",
			func(l *lab) {
				kit.Must(l.t, os.MkdirAll(l.path("opt/nri/plugins/10-forcefence"), 0o755))
			}, "10-forcefence is not a regular file"},
		{"the plugin folder is a file", func(l *lab) { l.write("opt/nri/plugins", "x") }, "opt/nri/plugins"},
		{"the plugin folder is a link to nothing", func(l *lab) {
			kit.Must(l.t, os.MkdirAll(l.path("opt/nri"), 0o755))
			kit.Must(l.t, os.Symlink(l.path("nowhere"), l.path("opt/nri/plugins")))
		}, "broken link"},
		{"the configuration is a link", func(l *lab) {
			l.write("elsewhere", "x")
			kit.Must(l.t, os.MkdirAll(l.path("opt/nri/plugins"), 0o755))
			kit.Must(l.t, os.Symlink(l.path("elsewhere"), l.path("opt/nri/plugins/forcefence.conf")))
		}, "forcefence.conf is not a regular file"},
		{"disk full", func(l *lab) {
			l.opts.host.before = func(op, path string) error {
				if op == "write" && strings.HasSuffix(path, "10-forcefence") {
					return syscall.ENOSPC
				}
				return nil
			}
		}, "no space left on device"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			tc.setup(l)
			before := l.links()
			_, err := l.install()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
			l.opts.host.before = nil
			if diff := cmp.Diff(before, l.links()); diff != "" {
				t.Errorf("it left something:\n%s", diff)
			}
		})
	}
}

// links returns the names of all files and links on the host, broken links included.
func (l *lab) links() []string {
	var all []string
	kit.Must(l.t, filepath.Walk(l.dir, func(file string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all = append(all, file)
		}
		return err
	}))
	return all
}

// TestReadOnly uses a real read-only file system, in a mount namespace that ends with the test: no mount stays on the
// machine. Without the right to make one, it needs a user namespace as well.
func TestReadOnly(t *testing.T) {
	ids := func(own int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: own, Size: 1}} }
	if !kit.RunApart(t, "FORCEFENCE_REQUIRE_NODES", &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS},
		&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid())}) {
		return
	}
	l := newLab(t)
	kit.Must(t, os.MkdirAll(l.path("opt"), 0o755))
	if err := syscall.Mount("none", l.path("opt"), "tmpfs", syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Skipf("mounting a tmpfs: %v", err) // AppArmor may refuse that in a user namespace
	}
	defer func() { kit.Must(t, syscall.Unmount(l.path("opt"), 0)) }()
	if r := l.mustInstall(); r.Protection.Level != NotAtBoot ||
		!strings.Contains(r.Protection.Sentence(), syscall.EROFS.Error()) {
		t.Errorf("got %+v, want %s, because of a file system that is read-only", r.Protection, NotAtBoot)
	}
	kit.Must(t, syscall.Mount("none", l.path("opt"), "tmpfs", syscall.MS_REMOUNT, "size=64k"))
	before := l.tree(true)
	l.opts.Binary = bytes.NewReader(make([]byte, 1<<20))
	if _, err := l.install(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want a disk that is full", err)
	}
	if diff := cmp.Diff(before, l.tree(true)); diff != "" {
		t.Errorf("it left something:\n%s", diff)
	}
}

func TestLinkedFolder(t *testing.T) {
	l := newLab(t)
	kit.Must(t, os.MkdirAll(l.path("data/plugins"), 0o755))
	kit.Must(t, os.MkdirAll(l.path("opt/nri"), 0o755))
	kit.Must(t, os.Symlink(l.path("data/plugins"), l.path("opt/nri/plugins")))
	var staged []string
	l.opts.host.before = func(op, path string) error {
		if op == "write" {
			staged = append(staged, path)
		}
		return nil
	}
	l.mustInstall()
	if got := l.read("data/plugins/10-forcefence"); got != "version 1" {
		t.Errorf("the plugin is %q", got)
	}
	if want := l.path("data/.forcefence-stage/plugins/10-forcefence"); len(staged) == 0 || staged[0] != want {
		t.Errorf("staged %q, want it where the link leads: %s", staged, want)
	}
}

func TestNoNRI(t *testing.T) {
	for _, tc := range []struct{ name, version, config string }{
		{"too old", "v1.6.31", ""},
		{"switched off", "v2.4.2", "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"},
		{"disabled by name", "v2.4.2", "version = 3\ndisabled_plugins = ['io.containerd.nri.v1.nri']\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			l.version = tc.version
			if tc.config != "" {
				l.write("etc/containerd/config.toml", tc.config)
			}
			before := l.tree(true)
			r := l.mustInstall()
			if r.Protection.Level != None {
				t.Errorf("got %+v", r.Protection)
			}
			if diff := cmp.Diff(before, l.tree(true)); diff != "" {
				t.Errorf("it left something:\n%s", diff)
			}
		})
	}
}

// TestFaults lets every change of a file fail in turn, alone or with all later ones (a crash), in a first install and
// in an upgrade. The plugin folder holds nothing but complete plugins with a configuration at any time, and the next
// install completes the first.
func TestFaults(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for _, upgrade := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%v,upgrade=%v", crash, upgrade), func(t *testing.T) {
				prepare := func(l *lab) {
					l.pods = []corev1.Pod{daemonPod("a", "cni", "true")}
					if upgrade {
						l.opts.Binary = strings.NewReader("version 0")
						l.mustInstall()
						l.start(200)
					}
					l.opts.RequiredPlugins = true
					l.opts.Binary = strings.NewReader("version 1")
				}
				whole := newLab(t)
				prepare(whole)
				whole.mustInstall()
				want := whole.inPlace()

				n := 1
				for ; ; n++ {
					l := newLab(t)
					prepare(l)
					reached := l.failAt(n, crash)
					_, err := l.install()
					if !*reached {
						kit.Must(t, err)
						break
					}
					// A staging folder that could not be removed is no failure: the next install removes it.
					if err != nil && !errors.Is(err, errFault) {
						t.Errorf("change %d: got error %v", n, err)
					}
					l.pluginFolder("version 0", "version 1")
					l.opts.host.before = nil
					if upgrade && !l.facts().Plugin {
						t.Errorf("change %d: an upgrade leaves no plugin", n)
					}
					l.mustInstall()
					l.pluginFolder("version 1")
					if diff := cmp.Diff(want, l.inPlace()); diff != "" {
						t.Errorf("change %d: the next install does not complete it:\n%s", n, diff)
					}
				}
				if n < 20 {
					t.Errorf("got %d changes, want at least 19", n-1)
				}
				t.Logf("%d changes failed in turn", n-1)
			})
		}
	}
}

// inPlace returns the tree without the lab's own folder, and without the pending state, whose pids differ.
func (l *lab) inPlace() map[string]string {
	all := map[string]string{}
	for name, content := range l.tree(false) {
		if filepath.Base(name) != pendingFileName {
			all[name] = strings.ReplaceAll(content, l.dir, "")
		}
	}
	return all
}

func TestRestart(t *testing.T) {
	l := newLab(t)
	l.opts.RestartRuntime = true
	l.opts.RequiredPlugins = true
	r := l.mustInstall()
	if diff := cmp.Diff([]string{"systemctl restart containerd"}, l.calls); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if r.Protection.Level != FailClosed || len(r.Warnings) != 0 {
		t.Errorf("got %+v, warnings %q", r.Protection, r.Warnings)
	}
	l.mustInstall()
	if len(l.calls) != 1 {
		t.Errorf("restarted again: %q", l.calls)
	}

	// Another executable in the folder would keep the runtime from starting.
	l.opts.Binary = strings.NewReader("version 2")
	l.write("opt/nri/plugins/tool", "x")
	kit.Must(t, os.Chmod(l.path("opt/nri/plugins/tool"), 0o755))
	r = l.mustInstall()
	if len(l.calls) != 1 || !strings.Contains(strings.Join(r.Warnings, "\n"), "will not start until it is removed") {
		t.Errorf("calls %q, warnings %q", l.calls, r.Warnings)
	}
}

// TestRestartFails checks that a runtime that does not start with the drop-in is started again without it.
func TestRestartFails(t *testing.T) {
	l := newLab(t)
	l.opts.RestartRuntime, l.opts.RequiredPlugins = true, true
	tries := 0
	l.opts.host.Exec = func(ctx context.Context, name string, args ...string) ([]byte, error) {
		if name == "systemctl" {
			tries++
			if _, err := os.Stat(l.path("etc/containerd/conf.d/99-forcefence.toml")); err == nil {
				return nil, errors.New("it does not start")
			}
		}
		return l.exec(ctx, name, args...)
	}
	_, err := l.install()
	if err == nil || !strings.Contains(err.Error(), "removed again") || tries != 2 {
		t.Errorf("got error %v after %d tries", err, tries)
	}
	if f := l.facts(); f.NRI.requiresUs() {
		t.Error("the drop-in is still there")
	}
}

// TestInstallIntoSiblings checks folders of NRI's that are beside each other, so that their files wait in one folder.
func TestInstallIntoSiblings(t *testing.T) {
	l := newLab(t)
	l.write("etc/containerd/config.toml", strings.ReplaceAll(l.read("etc/containerd/config.toml"),
		l.path("etc/nri/conf.d"), l.path("opt/nri/conf.d")))
	l.mustInstall()
	l.start(200)
	if r := l.mustInstall(); r.Protection.Level != FailOpen || l.read("opt/nri/plugins/"+ConfigFile) == "" {
		t.Errorf("got %+v", r.Protection)
	}
}
