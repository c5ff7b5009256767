package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// TestIsLost reads the mounts of hosts as their distributions make them (docs/platforms.md).
func TestIsLost(t *testing.T) {
	const root = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
	const run = "25 22 0:23 / /run rw,nosuid shared:12 - tmpfs tmpfs rw,mode=755\n"
	for _, tc := range []struct {
		name, mounts string
		etc, opt     bool // is lost
	}{
		{"one disk", root + run, false, false},
		{"no mounts are known", "", false, false},
		{"Bottlerocket: /etc in memory", root + run + "30 22 0:30 / /etc rw - tmpfs tmpfs rw\n" +
			"31 22 8:2 /opt /opt rw - ext4 /dev/sda2 rw\n", true, false},
		{"Harvester: /etc is an overlay that writes to memory", root + run +
			"30 22 0:40 / /etc rw - overlay overlay rw,lowerdir=/etc,upperdir=/run/overlay/etc/upper,workdir=/run/w\n" +
			"31 22 8:2 /opt /opt rw - ext4 /dev/sda2 rw\n", true, false},
		{"Talos: /opt is an overlay that writes to a disk", root + run +
			"32 22 8:6 / /var rw - xfs /dev/sda6 rw\n" +
			"31 22 0:41 / /opt rw - overlay overlay rw,lowerdir=/opt,upperdir=/var/system/overlays/opt\n",
			false, false},
		{"an overlay that is only read", root +
			"30 22 0:40 / /etc ro - overlay overlay ro,lowerdir=/a:/b\n", false, false},
		{"a live system", "22 1 0:2 / / rw - rootfs rootfs rw\n23 22 0:30 / / rw - tmpfs tmpfs rw\n", true, true},
		{"a mount over a mount", root + "30 22 0:30 / /etc rw - tmpfs tmpfs rw\n31 30 8:3 / /etc rw - ext4 /dev/b rw\n",
			false, false},
		{"a name with a space", root + "30 22 0:30 / /etc\\040x rw - tmpfs tmpfs rw\n", false, false},
		{"overlays that name each other", root +
			"30 22 0:40 / /etc rw - overlay overlay rw,upperdir=/opt/a\n" +
			"31 22 0:41 / /opt rw - overlay overlay rw,upperdir=/etc/a\n", false, false},
		{"lines that end early", root + "30 22\n31 22 0:1 / /etc rw -\n", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := Host{Proc: t.TempDir()}
			kit.Must(t, os.Mkdir(h.procFile("self"), 0o700))
			kit.Must(t, os.WriteFile(h.procFile("self/mountinfo"), []byte(tc.mounts), 0o600))
			mounts := h.readMounts()
			etc, opt := isLost(mounts, "/etc/no-such-folder/conf.d"), isLost(mounts, "/opt/no-such-folder")
			if etc != tc.etc || opt != tc.opt {
				t.Errorf("/etc lost: %v, /opt lost: %v; want %v, %v", etc, opt, tc.etc, tc.opt)
			}
		})
	}
}

// loseFolders lets the host lose folders at a boot.
func (l *lab) loseFolders(folders ...string) {
	l.t.Helper()
	text := "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for i, folder := range folders {
		text += fmt.Sprintf("%d 22 0:30 / %s rw - tmpfs tmpfs rw\n", 30+i, l.path(folder))
	}
	l.write("proc/self/mountinfo", text)
}

