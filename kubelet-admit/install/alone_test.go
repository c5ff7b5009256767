package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// listPrograms returns the files of NRI's folder that a runtime would start.
func (l *lab) listPrograms() (names []string) {
	for name := range l.tree(false) {
		if strings.HasPrefix(name, "opt/nri/plugins/") && strings.HasPrefix(l.tree(false)[name], "-rwx") {
			names = append(names, name)
		}
	}
	return names
}

// TestOldRuntime installs on runtimes that do not start if a plugin of theirs fails (F26): the DaemonSet's plugin runs
// alone, also after an upgrade from a version that put one there.
func TestOldRuntime(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	if len(l.listPrograms()) != 1 {
		t.Fatalf("containerd 2.4 has %q, want the plugin", l.listPrograms())
	}
	l.version = "1.7.24~ds1"
	l.opts.Binary = strings.NewReader("version 2")
	for range 2 {
		r := l.mustInstall()
		if len(l.listPrograms()) != 0 {
			t.Fatalf("the folder holds %q, want no program", l.listPrograms())
		}
		if r.Protection.Level != NotAtBoot ||
			!strings.Contains(r.Protection.Sentence(), "1.7.24 would not start beside") {
			t.Errorf("got %+v, want %s and why", r.Protection, NotAtBoot)
		}
		if l.facts().NRI.requiresUs() {
			t.Error("the plugin is required, and there is none")
		}
		if _, err := nri.ParseConfig(l.read("run/forcefence/forcefence.conf")); err != nil {
			t.Errorf("the DaemonSet's plugin has no configuration: %v", err)
		}
	}
	l.version = "1.7.26"
	if r := l.mustInstall(); len(l.listPrograms()) != 1 || r.Protection.Level != FailOpen {
		t.Errorf("after the runtime's upgrade: %q, %+v; want the plugin, and %s", l.listPrograms(), r.Protection,
			FailOpen)
	}
}

// TestProgramThatDoesNotRun installs where the program does not start, as on a file system that is mounted noexec.
func TestProgramThatDoesNotRun(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.broken = syscall.EACCES
	for range 2 { // also where an earlier install put one
		r := l.mustInstall()
		if len(l.listPrograms()) != 0 || l.facts().NRI.requiresUs() {
			t.Errorf("the folder holds %q, required: %v; want nothing", l.listPrograms(), l.facts().NRI.requiresUs())
		}
		if p := assessProtection(l.facts()); p != r.Protection || p.Level != NotAtBoot ||
			!strings.Contains(p.Sentence(), "permission denied") {
			t.Errorf("got %+v, later %+v; want %s and why", r.Protection, p, NotAtBoot)
		}
		l.broken = nil
		l.mustInstall()
		l.broken = syscall.EACCES
	}
	l.broken = nil
	if r := l.mustInstall(); len(l.listPrograms()) != 1 || !l.facts().NRI.requiresUs() {
		t.Errorf("once it runs: %q, %+v; want the plugin, required", l.listPrograms(), r.Protection)
	}
}

// endsAs runs a shell's command and returns how it ended.
func endsAs(t *testing.T, command string) error {
	t.Helper()
	err := exec.CommandContext(t.Context(), "sh", "-c", command).Run()
	if err == nil {
		t.Fatalf("%s: ended well", command)
	}
	return err
}

// TestPluginStaysWhereTrialWasEnded upgrades a plugin whose trial is ended from outside, or fails by itself. Only the
// second shows that the program does not run here. The first is an error, and leaves the installed hook as it is.
func TestPluginStaysWhereTrialWasEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		end  error
		fail bool // by itself
	}{
		"pod deleted":    {end: context.Canceled},
		"timeout":        {end: context.DeadlineExceeded},
		"its own limit":  {end: fmt.Errorf("did not end within %s", execTimeout)},
		"OOM killer":     {end: endsAs(t, "kill -KILL $$")},
		"terminated":     {end: endsAs(t, "kill -TERM $$")},
		"no memory":      {end: syscall.ENOMEM},
		"no process":     {end: syscall.EAGAIN},
		"still written":  {end: syscall.ETXTBSY},
		"no threads":     {end: endsAs(t, "exit 2")},
		"noexec":         {end: syscall.EACCES, fail: true},
		"forbidden":      {end: syscall.EPERM, fail: true},
		"other machine":  {end: syscall.ENOEXEC, fail: true},
		"other features": {end: endsAs(t, "exit 1"), fail: true},
		"no instruction": {end: endsAs(t, "kill -ILL $$"), fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.opts.RequiredPlugins = true
			l.mustInstall()
			l.start(200)
			l.opts.Binary = strings.NewReader("version 2")
			l.broken = fmt.Errorf("forcefence-node version: %w", tc.end)
			before := l.tree(true)
			_, err := l.install()
			if tc.fail {
				if err != nil || len(l.listPrograms()) != 0 || l.facts().NRI.requiresUs() {
					t.Errorf("got %v, %q, required: %v; want no plugin", err, l.listPrograms(), l.facts().NRI.requiresUs())
				}
				return
			}
			if !errors.Is(err, tc.end) {
				t.Errorf("got %v, want %v", err, tc.end)
			}
			if diff := cmp.Diff(before, l.tree(true)); diff != "" {
				t.Errorf("the interrupted install changed something:\n%s", diff)
			}
			l.broken = nil
			l.mustInstall()
			if got := l.read("opt/nri/plugins/" + PluginFile); got != "version 2" {
				t.Errorf("the next install left %q", got)
			}
		})
	}
}

