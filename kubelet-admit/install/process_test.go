package install

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/kit"
)

func TestParseStat(t *testing.T) {
	const rest = " 12 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n"
	for _, tc := range []struct {
		stat   string
		parent int
		start  uint64
		ok     bool
	}{
		{"7 (containerd) S" + rest, 12, 4711, true},
		{"7 (a) b (containerd) S) S" + rest, 12, 4711, true},
		{"7 (containerd) Z" + rest, 0, 0, false},
		{"7 (containerd) S 1 1", 0, 0, false},
		{"7 containerd S" + rest, 0, 0, false},
		{"", 0, 0, false},
	} {
		parent, start, ok := parseStat(tc.stat)
		if parent != tc.parent || start != tc.start || ok != tc.ok {
			t.Errorf("%q: got %d, %d, %v", tc.stat, parent, start, ok)
		}
	}
	// What the kernel says of this process.
	stat, err := os.ReadFile("/proc/self/stat")
	kit.Must(t, err)
	parent, start, ok := parseStat(string(stat))
	began := Host{}.startTime([]process{{PID: os.Getpid(), Start: start}})
	if age := time.Since(began); !ok || age < -2*time.Second || age > time.Hour || parent != os.Getppid() {
		t.Errorf("this process began at %s, as a child of %d", began, parent)
	}
}

// TestPendingByTime checks that the files' times decide without a pending state: another program changed the files, or
// the state folder is new.
func TestPendingByTime(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	kit.Must(t, os.RemoveAll(l.path("run")))
	if f := l.facts(); f.PluginPending || f.ConfigPending {
		t.Errorf("a runtime that started later has read them: %+v", f)
	}
	l.write("proc/stat", "cpu 0\n")
	if f := l.facts(); f.PluginPending {
		t.Errorf("without the time of the boot nothing may be pending: %+v", f)
	}
	l.write("proc/stat", "cpu 0\nbtime 1\n")
	l.writeProcess(100, 100, l.daemon...)
	f := l.facts()
	if !f.PluginPending || !f.ConfigPending {
		t.Errorf("a runtime that started before has not: %+v", f)
	}
	if p := assessProtection(f); p.Level != FailOpen {
		t.Errorf("got %+v", p)
	}
}

// TestPendingByTheOldest checks that of two processes of the runtime the older one decides: it has not read what the
// newer one has.
func TestPendingByTheOldest(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	kit.Must(t, os.RemoveAll(l.path("run")))
	l.write("proc/stat", "cpu 0\nbtime 1\n")
	for _, pid := range []int{50, 200} { // listed before the newer process, and after it
		l.writeProcess(pid, 100, l.daemon...)
		if f := l.facts(); !f.PluginPending || !f.ConfigPending {
			t.Errorf("an older process with pid %d has not read the files: %+v", pid, f)
		}
		kit.Must(t, os.RemoveAll(l.path(fmt.Sprintf("proc/%d", pid))))
	}
	if f := l.facts(); f.PluginPending || f.ConfigPending {
		t.Errorf("the newer process alone has read them: %+v", f)
	}
}

// TestPluginThatCannotRun checks that a plugin that the runtime cannot start counts as missing.
func TestPluginThatCannotRun(t *testing.T) {
	for name, change := range map[string]func(plugin, config string) error{
		"not executable":       func(plugin, _ string) error { return os.Chmod(plugin, 0o644) },
		"an empty file":        func(plugin, _ string) error { return os.Truncate(plugin, 0) },
		"gone":                 func(plugin, _ string) error { return os.Remove(plugin) },
		"no configuration":     func(_, config string) error { return os.Remove(config) },
		"half a configuration": func(_, config string) error { return os.WriteFile(config, nil, 0o600) },
		"a configuration that does not parse": func(_, config string) error {
			return os.WriteFile(config, []byte("{"), 0o600)
		},
		"a folder": func(plugin, _ string) error { return errors.Join(os.Remove(plugin), os.Mkdir(plugin, 0o755)) },
	} {
		l := newLab(t)
		l.opts.RequiredPlugins = true
		l.mustInstall()
		l.start(200)
		if p := assessProtection(l.facts()); p.Level != FailClosed {
			t.Fatalf("%s: before: got %+v, want %s", name, p, FailClosed)
		}
		kit.Must(t, change(l.path("opt/nri/plugins/"+PluginFile), l.path("opt/nri/plugins/"+ConfigFile)))
		f := l.facts()
		if p := assessProtection(f); f.Plugin || p.Level == FailClosed {
			t.Errorf("%s: got %+v, %+v; want no plugin, and not %s", name, f, p, FailClosed)
		}
	}
}

// TestRecordOutlivesNoBoot checks that the pending state ends with the boot: pids and start times repeat.
func TestRecordOutlivesNoBoot(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	if !l.facts().PluginPending {
		t.Error("the running runtime has not started it")
	}
	l.write("proc/sys/kernel/random/boot_id", "boot-2\n")
	if diff := cmp.Diff(false, l.facts().PluginPending); diff != "" {
		t.Error("the plugin is pending after a boot")
	}
}

// TestPendingByAnotherFile requires the plugin in a file of the host's owner, which the running runtime has not read.
func TestPendingByAnotherFile(t *testing.T) {
	for name, file := range map[RuntimeName]string{
		containerd: "etc/containerd/conf.d/50-host.toml", crio: "etc/crio/crio.conf.d/50-host.conf"} {
		t.Run(string(name), func(t *testing.T) {
			l := newLab(t)
			content := "version = 3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = " +
				"true\nrequired_plugins = ['forcefence']\n"
			if name == crio {
				l.useCRIO()
				content = "[crio.nri.default_validator]\nnri_enable_default_validator = " +
					"true\nnri_validator_required_plugins = ['forcefence']\n"
			}
			l.mustInstall()
			l.start(200)
			l.write(file, content)
			if p := assessProtection(l.facts()); p.Level != FailClosed {
				t.Errorf("a runtime that started later: got %+v", p)
			}
			l.write("proc/stat", "cpu 0\nbtime 1\n")
			l.writeProcess(200, 100, l.daemon...)
			for _, old := range []string{l.path("opt/nri/plugins/" + PluginFile), l.daemon[2]} {
				kit.Must(t, os.Chtimes(old, time.Unix(1, 0), time.Unix(1, 0)))
			}
			if p := assessProtection(l.facts()); p.Level != FailOpen {
				t.Errorf("a runtime that started before: got %+v", p)
			}
		})
	}
}