// TestFoldersThatABootEmpties installs where folders are in memory: the result and the node's protection say what is
// left of the hook after a boot.
func TestFoldersThatABootEmpties(t *testing.T) {
	for _, tc := range []struct {
		lost  []string
		after string
		level Level // after the runtime's next start
		says  string
	}{
		{nil, "the runtime starts the plugin", FailClosed, "requires"},
		{[]string{"etc/containerd"}, "the runtime starts the plugin", FailOpen, "requires the plugin is lost"},
		{[]string{"opt"}, "only the DaemonSet's plugin", NotAtBoot, "opt/nri/plugins is lost with each boot"},
	} {
		l := newLab(t)
		l.opts.RequiredPlugins = true
		l.loseFolders(tc.lost...)
		if r := l.mustInstall(); !strings.Contains(r.AfterBoot, tc.after) {
			t.Errorf("%q: after a boot: %q, want %q", tc.lost, r.AfterBoot, tc.after)
		}
		l.start(200)
		if p := assessProtection(l.facts()); p.Level != tc.level || !strings.Contains(p.Sentence(), tc.says) {
			t.Errorf("%q: got %+v, want %s and %q", tc.lost, p, tc.level, tc.says)
		}
	}
}

// TestDroppedPlugin checks that a plugin that the runtime started and dropped does not count: one whose registration
// failed, that ended, that found no configuration, and that ran on an earlier boot.
func TestDroppedPlugin(t *testing.T) {
	status := func(l *lab, change func(*nri.Status)) {
		all, err := nri.ReadStatuses(l.path("run/forcefence"))
		kit.Must(t, err)
		change(&all[0])
		l.writeStatus(all[0])
	}
	for name, drop := range map[string]func(*lab){
		"it never ran":       func(l *lab) { kit.Must(t, os.Remove(l.path("run/forcefence/10.json"))) },
		"not registered":     func(l *lab) { status(l, func(s *nri.Status) { s.Registered = s.Started }) },
		"it ended":           func(l *lab) { kit.Must(t, os.RemoveAll(l.path("proc/201"))) },
		"its pid is another": func(l *lab) { l.write("proc/201/cmdline", "sleep\x00") },
		"no configuration":   func(l *lab) { status(l, func(s *nri.Status) { s.Node.Name = "" }) },
		"on an earlier boot": func(l *lab) { status(l, func(s *nri.Status) { s.BootID = "boot-0" }) },
		"another plugin":     func(l *lab) { status(l, func(s *nri.Status) { s.Plugin = "20-forcefence" }) },
	} {
		l := newLab(t)
		l.mustInstall()
		l.start(200)
		watched := Connection{StateDir: l.path("run/forcefence"), host: l.opts.host}
		if f := l.facts(); f.PluginDropped || f.restartReasons() != "" || !watched.IsConnected() {
			t.Fatalf("%s: before: %+v, %q", name, f, f.restartReasons())
		}
		drop(l)
		if watched.IsConnected() {
			t.Errorf("%s: it still counts as connected", name)
		}
		f := l.facts()
		if p := assessProtection(f); !f.PluginDropped || p.Level != FailOpen ||
			!strings.Contains(p.Reason, "not connected") || f.restartReasons() == "" {
			t.Errorf("%s: got %+v, restart %q; want that it is not connected", name, p, f.restartReasons())
		}
	}
}

// TestStatusIsReadOnce checks that a status is not read again until the plugin replaces it: it names each pod, and is
// looked at each second.
func TestStatusIsReadOnce(t *testing.T) {
	l := newLab(t)
	l.mustInstall()
	l.start(200)
	file := l.path("run/forcefence/10.json")
	c := Connection{StateDir: filepath.Dir(file), host: l.opts.host}
	if !c.IsConnected() {
		t.Fatal("not connected")
	}
	before, err := os.Stat(file)
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(file, []byte("{}"), 0o644))
	kit.Must(t, os.Chtimes(file, before.ModTime(), before.ModTime()))
	if !c.IsConnected() {
		t.Error("a status that looks as it did was read again")
	}
	kit.Must(t, os.WriteFile(file+".new", []byte("{}"), 0o644))
	kit.Must(t, os.Chtimes(file+".new", before.ModTime(), before.ModTime()))
	kit.Must(t, os.Rename(file+".new", file))
	if c.IsConnected() {
		t.Error("a status that was replaced was not read")
	}
}
