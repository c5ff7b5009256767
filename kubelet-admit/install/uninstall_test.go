package install

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/kit"
)

func (l *lab) uninstall() Result {
	l.t.Helper()
	r, err := Uninstall(l.t.Context(), l.opts)
	if err != nil {
		l.t.Fatalf("uninstall: %v", err)
	}
	return r
}

// traces writes the files that a running plugin leaves.
func (l *lab) traces() {
	l.write("run/forcefence/10.json", "{}")
	l.write("run/forcefence/20.json.new", "{}")
	l.write("lib/forcefence-node/exempt.json", "{}")
	l.write("lib/forcefence-node/exempt.json.20", "{}")
	l.write("log/forcefence-node.log", "x")
	l.write("log/forcefence-node-2026-01-02T03-04-05.678.log", "x")
	l.write("log/forcefence-nodes.log", "another's")
}

func TestUninstall(t *testing.T) {
	l := newLab(t)
	l.write("opt/nri/plugins/05-other", "another's")
	l.write("log/forcefence-nodes.log", "another's")
	before := l.tree(false)
	l.opts.RequiredPlugins, l.opts.RestartRuntime = true, true
	l.mustInstall()
	l.traces()
	l.opts.RestartRuntime = false

	// The running runtime has read that it requires the plugin.
	for i := range 2 {
		r := l.uninstall()
		if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got,
			"still requires the plugin until it is restarted") {
			t.Errorf("%d: warned %q", i, got)
		}
	}
	after := l.tree(false)
	delete(after, "run/forcefence/"+pendingFileName) // kept while it is valid
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	l.start(5000)
	r := l.uninstall()
	if diff := cmp.Diff(before, l.tree(false)); diff != "" || len(r.Warnings) != 0 {
		t.Errorf("warned %q, -before +after:\n%s", r.Warnings, diff)
	}
	if r = l.uninstall(); len(r.Done)+len(r.Warnings) != 0 {
		t.Errorf("a second time it said %+v", r)
	}
	for _, dir := range []string{
		"run/forcefence", "lib/forcefence-node", "opt/nri/.forcefence-stage", "etc/nri/.forcefence-stage",
		"etc/containerd/.forcefence-stage"} {
		if _, err := os.Lstat(l.path(dir)); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestUninstallRestarts(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins, l.opts.RestartRuntime = true, true
	l.mustInstall()
	r := l.uninstall()
	if len(l.calls) != 2 || len(r.Warnings) != 0 {
		t.Errorf("calls %q, warnings %q", l.calls, r.Warnings)
	}
	if l.uninstall(); len(l.calls) != 2 {
		t.Errorf("restarted again: %q", l.calls)
	}
}

// TestUninstallHalfInstalled checks that uninstall removes what a crashed install or uninstall has left.
func TestUninstallHalfInstalled(t *testing.T) {
	n := 1
	for ; ; n++ {
		l := newLab(t)
		before := l.tree(false)
		l.opts.RequiredPlugins = true
		reached := l.failAt(n, true)
		_, _ = l.install()
		l.opts.host.before = nil
		l.uninstall()
		if diff := cmp.Diff(before, l.tree(false)); diff != "" {
			t.Errorf("install stopped at change %d: -before +after:\n%s", n, diff)
		}
		if !*reached {
			break
		}
	}
	m := 1
	for ; ; m++ {
		l := newLab(t)
		before := l.tree(false)
		l.opts.RequiredPlugins = true
		l.mustInstall()
		l.traces()
		kit.Must(t, os.Remove(l.path("log/forcefence-nodes.log")))
		reached := l.failAt(m, true)
		_, err := Uninstall(t.Context(), l.opts)
		if *reached != (err != nil) {
			t.Errorf("uninstall stopped at change %d: got error %v", m, err)
		}
		l.pluginFolder("version 1")
		// Never required without the plugin: the next start would refuse every ordinary container.
		if f := l.facts(); f.NRI.requiresUs() && !f.Plugin {
			t.Errorf("uninstall stopped at change %d: the plugin is required and gone", m)
		}
		l.opts.host.before = nil
		l.uninstall()
		if diff := cmp.Diff(before, l.tree(false)); diff != "" {
			t.Errorf("uninstall stopped at change %d: -before +after:\n%s", m, diff)
		}
		if !*reached {
			break
		}
	}
	if n < 15 || m < 8 {
		t.Errorf("got %d and %d changes, want at least 14 and 7", n-1, m-1)
	}
	t.Logf("%d changes of an install, %d of an uninstall", n-1, m-1)
}

// TestUninstallWithoutRuntime checks that a host without its runtime is cleaned as far as its folders are known.
func TestUninstallWithoutRuntime(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	kit.Must(t, os.Remove(l.path("etc/containerd/config.toml")))
	r := l.uninstall()
	if len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "folders are unknown") {
		t.Errorf("warned %q", r.Warnings)
	}
	if _, err := os.Lstat(l.path(dropInFile)); err == nil {
		t.Error("the drop-in is still there")
	}
}

// TestUninstallOfWhatWasRead changes the files after the running runtime has read that it requires the plugin. It still
// requires it, and would refuse ordinary containers without a plugin.
func TestUninstallOfWhatWasRead(t *testing.T) {
	for name, since := range map[string]func(l *lab){
		"the configuration was edited": func(l *lab) {
			l.write("proc/stat", "cpu 0\nbtime 1\n")
			l.writeProcess(1001, 100, l.daemon...)
			kit.Must(l.t, os.Remove(l.path("run/forcefence/"+pendingFileName)))
			l.write("etc/containerd/config.toml", l.read("etc/containerd/config.toml")+"# x\n")
		},
		"the drop-in changed": func(l *lab) {
			l.write("etc/containerd/conf.d/10-other.toml", "version = "+
				"3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\n"+
				"enable = true\nrequired_plugins = ['other']\n")
			l.mustInstall()
		},
		"the drop-in went and came": func(l *lab) {
			l.opts.RequiredPlugins = false
			l.mustInstall()
			l.opts.RequiredPlugins = true
			l.mustInstall()
		},
		"the drop-in went, and is not read when it comes": func(l *lab) {
			l.opts.RequiredPlugins = false
			l.mustInstall()
			l.opts.RequiredPlugins = true
			l.write("etc/containerd/config.toml",
				strings.ReplaceAll(l.read("etc/containerd/config.toml"), `imports = ["conf.d/*.toml"]`, ""))
			l.mustInstall()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.opts.RequiredPlugins, l.opts.RestartRuntime = true, true
			l.mustInstall()
			l.opts.RestartRuntime = false
			since(l)
			r := l.uninstall()
			if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got,
				"still requires the plugin until it is restarted") {
				t.Errorf("warned %q", got)
			}
		})
	}
}

// TestUninstallWithoutKubelet checks that the installed configuration names the kubeconfig where no kubelet runs, and
// that an uninstall without either cleans the host and says what it could not do.
func TestUninstallWithoutKubelet(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	kit.Must(t, os.RemoveAll(l.path("proc/7")))
	l.uninstall()
	if _, err := Uninstall(t.Context(), l.opts); err == nil || !strings.Contains(err.Error(), "set --kubeconfig") {
		t.Errorf("got %v, want that no kubeconfig was found", err)
	}
}