// TestDropInStaysWhereCheckWasEnded ends the runtime's dump after the drop-in was written. A runtime that was not asked
// to the end refused nothing, so the requirement stays. A dump that fails by itself undoes it.
func TestDropInStaysWhereCheckWasEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		end  error
		stay bool
	}{
		"pod deleted": {end: context.Canceled, stay: true},
		"OOM killer":  {end: endsAs(t, "kill -KILL $$"), stay: true},
		"refused":     {end: endsAs(t, "exit 1")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.opts.RequiredPlugins = true
			l.opts.host.before = func(op, path string) error {
				if op == "rename" && path == l.path(dropInFile) {
					l.dump = fmt.Errorf("containerd config dump: %w", tc.end)
				}
				return nil
			}
			if _, err := l.install(); !errors.Is(err, tc.end) {
				t.Errorf("got %v, want %v", err, tc.end)
			}
			l.dump, l.opts.host.before = nil, nil
			if got := l.facts().NRI.requiresUs(); got != tc.stay || len(l.listPrograms()) != 1 {
				t.Errorf("required: %v, %q; want %v, and the plugin", got, l.listPrograms(), tc.stay)
			}
			l.mustInstall()
			if !l.facts().NRI.requiresUs() {
				t.Error("the next install does not require it")
			}
		})
	}
}

// TestReadOnlyFolder installs where a folder is on a file system that is read-only: the DaemonSet's plugin runs alone,
// or the runtime does not require the plugin. Once the folder can be written, the install is completed.
func TestReadOnlyFolder(t *testing.T) {
	for folder, want := range map[string]Level{"opt": NotAtBoot, "etc": FailOpen} {
		t.Run(folder, func(t *testing.T) {
			l := newLab(t)
			l.opts.RequiredPlugins = true
			l.opts.host.before = func(_, path string) error {
				if strings.HasPrefix(path, l.path(folder)+"/") {
					return syscall.EROFS
				}
				return nil
			}
			r := l.mustInstall()
			l.start(200)
			if p := assessProtection(l.facts()); p.Level != want ||
				!strings.Contains(p.Sentence(), "read-only file system") {
				t.Errorf("got %+v, want %s and why", p, want)
			}
			if starts := r.AfterBoot == "the runtime starts the plugin"; starts != (want == FailOpen) {
				t.Errorf("after a boot: %q", r.AfterBoot)
			}
			if c, err := nri.ParseConfig(l.read("run/forcefence/forcefence.conf")); err != nil ||
				(c.Program == "") != (want == NotAtBoot) {
				t.Errorf("the DaemonSet's plugin has the configuration %+v, %v", c, err)
			}
			l.uninstall()
			l.mustInstall()
			l.opts.host.before = nil
			l.mustInstall()
			l.start(300)
			if p := assessProtection(l.facts()); p.Level != FailClosed {
				t.Errorf("once it can be written: got %+v, want %s", p, FailClosed)
			}
		})
	}
}

// TestUninstallKeepsTheConfiguration lets the removal of the program fail: a program without a configuration keeps an
// old runtime from starting.
func TestUninstallKeepsTheConfiguration(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	l.opts.host.before = func(op, path string) error {
		if op == "remove" && strings.HasSuffix(path, PluginFile) {
			return errFault
		}
		return nil
	}
	if _, err := Uninstall(t.Context(), l.opts); !errors.Is(err, errFault) {
		t.Errorf("got %v, want the fault", err)
	}
	_, err := os.Stat(l.path("opt/nri/plugins/forcefence.conf"))
	kit.Must(t, err)
}

// TestConfigurationIsLost removes what a boot loses: the plugin has a configuration beside it.
func TestConfigurationIsLost(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	kit.Must(t, os.RemoveAll(l.path("run")))
	l.start(200)
	if f := l.facts(); !f.Plugin || f.Config {
		t.Errorf("got %+v, want the plugin with its configuration", f)
	}
}
